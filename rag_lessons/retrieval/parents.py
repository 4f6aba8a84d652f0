"""父块：小块容易找准，大块读起来完整；用小块去找，把它所在的大块交出来。"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rag_lessons.index import Where, allows, indexable
from rag_lessons.retrieval.base import Asked, Searcher, check_search, check_searcher
from rag_lessons.types import Chunk, Hit, RagLessonsError

FIRST_FETCH = 4      # 先取 4k 个小块；大块不够 k 个就再取 4 倍，直到取完


class ParentSearch:
    """在小块里找，返回小块所在的大块，k 个不同的大块。

    参数
    ----
    searcher : 在小块上建的检索器。
    parents : 大块，与小块来自同一批文档。哪个大块装着一个小块，由位置决定；跨在两个大块上的，归重叠最多的那个；
        一样多时归短的那个，再一样时归前面的。一个小块也不沾的，抛出 RagLessonsError。

    大块的分数是它里面最好的小块的分数；那个小块的位置在 ``details["child_start"]``、``details["child_end"]``。

    >>> from rag_lessons.embedding.toy import ToyEmbedder
    >>> from rag_lessons.index import VectorIndex
    >>> big = [Chunk("年假五天。病假三天。", "a.md", 0, 10), Chunk("报销要发票。", "a.md", 10, 16)]
    >>> small = [Chunk("年假五天。", "a.md", 0, 5), Chunk("病假三天。", "a.md", 5, 10), Chunk("报销要发票。", "a.md", 10, 16)]
    >>> [hit.chunk.text for hit in ParentSearch(VectorIndex.build(small, ToyEmbedder()), big).search("病假几天", k=2)]
    ['年假五天。病假三天。', '报销要发票。']
    """

    def __init__(self, searcher: Searcher, parents: Sequence[Chunk]) -> None:
        check_searcher(searcher)
        self.searcher = searcher
        self.chunks = indexable(parents)
        if not self.chunks:
            raise RagLessonsError("parents 是空的，没有大块可给；请先切出大块，例如 chunk_by_heading(document)。")
        self._by_source: dict[str, list[Chunk]] = {}
        for parent in self.chunks:
            self._by_source.setdefault(parent.source, []).append(parent)
        self._longest = {s: max(p.end - p.start for p in ps) for s, ps in self._by_source.items()}
        self._known: dict[str, Chunk] = {}
        for child in getattr(searcher, "chunks", ()):
            self.parent_of(child)

    def parent_of(self, child: Chunk) -> Chunk:
        """装着这个小块的大块。"""
        if child.id not in self._known:
            best = max(
                self._near(child),
                key=lambda p: (min(p.end, child.end) - max(p.start, child.start), p.start - p.end, -p.start),
                default=None,
            )
            if best is None:
                raise RagLessonsError(f"{child.label} 不在任何一个大块里；大块和小块要从同一批文档切出来。")
            self._known[child.id] = best
        return self._known[child.id]

    def _near(self, child: Chunk) -> Iterator[Chunk]:
        """和小块有重叠的大块。"""
        parents = self._by_source.get(child.source, [])
        for i in range(bisect_left(parents, child.end, key=lambda p: p.start) - 1, -1, -1):
            if parents[i].start + self._longest[child.source] <= child.start:
                return
            if parents[i].end > child.start:
                yield parents[i]

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → k 个不同的大块；总共不足 k 个时全部。

        where 在取前 k 之前起作用，对交出去的大块成立，也对它里面的每个小块成立：
        大块里夹着一段不许看的，整个大块就不给。
        """
        k = check_search(query, k, where)
        ask, allowed = Asked(self.searcher, query), self._allowed(where)
        fetch = FIRST_FETCH * k
        while True:
            children = ask(fetch, allowed)
            found: dict[str, Hit] = {}
            for child in children:
                parent = self.parent_of(child.chunk)
                place = {"child_start": child.chunk.start, "child_end": child.chunk.end}
                found.setdefault(parent.id, replace(child, chunk=parent, details={**child.details, **place}))
            if len(found) >= k or len(children) < fetch:
                return [replace(hit, rank=rank) for rank, hit in enumerate(list(found.values())[:k], 1)]
            fetch *= FIRST_FETCH

    def _allowed(self, where: Where | None) -> Where | None:
        """小块要不要：看它的大块，和大块里的其他小块。"""
        if where is None:
            return None
        passed = {parent.id for parent in self.chunks if allows(where, parent)}
        passed -= {self.parent_of(child).id for child in getattr(self.searcher, "chunks", ()) if not allows(where, child)}
        return lambda child: self.parent_of(child).id in passed and allows(where, child)
