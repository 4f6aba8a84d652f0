"""事件总线：循环里发生了什么，谁想听就订阅。

循环本身不该知道有没有人在看。终端想打印进度，测试想数次数，
以后也许还有网页想画图，都在这里登记一个回调，循环一行都不用改。
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from log import get_logger

logger = get_logger("events")

#: 所有事件的名字。写成常量，拼错了当场就能发现。
TASK_START = "task.start"
STEP_START = "step.start"
MODEL_REPLY = "model.reply"
TOOL_CALL = "tool.call"
TOOL_RESULT = "tool.result"
MEMORY_COMPRESS = "memory.compress"
SUBAGENT_START = "subagent.start"
SUBAGENT_END = "subagent.end"
TASK_END = "task.end"

KNOWN = frozenset(
    {
        TASK_START,
        STEP_START,
        MODEL_REPLY,
        TOOL_CALL,
        TOOL_RESULT,
        MEMORY_COMPRESS,
        SUBAGENT_START,
        SUBAGENT_END,
        TASK_END,
    }
)


def trace_id(session: str, step: int, today: dt.date | None = None) -> str:
    """追踪编号由日期、会话编号与步号拼成，步号补足两位。

    一个任务从头到尾，日志、事件、检查点都带着它。

    >>> trace_id("s7", 3, dt.date(2025, 3, 14))
    '20250314-s7-03'
    """
    today = today or dt.date.today()
    return f"{today:%Y%m%d}-{session}-{step:02d}"


@dataclass(frozen=True)
class Event:
    """一件已经发生的事。data 里只放能写成 JSON 的东西。"""

    name: str
    trace: str
    data: dict[str, Any] = field(default_factory=dict)


class EventBus:
    """最简单的发布与订阅：同步、有序、不丢。"""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Callable[[Event], None]]] = []

    def subscribe(self, listener: Callable[[Event], None], name: str = "*") -> Callable[[], None]:
        """登记一个回调；name 写事件的名字，或者 ``*`` 表示全都要。返回一个用来退订的函数。"""
        if name != "*" and name not in KNOWN:
            raise ValueError(f"没有叫 {name} 的事件")
        entry = (name, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def emit(self, name: str, trace: str, /, **data: Any) -> Event:
        """发一个事件。某个回调抛了异常只记日志，不连累别的回调，更不连累循环。"""
        if name not in KNOWN:
            raise ValueError(f"没有叫 {name} 的事件")
        event = Event(name, trace, data)
        for wanted, listener in list(self._listeners):
            if wanted in ("*", name):
                try:
                    listener(event)
                except Exception:
                    logger.exception("事件 %s 的回调出错", name)
        return event
