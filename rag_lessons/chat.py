"""消息（和工具）→ 回答：智谱、OpenAI 兼容的服务、Anthropic，三家一个约定。

消息与回答的样子在 messages.py，重试和解读报错在 service.py（与嵌入共用）。网络说不准的事都摆在明处：
写满了、被内容安全拦下、一个字也没写，``Reply.problem`` 各有一句话；分段读到一半断了，已到的照给，最后抛出
ChatServiceError；工具的参数不是 JSON，``ToolCall.error`` 说明，不抛异常。

换模型用参数，或环境变量 RAG_LESSONS_ZHIPU_CHAT_MODEL、RAG_LESSONS_OPENAI_CHAT_MODEL、
RAG_LESSONS_ANTHROPIC_CHAT_MODEL（也可以写在 .env 里）。
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rag_lessons.messages import Message, Reply, ToolCall, Usage, check_messages, check_sendable, check_tools
from rag_lessons.service import Retry, Service, ServiceError
from rag_lessons.settings import get_key, get_setting, offline
from rag_lessons.types import RagLessonsError, check_number, check_whole, is_blank

__all__ = [
    "PRICES", "AnthropicChat", "Chat", "ChatServiceError", "ChatStream", "OpenAIChat", "Price", "Reply", "ToolCall",
    "Usage", "ZhipuChat", "get_chat",
]  # fmt: skip


class ChatServiceError(ServiceError):
    """对话服务没有给出可用的回答。属性见 ServiceError。"""


@dataclass(frozen=True)
class Price:
    """每百万 token 的价格；提示词超过 long_over 个 token 时，整次按后一档算。"""

    input: float
    output: float
    currency: str
    long_over: int | None = None
    long_input: float = 0.0
    long_output: float = 0.0


# 2026-12-01 查对，不含缓存、批量等折扣；没有列出的模型不算价钱。出处：
#   智谱：docs.bigmodel.cn 的“免费模型”两页（GLM-4.7-Flash、GLM-4-Flash-250414）与“GLM-4”页
#   OpenAI：developers.openai.com/api/docs/models/gpt-6-luna 与 gpt-5.6-luna
#   Anthropic：platform.claude.com/docs/en/models/haiku-5-5/overview（对比表里有 Sonnet 5.5、Opus 5.5）
PRICES = {
    "glm-4.7-flash": Price(0, 0, "元"),
    "glm-4-flash-250414": Price(0, 0, "元"),
    "glm-4-plus": Price(5, 5, "元"),
    "gpt-6-luna": Price(0.10, 0.50, "美元", 272_000, 0.20, 0.75),
    "gpt-5.6-luna": Price(0.20, 1.20, "美元", 272_000, 0.40, 1.80),
    "claude-haiku-5-5": Price(0.10, 0.50, "美元", 100_000, 0.50, 2.50),
    "claude-sonnet-5-5": Price(2, 10, "美元"),
    "claude-opus-5-5": Price(4, 20, "美元"),
}
# 三家对停下的原因各有说法
REASONS = {
    "end_turn": "stop", "stop_sequence": "stop",
    "max_tokens": "length", "model_context_window_exceeded": "length",
    "tool_use": "tool_calls", "function_call": "tool_calls",
    "content_filter": "sensitive", "refusal": "sensitive",
}  # fmt: skip


class Chat(Protocol):
    """能对话的东西。"""

    model: str

    def chat(self, messages: Sequence[Message], tools: Sequence[Message] | None = None) -> Reply: ...


class ServiceChat(Service):
    """三家共有的。

    参数
    ----
    model : 模型名；不写就取环境变量，再没有就是默认的。
    base_url : 服务地址；不写就取环境变量，再没有就是官方地址。
    api_key : 密钥；不写就取环境变量或 ``.env``。
    timeout : 多久没有动静就算超时，秒；分段读时是两段之间。
    retry : 重试的规矩，见 Retry；回答已经开始以后不重试。
    max_tokens : 最多写多少 token；不写由服务定（Anthropic 必须写，默认 8000）。
    extra : 另外放进请求里的项，例如 ``{"temperature": 0.1}``；盖过这里的默认。

    没有密钥、消息写得不对时抛出 RagLessonsError；服务出错时抛出 ChatServiceError。
    """

    error_type = ChatServiceError
    default_model: str
    model_setting: str
    url_setting: str

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        retry: Retry | None = None,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        model = model if model is not None else get_setting(self.model_setting) or self.default_model
        if not isinstance(model, str) or is_blank(model):
            raise RagLessonsError(f"model 要是模型名，收到 {model!r}；例如 {self.default_model!r}。")
        if check_number(timeout, "timeout") <= 0:
            raise RagLessonsError(f"timeout 要是正的秒数，收到 {timeout!r}。")
        if extra is not None and not isinstance(extra, Mapping):
            raise RagLessonsError("extra 要是字典，例如 {\"temperature\": 0.1}；没有就不写。")
        self.max_tokens = None if max_tokens is None else check_whole(max_tokens, "max_tokens ", least=1)
        self.extra = dict(extra or {})
        check_sendable(self.extra, "extra ")
        self._connect(model, base_url or get_setting(self.url_setting), api_key, timeout, retry)
        self._load_sdk()

    @property
    def name(self) -> str:
        """给人看的名字，例如 ``智谱 glm-4.7-flash``。"""
        return f"{self.provider} {self.model}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def chat(self, messages: Sequence[Message], tools: Sequence[Message] | None = None) -> Reply:
        """一问一答。回答不完整时不抛异常，看 ``Reply.problem``。"""
        body = self._body(check_messages(messages), check_tools(tools))
        with self._client() as client:
            return self._call(lambda: self._read(self._create(client, body)), _advice)

    def stream(self, messages: Sequence[Message]) -> ChatStream:
        """逐段读回答。消息当场检查，读第一段时才连接。"""
        return ChatStream(self, self._body(check_messages(messages), []) | {"stream": True})

    # 请求 -----------------------------------------------------------------------------------------

    def _body(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        """SDK 的参数。"""
        extra = {**({"max_tokens": self.max_tokens} if self.max_tokens else {}), **self.extra}
        return {"model": self.model, "messages": messages, **({"tools": tools} if tools else {}), "extra_body": extra}

    def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return client.chat.completions.create(**body)

    # 回复 -----------------------------------------------------------------------------------------

    def _read(self, reply: Any) -> Reply:
        """SDK 的回复 → Reply。"""
        choice = _first(getattr(reply, "choices", None))
        message = getattr(choice, "message", None)
        if message is None:
            raise self._nothing("choices", reply)
        calls = []
        for number, call in enumerate(getattr(message, "tool_calls", None) or []):
            function = getattr(call, "function", None)
            raw = getattr(function, "arguments", None) or ""
            raw = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
            calls.append(ToolCall.parse(getattr(call, "id", None) or f"call_{number}", _text(getattr(function, "name", None)), raw))
        refused = "sensitive" if getattr(message, "refusal", None) else None
        return self._reply(_text(getattr(message, "content", None)), calls, reply, refused or getattr(choice, "finish_reason", None))

    def _reply(self, text: str, calls: list[ToolCall], reply: Any, reason: object) -> Reply:
        reason = _reason(reason) or "stop"
        if reason == "network_error":           # 智谱：推理中途出错，再来一次就好
            raise ChatServiceError(f"{self.provider}（{self.model}）推理中途出错，试过几次仍不行；请过几分钟再运行。", retryable=True)
        reason = "tool_calls" if calls and reason == "stop" else reason
        model = _text(getattr(reply, "model", None)) or self.model
        return Reply(text, tuple(calls), self._usage(*_tokens(getattr(reply, "usage", None))), reason, model)

    def _nothing(self, what: str, reply: Any) -> ChatServiceError:
        _, said = self._details({"error": getattr(reply, "error", None) or {}})
        return ChatServiceError(
            f"{self.provider}（{self.model}）的回复里没有 {what}；请检查 base_url 是不是对话服务的地址。"
            + (f" 服务的原话：{said}" if said else "")
        )

    def _usage(self, prompt: int, completion: int) -> Usage | None:
        if not prompt and not completion:       # 服务没有报
            return None
        price = PRICES.get(self.model.lower())
        if price is None:
            return Usage(prompt, completion)
        long = price.long_over is not None and prompt > price.long_over
        rates = (price.long_input, price.long_output) if long else (price.input, price.output)
        return Usage(prompt, completion, (prompt * rates[0] + completion * rates[1]) / 1e6, price.currency)

    def _pieces(self, stream: Any) -> Iterator[tuple[str, str, tuple[int, int], str]]:
        """SDK 的一段段 → （文字, 停下的原因, 用量, 模型），没有的是空。"""
        for chunk in stream:
            choice = _first(getattr(chunk, "choices", None))
            text = _text(getattr(getattr(choice, "delta", None), "content", None))
            yield text, _reason(getattr(choice, "finish_reason", None)), _tokens(getattr(chunk, "usage", None)), _text(getattr(chunk, "model", None))


class ChatStream:
    """边写边读的回答：逐段给出文字；读完以后 ``.reply`` 是完整的 Reply，之前是 None。

    断了、写满了、被拦下、没有内容：已到的文字照给，最后抛出 ChatServiceError，
    ``.reply`` 是收到的部分（断了的，finish_reason 是 "interrupted"）。
    """

    def __init__(self, chat: ServiceChat, body: dict[str, Any]) -> None:
        self.reply: Reply | None = None
        self._texts = self._run(chat, body)

    def __iter__(self) -> Iterator[str]:
        return self._texts

    def __next__(self) -> str:
        return next(self._texts)

    def close(self) -> None:
        """不想读下去了：断开连接。"""
        self._texts.close()

    def _run(self, chat: ServiceChat, body: dict[str, Any]) -> Generator[str]:
        text, reason, prompt, completion, model, failure = "", "", 0, 0, chat.model, None
        with chat._client() as client:
            pieces = chat._pieces(chat._call(lambda: chat._create(client, body), _advice))
            try:
                while (piece := chat._translated(lambda: next(pieces, None), _advice)) is not None:
                    text += piece[0]
                    reason, model = piece[1] or reason, piece[3] or model
                    prompt, completion = max(prompt, piece[2][0]), max(completion, piece[2][1])
                    if piece[0]:
                        yield piece[0]
            except ServiceError as error:
                failure = error
        if failure is None and reason not in ("", "network_error"):
            self.reply = Reply(text, (), chat._usage(prompt, completion), reason, model)
            if self.reply.problem:
                raise ChatServiceError(self.reply.problem)
            return
        self.reply = Reply(text, (), chat._usage(prompt, completion), "interrupted", model)
        got = f"只收到前 {len(text)} 个字符" if text else "一个字也没有收到"
        if failure is None:
            advice = "请再试一次；还不行就检查 base_url 是不是对话服务的地址。"
            raise ChatServiceError(f"{chat.provider}（{chat.model}）没有说完就断了，{got}；{advice}", retryable=True)
        raise ChatServiceError(f"回答中途断了，{got}：{failure}", failure.status, failure.code, failure.retryable)


# --- 三家 ---------------------------------------------------------------------------------------------

class ZhipuChat(ServiceChat):
    """智谱的对话服务，走官方 SDK ``zhipuai``；默认的 glm-4.7-flash 免费。参数见 ServiceChat。"""

    provider = "智谱"
    sdk = "zhipuai", "ZhipuAI"
    key_name = "ZHIPUAI_API_KEY"
    default_model = "glm-4.7-flash"
    model_setting, url_setting = "RAG_LESSONS_ZHIPU_CHAT_MODEL", "ZHIPUAI_BASE_URL"

    def _body(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        body = super()._body(messages, tools)
        # 文档“思考模式”页：4.5 至 5.2 默认先想一遍，又慢又算 token，用工具时还要把想的原样交回，所以关掉；5.3 起关不掉
        if re.match(r"glm-(4\.[5-9]|5(\.[012])?)(?![.\d])", self.model.lower()):
            body["extra_body"] = {"thinking": {"type": "disabled"}, **body["extra_body"]}
        return body


class OpenAIChat(ServiceChat):
    """OpenAI 兼容的对话服务：OpenAI、Ollama、vLLM、LM Studio、各家云。给了 base_url 时可以没有密钥。参数见 ServiceChat。"""

    provider = "OpenAI 兼容服务"
    sdk = "openai", "OpenAI"
    key_name = "OPENAI_API_KEY"
    default_model = "gpt-6-luna"
    model_setting, url_setting = "RAG_LESSONS_OPENAI_CHAT_MODEL", "OPENAI_BASE_URL"

    def __init__(self, model: str | None = None, base_url: str | None = None, **options: Any) -> None:
        self.key_optional = bool(base_url or get_setting(self.url_setting))
        super().__init__(model, base_url, **options)

    def _body(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        body = super()._body(messages, tools)
        extra = body["extra_body"]
        if self.max_tokens and re.match(r"gpt-[5-9]|o\d", self.model):     # 官方的推理模型不认 max_tokens
            extra["max_completion_tokens"] = extra.pop("max_tokens")
        if tools and re.match(r"gpt-(5\.[4-9]|6)", self.model):     # 模型页：在这个接口里，关掉推理才能用工具
            body["extra_body"] = {"reasoning_effort": "none", **extra}
        return body

    def _create(self, client: Any, body: dict[str, Any]) -> Any:
        usage = {"stream_options": {"include_usage": True}} if body.get("stream") else {}
        return super()._create(client, body | usage)


class AnthropicChat(ServiceChat):
    """Anthropic 的对话服务，走官方 SDK ``anthropic``。参数见 ServiceChat。"""

    provider = "Anthropic"
    sdk = "anthropic", "Anthropic"
    key_name = "ANTHROPIC_API_KEY"
    default_model = "claude-haiku-5-5"
    model_setting, url_setting = "RAG_LESSONS_ANTHROPIC_CHAT_MODEL", "ANTHROPIC_BASE_URL"

    def _body(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        functions = [tool["function"] for tool in tools]
        # Haiku 默认先想一遍，想的也算进 max_tokens；这里用不着。别的型号有的关不掉，不动它
        quiet = {"thinking": {"type": "disabled"}} if self.model.startswith("claude-haiku-") else {}
        body = {"model": self.model, "messages": _to_anthropic(messages), "max_tokens": self.max_tokens or 8000}
        body |= {"system": system} if system else {}
        body |= {"tools": [
            {"name": f["name"], "description": f.get("description") or "",
             "input_schema": f.get("parameters") or {"type": "object", "properties": {}}}
            for f in functions
        ]} if functions else {}  # fmt: skip
        return {**body, "extra_body": {**quiet, **self.extra}}

    def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return client.messages.create(**body)

    def _read(self, reply: Any) -> Reply:
        blocks = getattr(reply, "content", None)
        if not isinstance(blocks, list):
            raise self._nothing("content", reply)
        text, calls = "", []
        for block in blocks:
            kind = getattr(block, "type", "")
            text += _text(block.text) if kind == "text" else ""
            if kind == "tool_use":
                calls.append(ToolCall.parse(block.id, block.name, json.dumps(block.input, ensure_ascii=False)))
        return self._reply(text, calls, reply, getattr(reply, "stop_reason", None))

    def _pieces(self, stream: Any) -> Iterator[tuple[str, str, tuple[int, int], str]]:
        for event in stream:
            start, delta = getattr(event, "message", None), getattr(event, "delta", None)
            usage = _tokens(getattr(event, "usage", None) or getattr(start, "usage", None))
            yield _text(getattr(delta, "text", None)), _reason(getattr(delta, "stop_reason", None)), usage, _text(getattr(start, "model", None))


def _to_anthropic(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI 的写法 → Anthropic 的：系统提示另放，工具的结果算 user 说的，接连的同一方合成一条。"""
    result: list[dict[str, Any]] = []
    for message in messages:
        text = message["content"]
        if message["role"] == "tool":
            blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
        else:
            blocks = [] if is_blank(text) else [{"type": "text", "text": text}]
        for call in message.get("tool_calls", []):
            function = call["function"]
            asked = ToolCall.parse(call["id"], function["name"], function["arguments"])
            blocks.append({"type": "tool_use", "id": asked.id, "name": asked.name, "input": asked.arguments})
        role = "assistant" if message["role"] == "assistant" else "user"
        if result and result[-1]["role"] == role:
            result[-1]["content"] += blocks
        elif message["role"] != "system":
            result.append({"role": role, "content": blocks})
    return result


def get_chat(name: str = "auto") -> ServiceChat | None:
    """按名字取一家对话服务。

    参数
    ----
    name : ``"zhipu"``、``"openai"``、``"anthropic"``，或 ``"auto"``：依次看哪家有密钥（OpenAI 也可以是设了
        OPENAI_BASE_URL 和模型名的本机服务），都没有就是 None；设了 RAG_LESSONS_OFFLINE 也是 None。
    """
    homes = {"zhipu": ZhipuChat, "openai": OpenAIChat, "anthropic": AnthropicChat}
    if isinstance(name, str) and name in homes:
        return homes[name]()
    if name != "auto":
        raise RagLessonsError(f"没有叫 {name!r} 的对话服务；可选 auto、zhipu、openai、anthropic。")
    for kind in () if offline() else homes.values():
        local = kind is OpenAIChat and get_setting(kind.url_setting) and get_setting(kind.model_setting)
        if (get_key(kind.key_name) or local) and importlib.util.find_spec(kind.sdk[0]):
            return kind()
    return None


def _first(choices: object) -> Any:
    return choices[0] if isinstance(choices, list) and choices else None


def _reason(value: object) -> str:
    return REASONS.get(value, value) if isinstance(value, str) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tokens(usage: Any) -> tuple[int, int]:
    """三家的用量 → （输入, 输出）的 token 数；没有报的是 0。"""
    def count(*names: str) -> int:
        values = [getattr(usage, name, None) for name in names]
        return sum(value for value in values if isinstance(value, int))

    prompt = count("prompt_tokens", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return prompt, count("completion_tokens", "output_tokens")


def _advice(said: str) -> str:
    if re.search(r"(?i)1261|超长|too.?long|too.?large|context.?length|maximum context", said):
        return "提示词太长了，请少放几段资料，或换一个上下文更长的模型。"
    return "请检查模型名、消息和工具的写法。"
