"""递归切块：先挑最自然的断点，放不下再挑次一等的。中文以标点为界，不靠空格。"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from rag_lessons.chunking.base import check_size, make_chunks, no_nesting, trim
from rag_lessons.types import Chunk, Document

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
    return make_chunks(document, no_nesting(spans))
