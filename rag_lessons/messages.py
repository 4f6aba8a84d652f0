"""消息与回答的样子，和发送之前的检查；不联网。

消息一律用 OpenAI 的写法：``{"role": "system" | "user" | "assistant" | "tool", "content": 文字}``，
工具也是：``{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}``。
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_lessons.types import RagLessonsError, is_blank

Message = Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """模型要用一次工具。

    参数
    ----
    id : 这一次的编号；结果用 ``{"role": "tool", "tool_call_id": id, "content": ...}`` 交回去。
    name : 工具的名字。
    arguments : 参数；读不懂时是空字典，error 里有原因。
    raw : 收到的原文。
    error : 参数哪里不对，可以直接交给模型看；没有错时是 ""。

    >>> ToolCall.parse("1", "search", '{"query": "安全阀"}').arguments
    {'query': '安全阀'}
    >>> ToolCall.parse("1", "search", '{"query": "安').error
    '参数不是完整的 JSON；请重新给出。'
    """

    id: str
    name: str
    arguments: dict[str, Any] = field(hash=False)
    raw: str = ""
    error: str = ""

    @classmethod
    def parse(cls, id: str, name: str, raw: str) -> ToolCall:
        """读参数的原文；没有参数（空白）算空字典。"""
        try:
            value = json.loads(raw) if raw.strip() else {}
        except (ValueError, RecursionError):
            return cls(id, name, {}, raw, "参数不是完整的 JSON；请重新给出。")
        if not isinstance(value, dict):
            return cls(id, name, {}, raw, "参数要是一个 JSON 对象；请重新给出。")
        return cls(id, name, value, raw)


@dataclass(frozen=True)
class Usage:
    """一次调用的 token 数和价钱。cost 按原价算，不知道价格时是 None。

    >>> print(Usage(1200, 300, 0.0075, "元"))
    输入 1200 + 输出 300 = 1500 token，0.0075 元
    """

    prompt: int
    completion: int
    cost: float | None = None
    currency: str = ""

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __str__(self) -> str:
        money = "价格未知" if self.cost is None else f"{self.cost:.6f}".rstrip("0").rstrip(".") + f" {self.currency}"
        return f"输入 {self.prompt} + 输出 {self.completion} = {self.total} token，{money}"


@dataclass(frozen=True)
class Reply:
    """模型的一次回答。

    参数
    ----
    text : 文字；要用工具时常是 ""。
    tool_calls : 要用的工具。
    usage : token 数与价钱；服务没有报时是 None。
    finish_reason : 为什么停下："stop"（说完了）、"length"（写满了）、"tool_calls"、"sensitive"（内容安全）、
        "interrupted"（分段读到一半断了），或服务的原话。
    model : 服务说是哪个模型答的。
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str = "stop"
    model: str = ""

    @property
    def problem(self) -> str:
        """不能当作完整回答的原因，一句话；没有问题时是 ""。

        >>> Reply("甲乙", finish_reason="length").problem
        '回答写到长度上限就停了，只有前 2 个字符；请少放几段资料，或把 max_tokens 调大。'
        """
        if self.finish_reason == "sensitive":
            return "模型因为内容安全停下了，没有给出完整的回答；请换一种问法，或去掉涉及的文字。"
        if self.finish_reason == "length":
            return f"回答写到长度上限就停了，只有前 {len(self.text)} 个字符；请少放几段资料，或把 max_tokens 调大。"
        if self.finish_reason == "interrupted":
            return f"回答中途断了，只收到前 {len(self.text)} 个字符；请再试一次。"
        if is_blank(self.text) and not self.tool_calls:
            return "模型没有写任何内容；请再试一次，或换一个模型。"
        return ""

    @property
    def message(self) -> dict[str, Any]:
        """写回对话的消息（OpenAI 的写法）。读不懂的参数换成空对象：原文会让下一次请求被拒。"""
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": "{}" if c.error else c.raw or "{}"}}
            for c in self.tool_calls
        ]
        return {"role": "assistant", "content": self.text, **({"tool_calls": calls} if calls else {})}


# --- 发送之前的检查 -----------------------------------------------------------------------------------

def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """发送之前检查消息，返回只含约定各项的副本；哪一条不对就抛出 RagLessonsError。"""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise RagLessonsError("messages 要是消息的列表，例如 [{\"role\": \"user\", \"content\": \"你好\"}]。")
    checked: list[dict[str, Any]] = []
    waiting: list[str] = []                     # 还没有交回结果的工具调用
    for number, message in enumerate(messages, 1):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ("system", "user", "assistant", "tool"):
            raise RagLessonsError(f"第 {number} 条消息的 role 要是 system、user、assistant 或 tool，收到 {role!r}。")
        calls = message.get("tool_calls") or [] if role == "assistant" else []
        content = message.get("content")
        content = "" if content is None and calls else content
        if not isinstance(content, str):
            raise RagLessonsError(f"第 {number} 条消息（{role}）的 content 要是字符串，收到的是 {type(content).__name__}。")
        if is_blank(content) and role != "tool" and not calls:
            raise RagLessonsError(f"第 {number} 条消息（{role}）是空白的；请写上内容，或去掉这一条。")
        if role == "system" and any(m["role"] != "system" for m in checked):
            raise RagLessonsError(f"第 {number} 条消息是 system，要放在最前面。")
        if waiting and role != "tool":
            raise RagLessonsError(f"第 {number} 条消息之前，工具调用 {waiting[0]} 还没有结果；请先放一条 role 为 tool 的消息。")
        entry = {"role": role, "content": content}
        if role == "tool":
            entry["tool_call_id"] = message.get("tool_call_id")
            if entry["tool_call_id"] not in waiting:
                raise RagLessonsError(f"第 {number} 条消息的 tool_call_id 对不上前面的工具调用，收到 {entry['tool_call_id']!r}。")
            waiting.remove(entry["tool_call_id"])
        if calls:
            entry["tool_calls"] = [_check_call(number, call) for call in (calls if isinstance(calls, Sequence) else [calls])]
            waiting = [call["id"] for call in entry["tool_calls"]]
        check_sendable(entry, f"第 {number} 条消息（{role}）")
        checked.append(entry)
    if waiting or checked[-1]["role"] not in ("user", "tool"):
        raise RagLessonsError("最后一条消息要是 user 的话，或工具的结果（tool），模型才有话可答。")
    return checked


def check_sendable(value: object, what: str) -> None:
    """写得成 JSON 才发得出去：不成对的代理字符、集合、函数之类都不行。"""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise RagLessonsError(f"{what}含有不成对的代理字符，发不出去；请用正确的编码重新读那份文件。") from None
    except (TypeError, ValueError, RecursionError):
        raise RagLessonsError(f"{what}里有写不成 JSON 的东西，发不出去；请只用文字、数字、真假、列表和字典。") from None


def _check_call(number: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    function = function if isinstance(function, Mapping) else {}
    parts = [call.get("id") if isinstance(call, Mapping) else None, function.get("name"), function.get("arguments")]
    if not all(isinstance(part, str) for part in parts) or ToolCall.parse(*parts).error:
        raise RagLessonsError(f"第 {number} 条消息的 tool_calls 不合约定；请直接用 Reply.message 写回对话。")
    return {"id": parts[0], "type": "function", "function": {"name": parts[1], "arguments": parts[2]}}


def check_tools(tools: Sequence[Message] | None) -> list[dict[str, Any]]:
    """检查工具的写法；没有工具（None 或空列表）返回空列表。"""
    tools = [] if tools is None else tools
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise RagLessonsError(f"tools 要是工具的列表，收到的是 {type(tools).__name__}；没有工具就不写。")
    names: list[str] = []
    for number, tool in enumerate(tools, 1):
        function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or name in names:
            raise RagLessonsError(
                f"第 {number} 个工具要写成 {{\"type\": \"function\", \"function\": {{\"name\": ..., \"parameters\": ...}}}}，"
                f"名字用字母、数字、_ 和 -，不能重名；收到的名字是 {name!r}。"
            )
        check_sendable(tool, f"第 {number} 个工具")
        names.append(name)
    return [dict(tool) for tool in tools]
