"""第 11 课的练习：谁找到了谁、答案丢在哪一步、只去真正的副本。"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case
from rag_lessons.embedding.base import FloatArray
from rag_lessons.embedding.toy import bigrams

# ---------------------------------------------------------------- 11.1 谁找到了谁

Pairs = list[tuple[int, float]]


def partners(query: FloatArray, document: FloatArray) -> Pairs:
    """问题的每一行，在资料里最像的是第几行，余弦是多少（3 位小数；一样高的取行号小的）。"""
    return _best((query @ document.T).round(3))


def _best(cosine: FloatArray) -> Pairs:
    return [(int(row.argmax()), float(row.max())) for row in cosine]


def _last_of_ties(query: FloatArray, document: FloatArray) -> Pairs:
    cosine = (query @ document.T).round(3)
    return [(int(len(row) - 1 - row[::-1].argmax()), float(row.max())) for row in cosine]


def _sorted_down(query: FloatArray, document: FloatArray) -> Pairs:
    return sorted(partners(query, document), key=lambda one: -one[1])


def _one_each(query: FloatArray, document: FloatArray) -> Pairs:
    """每个资料里的词只许被找到一次。"""
    cosine, found = (query @ document.T).round(3), []
    for row in cosine:
        row = row.copy()
        if len(found) < len(row):
            row[[place for place, _ in found]] = -2
        found.append((int(row.argmax()), float(row.max())))
    return found


def _worst(query: FloatArray, document: FloatArray) -> Pairs:
    return [(int(row.argmin()), float(row.min())) for row in (query @ document.T).round(3)]


def _same_row(query: FloatArray, document: FloatArray) -> Pairs:
    cosine = (query @ document.T).round(3)
    return [(min(i, len(document) - 1), float(row[min(i, len(document) - 1)])) for i, row in enumerate(cosine)]


def _unit(rows: FloatArray) -> FloatArray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _partner_cases() -> list[Case]:
    rng = np.random.default_rng(11)
    word = {"住宿": [1, 0, 0], "加班": [0, 1, 0], "打车": [0.6, 0.8, 0], "晚餐": [0, 0.6, 0.8], "食堂": [0, 0, 1]}

    def rows(text: str) -> FloatArray:
        return np.array([word[w] for w in text.split()], float)

    return [
        case("加班 打车，对 加班 晚餐", rows("加班 打车"), rows("加班 晚餐")),
        case("两个词找到同一个", rows("打车 加班 晚餐"), rows("食堂 加班")),
        case("一样高", rows("食堂 加班"), rows("食堂 加班 食堂 加班")),
        case("差在第十位", rows("加班"), np.array([[0, 1 - 1e-9, 0], [0, 1, 0]])),
        case("余弦是负的", rows("住宿"), np.array([[-1.0, 0, 0], [-0.6, 0.8, 0]])),
        case("八个词对三十个", _unit(rng.normal(size=(8, 6))), _unit(rng.normal(size=(30, 6)))),
    ]


_PARTNERS = Exercise(
    id="11.1",
    title="问题的每个词找到了谁",
    reference=partners,
    cases=_partner_cases,
    diagnoses=[
        (
            lambda outputs, wanted: all(np.ndim(o) == 0 for o in outputs),
            "你返回的是一个数；这里要每一行的搭档，[(行号, 余弦), …]。",
        ),
        (
            lambda outputs, wanted: all([b for _, b in w] == o for o, w in zip(outputs, wanted, strict=True)),
            "余弦对了，还差行号：每一项是 (行号, 余弦)。",
        ),
    ],
    wrong=[
        Wrong("反过来找", lambda q, d: partners(d, q), "方向反了：你让资料的每个词去问题里找。要问题的每一行，在资料里找。"),
        Wrong("一样高取了后面的", _last_of_ties, "一样高的要取行号小的，你取了最后一个。"),
        Wrong("按余弦排了", _sorted_down, "不要排序：第 i 项就是问题的第 i 行，排了就不知道是谁找到的。"),
        Wrong("一人一个", _one_each, "你不许两个词找同一个搭档。MaxSim 没有这条规矩，几个词可以找到同一个。"),
        Wrong("找了最不像的", _worst, "你找的是最不像的；要余弦最大的。"),
        Wrong("行号对行号", _same_row, "你拿第 i 行对第 i 行；每一行要在资料的全部行里找。"),
        Wrong("只给平均", lambda q, d: float((q @ d.T).max(axis=1).mean()), "你返回的是一个数；这里要每一行的搭档，[(行号, 余弦), …]。"),
        Wrong("只给余弦", lambda q, d: [b for _, b in partners(q, d)], "余弦对了，还差行号：每一项是 (行号, 余弦)。"),
        Wrong("先后反了", lambda q, d: [(b, a) for a, b in partners(q, d)], "每一项的先后反了：先行号，后余弦。"),
        Wrong(
            "没有四舍五入",
            lambda q, d: [(int(row.argmax()), round(float(row.max()), 3)) for row in q @ d.T],
            "差在第十位小数的也分了高低：先四舍五入到 3 位，再找最大的。",
        ),
        Wrong("从 1 数起", lambda q, d: [(i + 1, c) for i, c in partners(q, d)], "行号从 0 数起。"),
    ],
    follow_up="把余弦平均，就是 max_sim。平均之前，你看得见每一票投给了谁。",
)

# ---------------------------------------------------------------- 11.2 丢在哪一步

Ranks = Sequence[int | None]


def where_lost(first: Ranks, second: Ranks, n: int, k: int) -> list[int]:
    """[没进前 n 个候选的, 进了候选却不在前 k 的, 重排后在前 k 的]，各是几题。"""
    missed = [a is None or a > n for a in first]
    kept = [not lost and b is not None and b <= k for lost, b in zip(missed, second, strict=True)]
    return [sum(missed), len(first) - sum(missed) - sum(kept), sum(kept)]


def _counts(inside: Callable[[int | None, int], bool], top: Callable[[int | None, int], bool]) -> Callable[..., list[int]]:
    def attempt(first: Ranks, second: Ranks, n: int, k: int) -> list[int]:
        result = [0, 0, 0]
        for a, b in zip(first, second, strict=True):
            result[0 if not inside(a, n) else 2 if top(b, k) else 1] += 1
        return result

    return attempt


def _within(rank: int | None, limit: int) -> bool:
    return rank is not None and rank <= limit


def _below(rank: int | None, limit: int) -> bool:
    return rank is not None and rank < limit


def _none_is_zero(rank: int | None, limit: int) -> bool:
    return (rank or 0) <= limit


def _only_none(rank: int | None, limit: int) -> bool:
    return rank is not None


def _first_top(first: Ranks, second: Ranks, n: int, k: int) -> list[int]:
    return where_lost(first, first, n, k)


def _second_only(first: Ranks, second: Ranks, n: int, k: int) -> list[int]:
    return [sum(b is None for b in second), sum(b is not None and b > k for b in second), sum(_within(b, k) for b in second)]


def _lost_overlap(first: Ranks, second: Ranks, n: int, k: int) -> list[int]:
    return [sum(not _within(a, n) for a in first), sum(not _within(b, k) for b in second), sum(_within(b, k) for b in second)]


_LOST = Exercise(
    id="11.2",
    title="答案丢在哪一步",
    reference=where_lost,
    cases=[
        case("三类各一", [25, 7, 3], [None, 9, 1], 20, 4),
        case("第一步没找到", [None, None, 2], [None, None, 4], 20, 4),
        case("正好在线上", [20, 20, 4], [4, 5, 4], 20, 4),
        case("被重排挤出去", [1, 2, 3], [6, 1, 2], 20, 4),
        case("候选只有十个", [12, 10, 1], [1, 1, 1], 10, 4),
        case("名次落在两条线之间", [30, 30, 15, 8], [None, None, None, 3], 20, 4),
    ],
    diagnoses=[
        (
            lambda outputs, wanted: all(list(o)[::-1] == w for o, w in zip(outputs, wanted, strict=True)),
            "三个数的次序反了：先是没进候选的，最后是在前 k 的。",
        ),
        (
            lambda outputs, wanted: all(0 < sum(o) <= 1.001 for o in outputs),
            "你返回的是几成；这里要题数。",
        ),
    ],
    wrong=[
        Wrong("把 None 当 0", _counts(_none_is_zero, _none_is_zero), "None 是没找到，不是第 0 名：你把它算进了前几名。"),
        Wrong("没看 n", _counts(_only_none, _within), "第一步排在 n 名以后，也没有进候选；你只看了是不是 None。"),
        Wrong("第一步少算一名", _counts(_below, _within), "第 n 名也在候选里：要小于等于 n。"),
        Wrong("重排少算一名", _counts(_within, _below), "第 k 名也在前 k 里：要小于等于 k。"),
        Wrong("没用重排的名次", _first_top, "第二、三类要看重排以后的名次，你用的还是第一步的。"),
        Wrong("没用第一步的名次", _second_only, "进没进候选，要看第一步的名次和 n；重排的名次说不清。"),
        Wrong("一题数了两遍", _lost_overlap, "没进候选的题，你在第二类里又数了一遍：三类加起来要等于题数。"),
        Wrong("次序反了", lambda a, b, n, k: where_lost(a, b, n, k)[::-1], "三个数的次序反了：先是没进候选的，最后是在前 k 的。"),
        Wrong(
            "给了几成",
            lambda a, b, n, k: [x / len(a) for x in where_lost(a, b, n, k)],
            "你返回的是几成；这里要题数。",
        ),
    ],
    follow_up="第一类找第一步算账，第二类才找重排算账。",
)

# ---------------------------------------------------------------- 11.3 只去真正的副本


def _jaccard(a: str, b: str) -> float:
    x, y = set(bigrams(a)), set(bigrams(b))
    return len(x & y) / max(len(x | y), 1)


def drop_copies(texts: Sequence[str], k: int, limit: float) -> list[int]:
    """从头看起，和已经留下的某一条的杰卡德系数大于 limit 就跳过，留够 k 条为止；返回第几条。"""
    return _drop(texts, k, limit)


def _drop(
    texts: Sequence[str], k: int, limit: float, *, like: Callable[[str, str], float] = _jaccard,
    seen: str = "kept", strict: bool = True,
) -> list[int]:
    kept: list[int] = []
    for i, text in enumerate(texts):
        if len(kept) == k:
            break
        others = {"kept": kept, "all": list(range(i)), "last": kept[-1:], "first": kept[:1]}[seen]
        scores = [like(text, texts[j]) for j in others]
        if not any(score > limit or (not strict and score == limit) for score in scores):
            kept.append(i)
    return kept


def _first_k_then_drop(texts: Sequence[str], k: int, limit: float) -> list[int]:
    return _drop(texts[:k], k, limit)


def _keep_the_copies(texts: Sequence[str], k: int, limit: float) -> list[int]:
    kept = set(_drop(texts, len(texts), limit))
    return [i for i in range(len(texts)) if i not in kept][:k]


def _share_of_one(a: str, b: str) -> float:
    x, y = set(bigrams(a)), set(bigrams(b))
    return len(x & y) / max(len(x), 1)


def _same(a: str, b: str) -> float:
    return 1.1 if a == b else 0.0


_ROOM = "使用流量标定台，应当提前{}个工作日预约。"
_COPIES = Exercise(
    id="11.3",
    title="只去真正的副本",
    reference=drop_copies,
    cases=[
        case("一对双胞胎", [_ROOM.format("两"), _ROOM.format("两"), "样品贴标签，写明项目号。"], 2, 0.5),
        case("差一个字", [_ROOM.format("两"), _ROOM.format("三"), "样品贴标签，写明项目号。"], 3, 0.5),
        case("一条接一条地变", ["甲乙丙丁戊", "乙丙丁戊己", "丙丁戊己庚", "壬癸子丑寅"], 4, 0.5),
        case("和前面的前面一样", ["甲乙丙丁", "子丑寅卯", "甲乙丙丁", "辰巳午未"], 4, 0.5),
        case("第二条的副本", ["甲乙丙丁", "子丑寅卯", "子丑寅卯", "辰巳午未"], 4, 0.5),
        case("正好等于", ["甲乙丙", "甲乙丁", "戊己"], 3, 1 / 3),
        case("短的在长的里面", ["年假五天，病假要证明，事假提前一天说。", "年假五天", "班车六点半"], 3, 0.5),
        case("长的里面有短的", ["年假五天", "年假五天，病假要证明，事假提前一天说。", "班车六点半"], 3, 0.5),
        case("够了就停", ["甲乙丙", "丁戊己", "庚辛壬", "子丑寅"], 2, 0.5),
        case("一条也没有", [], 3, 0.5),
    ],
    diagnoses=[
        (
            lambda outputs, wanted: any(isinstance(x, str) for o in outputs for x in o),
            "你返回的是文字；这里要它们是第几条，从 0 起。",
        ),
        (
            lambda outputs, wanted: all([x - 1 for x in o] == w for o, w in zip(outputs, wanted, strict=True)),
            "编号从 0 起，你从 1 起了。",
        ),
    ],
    wrong=[
        Wrong(
            "和跳过的也比",
            lambda texts, k, limit: _drop(texts, k, limit, seen="all"),
            "你和跳过的也比了：乙像甲，丙像乙不像甲，丙应当留下。只和留下的比。",
        ),
        Wrong(
            "只和上一条比",
            lambda texts, k, limit: _drop(texts, k, limit, seen="last"),
            "你只和刚留下的那一条比；隔着一条的副本漏过去了。",
        ),
        Wrong(
            "只和第一条比",
            lambda texts, k, limit: _drop(texts, k, limit, seen="first"),
            "你只和第一条比；第二条、第三条也可能有副本。",
        ),
        Wrong(
            "等于也跳过",
            lambda texts, k, limit: _drop(texts, k, limit, strict=False),
            "正好等于 limit 的要留下：大于才跳过。",
        ),
        Wrong("先取 k 条再去", _first_k_then_drop, "你先取了前 k 条再去副本，空出来的位置没有补上。"),
        Wrong("没有停", lambda texts, k, limit: _drop(texts, len(texts), limit), "留够 k 条就停。"),
        Wrong("留下的是副本", _keep_the_copies, "反了：你留下的是副本，丢掉的是原件。"),
        Wrong("只去一字不差的", lambda texts, k, limit: _drop(texts, k, limit, like=_same), "你只去了一字不差的，limit 没有用上。"),
        Wrong(
            "只除以自己",
            lambda texts, k, limit: _drop(texts, k, limit, like=_share_of_one),
            "分母是两块合起来的字对，不是其中一块的；照你的算法，短的一条总像长的副本。",
        ),
        Wrong("返回文字", lambda texts, k, limit: [texts[i] for i in _drop(texts, k, limit)], "你返回的是文字；这里要它们是第几条，从 0 起。"),
        Wrong("从 1 数起", lambda texts, k, limit: [i + 1 for i in _drop(texts, k, limit)], "编号从 0 起，你从 1 起了。"),
    ],
    follow_up="次序没动，只是跳过。λ 用不着了，limit 是看得懂的：字对重合几成。",
)

EXERCISES = [_PARTNERS, _LOST, _COPIES]
