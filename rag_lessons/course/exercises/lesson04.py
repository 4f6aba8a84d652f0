"""第 04 课的练习：并列怎么排、命中算得严一点、阈值怎么选。"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case
from rag_lessons.types import Chunk

# ---------------------------------------------------------------- 4.1 并列怎么排


def top_rows(scores: Any, k: int) -> list[int]:
    """分数四舍五入到 6 位小数，由高到低；相同的按行号由小到大；k 大于 n 时返回全部。"""
    rounded = np.asarray(scores, dtype=float).round(6)
    return np.lexsort((np.arange(len(rounded)), -rounded))[:k].tolist()


def _ranked(scores: Any, key: Any, k: int) -> list[int]:
    return sorted(range(len(scores)), key=key)[:k]


def _top_cases() -> list[Case]:
    wide = np.full(40, 0.25)
    wide[[7, 31]] = 0.75
    return [
        case("没有并列", np.array([0.1, 0.9, 0.5]), 2),
        case("两行同分", np.array([0.2, 0.8, 0.1, 0.8]), 2),
        case("只差最后一位", np.array([0.3, 0.49999999, 0.5]), 2),
        case("差在第三位小数", np.array([0.501, 0.502, 0.503]), 2),
        case("有负分", np.array([-0.2, -0.1, 0.0]), 2),
        case("第 k 名有三十八行并列", wide, 5),
        case("k 比行数大", np.array([0.4, 0.6]), 5),
    ]


_TOP = Exercise(
    id="4.1",
    title="前 k 行的行号，并列时有固定的次序",
    reference=top_rows,
    cases=_top_cases,
    wrong=[
        Wrong(
            "整个倒过来",
            lambda scores, k: np.argsort(np.round(scores, 6), kind="stable")[::-1][:k].tolist(),
            "你先从低到高排好再整个倒过来，同分的行也跟着倒了；并列时行号小的在前。",
        ),
        Wrong(
            "没有取整",
            lambda scores, k: _ranked(scores, lambda i: (-scores[i], i), k),
            "分数没有先取到 6 位小数：只差最后一位的两行应算并列，按行号排。",
        ),
        Wrong(
            "取整太狠",
            lambda scores, k: _ranked(scores, lambda i: (-round(float(scores[i]), 2), i), k),
            "取整太狠：0.503 与 0.501 不是并列，要留 6 位小数。",
        ),
        Wrong(
            "从低到高",
            lambda scores, k: _ranked(scores, lambda i: (round(float(scores[i]), 6), i), k),
            "次序反了：分数高的在前。",
        ),
        Wrong(
            "按分数的绝对值",
            lambda scores, k: _ranked(scores, lambda i: (-abs(round(float(scores[i]), 6)), i), k),
            "负分排到了前面：-0.2 比 0 低，不要取绝对值。",
        ),
        Wrong(
            "返回分数",
            lambda scores, k: np.sort(np.round(np.asarray(scores, dtype=float), 6))[::-1][:k].tolist(),
            "你返回的是分数；这里要的是行号。",
        ),
        Wrong(
            "只按行号",
            lambda scores, k: sorted(top_rows(scores, k)),
            "选对了行，次序却是行号的次序；前 k 行之间还要按分数排。",
        ),
        Wrong(
            "多取一个",
            lambda scores, k: top_rows(scores, k + 1),
            "多了一行：切片 [:k] 正好是 k 行。",
        ),
        Wrong(
            "k 大于行数就不给",
            lambda scores, k: top_rows(scores, k) if k <= len(scores) else [],
            "k 比行数大时，有几行就给几行。",
        ),
    ],
    follow_up="同一份资料，不管文件按什么次序读进来、在哪台机器上算，名次都一样。",
)

# ---------------------------------------------------------------- 4.2 金标原句有几成在块里

Span = tuple[str, int, int]


def share_covered(chunk: Chunk, span: Span) -> float:
    """金标原句里有几成的字落在块里，0 到 1；不是同一份文件就是 0。"""
    source, start, end = span
    if chunk.source != source:
        return 0.0
    return max(0, min(chunk.end, end) - max(chunk.start, start)) / (end - start)


def _chunk(source: str, start: int, end: int) -> Chunk:
    return Chunk("字" * (end - start), source, start, end)


_ONE_MORE = "多数了一个字：位置是左闭右开，终点减起点就是字数，不用加 1。"

_SHARE = Exercise(
    id="4.2",
    title="金标原句有几成在块里",
    reference=share_covered,
    cases=[
        case("整句都在块里（块 0–10，句 2–6）", _chunk("a.md", 0, 10), ("a.md", 2, 6)),
        case("块比原句短（块 4–6，句 0–8）", _chunk("a.md", 4, 6), ("a.md", 0, 8)),
        case("句尾伸到块外（块 0–10，句 7–11）", _chunk("a.md", 0, 10), ("a.md", 7, 11)),
        case("句头在块前面（块 10–20，句 9–13）", _chunk("a.md", 10, 20), ("a.md", 9, 13)),
        case("块在句子前面（块 0–10，句 15–20）", _chunk("a.md", 0, 10), ("a.md", 15, 20)),
        case("正好接着（块 0–10，句 10–14）", _chunk("a.md", 0, 10), ("a.md", 10, 14)),
        case("位置对得上，文件不同（块 0–10，句 2–6）", _chunk("b.md", 0, 10), ("a.md", 2, 6)),
    ],
    diagnoses=[
        (
            lambda outputs, wanted: any(isinstance(v, bool | np.bool_) for v in outputs),
            "你返回的是真假；这里要一个 0 到 1 的小数，说出占几成。",
        ),
        (
            lambda outputs, wanted: any(v < 0 for v in outputs),
            "出现了负数：两段不相交时，终点的较小者减起点的较大者小于 0，要用 max(0, …) 托住。",
        ),
        (lambda outputs, wanted: 0 < outputs[5] < 1, _ONE_MORE),
    ],
    wrong=[
        Wrong(
            "没有看文件",
            lambda chunk, span: share_covered(chunk, (chunk.source, span[1], span[2])),
            "没有核对文件：位置对得上、文件不同，不算。",
        ),
        Wrong(
            "分母用了块长",
            lambda chunk, span: share_covered(chunk, span) * (span[2] - span[1]) / (chunk.end - chunk.start),
            "分母用了块长；问的是原句有几成，分母是原句的长度。",
        ),
        Wrong(
            "没有托住负数",
            lambda chunk, span: (min(chunk.end, span[2]) - max(chunk.start, span[1])) / (span[2] - span[1])
            if chunk.source == span[0] else 0.0,
        ),
        Wrong(
            "只分有和没有",
            lambda chunk, span: bool(chunk.source == span[0] and chunk.start < span[2] and span[1] < chunk.end),
        ),
        Wrong(
            "碰到就算全部",
            lambda chunk, span: 1.0 if share_covered(chunk, span) > 0 else 0.0,
            "碰到一个字就记成 1 了；要按共有的字数来算。",
        ),
        Wrong(
            "多数了一个字",
            lambda chunk, span: max(0, min(chunk.end, span[2]) - max(chunk.start, span[1]) + 1) / (span[2] - span[1])
            if chunk.source == span[0] else 0.0,
            _ONE_MORE,
        ),
        Wrong(
            "返回了字数",
            lambda chunk, span: float(share_covered(chunk, span) * (span[2] - span[1])),
            "你返回的是共有几个字；再除以原句的长度，才是几成。",
        ),
        Wrong(
            "不整句就不算",
            lambda chunk, span: 1.0 if share_covered(chunk, span) == 1 else 0.0,
            "只有整句都在块里才得分；露出一半的要记 0.5。",
        ),
    ],
    follow_up="块按 40 行一刀切下去，刀口上的句子就只剩几成。",
)

# ---------------------------------------------------------------- 4.3 阈值怎么选


def choose_threshold(scores: Sequence[float], answerable: Sequence[bool]) -> float:
    """让（留下的有答案的比例 + 拒掉的没答案的比例）最大的阈值；并列时取最小的。"""
    scores, answerable = np.asarray(scores, dtype=float), np.asarray(answerable, dtype=bool)

    def balance(threshold: float) -> float:
        return round((scores[answerable] >= threshold).mean() + (scores[~answerable] < threshold).mean(), 9)

    return float(max(sorted(set(scores.tolist())), key=balance))


def _pick(goal: Any) -> Any:
    """候选阈值从小到大，取 goal(有答案的分数, 没答案的分数, 阈值) 最大的那个；并列取最小。"""

    def choose(scores: Sequence[float], answerable: Sequence[bool]) -> float:
        values, has = np.asarray(scores, dtype=float), np.asarray(answerable, dtype=bool)
        return float(max(sorted(set(values.tolist())), key=lambda t: round(float(goal(values[has], values[~has], t)), 9)))

    return choose


def _highest_of_ties(scores: Sequence[float], answerable: Sequence[bool]) -> float:
    values, has = np.asarray(scores, dtype=float), np.asarray(answerable, dtype=bool)
    return float(max(
        sorted(set(values.tolist()), reverse=True),
        key=lambda t: round((values[has] >= t).mean() + (values[~has] < t).mean(), 9),
    ))


def _middle(scores: Sequence[float], answerable: Sequence[bool]) -> float:
    values, has = np.asarray(scores, dtype=float), np.asarray(answerable, dtype=bool)
    return float((values[has].mean() + values[~has].mean()) / 2)


def _grid(scores: Sequence[float], answerable: Sequence[bool]) -> float:
    values, has = np.asarray(scores, dtype=float), np.asarray(answerable, dtype=bool)
    return float(max(
        np.arange(0, 1, 0.01),
        key=lambda t: round((values[has] >= t).mean() + (values[~has] < t).mean(), 9),
    ))


_THRESHOLD_CASES = [
    case("两组分得开", [0.9, 0.8, 0.3, 0.2], [True, True, False, False]),
    case("有交错", [0.30, 0.22, 0.21, 0.12, 0.15, 0.10, 0.24], [True, True, True, True, False, False, False]),
    case("没答案的很少", [0.5, 0.45, 0.4, 0.3, 0.25, 0.2, 0.18, 0.16, 0.35, 0.1], [True] * 8 + [False] * 2),
    case("有答案的偶尔很低", [0.5, 0.45, 0.4, 0.3, 0.25, 0.2, 0.05, 0.1, 0.08, 0.42], [True] * 7 + [False] * 3),
    case("两个阈值一样好", [0.6, 0.4, 0.5, 0.1], [True, True, False, False]),
    case("没答案的分数反而高", [0.2, 0.3, 0.6], [True, True, False]),
]


def _off_the_list(outputs: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """返回的不是出现过的分数；两组平均分的中点另有一句话。"""
    args = [one.args for one in _THRESHOLD_CASES]
    middle = all(abs(v - _middle(*a)) < 1e-6 for v, a in zip(outputs, args, strict=True))
    return not middle and any(min(abs(v - s) for s in a[0]) > 1e-6 for v, a in zip(outputs, args, strict=True))


_THRESHOLD = Exercise(
    id="4.3",
    title="在 tune 上选阈值",
    reference=choose_threshold,
    cases=_THRESHOLD_CASES,
    diagnoses=[
        (_off_the_list, "你返回的阈值不是出现过的分数。只在 scores 里挑：两个相邻分数之间的阈值，效果都一样。"),
    ],
    wrong=[
        Wrong(
            "数对了几题",
            _pick(lambda has, no, t: (has >= t).sum() + (no < t).sum()),
            "你数的是总共判对几题；没答案的题少，几乎说了不算。两组要各算各的比例，再相加。",
        ),
        Wrong(
            "把没答案的全拒掉",
            _pick(lambda has, no, t: (no < t).mean() * 1000 + (has >= t).mean()),
            "你把没答案的全拒掉了，有答案的也跟着丢；两个比例要一样看重。",
        ),
        Wrong(
            "有答案的一题不丢",
            _pick(lambda has, no, t: (has >= t).mean() * 1000 + (no < t).mean()),
            "你一题有答案的都不肯丢，没答案的就放进来了；两个比例要一样看重。",
        ),
        Wrong(
            "等于阈值的没有留下",
            _pick(lambda has, no, t: (has > t).mean() + (no <= t).mean()),
            "等于阈值的也要留下：search 的规矩是分数 >= 阈值。",
        ),
        Wrong(
            "并列取了最大的",
            _highest_of_ties,
            "几个阈值一样好时，取最小的：宁可多留一块让后面去判断。",
        ),
        Wrong(
            "两组平均分的中点",
            _middle,
            "两组平均分的中点，只在两组一样宽时才合适；请把每个出现过的分数当阈值试一遍。",
        ),
        Wrong("按百分之一的网格试", _grid),
        Wrong(
            "方向反了",
            _pick(lambda has, no, t: (has < t).mean() + (no >= t).mean()),
            "方向反了：要留下的是有答案的，拒掉的是没答案的。",
        ),
    ],
    follow_up="这个数是在 tune 上选的。下一步才轮到 report：只报一次，报完不再改。",
)

EXERCISES = [_TOP, _SHARE, _THRESHOLD]
