"""运行时的刹车。

手写 agent 最贵的故障不是答错，而是停不下来：模型反复调用同一个工具，
每一轮都觉得「就差一点」，账单却一直在涨。这个文件只做一件事：
在每一步开始之前看几个数，越线就不让往下走。

别的模块不要自己写「最多转几圈」之类的判断，统一交到这里，
否则出了事没人说得清到底是哪一道闸落下来的。
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from enum import Enum

from budget import TokenBudget
from errors import SafetyStop


class Reason(Enum):
    """停下来的原因。值会写进日志，改名之前先搜一遍看板。"""

    STEPS = "steps"
    BUDGET = "budget"
    REPEAT = "repeat"
    ERRORS = "errors"
    CLOCK = "clock"


@dataclass(frozen=True)
class Verdict:
    """一次检查的结论。"""

    stop: bool
    reason: Reason | None = None
    detail: str = ""


class SafetyValve:
    """安全阀：agent 失去控制时跳闸的保险，步数或预算冲过上限就动作。

    整个项目里，安全阀只在这个文件定义一次，别处都是引用。
    什么情况下会跳闸？五种失去控制的样子，见到任意一种就停下：

    步数
        已经走了 max_steps 步。能做成的事，多半用不到这么多步。
    预算
        token 一个不剩。账在 TokenBudget 里，安全阀只看，不记。
    原地打转
        同一个工具、同样的参数，连续出现 repeat_limit 次。
    连错
        工具连着报错 error_limit 次，中间一次都没成。
    时钟
        从开工算起过了 max_seconds 秒。模型卡住时，前四条都不会动，
        要靠这一条兜底。

    安全阀跳闸以后不会自己复位。要接着做，得新开一个任务，
    让人看一眼它是怎样失去控制的，再决定给不给更多步数。

    子代理各有各的安全阀，步数分开数，预算却是同一本账，
    所以多派几个子代理绕不过去。
    """

    def __init__(
        self,
        budget: TokenBudget,
        *,
        max_steps: int = 12,
        repeat_limit: int = 3,
        error_limit: int = 5,
        max_seconds: float = 300.0,
        clock=time.monotonic,
    ) -> None:
        self.budget = budget
        self.max_steps = max_steps
        self.repeat_limit = repeat_limit
        self.error_limit = error_limit
        self.max_seconds = max_seconds
        self._clock = clock
        self._started = clock()
        self._steps = 0
        self._errors = 0
        self._recent: deque[str] = deque(maxlen=repeat_limit)
        self._closed: Verdict | None = None

    # ---- 循环里用到的三个入口 ----

    def before_step(self) -> None:
        """每一步开头调用。越线就抛 SafetyStop，没越线就把步数加一。"""
        verdict = self.check()
        if verdict.stop:
            raise SafetyStop(verdict.detail)
        self._steps += 1

    def saw_call(self, fingerprint: str) -> None:
        """记下一次工具调用的指纹（名字加参数）。"""
        self._recent.append(fingerprint)

    def saw_result(self, ok: bool) -> None:
        """记下一次工具调用成没成。成功一次，连错的计数就清零。"""
        self._errors = 0 if ok else self._errors + 1

    # ---- 判断 ----

    def check(self) -> Verdict:
        """看一遍五种情况。一旦跳闸，以后永远返回同一个结论。"""
        if self._closed is None:
            verdict = self._look()
            if verdict.stop:
                self._closed = verdict
            return verdict
        return self._closed

    def _look(self) -> Verdict:
        if self._steps >= self.max_steps:
            return Verdict(True, Reason.STEPS, f"已经走了 {self._steps} 步，上限 {self.max_steps}")
        if self.budget.exhausted:
            return Verdict(True, Reason.BUDGET, f"用掉 {self.budget.used} 个 token，上限 {self.budget.limit}")
        if self._spinning():
            return Verdict(True, Reason.REPEAT, f"同一个调用连续出现了 {self.repeat_limit} 次")
        if self._errors >= self.error_limit:
            return Verdict(True, Reason.ERRORS, f"工具连续报错 {self._errors} 次")
        spent = self._clock() - self._started
        if spent > self.max_seconds:
            return Verdict(True, Reason.CLOCK, f"已经跑了 {spent:.0f} 秒，上限 {self.max_seconds:.0f} 秒")
        return Verdict(False)

    def _spinning(self) -> bool:
        """最近 repeat_limit 次调用的指纹完全一样，才算原地打转。

        参数差一个空格也算不同的调用。宁可放过，不可错杀：
        翻页读文件时参数只差一个页码，那是正经干活。
        """
        full = len(self._recent) == self.repeat_limit
        return full and len(set(self._recent)) == 1

    # ---- 存盘与恢复 ----

    def snapshot(self) -> dict[str, object]:
        """写进检查点的内容。时钟不存：恢复之后重新计时。"""
        return {"steps": self._steps, "errors": self._errors, "recent": list(self._recent)}

    def restore(self, state: dict[str, object]) -> None:
        """从检查点恢复计数。步数接着数，不会因为重启就白送一轮。"""
        self._steps = int(state["steps"])
        self._errors = int(state["errors"])
        self._recent = deque(state["recent"], maxlen=self.repeat_limit)

    @property
    def steps(self) -> int:
        return self._steps
