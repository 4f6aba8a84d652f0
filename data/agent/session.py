"""会话：一个人和小满的一段往来。"""

from __future__ import annotations

import datetime as dt
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cache import ToolCache
from checkpoint import CheckpointStore
from errors import SessionNotFound
from notes import NoteBook
from utils import append_line, read_json, read_lines, write_json

_NAME = re.compile(r"s(\d+)")


@dataclass(frozen=True)
class Session:
    """一个会话和它名下的东西。

    会话隔离：每个会话有自己的目录、历史与笔记，编号不同就互相读不到。
    缓存也在各自目录里，宁可多算一遍，也不从别人的缓存里拿。
    要在会话之间传东西，请人来传：把文件放进对方的工作目录。
    """

    id: str
    folder: Path

    @property
    def notes(self) -> NoteBook:
        return NoteBook(self.folder / "notes.json")

    @property
    def cache(self) -> ToolCache:
        return ToolCache(self.folder / "cache")

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.folder / "checkpoints")

    @property
    def files(self) -> Path:
        """工具能碰的目录。"""
        path = self.folder / "files"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log_turn(self, question: str, answer: str) -> None:
        """一问一答记一行，--history 打印的就是它。"""
        now = dt.datetime.now().isoformat(timespec="seconds")
        append_line(self.folder / "history.jsonl", {"at": now, "question": question, "answer": answer})

    def history(self) -> list[dict[str, str]]:
        return read_lines(self.folder / "history.jsonl")


class SessionStore:
    """所有会话的家。编号从 s1 起递增，删掉的编号不再使用。"""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, title: str = "") -> Session:
        counter = self.root / "counter.json"
        number = int(read_json(counter, default=0)) + 1
        write_json(counter, number)
        session = Session(f"s{number}", self.root / f"s{number}")
        write_json(session.folder / "session.json", {"id": session.id, "title": title})
        return session

    def open(self, session_id: str) -> Session:
        """打开已有的会话。编号先过一遍正则，免得有人拿 ../ 当编号。"""
        folder = self.root / session_id
        if not _NAME.fullmatch(session_id) or not (folder / "session.json").exists():
            raise SessionNotFound(f"没有编号为 {session_id!r} 的会话")
        return Session(session_id, folder)

    def all(self) -> list[Session]:
        """按编号从小到大。"""
        found = [p for p in self.root.glob("s*") if _NAME.fullmatch(p.name)]
        return [Session(p.name, p) for p in sorted(found, key=lambda p: int(p.name[1:]))]

    def delete(self, session_id: str) -> None:
        """连目录一起删。没有回收站，调用的人自己先问清楚。"""
        shutil.rmtree(self.open(session_id).folder)
