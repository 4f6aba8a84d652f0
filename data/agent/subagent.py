"""子代理：把一件独立的小事交出去，只收结果。

主对话里塞满了找文件、读文件的过程，模型就容易忘了本来要干什么。
派一个子代理去翻，回来只带一段结论，主对话就干净得多。
代价是多花几次调用，所以一步能做完的事不值得派。
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from budget import TokenBudget
from errors import AgentError, DepthExceeded
from events import SUBAGENT_END, SUBAGENT_START, EventBus
from log import get_logger
from utils import clip

logger = get_logger("subagent")

MAX_DEPTH = 2

#: 交回主对话的结论最长多少字。
RESULT_CHARS = 800


@dataclass(frozen=True)
class Report:
    """子代理带回来的东西。"""

    ok: bool
    text: str
    tokens: int


class Dispatcher:
    """负责派人。

    子代理的嵌套深度上限是 2：主 agent 生出的子代理还能再生一层，更深就抛 DepthExceeded。
    账记在同一个预算上，但每个子代理只许花掉派出那一刻剩余的三成。
    """

    def __init__(
        self,
        run: Callable[[str, int, int], str],
        budget: TokenBudget,
        bus: EventBus,
        *,
        depth: int = 0,
        share: float = 0.3,
    ) -> None:
        self._run = run
        self.budget = budget
        self.bus = bus
        self.depth = depth
        self.share = share

    def delegate(self, task: str, trace: str = "") -> Report:
        """派一个出去，等它回来。

        子代理出错不往上抛：主 agent 收到的是一段「没做成，因为……」，
        由它决定换个办法还是如实告诉用户。只有套得太深才抛，那是写法的问题。
        """
        if self.depth >= MAX_DEPTH:
            raise DepthExceeded(f"已经在第 {self.depth} 层，最多 {MAX_DEPTH} 层")
        allowance = self.budget.slice(self.share)
        before = self.budget.used
        self.bus.emit(SUBAGENT_START, trace, task=task, depth=self.depth + 1, allowance=allowance)
        try:
            text, ok = self._run(task, self.depth + 1, allowance), True
        except AgentError as exc:
            logger.info("子代理没做成：%s", exc)
            text, ok = f"没做成，因为：{exc}", False
        spent = self.budget.used - before
        self.bus.emit(SUBAGENT_END, trace, ok=ok, tokens=spent)
        return Report(ok, clip(text, RESULT_CHARS), spent)
