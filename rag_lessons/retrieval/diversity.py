"""去近似：资料里有几乎一样的段落时，不让它们占满前几名。"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from rag_lessons.embedding.base import FloatArray
from rag_lessons.index import check_k, check_question, chunk_order
from rag_lessons.retrieval.fusion import min_max
from rag_lessons.types import Hit, RagLessonsError, check_hits, check_number


class HasVectors(Protocol):
    """给得出几条结果的向量的东西，例如 VectorIndex。"""

    def vectors_of(self, hits: Sequence[Hit]) -> FloatArray: ...


def mmr_order(relevance: Sequence[float], likeness: FloatArray, k: int, lam: float) -> list[tuple[int, float]]:
    """最大边际相关（maximal marginal relevance）：一次挑一个，相关的加分，像已经挑中的扣分。

    参数
    ----
    relevance : n 个候选的相关程度，0 到 1。
    likeness : (n, n)，候选两两有多像，0 到 1；1 是一样。
    lam : 看重相关的程度。1 只看相关，0 只看不重复。得分相同时，挑排在前面的。

    返回 [(第几个候选, 挑中时的得分), …]，得分一个比一个低，或相等。
    Carbonell & Goldstein, The Use of MMR, Diversity-Based Reranking, SIGIR 1998。

    >>> pairs = np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]])     # 前两个几乎一样
    >>> mmr_order([1.0, 0.9, 0.5], pairs, k=2, lam=0.5)
    [(0, 0.5), (2, 0.25)]
    """
    chosen, left = [], list(range(len(relevance)))
    while left and len(chosen) < k:
        copied = [max((likeness[i][j] for j, _ in chosen), default=0) for i in left]
        values = [round(float(lam * relevance[i] - (1 - lam) * c), 6) for i, c in zip(left, copied, strict=True)]
        best = values.index(max(values))
        chosen.append((left.pop(best), values[best]))
    return chosen


def likeness(vectors: FloatArray) -> FloatArray:
    """单位向量 (n, dim) → (n, n) 两两有多像：一样的两段是 1，这些候选里最不像的两段是 0。

    直接用余弦不行：e5 的余弦都在 0.75 以上，谁跟谁都“很像”，扣分就分不出近似的副本。

    >>> likeness(np.array([[1.0, 0], [1, 0], [0.8, 0.6]])).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    cosine = vectors @ vectors.T
    least = cosine.min(initial=1.0)
    return np.clip((cosine - least) / max(1 - least, 1e-6), 0, 1)


def mmr(hits: Sequence[Hit], vectors: FloatArray, k: int, lam: float = 0.5) -> list[Hit]:
    """从候选里挑 k 条，既相关，又不互相重复。

    参数
    ----
    hits : 候选，要比 k 多；相关程度是它们的 score，拉到 0 到 1。
    vectors : (len(hits), dim)，与 hits 一一对应，例如 ``index.vectors_of(hits)``；不必是单位长度。
    k : 挑几条；候选不够时全部。
    lam : 看重相关的程度，0 到 1，默认 0.5。1 就是原来的次序。

    结果的 score 和 ``details["mmr"]`` 是挑中时的得分，见 ``mmr_order``，可以是负的；原始分数仍在 details 里。

    >>> from rag_lessons.types import Chunk
    >>> hits = [Hit(Chunk(t, t + ".md", 0, 1), s, i) for i, (t, s) in enumerate([("甲", 0.9), ("乙", 0.89), ("丙", 0.8)], 1)]
    >>> vectors = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    >>> [hit.chunk.text for hit in mmr(hits, vectors, k=2)]
    ['甲', '丙']
    """
    hits = check_hits(hits)
    k = check_k(k)
    lam = check_number(lam, "lam")
    if not 0 <= lam <= 1:
        raise RagLessonsError(f"lam 要在 0 到 1 之间，收到 {lam:g}；1 只看相关，0 只看不重复。")
    rows = _unit_rows(vectors, len(hits))
    place = {id(hit): i for i, hit in enumerate(hits)}
    order = sorted(hits, key=lambda h: (-round(h.score, 6), chunk_order(h.chunk)))
    rows = rows[[place[id(hit)] for hit in order]]
    relevance = min_max([round(hit.score, 6) for hit in order])
    chosen = mmr_order(relevance, likeness(rows).tolist(), k, lam)      # 列表逐个取数，比数组快几倍
    return [
        replace(order[i], score=value, rank=rank, details={**order[i].details, "mmr": value})
        for rank, (i, value) in enumerate(chosen, 1)
    ]


def _unit_rows(vectors: object, count: int) -> FloatArray:
    """(count, dim) 的单位行；零向量仍是零。不是一一对应、有 NaN 时抛出 RagLessonsError。"""
    try:
        rows = np.asarray(vectors)
        if rows.dtype.kind in "cSU":            # 复数、文字都不是向量
            raise TypeError
        rows = rows.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RagLessonsError("vectors 要是一条结果一行的数组；请用 index.vectors_of(hits)。") from None
    if rows.ndim != 2 or len(rows) != count:
        if count == 0 and rows.size == 0:
            return np.zeros((0, 1))
        got = len(rows) if rows.ndim else 0
        raise RagLessonsError(f"有 {count} 条结果，vectors 却有 {got} 行；请用 index.vectors_of(hits)，次序也要一样。")
    if not np.isfinite(rows).all():
        raise RagLessonsError("vectors 里有 NaN 或无穷大，比不出像不像；请检查嵌入器的返回值。")
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), 1e-300)      # 极大、极小的数，平方会溢出
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


class MMRReranker:
    """把 mmr 写成重排器，好套进 ``RerankSearch``：``RerankSearch(hybrid, MMRReranker(index))``。

    参数
    ----
    index : 给得出向量的索引，有 ``vectors_of(hits)``；候选都要在里面。
    lam : 见 mmr。
    """

    def __init__(self, index: HasVectors, lam: float = 0.5) -> None:
        if not callable(getattr(index, "vectors_of", None)):
            raise RagLessonsError(f"index 要有 vectors_of(hits)，收到的是 {type(index).__name__}；例如 VectorIndex。")
        self.index, self.lam = index, lam
        mmr([], np.zeros((0, 1)), 1, lam)                # lam 不对，现在就说

    def rerank(self, query: str, hits: Sequence[Hit], k: int = 3) -> list[Hit]:
        """挑 k 条；query 用不着，相关程度已经在 hits 的分数里。"""
        check_question(query)
        hits = check_hits(hits)
        return mmr(hits, self.index.vectors_of(hits) if hits else np.zeros((0, 1)), k, self.lam)
