"""几个性能测试共用的计时。"""

from __future__ import annotations

import time
from collections.abc import Callable


def best(function: Callable[[], object], rounds: int) -> float:
    """跑 rounds 次，最快一次的秒数：别的程序偶尔占用处理器，最快的一次受影响最小。"""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
