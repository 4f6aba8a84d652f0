"""按意思的转折切块：相邻几句的向量突然变远，就在那里切开。"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left

import numpy as np

from rag_lessons.chunking.base import check_document, check_size, make_chunks, no_nesting, trim
from rag_lessons.chunking.recursive import recursive_spans
from rag_lessons.embedding.base import Embedder, check_embedder
from rag_lessons.types import Chunk, Document, is_blank

# 句界：空行、换行、句末标点（连同后面的引号、括号）
SENTENCE_END = re.compile(r"\n\s*|[。！？!?…]+[」』”’）》】)]*|\.(?=\s)")
WINDOW = 2              # 断点两边各看几句
DRIFT_QUANTILE = 0.8    # 距离排在前两成的断点算转折
MIN_SHARE = 6           # 一块至少有块长的六分之一，免得切碎


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """句子的位置，首尾相接。断点是空行、换行和句末标点。

    >>> sentence_spans("今天下雨。明天晴。\\n")
    [(0, 5), (5, 10)]
    """
    cuts = sorted({m.end() for m in SENTENCE_END.finditer(text)} | {0, len(text)})
    spans: list[tuple[int, int]] = []
    for a, b in itertools.pairwise(cuts):
        if spans and is_blank(text[a:b]):
            spans[-1] = (spans[-1][0], b)               # 空白跟着前一句
        else:
            spans.append((a, b))
    return spans


def drift(text: str, spans: list[tuple[int, int]], embedder: Embedder) -> np.ndarray:
    """相邻两句之间的距离 (len(spans) - 1,)：断点前 2 句与后 2 句的 1 - 余弦。

    断点后面的两句，就是隔一个断点时前面的两句，所以同样的文字只算一次向量。
    """
    last = len(spans) - 1
    before = [text[spans[max(0, i - WINDOW + 1)][0]:spans[i][1]] for i in range(last)]
    after = [text[spans[i + 1][0]:spans[min(last, i + WINDOW)][1]] for i in range(last)]
    windows = list(dict.fromkeys([*before, *after]))
    vector = dict(zip(windows, embedder.embed_documents(windows), strict=True))
    return np.array([1 - vector[a] @ vector[b] for a, b in zip(before, after, strict=True)])


def chunk_by_meaning(document: Document, embedder: Embedder, size: int = 800) -> list[Chunk]:
    """先切成句，再在相邻句子意思变远的地方切开。

    参数
    ----
    embedder : 用来比较前后句子的嵌入器。每个句界要算一个窗口，全文等于多算两遍，是最贵的切法。
    size : 每块最多多少个字符；一句就超过它时，在句内递归切。
    """
    check_document(document)
    check_embedder(embedder)
    size, _ = check_size(size)
    text = document.text
    spans = [(a + x, a + y) for a, b in sentence_spans(text) for x, y in recursive_spans(text[a:b], size, 0)]
    spans = [span for span in spans if not is_blank(text[span[0]:span[1]])]
    if len(spans) < 2:
        return make_chunks(document, (trim(text, a, b) for a, b in spans))
    groups = _groups(spans, drift(text, spans, embedder).round(6), size)
    return make_chunks(document, no_nesting(trim(text, a, b) for a, b in groups))


def _groups(spans: list[tuple[int, int]], gaps: np.ndarray, size: int) -> list[tuple[int, int]]:
    """从转折最大的句界切起：够得上转折，或所在的一块还太长，就切；两边都不能太短。最后一块块装到不超过 size。"""
    limit = float(np.quantile(gaps, DRIFT_QUANTILE))
    shortest = max(1, size // MIN_SHARE)
    cuts = [spans[0][0], spans[-1][1]]
    for i in np.argsort(-gaps, kind="stable"):
        cut = spans[i + 1][0]
        place = bisect_left(cuts, cut)
        left, right = cuts[place - 1], cuts[place]
        wanted = (gaps[i] >= limit and gaps[i] > 0) or right - left > size
        if wanted and min(cut - left, right - cut) >= shortest:
            cuts.insert(place, cut)
    chosen = set(cuts)
    groups = [spans[0]]
    for a, b in spans[1:]:
        if a in chosen or b - groups[-1][0] > size:
            groups.append((a, b))
        else:
            groups[-1] = (groups[-1][0], b)
    return groups
