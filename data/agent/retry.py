"""出错以后再试。

只有标了 retryable 的异常才值得再试：网络抖了、对方忙了、429 了。
密钥不对、参数不对、式子写错，试一百遍也是错，立刻抛出去更省时间。
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from errors import AgentError
from log import get_logger

T = TypeVar("T")
logger = get_logger("retry")

MAX_ATTEMPTS = 4
BASE_SECONDS = 1.0
CAP_SECONDS = 30.0
JITTER = 0.2


def backoff(attempt: int, rng: random.Random | None = None) -> float:
    """第 attempt 次出错之后该等几秒（attempt 从 1 数起）。

    重试间隔按 2 的幂增长：先等 1 秒，之后每次翻倍，封顶 30 秒，
    最后乘上一个 0.8 到 1.2 之间的随机数，免得一群客户端齐步走。

    >>> [round(backoff(n, random.Random(0)), 1) for n in (1, 2, 3)]
    [1.1, 2.3, 4.6]
    """
    if attempt < 1:
        raise ValueError("attempt 从 1 数起")
    rng = rng or random.Random()
    seconds = min(CAP_SECONDS, BASE_SECONDS * 2 ** (attempt - 1))
    return seconds * rng.uniform(1 - JITTER, 1 + JITTER)


def call_with_retry(
    func: Callable[[], T],
    *,
    attempts: int = MAX_ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
    rng: random.Random | None = None,
    what: str = "调用",
) -> T:
    """执行 func，遇到可以再试的异常就等一等再来，最多 attempts 次。

    第一次也算在 attempts 里，所以默认是一次正式的加三次补救。
    最后一次仍然不行，就把那一次的异常原样抛出去，不另外包一层：
    包了以后编号就变了，外面的监控会数错。
    """
    if attempts < 1:
        raise ValueError("attempts 至少是 1")
    for attempt in range(1, attempts + 1):
        try:
            return func()
        except AgentError as exc:
            if not exc.retryable or attempt == attempts:
                raise
            wait = backoff(attempt, rng)
            logger.info("%s第 %d 次不成：%s；%.1f 秒后再试", what, attempt, exc, wait)
            sleep(wait)
    raise AssertionError("走不到这里")


def retry_after(header: str | None) -> float | None:
    """服务在 Retry-After 里给了秒数时读出来；写的是日期或者乱码就当没给。

    >>> retry_after("12"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after(None)
    (12.0, None, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 600 else None
