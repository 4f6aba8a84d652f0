"""附录 A1 的练习：各家的数换成余弦、建索引多少次才回本、要多少内存。"""

from __future__ import annotations

import math
from typing import Any

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- A1.1 换成余弦


def to_cosine(kind: str, value: float) -> float:
    """四种数 → 余弦；向量都是单位长度。"""
    if kind in ("cosine", "ip"):
        return value
    if kind == "cosine_distance":
        return 1 - value
    squared = value if kind == "squared_l2" else value**2
    return 1 - squared / 2


def _variant(**other: Any) -> Any:
    """换掉一种的算法，其余照旧。"""
    return lambda kind, value: other[kind](value) if kind in other else to_cosine(kind, value)


_TO_COSINE = Exercise(
    id="A1.1",
    title="换成余弦",
    reference=to_cosine,
    cases=[
        case("Qdrant 的 Cosine", "cosine", 0.5),
        case("FAISS 的内积", "ip", -0.25),
        case("Chroma 的余弦距离，同向", "cosine_distance", 0.0),
        case("pgvector 的 <=>，反向", "cosine_distance", 2.0),
        case("Chroma 默认的 L2 平方，垂直", "squared_l2", 2.0),
        case("FAISS 的 L2 平方，反向", "squared_l2", 4.0),
        case("FAISS 的 L2 平方，很近", "squared_l2", 0.2),
        case("Qdrant 的 Euclid，反向", "l2", 2.0),
        case("pgvector 的 <->，同向", "l2", 0.0),
        case("pgvector 的 <->，很近", "l2", 0.5),
    ],
    tolerance=1e-9,
    wrong=[
        Wrong("一律照抄", lambda kind, value: value, "距离是越小越近，要翻过来：余弦距离用 1 减。"),
        Wrong("一律 1 减一半", lambda kind, value: 1 - value / 2, "五种不是一个公式：cosine 和 ip 已经是余弦，照抄；1 减一半只对 squared_l2。"),
        Wrong("公式没有解出来", _variant(squared_l2=lambda v: 2 - 2 * v, l2=lambda v: 2 - 2 * v**2), "2 - 2 × 余弦 得到的是 L2 平方；这里要反过来，从 L2 平方解出余弦。"),
        Wrong("l2 又开了方", _variant(l2=lambda v: 1 - math.sqrt(v) / 2), "l2 已经开过方，不要再开一次：平方回去，再照 squared_l2 那样换。"),
        Wrong("一律 1 减", lambda kind, value: 1 - value, "cosine 和 ip 本来就是越高越近，不用换。"),
        Wrong("忘了除以 2", _variant(squared_l2=lambda v: 1 - v, l2=lambda v: 1 - v**2), "单位向量的 L2 平方是 2 - 2 × 余弦：反向是 4，要换成 -1，先除以 2。"),
        Wrong("l2 没有平方", _variant(l2=lambda v: 1 - v / 2), "l2 是开过方的：先平方，再照 squared_l2 那样换。"),
        Wrong("squared_l2 又平方了", _variant(squared_l2=lambda v: 1 - v**2 / 2), "squared_l2 已经是平方，不要再平方一次。"),
        Wrong("用 1/(1+d)", _variant(squared_l2=lambda v: 1 / (1 + v), l2=lambda v: 1 / (1 + v)), "1/(1+距离) 次序是对的，可它不是余弦，门槛和别家对不上：从 L2 平方 = 2 - 2 × 余弦 解出来。"),
        Wrong("余弦距离除以 2", _variant(cosine_distance=lambda v: 1 - v / 2), "余弦距离就是 1 - 余弦，范围 0 到 2，反向要换成 -1，不用除以 2。"),
        Wrong("范围压到 0 到 1", lambda kind, value: (to_cosine(kind, value) + 1) / 2, "不要再压到 0 到 1：同向是 1，垂直是 0，反向是 -1。"),
        Wrong("开了方", _variant(squared_l2=lambda v: 1 - math.sqrt(v) / 2), "squared_l2 不用开方：余弦 = 1 - 平方 / 2。"),
    ],
    follow_up="rag_lessons.stores 里五家各做了其中一样，所以门槛和名次可以直接比。",
)  # fmt: skip

# ---------------------------------------------------------------- A1.2 回本


def pays_back(build_seconds: float, slow_ms: float, fast_ms: float) -> float:
    """建索引花的时间，查多少次能省回来；快不了就是无穷。"""
    saved = (slow_ms - fast_ms) / 1000
    return math.ceil(build_seconds / saved) if saved > 0 else math.inf


_PAYS_BACK = Exercise(
    id="A1.2",
    title="查多少次才回本",
    reference=pays_back,
    cases=[
        case("建 10 秒，5 毫秒变成 1 毫秒", 10, 5.0, 1.0),
        case("建 60 秒，10 毫秒变成 2.5 毫秒", 60, 10.0, 2.5),
        case("除不尽，进上去", 1, 4.0, 1.0),
        case("不用建", 0, 5.0, 1.0),
        case("一样快", 10, 2.0, 2.0),
        case("反而慢了", 10, 0.5, 0.8),
    ],
    tolerance=1e-9,
    wrong=[
        Wrong("单位没换", lambda b, s, f: math.ceil(b / (s - f)) if s > f else math.inf, "单位不一样：建索引是秒，查询是毫秒，先换成一样的。"),
        Wrong("没有取整", lambda b, s, f: b / ((s - f) / 1000) if s > f else math.inf, "次数要是整数，往上取：用 math.ceil。"),
        Wrong("往下取整", lambda b, s, f: math.floor(b / ((s - f) / 1000)) if s > f else math.inf, "往下取就还差一点没有回本：往上取，math.ceil。"),
        Wrong("多加了 1", lambda b, s, f: b * 1000 // (s - f) + 1 if s > f else math.inf, "除得尽的时候多算了一次：10 秒、每次省 4 毫秒，正好 2500 次；用 math.ceil。"),
        Wrong("没有减快的", lambda b, s, f: math.ceil(b / (s / 1000)) if s > f else math.inf, "每次省下的是慢的减去快的，快的那一下也要花时间。"),
        Wrong("慢了给负数", lambda b, s, f: math.ceil(b / ((s - f) / 1000)) if s != f else math.inf, "反而慢了就永远回不了本，要返回 math.inf，不是负数。"),
        Wrong("慢了给 0", lambda b, s, f: math.ceil(b / ((s - f) / 1000)) if s > f else 0, "快不了的，永远回不了本：返回 math.inf。0 的意思是立刻就回本。"),
        Wrong("快慢弄反", lambda b, s, f: math.ceil(b / ((f - s) / 1000)) if f > s else math.inf, "快慢弄反了：第二个参数是原来慢的，第三个是建了索引以后快的。"),
        Wrong("一样快时出错", lambda b, s, f: math.ceil(b / ((s - f) / 1000)), "一样快时除数是 0：先看省不省得下，省不下就返回 math.inf。"),
    ],
    follow_up="把上面那张图里的三个数代进去，就是图题里的次数。",
)  # fmt: skip

# ---------------------------------------------------------------- A1.3 内存


def gigabytes(count: int, dim: int, links: int = 0, code_bytes: int = 0) -> float:
    """向量、图的边、压缩码一共占多少 GB（10 亿字节）。"""
    vector = code_bytes or 4 * dim
    return count * (vector + 4 * 2 * links) / 1e9


_GIGABYTES = Exercise(
    id="A1.3",
    title="要多少内存",
    reference=gigabytes,
    cases=[
        case("一千块 e5", 1000, 384),
        case("一百万条 1024 维", 10**6, 1024),
        case("十亿条 384 维", 10**9, 384),
        case("一百万条 e5，每个点连 32 条边", 10**6, 384, links=32),
        case("十亿条压成 48 字节", 10**9, 384, code_bytes=48),
        case("十亿条压成 64 字节，再连 16 条边", 10**9, 1024, links=16, code_bytes=64),
        case("一条也没有", 0, 384),
    ],
    tolerance=1e-9,
    wrong=[
        Wrong("一个数算 8 字节", lambda n, d, links=0, code_bytes=0: n * ((code_bytes or 8 * d) + 8 * links) / 1e9, "我们的向量是 float32，一个数 4 字节；8 字节是 float64。"),
        Wrong("一个数算 1 字节", lambda n, d, links=0, code_bytes=0: n * ((code_bytes or d) + 8 * links) / 1e9, "dim 是几个数，不是几个字节：float32 一个数 4 字节。"),
        Wrong("边只算一头", lambda n, d, links=0, code_bytes=0: n * ((code_bytes or 4 * d) + 4 * links) / 1e9, "最底一层每个点留 2 × links 条边的位置，每条 4 字节。"),
        Wrong("边没有乘字节", lambda n, d, links=0, code_bytes=0: n * ((code_bytes or 4 * d) + 2 * links) / 1e9, "一条边存一个编号，4 字节；2 × links 还要乘 4。"),
        Wrong("压缩码和原向量都算", lambda n, d, links=0, code_bytes=0: n * (code_bytes + 4 * d + 8 * links) / 1e9, "压缩以后内存里只放码：给了 code_bytes 就不再算 4 × dim。"),
        Wrong("边写死了 256", lambda n, d, links=0, code_bytes=0: n * ((code_bytes or 4 * d) + 256) / 1e9, "links=0 就是没有图，不算边；256 是 links=32 的时候。"),
        Wrong("压缩了就不算边", lambda n, d, links=0, code_bytes=0: n * (code_bytes or 4 * d + 8 * links) / 1e9, "压缩的只是向量：给了 code_bytes，又给了 links，边照样要算。"),
        Wrong("码又乘了 4", lambda n, d, links=0, code_bytes=0: n * ((4 * code_bytes or 4 * d) + 8 * links) / 1e9, "code_bytes 已经是字节数，不用再乘 4。"),
        Wrong("四舍五入了", lambda n, d, links=0, code_bytes=0: round(gigabytes(n, d, links, code_bytes), 2), "不要四舍五入：一千块只有 0.001536 GB，取两位就成了 0。"),
        Wrong("没管压缩", lambda n, d, links=0, code_bytes=0: n * (4 * d + 8 * links) / 1e9, "给了 code_bytes，每条就只占这么多字节。"),
        Wrong("除以 1024 三次", lambda n, d, links=0, code_bytes=0: gigabytes(n, d, links, code_bytes) * 1e9 / 2**30, "这里的 GB 是 10 亿字节：除以 1e9，不是 1024 的三次方。"),
        Wrong("没换成 GB", lambda n, d, links=0, code_bytes=0: gigabytes(n, d, links, code_bytes) * 1e9, "还是字节数：除以 1e9。"),
        Wrong("边没有乘条数", lambda n, d, links=0, code_bytes=0: (n * (code_bytes or 4 * d) + 8 * links) / 1e9, "每一条向量都有自己的边：边的字节也要乘 count。"),
    ],
    follow_up="十亿条的原向量一台机器放不下，压成码就放得下；代价是下面量的那一栏。",
)  # fmt: skip

EXERCISES = [_TO_COSINE, _PAYS_BACK, _GIGABYTES]
