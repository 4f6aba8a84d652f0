"""检索的指标：手算得出来的小函数。"""

from __future__ import annotations

from collections.abc import Sequence

from rag_lessons.types import Chunk, Hit, RagLessonsError


def overlaps(chunk: Chunk, span: tuple[str, int, int]) -> bool:
    """块和金标原句至少共有一个字。

    >>> overlaps(Chunk("甲乙", "a.md", 0, 2), ("a.md", 1, 5)), overlaps(Chunk("甲乙", "a.md", 0, 2), ("b.md", 1, 5))
    (True, False)
    """
    source, start, end = span
    return chunk.source == source and chunk.start < end and start < chunk.end


def first_rank(hits: Sequence[Hit], spans: Sequence[tuple[str, int, int]]) -> int | None:
    """第一条碰到金标原句的结果排第几；一条也没碰到是 None。

    >>> hits = [Hit(Chunk("甲", "a.md", 0, 1), 0.9, 1), Hit(Chunk("乙", "a.md", 1, 2), 0.5, 2)]
    >>> first_rank(hits, [("a.md", 1, 2)]), first_rank(hits, [("b.md", 0, 9)])
    (2, None)
    """
    return next((hit.rank for hit in hits if any(overlaps(hit.chunk, span) for span in spans)), None)


def hit_at_k(ranks: Sequence[int | None], k: int) -> float:
    """hit@k：名次在前 k 的问题占几成。

    >>> hit_at_k([1, 4, None, 3], k=3)
    0.5
    """
    if not ranks:
        raise RagLessonsError("一个问题也没有，算不出命中率；请检查筛选条件。")
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks)
