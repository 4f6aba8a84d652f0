"""问题 + 检索结果 → 答案文字。

ExtractiveGenerator 不用语言模型：它从检索到的资料里挑出最贴近问题的句子，原样抄下来并写上编号。
它不会概括、不会推理，也因此不会编造；离线时用它。
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from rag_lessons.embedding.base import Embedder, check_embedder
from rag_lessons.embedding.toy import ToyEmbedder
from rag_lessons.prompting import NOT_FOUND
from rag_lessons.types import Hit, RagLessonsError, check_hits, check_whole, is_blank

# 句末标点和换行都结束一句；英文句点后面要有空白，免得切开 config.py 和 3.5
SENTENCE = re.compile(r"[^。！？!?\n]+?(?:[。！？!?]+[」』”）》]*|\.(?=\s)|\n|$)")
# 注释符号、列表符号、表格竖线：抄进答案时去掉
DECORATION = re.compile(r"^[\s#>*\-+|/\"'`]+|[\s|\"'`]+$")
# 一句话写到行末还没完（停在逗号、顿号、分号），下一行又不是新的条目，就接上
WRAPPED = re.compile(r"(?<=[，、；])\n[ \t]*(?=[^\s#>*\-+|`\"'\d])")
MIN_CHARS = 6       # 比这还短的，多半是标题碎片或单个词


class Generator(Protocol):
    """能根据问题和资料写出答案的东西。"""

    def generate(self, question: str, hits: Sequence[Hit]) -> str: ...


def sentences(text: str) -> list[str]:
    """粗切成句：句末标点或换行结束一句，去掉两端的注释和列表符号，太短的不要。

    折成两行的一句话接成一行；除了这里去掉的空白，每句都是原文。

    >>> sentences("# 步数用完就停下来。预算用完也停。\\nmax_steps = 40")
    ['步数用完就停下来。', '预算用完也停。', 'max_steps = 40']
    >>> sentences("先等 1 秒，\\n    之后每次翻倍。")
    ['先等 1 秒，之后每次翻倍。']
    """
    found = (DECORATION.sub("", match.group()) for match in SENTENCE.finditer(WRAPPED.sub("", text)))
    return [sentence for sentence in found if len(sentence) >= MIN_CHARS]


class ExtractiveGenerator:
    """抽取式回答：从资料里挑最贴近问题的几句，逐字引用并写上编号。

    参数
    ----
    embedder : 用来比较句子和问题；不给时用字对重合（ToyEmbedder）。给真嵌入（例如 E5Embedder），换了说法的问题也能挑对。
    limit : 最多抄几句，默认 2。
    """

    name = "抽取式（不调用模型）"

    def __init__(self, embedder: Embedder | None = None, limit: int = 2) -> None:
        self.embedder = embedder if embedder is not None else ToyEmbedder()
        check_embedder(self.embedder)
        self.limit = check_whole(limit, "limit ", least=1)

    def generate(self, question: str, hits: Sequence[Hit]) -> str:
        """返回形如 ``「原句」[1]`` 的文字；资料里没有可抄的句子时返回“资料中未提及”。"""
        if not isinstance(question, str):
            raise RagLessonsError(f"问题要是字符串，收到的是 {type(question).__name__}。")
        places: dict[str, int] = {}
        for number, hit in enumerate(check_hits(hits), 1):
            for sentence in sentences(hit.chunk.text):
                places.setdefault(sentence, number)
        if not places or is_blank(question):
            return NOT_FOUND
        candidates = list(places)
        scores = self.embedder.embed_documents(candidates) @ self.embedder.embed_query(question)
        order = sorted(range(len(candidates)), key=lambda i: (-round(float(scores[i]), 6), i))
        picked = sorted(order[: self.limit], key=lambda i: (places[candidates[i]], i))
        return "\n".join(f"「{candidates[i]}」[{places[candidates[i]]}]" for i in picked)
