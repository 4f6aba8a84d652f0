"""排版 → 文字：一页上各处的字块，理成从头读到尾的全文。

PDF 里没有“行”和“段”，只有“在某处画几个字”。这里按位置把字块拼成行，把行理成阅读的次序（双栏先左后右），
再把排版断开的行接回成段。表格没有框线可认，一行各格之间空两格。不碰 PDF 本身：给它字块就行。

几步各是一个函数：``lines_of`` → ``edge_gaps``（帮着找页眉页脚）→ ``reading_order`` → ``compose``。
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rag_lessons.loading.clean import (
    CJK,
    EDGE_LINES,
    ends_sentence,
    is_heading,
    seam,
    spaced_style,
    starts_clause,
    starts_item,
)


@dataclass(slots=True)
class Piece:
    """连着写的一串字：左端、右端、基线、字高，单位都是点，y 向上；turn 是文字转了几个直角。"""

    text: str
    x0: float
    x1: float
    y: float
    size: float
    turn: int = 0


# ── 字块 → 行 ─────────────────────────────────────────────────

SEGMENT_GAP = 0.7       # 空隙到这么多字高，才可能是栏或格的间隔
CELL_GAP = 1.5          # 到这么多，是两格


@dataclass(slots=True)
class Segment:
    """一行里连着的一段：没有大空隙。左右两栏的基线可以差一点，所以各记各的高度。"""

    text: str
    x0: float
    x1: float
    y: float


@dataclass(slots=True)
class Line:
    """一行：基线高度、字高、从左到右的各段。box 是它所在的栏的左右边；full 表示那一栏的右边是看得准的。"""

    y: float
    size: float
    segments: list[Segment]
    box: tuple[float, float] = (0.0, 0.0)
    full: bool = False
    column: int = 0
    is_row: bool = False

    @property
    def text(self) -> str:
        out = self.segments[0].text
        for left, right in pairwise(self.segments):
            out += ("  " if right.x0 - left.x1 >= CELL_GAP * self.size else " ") + right.text
        return out

    @property
    def x0(self) -> float:
        return self.segments[0].x0

    @property
    def x1(self) -> float:
        return max(segment.x1 for segment in self.segments)


def lines_of(pieces: Sequence[Piece]) -> list[Line]:
    """字块拼成行，从上到下。转了方向的字（竖着的表头）放在最后。"""
    weight = Counter()
    for piece in pieces:
        weight[piece.turn] += len(piece.text)
    lines: list[Line] = []
    for turn, _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        lines += _rows([piece for piece in pieces if piece.turn == turn])
    return lines


def _rows(pieces: list[Piece]) -> list[Line]:
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: (-p.y, p.x0)):
        if groups and groups[-1][0].y - piece.y <= 0.35 * max(piece.size, groups[-1][0].size):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    merged: list[list[Piece]] = []
    for group in groups:                        # 上标比它那一行高一点，自成一组；并回去
        above = merged[-1] if merged else None
        size = max(p.size for p in group)
        if above and max(p.size for p in above) <= 0.8 * size and above[0].y - group[0].y < 0.6 * size:
            merged[-1] = above + group
        else:
            merged.append(group)
    lines = (_line(group) for group in merged)
    return [line for line in lines if line is not None]


def _line(pieces: list[Piece]) -> Line | None:
    size = Counter()
    for piece in pieces:
        size[round(piece.size, 1)] += max(1, len(piece.text))
    em = size.most_common(1)[0][0]
    segments: list[Segment] = []
    last: tuple[str, float] = ("", 0.0)
    for piece in sorted(pieces, key=lambda p: p.x0):
        text = piece.text
        if (text, True) == (last[0], abs(piece.x0 - last[1]) < 0.3 * em):
            continue                            # 描两遍冒充粗体
        last = (text, piece.x0)
        if not text.strip():
            if segments and text and piece.x0 - segments[-1].x1 < SEGMENT_GAP * em:
                segments[-1].text += " "
                segments[-1].x1 = max(segments[-1].x1, piece.x1)
            continue
        x0 = piece.x0
        if not segments:                        # 用空格画的缩进，也是缩进
            x0 += (piece.x1 - x0) * (len(text) - len(text.lstrip())) / len(text)
        gap = x0 - segments[-1].x1 if segments else math.inf
        if gap >= SEGMENT_GAP * em:
            segments.append(Segment(text, x0, piece.x1, piece.y))
        else:
            segments[-1].text += (" " if needs_space(segments[-1].text, text, gap / em) else "") + text
            segments[-1].x1 = max(segments[-1].x1, piece.x1)
    for segment in segments:
        segment.text = re.sub(r"[^\S\u3000]+", " ", segment.text).strip()
    segments = [segment for segment in segments if segment.text]
    baseline = max(pieces, key=lambda p: (p.size, -p.x0)).y
    return Line(baseline, em, segments) if segments else None


_ENDS_CJK, _STARTS_CJK = re.compile(f"[{CJK}]$"), re.compile(f"[{CJK}]")


def needs_space(left: str, right: str, gap: float) -> bool:
    """两串字之间空了 gap 个字高，算不算一个空格。

    >>> needs_space("vector", "search", 0.25), needs_space("向量", "检索", 0.25)
    (True, False)
    """
    if left.endswith(" ") or right.startswith(" "):
        return False
    cjk = (_ENDS_CJK.search(left) is not None) + (_STARTS_CJK.match(right) is not None)
    return gap >= (0.15, 0.3, 0.45)[cjk]


APART_GAP = 1.6         # 页眉和正文之间的空隙，至少是平常行距的这么多倍


def edge_gaps(lines: Sequence[Line]) -> tuple[list[int], list[int]]:
    """从上往下、从下往上，数到第几行之后空得特别大；只看页眉页脚可能在的那几行。"""
    leading = _leading(lines)
    wide = [a.y - b.y > APART_GAP * leading for a, b in pairwise(lines)]
    down, up = ([k for k, gap in enumerate(side[:EDGE_LINES], 1) if gap] for side in (wide, wide[::-1]))
    return down, up


def is_table_row(lines: Sequence[Line], i: int) -> bool:
    """第 i 行和下一行都有三格以上、上下对齐：是每页重复的表头，不是页眉。"""
    if i + 1 >= len(lines) or len(lines[i].segments) < 3 or len(lines[i].segments) != len(lines[i + 1].segments):
        return False
    pairs = zip(lines[i].segments, lines[i + 1].segments, strict=True)
    return all(a.x0 < b.x1 and b.x0 < a.x1 for a, b in pairs)


# ── 行 → 阅读次序 ─────────────────────────────────────────────

MIN_COLUMN_LINES = 3
MIN_COLUMN_EMS = 8          # 比这还窄的是表格的列
PROSE_FULL = 0.75           # 一行占到栏宽的这么多，算排满
PROSE_SHARE = 0.4           # 一栏里至少这么多行排满，才是成段的文字；表格的格子很少填满


def reading_order(lines: Sequence[Line], depth: int = 6) -> list[Line]:
    """理成阅读的次序：有两栏的，先左栏后右栏；横跨两栏的标题留在原处。每行记下自己那一栏的左右边。"""
    found = find_columns(lines) if depth else None
    if found is None:
        _set_box(lines)
        return list(lines)
    first, end, gutter = found
    sides: tuple[list[Line], list[Line]] = ([], [])
    for line in lines[first:end]:
        for side, keep in ((0, [s for s in line.segments if s.x0 < gutter]), (1, [s for s in line.segments if s.x0 >= gutter])):
            if keep:
                sides[side].append(Line(keep[0].y if len(keep) < len(line.segments) else line.y, line.size, keep))
    blocks = [reading_order(block, depth - 1) for block in (lines[:first], *sides, lines[end:]) if block]
    column = 0
    for block in blocks:                        # 换了栏，行距就不能比了
        for line in block:
            line.column += column
        column = block[-1].column + 1
    return [line for block in blocks for line in block]


def find_columns(lines: Sequence[Line]) -> tuple[int, int, float] | None:
    """（从第几行，到第几行，栏间的横坐标）；看不出两栏就是 None。"""
    if len(lines) < MIN_COLUMN_LINES:
        return None
    left, right = min(line.x0 for line in lines), max(line.x1 for line in lines)
    starts = Counter(
        round(segment.x0 / 2) for line in lines for segment in line.segments
        if left + 0.2 * (right - left) < segment.x0 < right - 0.1 * (right - left)
    )  # fmt: skip
    best: tuple[int, int, int, float] | None = None
    for start, times in sorted(starts.items(), key=lambda item: (-item[1], item[0]))[:8]:
        if times < MIN_COLUMN_LINES:
            break
        gutter = start * 2 - 1.5                # 右栏左边缘的左边一点
        for first, end in _clear_runs(lines, gutter):
            size = sum(len(s.text) for line in lines[first:end] for s in line.segments)
            if (best is None or size > best[0]) and _two_proses(lines[first:end], gutter):
                best = (size, first, end, gutter)
    return best[1:] if best else None


def _clear_runs(lines: Sequence[Line], gutter: float) -> Iterator[tuple[int, int]]:
    """没有一行压在栏间上的连续行，两边都有字。"""
    first = None
    for i, line in enumerate([*lines, None]):
        crossed = line is None or any(s.x0 < gutter < s.x1 - 0.5 * line.size for s in line.segments)
        if not crossed:
            first = i if first is None else first
        elif first is not None:
            trimmed = _trim(lines, first, i, gutter)
            if trimmed is not None:
                yield trimmed
            first = None


def _trim(lines: Sequence[Line], first: int, end: int, gutter: float) -> tuple[int, int] | None:
    """去掉栏的上面、下面靠左的几行：它们不压栏间只是因为短，其实横跨两栏。"""
    sides = [[i for i in range(first, end) if any((s.x0 < gutter) is side for s in lines[i].segments)] for side in (True, False)]
    if not all(sides):
        return None
    em = sorted(line.size for line in lines[first:end])[(end - first) // 2]
    top = min(lines[side[0]].y for side in sides) + 1.5 * em        # 两栏的第一行差不多一样高
    while lines[first].y > top:
        first += 1
    long, short = sorted(sides, key=lambda side: lines[side[-1]].y)
    gaps = sorted(lines[a].y - lines[b].y for a, b in pairwise(long))
    usual = gaps[len(gaps) // 2] if gaps else 1.5 * em
    for a, b in pairwise(long):         # 两栏一起结束，隔开一段又只剩一边：那是栏的下面
        if abs(lines[a].y - lines[short[-1]].y) <= 1.6 * usual and b > short[-1] and lines[a].y - lines[b].y > PARAGRAPH_GAP * usual:
            return first, b
    return first, end


def _two_proses(lines: Sequence[Line], gutter: float) -> bool:
    for side in (True, False):
        rows = [found for line in lines if (found := [s for s in line.segments if (s.x0 < gutter) is side])]
        if len(rows) < MIN_COLUMN_LINES or sum(len(row) == 1 for row in rows) < 0.7 * len(rows):
            return False
        size = sorted(line.size for line in lines)[len(lines) // 2]
        width = max(row[-1].x1 for row in rows) - min(row[0].x0 for row in rows)
        full = sum(row[-1].x1 - row[0].x0 >= PROSE_FULL * width for row in rows)
        if width < MIN_COLUMN_EMS * size or full < PROSE_SHARE * len(rows):
            return False
    return True


def _set_box(lines: Sequence[Line]) -> None:
    """一栏的左右边。右边要有足够多的行顶到才算看得准，否则不能凭“这行短”判断段落结束。"""
    if not lines:
        return
    left = min(line.x0 for line in lines)
    ends = sorted(line.x1 for line in lines)
    right = ends[int(len(ends) * 0.9)] if len(ends) > 10 else ends[-1]
    size = sorted(line.size for line in lines)[len(lines) // 2]
    reach = sum(line.x1 >= right - 1.2 * size for line in lines)
    full = reach >= MIN_COLUMN_LINES and reach >= PROSE_SHARE * len(lines) and right - left >= MIN_COLUMN_EMS * size
    for line in lines:
        line.box, line.full = (left, right), full


# ── 行 → 全文 ─────────────────────────────────────────────────

PARAGRAPH_GAP = 1.35        # 行距是平常的这么多倍，另起一段
INDENT = 1.2                # 缩进这么多字高，另起一段
MIN_GAPS = 5                # 空隙少于这么多个，看不出平常的行距
RAGGED_LINES = 4            # 参差不齐的行到这么多，多半是名单、诗，一行就是一行


def compose(pages: Sequence[Sequence[Line]]) -> tuple[str, list[int]]:
    """各页的行接成全文：（全文，每页的起点）。断开的行接上，跨栏跨页的也接。"""
    lines = [(number, line) for number, page in enumerate(pages) for line in page]
    _borrow_boxes([list(page) for page in pages])
    leading = [_leading(page) for page in pages]
    spaced = spaced_style("\n".join(line.text for _, line in lines))
    for page in pages:
        _mark_rows(page)
    parts: list[str] = []
    length = 0
    starts: list[int | None] = [None] * len(pages)
    ragged = {number: sum(not line.full for line in page) >= RAGGED_LINES for number, page in enumerate(pages)}
    for i, (number, line) in enumerate(lines):
        text = line.text
        if i:
            before, previous = lines[i - 1]
            together = before == number and previous.column == line.column
            gap = (previous.y - line.y) / leading[number] if together else None
            breaks = kind_of_break(previous, line, gap, ragged[before]) if number - before <= 1 else 1
            if breaks:
                separator = "\n" * breaks
            else:
                left, separator = seam(parts[-1], text, spaced)
                length += len(left) - len(parts[-1])
                parts[-1] = left
            parts.append(separator)
            length += len(separator)
        if starts[number] is None:
            starts[number] = length
        parts.append(text)
        length += len(text)
    following = length
    filled: list[int] = []
    for start in reversed(starts):
        following = following if start is None else start
        filled.append(following)
    return "".join(parts), filled[::-1]


def _leading(page: Sequence[Line]) -> float:
    """一页里平常的行距。行太少时，空隙里分不出哪个是平常的，最多算两倍字高。"""
    gaps = sorted(a.y - b.y for a, b in pairwise(page) if a.column == b.column and a.y - b.y > 0)
    most = 2.0 * max((line.size for line in page), default=10.0)
    if len(gaps) < MIN_GAPS:
        return min([most, *gaps])
    return gaps[len(gaps) // 2]


def _borrow_boxes(pages: Sequence[Sequence[Line]]) -> None:
    """行太少、看不准右边的（末页、标题下的几行），借用左边对齐的另一栏的宽度。"""
    known = list(dict.fromkeys(line.box for page in pages for line in page if line.full))
    for page in pages:
        for line in page:
            if not line.full:
                near = [b for b in known if abs(b[0] - line.box[0]) <= 1.5 * line.size and b[1] >= line.box[1] - line.size]
                if near:
                    line.box, line.full = min(near, key=lambda b: abs(b[0] - line.box[0])), True


def _mark_rows(page: Sequence[Line]) -> None:
    """有大空隙的行，是表格的一行，不和上下行相接。"""
    for line in page:
        line.is_row = any(b.x0 - a.x1 >= CELL_GAP * line.size for a, b in pairwise(line.segments))


def kind_of_break(previous: Line, line: Line, gap: float | None, ragged: bool) -> int:
    """两行之间：0 是同一段，接上；1 换行；2 另起一段。gap 是行距，以平常的行距为 1；换了栏、换了页是 None。"""
    if abs(previous.size - line.size) > 0.08 * max(previous.size, line.size):
        return 2
    if gap is not None and not 0 <= gap <= PARAGRAPH_GAP:
        return 2
    if previous.is_row or line.is_row or starts_item(line.text) or is_heading(previous.text):
        return 1
    indented = line.x0 - line.box[0] >= INDENT * line.size
    if indented and not (starts_item(previous.text) or previous.x0 - previous.box[0] >= INDENT * line.size):
        return 1
    ended = ends_sentence(previous.text)
    if ended and starts_clause(line.text):
        return 1
    if previous.full:
        room = previous.box[1] - previous.x1
        return int(room > (1.0 if ended else first_word(line.text) + 1.0) * previous.size)
    if ended or gap is None:
        return 1
    width = previous.box[1] - previous.box[0]
    return int(ragged and (previous.x1 - previous.x0 < 0.85 * width or width < MIN_COLUMN_EMS * line.size))


def first_word(text: str) -> float:
    """一行开头不能拆开的部分有多宽（字高）：一个汉字，或一个西文词。

    >>> first_word("据库 RAG"), first_word("database")
    (1.0, 4.4)
    """
    if _STARTS_CJK.match(text):
        return 1.0 + 0.5 * (len(text) > 1 and text[1] in "，。、；：！？）》」”")
    return round(0.55 * len(re.match(rf"[^\s{CJK}]*", text)[0]), 2)
