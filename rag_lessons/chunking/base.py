"""所有切块函数共用的几样：检查大小、从位置造块、修边。"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, TypeVar

from rag_lessons.types import Chunk, Document, RagLessonsError, check_whole, is_blank

Span = TypeVar("Span", bound=tuple)         # (start, end)，后面可以还有别的


def check_size(size: int, overlap: int = 0) -> tuple[int, int]:
    """块长至少 1；重叠不小于 0，且小于块长，否则窗口不会前进。返回普通的整数。"""
    size, overlap = check_whole(size, "块长", least=1), check_whole(overlap, "重叠", least=0)
    if overlap >= size:
        raise RagLessonsError(f"重叠 {overlap} 必须小于块长 {size}，否则每次都退回原地，永远切不完。")
    return size, overlap


def check_document(document: Document) -> None:
    """切块函数收一份 Document；直接给文字、或给整个列表，是常见的手误。"""
    if isinstance(document, str):
        raise RagLessonsError('切块要的是 Document，收到的是 str；请写成 Document("文件名.md", 文字)，或用 load_document 读。')
    if not isinstance(document, Document):
        raise RagLessonsError(f"切块要的是一份 Document，收到的是 {type(document).__name__}；有好几份时，一份一份地切。")


class Cutter:
    """从一份文档里按位置造块。从前往后造时，行号接着上一块往下数，全文只数一遍。

    ``document.metadata["page_starts"]``（每页在 text 里的起点，有则递增）会变成块的页码。
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._counted, self._line = 0, 1                # 数到了哪个位置、那里是第几行
        self._pages = list(document.metadata.get("page_starts") or ())

    def cut(self, start: int, end: int, headings: tuple[str, ...] = (), **extra: str) -> Chunk:
        """[start, end) → Chunk，带上行号、页码、标题路径；extra 里不空的几项放进 metadata。"""
        metadata: dict[str, Any] = {}
        if self._pages:
            metadata["page"] = max(1, bisect_right(self._pages, start))
        metadata |= {name: value for name, value in extra.items() if value}
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


def no_nesting(spans: Iterable[Span]) -> list[Span]:
    """每段 (start, end, …) 去掉首尾空白以后，可能有一段整个落在邻居里：只留大的那段，一个字也不丢。"""
    kept: list[Span] = []
    for span in spans:
        while kept and span[0] <= kept[-1][0] and span[1] >= kept[-1][1]:
            kept.pop()                                  # 前一段在这一段里面
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept
