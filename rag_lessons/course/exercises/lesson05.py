"""第 05 课的练习：并列时公平的名次、按代价选一条线、认出混用的空间。"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rag_lessons.course.checks import Exercise, Wrong, case

Scores = Sequence[float]


# ---------------------------------------------------------------- 5.1 并列时公平的名次


def fair_rank(scores: Scores, gold: int) -> float:
    """比它高的都在前面，和它一样的算一半；分数先四舍五入到 6 位。"""
    values = [round(float(score), 6) for score in scores]
    higher = sum(value > values[gold] for value in values)
    equal = sum(value == values[gold] for value in values) - 1
    return 1 + higher + equal / 2


def _counts(scores: Scores, gold: int, digits: int = 6) -> tuple[int, int]:
    values = [round(float(score), digits) for score in scores]
    return sum(v > values[gold] for v in values), sum(v == values[gold] for v in values)


def _kind(scores: Scores, gold: int) -> float:
    return 1 + _counts(scores, gold)[0]


def _harsh(scores: Scores, gold: int) -> float:
    return sum(_counts(scores, gold))


def _by_place(scores: Scores, gold: int) -> float:
    values = [round(float(score), 6) for score in scores]
    return 1 + sorted(range(len(values)), key=lambda i: -values[i]).index(gold)


def _counts_itself(scores: Scores, gold: int) -> float:
    higher, same = _counts(scores, gold)
    return 1 + higher + same / 2


def _from_zero(scores: Scores, gold: int) -> float:
    return fair_rank(scores, gold) - 1


def _lowest_first(scores: Scores, gold: int) -> float:
    return fair_rank([-float(s) for s in scores], gold)


def _first_place(scores: Scores, gold: int) -> float:
    return sorted(scores, reverse=True).index(scores[gold]) + 1


def _raw_with_itself(scores: Scores, gold: int) -> float:
    higher, same = _counts(scores, gold, digits=16)
    return 1 + higher + same / 2


def _whole(scores: Scores, gold: int) -> float:
    higher, same = _counts(scores, gold)
    return 1 + higher + (same - 1) // 2


def _no_rounding(scores: Scores, gold: int) -> float:
    values = [float(s) for s in scores]
    return 1 + sum(v > values[gold] for v in values) + (sum(v == values[gold] for v in values) - 1) / 2


_FAIR = Exercise(
    id="5.1",
    title="并列时公平的名次",
    reference=fair_rank,
    cases=[
        case("题目里的例子", [0, 0, 0, 0, 0.1], 2),
        case("没有并列", [0.3, 0.9, 0.5], 2),
        case("就是第一", [0.3, 0.9, 0.5], 1),
        case("全部并列", [0.0, 0.0, 0.0], 0),
        case("两个并列第一", [0.7, 0.2, 0.7, 0.1], 2),
        case("只差在第 8 位小数", [0.86600001, 0.86600003, 0.5], 0),
        case("有负的余弦", [-0.1, 0.0, -0.1, 0.2], 0),
    ],
    wrong=[
        Wrong("并列的全算在后面", _kind, "并列的你全排在了它后面，这是最好的情况；应当算一半在前。"),
        Wrong("并列的全算在前面", _harsh, "并列的你全排在了它前面，这是最坏的情况；应当算一半在前。"),
        Wrong("并列看位置", _by_place, "并列时你按位置分先后，这正是本题要去掉的运气；并列的算一半在前。"),
        Wrong("把自己也算进并列", _counts_itself, "它和自己也相等，数并列的时候要减去 1。"),
        Wrong("从 0 数起", _from_zero, "名次从 1 数起，你的少了 1。"),
        Wrong("从低到高", _lowest_first, "方向反了：分数高的排在前面。"),
        Wrong("没有四舍五入", _no_rounding, "差在第 7 位以后的要算并列：先把每个分数四舍五入到 6 位。"),
        Wrong("排好后找分数", _first_place, "index 找到的是这个分数第一次出现的地方，并列的等于全排在它后面；分数也还没有四舍五入。"),
        Wrong("算上自己，也没有四舍五入", _raw_with_itself, "两处：它和自己也相等，要减去 1；分数要先四舍五入到 6 位再比。"),
        Wrong("整除", _whole, "名次可以带半：并列的一半用 / 2，不是 // 2。"),
    ],
    follow_up="接着试：5.3 节玩具给正确块的名次，换成公平的算法是多少。",
)


# ---------------------------------------------------------------- 5.2 按代价选一条线


def total_cost(line: float, answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    """没答案的没拒掉，每题赔 wrong；有答案的被拒，每题赔 refused。"""
    return wrong * sum(s >= line for s in absent) + refused * sum(s < line for s in answerable)


def cheapest_line(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    """总赔付最少的一条线。"""
    scores = sorted({*map(float, answerable), *map(float, absent)})
    return min([*scores, scores[-1] + 1], key=lambda line: total_cost(line, answerable, absent, wrong, refused))


def _fixed(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return 0.35


def _between_means(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return (float(np.mean(answerable)) + float(np.mean(absent))) / 2


def _ignores_cost(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return cheapest_line(answerable, absent, 1, 1)


def _swapped(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return cheapest_line(answerable, absent, refused, wrong)


def _by_share(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return cheapest_line(answerable, absent, wrong / len(absent), refused / len(answerable))


def _the_cost(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    best = cheapest_line(answerable, absent, wrong, refused)
    return float(total_cost(best, answerable, absent, wrong, refused))


def _dearest(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    return cheapest_line(answerable, absent, -wrong, -refused)


def _coarse(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    lines = [step / 100 for step in range(101)]
    return min(lines, key=lambda line: total_cost(line, answerable, absent, wrong, refused))


def _never_refuses_all(answerable: Scores, absent: Scores, wrong: float, refused: float) -> float:
    scores = sorted({*map(float, answerable), *map(float, absent)})
    return min(scores, key=lambda line: total_cost(line, answerable, absent, wrong, refused))


def _judge_line(output: Any, answerable: Scores, absent: Scores, wrong: float, refused: float) -> str:
    """空串表示这条线的赔付最少；否则说出它赔多少、最少能赔多少。"""
    if isinstance(output, bool) or not isinstance(output, int | float | np.number) or not np.isfinite(output):
        return "要返回一条线，也就是一个数。"
    least = total_cost(cheapest_line(answerable, absent, wrong, refused), answerable, absent, wrong, refused)
    cost = total_cost(float(output), answerable, absent, wrong, refused)
    if cost <= least + 1e-9:
        return ""
    missed = sum(s >= output for s in absent)
    lost = sum(s < output for s in answerable)
    return (
        f"你的线是 {float(output):.4g}：没答案的放过 {missed} 题，有答案的误拒 {lost} 题，共赔 {cost:g}；"
        f"最少可以只赔 {least:g}。"
    )


_YES = [0.91, 0.895, 0.893, 0.89, 0.884, 0.879, 0.871, 0.863]
_NO = [0.888, 0.881, 0.874, 0.866]
_LINE = Exercise(
    id="5.2",
    title="按代价选一条线",
    reference=cheapest_line,
    judge=_judge_line,
    cases=[
        case("一样贵", _YES, _NO, 1, 1),
        case("答错贵十倍", _YES, _NO, 10, 1),
        case("误拒贵十倍", _YES, _NO, 1, 10),
        case("分得开的两堆", [0.6, 0.7, 0.8], [0.1, 0.2], 1, 1),
        case("没答案的反而高", [0.3, 0.4], [0.5, 0.6, 0.7], 3, 1),
        case("没答案的只有一题", [0.5, 0.6, 0.7, 0.8], [0.75], 1, 1),
        case("挤在 0.01 里", [0.8731, 0.8742, 0.8764], [0.8722, 0.8735], 1, 1),
        case("像玩具那样混在一起", [0.06, 0.09, 0.14, 0.25], [0.1, 0.15, 0.29], 2, 1),
    ],
    wrong=[
        Wrong("抄来的 0.35", _fixed, "0.35 是别人的读数；线要从这两列分数里挑。"),
        Wrong("两个平均的中点", _between_means, "两堆平均分的中点没有用到代价，也不管两堆怎样重叠；把候选的线逐条算一遍赔付。"),
        Wrong("不看代价", _ignores_cost, "wrong 和 refused 没有起作用：把它们乘到两种错误的题数上。"),
        Wrong("两种代价弄反了", _swapped, "两种代价弄反了：没答案而没拒掉的赔 wrong，有答案而被拒的赔 refused。"),
        Wrong("用了比例", _by_share, "赔付按题数算，不是按比例：不要除以各自的题数。"),
        Wrong("返回了赔付", _the_cost, "你返回的是最少的赔付，不是那条线。"),
        Wrong("取了最贵的", _dearest, "你挑的是赔得最多的一条：用 min，不是 max。"),
        Wrong("忘了一题也不答", _never_refuses_all, "少了一条候选：比所有分数都高的线，也就是一题也不答。"),
        Wrong("每隔 0.01 试一条", _coarse, "隔 0.01 试一条太疏了，分数会挤在两条线中间：候选用出现过的每个分数。"),
    ],
    follow_up="代价写成数字，哪条线好才有答案。",
)


# ---------------------------------------------------------------- 5.3 认出混用的空间


def same_space(stored: Any, fresh: Any) -> bool:
    """形状相同，且每一行的余弦都不低于 0.999。"""
    a, b = np.asarray(stored, dtype=float), np.asarray(fresh, dtype=float)
    return a.shape == b.shape and bool((_row_cosines(a, b) >= 0.999).all())


def _row_cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _with(rule: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[Any, Any], bool]:
    """形状不同时返回 False，其余交给 rule。"""

    def attempt(stored: Any, fresh: Any) -> bool:
        a, b = np.asarray(stored, dtype=float), np.asarray(fresh, dtype=float)
        return a.shape == b.shape and bool(rule(a, b))

    return attempt


def _no_shape_check(stored: Any, fresh: Any) -> bool:
    a, b = np.asarray(stored, dtype=float), np.asarray(fresh, dtype=float)
    return bool((_row_cosines(a, b) >= 0.999).all())


def _space_cases() -> list[Any]:
    rng = np.random.default_rng(5)
    base = rng.standard_normal((8, 16))
    unit = base / np.linalg.norm(base, axis=1, keepdims=True)
    other = rng.standard_normal((8, 16))
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    aside = np.stack([unit[:, 1::2], -unit[:, ::2]], axis=2).reshape(8, 16)      # 与每一行垂直，一样长
    return [
        case("重算一遍，差在第 7 位", unit, unit + 1e-7),
        case("维数相同的另一个模型", unit, other),
        case("只有最后一行是旧模型的", np.vstack([unit[:7], other[7:]]), unit),
        case("只有第一行是旧模型的", np.vstack([other[:1], unit[1:]]), unit),
        case("维数不同", unit, unit[:, :12]),
        case("行数不同", unit, unit[:3]),
        case("存着的没有归一化", unit * np.linspace(0.4, 3.0, 8)[:, None], unit),
        case("同一个模型，另一种量化", unit + 0.15 * aside, unit),
        case("只有一行差一点，平均仍在 0.999 以上", np.vstack([unit[:1] + 0.1 * aside[:1], unit[1:]]), unit),
        case("方向全反了", -unit, unit),
    ]


_SPACE = Exercise(
    id="5.3",
    title="两批向量是不是同一个空间",
    reference=same_space,
    cases=_space_cases,
    wrong=[
        Wrong("只看形状", _with(lambda a, b: True), "形状相同不等于空间相同，混用的事故正是这样漏过去的；还要逐行比余弦。"),
        Wrong("只要有一行对", _with(lambda a, b: (_row_cosines(a, b) >= 0.999).any()), "你用的是 any：有一行对就算对。要每一行都对，用 all。"),
        Wrong("看平均", _with(lambda a, b: _row_cosines(a, b).mean() >= 0.7), "平均会掩盖坏的几行：库里混进一批旧向量，平均仍然很高。逐行看。"),
        Wrong("平均到 0.999", _with(lambda a, b: _row_cosines(a, b).mean() >= 0.999), "平均到了 0.999，不等于每一行都到了：一行差一点，平均看不出来。逐行比，再用 all。"),
        Wrong("只看第一行", _with(lambda a, b: _row_cosines(a, b)[0] >= 0.999), "你只比了第一行；后面的行也可能是别的模型的。"),
        Wrong("没有归一化", _with(lambda a, b: ((a * b).sum(axis=1) >= 0.999).all()), "点积要除以两边的长度才是余弦：存着的向量不一定归一化过。"),
        Wrong("逐个数相等", _with(lambda a, b: np.array_equal(a, b)), "要求每个数完全相等太严了：重算一遍，最后几位可能不同。"),
        Wrong("逐个数差不多", _with(lambda a, b: np.allclose(a, b, atol=1e-3)), "逐个数去比，长度不同就算不同了：要比的是方向，两边先除以各自的长度。"),
        Wrong("差得不多就算", _with(lambda a, b: (_row_cosines(a, b) >= 0.9).all()), "线松了：0.999 以下就不是同一个空间，另一种量化的同一个模型也算不同。"),
        Wrong("取了绝对值", _with(lambda a, b: (np.abs(_row_cosines(a, b)) >= 0.999).all()), "方向相反的两个向量余弦是 −1，不是同一个空间；不要取绝对值。"),
        Wrong("没有先比形状", _no_shape_check, "形状不同时不能逐行相乘：先比 shape，不同就直接返回 False。"),
    ],
    follow_up="下次接手别人的向量库，先抽三块试一试。",
)  # fmt: skip

EXERCISES = [_FAIR, _LINE, _SPACE]
