"""相关反馈：先查一次，把问题的向量朝查到的几块挪一挪，再查一次。不用模型，离线就能做。"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rag_lessons.embedding.base import FloatArray
from rag_lessons.index import VectorIndex, Where
from rag_lessons.retrieval.base import check_search, frozen, vector_of
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_number, check_whole

MOST_BETA = 1e6         # 再大，问题自己的份量就舍入没了


def rocchio(
    query: FloatArray,
    relevant: FloatArray,
    irrelevant: FloatArray | Sequence = (),
    alpha: float = 1.0,
    beta: float = 0.75,
    gamma: float = 0.15,
) -> FloatArray:
    """问题的向量 (dim,)，朝相关的几块 (n, dim) 的中心挪，离不相关的几块的中心远一点；返回单位向量。

    alpha、beta、gamma 是三者的份量，默认值是教科书里常见的。两组都没有、或刚好抵消时，方向不变。
    Rocchio, Relevance Feedback in Information Retrieval, 1971。

    >>> rocchio(np.array([1.0, 0.0]), np.array([[0.0, 1.0]]), beta=1.0).round(3).tolist()
    [0.707, 0.707]
    """
    moved = alpha * query
    if len(relevant):
        moved = moved + beta * np.mean(relevant, axis=0)
    if len(irrelevant):
        moved = moved - gamma * np.mean(irrelevant, axis=0)
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else query


class FeedbackSearch:
    """伪相关反馈：把第一次的前几名当作相关的，挪过向量再查一次。

    参数
    ----
    index : VectorIndex。
    feedback : 把前几名当作相关，默认 3。它们其实不相关时，会越挪越偏。
    beta : 它们的份量（问题自己是 1），默认 0.75。

    结果的 score 和 ``details["feedback"]`` 是与挪过的向量的余弦；``details["dense"]`` 仍是与问题本身的余弦，
    拒答看它。
    """

    def __init__(self, index: VectorIndex, feedback: int = 3, beta: float = 0.75) -> None:
        if not isinstance(index, VectorIndex):
            raise RagLessonsError(f"index 要是 VectorIndex，收到的是 {type(index).__name__}；反馈要挪动向量。")
        self.index = index
        self.feedback = check_whole(feedback, "feedback ", least=1)
        self.beta = check_number(beta, "beta")
        if not 0 <= self.beta <= MOST_BETA:
            raise RagLessonsError(f"beta 要在 0 和 {MOST_BETA:g} 之间，收到 {beta!r}；0 就是不反馈，常用 0.75。")

    @property
    def chunks(self) -> list[Chunk]:
        """索引里的全部块。"""
        return self.index.chunks

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → 前 k 块。where 对两次检索都起作用，不许看的块也不会影响向量。"""
        k = check_search(query, k, where)
        index = frozen(self.index)
        if not index.chunks:
            return []
        asked = vector_of(index, query)
        first = index.search_vector(asked, self.feedback, where=where)
        if not first:
            return []
        return search_moved(index, asked, rocchio(asked, index.vectors_of(first), beta=self.beta), "feedback", k, where)


def search_moved(
    index: VectorIndex, asked: FloatArray, moved: FloatArray, name: str, k: int, where: Where | None
) -> list[Hit]:
    """用挪过的向量检索；与它的余弦记作 details[name]，"dense" 仍是与问题本身的余弦。"""
    hits = index.search_vector(moved, k, where=where)
    own = index.vectors_of(hits) @ asked if hits else ()
    return [
        replace(hit, details={"dense": round(float(dense), 6), name: hit.score})
        for hit, dense in zip(hits, own, strict=True)
    ]
