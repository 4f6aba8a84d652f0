"""ask()：一个问题从头走到尾，得到带出处的答案。"""

from __future__ import annotations

from typing import Protocol

from rag_lessons.generation import ExtractiveGenerator, Generator
from rag_lessons.index import check_k, check_question
from rag_lessons.prompting import NOT_FOUND, read_answer
from rag_lessons.retrieval import Refuse
from rag_lessons.types import Answer, Hit, RagLessonsError, check_hits


class Searcher(Protocol):
    """能回答“哪些块最近”的东西；索引、融合、重排都是。"""

    def search(self, query: str, k: int = 3) -> list[Hit]: ...


def ask(
    question: str,
    searcher: Searcher,
    generator: Generator | None = None,
    k: int = 5,
    refuse: Refuse | None = None,
) -> Answer:
    """问一个问题。

    参数
    ----
    question : 问题；空白时抛出 RagLessonsError。
    searcher : 有 ``.search(query, k)`` 的对象。
    generator : 写答案的对象；默认是不调用模型的 ExtractiveGenerator。
    k : 取几块资料，默认 5。
    refuse : 检索结果 → 拒答的理由或 None；例如 ``below(0.8)``。

    返回 Answer。一块也没有、或 refuse 给出理由时，不调用 generator，答案是“资料中未提及”。

    答案可以往回查三层：``hits`` 是用到的资料（文件和行），``citations`` 是答案里的编号各指哪一段，
    ``checks`` 是引文和原文核对的结果，连同它在文档里的位置。指向不存在的资料的编号记在 ``missing`` 里。
    """
    check_question(question)
    check_k(k)
    if not callable(getattr(searcher, "search", None)):
        raise RagLessonsError(f"searcher 要有 .search(query, k)，收到的是 {type(searcher).__name__}；例如 VectorIndex。")
    if generator is not None and not callable(getattr(generator, "generate", None)):
        raise RagLessonsError(f"generator 要有 .generate(question, hits)，收到的是 {type(generator).__name__}。")
    if refuse is not None and not callable(refuse):
        raise RagLessonsError(f"refuse 要是函数，收到 {refuse!r}；按分数拒答写成 below(0.8)。")
    hits = tuple(check_hits(searcher.search(question, k)))
    reason = "没有检索到资料" if not hits else refuse(hits) if refuse is not None else None
    if reason is not None:
        return Answer(NOT_FOUND, hits=hits, missing=(f"{question}（{reason}）",), refused=True)
    generator = generator if generator is not None else ExtractiveGenerator()
    text = generator.generate(question, hits)
    return getattr(generator, "read", read_answer)(text, hits)
