"""第 12 课的练习：k 个不同的大块、问答缓存给不给看、这一天哪份规定有效。"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rag_lessons.course.checks import Case, Exercise, Wrong, case

# ---------------------------------------------------------------- 12.1 k 个不同的大块

Children = Sequence[str]
Homes = Mapping[str, str]


def parents_of(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    """小块按名次排好，home 是 小块 → 大块；返回 k 个不同的大块，各带上领它进来的小块。"""
    found: dict[str, str] = {}
    for child in children:
        found.setdefault(home[child], child)
    return list(found.items())[:k]


def _cut_first(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    return parents_of(children[:k], home, k)


def _repeats(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    return [(home[child], child) for child in children][:k]


def _last_child(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for child in children:
        found[home[child]] = child
    return list(found.items())[:k]


def _most_children(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    found = parents_of(children, home, len(children))
    return sorted(found, key=lambda pair: -sum(home[child] == pair[0] for child in children))[:k]


def _by_name(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    return sorted(parents_of(children, home, len(children)))[:k]


def _neighbours_only(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    pairs = [(home[child], child) for child in children]
    return [pair for i, pair in enumerate(pairs) if i == 0 or pair[0] != pairs[i - 1][0]][:k]


def _not_cut(children: Children, home: Homes, k: int) -> list[tuple[str, str]]:
    return parents_of(children, home, len(children))


_PARENTS = Exercise(
    id="12.1",
    title="k 个不同的大块",
    reference=parents_of,
    cases=[
        case("五句话", ["一", "二", "四", "五", "三"], {"一": "甲", "二": "甲", "三": "甲", "四": "乙", "五": "乙"}, 2),
        case("一个大块占了前十名", [f"甲{i}" for i in range(1, 11)] + ["乙1", "甲11", "丙1"],
             {**{f"甲{i}": "甲" for i in range(1, 12)}, "乙1": "乙", "丙1": "丙"}, 3),
        case("名次交错", ["丙1", "甲1", "丙2", "甲2", "乙1"], {"甲1": "甲", "甲2": "甲", "乙1": "乙", "丙1": "丙", "丙2": "丙"}, 3),
        case("小块多的大块排在后面", ["乙1", "甲1", "甲2", "甲3"], {"甲1": "甲", "甲2": "甲", "甲3": "甲", "乙1": "乙"}, 1),
        case("大块不够 k 个", ["甲1", "甲2"], {"甲1": "甲", "甲2": "甲"}, 3),
        case("一个小块也没有", [], {"甲1": "甲"}, 3),
    ],
    diagnoses=[
        (
            lambda outputs, wanted: all(list(o) == [parent for parent, _ in w] for o, w in zip(outputs, wanted, strict=True)),
            "大块都对了，还要带上领它进来的小块：每一项是 (大块, 小块)。",
        ),
        (
            lambda outputs, wanted: all([tuple(p)[::-1] for p in o] == w for o, w in zip(outputs, wanted, strict=True)),
            "每一项里的次序反了：先大块，后小块。",
        ),
    ],
    wrong=[
        Wrong("先取 k 个小块", _cut_first, "你先取了前 k 个小块，再并成大块：一家占满前几名时，剩下的大块就进不来了。先并，后取。"),
        Wrong("没有去重", _repeats, "同一个大块出现了几次：一个大块只收一次。"),
        Wrong("留下了最后的小块", _last_child, "同一个大块有几个小块时，你留下的是最后一个；要留名次最前的那个，它的分数才是大块的分数。"),
        Wrong("比谁的小块多", _most_children, "你按小块的个数排了大块：长的大块小块本来就多。按它最好的小块排。"),
        Wrong("按名字排", _by_name, "你按大块的名字排了；次序要跟着小块的名次走。"),
        Wrong("只和前一个比", _neighbours_only, "你只跳过了紧挨着的重复：隔开再出现的同一个大块，又收了一次。"),
        Wrong("没有取前 k", _not_cut, "并好以后忘了只取 k 个。"),
        Wrong(
            "只有大块", lambda children, home, k: [p for p, _ in parents_of(children, home, k)],
            "大块都对了，还要带上领它进来的小块：每一项是 (大块, 小块)。",
        ),
    ],
    follow_up="包里的 ParentSearch 还多一步：小块先取 4k 个，大块不够就再取四倍，直到够了或取完。",
)

# ---------------------------------------------------------------- 12.2 问答缓存给不给看

Entry = tuple[str, Sequence[str], str]


def lookup(cache: Sequence[Entry], question: str, visible: Sequence[str]) -> str | None:
    """缓存里头一条可以给这个人看的答案：问题一样，有出处，出处他都看得见；没有就是 None。"""
    for asked, sources, answer in cache:
        if asked == question and sources and all(source in visible for source in sources):
            return answer
    return None


def _pick(fits: Callable[[str, Sequence[str], str, Sequence[str]], bool], last: bool = False) -> Callable[..., str | None]:
    def attempt(cache: Sequence[Entry], question: str, visible: Sequence[str]) -> str | None:
        found = [answer for asked, sources, answer in cache if fits(asked, sources, question, visible)]
        return found[-1 if last else 0] if found else None

    return attempt


def _first_only(cache: Sequence[Entry], question: str, visible: Sequence[str]) -> str | None:
    for asked, sources, answer in cache:
        if asked == question:
            return answer if sources and set(sources) <= set(visible) else None
    return None


def _cache_cases() -> list[Case]:
    minutes, notice, trial, remote = "纪要.md", "通知117.md", "办法2023.md", "办法2024.md"
    cache = [
        ("一线城市住宿上限多少", (minutes, notice), "提过 520 元，最后定 500 元"),
        ("一线城市住宿上限多少", (notice,), "500 元"),
        ("一周远程几天", (trial, remote), "试行 2 天，现行 1 天"),
        ("一周远程几天", (remote,), "1 天"),
        ("贴片线要花多少", (), "资料中未提及"),
        ("贴片线要花多少", (minutes,), "预算 860 万元"),
        ("食堂几点开饭", (notice, remote), "见通知"),
    ]
    everyone = [notice, remote]
    return [
        case("小林：前一条不能看，后一条能看", cache, "一线城市住宿上限多少", everyone),
        case("总监：两条都能看", cache, "一线城市住宿上限多少", [*everyone, minutes, trial]),
        case("小林：一条也不能看", cache, "贴片线要花多少", everyone),
        case("总监：先有人问过，得到的是拒答", cache, "贴片线要花多少", [*everyone, minutes]),
        case("只看得见两处出处中的一处", cache, "食堂几点开饭", [notice]),
        case("看得见的正好是出处", cache, "食堂几点开饭", everyone),
        case("没有人问过", cache, "几点下班", everyone),
        case("什么都看不见的人", cache, "一周远程几天", []),
        case("看得见的比出处多", cache, "一周远程几天", [minutes, remote, notice]),
    ]


_CACHE = Exercise(
    id="12.2",
    title="缓存里的答案给不给看",
    reference=lookup,
    cases=_cache_cases,
    wrong=[
        Wrong("只看问题", _pick(lambda a, s, q, v: a == q), "你只比了问题：别人看得见的资料，经过缓存漏给了这个人。"),
        Wrong("碰到一处就给", _pick(lambda a, s, q, v: a == q and any(x in v for x in s)),
              "有一处出处看得见，你就给了；答案是几处合起来写的，每一处都要看得见。"),
        Wrong("只看头一处", _pick(lambda a, s, q, v: a == q and bool(s) and s[0] in v),
              "你只看了第一处出处；后面的出处看不见，也不能给。"),
        Wrong("拒答也给", _pick(lambda a, s, q, v: a == q and set(s) <= set(v)),
              "没有出处的是拒答。看不见的人得到的「未提及」，不能拿去回答看得见的人；空的出处要跳过。"),
        Wrong("包含的方向反了", _pick(lambda a, s, q, v: a == q and bool(s) and set(v) <= set(s)),
              "包含的方向反了：要出处都在看得见的里面，不是看得见的都在出处里面。"),
        Wrong("要完全一样", _pick(lambda a, s, q, v: a == q and set(s) == set(v)),
              "你要求出处和看得见的完全一样；看得见的可以更多。"),
        Wrong("只看第一条", _first_only, "问题一样的第一条不能给，你就放弃了；后面可能还有能给的。"),
        Wrong("给了最后一条", _pick(lambda a, s, q, v: a == q and bool(s) and set(s) <= set(v), last=True),
              "有几条能给时，你给了最后一条；给头一条。"),
        Wrong("忘了比问题", _pick(lambda a, s, q, v: bool(s) and set(s) <= set(v)), "你忘了比问题：给出去的是别的问题的答案。"),
        Wrong("反着给", _pick(lambda a, s, q, v: a == q and bool(s) and not set(s) <= set(v)), "判断反了：你给出去的正是不能看的。"),
    ],
    follow_up="真的系统里，资料改了权限或内容，缓存也要跟着作废；第 14 课会做。",
)

# ---------------------------------------------------------------- 12.3 这一天哪份有效

Rule = tuple[str, str, str | None]


def in_force(rules: Sequence[Rule], day: str) -> list[str]:
    """这一天有效的规定：自 since 起（含当天），到 until 止（不含当天）；until 是 None 就是还没有废止。"""
    return [name for name, since, until in rules if since <= day and (until is None or day < until)]


def _rules_cases() -> list[Case]:
    rules = [
        ("DB-2020-033", "2020-07-01", "2023-07-01"),
        ("DB-2023-117", "2023-07-01", "2024-09-01"),
        ("DB-2024-117", "2024-09-01", None),
        ("远程办公办法（试行）", "2023-04-01", "2024-07-01"),
        ("远程办公办法", "2024-07-01", None),
        ("DB-2024-171", "2024-12-01", None),
    ]
    return [
        case("2024 年 8 月 20 日出发", rules, "2024-08-20"),
        case("新办法的第一天", rules, "2024-09-01"),
        case("旧办法的最后一天", rules, "2023-06-30"),
        case("一份也还没有", rules, "2020-01-01"),
        case("全是现行的", rules, "2025-03-01"),
        case("12 月，单据的新规矩生效当天", rules, "2024-12-01"),
        case("没有规定", [], "2024-09-01"),
    ]


def _keep(fits: Callable[[str, str | None, str], bool]) -> Callable[..., list[str]]:
    return lambda rules, day: [name for name, since, until in rules if fits(since, until, day)]


def _newest(rules: Sequence[Rule], day: str) -> list[str]:
    started = [(since, name) for name, since, until in rules if since <= day]
    return [max(started)[1]] if started else []


_RULES = Exercise(
    id="12.3",
    title="这一天哪份规定有效",
    reference=in_force,
    cases=_rules_cases,
    diagnoses=[
        (
            lambda outputs, wanted: all([r[0] for r in o] == w and all(len(r) == 3 for r in o)
                                        for o, w in zip(outputs, wanted, strict=True)) and any(wanted),
            "挑对了，只是把整条规定交了出来；只要名字。",
        ),
    ],
    wrong=[
        Wrong("废止当天还算", _keep(lambda s, u, d: s <= d and (u is None or d <= u)),
              "废止的那一天新规定已经生效，旧的不算：until 当天不含在内。"),
        Wrong("生效当天不算", _keep(lambda s, u, d: s < d and (u is None or d < u)), "生效当天就算：since 当天要含在内。"),
        Wrong("只要现行的", _keep(lambda s, u, d: u is None), "你挑的是今天还有效的；问的是那一天。8 月出发的人，按旧标准报销。"),
        Wrong("现行的，从生效起", _keep(lambda s, u, d: u is None and s <= d),
              "你丢掉了后来才废止的：在那一天，它们还有效。"),
        Wrong("不看废止", _keep(lambda s, u, d: s <= d), "你没有看 until：早就废止的也算进来了。"),
        Wrong("不看生效", _keep(lambda s, u, d: u is None or d < u), "你没有看 since：那一天还没有生效的也算进来了。"),
        Wrong("漏了没有废止日的", _keep(lambda s, u, d: u is not None and s <= d < u), "until 是 None 的还没有废止，你把它们漏了。"),
        Wrong("只要最新的", _newest, "你只留下最晚生效的一份；几份规定管的不是同一件事，可以同时有效。"),
        Wrong("反过来", _keep(lambda s, u, d: not (s <= d and (u is None or d < u))), "判断反了：你挑出来的正是那天无效的。"),
        Wrong(
            "交出整条", lambda rules, day: [r for r in rules if r[1] <= day and (r[2] is None or day < r[2])],
            "挑对了，只是把整条规定交了出来；只要名字。",
        ),
    ],
    follow_up="写成 2024-09-01 这样的日期，直接比字符串就是比先后；写成 2024-9-1 就不行了。",
)

EXERCISES = [_PARENTS, _CACHE, _RULES]
