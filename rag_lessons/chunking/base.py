"""所有切块函数共用的几样：检查大小、从位置造块、修边。"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from rag_lessons.types import Chunk, Document, RagLessonsError, is_blank


def check_size(size: int, overlap: int = 0) -> None:
    """块长至少 1；重叠不小于 0，且小于块长，否则窗口不会前进。"""
    if size < 1:
        raise RagLessonsError(f"块长要至少是 1，收到 {size}。")
    if overlap < 0:
        raise RagLessonsError(f"重叠不能是负数，收到 {overlap}。")
    if overlap >= size:
        raise RagLessonsError(f"重叠 {overlap} 必须小于块长 {size}，否则每次都退回原地，永远切不完。")


class Cutter:
    """从一份文档里按位置造块。从前往后造时，行号接着上一块往下数，全文只数一遍。

    ``document.metadata["page_starts"]``（每页在 text 里的起点，有则递增）会变成块的页码。
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._counted, self._line = 0, 1                # 数到了哪个位置、那里是第几行
        self._pages = list(document.metadata.get("page_starts", ()))

    def cut(
        self, start: int, end: int, headings: tuple[str, ...] = (), embedding_text: str | None = None
    ) -> Chunk:
        """[start, end) → Chunk，带上行号、页码、标题路径。"""
        metadata: dict[str, Any] = {}
        if self._pages:
            metadata["page"] = max(1, bisect_right(self._pages, start))
        if embedding_text is not None:
            metadata["embedding_text"] = embedding_text
        text = self.document.text
        if start < self._counted:
            self._counted, self._line = 0, 1
        self._line += text.count("\n", self._counted, start)
        self._counted = start
        return Chunk(text[start:end], self.document.source, start, end, self._line, headings, metadata)


def make_chunks(document: Document, spans: Iterable[tuple[int, int]]) -> list[Chunk]:
    """(start, end) 的序列 → Chunk 列表；纯空白的不要。"""
    cutter = Cutter(document)
    return [cutter.cut(start, end) for start, end in spans if not is_blank(document.text[start:end])]


def newline_ends(text: str) -> list[int]:
    """每个换行符之后的位置，也就是第 2、3、…… 行的开头。"""
    return [match.end() for match in re.finditer("\n", text)]


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """去掉一段首尾的空白；首行的缩进留着。"""
    if end > start and text[end - 1].isspace():
        end = start + len(text[start:end].rstrip())
    if start < end and text[start].isspace():
        first = end - len(text[start:end].lstrip())
        start = text.rfind("\n", start, first) + 1 or start
    return start, end


def no_nesting(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """去掉首尾空白以后，起点或终点没有前进的段不要：它整个落在前一段里。"""
    last_start, last_end = -1, -1
    for start, end in spans:
        if start > last_start and end > last_end:
            yield start, end
            last_start, last_end = start, end
