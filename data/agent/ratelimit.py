"""给模型调用限流，免得把服务方惹恼。"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """限流用令牌桶：桶里最多放 10 个令牌，每分钟补 60 个，桶空就排队。

    这里的「令牌」和模型的 token 没有关系，一次调用取走一个。
    多个线程共用一个桶，所以取的时候要加锁；等的时候不占锁，
    不然一个人排队，所有人都得站着。
    """

    def __init__(
        self,
        capacity: int = 10,
        per_minute: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if capacity < 1 or per_minute <= 0:
            raise ValueError("桶的大小和补充的速度都要大于零")
        self.capacity = capacity
        self.rate = per_minute / 60.0
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(capacity)
        self._last = clock()
        self._lock = threading.Lock()

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self.capacity, self._tokens + (now - self._last) * self.rate)
        self._last = now

    def try_take(self) -> float:
        """取一个令牌。取到返回 0，取不到返回还要等的秒数。"""
        with self._lock:
            self._refill()
            if self._tokens >= 1:
                self._tokens -= 1
                return 0.0
            return (1 - self._tokens) / self.rate

    def take(self, max_wait: float = 60.0) -> float:
        """取一个令牌，必要时睡一会儿。返回总共等了几秒；超过 max_wait 抛 TimeoutError。"""
        waited = 0.0
        while True:
            need = self.try_take()
            if need == 0.0:
                return waited
            if waited + need > max_wait:
                raise TimeoutError(f"排队超过 {max_wait:.0f} 秒")
            self._sleep(need)
            waited += need
