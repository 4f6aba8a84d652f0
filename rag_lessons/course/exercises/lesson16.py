"""第 16 课的练习：是不是碰巧、先改哪一样、同样的篇幅取几块。"""

from __future__ import annotations

import math

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- 16.1 是不是碰巧


def luck(mended: int, broken: int) -> float:
    n = mended + broken
    return sum(math.comb(n, heads) for heads in range(mended, n + 1)) / 2**n


def _exactly(mended: int, broken: int) -> float:
    return math.comb(mended + broken, mended) / 2 ** (mended + broken)


_LUCK = Exercise(
    id="16.1",
    title="是不是碰巧",
    reference=luck,
    tolerance=1e-6,
    cases=[
        case("救回 2，弄坏 0", 2, 0), case("救回 4，弄坏 1", 4, 1), case("救回 5，弄坏 0", 5, 0), case("救回 1，弄坏 1", 1, 1),
        case("救回 0，弄坏 3", 0, 3), case("一题也没动", 0, 0), case("救回 12，弄坏 1", 12, 1), case("救回 30，弄坏 12", 30, 12),
    ],
    wrong=[
        Wrong("恰好这么多", _exactly, "你算的是恰好救回这么多；要的是至少这么多，h 从 mended 一直数到 n，都加起来。"),
        Wrong("超过这么多", lambda m, b: luck(m, b) - _exactly(m, b), "恰好 mended 题的那一种也要算：range 从 mended 开始，不是 mended + 1。"),
        Wrong("少了最后一种", lambda m, b: luck(m, b) - 1 / 2 ** (m + b), "全是正面的那一种漏了：range 的右端要写 n + 1。"),
        Wrong("两头都算", lambda m, b: min(1.0, 2 * luck(m, b)), "你把反过来那一头也算了：这里只问至少救回这么多，不用乘 2。"),
        Wrong("没有排法", lambda m, b: 0.5 ** m * 0.5 ** b, "只算了一种先后：救回的是哪几题有 math.comb(n, h) 种，要乘上。"),
        Wrong("只看救回的", lambda m, b: 0.5 ** m, "弄坏的没有算进来：动了的题是 mended + broken，两样都是抛出来的。"),
        Wrong("弄反了", lambda m, b: luck(b, m), "你数的是至多 mended 个正面，也就是把救回和弄坏弄反了：要的是至少 mended 个。"),
        Wrong("反面的机会", lambda m, b: 1 - luck(m, b), "这是不碰巧的机会：用 1 减回来。"),
        Wrong("占几成", lambda m, b: b / (m + b) if m + b else 1.0, "这是弄坏的占几成，不是机会：要数抛硬币的排法。"),
        Wrong("没除", lambda m, b: luck(m, b) * 2 ** (m + b), "还没有除以总数：n 题各有两面，一共 2 ** n 种。"),
    ],
    follow_up="5 比 0 是 3.1%，4 比 0 还有 6.2%。试过几样再挑最好的，机会还要大。",
)  # fmt: skip


# ---------------------------------------------------------------- 16.2 先改哪一样

Trials = list[tuple[str, list[str], list[str]]]


def _net(trial: tuple[str, list[str], list[str]]) -> int:
    return len(trial[1]) - len(trial[2])


def first_advice(trials: Trials) -> str | None:
    best = max(trials, key=_net, default=None)
    return best[0] if best is not None and _net(best) > 0 else None


def _by(score: object, least: float = 1) -> object:
    def pick(trials: Trials) -> str | None:
        best = max(trials, key=score, default=None)
        return best[0] if best is not None and score(best) >= least else None

    return pick


def _last(trials: Trials) -> str | None:
    return first_advice(trials[::-1])


def _any(trials: Trials) -> str | None:
    return max(trials, key=_net)[0] if trials else None


_ADVICE = Exercise(
    id="16.2",
    title="先改哪一样",
    reference=first_advice,
    cases=[
        case("救回多的", [("k 加倍", ["题1"], []), ("重排", ["题1", "题2", "题3"], [])]),
        case("救回多，弄坏也多", [("k 加倍", ["题1", "题2"], []), ("重排", ["题1", "题2", "题3", "题4"], ["题5", "题6", "题7"])]),
        case("一样多，要便宜的", [("k 加倍", ["题1"], []), ("重排", ["题2"], []), ("换切法", ["题3", "题4"], ["题5"])]),
        case("比例高，可是救回少", [("k 加倍", ["题1"], []), ("换切法", ["题1", "题2", "题3", "题4"], ["题5"])]),
        case("先是比例低的", [("k 加倍", ["题1", "题2"], ["题3"]), ("重排", ["题4"], []), ("换切法", ["题1", "题2", "题3"], ["题5"])]),
        case("一样也不行", [("k 加倍", [], []), ("重排", ["题1"], ["题2"]), ("换切法", [], ["题3"])]),
        case("只有一样，越改越坏", [("重排", [], ["题1", "题2"])]),
        case("什么也没试", []),
    ],
    wrong=[
        Wrong("只看救回", _by(lambda t: len(t[1])), "弄坏的没有减掉：救回 4 题、弄坏 3 题，只多出 1 题。"),
        Wrong("一样多取了贵的", _last, "一样多时取了后面的：前面的便宜；max 本来就取先出现的，不要倒过来，也不要用 >=。"),
        Wrong("没有改进也推荐", _any, "没有一样净救回，却推荐了一样：最大的净救回不大于 0，要返回 None。"),
        Wrong("动了就算", _by(lambda t: len(t[1]) + len(t[2])), "救回和弄坏加在一起了：要相减。"),
        Wrong("弄坏最少的", _by(lambda t: -len(t[2]), -math.inf), "只看了弄坏的：什么也不改，弄坏的最少。"),
        Wrong("按比例", _by(lambda t: _net(t) / max(1, len(t[1]) + len(t[2])), 1e-9), "按比例比的话，救回 1 题、弄坏 0 题就是满分：要比净救回几题。"),
        Wrong("返回了整条", lambda trials: next((t for t in trials if t[0] == first_advice(trials)), None), "要返回名字，不是整条：best[0]。"),
        Wrong("返回了题数", lambda trials: max(map(_net, trials), default=0), "要返回名字，不是净救回几题。"),
        Wrong("一题不坏才行", lambda trials: first_advice([t for t in trials if not t[2]]), "弄坏过的一样也不要了：救回 4 题、弄坏 1 题，净救回 3 题，也算数。"),
        Wrong("第一样就交", lambda trials: next((t[0] for t in trials if _net(t) > 0), None), "碰到第一样有用的就停了：后面还有救回更多的。"),
    ],
    follow_up="card.first 就是这样挑的；再往下问一句是不是碰巧。",
)  # fmt: skip

# ---------------------------------------------------------------- 16.3 同样的篇幅取几块


def same_budget(costs: list[float], budget: float) -> int:
    return max(1, sum(cost <= 1.1 * budget for cost in costs))


def _nearest(costs: list[float], budget: float) -> int:
    return min(range(len(costs)), key=lambda i: abs(costs[i] - budget)) + 1


_BUDGET = Exercise(
    id="16.3",
    title="同样的篇幅取几块",
    reference=same_budget,
    cases=[
        case("小块，多取几块", [250, 500, 750, 1000, 1250], 1000),
        case("大块，少取几块", [900, 1800, 2700, 3600], 2200),
        case("多出一成以内，也算", [500, 1000, 1500, 2000], 1400),
        case("离得近，可是超了", [700, 1400, 2100], 1900),
        case("恰好一成", [100, 220, 330], 200),
        case("全都取得起", [100, 200, 300], 5000),
        case("一块都超了", [3000, 6000], 2000),
    ],
    wrong=[
        Wrong("从 0 数", lambda costs, budget: max(1, sum(c <= 1.1 * budget for c in costs) - 1), "少了一块：costs 的第 0 个是取 1 块，块数是下标加 1。"),
        Wrong("没有一成的余地", lambda costs, budget: max(1, sum(c <= budget for c in costs)), "多出一成以内也算：和 1.1 * budget 比。"),
        Wrong("最接近的", _nearest, "最接近的可能超了：要的是不超过 1.1 倍里最多的。"),
        Wrong("一块都超了给 0", lambda costs, budget: sum(c <= 1.1 * budget for c in costs), "一块都超了，也得取 1 块：外面套 max(1, …)。"),
        Wrong("多一块", lambda costs, budget: min(len(costs), sum(c <= 1.1 * budget for c in costs) + 1), "多了一块，读的字超了：停在最后一个不超的。"),
        Wrong("恰好的不算", lambda costs, budget: max(1, sum(c < 1.1 * budget - 1e-6 for c in costs)), "恰好多出一成的也算不超过：用 <=。"),
        Wrong("返回字数", lambda costs, budget: max([c for c in costs if c <= 1.1 * budget], default=1), "要返回块数，不是字数。"),
        Wrong("又加了一遍", lambda costs, budget: max(1, sum(sum(costs[:i + 1]) <= 1.1 * budget for i in range(len(costs)))), "costs 已经是取几块的总字数，不要再累加。"),
        Wrong("拿每块的字数除", lambda costs, budget: max(1, round(budget / costs[0])), "拿第一块的字数去除，不管全表有多长，也会四舍五入到超出：按 costs 一个个比。"),
        Wrong("先到先停", lambda costs, budget: next((i + 1 for i, c in enumerate(costs) if c <= 1.1 * budget), 1), "碰到第一个不超的就停了：要的是最多能取几块。"),
    ],
    follow_up="成绩单换切法时就是这样定块数的，所以手册按结构切取 9 块。",
)  # fmt: skip

EXERCISES = [_LUCK, _ADVICE, _BUDGET]
