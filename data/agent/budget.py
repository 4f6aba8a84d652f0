"""token 的账本。

模型按 token 收钱，所以我们也按 token 记账。账本只有一份，
主循环、子代理、记忆压缩都从里面扣；谁扣的、扣了多少，都记一笔。
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from errors import BudgetExceeded
from log import get_logger

logger = get_logger("budget")

#: 估算用的两个系数。真账以服务返回的 usage 为准，估算只在它没给的时候顶一下。
TOKENS_PER_HAN = 1.0
CHARS_PER_TOKEN = 4.0

#: 每条消息另加的固定开销：角色名和分隔符也占地方。
MESSAGE_OVERHEAD = 4


def estimate_tokens(text: str) -> int:
    """粗估一段文字的 token 数：汉字一个算一个，其余四个字符算一个。

    误差大约在两成以内，偏多不偏少。算预算够用，对账不够用。

    >>> estimate_tokens("你好")
    2
    >>> estimate_tokens("hello world!")
    3
    """
    han = sum(1 for ch in text if "\u4e00" <= ch <= "\u9fff")
    other = len(text) - han
    return math.ceil(han * TOKENS_PER_HAN + other / CHARS_PER_TOKEN)


def estimate_messages(messages: list[dict[str, str]]) -> int:
    """一串消息的 token 数，含每条的固定开销。"""
    return sum(estimate_tokens(m.get("content") or "") + MESSAGE_OVERHEAD for m in messages)


@dataclass
class TokenBudget:
    """一次任务能用的 token 总数。

    预算用到 80% 打一条告警日志，用到 100% 抛 BudgetExceeded。
    告警只打一次，免得刷屏。
    """

    limit: int = 60_000
    alert_at: float = 0.8
    used: int = 0
    by_owner: Counter[str] = field(default_factory=Counter)
    _alerted: bool = False

    def charge(self, tokens: int, owner: str = "main") -> None:
        """扣一笔账。先记下来再判断：已经花掉的钱不能因为抛了异常就不认。"""
        if tokens < 0:
            raise ValueError("token 数不能是负的")
        self.used += tokens
        self.by_owner[owner] += tokens
        if not self._alerted and self.used >= self.limit * self.alert_at:
            self._alerted = True
            logger.warning("预算已用 %d / %d", self.used, self.limit)
        if self.used > self.limit:
            raise BudgetExceeded(f"用了 {self.used} 个 token，上限 {self.limit}")

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def exhausted(self) -> bool:
        return self.used >= self.limit

    def slice(self, share: float) -> int:
        """给子代理划多少：剩余的一份，向下取整，最少 500。

        划出去的数只是一条线，账仍然记在同一本上。
        """
        if not 0 < share <= 1:
            raise ValueError("share 要在 0 和 1 之间")
        return max(500, int(self.remaining * share))

    def report(self) -> str:
        """一行小结，任务收尾时打印。"""
        parts = [f"{name} {count}" for name, count in self.by_owner.most_common()]
        return f"共 {self.used} / {self.limit} token（{'，'.join(parts) or '没有花费'}）"
