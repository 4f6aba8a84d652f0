"""第 03 课的练习：两个字典的余弦、集合的相似度、要多少格才够。"""

from __future__ import annotations

import math
from collections import Counter

from rag_lessons.course.checks import Exercise, Wrong, case
from rag_lessons.embedding.toy import bigrams

Counts = dict[str, int]


# ---------------------------------------------------------------- 3.1 两个字典的余弦


def cosine_counts(a: Counts, b: Counts) -> float:
    """{字对: 次数} 与 {字对: 次数} 的余弦；有一段没有字对时是 0。"""
    product = _dot(a, b)
    return product / (_length(a) * _length(b)) if product else 0.0


def _dot(a: Counts, b: Counts) -> int:
    return sum(n * b.get(pair, 0) for pair, n in a.items())


def _length(a: Counts) -> float:
    return math.sqrt(sum(n * n for n in a.values()))


def _without_root(a: Counts, b: Counts) -> float:
    return _dot(a, b) / (_length(a) ** 2 * _length(b) ** 2) if a and b else 0.0


def _by_totals(a: Counts, b: Counts) -> float:
    return _dot(a, b) / (sum(a.values()) * sum(b.values())) if a and b else 0.0


def _by_kinds(a: Counts, b: Counts) -> float:
    return _dot(a, b) / math.sqrt(len(a) * len(b)) if a and b else 0.0


def _presence(a: Counts, b: Counts) -> float:
    return len(a.keys() & b.keys()) / math.sqrt(len(a) * len(b)) if a and b else 0.0


def _one_length(a: Counts, b: Counts) -> float:
    return _dot(a, b) / _length(a) if a else 0.0


def _no_guard(a: Counts, b: Counts) -> float:
    return _dot(a, b) / (_length(a) * _length(b))


def _no_get(a: Counts, b: Counts) -> float:
    product = sum(a[pair] * b[pair] for pair in a)
    return product / (_length(a) * _length(b)) if product else 0.0


_COSINE = Exercise(
    id="3.1",
    title="两个计数字典的余弦",
    reference=cosine_counts,
    cases=[
        case("甲和乙", Counter(bigrams("安全阀在哪")), Counter(bigrams("安全阀在这"))),
        case("甲和丙", Counter(bigrams("安全阀在哪")), Counter(bigrams("安全第一安全第一"))),
        case("没有共同的字对", {"安全": 1, "全阀": 1}, {"失控": 2}),
        case("同方向、两倍长", {"安全": 1, "重试": 1}, {"安全": 2, "重试": 2}),
        case("普通字典，次数不等", {"安全": 3, "重试": 1, "超时": 2}, {"重试": 4, "安全": 1}),
        case("一段是空的", {}, {"安全": 1}),
        case("两段都是空的", {}, {}),
    ],
    diagnoses=[
        (
            lambda outputs, expected: bool(outputs[2]),
            "没有共同的字对，余弦应是 0。次数要按字对去找（b.get(pair, 0)），不能按先后次序配对。",
        ),
    ],
    wrong=[
        Wrong("按先后配对", lambda a, b: sum(x * y for x, y in zip(a.values(), b.values(), strict=False))
              / (_length(a) * _length(b)) if a and b else 0.0),
        Wrong("忘了开方", _without_root, "分母里的长度没有开平方：长度是「平方和的平方根」。"),
        Wrong("只有点积", _dot, "这是点积，还没有除以两个长度，所以长的那段占便宜。"),
        Wrong("除以总次数", _by_totals, "你除的是次数之和。长度要先把每个次数平方，加起来，再开平方。"),
        Wrong("按种数算长度", _by_kinds, "你的长度只数了有几种字对，没有用到次数；重复出现的字对，平方后才加。"),
        Wrong("只看有没有", _presence, "你只看了字对有没有出现。点积要把两边的次数相乘，长度也要用次数。"),
        Wrong("只除了一个长度", _one_length, "只除了 a 的长度。两个长度都要除，交换 a 和 b 结果才不变。"),
        Wrong("没管空的", _no_guard, "有一段没有字对时长度是 0，不能做除数；这时直接返回 0.0。"),
        Wrong("没有的键", _no_get, "另一段没有这个字对时，次数是 0：用 b.get(pair, 0)。"),
    ],
    follow_up="没有出现的字对不用管：0 乘任何数都是 0。一列一个字对的大表里多数是 0，只记不是 0 的就够了。",
)


# ---------------------------------------------------------------- 3.2 集合的相似度


def jaccard(a: str, b: str) -> float:
    """两段文字的字对集合：共有的种数 ÷ 合起来的种数；都没有字对时是 0。"""
    first, second = set(bigrams(a)), set(bigrams(b))
    together = first | second
    return len(first & second) / len(together) if together else 0.0


def _sets(a: str, b: str) -> tuple[set[str], set[str], int]:
    first, second = set(bigrams(a)), set(bigrams(b))
    return first, second, len(first & second)


def _dice(a: str, b: str) -> float:
    first, second, both = _sets(a, b)
    return 2 * both / (len(first) + len(second)) if first or second else 0.0


def _sum_below(a: str, b: str) -> float:
    first, second, both = _sets(a, b)
    return both / (len(first) + len(second)) if first or second else 0.0


def _smaller_below(a: str, b: str) -> float:
    first, second, both = _sets(a, b)
    return both / min(len(first), len(second)) if first and second else 0.0


def _set_cosine(a: str, b: str) -> float:
    first, second, both = _sets(a, b)
    return both / math.sqrt(len(first) * len(second)) if first and second else 0.0


def _with_repeats(a: str, b: str) -> float:
    first, second = Counter(bigrams(a)), Counter(bigrams(b))
    together = (first | second).total()
    return (first & second).total() / together if together else 0.0


def _characters(a: str, b: str) -> float:
    together = set(a) | set(b)
    return len(set(a) & set(b)) / len(together) if together else 0.0


def _no_guard_sets(a: str, b: str) -> float:
    first, second, both = _sets(a, b)
    return both / len(first | second)


_SINGLE = "你比的是单个的字。先用 bigrams 切成字对，再变成集合。"

_JACCARD = Exercise(
    id="3.2",
    title="字对集合的相似度",
    reference=jaccard,
    cases=[
        case("甲和乙", "安全阀在哪", "安全阀在这"),
        case("有重复的字对", "安全阀在哪", "安全第一安全第一"),
        case("两段都有重复", "安全安全", "安全安全安全阀"),
        case("一长一短", "安全阀", "安全阀在哪个文件里定义"),
        case("只共有怎么", "失控保护怎么触发", "怎么停下来"),
        case("没有共同的字对", "安全阀", "失控保护"),
        case("有共同的字，没有共同的字对", "安全阀", "阀门安装"),
        case("完全相同", "重试间隔", "重试间隔"),
        case("两段都是空串", "", ""),
    ],
    diagnoses=[(lambda outputs, expected: bool(outputs[6]), _SINGLE)],
    wrong=[
        Wrong("Dice 系数", _dice, "这是 Dice 系数：共有的算了两遍。这里要共有的种数 ÷ 合起来的种数。"),
        Wrong("分母是两个种数之和", _sum_below, "分母里共有的字对算了两遍，所以完全相同的两段只得 0.5；用并集 |。"),
        Wrong("除以少的那边", _smaller_below, "你除的是种数少的那边，于是短的那段只要全被包含就得 1。分母应是并集。"),
        Wrong("集合的余弦", _set_cosine, "你除的是两个种数乘积的平方根，那是余弦。这里的分母是并集的种数。"),
        Wrong("数了重复", _with_repeats, "重复出现的字对被数了多次。先用 set 去掉重复。"),
        Wrong("按单字", _characters, _SINGLE),
        Wrong("没管空的", _no_guard_sets, "两段都没有字对时，并集是空的，不能做除数；这时返回 0.0。"),
    ],
    follow_up="展开「答案与说明」，看它和余弦在哪里意见相反。",
)


# ---------------------------------------------------------------- 3.3 要多少格才够


def slots_needed(n: int, share: float) -> int:
    """n 种字对，共格的比例不超过 share，至少要几格（1、2、4、8……里最小的）。"""
    dim = 1
    while 1 - (1 - 1 / dim) ** (n - 1) > share:
        dim *= 2
    return dim


def _strict(n: int, share: float) -> int:
    dim = 1
    while 1 - (1 - 1 / dim) ** (n - 1) >= share:
        dim *= 2
    return dim


def _with_itself(n: int, share: float) -> int:
    dim = 1
    while 1 - (1 - 1 / dim) ** n > share:
        dim *= 2
    return dim


def _one_by_one(n: int, share: float) -> int:
    dim = 1
    while 1 - (1 - 1 / dim) ** (n - 1) > share:
        dim += 1
    return dim


def _one_short(n: int, share: float) -> int:
    return slots_needed(n, share) // 2


def _load(n: int, share: float) -> int:
    dim = 1
    while n / dim > share:
        dim *= 2
    return dim


def _any_pair(n: int, share: float) -> int:
    dim = 1
    while 1 - math.exp(-n * (n - 1) / 2 / dim) > share:
        dim *= 2
    return dim


_DOUBLE = "每次要翻倍，答案只在 1、2、4、8……里选。"


def _is_power(value: object) -> bool:
    return not isinstance(value, int) or value < 1 or value & (value - 1) == 0


_SLOTS = Exercise(
    id="3.3",
    title="要多少格才够",
    reference=slots_needed,
    cases=[
        case("约一块代码", 300, 0.27),
        case("同样多，要求松一点", 300, 0.5),
        case("约一整个资料库", 7000, 0.1),
        case("同样多，容许一半", 7000, 0.5),
        case("两种，恰好等于", 2, 0.5),
        case("只有一种", 1, 0.1),
    ],
    diagnoses=[
        (
            lambda outputs, expected: len(outputs) > 1 and all(v == 1 for v in outputs[:5]),
            "总是停在 1 格：要么比例还大于 share 时没有接着翻倍（大于、小于写反了），"
            "要么漏了公式最前面的「1 −」，算成了不共格的比例。",
        ),
        (lambda outputs, expected: not all(_is_power(v) for v in outputs), _DOUBLE),
    ],
    wrong=[
        Wrong("恰好等于时还在加", _strict, "比例恰好等于 share 也算够，用「大于才继续」。"),
        Wrong("把自己也算进去", _with_itself, "会和你挤的是另外 n − 1 种，指数应是 n - 1；只有一种时一格就够。"),
        Wrong("一格一格加", _one_by_one, _DOUBLE),
        Wrong("大于小于写反", lambda n, share: 1),
        Wrong("少翻了一倍", _one_short, "少翻了一倍：返回的这一档还超过 share。"),
        Wrong("用 n ÷ 格数", _load, "n ÷ 格数是平均每格有几种，不是共格的比例；挤的时候它能超过 1。"),
        Wrong("有没有任何两种共格", _any_pair, "你算的是「至少有两种共格」的机会，那是生日问题的原题；这里要的是共格的占几成。"),
    ],
    follow_up="格数翻倍，冲突大约减半；要把冲突压到很低，格数得远多于字对的种数。",
)


EXERCISES = [_COSINE, _JACCARD, _SLOTS]
