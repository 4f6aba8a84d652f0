"""涂在原文上的块：文字一个不差，记号齐全，不靠颜色，深浅主题都看得清。"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons.chunking import chunk_by_chars, chunk_by_paragraph, chunk_recursive
from rag_lessons.course.painting import paint
from rag_lessons.course.plotting import COLORS
from rag_lessons.types import Chunk, Document, RagLessonsError


class Reader(HTMLParser):
    """取回显示的文字：记号在 <b> 里，原文在 <b> 外；顺便记下每段文字的样式。"""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.marks, self.styled, self.open = "", [], [], []
        self.tags = set()
        self.feed(page)
        self.close()
        assert not self.open, "标签没有配对"

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.tags.add(tag)
        assert set(dict(attributes)) <= {"style"}
        self.open.append((tag, dict(attributes).get("style", "")))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1][0] == "b":
            self.marks.append(data)
        else:
            self.text += data
            self.styled.append((data, " ".join(style for _, style in self.open[1:])))

    def style_of(self, piece: str) -> str:
        return next(style for data, style in self.styled if data == piece)


def read(painting) -> Reader:
    return Reader(painting._repr_html_())


# ---------- 边界、重叠、漏掉的字 ----------


def test_boundaries_are_numbered_and_alternate():
    page = read(paint("今天下雨。明天晴！后天呢？", [(0, 5), (5, 9), (9, 13)]))
    assert page.marks == ["1▸", "2▸", "3▸"]
    one, two, three = (page.style_of(piece) for piece in ("今天下雨。", "明天晴！", "后天呢？"))
    assert one == three != two and "background-color" in one and "background-color" in two


def test_overlap_has_its_own_look_and_both_ends_marked():
    painting = paint("甲乙丙丁戊己", [(0, 4), (2, 6)])
    page = read(painting)
    assert page.marks == ["1▸", "2▸", "◂1"] and repr(painting) == "1▸甲乙2▸丙丁◂1戊己"
    style = page.style_of("丙丁")
    assert "repeating-linear-gradient" in style and "dashed" in style, "不只靠颜色"
    assert "gradient" not in page.style_of("甲乙") + page.style_of("戊己")


def test_a_chunk_inside_its_neighbour_shows():
    painting = paint("甲乙丙丁戊", [(0, 3), (2, 5), (4, 5)])
    assert repr(painting) == "1▸甲乙2▸丙◂1丁3▸戊◂2◂3"
    assert "gradient" in read(painting).style_of("戊")


def test_lost_text_is_struck_through_and_blank_gaps_are_not():
    page = read(paint("甲乙\n\n丙丁戊", [(0, 2), (4, 6)]))
    assert "line-through" in page.style_of("戊")
    assert page.style_of("\n\n") == ""


def test_bold_is_a_line_too():
    page = read(paint("甲乙丙丁", [(0, 2), (2, 4)], bold=[(1, 3)]))
    assert all("solid" in page.style_of(c) and "700" in page.style_of(c) for c in "乙丙")
    assert "700" not in page.style_of("甲") + page.style_of("丁")


def test_excerpt():
    assert repr(paint("甲乙丙丁戊己", [(0, 3), (3, 6)], 1, 5)) == "…1乙丙2▸丁戊…"
    assert repr(paint("甲乙丙丁", [(0, 2), (2, 4)], 2)) == "…2▸丙丁"
    assert repr(paint("甲乙", [(0, 2)], 0, 99)) == "1▸甲乙"
    assert paint("", []).plain == ""


# ---------- 原文 ----------

NASTY = ["<script>alert(1)</script>", "</pre>", "&amp;", "&", "\"'", "$x$", "\\(y\\)", "\n", "\n\n", "\t", "  ", "\u3000", "今天。", "𠮷"]


@given(st.lists(st.sampled_from(NASTY), max_size=20).map("".join), st.integers(1, 9), st.data())
def test_text_comes_back_verbatim(text, size, data):
    chunks = chunk_by_chars(Document("a.md", text), size, data.draw(st.integers(0, size - 1)))
    page = read(paint(text, chunks))
    assert page.text == text
    assert page.tags <= {"pre", "span", "b"}
    starts = [mark for mark in page.marks if mark.endswith("▸")]
    assert starts == [f"{n}▸" for n in range(1, len(chunks) + 1)]


@pytest.mark.parametrize("chunker", [chunk_by_chars, chunk_by_paragraph, chunk_recursive])
def test_package_chunks_lose_nothing(chunker):
    document = Document("a.md", "今天下雨，路很滑。\n\n明天晴！可以出门。\n" * 9)
    assert "line-through" not in paint(document, chunker(document, 40, 10)).html


def test_formulas_and_directions_cannot_break_out():
    page = paint("花 $5$ 与 \\(x\\)\u202e倒\x00\ud800", [(0, 5)]).html
    assert "$5$" not in page and "\\(" not in page and "\u202e" not in page and "\x00" not in page
    page.encode("utf-8")


def test_same_bytes_every_time():
    document = Document("a.md", "今天下雨。明天晴！" * 9)
    pages = {paint(document, chunk_recursive(document, 20, 5)).html for _ in range(3)}
    assert len(pages) == 1 and not re.search(r"\bid=|0x[0-9a-f]{6}", pages.pop())


# ---------- 颜色 ----------


def colors(page: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, c.split(","))) for c in re.findall(r"rgba\(([^)]*)\)", page)]


def over(color, below):
    return tuple(c * color[3] + b * (1 - color[3]) for c, b in zip(color[:3], below, strict=True))


def luminance(color) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in color)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def backgrounds(style: str, page: tuple[int, int, int]) -> list[tuple[float, ...]]:
    """一段样式下可能出现的底色：底色，以及斜纹叠在底色上。"""
    flat = re.search(r"background-color:(rgba\([^)]*\))", style)[1]
    base = over(colors(flat)[0], page)
    stripes = re.search(r"gradient\((.*?)\);", style + ";")
    return [over(c, base) for c in colors(stripes[1])] if stripes else [base]


LIGHT, DARK = ((255, 255, 255), (0, 0, 0, 0.87)), ((17, 17, 17), (255, 255, 255, 0.87))
PAGE = read(paint("甲乙丙丁戊己", [(0, 3), (2, 6)]))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["浅色", "深色"])
@pytest.mark.parametrize("piece", ["甲乙", "丙", "丁戊己"])
def test_text_is_legible_in_both_themes(theme, piece):
    page, ink = theme
    for ground in backgrounds(PAGE.style_of(piece), page):
        assert contrast(over(ink, ground), ground) >= 4.5


# Machado、Oliveira、Fernandes 2009，完全的红色盲、绿色盲、蓝色盲（线性 RGB）
BLIND = {
    "红": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "绿": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "蓝": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("page", [LIGHT[0], DARK[0]], ids=["浅色", "深色"])
@pytest.mark.parametrize("kind", [None, *BLIND])
def test_neighbours_differ_for_every_eye(kind, page):
    one, two = (np.array(backgrounds(PAGE.style_of(piece), page)[0]) for piece in ("甲乙", "丁戊己"))
    if kind:
        one, two = (np.clip(np.array(BLIND[kind]) @ (c / 255) ** 2.2, 0, 1) ** (1 / 2.2) * 255 for c in (one, two))
    assert np.abs(one - two).max() >= 20


def test_colors_are_the_course_palette():
    named = {tuple(int(COLORS[name][i:i + 2], 16) for i in (1, 3, 5)) for name in ("e5", "toy")}
    used = {c[:3] for c in colors(paint("甲乙丙", [(0, 2), (1, 3)]).html)} - {(128.0, 128.0, 128.0)}
    assert used == named
    assert "color:inherit" in paint("甲", [(0, 1)]).html, "字用页面自己的颜色"


# ---------- 用错的时候 ----------


@pytest.mark.parametrize("span", [(-1, 2), (0, 9), (2, 2), (3, 1)])
def test_impossible_positions(span):
    with pytest.raises(RagLessonsError, match="第 2 块"):
        paint("甲乙丙丁", [(0, 1), span])


def test_chunks_of_another_document():
    document = Document("a.md", "甲乙丙丁")
    assert paint(document, [Chunk("甲乙", "a.md", 0, 2)]).plain == "1▸甲乙丙丁"
    for chunk in (Chunk("甲乙", "b.md", 0, 2), Chunk("乙丙", "a.md", 0, 2)):
        with pytest.raises(RagLessonsError, match="不是从这份原文切出来的"):
            paint(document, [chunk])


@pytest.mark.parametrize("part", [(-1, 2), (3, 2), (9, None)])
def test_impossible_excerpt(part):
    with pytest.raises(RagLessonsError, match="请核对 start 和 end"):
        paint("甲乙丙丁", [], *part)
