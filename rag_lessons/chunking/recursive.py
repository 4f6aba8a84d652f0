"""递归切块：先挑最自然的断点，放不下再挑次一等的。中文以标点为界，不靠空格。"""

from __future__ import annotations

import re

from rag_lessons.chunking.base import check_document, check_size, make_chunks, no_nesting, trim
from rag_lessons.types import Chunk, Document

SENTENCE_MARKS = "。！？!?…"
CLAUSE_MARKS = "；;，,、：:"
# 不能放在一块开头的字：它们属于前一句。后半是西文的，只在一行中间才算
NO_START_HAN = frozenset("。！？；，、：…」』”’）》】〉")
NO_START = NO_START_HAN | frozenset("!?;,:.)]}")
# 从断点起要一并留给前一块的字；中间隔着空白也算，因为块首的空白会被去掉
BELONGS_HAN = re.compile(rf"(?:\s*[{''.join(sorted(NO_START_HAN))}])+")
BELONGS = re.compile(rf"(?:[{re.escape(''.join(sorted(NO_START)))}]|\s+[{''.join(sorted(NO_START_HAN))}])+")
RUN = "".join(sorted(NO_START)) + " \n\t\u3000\xa0"
LOOK_AHEAD = 64             # 过了窗口再往前看多远

SENTENCE_END = re.compile(rf"[{SENTENCE_MARKS}\n]|\.(?=\s)")
CLAUSE_END = re.compile(rf"[{CLAUSE_MARKS}\s]")


def _settle(text: str, cut: int, limit: int, belongs: re.Pattern[str] = BELONGS) -> int:
    """把断点往后挪过不能开头的字；挪过了 limit 就是 -1。"""
    found = belongs.match(text, cut, limit + LOOK_AHEAD)
    if found:
        cut = found.end()
    return cut if cut <= limit else -1


def _last(text: str, marks: str, low: int, high: int) -> int:
    """[low, high] 里最靠后的、紧跟在 marks 某个字之后的断点；没有就是 -1。"""
    while True:
        found = max([text.rfind(mark, low - 1, high) for mark in marks]) + 1
        if found < low:
            return -1
        cut = _settle(text, found, high)
        if cut >= 0:
            return cut
        high = min(found - 1, low - 1 + len(text[low - 1:found].rstrip(RUN)))     # 挪过了头：整串标点都不行，从它前面再找


def _best_break(text: str, low: int, high: int) -> int:
    """[low, high] 里最自然的断点：空行、换行、句末、分句、空格依次试，同级取最靠后的；都没有就硬切在 high。"""
    for mark in ("\n\n", "\n"):
        found = text.rfind(mark, low - len(mark), high)
        if found >= 0:
            cut = _settle(text, found + len(mark), high, BELONGS_HAN)
            if cut >= 0:
                return cut
    cut = max(_last(text, SENTENCE_MARKS, low, high), text.rfind(". ", low - 1, high) + 1)
    if cut < low:
        cut = _last(text, CLAUSE_MARKS, low, high)
    if cut < low:
        cut = _last(text, " \u3000\t", low, high)
    if cut >= low:
        return cut
    if not BELONGS.match(text, high, high + LOOK_AHEAD):
        return high
    cut = low + len(text[low:high].rstrip(RUN)) - 1         # 退到这串标点前面的那个字
    return cut if cut >= low else high


def _overlap_start(text: str, start: int, cut: int, overlap: int) -> int:
    """下一块的起点：从 cut 往回不超过 overlap 个字，尽量是一句话的开头。"""
    earliest = max(start + 1, cut - overlap)
    for pattern in (SENTENCE_END, CLAUSE_END):
        found = pattern.search(text, earliest - 1, cut - 1)
        while found:
            place = _settle(text, found.end(), cut - 1)
            if place >= 0:
                return place
            found = pattern.search(text, found.end(), cut - 1)
    place = _settle(text, earliest, cut - 1)
    return place if place >= 0 else cut


def recursive_spans(text: str, size: int, overlap: int) -> list[tuple[int, int]]:
    """chunk_recursive 的切法：每块在最长 size 的窗口里挑最自然的断点；首尾相接或重叠，不漏一个字。"""
    spans: list[tuple[int, int]] = []
    start, cut, length = 0, 0, len(text)
    while cut < length:
        low = max(cut + 1, start + max(1, size // 3))       # 再靠前就成碎块了
        high = start + size
        cut = length if length <= high else _best_break(text, low, high)
        spans.append((start, cut))
        start = _overlap_start(text, start, cut, overlap) if overlap else cut
    return spans


def chunk_recursive(document: Document, size: int = 500, overlap: int = 60) -> list[Chunk]:
    """先按空行切，放不下再按换行、句末标点、分句标点、空格，最后才硬切。中文的标点是天然的边界。

    参数
    ----
    size : 每块最多多少个字符，默认 500。
    overlap : 相邻两块最多共有多少个字符，默认 60；尽量从一句话的开头重叠起。

    >>> [c.text for c in chunk_recursive(Document("a.md", "今天下雨。明天晴！后天呢？"), size=5, overlap=0)]
    ['今天下雨。', '明天晴！', '后天呢？']
    """
    check_document(document)
    size, overlap = check_size(size, overlap)
    text = document.text
    spans = (trim(text, start, end) for start, end in recursive_spans(text, size, overlap))
    return make_chunks(document, no_nesting(spans))
