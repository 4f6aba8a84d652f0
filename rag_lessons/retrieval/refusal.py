"""拒答的依据：看原始分数，不看融合后的分数。"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rag_lessons.types import Hit, RagLessonsError, check_hits, check_number

Refuse = Callable[[Sequence[Hit]], str | None]

# 这些分数只用来排名次：换一个问题，同样的数说的不是同一回事，不能和一条固定的线比
RANK_ONLY = {
    "rrf": "只由名次算出，无关的问题也得到差不多高的数",
    "weighted": "在每个问题上都拉到 0 到 1，无关的问题也有高分",
    "mmr": "取决于前面已经挑了谁",
}


def below(threshold: float, of: str = "dense") -> Refuse:
    """造一个拒答规则：所有结果的原始分数 ``details[of]`` 都低于 threshold 时，给出理由；否则 None。

    看原始分数，不看融合后的分数：后者在每个问题上都被拉到相近的范围，无关的问题也有高分。
    of 写成 "rrf"、"weighted"、"mmr" 时抛出 RagLessonsError。

    >>> from rag_lessons.types import Chunk
    >>> hit = Hit(Chunk("甲", "a.md", 0, 1), score=0.9, rank=1, details={"dense": 0.7})
    >>> below(0.8)([hit])
    '最高的 dense 分数 0.700 低于 0.8'
    >>> below(0.6)([hit]) is None
    True
    """

    threshold = check_number(threshold, "阈值")
    if not isinstance(of, str):
        raise RagLessonsError(f"of 要是原始分数的名字，例如 \"dense\"，收到 {of!r}。")
    if of in RANK_ONLY:
        raise RagLessonsError(f"{of} 分数不能用来拒答：它{RANK_ONLY[of]}；请用原始分数，例如 below(..., of=\"dense\")。")

    def refuse(hits: Sequence[Hit]) -> str | None:
        hits = check_hits(hits)
        if not hits:
            return "一条结果也没有"
        scores = [check_number(hit.details[of], f"details 里的 {of}") for hit in hits if of in hit.details]
        if not scores:
            known = "、".join(sorted({name for hit in hits for name in hit.details} - set(RANK_ONLY))) or "无"
            raise RagLessonsError(f"结果里没有名为 {of!r} 的原始分数（有的是：{known}）；请改 below(..., of=...)。")
        best = max(scores)
        return f"最高的 {of} 分数 {best:.3f} 低于 {threshold:g}" if best < threshold else None

    return refuse
