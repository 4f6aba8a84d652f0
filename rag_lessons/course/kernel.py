"""每课第一格调用的 ``setup()``，以及与它配套的小工具。

``setup()`` 只做三件事：说出这个内核用哪种嵌入和哪种回答，设好图的样式，给矩阵运算的线程数封顶。
它不下载模型、不联网，所以总能立刻返回。
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag_lessons.embedding.base import Embedder
    from rag_lessons.embedding.cache import CachedEmbedder
    from rag_lessons.generation import Generator

MAX_BLAS_THREADS = 4  # 一间教室共用一台服务器时，谁也不该占满所有核

EMBEDDING_NAMES = {
    "toy": "字对哈希（玩具，不调用模型）",
    "e5": "multilingual-e5-small（4-bit，本机 numpy）",
    "zhipu": "zhipuai embedding-3（网络服务）",
}

_FIRST_CELL = '''\
try:
    from rag_lessons import course
except ImportError as error:
    raise ImportError(f"当前内核里没有 {error.name}。请点右上角的内核名，换成本课程 .venv 里的 Python；"
                      "还没有 .venv 时，先在课程文件夹运行 python start.py。") from None
course.setup("LESSON")'''


def first_cell(lesson: str) -> str:
    """每个 notebook 第一个代码格的内容。选错内核时，它用一句话说出怎么改。

    参数
    ----
    lesson : 课号，例如 "05"、"A1"。

    >>> first_cell("05").splitlines()[-1]
    'course.setup("05")'
    """
    return _FIRST_CELL.replace("LESSON", lesson)


def in_use() -> tuple[str, str]:
    """这个内核默认用哪种嵌入（代号）、哪种回答（名字），例如 ``("e5", "抽取式（不调用模型）")``。

    有 ZHIPUAI_API_KEY 且没有设 RAG_LESSONS_OFFLINE=1 时嵌入用 zhipuai，否则用本机的 e5。
    回答用第一家有密钥的对话服务（见 ``rag_lessons.chat.get_chat``），都没有就是抽取式。
    """
    from rag_lessons.chat import get_chat
    from rag_lessons.generation import ExtractiveGenerator
    from rag_lessons.settings import get_key, offline

    online = not offline() and get_key("ZHIPUAI_API_KEY") is not None
    chat = get_chat()
    return ("zhipu" if online else "e5", chat.name if chat is not None else ExtractiveGenerator.name)


def generator(embedder: Embedder | None = None) -> Generator:
    """``ask`` 用的作答者：有对话服务的密钥就用它，没有（或离线）就是抽取式。

    参数
    ----
    embedder : 抽取式用来挑句子的嵌入器；不写时用字对重合。

    >>> generator().generate("上限多少", [])
    '资料中未提及'
    """
    from rag_lessons.chat import get_chat
    from rag_lessons.generation import ChatGenerator, ExtractiveGenerator

    chat = get_chat()
    return ChatGenerator(chat) if chat is not None else ExtractiveGenerator(embedder)


def describe() -> str:
    """``setup()`` 打印的那一行。"""
    embedding, answering = in_use()
    return f"嵌入：{EMBEDDING_NAMES[embedding]}　回答：{answering}"


def cap_threads(limit: int = MAX_BLAS_THREADS) -> int:
    """让 BLAS 最多用 ``min(limit, 可用的核数)`` 个线程；已经更少时不动它。返回生效的线程数。"""
    import numpy as np  # noqa: F401  先载入 numpy，才有 BLAS 可管
    from threadpoolctl import threadpool_info, threadpool_limits

    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    now = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    threads = min([limit, cpus, *now])
    if any(n > threads for n in now):
        threadpool_limits(limits=threads, user_api="blas")
    return threads


def setup(lesson: str | None = None) -> None:
    """每课第一格调用一次：打印一行说明，设好图的样式与线程上限。

    参数
    ----
    lesson : 课号，例如 "05"。目前只用来核对写法，不影响结果。
    """
    if lesson is not None and not isinstance(lesson, str):
        from rag_lessons.types import RagLessonsError

        raise RagLessonsError(f'课号要写成字符串，例如 setup("05")；收到的是 {lesson!r}。')
    from rag_lessons.course.plotting import use_style

    use_style()
    cap_threads()
    print(describe())


def embedder(name: str = "auto") -> CachedEmbedder:
    """带磁盘缓存的嵌入器；所有课共用一个缓存，算过的文字不再算。

    参数
    ----
    name : "auto"（默认，见 ``in_use``）、"toy"、"e5"、"zhipu"。
    """
    return _embedder(in_use()[0] if name == "auto" else name)


@cache  # 同一个内核里模型只载入一次
def _embedder(name: str) -> CachedEmbedder:
    from rag_lessons.embedding import get_embedder
    from rag_lessons.embedding.cache import CachedEmbedder

    return CachedEmbedder(get_embedder(name))


def data_path(*parts: str) -> Path:
    """课程数据的路径，与当前工作目录无关：``data_path("agent")``。"""
    from rag_lessons.paths import data_path as locate

    return locate(*parts)
