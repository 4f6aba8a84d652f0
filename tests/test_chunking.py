"""切块的规矩：逐字照抄、起点递增、互不包含、不丢字、行号正确。"""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import (
    Chunk,
    Document,
    RagLessonsError,
    RagLessonsWarning,
    ToyEmbedder,
    chunk_by_chars,
    chunk_by_definition,
    chunk_by_heading,
    chunk_by_lines,
    chunk_by_meaning,
    chunk_by_paragraph,
    chunk_recursive,
)

PIECES = st.sampled_from(
    ["今天下雨。", "明天晴！", "后天呢？", "\n", "\n\n", "\n \t\n", "```\n", "# 标题\n", " ", "\u3000", "\xa0", "\t", "a", "max_steps = 40\n",
     "，", "」", "𠮷", "e\u0301", "\u200b", "|一|二|\n", "……" * 3, "长" * 30]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))


def check_invariants(document: Document, chunks: list[Chunk]) -> None:
    covered = [False] * len(document.text)
    for chunk in chunks:
        assert document.text[chunk.start:chunk.end] == chunk.text
        assert chunk.source == document.source
        assert chunk.text.strip()
        assert chunk.line == document.text.count("\n", 0, chunk.start) + 1
        covered[chunk.start:chunk.end] = [True] * (chunk.end - chunk.start)
    for before, after in itertools.pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
    for i, char in enumerate(document.text):
        assert covered[i] or char.isspace() or char in "\u200b" or not char.isprintable(), (i, char)
    assert len({chunk.id for chunk in chunks}) == len(chunks)


@given(TEXTS, st.integers(1, 50))
def test_lines(text, lines):
    document = Document("a.md", text)
    chunks = chunk_by_lines(document, lines)
    check_invariants(document, chunks)
    assert all(chunk.text.count("\n") < lines for chunk in chunks)


@given(TEXTS, st.integers(1, 40), st.data())
def test_chars(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    document = Document("a.md", text)
    chunks = chunk_by_chars(document, size, overlap)
    check_invariants(document, chunks)
    assert all(len(chunk.text) <= size for chunk in chunks)


@given(TEXTS, st.integers(1, 60), st.data())
def test_paragraphs(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    document = Document("a.md", text)
    chunks = chunk_by_paragraph(document, size, overlap)
    check_invariants(document, chunks)
    assert all(len(chunk.text) <= size for chunk in chunks)


@given(TEXTS, st.integers(1, 60), st.data())
def test_recursive(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    document = Document("a.md", text)
    chunks = chunk_recursive(document, size, overlap)
    check_invariants(document, chunks)
    assert all(len(chunk.text) <= size for chunk in chunks)


def test_recursive_prefers_chinese_punctuation():
    document = Document("a.md", "今天下雨。明天晴！后天呢？")
    assert [c.text for c in chunk_recursive(document, 5, 0)] == ["今天下雨。", "明天晴！", "后天呢？"]
    text = "他说：“今天下雨。”她说：“明天会晴吧！”然后（大概是后天）他们就一起出门去了。" * 20
    for size in (12, 20, 37, 80):
        for chunk in chunk_recursive(Document("a.md", text), size, size // 5):
            assert chunk.text[0] not in "。！？；，、”」』）》"


def test_recursive_keeps_paragraphs_whole_when_they_fit():
    paragraphs = [f"第{i}段，" + "一句话。" * 10 for i in range(12)]
    chunks = chunk_recursive(Document("a.md", "\n\n".join(paragraphs)), 100, 0)
    assert [c.text for c in chunks] == ["\n\n".join(paragraphs[i:i + 2]) for i in range(0, 12, 2)]


@pytest.mark.parametrize("size, overlap", [(5, 5), (3, 5), (0, 0), (5, -1), (-1, 0)])
@pytest.mark.parametrize("chunker", [chunk_by_chars, chunk_by_paragraph, chunk_recursive])
def test_impossible_sizes_are_refused_first(chunker, size, overlap):
    with pytest.raises(RagLessonsError):
        chunker(Document("a.md", "甲乙丙丁戊己"), size, overlap)
    with pytest.raises(ValueError):
        chunker(Document("a.md", ""), size, overlap)


def test_size_one_works():
    document = Document("a.md", "甲乙丙")
    assert [c.text for c in chunk_by_chars(document, 1, 0)] == ["甲", "乙", "丙"]
    with pytest.raises(RagLessonsError):
        chunk_by_lines(document, 0)


@pytest.mark.parametrize("length, size, overlap, count", [(1100, 1000, 200, 2), (900, 500, 100, 2), (1400, 800, 150, 2), (500, 500, 50, 1)])
def test_no_chunk_inside_its_neighbour(length, size, overlap, count):
    document = Document("a.md", "".join(chr(0x4E00 + i) for i in range(length)))
    chunks = chunk_by_chars(document, size, overlap)
    assert len(chunks) == count
    check_invariants(document, chunks)
    assert all(a.end - b.start == overlap for a, b in itertools.pairwise(chunks))


@pytest.mark.parametrize("chunker", [lambda d: chunk_by_chars(d, 8, 3), lambda d: chunk_by_paragraph(d, 12, 3), lambda d: chunk_by_lines(d, 2), lambda d: chunk_recursive(d, 8, 3)])
@pytest.mark.parametrize("glue", ["", "\n", "\n\n"])
def test_repeated_sentence_keeps_its_own_place(chunker, glue):
    document = Document("a.md", glue.join(["同一句话。"] * 20))
    check_invariants(document, chunker(document))


def test_verbatim_with_tabs_and_wide_spaces():
    document = Document("a.py", "\tif x:\n\xa0\xa0return\n\u3000\u3000段首")
    assert [c.text for c in chunk_by_lines(document, 1)] == ["\tif x:", "\xa0\xa0return", "\u3000\u3000段首"]


def test_paragraph_without_overlap_is_not_swollen():
    document = Document("a.md", "\n\n".join(["段" * 200] * 5))
    assert [len(c.text) for c in chunk_by_paragraph(document, 500, 0)] == [402, 402, 200]


def test_long_paragraph_is_split():
    document = Document("a.md", "长" * 5000)
    chunks = chunk_by_paragraph(document, 1200, 200)
    assert max(len(c.text) for c in chunks) <= 1200
    assert chunks[-1].end == 5000


def test_overlap_shares_the_tail():
    document = Document("a.md", "\n\n".join(f"第{i}段" + "文" * 300 for i in range(10)))
    chunks = chunk_by_paragraph(document, 1000, 150)
    assert len(chunks) > 3
    assert all(a.end - b.start == 150 for a, b in itertools.pairwise(chunks))


def test_identical_paragraphs_in_two_files_are_two_chunks():
    a, b = (chunk_by_lines(Document(name, "同一段许可"))[0] for name in ("a.md", "b.md"))
    assert a.text == b.text and a.id != b.id and {a.label, b.label} == {"a.md:1", "b.md:1"}


def test_labels_and_embedding_text():
    chunk = Chunk("甲", "手册.pdf", 0, 1, headings=("手册", "第一章"), metadata={"page": 3})
    assert chunk.label == "手册.pdf 第3页"
    assert chunk.embedding_text == "手册 > 第一章\n甲"
    assert Chunk("甲", "a.md", 0, 1, metadata={"embedding_text": "乙"}).embedding_text == "乙"
    assert hash(chunk) == hash(Chunk("甲", "手册.pdf", 0, 1, headings=("手册", "第一章"), metadata={"page": 3}))


def test_ten_megabytes_in_linear_time():
    text = ("第一句话在这里。第二句也在。\n\n" * 60_000)
    document = Document("a.md", text)
    started = time.perf_counter()
    for chunks in (chunk_by_chars(document), chunk_by_paragraph(document), chunk_by_lines(document), chunk_recursive(document)):
        assert chunks[-1].end >= len(text.rstrip())
    assert time.perf_counter() - started < 20


RUNS = st.lists(
    st.sampled_from(["甲", "」", "。", "，", "\n", "\n\n", " ", "\x85", "```\n", "    y = 2\n", "\nQ1. ", "# 标题\n", "问：", "|一|二|\n|-|-|\n|1|2|\n"]),
    max_size=80,
).map("".join)


@given(RUNS, st.integers(1, 40), st.data())
def test_trimming_never_drops_a_chunk_that_holds_new_text(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    for name in ("a.md", "a.py"):
        document = Document(name, text)
        check_invariants(document, chunk_recursive(document, size, overlap))
        check_invariants(document, chunk_by_heading(document, size, overlap))


def test_a_chunk_that_starts_where_the_last_one_did_replaces_it():
    document = Document("a.md", "\n\n」」\n\n\n」」」\n\n」」」\n」\n」」\n\n」」」」」」\n\n\n\n\n」\n\n\n」\n」\n\n\n\n\n」」」")
    check_invariants(document, chunk_recursive(document, 13, 4))


@pytest.mark.parametrize("text", ["甲乙丙丁\n\n。戊己庚辛壬癸" * 9, "甲乙丙丁戊己 ，庚辛壬癸" * 9, "甲乙丙丁。\u3000”戊己庚辛" * 9])
@pytest.mark.parametrize("overlap", [0, 3])
def test_no_chunk_starts_with_a_mark_behind_white_space(text, overlap):
    for size in range(8, 30):
        assert not any(chunk.text[0] in "。！？；，、”」』）》" for chunk in chunk_recursive(Document("a.md", text), size, overlap))


CHUNKERS = [chunk_by_lines, chunk_by_chars, chunk_by_paragraph, chunk_recursive, chunk_by_heading, chunk_by_definition]


@pytest.mark.parametrize("chunker", [*CHUNKERS, lambda d, size=9: chunk_by_meaning(d, ToyEmbedder(), size)])
def test_wrong_types_get_one_sentence(chunker):
    document = Document("a.md", "甲乙。丙丁。")
    for wrong in ("5", None, 2.5, True, float("nan"), [5]):
        with pytest.raises(RagLessonsError, match="整数"):
            chunker(document, wrong)
    for wrong in ("一段文字", None, [document], b"x"):
        with pytest.raises(RagLessonsError, match="Document"):
            chunker(wrong, 5)
    assert [type(chunk.start) for chunk in chunker(document, np.int64(300))] == [int]


@pytest.mark.parametrize("wrong", [None, "toy", ToyEmbedder])
def test_meaning_wants_an_embedder(wrong):
    with pytest.raises(RagLessonsError, match="嵌入器"):
        chunk_by_meaning(Document("a.md", "甲。乙。"), wrong)


@pytest.mark.parametrize(
    "text",
    ["# 甲\n" * 40_000, "问：甲\n答：乙\n" * 20_000, "！" * 200_000, "甲”" * 100_000, "，" * 200_000, "\n" * 200_000, "\n " * 100_000 + "x"],
    ids=["headings", "entries", "marks", "quotes", "commas", "newlines", "indents"],
)
def test_time_grows_with_length_not_its_square(text):
    document = Document("a.md", text)
    started = time.process_time()
    chunk_recursive(document)
    chunk_by_heading(document)
    assert time.process_time() - started < 12


def test_code_too_deep_for_the_parser_is_still_cut():
    for text in ("x = " + "-" * 100_000 + "1", "x = " + "(" * 100_000):
        with pytest.warns(RagLessonsWarning, match="语法"):
            chunks = chunk_by_definition(Document("a.py", text))
        assert "".join(chunk.text for chunk in chunks) == text
