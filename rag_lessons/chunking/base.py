"""所有切块函数共用的几样：检查大小、从位置造块、修边。"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from rag_lessons.types import Chunk, Document, RagLessonsError, is_blank


def check_size(size: int, overlap: int = 0) -> None:
    """块长至少 1；重叠不小于 0，且小于块长，否则窗口不会前进。"""
    if size < 1:
        raise RagLessonsError(f"块长要至少是 1，收到 {size}。")
    if overlap < 0:
        raise RagLessonsError(f"重叠不能是负数，收到 {overlap}。")
    if overlap >= size:
        raise RagLessonsError(f"重叠 {overlap} 必须小于块长 {size}，否则每次都退回原地，永远切不完。")


def make_chunks(document: Document, spans: Iterable[tuple[int, int]]) -> list[Chunk]:
    """(start, end) 的序列 → Chunk 列表：补上行号，去掉纯空白的块。"""
    text = document.text
    line_starts = [0, *newline_ends(text)]
    return [
        Chunk(text[start:end], document.source, start, end, bisect_right(line_starts, start))
        for start, end in spans
        if not is_blank(text[start:end])
    ]


def newline_ends(text: str) -> list[int]:
    """每个换行符之后的位置，也就是第 2、3、…… 行的开头。"""
    return [match.end() for match in re.finditer("\n", text)]


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """去掉一段首尾的空白；首行的缩进留着。"""
    while end > start and text[end - 1].isspace():
        end -= 1
    first = start
    while first < end and text[first].isspace():
        if text[first] == "\n":
            start = first + 1
        first += 1
    return start, end


def no_nesting(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """去掉首尾空白以后，起点或终点没有前进的段不要：它整个落在前一段里。"""
    last_start, last_end = -1, -1
    for start, end in spans:
        if start > last_start and end > last_end:
            yield start, end
            last_start, last_end = start, end
