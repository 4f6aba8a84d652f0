"""区间：换一批同样的题，平均分会落在哪里。

自助法（bootstrap）：从这批题里有放回地抽出同样多的题，算一次平均；抽一万次，取中间的 95%。
Efron & Tibshirani, An Introduction to the Bootstrap, 1993。
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rag_lessons.types import RagLessonsError, check_number, check_whole

BLOCK, BLOCKS = 100, 100        # 一次抽 100 遍，抽 100 次，共一万遍；分块是为了题多时不占内存
SIMULATIONS = 2000              # 估把握时模拟几次
MOST_QUESTIONS = 1_000_000      # 到这么多题还看不出来，就不再往上找


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """各题得分 → 平均分的 95% 区间。先排序，所以与题目的次序无关；种子固定，所以每次一样。

    题太少，或者各题全对、全错时，区间会偏窄，甚至缩成一点：没见过的情形，重抽也抽不出来。

    >>> low, high = bootstrap_interval([1, 1, 0, 1, 0, 1, 1, 0, 1, 1])
    >>> round(low, 2), round(high, 2)
    (0.4, 1.0)
    """
    values = np.sort(np.asarray(values, float))
    if not len(values) or not np.isfinite(values).all():
        raise RagLessonsError("算区间要至少一题，每题的得分是一个数；请检查筛选条件。")
    rng, n = np.random.default_rng(seed), len(values)
    means = [values[rng.integers(0, n, (BLOCK, n))].mean(axis=1) for _ in range(BLOCKS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def paired_interval(a: Sequence[float], b: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """同一批题，两种设置：b 减 a 的平均差的 95% 区间。a、b 按同样的次序排列，一题对一题。

    先逐题相减再抽：难题对两边都难，相减就抵消了，区间比各算各的窄得多。

    >>> low, high = paired_interval([0, 0, 1, 0, 1], [1, 1, 1, 0, 0])
    >>> round(low, 2), round(high, 2)
    (-0.4, 0.8)
    """
    if len(a) != len(b):
        raise RagLessonsError(f"两种设置的题数不同（{len(a)} 与 {len(b)}）；要一题对一题地比。")
    return bootstrap_interval(np.asarray(b, float) - np.asarray(a, float), seed)


def _gaps(differences: object) -> np.ndarray:
    """逐题的差 (n,)；也收 compare_reports 的返回值。"""
    try:
        gaps = np.asarray(getattr(differences, "differences", differences), float)
    except (TypeError, ValueError):
        gaps = np.zeros(0)
    if gaps.ndim != 1 or not len(gaps) or not np.isfinite(gaps).all():
        raise RagLessonsError("算要多少题，先要有逐题的差；请传 compare_reports(a, b)。")
    return gaps


def chance_to_see(differences: Sequence[float], n: int, seed: int = 0) -> float:
    """把握（power）：再出 n 道同样的题，有多大机会看出这个平均差（95% 区间不含 0，方向也对）。

    做法：按这批逐题差的分布抽 n 题，看平均差是否超过它自己标准误的 1.96 倍；抽 2000 次，数几次超过。

    >>> few = [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    >>> [round(chance_to_see(few, n), 1) for n in (20, 100, 400)]
    [0.2, 0.6, 1.0]
    """
    n = check_whole(n, "题数", least=2)
    values, counts = np.unique(_gaps(differences), return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(n, counts / counts.sum(), size=SIMULATIONS)
    means = drawn @ values / n
    variance = np.maximum(drawn @ values**2 / n - means**2, 0)
    seen = means * np.sign(values @ counts) > 1.96 * np.sqrt(variance / (n - 1))
    return float(seen.mean())


def questions_needed(
    differences: Sequence[float], size: float | None = None, power: float = 0.8, seed: int = 0
) -> int:
    """要多少题，才有 power 的把握看出平均差 size。

    参数
    ----
    differences : 逐题的差，例如 ``compare_reports(a, b).differences``；各题差得有多散，由它来定。
    size : 想看出的平均差，例如 0.05；默认是 differences 自己的平均。
    power : 把握，0 到 1 之间，默认 0.8。

    返回大约的题数（模拟得来，两位有效数字）。差全是一样的数、size 是 0、或一百万题也不够时，抛出 RagLessonsError。

    >>> few = [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    >>> questions_needed(few), questions_needed(few, size=0.05)
    (150, 600)
    """
    gaps = _gaps(differences)
    if not 0 < check_number(power, "power") < 1:
        raise RagLessonsError(f"power 要在 0 和 1 之间，收到 {power!r}；常用 0.8。")
    size = float(gaps.mean()) if size is None else check_number(size, "size")
    if size == 0 or not np.isfinite(size) or np.ptp(gaps) == 0:
        raise RagLessonsError("两种设置逐题没有差别（或差得都一样多），算不出要多少题；请给一个不为 0 的 size，或换一批题。")
    moved = gaps - gaps.mean() + size
    low, high = 5, 10
    while chance_to_see(moved, high, seed) < power:
        low, high = high, high * 2
        if high > MOST_QUESTIONS:
            raise RagLessonsError(f"平均差 {size:.2g} 太小，一百万题也看不出来；请换一个大一点的 size。")
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if chance_to_see(moved, middle, seed) >= power else (middle, high)
    digits = 10 ** max(0, len(str(high)) - 2)
    return -(-high // digits) * digits
