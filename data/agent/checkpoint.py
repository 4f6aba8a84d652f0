"""检查点：任务做到一半的存档。

模型调用又慢又贵，跑了十步以后因为一次网络抖动全部作废，谁都受不了。
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errors import CheckpointBroken
from log import get_logger
from utils import write_json

logger = get_logger("checkpoint")

#: 存档格式的版本。字段有增删就加一，读到别的版本不硬解。
VERSION = 3

#: 每个任务保留几份。多留几份，是怕最新的那份恰好写坏。
KEEP = 5


@dataclass(frozen=True)
class Checkpoint:
    """一份存档。step 是已经做完的步数。"""

    task: str
    step: int
    memory: dict[str, Any]
    valve: dict[str, Any]
    used_tokens: int = 0


class CheckpointStore:
    """存与取。

    检查点在每一步结束时落盘；resume 读最新那份，从下一步接着走。
    已经做过的工具调用不会再做第二遍，答复都在存档的历史里。
    任务顺利收尾以后，它的存档全部删掉。
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, point: Checkpoint) -> Path:
        """写一份，并把多出来的旧存档清掉。"""
        path = self.folder / f"step-{point.step:03d}.json"
        write_json(
            path,
            {
                "version": VERSION,
                "task": point.task,
                "step": point.step,
                "memory": point.memory,
                "valve": point.valve,
                "used_tokens": point.used_tokens,
            },
        )
        for old in self._files()[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def latest(self) -> Checkpoint | None:
        """最新的一份；坏了就退回上一份，全坏了才抛 CheckpointBroken。"""
        files = self._files()
        for path in reversed(files):
            try:
                return self._read(path)
            except (ValueError, KeyError, TypeError) as exc:
                logger.warning("存档 %s 读不出来：%s", path.name, exc)
        if files:
            raise CheckpointBroken(f"{self.folder} 里的 {len(files)} 份存档都读不出来")
        return None

    def clear(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.json"))

    @staticmethod
    def _read(path: Path) -> Checkpoint:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"版本是 {data['version']}，现在用 {VERSION}")
        return Checkpoint(data["task"], data["step"], data["memory"], data["valve"], data["used_tokens"])
