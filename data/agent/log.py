"""日志：一行一个 JSON，写文件；给人看的简短版本，写终端。

为什么不用纯文本：出了问题以后，第一件事总是「把这个任务的所有日志挑出来」，
JSON 加追踪编号，一条 grep 就够了。

为什么要脱敏：日志会被复制到工单、群聊和截图里，密钥一旦进了日志，
就等于进了所有这些地方。宁可少记，不可多记。
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

ROOT_NAME = "xiaoman"

#: 单个日志文件的大小与份数。写满就改名成 .1、.2，最老的删掉。
MAX_BYTES = 5 * 1024 * 1024
BACKUPS = 3

_SECRET_NAME = re.compile(r"(key|token|secret)$", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\b(sk|ak|ghp)[-_][A-Za-z0-9]{12,}\b")


def mask(value: str, visible: int = 4) -> str:
    """留下开头几位，其余换成星号；太短的整个遮住。

    >>> mask("abcdefghij")
    'abcd******'
    >>> mask("abc")
    '***'
    """
    if len(value) <= visible:
        return "*" * len(value)
    return value[:visible] + "*" * (len(value) - visible)


def redact(data: Any) -> Any:
    """递归地遮住要紧的字段，返回一份新的，不动原来的。

    脱敏：名字以 key、token、secret 结尾的字段，值只留前 4 位，其余换成星号。
    正文里长得像 sk-…、ak-…、ghp_… 的串同样处理。
    字段名叫 tokens（复数）的是计数，不遮。

    >>> redact({"api_key": "abcdefgh", "tokens": 12})
    {'api_key': 'abcd****', 'tokens': 12}
    """
    if isinstance(data, dict):
        result = {}
        for name, value in data.items():
            if isinstance(value, str) and _SECRET_NAME.search(str(name)):
                result[name] = mask(value)
            else:
                result[name] = redact(value)
        return result
    if isinstance(data, list | tuple):
        return [redact(item) for item in data]
    if isinstance(data, str):
        return _SECRET_TEXT.sub(lambda m: mask(m.group()), data)
    return data


class JsonFormatter(logging.Formatter):
    """把一条日志变成一行 JSON。字段的次序固定，方便用眼睛扫。"""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created)),
            "level": record.levelname,
            "name": record.name.removeprefix(ROOT_NAME + "."),
            "trace": getattr(record, "trace", ""),
            "text": redact(record.getMessage()),
        }
        extra = getattr(record, "data", None)
        if extra:
            line["data"] = redact(extra)
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class ShortFormatter(logging.Formatter):
    """终端上的样子：时刻、级别的首字母、名字、正文。"""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix(ROOT_NAME + ".")
        return f"{at} {record.levelname[0]} {name:<10} {redact(record.getMessage())}"


def get_logger(name: str) -> logging.Logger:
    """各模块统一从这里拿，名字都挂在 xiaoman 之下。"""
    return logging.getLogger(f"{ROOT_NAME}.{name}")


def setup_logging(folder: Path | None, level: str = "INFO", terminal: bool = True) -> None:
    """程序开头调用一次；重复调用会先拆掉旧的，不会一条日志打两遍。

    folder 为 None 时不写文件，单元测试和演示用得着。
    """
    root = logging.getLogger(ROOT_NAME)
    root.setLevel(level)
    root.propagate = False
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            folder / "agent.log", maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8"
        )
        handler.setFormatter(JsonFormatter())
        root.addHandler(handler)
    if terminal:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(ShortFormatter())
        console.setLevel(logging.WARNING)
        root.addHandler(console)
    if not root.handlers:
        root.addHandler(logging.NullHandler())
