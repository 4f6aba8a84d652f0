"""Document → list[Chunk]。

所有切块函数都守同一组规矩：每块是原文的一段（``document.text[c.start:c.end] == c.text``），
起点严格递增，没有一块整个落在邻居里面，纯空白的块不要，非空白的字一个不丢。
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from rag_lessons.types import Chunk, Document, RagLessonsError, is_blank

CLOSERS = "」』”’）》】〉)]}"
# 不能放在一块开头的字：它们属于前一句
NO_START = frozenset("。！？；，、：…!?;,:.%" + CLOSERS)
# 可以切开的地方，从最自然的到最勉强的；每一处都切在匹配的末尾
BREAKS = (
    re.compile(r"\n[^\S\n]*\n\s*"),                                        # 空行
    re.compile(r"\n"),                                                      # 换行
    re.compile(rf"[。！？!?…]+[{re.escape(CLOSERS)}]*|\.(?=\s)"),            # 句末
    re.compile(rf"[；;，,、：:]+[{re.escape(CLOSERS)}]*"),                     # 分句
    re.compile(r"[^\S\n]+"),                                               # 空格
)
SENTENCE_LEVELS = 3     # 前三级断点之后是一句话的开头

PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")     # 一个或多个空行


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
    if lines < 1:
        raise RagLessonsError(f"每块至少 1 行，收到 {lines}。")
    return make_chunks(document, line_spans(document.text, lines))


def chunk_by_chars(document: Document, size: int = 500, overlap: int = 50) -> list[Chunk]:
    """每 ``size`` 个字符一块，相邻两块共有 ``overlap`` 个字符；不看标点，句子会被切断。

    >>> [c.text for c in chunk_by_chars(Document("a.md", "甲乙丙丁戊"), size=3, overlap=1)]
    ['甲乙丙', '丙丁戊']
    """
    check_size(size, overlap)
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
    check_size(max_chars, overlap)
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


def recursive_spans(text: str, size: int, overlap: int) -> list[tuple[int, int]]:
    """chunk_recursive 的切法：每块在最长 size 的窗口里，挑级别最高、位置最靠后的断点。"""
    levels = [[match.end() for match in pattern.finditer(text)] for pattern in BREAKS]
    spans: list[tuple[int, int]] = []
    start, cut, length = 0, 0, len(text)
    while cut < length:
        low = max(cut + 1, start + max(1, size // 3))       # 再靠前就成碎块了
        high = start + size
        cut = length if length <= high else _best_break(text, levels, low, high)
        spans.append((start, cut))
        start = _overlap_start(text, levels, start, cut, overlap) if overlap else cut
    return spans


def _best_break(text: str, levels: list[list[int]], low: int, high: int) -> int:
    """[low, high] 里级别最高的断点中最靠后的一个；一个也没有就切在 high，但不让标点落到下一块开头。"""
    for ends in levels:
        i = bisect_right(ends, high) - 1
        if i >= 0 and ends[i] >= low:
            return ends[i]
    cut = high
    while cut > low and text[cut] in NO_START:
        cut -= 1
    return cut if text[cut] not in NO_START else high


def _overlap_start(text: str, levels: list[list[int]], start: int, cut: int, overlap: int) -> int:
    """下一块的起点：从 cut 往回不超过 overlap 个字，尽量是一句话的开头。"""
    earliest = max(start + 1, cut - overlap)
    for group in (levels[:SENTENCE_LEVELS], levels[SENTENCE_LEVELS:]):
        found = [ends[i] for ends in group if (i := bisect_left(ends, earliest)) < len(ends) and ends[i] < cut]
        if found:
            return min(found)
    while earliest < cut and text[earliest] in NO_START:
        earliest += 1
    return earliest


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


def chunk_recursive(document: Document, size: int = 500, overlap: int = 60) -> list[Chunk]:
    """先按空行切，放不下再按换行、句末标点、分句标点、空格，最后才硬切。中文的标点是天然的边界。

    参数
    ----
    size : 每块最多多少个字符，默认 500。
    overlap : 相邻两块最多共有多少个字符，默认 60；尽量从一句话的开头重叠起。

    >>> [c.text for c in chunk_recursive(Document("a.md", "今天下雨。明天晴！后天呢？"), size=5, overlap=0)]
    ['今天下雨。', '明天晴！', '后天呢？']
    """
    check_size(size, overlap)
    text = document.text
    spans = (trim(text, start, end) for start, end in recursive_spans(text, size, overlap))
    return make_chunks(document, _no_nesting(spans))


def _no_nesting(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """去掉首尾空白以后，起点或终点没有前进的段不要：它整个落在前一段里。"""
    last_start, last_end = -1, -1
    for start, end in spans:
        if start > last_start and end > last_end:
            yield start, end
            last_start, last_end = start, end
