"""第 15 课的练习：几次检索合起来编号、什么时候该停。"""

from __future__ import annotations

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- 15.1 合起来编号

Rounds = list[list[str]]


def number_all(rounds: Rounds) -> list[list[int]]:
    seen: dict[str, int] = {}
    return [[seen.setdefault(one, len(seen) + 1) for one in found] for found in rounds]


def _afresh(rounds: Rounds) -> list[list[int]]:
    return [list(range(1, len(found) + 1)) for found in rounds]


def _running(rounds: Rounds) -> list[list[int]]:
    count, numbers = 0, []
    for found in rounds:
        numbers.append(list(range(count + 1, count + len(found) + 1)))
        count += len(found)
    return numbers


def _minus(rounds: Rounds) -> list[list[int]]:
    return [[n - 1 for n in row] for row in number_all(rounds)]


def _flat(rounds: Rounds) -> list[int]:
    return [n for row in number_all(rounds) for n in row]


def _sorted(rounds: Rounds) -> list[list[int]]:
    order = sorted({one for found in rounds for one in found})
    return [[order.index(one) + 1 for one in found] for found in rounds]


def _new_only(rounds: Rounds) -> list[list[int]]:
    seen: set[int] = set()
    result = []
    for row in number_all(rounds):
        result.append([n for n in row if n not in seen])
        seen |= set(row)
    return result


def _place(rounds: Rounds) -> list[list[int]]:
    seen: dict[str, int] = {}
    return [[seen.setdefault(one, place) for place, one in enumerate(found, 1)] for found in rounds]


_NUMBERS = Exercise(
    id="15.1",
    title="合起来编号",
    reference=number_all,
    cases=[
        case("两次，有一块重复", [["丙", "甲"], ["甲", "乙"]]), case("只查一次", [["甲", "乙"]]),
        case("完全一样", [["甲", "乙"], ["甲", "乙"]]), case("第二次没查到", [["乙"], [], ["乙", "甲"]]),
        case("一次也没查", []), case("三次", [["丁", "丙"], ["乙", "丙"], ["甲", "丁"]]),
    ],
    wrong=[
        Wrong("每次从 1 起", _afresh, "每次检索都从 1 编起，两次的 [1] 就成了两段不同的资料。编号要接着上一次。"),
        Wrong("新块按名次编", _place, "没见过的块用了它在这一次里的名次，和前面的号撞了：新号是见过的块数加 1。"),
        Wrong("重复的又编了号", _running, "查到过的那一块又得了新号：同一块要用原来的号。"),
        Wrong("从 0 起", _minus, "编号从 1 起：答案里写的是 [1]。"),
        Wrong("压平了", _flat, "各次的结果混成了一列：每次检索各是一个列表。"),
        Wrong("按名字排", _sorted, "编号要按第一次出现的先后，不是按名字排序。"),
        Wrong("去掉重复的", _new_only, "重复的那一块被丢掉了：它还在这次的结果里，只是用原来的号。"),
    ],
    follow_up="包里的 agent 也是这样编号的，所以引文核对照旧能用。",
)  # fmt: skip


# ---------------------------------------------------------------- 15.2 什么时候停


def should_stop(steps: int, tokens: int, same: int) -> str:
    if same >= 3:
        return "repeat"
    if steps >= 6:
        return "steps"
    if tokens >= 30_000:
        return "tokens"
    return ""


def _late(steps: int, tokens: int, same: int) -> str:
    return "repeat" if same > 3 else "steps" if steps > 6 else "tokens" if tokens > 30_000 else ""


def _equal(steps: int, tokens: int, same: int) -> str:
    return "repeat" if same == 3 else "steps" if steps == 6 else "tokens" if tokens == 30_000 else ""


def _no_repeat(steps: int, tokens: int, same: int) -> str:
    return should_stop(steps, tokens, 0)


def _no_tokens(steps: int, tokens: int, same: int) -> str:
    return should_stop(steps, 0, same)


def _no_steps(steps: int, tokens: int, same: int) -> str:
    return should_stop(0, tokens, same)


def _order(steps: int, tokens: int, same: int) -> str:
    return "steps" if steps >= 6 else should_stop(steps, tokens, same)


def _truth(steps: int, tokens: int, same: int) -> bool:
    return bool(should_stop(steps, tokens, same))


def _none(steps: int, tokens: int, same: int) -> str | None:
    return should_stop(steps, tokens, same) or None


_STOP = Exercise(
    id="15.2",
    title="什么时候停",
    reference=should_stop,
    cases=[
        case("还早", 1, 2000, 1), case("步数到了", 6, 9000, 1), case("差一步", 5, 9000, 1), case("token 到了", 3, 30_000, 1),
        case("差一个 token", 3, 29_999, 2), case("第三次要一样的", 3, 9000, 3), case("样样都到了", 7, 40_000, 4),
        case("重复和步数一起到", 6, 100, 3), case("步数和 token 一起到", 6, 30_000, 1), case("还没开始", 0, 0, 0),
        case("token 越过去了", 4, 31_500, 1), case("步数越过去了", 8, 100, 1),
    ],
    wrong=[
        Wrong("晚了一步", _late, "到了上限还放行：要写 >=，不是 >。"),
        Wrong("只认相等", _equal, "刚好到才停，越过去反而放行了：token 一次加几千，多半不会正好是 30000。写 >=，不是 ==。"),
        Wrong("没看重复", _no_repeat, "同样的事要了三次还不停：same 没有用上。"),
        Wrong("没看 token", _no_tokens, "token 用完了还不停：三步也可能很贵。"),
        Wrong("没看步数", _no_steps, "步数用完了还不停：每步都便宜，也不能一直走。"),
        Wrong("次序不对", _order, "几样一起到时，先说 repeat：它说的是病因，步数用完只是结果。"),
        Wrong("只说停不停", _truth, "要返回停下的原因，不是 True 或 False：看的人要知道改哪个数。"),
        Wrong("没越线给了 None", _none, "没有越线时返回空字符串 \"\"。"),
    ],
    follow_up="包里的次序也是先看重复，再看步数和 token。",
)  # fmt: skip

EXERCISES = [_NUMBERS, _STOP]
