"""长期记忆：跨任务也要记住的事，一条一条写在小本子上。

短期记忆会被压缩，小本子不会。模型用 remember 写，用 recall 查。
查的办法很朴素：数有几个相邻的字对是一样的。几百条以内，它又快又够用；
意思相同、用字不同的，它查不到。
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from errors import NoteTooLong
from utils import read_json, write_json

MAX_NOTES = 200
MAX_CHARS = 500


@dataclass
class Note:
    """一条笔记。read_at 是最近一次被查到的时刻，写下的那一刻也算。"""

    id: int
    text: str
    written_at: float
    read_at: float
    reads: int = 0


def pairs(text: str) -> Counter[str]:
    """相邻的两个字算一对，跳过空白。

    >>> sorted(pairs("小满 好"))
    ['小满', '满好']
    """
    letters = [ch for ch in text.lower() if not ch.isspace()]
    return Counter(a + b for a, b in zip(letters, letters[1:]))


class NoteBook:
    """小本子。长期笔记最多 200 条，超出时淘汰最久未被读到的那一条。

    每条最多 500 字：写得下一个结论，写不下一篇文章，这正是本意。
    内容存在会话目录的 notes.json 里，每次改动都立刻落盘。
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._notes = [Note(**item) for item in read_json(path, default=[])]

    def __len__(self) -> int:
        return len(self._notes)

    def remember(self, text: str) -> Note:
        """写一条。和已有的一字不差时不重复写，只刷新时刻。"""
        text = text.strip()
        if not text:
            raise ValueError("空白的笔记没有意义")
        if len(text) > MAX_CHARS:
            raise NoteTooLong(f"一条笔记最多 {MAX_CHARS} 字，这条有 {len(text)} 字")
        now = self._clock()
        for note in self._notes:
            if note.text == text:
                note.read_at = now
                self._save()
                return note
        number = max((n.id for n in self._notes), default=0) + 1
        note = Note(number, text, now, now)
        self._notes.append(note)
        while len(self._notes) > MAX_NOTES:
            self._notes.remove(min(self._notes, key=lambda n: (n.read_at, n.id)))
        self._save()
        return note

    def recall(self, query: str, k: int = 3) -> list[Note]:
        """查最像的 k 条；一个字对都不重合的不算。查到的会刷新时刻。"""
        wanted = pairs(query)
        scored = []
        for note in self._notes:
            score = sum((pairs(note.text) & wanted).values())
            if score:
                scored.append((-score, note.id, note))
        found = [note for _, _, note in sorted(scored, key=lambda s: s[:2])[:k]]
        now = self._clock()
        for note in found:
            note.read_at = now
            note.reads += 1
        if found:
            self._save()
        return found

    def forget(self, note_id: int) -> bool:
        """删一条。没有这个编号返回 False。编号不会再分给别的笔记，除非它本来就是最大的。"""
        before = len(self._notes)
        self._notes = [n for n in self._notes if n.id != note_id]
        if len(self._notes) < before:
            self._save()
            return True
        return False

    def _save(self) -> None:
        write_json(self.path, [asdict(n) for n in self._notes])
