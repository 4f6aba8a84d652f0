"""第 10 课的练习：分数是哪些词给的、两路按 id 合起来、在 tune 上挑份量。"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case
from rag_lessons.evaluation import bootstrap_interval, paired_interval
from rag_lessons.keyword import bm25_score, idf
from rag_lessons.retrieval import min_max, rrf

# ---------------------------------------------------------------- 10.1 谁给的分

Parts = list[tuple[str, float]]


def explain(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    """[(词, 它给的分数), …]，从高到低，一样的按词排；没有出现的词不列。"""
    return _sorted({word: query.count(word) * bm25_score([word], document, corpus) for word in query})


def _sorted(parts: dict[str, float]) -> Parts:
    return sorted(((word, part) for word, part in parts.items() if part > 0), key=lambda one: (-one[1], one[0]))


def _shares(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    parts = explain(query, document, corpus)
    total = sum(part for _, part in parts) or 1.0
    return [(word, part / total) for word, part in parts]


def _only_rarity(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    return _sorted({w: idf(len(corpus), sum(w in other for other in corpus)) for w in query if w in document})


def _own_corpus(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    return _sorted({word: query.count(word) * bm25_score([word], document, [document]) for word in query})


def _each_time(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    parts = [(word, bm25_score([word], document, corpus)) for word in query]
    return sorted((one for one in parts if one[1] > 0), key=lambda one: (-one[1], one[0]))


def _keep_zero(query: list[str], document: list[str], corpus: list[list[str]]) -> Parts:
    parts = {word: query.count(word) * bm25_score([word], document, corpus) for word in query}
    return sorted(parts.items(), key=lambda one: (-one[1], one[0]))


def _explain_cases() -> list[Case]:
    five = [
        line.split()
        for line in (
            "打车 报销 要 发票", "住宿 报销 要 发票", "报销 报销 报销 报销 报销 在 吗",
            "合住 报销 按 一点三 倍", "年会 安排 抽奖 聚餐 合影 合住 的 同事 请 先 领 房卡",
        )
    ]  # fmt: skip
    notices = [["db-2024-117", "差旅", "合住", "合住"], ["db-2024-171", "凭证", "发票"], ["db-2023-117", "差旅", "废止"]]
    return [
        case("合住 报销，第四句", ["合住", "报销"], five[3], five),
        case("合住 报销，刷屏的那一句", ["合住", "报销"], five[2], five),
        case("一个词也没有", ["年假"], five[0], five),
        case("问题里重复的词", ["db-2024-117", "db-2024-117", "差旅", "合住"], notices[0], notices),
        case("两个词一样高", ["凭证", "发票", "差旅"], notices[1], notices),
    ]


_EXPLAIN = Exercise(
    id="10.1",
    title="分数是哪些词给的",
    reference=explain,
    cases=_explain_cases,
    diagnoses=[
        (lambda outputs, wanted: all(isinstance(o, dict) for o in outputs), "你返回的是字典；要 [(词, 分数), …] 的列表，从高到低。"),
        (
            lambda outputs, wanted: all(isinstance(o, float | int) for o in outputs),
            "你返回的是总分；这里要一个词一个词地列出来。",
        ),
        (
            lambda outputs, wanted: any(outputs) and all(isinstance(one, str) for o in outputs if isinstance(o, list) for one in o),
            "你只列了词；每一项要 (词, 分数) 两样。",
        ),
    ],
    wrong=[
        Wrong("重复的只算一次", lambda q, d, c: _sorted({w: bm25_score([w], d, c) for w in q}),
              "问题里重复的词只算了一次：编号切词时整个算两次，乘上 query.count(词)。"),
        Wrong("重复的列了几行", _each_time, "重复的词列了几行：同一个词的分数要加在一起，只列一行。"),
        Wrong("没出现的也列了", _keep_zero, "没有出现的词也列出来了，它们是 0 分：只留分数大于 0 的。"),
        Wrong("算成了几成", _shares, "你除以了总分，得到的是各占几成；这里要分数本身。"),
        Wrong("只有分量", _only_rarity, "你只给了 idf：次数的饱和、长短的折扣都没算，用 bm25_score([词], document, corpus)。"),
        Wrong("拿自己当全部", _own_corpus, "corpus 传成了这一段自己：idf 和平均长度要按全部的段算。"),
        Wrong("从低到高", lambda q, d, c: explain(q, d, c)[::-1], "次序反了：分数高的在前，一样高的按词排。"),
        Wrong("没有排", lambda q, d, c: [one for w in dict.fromkeys(q) for one in explain(q, d, c) if one[0] == w],
              "没有排序，还是问题里的次序：按分数从高到低，一样高的按词排。"),
    ],
    follow_up="各词的分数加起来就是总分，用 bm25_score 核对一下。检索错了的时候，先看是哪个词给的分。",
)  # fmt: skip

# ---------------------------------------------------------------- 10.2 按 id 合起来

Scores = dict[str, float]


def fuse(dense: Scores, keyword: Scores, alpha: float) -> list[str]:
    """两路各自拉到 0 到 1，加权相加；返回 id，从高到低，一样的按 id 排。"""
    return _ranked(_flat(dense), _flat(keyword, 0), alpha)


def _flat(scores: Scores, low: float | None = None) -> Scores:
    return dict(zip(scores, min_max(list(scores.values()), low), strict=True))


def _ranked(a: Scores, b: Scores, alpha: float) -> list[str]:
    return _order({i: alpha * a.get(i, 0) + (1 - alpha) * b.get(i, 0) for i in a | b})


def _order(scores: Scores) -> list[str]:
    return sorted(scores, key=lambda i: (-round(scores[i], 6), i))


def _by_position(dense: Scores, keyword: Scores, alpha: float) -> list[str]:
    b = [*_flat(keyword, 0).values()] + [0.0] * len(dense)
    return _order({i: alpha * s + (1 - alpha) * t for (i, s), t in zip(_flat(dense).items(), b, strict=False)})


def _divide_by_top(dense: Scores, keyword: Scores, alpha: float) -> list[str]:
    top = max(dense.values())
    return _ranked({i: s / top for i, s in dense.items()}, _flat(keyword, 0), alpha)


def _fuse_cases() -> list[Case]:
    rng = np.random.default_rng(10)
    names = [f"块{n:02}" for n in range(12)]
    cosines = {n: float(v) for n, v in zip(names, rng.uniform(0.8, 0.92, 12).round(3), strict=True)}
    bm25 = {n: float(v) for n, v in zip(rng.permutation(names)[:7].tolist(), rng.uniform(3, 60, 7).round(1), strict=True)}
    return [
        case("四块，各占一半", {"甲": 0.90, "乙": 0.88, "丙": 0.86, "丁": 0.80}, {"丙": 12.0, "丁": 9.0}, 0.5),
        case("偏向向量", {"甲": 0.90, "乙": 0.88, "丙": 0.86, "丁": 0.80}, {"丙": 12.0, "丁": 9.0}, 0.7),
        case("关键词那一路次序不同", {"甲": 0.84, "乙": 0.85, "丙": 0.90}, {"丙": 8.0, "甲": 40.0, "乙": 2.0}, 0.4),
        case("关键词一块也没找到", {"乙": 0.81, "甲": 0.85, "丙": 0.83}, {}, 0.6),
        case("合起来正好一样", {"乙": 0.9, "丁": 0.8}, {"丁": 5.0}, 0.5),
        case("十二块，偏向关键词", cosines, bm25, 0.3),
        case("十二块，偏向向量", cosines, bm25, 0.8),
    ]


_FUSE = Exercise(
    id="10.2",
    title="两路按 id 合起来",
    reference=fuse,
    cases=_fuse_cases,
    diagnoses=[
        (lambda outputs, wanted: all(isinstance(o, dict) for o in outputs), "你返回的是分数；要 id 的列表，从高到低。"),
        (
            lambda outputs, wanted: all(isinstance(one, tuple | list) for o in outputs for one in o),
            "每一项带着分数；只要 id，从高到低。",
        ),
        (
            lambda outputs, wanted: all(set(o) <= set(w) and len(o) < len(w) for o, w in zip(outputs[:2], wanted[:2], strict=True)),
            "有的块不见了：只被一路找到的也要留下，另一路算 0。",
        ),
    ],
    wrong=[
        Wrong("直接相加", lambda d, k, a: _ranked(d, k, a), "没有各自拉到 0 到 1：BM25 的大分数盖过了余弦；两路除以同一个数也一样。"),
        Wrong("按位置相加", _by_position, "你按位置把两路配在一起了；要按 id 配，两路的次序、多少都可以不同。"),
        Wrong("0 放在名单末尾", lambda d, k, a: _ranked(_flat(d), _flat(k), a),
              "关键词那一路里最低的成了 0，和一个词也不共有的块一样了：min_max(…, low=0)。"),
        Wrong("份量反了", lambda d, k, a: fuse(d, k, 1 - a), "份量反了：alpha 是向量那一路的。"),
        Wrong("只留两路都有的", lambda d, k, a: [i for i in fuse(d, k, a) if i in k],
              "有的块不见了：只被一路找到的也要留下，另一路算 0。"),
        Wrong("向量也从 0 量起", _divide_by_top, "向量那一路除以了最高分，0 还在 0 分处，e5 的差别就几乎没有了：0 要放在全部块里最低的那一块。"),
        Wrong("按名次合", lambda d, k, a: _order(rrf([_order(d), _order(k)])), "这是按名次合（RRF），下面会讲；这一题按分数加权。"),
        Wrong("没有用 alpha", lambda d, k, a: fuse(d, k, 0.6), "alpha 没有用上：份量写死成了 0.6。"),
        Wrong("从低到高", lambda d, k, a: fuse(d, k, a)[::-1], "次序反了：分数高的在前。"),
        Wrong("并列没有按 id", lambda d, k, a: sorted(d, key=lambda i: -round(a * _flat(d)[i] + (1 - a) * _flat(k, 0).get(i, 0), 6)),
              "分数一样的要按 id 排，结果才不随喂进来的次序变。"),
    ],
    follow_up="同样的两本分数，和 HybridSearch 的前几名一样。",
)  # fmt: skip

# ---------------------------------------------------------------- 10.3 挑份量

Table = dict[float, list[float]]


def choose(tune: Table, report: Table) -> list[float]:
    """[tune 上最好的 α, report 上比强的那一路单干多多少, 区间的低, 高]。"""
    return _told(report, _best(tune, sorted(tune)), _best(tune, [0, 1]))


def _best(table: Table, among: Sequence[float]) -> float:
    return max(among, key=lambda alpha: np.mean(table[alpha]))


def _told(table: Table, chosen: float, rival: float) -> list[float]:
    a, b = table[rival], table[chosen]
    return [float(chosen), float(np.mean(b) - np.mean(a)), *paired_interval(a, b)]


def _unpaired(tune: Table, report: Table) -> list[float]:
    chosen, rival = _best(tune, sorted(tune)), _best(tune, [0, 1])
    low, high = bootstrap_interval(report[chosen])
    other = float(np.mean(report[rival]))
    return [float(chosen), float(np.mean(report[chosen])) - other, low - other, high - other]


def _choose_cases() -> list[Case]:
    rng = np.random.default_rng(103)

    def table(n: int, *means: float) -> Table:
        draws = rng.random(n)
        alphas = np.linspace(0, 1, len(means)).round(2).tolist()
        return {a: [float(v) for v in ((draws + rng.normal(0, 0.2, n)) < m)] for a, m in zip(alphas, means, strict=True)}

    def case_of(label: str, tune: Callable[[], Table], report: Callable[[], Table]) -> Case:
        return case(label, tune(), report())

    return [
        case_of("BM25 强", lambda: table(30, 0.7, 0.9, 0.8, 0.5, 0.4), lambda: table(30, 0.6, 0.7, 0.9, 0.6, 0.3)),
        case_of("向量强，report 上反过来", lambda: table(30, 0.3, 0.5, 0.6, 0.9, 0.7), lambda: table(30, 0.8, 0.4, 0.9, 0.5, 0.3)),
        case("两个一样好", {0: [1, 0, 0], 0.5: [1, 1, 0], 0.7: [1, 0, 1], 1: [0, 0, 1]},
             {0: [1, 0, 0, 1], 0.5: [1, 1, 0, 0], 0.7: [1, 1, 1, 0], 1: [0, 1, 0, 1]}),
        case("单干最好", {0: [1, 1, 1], 0.5: [1, 1, 0], 1: [0, 0, 1]}, {0: [1, 0, 1], 0.5: [1, 1, 1], 1: [0, 1, 1]}),
        case("没有排好的 α", {1: [0, 0, 1], 0.6: [1, 1, 1], 0.3: [1, 1, 1], 0: [1, 0, 0]},
             {1: [0, 1, 1], 0.6: [1, 0, 0], 0.3: [1, 1, 0], 0: [0, 0, 1]}),
    ]  # fmt: skip


_CHOOSE = Exercise(
    id="10.3",
    title="在 tune 上挑，在 report 上报",
    reference=choose,
    cases=_choose_cases,
    diagnoses=[
        (lambda outputs, wanted: all(isinstance(o, float | int) for o in outputs), "你只返回了 α；还要差和它的 95% 区间，一共四个数。"),
    ],
    wrong=[
        Wrong("在 report 上挑", lambda t, r: _told(r, _best(r, sorted(r)), _best(t, [0, 1])),
              "α 是在 report 上挑的：挑要在 tune 上，report 只用来报。"),
        Wrong("对手在 report 上挑", lambda t, r: _told(r, _best(t, sorted(t)), _best(r, [0, 1])),
              "对手是看着 report 选的；哪一路单干更好，也要在 tune 上定。"),
        Wrong("在 tune 上报", lambda t, r: _told(t, _best(t, sorted(t)), _best(t, [0, 1])),
              "差是在 tune 上算的：照着它挑的，再拿它报，总是偏好看。报要用 report。"),
        Wrong("区间没有配对", _unpaired, "区间没有逐题相减：用 paired_interval(强的那一路, 挑中的)。"),
        Wrong("报了得分", lambda t, r: [_best(t, sorted(t)), float(np.mean(r[_best(t, sorted(t))])), *choose(t, r)[2:]],
              "第二个数报成了挑中的 α 的得分；这里要差：再减去单干的得分。"),
        Wrong("减反了", lambda t, r: [v if n == 0 else -v for n, v in enumerate(np.array(choose(t, r))[[0, 1, 3, 2]].tolist())],
              "减反了：挑中的 α 减去单干，变好是正数。"),
        Wrong("和弱的比", lambda t, r: _told(r, _best(t, sorted(t)), min([0, 1], key=lambda a: np.mean(t[a]))),
              "对手选成了弱的那一路：赢它不算本事，要和强的比。"),
        Wrong("总和 BM25 比", lambda t, r: _told(r, _best(t, sorted(t)), 0), "对手写死成了 0（BM25）：先在 tune 上看两头哪一头更好。"),
        Wrong("两头不参加", lambda t, r: _told(r, _best(t, [a for a in sorted(t) if 0 < a < 1]), _best(t, [0, 1])),
              "0 和 1 也是候选：单干最好的时候，就该单干。"),
        Wrong("一样好取大的", lambda t, r: _told(r, _best(t, sorted(t)[::-1]), _best(t, [0, 1])),
              "一样好的不止一个时，取最小的 α：从小到大试，严格更好才换。"),
        Wrong("没有排 α", lambda t, r: _told(r, _best(t, list(t)), _best(t, [0, 1])),
              "字典里的 α 不一定从小到大：一样好时要取最小的，先 sorted。"),
    ],
    follow_up="挑和报分开，对手也不许偷看：这样报出来的差，才是别人照做会得到的差。",
)  # fmt: skip

EXERCISES = [_EXPLAIN, _FUSE, _CHOOSE]
