"""拒答的阈值：在 tune 那一半题上挑，在 report 那一半上报。"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rag_lessons.evaluation.golden import Question
from rag_lessons.evaluation.report import check_questions
from rag_lessons.retrieval.base import Searcher, check_searcher
from rag_lessons.retrieval.refusal import Refuse, below
from rag_lessons.types import RagLessonsError, check_hits, check_number, check_whole

WELL_APART = 0.8        # 平衡正确率不到这么多，就说分得不好


def balanced_accuracy(answerable: Sequence[float], unanswerable: Sequence[float], threshold: float) -> float:
    """有答案的留下了几成，没答案的拒掉了几成，两者的平均；乱猜是 0.5，全对是 1。分数不低于阈值的留下。

    >>> balanced_accuracy([0.9, 0.8, 0.6, 0.9], [0.7, 0.5], threshold=0.75)
    0.875
    """
    kept = sum(score >= threshold for score in answerable) / len(answerable)
    refused = sum(score < threshold for score in unanswerable) / len(unanswerable)
    return (kept + refused) / 2


@dataclass(frozen=True)
class Calibration:
    """一条拒答的线，和它在一批题上的代价。

    属性
    ----
    threshold : 原始分数低于它就拒答。
    of : 看哪个原始分数（``Hit.details`` 的键）。
    k : 每题取几块；看的是这几块里最高的分数，与 ``ask`` 一致。
    split : 是在哪一半题上量的。
    balanced_accuracy : 两类题各自判对的比例，取平均；乱猜是 0.5。
    wrongly_refused, answerable : 有答案的题，误拒了几题、共几题。
    wrongly_answered, unanswerable : 没有答案的题，放过了几题、共几题。
    scores : {题号: (最高的分数, 有没有答案)}，可以拿来画分布；一块也没检索到的是负无穷。
    """

    threshold: float
    of: str
    k: int
    split: str
    balanced_accuracy: float
    wrongly_refused: int
    answerable: int
    wrongly_answered: int
    unanswerable: int
    scores: dict[str, tuple[float, bool]] = field(hash=False, repr=False)

    @property
    def refuse(self) -> Refuse:
        """交给 ``ask(..., refuse=...)`` 的规则。"""
        return below(self.threshold, of=self.of)

    def on(self, searcher: Searcher, questions: Iterable[Question], split: str = "report") -> Calibration:
        """同一条线，在另一半题上的代价。线是在 tune 上挑的，tune 上的数偏乐观；要报就报这一个。"""
        return _measure(_scores(searcher, questions, self.of, self.k, split), self.threshold, self.of, self.k, split)

    def __str__(self) -> str:
        lines = [
            f"最高的 {self.of} 分数低于 {self.threshold:g} 就拒答（{self.split}）：平衡正确率 {self.balanced_accuracy:.2f}，乱猜是 0.50",
            f"有答案的 {self.answerable} 题，误拒 {self.wrongly_refused} 题；没有答案的 {self.unanswerable} 题，放过 {self.wrongly_answered} 题",
        ]
        if self.balanced_accuracy < WELL_APART:
            lines.append("分得不好：两类题的分数混在一起，这条线挡不住多少，还会误拒；别只靠它")
        return "\n".join(lines)


def calibrate_refusal(
    searcher: Searcher, questions: Iterable[Question], of: str = "dense", k: int = 5, split: str = "tune", keep: float = 0.0
) -> Calibration:
    """在 tune 那一半题上挑拒答的阈值：让平衡正确率最高；一样高时取最低的，少误拒。

    参数
    ----
    searcher : 检索器。阈值跟着它走：换了模型、切法、k，都要重挑。
    questions : 金标问题，要既有有答案的，也有没答案的；只用 split 那一半。
    of : 看哪个原始分数，默认 "dense"（余弦）。
    k : 每题取几块，默认 5，与 ``ask`` 一致。
    keep : 有答案的题至少要留下几成，例如 0.9；默认不限。分数分不开时，不限就会误拒一大半。

    返回 Calibration：``print`` 看代价，``.refuse`` 交给 ask，``.on(searcher, questions)`` 在 report 上报一次。
    """
    if not 0 <= check_number(keep, "keep") <= 1:
        raise RagLessonsError(f"keep 要在 0 和 1 之间，收到 {keep!r}；例如 0.9。")
    scores = _scores(searcher, questions, of, check_whole(k, "k ", least=1), split)
    with_answer, without = _sides(scores)
    steps = sorted({score for score, _ in scores.values() if math.isfinite(score)})
    if not steps:
        raise RagLessonsError("一题也没有检索到东西，挑不出阈值；请检查索引。")
    lines = [_tidy(steps[0] - 1, steps[0]), *(_tidy(low, high) for low, high in pairwise(steps))]
    lines = [line for line in lines if sum(score >= line for score in with_answer) >= keep * len(with_answer)]
    if not lines:
        raise RagLessonsError(f"keep={keep:g} 做不到：有些有答案的题一块也没检索到；请把 keep 调低。")
    best = max(lines, key=lambda line: (balanced_accuracy(with_answer, without, line), -line))
    return _measure(scores, best, of, k, split)


def _tidy(low: float, high: float) -> float:
    """两个分数正中间的数，位数尽量少：大于 low，不大于 high。"""
    for digits in range(2, 12):
        line = round((low + high) / 2, digits)
        if low < line <= high:
            return line
    return high


def _scores(searcher: Searcher, questions: Iterable[Question], of: str, k: int, split: str) -> dict[str, tuple[float, bool]]:
    """{题号: (前 k 块里最高的原始分数, 有没有答案)}。"""
    check_searcher(searcher)
    picked = [q for q in check_questions(questions) if q.split == split]
    if not any(q.gold for q in picked) or all(q.gold for q in picked):
        raise RagLessonsError(f"挑阈值要两种题：有答案的和没答案的；split={split!r} 里只有一种或一题也没有。")
    scores = {}
    for q in picked:
        hits = check_hits(searcher.search(q.question, k))
        found = [check_number(hit.details[of], f"问题 {q.id} 的结果里，{of}") for hit in hits if of in hit.details]
        if hits and not found:
            known = "、".join(sorted({name for hit in hits for name in hit.details})) or "无"
            raise RagLessonsError(f"问题 {q.id} 的结果里没有名为 {of!r} 的分数（有的是：{known}）；请改 of。")
        scores[q.id] = (max(found, default=-math.inf), bool(q.gold))
    return scores


def _sides(scores: dict[str, tuple[float, bool]]) -> tuple[list[float], list[float]]:
    """有答案的题的分数，没答案的题的分数。"""
    return [s for s, has in scores.values() if has], [s for s, has in scores.values() if not has]


def _measure(scores: dict[str, tuple[float, bool]], threshold: float, of: str, k: int, split: str) -> Calibration:
    with_answer, without = _sides(scores)
    refused, answered = sum(s < threshold for s in with_answer), sum(s >= threshold for s in without)
    accuracy = balanced_accuracy(with_answer, without, threshold)
    return Calibration(threshold, of, k, split, accuracy, refused, len(with_answer), answered, len(without), scores)
