"""检索器的约定，和几种检索器共用的几步。

能回答 ``.search(query, k)`` 的就是检索器，所以它们可以一层套一层：索引、融合、重排、父块……
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rag_lessons.embedding.base import FloatArray, check_vectors
from rag_lessons.index import VectorIndex, Where, check_k, check_question, check_where, chunk_order
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_hits


class Searcher(Protocol):
    """问题 → 最近的 k 块，从高到低。``where`` 是块 → 要不要，先筛选，再取前 k。"""

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]: ...


def check_searcher(searcher: object, name: str = "searcher") -> None:
    """有 .search 方法的对象；忘了写括号、传成列表，都在这里说清。"""
    if isinstance(searcher, type) or not callable(getattr(searcher, "search", None)):
        kind = searcher.__name__ if isinstance(searcher, type) else type(searcher).__name__
        raise RagLessonsError(f"{name} 要有 .search(query, k)，收到的是 {kind}；例如 VectorIndex.build(...) 的返回值。")


def check_search(query: object, k: object, where: object) -> int:
    """search 的三个参数；每种检索器一开头都查，不等到里面那层。返回普通的 int 的 k。"""
    check_question(query)
    check_where(where)
    return check_k(k)


def takes_where(searcher: Searcher) -> bool:
    """这个检索器的 search 收不收 where。"""
    try:
        names = inspect.signature(searcher.search).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(one.name == "where" or one.kind is one.VAR_KEYWORD for one in names)


def find(searcher: Searcher, query: str, k: int, where: Where | None = None) -> list[Hit]:
    """问里面那层。筛选一定要交下去：先取前 k 再筛，会漏掉该有的答案。"""
    if where is None:
        return renumbered(searcher.search(query, k))[:k]
    if not takes_where(searcher):
        raise RagLessonsError(f"{type(searcher).__name__} 的 search 不收 where，筛选只能在取前 k 之前做；请给它加上这个参数。")
    return renumbered(searcher.search(query, k, where=where))[:k]


def renumbered(hits: Iterable[Hit]) -> list[Hit]:
    """别人写的检索器、重排器交来的结果：次序照旧，同一块只留第一次，名次按次序重编。"""
    unique = by_id(check_hits(hits)).values()
    return [hit if hit.rank == rank else replace(hit, rank=rank) for rank, hit in enumerate(unique, 1)]


def frozen(index: VectorIndex) -> VectorIndex:
    """索引此刻的样子：一次检索要看它几眼，中途有别的线程 sync 也不会前后对不上。"""
    index.check_space()
    return copy.copy(index)


def vector_of(index: VectorIndex, text: str, role: str = "query") -> FloatArray:
    """一段文字在这个索引的空间里的单位向量 (dim,)；嵌入器返回的东西在这里查。"""
    embedder = index.embedder
    vectors = [embedder.embed_query(text)] if role == "query" else embedder.embed_documents([text])
    return check_vectors(vectors, 1, index.vectors.shape[1], index.space)[0]


class Asked:
    """一个准备好的问题，可以拿去问几次；VectorIndex 的问题向量只算一次。"""

    def __init__(self, searcher: Searcher, query: str) -> None:
        self.searcher, self.query = searcher, query
        self._vector = None
        if isinstance(searcher, VectorIndex) and searcher.chunks:
            self.searcher = frozen(searcher)
            self._vector = vector_of(self.searcher, query)

    def __call__(self, k: int, where: Where | None = None) -> list[Hit]:
        """前 k 块。"""
        if self._vector is None:
            return find(self.searcher, self.query, k, where)
        return self.searcher.search_vector(self._vector, k, where=where)

    def scores_of(self, hits: Sequence[Hit]) -> dict[str, Hit]:
        """这几块在这里各得几分：id → 结果；没有的块、0 分的块不在里面。"""
        ids = {hit.chunk.id for hit in hits}
        if not ids:
            return {}
        with contextlib.suppress(RagLessonsError):       # 有的块不在这个索引里：改为筛选着再查一次
            if self._vector is not None:
                scores = (self.searcher.vectors_of(hits) @ self._vector).astype(float).round(6) + 0.0
                pairs = zip(hits, scores.tolist(), strict=True)
                return {hit.chunk.id: Hit(hit.chunk, score, 0, {"dense": score}) for hit, score in pairs}
        return by_id(self(len(ids), lambda chunk: chunk.id in ids))

    def lowest(self) -> float | None:
        """全部块里最低的分数；只有 VectorIndex 说得出：与问题的反方向最近的，就是离问题最远的。别的是 None。"""
        if self._vector is None:
            return None
        return -self.searcher.search_vector(-self._vector, 1)[0].score


def in_rank_order(hits: Iterable[Hit]) -> list[Hit]:
    """按分数从高到低排好，重写名次。分数先舍入到 6 位；一样的按（来源、位置、id），与喂进来的次序无关。"""
    rounded = [replace(hit, score=round(hit.score, 6) + 0.0) for hit in hits]
    rounded.sort(key=lambda hit: (-hit.score, chunk_order(hit.chunk)))
    return [replace(hit, rank=rank) for rank, hit in enumerate(rounded, 1)]


def all_chunks(*searchers: Any) -> list[Chunk]:
    """几个检索器里的块，同一块只列一次，按（来源、位置）排。哪一个没有 ``chunks`` 就抛出 AttributeError。"""
    unique = {chunk.id: chunk for searcher in searchers for chunk in searcher.chunks}
    return sorted(unique.values(), key=chunk_order)


def by_id(hits: Sequence[Hit]) -> dict[str, Hit]:
    """id → 结果；同一块出现两次时留下靠前的。"""
    found: dict[str, Hit] = {}
    for hit in hits:
        found.setdefault(hit.chunk.id, hit)
    return found
