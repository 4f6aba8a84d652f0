"""文字 → 向量：几种嵌入器，一个约定（见 base.py）。"""

from __future__ import annotations

import importlib
from typing import Any

from rag_lessons.types import RagLessonsError

_HOMES = {
    "Embedder": "base",
    "ToyEmbedder": "toy",
    "E5Embedder": "e5",
    "ZhipuEmbedder": "api",
    "OpenAIEmbedder": "api",
    "EncoderEmbedder": "api",
    "CachedEmbedder": "cache",
    "EmbeddingServiceError": "api",
    "Retry": "api",
}
__all__ = [*_HOMES, "get_embedder"]


def __getattr__(name: str) -> Any:
    """用到哪个嵌入器才导入哪个模块，``import rag_lessons`` 因此很快。"""
    if name not in _HOMES:
        raise AttributeError(f"rag_lessons.embedding 里没有 {name}")
    return getattr(importlib.import_module(f"rag_lessons.embedding.{_HOMES[name]}"), name)


def get_embedder(name: str = "auto") -> Any:
    """按名字取嵌入器。

    参数
    ----
    name : ``"toy"``、``"e5"``、``"zhipu"``，或 ``"auto"``：设了 ZHIPUAI_API_KEY 且没有设
        RAG_LESSONS_OFFLINE 时用智谱 embedding-3，否则用本机的 e5。
    """
    from rag_lessons.settings import get_key, offline

    if name == "auto":
        name = "zhipu" if not offline() and get_key("ZHIPUAI_API_KEY") else "e5"
    homes = {"toy": "ToyEmbedder", "e5": "E5Embedder", "zhipu": "ZhipuEmbedder"}
    if not isinstance(name, str) or name not in homes:
        raise RagLessonsError(f"没有叫 {name!r} 的嵌入器；可选 auto、toy、e5、zhipu。其他服务请直接用 OpenAIEmbedder。")
    return __getattr__(homes[name])()
