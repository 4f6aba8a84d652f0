"""按块长修正分数。"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from rag_lessons.retrieval.base import in_rank_order
from rag_lessons.types import Hit, RagLessonsError, check_hits, check_number


def length_factor(length: int, method: str, strength: float, pivot: float) -> float:
    """按块长给分数乘的因子。符号写在这里：因子随块长上升，短块才被压低。

    - "power"：``length ** strength``。strength 为正，压短块；为负，抬短块。除以 √长度 就是 -0.5。
    - "saturating"：``length / (length + strength)``。短块被压低，长到几倍 strength 以后几乎不再变化。
    - "pivoted"：``√length / ((1 - strength) * √pivot + strength * √length)``，strength 是斜率，0 到 1；
      长度等于 pivot 时因子为 1，斜率 1 时不改动。Singhal 等, Pivoted Document Length Normalization, SIGIR 1996。

    >>> [round(length_factor(n, "power", -0.5, 1), 2) for n in (25, 400)]
    [0.2, 0.05]
    >>> [round(length_factor(n, "saturating", 20, 1), 2) for n in (20, 400)]
    [0.5, 0.95]
    >>> [round(length_factor(n, "pivoted", 0.7, 100), 2) for n in (25, 100, 400)]
    [0.77, 1.0, 1.18]
    """
    if method == "power":
        return length**strength
    if method == "saturating":
        return length / (length + strength)
    return math.sqrt(length) / ((1 - strength) * math.sqrt(pivot) + strength * math.sqrt(length))


MOST_STRENGTH, MOST_POWER = 1e9, 10.0       # 再大，分数就溢出，或全变成 0
DEFAULT_STRENGTH = {"power": 0.5, "saturating": 20.0, "pivoted": 0.7}


def normalize_length(
    hits: Sequence[Hit], method: str = "pivoted", strength: float | None = None, *, pivot: float | None = None, center: bool = True
) -> list[Hit]:
    """按块长修正分数，重新排名。

    参数
    ----
    hits : 候选，要比最后想要的多得多；不在里面的块救不回来。
    method : "power"、"saturating" 或 "pivoted"，见 ``length_factor``。
    strength : 强度；不写时依次是 0.5、20、0.7。没有处处合用的值，要在自己的金标上扫。
    pivot : "pivoted" 的支点，字符数；不写时取候选块长的平均。
    center : 先减去候选分数的中位数，只给高出的部分乘因子；中位数以下的次序照旧。默认 True。
        e5 这类分数全挤在 0.8 上下的模型离不开它，否则因子的一点差别就盖过了分数的差别；玩具向量有没有它差不多。

    返回按新分数排好的 Hit；原来的分数留在 ``details`` 里，因子记在 ``details["length_factor"]``。

    >>> from rag_lessons.types import Chunk
    >>> def hit(n, score): return Hit(Chunk("字" * n, "a.md", 0, n), score, 1)
    >>> hits = [hit(10, 0.9), hit(400, 0.89), hit(300, 0.8), hit(200, 0.79)]
    >>> [len(h.chunk.text) for h in normalize_length(hits, "saturating")]
    [400, 10, 300, 200]
    """
    hits = check_hits(hits)
    if not isinstance(method, str) or method not in DEFAULT_STRENGTH:
        raise RagLessonsError(f"method 只能是 {'、'.join(DEFAULT_STRENGTH)}，收到 {method!r}。")
    strength = DEFAULT_STRENGTH[method] if strength is None else check_number(strength, "strength")
    if abs(strength) > MOST_STRENGTH:
        raise RagLessonsError(f"strength={strength:g} 太大，分数会溢出；请用绝对值不超过 {MOST_STRENGTH:g} 的数。")
    if method == "power" and abs(strength) > MOST_POWER:
        raise RagLessonsError(f"power 的指数 {strength:g} 太大，分数会溢出；请用 -{MOST_POWER:g} 到 {MOST_POWER:g} 之间的数。")
    if (method == "saturating" and strength < 0) or (method == "pivoted" and not 0 <= strength <= 1):
        raise RagLessonsError(f"strength={strength:g} 不合用：saturating 要不小于 0，pivoted 的斜率要在 0 到 1 之间。")
    if not hits:
        return []
    lengths = [max(1, len(hit.chunk.text)) for hit in hits]
    pivot = sum(lengths) / len(lengths) if pivot is None else check_number(pivot, "pivot")
    if not 0 < pivot < math.inf:
        raise RagLessonsError(f"pivot 要是正的字符数，收到 {pivot:g}。")
    base = median(hit.score for hit in hits) if center else 0.0
    changed = []
    for hit, length in zip(hits, lengths, strict=True):
        factor = length_factor(length, method, strength, pivot)
        above = hit.score - base
        score = above * factor if above > 0 or not center else above
        changed.append(replace(hit, score=score, details={**hit.details, "length_factor": round(factor, 6)}))
    return in_rank_order(changed)
