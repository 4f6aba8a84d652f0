"""不看内容的切法：按行、按字符、按段落。"""

from __future__ import annotations

import re

from rag_lessons.chunking.base import check_document, check_size, make_chunks, newline_ends
from rag_lessons.types import Chunk, Document, check_whole, is_blank

PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")     # 一个或多个空行


def line_spans(text: str, lines: int) -> list[tuple[int, int]]:
    """每 lines 行一段；最后一段可以短。段末的换行符不算在内。"""
    starts = [0, *newline_ends(text)][::lines]
    ends = [start - 1 for start in starts[1:]] + [len(text.removesuffix("\n"))]
    return list(zip(starts, ends, strict=True))


def window_spans(length: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """长 size、相邻重叠 overlap 的窗口；窗口一碰到结尾就停，尾巴上不会多出一块。"""
    spans = []
    start = 0
    while start < length:
        end = min(start + size, length)
        spans.append((start, end))
        if end == length:
            break
        start += size - overlap
    return spans


def chunk_by_lines(document: Document, lines: int = 40) -> list[Chunk]:
    """每 ``lines`` 行一块，不重叠。代码的粗切法。

    >>> [c.text for c in chunk_by_lines(Document("a.py", "一\\n二\\n三"), lines=2)]
    ['一\\n二', '三']
    """
    check_document(document)
    lines = check_whole(lines, "每块的行数", least=1)
    return make_chunks(document, line_spans(document.text, lines))


def chunk_by_chars(document: Document, size: int = 500, overlap: int = 50) -> list[Chunk]:
    """每 ``size`` 个字符一块，相邻两块共有 ``overlap`` 个字符；不看标点，句子会被切断。

    >>> [c.text for c in chunk_by_chars(Document("a.md", "甲乙丙丁戊"), size=3, overlap=1)]
    ['甲乙丙', '丙丁戊']
    """
    check_document(document)
    size, overlap = check_size(size, overlap)
    return make_chunks(document, window_spans(len(document.text), size, overlap))


def paragraph_spans(text: str) -> list[tuple[int, int]]:
    """以空行分开的各段；分隔用的空行不属于任何一段。"""
    spans, start = [], 0
    for gap in PARAGRAPH_BREAK.finditer(text):
        spans.append((start, gap.start()))
        start = gap.end()
    spans.append((start, len(text)))
    return [(a, b) for a, b in spans if not is_blank(text[a:b])]


def chunk_by_paragraph(document: Document, max_chars: int = 1200, overlap: int = 200) -> list[Chunk]:
    """按空行分段，攒到将超过 ``max_chars`` 就成一块；下一块从上一块的尾部往前 ``overlap`` 个字符开始。

    一段自己就超过上限时，在段内按 ``max_chars`` 再切。每块都不超过 ``max_chars``。

    >>> [c.text for c in chunk_by_paragraph(Document("a.md", "甲甲\\n\\n乙乙\\n\\n丙丙"), max_chars=7, overlap=2)]
    ['甲甲\\n\\n乙乙', '乙乙\\n\\n丙丙']
    """
    check_document(document)
    max_chars, overlap = check_size(max_chars, overlap)
    pieces: list[tuple[int, int]] = []
    for start, end in paragraph_spans(document.text):
        if end - start <= max_chars:
            pieces.append((start, end))
        else:                                       # 整段放不下：段内硬切，重叠交给下面统一处理
            step = max_chars - overlap
            pieces += [(a, min(a + step, end)) for a in range(start, end, step)]
    spans: list[tuple[int, int]] = []
    for start, end in pieces:
        if spans and end - spans[-1][0] <= max_chars:
            spans[-1] = (spans[-1][0], end)         # 还装得下，续上
            continue
        if spans and overlap:                       # 新块往回带 overlap 个字；不能因此超长，也不能退到上一块的起点
            start = max(min(start, spans[-1][1] - overlap), end - max_chars, spans[-1][0] + 1)
        spans.append((start, end))
    return make_chunks(document, spans)
