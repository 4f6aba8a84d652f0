"""第 06 课的练习：答案与第一名各有多长、把符号正过来、在 tune 上扫强度。"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case

BANDS = 5

# ---------------------------------------------------------------- 6.1 两条线


def shares(band: Any, right: Any, top: Any) -> list[list[float]]:
    """[答案落在各档的比例, 第一名落在各档的比例]：一题一票，一题有几个正确的块就平分。"""
    band, right, top = np.asarray(band), np.asarray(right, dtype=bool), np.asarray(top)
    votes = right / right.sum(axis=1, keepdims=True)
    gold = [float(votes[:, band == b].sum() / len(right)) for b in range(BANDS)]
    first = [float((band[top] == b).mean()) for b in range(BANDS)]
    return [gold, first]


def _gold(count: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., list[list[float]]]:
    """答案那一条线换一种数法，第一名那一条照旧。"""

    def attempt(band: Any, right: Any, top: Any) -> list[list[float]]:
        band, right = np.asarray(band), np.asarray(right, dtype=bool)
        return [[float(v) for v in count(band, right)], shares(band, right, top)[1]]

    return attempt


def _every_chunk_a_vote(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [right[:, band == b].sum() / right.sum() for b in range(BANDS)]


def _any_chunk_counts(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [right[:, band == b].any(axis=1).mean() for b in range(BANDS)]


def _only_the_first(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [(band[right.argmax(axis=1)] == b).mean() for b in range(BANDS)]


def _not_divided(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [right[:, band == b].sum() / len(right) for b in range(BANDS)]


def _chunks_themselves(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [(band == b).mean() for b in range(BANDS)]


def _per_chunk_in_band(band: np.ndarray, right: np.ndarray) -> list[float]:
    return [right[:, band == b].mean() if (band == b).any() else 0.0 for b in range(BANDS)]


def _rows(*rows: str) -> np.ndarray:
    return np.array([[mark == "x" for mark in row] for row in rows])


def _random_case() -> Case:
    rng = np.random.default_rng(6)
    right = rng.random((12, 20)) < 0.12
    right[np.arange(12), rng.integers(0, 20, 12)] = True
    return case("12 题，20 块", rng.integers(0, 5, 20), right, rng.integers(0, 20, 12))


def _shares_cases() -> list[Case]:
    band = np.array([0, 1, 2, 3, 4, 4])
    return [
        case("两题，各有一个正确的块", band, _rows("x.....", "...x.."), np.array([0, 0])),
        case("一题有两个正确的块，在两档", band, _rows("x...x.", ".x...."), np.array([1, 1])),
        case("两个正确的块在同一档", band, _rows("....xx", "..x..."), np.array([5, 2])),
        case("有一档一个块也没有", np.array([0, 0, 2, 4]), _rows("x.x.", "...x", "xxx."), np.array([2, 3, 0])),
        _random_case(),
    ]


_SHARES = Exercise(
    id="6.1",
    title="答案与第一名各落在哪一档",
    reference=shares,
    cases=_shares_cases,
    diagnoses=[
        (
            lambda outputs, wanted: all(np.allclose(np.asarray(o)[::-1], w) for o, w in zip(outputs, wanted, strict=True)),
            "两行的次序反了：先是答案，后是第一名。",
        ),
        (
            lambda outputs, wanted: all(np.asarray(o).shape == (5, 2) for o in outputs),
            "要两行，每行五个数；你给的是五行，每行两个数。",
        ),
    ],
    wrong=[
        Wrong("每块一票", _gold(_every_chunk_a_vote), "正确的块多的题占了好几票：每题只有一票，由它的正确块平分。"),
        Wrong("碰到就算一票", _gold(_any_chunk_counts), "一题的正确块落在两档时，你给两档各记了一整票：要平分。"),
        Wrong("只看第一个正确的块", _gold(_only_the_first), "你只看了每题的第一个正确块；几个正确的块要平分这一票。"),
        Wrong("票没有平分", _gold(_not_divided), "票没有平分：五档加起来超过了 1。每行先除以这一题的正确块数。"),
        Wrong("数的是块", _gold(_chunks_themselves), "你数的是各档有多少块；要数的是正确的块，用到 right。"),
        Wrong("除以这一档的块数", _gold(_per_chunk_in_band), "你除以的是这一档的块数；要除以题数，五档加起来才是 1。"),
        Wrong(
            "次序反了",
            lambda band, right, top: shares(band, right, top)[::-1],
            "两行的次序反了：先是答案，后是第一名。",
        ),
        Wrong(
            "第一名当成了档号",
            lambda band, right, top: [shares(band, right, top)[0], [float((np.asarray(top) == b).mean()) for b in range(BANDS)]],
            "top 里是第几块，不是第几档：先查 band[top]。",
        ),
        Wrong(
            "百分数",
            lambda band, right, top: [[100 * v for v in row] for row in shares(band, right, top)],
        ),
    ],
    follow_up="两行各自加起来都是 1，这是个随手可做的核对。",
)

# ---------------------------------------------------------------- 6.2 正过来


def turned(scores: Any, lengths: Any) -> list[int]:
    """得分乘以 √长度以后的次序：行号，由高到低，四舍五入到 6 位，并列的行号小的在前。"""
    return _order(np.asarray(scores, dtype=float) * np.sqrt(np.asarray(lengths, dtype=float)))


def _order(values: np.ndarray) -> list[int]:
    return np.argsort(-np.round(values, 6), kind="stable").tolist()


def _by(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., list[int]]:
    return lambda scores, lengths: _order(change(np.asarray(scores, dtype=float), np.asarray(lengths, dtype=float)))


def _turned_cases() -> list[Case]:
    rng = np.random.default_rng(62)
    return [
        case("两块", np.array([0.166, 0.115]), np.array([110, 944])),
        case("长度相同", np.array([0.2, 0.3, 0.1]), np.array([50, 50, 50])),
        case("短块确实好得多", np.array([0.9, 0.2]), np.array([100, 400])),
        case("乘长度就过头了", np.array([0.5, 0.1]), np.array([100, 900])),
        case("取对数就太轻了", np.array([0.5, 0.3]), np.array([100, 400])),
        case("正好并列", np.array([0.4, 0.2, 0.1]), np.array([100, 400, 1600])),
        case("差在第 8 位", np.array([0.3, 0.30000001, 0.29]), np.array([100, 100, 100])),
        case("十块", rng.random(10).round(3), rng.integers(20, 2000, 10)),
    ]


_TURNED = Exercise(
    id="6.2",
    title="乘以 √长度以后，谁排在前面",
    reference=turned,
    cases=_turned_cases,
    diagnoses=[
        (
            lambda outputs, wanted: any(np.asarray(o).dtype.kind == "f" for o in outputs),
            "你返回的是分数；这里要行号，分数最高的在最前。",
        ),
        (
            lambda outputs, wanted: all(np.ndim(o) == 0 for o in outputs),
            "你只返回了第一名；这里要全部行号，由高到低。",
        ),
    ],
    wrong=[
        Wrong("照文章的写法", _by(lambda s, n: s / np.sqrt(n)), "这是文章的写法：除以一个更小的数，短块的分数抬得更高。要乘。"),
        Wrong("乘以长度", _by(lambda s, n: s * n), "你乘的是长度，没有开方：再好的短块也翻不了身。"),
        Wrong("除以长度", _by(lambda s, n: s / n), "方向反了，也没有开方：要乘以 √长度。"),
        Wrong("没有修正", _by(lambda s, n: s), "长度还没有用上：先乘以 √长度，再排。"),
        Wrong("乘以对数", _by(lambda s, n: s * np.log(n)), "你乘的是长度的对数；这一题要的是平方根。"),
        Wrong("只按长度", _by(lambda s, n: n), "你只按长度排了；要的是 得分 × √长度。"),
        Wrong("从低到高", lambda scores, lengths: turned(scores, lengths)[::-1], "次序反了：分数高的排在前面。"),
        Wrong(
            "返回分数",
            lambda scores, lengths: sorted((np.asarray(scores) * np.sqrt(lengths)).tolist(), reverse=True),
            "你返回的是分数；这里要行号，分数最高的在最前。",
        ),
        Wrong(
            "整个倒过来",
            lambda scores, lengths: np.argsort(
                np.round(np.asarray(scores) * np.sqrt(lengths), 6), kind="stable"
            )[::-1].tolist(),
            "先从低到高排好再整个倒过来，并列的行也跟着倒了；并列时行号小的在前。",
        ),
        Wrong(
            "没有四舍五入",
            lambda scores, lengths: np.argsort(-(np.asarray(scores) * np.sqrt(lengths)), kind="stable").tolist(),
            "差在 6 位小数之后的也分了高低：先四舍五入到 6 位，再排，并列的看行号。",
        ),
    ],
    follow_up="把安全阀那一问代进去看看首位是谁，两个模型各看一次。一个问题不作数，下一节把全部问题量一遍。",
)

# ---------------------------------------------------------------- 6.3 在 tune 上扫，在 report 上报


def _hit1(values: np.ndarray, right: np.ndarray) -> np.ndarray:
    """每题的第一名对不对。"""
    top = np.argsort(-np.round(values, 6), axis=1, kind="stable")[:, 0]
    return right[np.arange(len(right)), top]


def sweep(scores: Any, length: Any, right: Any, tune: Any, strengths: Sequence[float]) -> list[float]:
    """[c, hit@1]：让 tune 上 hit@1 最高的最小的 c，和它在其余的题（report）上的 hit@1。"""
    return _sweep(scores, length, right, tune, strengths)


def _sweep(
    scores: Any, length: Any, right: Any, tune: Any, strengths: Sequence[float], *,
    factor: Callable[[np.ndarray, float], np.ndarray] = lambda n, c: n / (n + c),
    pick: Callable[[np.ndarray], np.ndarray] = lambda tune: tune,
    report: Callable[[np.ndarray], np.ndarray] = lambda tune: ~tune,
    last: bool = False, given: bool = False, hit: Callable[[np.ndarray, np.ndarray], np.ndarray] = _hit1,
) -> list[float]:
    scores, length = np.asarray(scores, dtype=float), np.asarray(length, dtype=float)
    right, tune = np.asarray(right, dtype=bool), np.asarray(tune, dtype=bool)
    found = {float(c): hit(scores * factor(length, float(c)), right) for c in strengths}
    order = list(found) if given else sorted(found, reverse=last)
    best = max(order, key=lambda c: round(float(found[c][pick(tune)].mean()), 9))
    return [best, float(found[best][report(tune)].mean())]


def _variant(**changes: Any) -> Callable[..., list[float]]:
    return lambda scores, length, right, tune, strengths: _sweep(scores, length, right, tune, strengths, **changes)


def _hit3(values: np.ndarray, right: np.ndarray) -> np.ndarray:
    order = np.argsort(-np.round(values, 6), axis=1, kind="stable")[:, :3]
    return np.take_along_axis(right, order, axis=1).any(axis=1)


def _made_up(seed: int, questions: int, chunks: int, short: float) -> tuple[np.ndarray, ...]:
    """短块分高、正确的块多半长的一套假分数。"""
    rng = np.random.default_rng(seed)
    length = rng.integers(20, 900, chunks)
    scores = rng.random((questions, chunks)) * (0.6 + short / np.sqrt(length))
    answer = rng.choice(chunks, questions, p=length / length.sum())
    scores[np.arange(questions), answer] += 0.25
    right = np.zeros((questions, chunks), dtype=bool)
    right[np.arange(questions), answer] = True
    return scores.round(3), length, right, rng.random(questions) < 0.5


def _sweep_cases() -> list[Case]:
    strengths = [0, 5, 20, 50, 100, 200, 500]
    small = np.array([[0.5, 0.4], [0.5, 0.3], [0.4, 0.1], [0.5, 0.45]])
    right = np.array([[False, True], [False, True], [True, False], [False, True]])
    tune = np.array([True, False, False, True])
    return [
        case("四题，两块", small, np.array([50, 400]), right, tune, [0, 10, 20, 50, 400]),
        case("强度没有排好", small, np.array([50, 400]), right, tune, [400, 10, 50, 0]),
        case("答案在短块里", np.array([[0.4, 0.45], [0.4, 0.42], [0.5, 0.1]]), np.array([50, 400]), ~right[[0, 1, 3]],
             np.array([True, False, True]), [0, 10, 50]),
        case("四十题", *_made_up(1, 40, 12, 4.0), strengths),
        case("六十题", *_made_up(11, 60, 25, 2.0), strengths),
        case("另外六十题", *_made_up(39, 60, 25, 4.0), strengths),
    ]


_SWEEP = Exercise(
    id="6.3",
    title="在 tune 上挑 c，在 report 上报一次",
    reference=sweep,
    cases=_sweep_cases,
    diagnoses=[
        (
            lambda outputs, wanted: all(np.allclose(np.asarray(o, dtype=float)[::-1], w) for o, w in zip(outputs, wanted, strict=True)),
            "两个数的次序反了：先是 c，后是 report 上的 hit@1。",
        ),
        (
            lambda outputs, wanted: all(np.ndim(o) == 0 for o in outputs),
            "只有一个数：要返回两个，挑中的 c 和它在 report 上的 hit@1。",
        ),
    ],
    wrong=[
        Wrong(
            "在全部题上挑",
            _variant(pick=lambda tune: np.ones_like(tune)),
            "你在全部题上挑了 c：report 的题也参加了挑选，报出来的数就偏高。只许看 tune。",
        ),
        Wrong("在 report 上挑", _variant(pick=lambda tune: ~tune), "你在 report 上挑了 c，又在 report 上报：这是照着考题背答案。"),
        Wrong("报的是 tune", _variant(report=lambda tune: tune), "c 挑对了，报的却是 tune 上的分；要报 tune 以外的题。"),
        Wrong("报的是全部题", _variant(report=lambda tune: np.ones_like(tune)), "c 挑对了，报的却是全部题的分；只报 tune 以外的题。"),
        Wrong("并列取了最大的", _variant(last=True), "几个 c 一样好时取最小的：能少改就少改。"),
        Wrong("没有先排好", _variant(given=True), "strengths 不一定从小到大：一样好时，你留下的是先出现的，不是最小的。先排序。"),
        Wrong("方向反了", _variant(factor=lambda n, c: (n + c) / n), "你除以了因子，短块反而抬高了：要乘以 长度 ÷ (长度 + c)。"),
        Wrong("因子写成了 c 分之", _variant(factor=lambda n, c: c / (n + c)), "分子是长度，不是 c：c / (长度 + c) 随长度下降。"),
        Wrong("量的是 hit@3", _variant(hit=_hit3), "你数的是前三名；这里只看第一名。"),
        Wrong("没有用 c", _variant(factor=lambda n, c: n / n), "c 还没有用上，每个强度的结果都一样：分数要先乘以 长度 ÷ (长度 + c)。"),
        Wrong(
            "次序反了",
            lambda *args: _sweep(*args)[::-1],
            "两个数的次序反了：先是 c，后是 report 上的 hit@1。",
        ),
    ],
    follow_up="c 只看过 tune。report 上的那个数看一次就好，不要看了再回来改 c。",
)

EXERCISES = [_SHARES, _TURNED, _SWEEP]
