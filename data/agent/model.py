"""和模型说话。

循环只认一个约定：chat(messages, tools) 返回一个 Reply。
离线剧本、真服务、主备切换，都是这个约定的实现，可以一层套一层。
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from budget import estimate_messages, estimate_tokens
from errors import AuthError, BadReply, ModelUnavailable, RateLimited
from log import get_logger
from ratelimit import TokenBucket
from retry import call_with_retry

logger = get_logger("model")


@dataclass(frozen=True)
class ToolCall:
    """模型想用一次工具。id 由模型给，答复时要原样带回去。"""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """模型的一轮回复：一段文字，零个或多个工具调用，用掉的 token。"""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: int = 0


class Model(Protocol):
    """所有模型的样子。"""

    name: str

    def chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> Reply: ...


class ScriptedModel:
    """照剧本念台词的模型：离线演示和测试都靠它。

    剧本是一串 Reply，或者一串「看着消息给出 Reply」的函数。
    念完还被问，就重复最后一句，不抛错，这样可以演出「停不下来」的样子。
    """

    def __init__(self, script: Sequence[Reply | Callable[[Sequence[dict]], Reply]], name: str = "scripted") -> None:
        if not script:
            raise ValueError("剧本不能是空的")
        self.name = name
        self._script = list(script)
        self._at = 0

    def chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> Reply:
        line = self._script[min(self._at, len(self._script) - 1)]
        self._at += 1
        reply = line(messages) if callable(line) else line
        if reply.tokens:
            return reply
        tokens = estimate_messages(list(messages)) + estimate_tokens(reply.text)
        return Reply(reply.text, reply.calls, tokens)


class HttpModel:
    """兼容 chat/completions 的服务。只用标准库，够用就好。"""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str,
        *,
        temperature: float = 0.2,
        timeout: float = 60.0,
        bucket: TokenBucket | None = None,
    ) -> None:
        self.name = name
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = api_key
        self._temperature = temperature
        self._timeout = timeout
        self._bucket = bucket or TokenBucket()

    def chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> Reply:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": list(messages),
            "temperature": self._temperature,
        }
        if tools:
            body["tools"] = [{"type": "function", "function": t} for t in tools]
        return call_with_retry(lambda: self._send(body), what=f"模型 {self.name} ")

    def _send(self, body: dict[str, Any]) -> Reply:
        self._bucket.take()
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body, ensure_ascii=False).encode("utf-8"),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                payload = json.loads(response.read().decode("utf-8"))
        except urllib.error.HTTPError as exc:
            raise _explain(exc) from exc
        except (urllib.error.URLError, TimeoutError) as exc:
            raise ModelUnavailable(f"{self.name} 连不上：{exc}") from exc
        except ValueError as exc:
            raise BadReply(f"{self.name} 回的不是 JSON") from exc
        return parse_reply(payload)


def _explain(exc: urllib.error.HTTPError) -> Exception:
    """状态码翻译成我们自己的异常。"""
    if exc.code in (401, 403):
        return AuthError("密钥不对或已过期")
    if exc.code == 429:
        return RateLimited("服务说慢一点")
    if exc.code >= 500:
        return ModelUnavailable(f"服务回了 {exc.code}")
    return BadReply(f"服务回了 {exc.code}")


def parse_reply(payload: dict[str, Any]) -> Reply:
    """把服务的 JSON 拆成 Reply。参数不是合法 JSON 时抛 BadReply。"""
    try:
        message = payload["choices"][0]["message"]
        calls = tuple(
            ToolCall(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"] or "{}"))
            for c in message.get("tool_calls") or ()
        )
    except (KeyError, IndexError, TypeError, json.JSONDecodeError) as exc:
        raise BadReply(f"回复的格式不对：{exc!r}") from exc
    tokens = int((payload.get("usage") or {}).get("total_tokens", 0))
    return Reply(message.get("content") or "", calls, tokens)


class FallbackModel:
    """一主一备。

    降级：主模型连续 3 次报错就切到 backup，10 分钟后再探一次主模型，好了就切回来。
    单独一两次报错不切：偶尔抖一下很正常，而备用模型毕竟笨一些。
    密钥不对不算，那要人去修，换一个模型只会把问题藏起来。
    """

    TRIES = 3
    PROBE_SECONDS = 600.0

    def __init__(self, main: Model, backup: Model, clock: Callable[[], float] = time.monotonic) -> None:
        self.main = main
        self.backup = backup
        self._clock = clock
        self._errors = 0
        self._switched_at: float | None = None

    @property
    def name(self) -> str:
        return self.backup.name if self._on_backup() else self.main.name

    def _on_backup(self) -> bool:
        if self._switched_at is None:
            return False
        return self._clock() - self._switched_at < self.PROBE_SECONDS

    def chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> Reply:
        if self._on_backup():
            return self.backup.chat(messages, tools)
        while True:
            try:
                reply = self.main.chat(messages, tools)
            except (ModelUnavailable, RateLimited, BadReply) as exc:
                self._errors += 1
                logger.warning("主模型 %s 第 %d 次报错：%s", self.main.name, self._errors, exc)
                if self._errors < self.TRIES:
                    continue
                self._errors = self.TRIES - 1  # 下次探测只给一次机会
                self._switched_at = self._clock()
                return self.backup.chat(messages, tools)
            self._errors = 0
            self._switched_at = None
            return reply
