"""检索的指标：手算得出来的小函数。"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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


def found_ranks(hits: Sequence[Hit], spans: Sequence[tuple[str, int, int]]) -> list[int]:
    """每处金标第一次被碰到时的名次，从小到大；没碰到的不在里面。

    >>> hits = [Hit(Chunk("甲", "a.md", 0, 1), 0.9, 1), Hit(Chunk("乙", "a.md", 1, 2), 0.5, 2)]
    >>> found_ranks(hits, [("a.md", 1, 2), ("a.md", 0, 1), ("b.md", 0, 9)])
    [1, 2]
    """
    firsts = [first_rank(hits, [span]) for span in spans]
    return sorted(rank for rank in firsts if rank is not None)


def recall_at_k(found: Sequence[int], gold_count: int, k: int) -> float:
    """recall@k：一题的几处金标，前 k 名碰到了几成。

    found 是 ``found_ranks`` 的结果，gold_count 是金标共有几处（至少 1）。

    >>> [round(recall_at_k([1, 4], gold_count=3, k=k), 2) for k in (1, 3, 5)]
    [0.33, 0.33, 0.67]
    """
    return sum(rank <= k for rank in found) / gold_count


def reciprocal_rank(found: Sequence[int]) -> float:
    """第一个碰到金标的名次的倒数；一处也没碰到是 0。各题平均就是 MRR。

    >>> reciprocal_rank([2, 3]), reciprocal_rank([])
    (0.5, 0.0)
    """
    return 1 / min(found) if found else 0.0


def dcg(ranks: Iterable[int]) -> float:
    """折扣累积增益：第 1 名得 1，第 3 名得 1/2，第 7 名得 1/3，越往后越少。

    >>> [round(dcg(ranks), 3) for ranks in ([1], [3], [1, 3])]
    [1.0, 0.5, 1.5]
    """
    return sum(1 / math.log2(rank + 1) for rank in ranks)


def ndcg_at_k(found: Sequence[int], gold_count: int, k: int) -> float:
    """nDCG@k：前 k 名的 DCG，除以排得最好时的 DCG。

    每处金标只算一次；同一块里有两处金标，只占一个位置，排在第 1 也是满分。
    Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002。

    >>> [round(ndcg_at_k([1, 4], gold_count=2, k=k), 3) for k in (1, 3, 5)]
    [1.0, 0.613, 0.877]
    >>> ndcg_at_k([1, 1], gold_count=2, k=3)
    1.0
    """
    near = [rank for rank in found if rank <= k]
    slots = len(set(near)) + gold_count - len(near)
    return dcg(sorted(set(near))) / dcg(range(1, min(slots, k) + 1))
