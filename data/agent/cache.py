"""只读工具的缓存：同样的问题，答案一时半会儿不会变。

只有登记时写了 cacheable=True 的工具才走这里。会写东西的工具永远不缓存，
不然第二次调用就成了空操作，而且没人发现。
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from log import get_logger
from utils import parse_duration, stable_hash, write_json

logger = get_logger("cache")

DEFAULT_TTL = "24h"


class ToolCache:
    """一个条目一个文件，文件名是工具名加参数的摘要。

    缓存条目的有效期（TTL）是 24 小时，读到过期条目当作未命中并顺手删除。
    文件打不开、内容不是 JSON，也当作未命中，打一条告警，绝不因为缓存坏了而让任务停下。
    """

    def __init__(
        self,
        folder: Path,
        ttl: str = DEFAULT_TTL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.ttl = parse_duration(ttl)
        self._clock = clock
        self.hits = 0
        self.misses = 0

    def _path(self, tool: str, arguments: dict[str, Any]) -> Path:
        return self.folder / f"{tool}-{stable_hash([tool, arguments])}.json"

    def get(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """没有就是 None。"""
        path = self._path(tool, arguments)
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            saved_at, value = float(entry["saved_at"]), str(entry["value"])
        except FileNotFoundError:
            self.misses += 1
            return None
        except (OSError, ValueError, KeyError, TypeError):
            logger.warning("缓存条目坏了，已忽略：%s", path.name)
            self.misses += 1
            return None
        if self._clock() - saved_at > self.ttl:
            path.unlink(missing_ok=True)
            self.misses += 1
            return None
        self.hits += 1
        return value

    def put(self, tool: str, arguments: dict[str, Any], value: str) -> None:
        """存一条。磁盘满了也不抛：缓存是锦上添花，不是必需品。"""
        entry = {"saved_at": self._clock(), "value": value, "arguments": arguments}
        try:
            write_json(self._path(tool, arguments), entry)
        except OSError as exc:
            logger.warning("缓存写不进去：%s", exc)

    def clear(self) -> int:
        """全部删掉，返回删了几个。"""
        count = 0
        for path in self.folder.glob("*.json"):
            path.unlink(missing_ok=True)
            count += 1
        return count
