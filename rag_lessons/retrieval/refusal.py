"""拒答的依据：看原始分数，不看融合后的分数。"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rag_lessons.types import Hit, RagLessonsError, check_hits, check_number

Refuse = Callable[[Sequence[Hit]], str | None]


def below(threshold: float, of: str = "dense") -> Refuse:
    """造一个拒答规则：所有结果的原始分数 ``details[of]`` 都低于 threshold 时，给出理由；否则 None。

    看原始分数，不看融合后的分数：后者在每个问题上都被拉到相近的范围，无关的问题也有高分。

    >>> from rag_lessons.types import Chunk
    >>> hit = Hit(Chunk("甲", "a.md", 0, 1), score=0.9, rank=1, details={"dense": 0.7})
    >>> below(0.8)([hit])
    '最高的 dense 分数 0.700 低于 0.8'
    >>> below(0.6)([hit]) is None
    True
    """

    threshold = check_number(threshold, "阈值")

    def refuse(hits: Sequence[Hit]) -> str | None:
        hits = check_hits(hits)
        if not hits:
            return "一条结果也没有"
        scores = [hit.details[of] for hit in hits if of in hit.details]
        if not scores:
            known = "、".join(sorted({name for hit in hits for name in hit.details})) or "无"
            raise RagLessonsError(f"结果里没有名为 {of!r} 的原始分数（有的是：{known}）；请改 below(..., of=...)。")
        best = max(scores)
        return f"最高的 {of} 分数 {best:.3f} 低于 {threshold:g}" if best < threshold else None

    return refuse
