"""ask()：一个问题从头走到尾，得到带出处的答案。"""

from __future__ import annotations

from typing import Protocol

from rag_lessons.generation import ExtractiveGenerator, Generator
from rag_lessons.index import check_k, check_question
from rag_lessons.prompting import NOT_FOUND, read_answer
from rag_lessons.retrieval import Refuse
from rag_lessons.retrieval.base import check_searcher, renumbered
from rag_lessons.types import Answer, Hit, RagLessonsError


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
    k = check_k(k)
    check_searcher(searcher)
    if generator is not None and (isinstance(generator, type) or not callable(getattr(generator, "generate", None))):
        raise RagLessonsError(f"generator 要有 .generate(question, hits)，收到 {generator!r}；例如 ExtractiveGenerator()，不要忘了括号。")
    if refuse is not None and not callable(refuse):
        raise RagLessonsError(f"refuse 要是函数，收到 {refuse!r}；按分数拒答写成 below(0.8)。")
    hits = tuple(renumbered(searcher.search(question, k)))
    reason = "没有检索到资料" if not hits else refuse(hits) if refuse is not None else None
    if not isinstance(reason, str | None):
        raise RagLessonsError(f"refuse 要返回拒答的理由（字符串），不拒答时返回 None，收到 {reason!r}。")
    if reason is not None:
        return Answer(NOT_FOUND, hits=hits, missing=(f"{question}（{reason}）",), refused=True)
    generator = generator if generator is not None else ExtractiveGenerator()
    text = generator.generate(question, hits)
    read = getattr(generator, "read", None) or read_answer
    answer = read(text, hits)
    if not isinstance(answer, Answer):
        raise RagLessonsError(f"generator 的 read 要返回 Answer，收到 {type(answer).__name__}；例如 read_answer(text, hits)。")
    return answer
