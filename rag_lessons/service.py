"""网络服务的公共部分：嵌入（embedding/api.py）和对话（chat.py）都用它。

网络会出错，这里只做三件事：

* 该重试的重试（限流、5xx、超时、断线），等待时间逐次翻倍、带随机、有上限；密钥错、参数错不重试；
* 把报错翻成一句话，里面没有密钥；
* 每次调用用一个客户端，用完就关。

官方 SDK 自己也会重试（智谱默认三次），与这里的相乘就太多了，所以关掉它们的。
业务码的出处：智谱开放平台文档“错误码”页。1301 是内容敏感，1302 是并发过高，1303 是太频繁，1305 是平台过载。
"""

from __future__ import annotations

import importlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rag_lessons.settings import clean_key, explain_key, get_key
from rag_lessons.types import RagLessonsError

log = logging.getLogger(__name__)

T = TypeVar("T")

# 这些业务码是欠费、违规、额度用完：等多久都没有用
HOPELESS_CODES = frozenset(
    {"1113", "1121", "1304", "1308", "1309", "1310", "1311", "1313", "insufficient_quota", "billing_error"}
)
SENSITIVE_CODES = frozenset({"1301", "content_filter"})
KEY_CODES = frozenset({"1000", "1001", "1002", "1003", "1004", "authentication_error"})
# 报错夹在已经开始的回答里（HTTP 200）时，只能凭这些码看出是一时的
BUSY_CODES = frozenset(
    {"500", "1200", "1230", "1234", "1302", "1303", "1305", "1312", "api_error", "overloaded_error", "rate_limit_error",
     "rate_limit_exceeded", "server_error"}
)
# 连不上就早点说；建好连接以后再慢慢等
CONNECT_TIMEOUT = 8.0
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


class ServiceError(RagLessonsError):
    """网络服务没有给出可用的结果。

    属性
    ----
    status : HTTP 状态码；没有收到回复时是 None。
    code : 服务商的业务码，例如 "1302"；没有时是 ""。
    retryable : 等一会儿再试有没有用。
    retry_after : 服务要求等几秒；没有要求时是 0。
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        code: str = "",
        retryable: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True)
class Retry:
    """重试的规矩。默认最多等约 15 至 23 秒，分四次。

    参数
    ----
    attempts : 一次请求最多试几回（含第一回）。
    first_wait : 第一次重试前等几秒；以后每次翻倍，再加零到一半的随机，免得全班同时重来。
    longest_wait : 一次最多等几秒（服务用 Retry-After 要求更久时也以它为限）。
    total : 一次请求从开始到放弃最多几秒。
    sleep : 用什么来等；测试时可以换成只记录不等待的函数。
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 20.0
    total: float = 90.0
    sleep: Callable[[float], object] = time.sleep

    def wait(self, attempt: int, asked: float = 0.0) -> float:
        """第 attempt 次失败之后等几秒；asked 是服务要求的秒数。

        >>> rule = Retry(first_wait=1, longest_wait=100)
        >>> waits = [rule.wait(n) for n in (1, 2, 3)]
        >>> 1 <= waits[0] <= 1.5 and 2 <= waits[1] <= 3 and 4 <= waits[2] <= 6
        True
        """
        grown = self.first_wait * 2 ** (attempt - 1) * (1 + random.uniform(0, 0.5))
        return min(max(grown, asked), self.longest_wait)


class Service:
    """一家网络服务：密钥、客户端、重试、解读报错。"""

    provider: str                                       # 报错里怎么称呼它
    sdk: tuple[str, str]                                # 官方的包，和里面的客户端类
    key_name: str                                       # 密钥的环境变量
    error_type: type[ServiceError] = ServiceError
    key_optional = False                                # 没有密钥也能用（本机的服务）

    def _connect(
        self, model: str, base_url: str | None, api_key: str | None, timeout: float, retry: Retry | None
    ) -> None:
        """记下设置，检查地址，找到密钥。没有密钥时抛出 RagLessonsError。"""
        check_address(base_url)
        self.model = model
        self.base_url = base_url
        self.timeout = timeout
        self.retry = retry or Retry()
        key = clean_key(api_key, self.key_name) if api_key is not None else get_key(self.key_name)
        if key is None and not self.key_optional:
            raise RagLessonsError(explain_key(self.key_name))
        self._key = key or "not-needed"

    def _load_sdk(self) -> type:
        """SDK 的客户端类；没有装时说怎么装。"""
        package, kind = self.sdk
        try:
            return getattr(importlib.import_module(package), kind)
        except ImportError:
            raise RagLessonsError(
                f"{type(self).__name__} 要用 {package} 这个包，现在没有装；请运行 python start.py --all，或 pip install {package}。"
            ) from None

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """一次调用用一个客户端，用完就关：不留连接，线程和 fork 都安全；建一个约 0.03 秒。"""
        try:
            import httpx

            timeout = httpx.Timeout(self.timeout, connect=min(self.timeout, CONNECT_TIMEOUT))
            host = urlsplit(self.base_url or "").hostname
            # 本机的服务不经过代理：系统里设的 HTTP_PROXY 多半到不了它
            http = httpx.Client(timeout=timeout, trust_env=host not in LOCAL_HOSTS)
            client = self._load_sdk()(
                api_key=self._key, base_url=self.base_url, timeout=timeout, max_retries=0, http_client=http
            )
        except ImportError as error:            # 设了 SOCKS 代理而没有 socksio，或 SDK 没装好
            missing = error.name or "socksio（系统设了 SOCKS 代理）"
            raise RagLessonsError(f"少一个包：{missing}；请用 pip 装上它，再重启内核。") from None
        with http:
            yield client

    def _call(self, request: Callable[[], T], advice: Callable[[str], str]) -> T:
        """发一次请求，按规矩重试。advice：服务说参数不对时，由它的原话给出建议。"""
        from tenacity import (
            RetryCallState,
            Retrying,
            retry_if_exception,
            stop_after_attempt,
            stop_before_delay,
        )

        def wait(state: RetryCallState) -> float:
            return self.retry.wait(state.attempt_number, state.outcome.exception().retry_after)

        def announce(state: RetryCallState) -> None:
            log.info("%s，%.1f 秒后再试", state.outcome.exception(), state.upcoming_sleep)

        attempts = Retrying(
            stop=stop_after_attempt(self.retry.attempts) | stop_before_delay(self.retry.total),
            wait=wait,
            retry=retry_if_exception(lambda error: getattr(error, "retryable", False)),
            sleep=self.retry.sleep,
            before_sleep=announce,
            reraise=True,
        )
        return attempts(self._translated, request, advice)

    def _translated(self, request: Callable[[], T], advice: Callable[[str], str]) -> T:
        """做一次；SDK 的异常种类很多，一律翻译。

        出了 except 再抛：异常链里不留 SDK 的异常，那里有请求对象，请求对象里有密钥。
        """
        try:
            return request()
        except RagLessonsError:
            raise
        except Exception as error:
            failure = self._translate(error, advice)
        raise failure

    # 报错 -----------------------------------------------------------------------------------------

    def _translate(self, error: Exception, advice: Callable[[str], str]) -> ServiceError:
        """SDK 的异常 → 一句中文。只取状态码、业务码和去掉密钥的原话。"""
        name = type(error).__name__
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        where = f"{self.provider}（{self.model}）"
        make = self.error_type
        if "Timeout" in name:
            return make(f"{where}在 {self.timeout:g} 秒内没有回复；请检查网络，或把 timeout 调大。", retryable=True)
        inside = _error_inside(error) if status is None or 200 <= status < 300 else None
        if inside is None and status is None and re.search("Connection|Protocol|ReadError|NetworkError", name):
            return make(f"连不上服务，或连接中途断了：{where}；请检查网络、代理和 base_url。", retryable=True)
        if inside is None and (status is None or 200 <= status < 300):
            return make(f"{where}的回复不是约定的 JSON（{name}）；请检查 base_url 是否写对。", status)
        code, said = self._details(inside if inside is not None else _json(response))
        label = "，".join(filter(None, [f"HTTP {status}" if status else "", f"业务码 {code}" if code else ""]))
        label = f"（{label}）" if label else ""
        said = f" 服务的原话：{said}" if said else ""
        if status in (401, 403) or code in KEY_CODES:
            # 原话里常有密钥的一部分，不转述
            return make(
                f"{where}不认这个密钥{label}；请检查密钥（{self.key_name} 或 api_key=）是否复制完整、是否过期、有没有这个模型的权限。",
                status, code,
            )
        if code in SENSITIVE_CODES:
            return make(
                f"{where}认为内容不安全或敏感，拒绝了{label}，等待没有用；请换一种问法，或去掉涉及的文字。{said}", status, code
            )
        if code in HOPELESS_CODES or status == 402:
            return make(
                f"{where}拒绝了请求{label}，等待没有用；请到服务商的网页看余额、额度和内容限制。{said}", status, code
            )
        if inside is not None or status in (408, 429) or status >= 500:
            busy = "限流" if status == 429 or code in ("1302", "1303", "rate_limit_error") else "暂时出错"
            headers = getattr(response, "headers", {})
            return make(
                f"{where}{busy}{label}，试过几次仍不行；请过几分钟再运行。{said}" if inside is None
                else f"{where}中途报错{label}。{said}",
                status, code, retryable=inside is None or code in BUSY_CODES,
                retry_after=_seconds(headers.get("retry-after")),
            )
        if status == 404 or 300 <= status < 400 or code in ("1211", "model_not_found"):
            return make(f"{where}没有这个模型或地址{label}；请检查 model 和 base_url。{said}", status, code)
        return make(f"{where}说参数不对{label}；{advice(f'{code} {said}')}{said}", status, code)

    def _details(self, body: object) -> tuple[str, str]:
        """（业务码, 服务的原话）；原话去掉密钥，最多 200 字。"""
        error = body.get("error", body) if isinstance(body, dict) else {}
        if not isinstance(error, dict):
            error = {"message": error}
        code = error.get("code")
        if code is None and isinstance(body, dict) and body.get("type") == "error":
            code = error.get("type")            # Anthropic 没有 code，用 type 分种类
        message = error.get("message") or ""
        return "" if code is None else self._redact(str(code)), self._redact(str(message))

    def _redact(self, text: str) -> str:
        """去掉密钥，以及智谱密钥（编号.密文）的两半，再截短。"""
        for part in sorted({self._key, *self._key.split(".")}, key=len, reverse=True):
            if len(part) >= 6:
                text = text.replace(part, "（已隐藏）")
        text = re.sub(r"(?i)bearer\s+\S+|\bsk-[\w*-]+", "（已隐藏）", text)
        return re.sub(r"\s+", " ", text)[:200]


def check_address(base_url: object) -> None:
    """服务地址要是 http 或 https 开头、端口合法的一行；报错里不写出它，里面可能有密码。"""
    if base_url is None:
        return
    try:
        parts = urlsplit(base_url) if isinstance(base_url, str) else None
        good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise RagLessonsError("base_url 不是网址；要写成 http://主机:端口/路径 的样子，例如 http://127.0.0.1:11434/v1。")


def _json(response: Any) -> object:
    try:
        return response.json()
    except Exception:
        return None


def _error_inside(error: Exception) -> dict[str, Any] | None:
    """回答已经开始（HTTP 200）以后，夹在里面的报错；三家的 SDK 放在不同的属性里。"""
    for name in ("body", "json_data"):
        body = getattr(error, name, None)
        if isinstance(body, Mapping):
            return dict(body)
    return None


def _seconds(value: str | None) -> float:
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0
