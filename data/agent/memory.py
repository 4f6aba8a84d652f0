"""短期记忆：这一次任务里说过的话。

模型自己不记事，每一轮都要把历史整个再发一遍。历史越来越长，
钱越花越多，最后连窗口都装不下，所以得有人负责收拾。

长期的、跨任务的东西不归这里管，见 notes.py。
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from budget import estimate_messages, estimate_tokens
from log import get_logger
from utils import clip

logger = get_logger("memory")

Message = dict[str, Any]

#: 摘要最多这么多字。再长就和没压一样了。
SUMMARY_CHARS = 600

SUMMARY_HEAD = "（以下是此前对话的摘要）"


def plain_summary(messages: Sequence[Message]) -> str:
    """不用模型的摘要：每条取开头一小段，拼起来。

    离线时用它。它不聪明，但从不编造：留下的每个字都是原来有的。
    """
    lines = []
    for message in messages:
        text = str(message.get("content") or "").strip()
        if not text:
            continue
        head = text.splitlines()[0]
        lines.append(f"{message['role']}：{head[:40]}")
    return clip("\n".join(lines), SUMMARY_CHARS)


def _wire(call: Any) -> dict[str, Any]:
    """工具调用按对话服务的格式存，发的时候就不用再转。"""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


class Memory:
    """一串消息，加上什么时候收拾、怎样收拾。

    system 消息单独放，永远在最前面，永远不参加压缩。
    """

    def __init__(
        self,
        system: str,
        *,
        window: int = 8000,
        compress_at: float = 0.7,
        keep_recent: int = 6,
        summarise: Callable[[Sequence[Message]], str] = plain_summary,
        on_compress: Callable[[int, int], None] | None = None,
    ) -> None:
        if keep_recent < 2:
            raise ValueError("keep_recent 至少是 2，一问一答总要留着")
        self.system = system
        self.window = window
        self.compress_at = compress_at
        self.keep_recent = keep_recent
        self._summarise = summarise
        self._on_compress = on_compress
        self._messages: list[Message] = []
        self.compressions = 0

    # ---- 往里添 ----

    def add_user(self, text: str) -> None:
        self._add({"role": "user", "content": text})

    def add_assistant(self, text: str, calls: Sequence[Any] = ()) -> None:
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [_wire(c) for c in calls]
        self._add(message)

    def add_tool(self, call_id: str, text: str) -> None:
        self._add({"role": "tool", "tool_call_id": call_id, "content": text})

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        if self.tokens > self.window * self.compress_at:
            self.compress()

    # ---- 往外拿 ----

    @property
    def tokens(self) -> int:
        return estimate_messages(self._messages)

    def messages(self) -> list[Message]:
        """发给模型的完整列表。每次都是新的，改它不影响记忆。"""
        head = {"role": "system", "content": self.system}
        return [head, *(dict(m) for m in self._messages)]

    # ---- 收拾 ----

    def compress(self) -> bool:
        """腾地方。真的压了返回 True。

        记忆压缩：历史占到窗口的 70% 就动手，旧消息合成一段摘要，最近 6 条原样保留。
        这两个数都能在 agent.toml 的 [memory] 里改。

        切口不能落在工具的答复上：答复离开了它的调用，服务会拒收整个列表。
        遇到这种情况就把切口往前挪，多留几条。

        摘要再参加下一轮压缩时，会和别的旧消息一起重新摘一次，
        所以很早的细节会越来越淡。要紧的事请用 remember 记进笔记。
        """
        cut = len(self._messages) - self.keep_recent
        while cut > 0 and self._messages[cut]["role"] == "tool":
            cut -= 1
        if cut <= 1:
            return self._shrink_longest()
        old, recent = self._messages[:cut], self._messages[cut:]
        before = self.tokens
        summary = self._summarise(old)
        self._messages = [{"role": "user", "content": f"{SUMMARY_HEAD}\n{summary}"}, *recent]
        self._report(before)
        return True

    def _shrink_longest(self) -> bool:
        """条数不多、却有一条特别长（往往是读了个大文件）：只把那一条剪短。"""
        if not self._messages:
            return False
        longest = max(self._messages, key=lambda m: estimate_tokens(str(m.get("content") or "")))
        text = str(longest["content"])
        if len(text) <= SUMMARY_CHARS:
            return False
        before = self.tokens
        longest["content"] = clip(text, SUMMARY_CHARS)
        self._report(before)
        return True

    def _report(self, before: int) -> None:
        self.compressions += 1
        logger.info("压缩历史：%d → %d token", before, self.tokens)
        if self._on_compress:
            self._on_compress(before, self.tokens)

    # ---- 存盘与恢复 ----

    def snapshot(self) -> dict[str, Any]:
        """写进检查点的内容，全是能变成 JSON 的东西。"""
        return {"system": self.system, "messages": [dict(m) for m in self._messages]}

    def restore(self, state: dict[str, Any]) -> None:
        """从检查点恢复。system 用存下来的那一份，保证前后口径一致。"""
        self.system = state["system"]
        self._messages = [dict(m) for m in state["messages"]]
