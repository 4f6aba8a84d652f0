"""PDF：次序、断行、页眉页脚、页码、乱码、坏文件。"""

import os
import re
import time
import tracemalloc
import unicodedata
import warnings
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pdf_writer import Pdf

from rag_lessons import (
    RagLessonsError,
    RagLessonsWarning,
    chunk_by_chars,
    chunk_recursive,
    load_document,
    load_folder,
)
from rag_lessons.loading.layout import Piece, compose, lines_of, reading_order

ROOT = Path(__file__).resolve().parents[1]
FILES = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(pdf, tmp_path, name="a.pdf"):
    return load_document(pdf.save(tmp_path / name))


def squeeze(text):
    return re.sub(r"\s", "", text)


# ── 断行与段落 ──


def test_words_broken_by_a_line_end(tmp_path):
    pdf = Pdf().page().text(72, 700, "向量数").text(72, 685, "据库 支持 RAG")
    assert read(pdf, tmp_path).text == "向量数据库 支持 RAG"


def test_radicals(tmp_path):
    document = read(Pdf().page().text(72, 700, "⾏业⼈才，⻘年，⼤客⼾应当"), tmp_path)
    assert document.text == "行业人才，青年，大客户应当"


FULL = "这一行排得满满的一直写到了右边的边上再也放不下一个字了"      # 26 字


def test_paragraphs(tmp_path):
    pdf = Pdf().page().text(72, 760, "第一章 总则", size=16)
    pdf.column(72, 730, ["　　" + FULL[2:], FULL, "写完了。", "　　" + FULL[2:], FULL[:-1] + "。", "第二条 " + FULL[4:], "接着写完。"])
    pdf.column(72, 600, ["隔开的一段"])
    assert read(pdf, tmp_path).text == (
        f"第一章 总则\n\n{FULL[2:]}{FULL}写完了。\n{FULL[2:]}{FULL[:-1]}。\n第二条 {FULL[4:]}接着写完。\n\n隔开的一段")


@pytest.mark.parametrize("indent", ["空格", "位置"])
def test_an_indent_starts_a_paragraph_even_after_a_full_line(tmp_path, indent):
    pdf = Pdf().page().column(72, 700, [FULL, FULL, FULL[:-1] + "，"])
    if indent == "空格":
        pdf.text(72, 655, "　　" + FULL[2:])
    else:
        pdf.text(92, 655, FULL[2:])
    pdf.column(72, 640, [FULL, "写完"])
    assert read(pdf, tmp_path).text.split("\n") == [FULL * 2 + FULL[:-1] + "，", FULL[2:] + FULL + "写完"]


def test_a_page_with_few_lines_borrows_the_width(tmp_path):
    pdf = Pdf().page().column(72, 700, [FULL] * 3 + ["写完。"]).page().column(72, 760, ["短短的一行", FULL, "写完"])
    assert read(pdf, tmp_path).text.split("\n")[1:] == ["短短的一行", FULL + "写完"]


def test_text_is_not_joined_over_a_page_that_was_left_out(tmp_path):
    pdf = Pdf().page().column(72, 700, [FULL] * 3).page().page().column(72, 700, [FULL[::-1]] * 3)
    with pytest.warns(RagLessonsWarning, match="第 2 页"):
        assert read(pdf, tmp_path).text == FULL * 3 + "\n" + FULL[::-1] * 3


def test_lists_and_ragged_lines_stay_lines(tmp_path):
    lines = ["一、考勤", "1. 上班九点", "2. 下班六点", "• 打卡", "（三）请假", "联系人", "张三", "李四"]
    assert read(Pdf().page().column(72, 700, lines), tmp_path).text.split("\n") == lines


def test_clauses_after_a_full_line(tmp_path):
    lines = ["2.4 " + FULL[2:-1] + "。", "2.5 " + FULL[2:], FULL[:-1] + "，", "3.5 兆欧以上" + FULL[6:], "写完。"]
    assert read(Pdf().page().column(72, 700, lines), tmp_path).text.split("\n") == [lines[0], "".join(lines[1:])]


def test_english(tmp_path):
    lines = ["Retrieval augmented generation combines infor-", "mation retrieval with a language model, and is", "used for question answering."]
    assert read(Pdf().page().column(72, 700, lines), tmp_path).text == (
        "Retrieval augmented generation combines information retrieval with a language model, and is used for question answering.")


def test_a_paragraph_over_two_pages(tmp_path):
    pdf = Pdf().page().column(72, 700, [FULL, FULL, FULL[:16] + "向量数据库系统中的向"]).page().column(72, 760, ["量数据写在下一页" + FULL[9:], FULL, "写完。"])
    document = read(pdf, tmp_path)
    assert "系统中的向量数据写在下一页" in document.text and "\n" not in document.text
    assert document.text[document.metadata["page_starts"][1]:].startswith("量数据")


# ── 字块怎样连 ──


def test_gaps_inside_a_line(tmp_path):
    pdf = Pdf().page()
    pdf.op("BT /F1 10 Tf 72 700 Td [{vec} -20 {tor} -280 {search} 30 {ing}] TJ 0 -30 TD [{据} -100 {实} -200 {报} 20 {销}] TJ T* ({x}) ' ET"
           .replace("({x}) '", "{末行} Tj"))
    assert read(pdf, tmp_path).text == "vector searching\n\n据实报销\n\n末行"


def test_letter_spaced_and_justified_chinese_stays_whole(tmp_path):
    pdf = Pdf().page().op("BT /F1 10 Tf 2.5 Tc 72 700 Td {据实报销} Tj ET")
    for i, char in enumerate("等座据实报销"):
        pdf.text(72 + 13 * i, 670, char)
    assert read(pdf, tmp_path).text == "据实报销\n\n等座据实报销"


def test_text_operators(tmp_path):
    pdf = Pdf().page()
    pdf.op("q 2 0 0 2 0 0 cm BT /F1 5 Tf 7 TL 36 350 Td {甲} Tj T* {乙} Tj {丙} ' 0 0 {丁} \" ET Q")
    pdf.op("BT /F1 -10 Tf -1 0 0 -1 72 600 Tm {负的字号} Tj ET")
    pdf.op("BT /F1 1 Tf 10 0 0 10 72 570 Tm [{字号在} -300 {矩阵里}] TJ ET")
    pdf.op("BT /F1 10 Tf 72 540 Td {粗} Tj ET BT /F1 10 Tf 72.3 540 Td {粗} Tj ET")
    pdf.op("BT /F1 10 Tf 72 510 Td {上标} Tj /F1 6 Tf 4 Ts {12} Tj /F1 10 Tf 0 Ts {后} Tj ET")
    assert read(pdf, tmp_path).text.split() == ["甲", "乙", "丙", "丁", "负的字号", "字号在矩阵里", "粗", "上标12后"]


def test_rotated_pages_sideways_notes_and_watermarks(tmp_path):
    sideways = Pdf().page()
    for i, line in enumerate([FULL, FULL[:-1] + "。"]):
        sideways.text(100 + 15 * i, 72, line, matrix="0 1 -1 0")
    assert read(sideways, tmp_path).text == FULL + FULL[:-1] + "。"
    mixed = Pdf().page().text(72, 700, "正文写在这里。").text(500, 300, "竖排的附注", matrix="0 1 -1 0").text(200, 300, "机密", size=40, matrix=".7 .7 -.7 .7")
    assert read(mixed, tmp_path).text.split() == ["正文写在这里。", "竖排的附注"]


def test_text_off_the_paper_is_not_read(tmp_path):
    assert read(Pdf().page().text(72, 700, "看得见").text(900, 700, "看不见").text(72, -50, "看不见"), tmp_path).text == "看得见"


def test_form_xobjects(tmp_path):
    pdf = Pdf().page().op("q 1 0 0 1 0 100 cm /X0 Do Q").text(72, 705, "后")
    inner = f"BT /F1 10 Tf 72 600 Td <{pdf.code('表单里')}> Tj ET".encode()
    body = pdf.objects()
    body.append(b"<</Type/XObject/Subtype/Form/BBox[0 0 595 842]/Matrix[1 0 0 1 0 10]/Resources<</Font<</F1 3 0 R>>>>/Length %d>>stream\n%s\nendstream"
                % (len(inner), inner))
    body[5] = body[5].replace(b"<</Font<</F1 3 0 R>>", b"<</Font<</F1 3 0 R>>/XObject<</X0 %d 0 R>>" % len(body))
    pdf.objects = lambda: body
    assert read(pdf, tmp_path).text.split() == ["表单里后"]      # 600 + 100 + 10，在 705 的上面


def test_tagged_page_heads_are_dropped(tmp_path):
    pdf = Pdf().page().op("/Artifact <</Type/Pagination/Subtype/Header>> BDC BT /F1 10 Tf 72 800 Td {页眉} Tj ET EMC")
    pdf.op("/P <</MCID 0>> BDC BT /F1 10 Tf 72 700 Td {正文} Tj ET EMC")
    assert read(pdf, tmp_path).text == "正文"


# ── 双栏 ──

LEFT = [f"左栏第{n}行写得满满的才像是正文" for n in "一二三四五六七"]
RIGHT = [f"右栏第{n}行写得满满的才像是正文" for n in "一二三四五六七"]


def two_columns(pdf, top=720, left=LEFT, right=RIGHT, order="rows", gutter=14):
    x = 72 + 150 + gutter
    rows = [(72, top - 15 * i, t) for i, t in enumerate(left)] + [(x, top - 15 * i - 1, t) for i, t in enumerate(right)]
    if order == "rows":
        rows.sort(key=lambda r: (-r[1], r[0]))
    for x, y, t in rows:
        pdf.text(x, y, t)
    return pdf


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("gutter", [10, 14, 40])
def test_left_column_first(tmp_path, order, gutter):
    document = read(two_columns(Pdf().page(), order=order, gutter=gutter), tmp_path)
    assert squeeze(document.text) == "".join(LEFT + RIGHT)


def test_full_width_titles_keep_their_place(tmp_path):
    pdf = Pdf().page().text(150, 770, "横跨两栏的大标题在最上", size=16)
    two_columns(pdf)
    pdf.text(72, 590, "中间又有一行横跨两栏的文字，它把上面的两栏和下面的两栏分开")
    two_columns(pdf, top=560, left=["下" + t for t in LEFT], right=["下" + t for t in RIGHT[:3]], gutter=24)
    text = squeeze(read(pdf, tmp_path).text)
    places = [text.index(p) for p in ["横跨两栏的大标题", *LEFT, *RIGHT, "中间又有一行"]]
    assert places == sorted(places)
    assert text.index("下左栏第七") < text.index("下右栏第一")


def test_something_short_below_balanced_columns_comes_last(tmp_path):
    pdf = two_columns(Pdf().page()).text(72, 560, "职级").text(110, 560, "住宿")
    assert squeeze(read(pdf, tmp_path).text) == "".join([*LEFT, *RIGHT, "职级住宿"])


def test_one_column_is_not_cut(tmp_path):
    words = Pdf().page()
    for row in range(20):                       # 每个词单独画，词间有空
        x = 72.0
        for k in range(12):
            word = "词语" * (1 + (row * 7 + k * 3) % 3)
            words.text(x, 760 - 15 * row, word)
            x += 10 * len(word) + 5
    lines = [squeeze(line.text) for line in reading_order(lines_of(pieces_from(words)))]
    assert all(len(line) > 20 for line in lines)
    table = Pdf().page()
    rows = [("项目" + "甲乙丙丁"[: row % 4], "说明" * (1 + row * 5 % 9)) for row in range(12)]
    for row, (left, right) in enumerate(rows):
        table.text(72, 700 - 15 * row, left).text(250, 700 - 15 * row, right)
    assert read(table, tmp_path).text.split("\n") == [f"{left}  {right}" for left, right in rows]


def test_cells_of_a_row_stay_apart(tmp_path):
    pdf = Pdf().page()
    for i, row in enumerate([("职级", "交通", "住宿"), ("P1", "100", "300")]):
        for k, cell in enumerate(row):
            pdf.text(72 + 100 * k, 700 - 15 * i, cell)
    assert read(pdf, tmp_path).text == "职级  交通  住宿\nP1  100  300"


def pieces_from(pdf):
    """测试里的一页 → 字块，不经过 PDF。"""
    glyphs = {code: char for char, code in pdf.glyphs.items()}
    out = []
    for op in pdf.pages[0]:
        x, y, codes = re.search(r"([\d.]+) ([\d.]+) Tm <(\w+)>", op).groups()
        text = "".join(glyphs[int(codes[i:i + 4], 16)] for i in range(0, len(codes), 4))
        out.append(Piece(text, float(x), float(x) + 10 * len(text), float(y), 10))
    return out


@given(st.lists(st.builds(lambda x, y, t, s: Piece(t, x, x + s * len(t), y, s), st.floats(0, 600), st.floats(0, 800),
                          st.text(alphabet="甲乙丙丁戊。", min_size=1, max_size=20), st.floats(5, 20)), max_size=40))
def test_ordering_loses_nothing(pieces):
    lines = lines_of(pieces)
    ordered = reading_order(lines)
    count = lambda found: sorted("".join(squeeze(line.text) for line in found))  # noqa: E731
    assert count(ordered) == count(lines)
    text, starts = compose([ordered, [], ordered])
    assert sorted(squeeze(text)) == sorted(count(lines) * 2)
    assert starts == sorted(starts) and all(0 <= s <= len(text) for s in starts)


# ── 页眉页脚、页码 ──


def handbook(pages=5, head=lambda i: "岱柏仪表 内部资料", foot=lambda i: f"第 {i} 页 版权所有"):
    pdf = Pdf()
    for i in range(1, pages + 1):
        pdf.page().text(72, 810, head(i), size=8).text(250, 30, foot(i), size=8)
        pdf.column(72, 740, [f"第{i}页" + FULL, FULL, f"到此为止{i}。"])
    return pdf


def test_heads_and_feet_are_removed(tmp_path):
    text = read(handbook(), tmp_path).text
    assert "内部资料" not in text and "版权所有" not in text
    assert all(f"第{i}页这一行" in text for i in range(1, 6))


def test_two_pages_are_enough_when_the_head_stands_apart(tmp_path):
    text = read(handbook(2), tmp_path).text
    assert "内部资料" not in text and "版权所有" not in text and text.count(FULL) == 4


def test_heads_go_even_when_every_page_is_the_same(tmp_path):
    pdf = Pdf()
    for i in range(1, 5):
        pdf.page().text(72, 810, "内部资料").text(250, 30, f"- {i} -").column(72, 700, ["同样的一页甲", "同样的一页乙", "同样的一页丙", "同样的一页丁"])
    text = read(pdf, tmp_path).text
    assert "内部资料" not in text and "- 2 -" not in text and text.count("同样的一页丙") == 4


def test_repeated_table_header_stays(tmp_path):
    pdf = Pdf()
    for i in range(1, 6):
        pdf.page()
        for r, row in enumerate([("日期", "事由", "金额"), *[(f"{i}月{d}日", f"第{i}{d}笔", f"{i * d}") for d in range(1, 8)]]):
            for k, cell in enumerate(row):
                pdf.text(72 + 120 * k, 780 - 15 * r, cell)
    assert read(pdf, tmp_path).text.count("日期  事由  金额") == 5


def test_pages_reach_the_chunks(tmp_path):
    document = read(handbook(4), tmp_path, "手册.pdf")
    starts = document.metadata["page_starts"]
    assert len(starts) == 4 and starts[0] == 0
    for i, start in enumerate(starts, 1):
        assert document.text[start:].startswith(f"第{i}页")
    for chunks in (chunk_by_chars(document, size=30, overlap=5), chunk_recursive(document, size=40, overlap=0)):
        assert all(document.text[c.start:c.end] == c.text for c in chunks)
        assert {c.metadata["page"] for c in chunks} == {1, 2, 3, 4}
        assert all(c.metadata["page"] == sum(s <= c.start for s in starts) for c in chunks)
        assert chunks[0].label == "手册.pdf 第1页"


@FILES
@given(pages=st.lists(st.lists(st.text(alphabet="甲乙丙丁戊己庚辛ab1 ，。", min_size=1, max_size=30).filter(str.strip), max_size=6), min_size=1, max_size=4))
def test_nothing_is_lost_and_pages_are_right(tmp_path, pages):
    pdf = Pdf()
    for number, lines in enumerate(pages):
        pdf.page().column(72, 760, [f"{chr(0x4E00 + number)}面", *lines])      # 每页的第一行各不相同
    document = read(pdf, tmp_path)
    wanted = ["".join(squeeze(line) for line in [f"{chr(0x4E00 + n)}面", *lines]) for n, lines in enumerate(pages)]
    starts = [*document.metadata["page_starts"], len(document.text)]
    assert starts == sorted(starts)
    found = [squeeze(document.text[a:b]) for a, b in pairwise(starts)]
    if found != wanted:                         # 好几页完全一样的行，可以当页眉页脚去掉；别的一个字不能少
        repeated = {squeeze(line) for lines in pages for line in lines if sum(line in other for other in pages) >= 2}
        for have, want in zip(found, wanted, strict=True):
            assert repeated and all(char in have or any(char in line for line in repeated) for char in want)


# ── 读不出的页 ──


def test_bad_pages_are_named_and_left_out(tmp_path):
    pdf = Pdf().page().text(72, 700, "好的第一页")
    pdf.page().text(72, 700, "(cid:12)(cid:88)").page().text(72, 700, "\ufffd\ufffd\ufffd").page().page().text(72, 700, "好的第五页")
    pdf.save(tmp_path / "手册.pdf")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (document,) = load_folder(tmp_path)
    assert document.text == "好的第一页\n好的第五页"
    assert document.metadata["page_starts"] == [0, 6, 6, 6, 6]
    assert [c.metadata["page"] for c in chunk_by_chars(document, size=6, overlap=0)] == [1, 5]
    (warning,) = caught
    assert warning.category is RagLessonsWarning
    message = str(warning.message)
    assert message.startswith("手册.pdf：") and "第 2-3 页是乱码" in message and "第 4 页没有文字" in message


def test_font_without_unicode_map_is_garbage(tmp_path):
    with pytest.warns(RagLessonsWarning, match=r"a\.pdf：第 1 页是乱码"):
        assert read(Pdf(unicode=False).page().text(72, 700, "取不出来"), tmp_path).text == ""


def test_a_broken_page_does_not_stop_the_others(tmp_path):
    pdf = Pdf().page().text(72, 700, "甲").page().page().text(72, 700, "丙")
    pdf.raw[1] = b"<</Filter/FlateDecode/Length 9999999>>stream\nnot deflate\nendstream"
    with pytest.warns(RagLessonsWarning, match="第 2 页"):
        assert read(pdf, tmp_path).text.split() == ["甲", "丙"]


# ── 坏的、大的 ──


def deflated(data):
    packed = zlib.compress(data, 9)
    return b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(packed), packed)


def test_encrypted(tmp_path):
    from pypdf import PdfWriter

    Pdf().page().text(72, 700, "机密").save(tmp_path / "a.pdf")
    for name, password in (("locked.pdf", "secret"), ("open.pdf", "")):
        writer = PdfWriter(clone_from=tmp_path / "a.pdf")
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
        writer.write(tmp_path / name)
    with pytest.raises(RagLessonsError, match=r"locked\.pdf：加了密"):
        load_document(tmp_path / "locked.pdf")
    assert load_document(tmp_path / "open.pdf").text == "机密"


def test_aes_is_a_clear_error(tmp_path):
    pdf = Pdf().page().text(72, 700, "机密").bytes()
    crypt = (b"/Encrypt<</Filter/Standard/V 5/R 6/Length 256/P -4/O<" + b"00" * 48 + b">/U<" + b"00" * 48 + b">/OE<" + b"00" * 32 + b">/UE<" + b"00" * 32
             + b">/Perms<" + b"00" * 16 + b">/CF<</StdCF<</CFM/AESV3/Length 32>>>>/StmF/StdCF/StrF/StdCF>>/ID[<00><00>]")
    (tmp_path / "a.pdf").write_bytes(pdf.replace(b"/Root 1 0 R", b"/Root 1 0 R" + crypt))
    with pytest.raises(RagLessonsError, match="加了密"):
        load_document(tmp_path / "a.pdf")


def test_hostile_files_end_soon_and_small(tmp_path):
    """压缩炸弹、自己套自己的表单、重复十万次的页、无根无尾的文件：各一条话，内存有数。"""
    big = Pdf().page()
    big.raw[0] = deflated(b"q Q " * (40 * 2**20 // 4))
    big.save(tmp_path / "炸弹.pdf")
    nested = Pdf().page()
    nested.raw[0] = b"<</Filter[/FlateDecode/FlateDecode]" + deflated(zlib.compress(b"\n" * (64 * 2**20), 9))[len(b"<</Filter/FlateDecode"):]
    nested.save(tmp_path / "套娃.pdf")
    forms = Pdf().page().op("/X0 Do " * 10)
    body = forms.objects()
    body.append(b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X0 %d 0 R>>>>/Length 70>>stream\n%s\nendstream" % (len(body) + 1, b"/X0 Do " * 10))
    body[5] = body[5].replace(b"<</Font", b"<</XObject<</X0 %d 0 R>>/Font" % len(body))
    forms.objects = lambda: body
    forms.save(tmp_path / "表单.pdf")
    one = Pdf().page().text(72, 700, "甲").bytes()
    (tmp_path / "多页.pdf").write_bytes(one.replace(b"/Kids[6 0 R]", b"/Kids[" + b"6 0 R " * 90_000 + b"]"))
    (tmp_path / "自环.pdf").write_bytes(one.replace(b"/Kids[6 0 R]", b"/Kids[2 0 R]"))
    (tmp_path / "深.pdf").write_bytes(one.replace(b"/Kids[6 0 R]", b"/Kids" + b"[" * 100_000))
    (tmp_path / "半截.pdf").write_bytes(one[: len(one) // 2])
    (tmp_path / "乱.pdf").write_bytes(b"%PDF-1.4\n" + os.urandom(2**20))
    (tmp_path / "空.pdf").write_bytes(b"")
    (tmp_path / "文本.pdf").write_text("不是 PDF", encoding="utf-8")
    (tmp_path / "好.md").write_text("好", encoding="utf-8")
    names = {p.name for p in tmp_path.glob("*.pdf")}
    tracemalloc.start()
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        documents = load_folder(tmp_path)
    spent, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < 60 and peak < 300 * 2**20
    assert [d.source for d in documents if d.text] == ["好.md"]
    messages = [str(w.message) for w in caught]
    assert len(messages) == len(names) and all(sum(name in m for m in messages) == 1 for name in names)


@FILES
@given(where=st.floats(0, 1), change=st.binary(min_size=1, max_size=30), cut=st.booleans())
def test_damaged_bytes_never_give_a_traceback(tmp_path, where, change, cut):
    data = Pdf(compress=False).page().column(72, 700, [FULL] * 3).page().text(72, 700, "第二页").bytes()
    at = int(where * (len(data) - 1))
    (tmp_path / "坏.pdf").write_bytes(data[:at] + change + (b"" if cut else data[at + len(change):]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RagLessonsWarning)
        try:
            load_document(tmp_path / "坏.pdf")
        except RagLessonsError as error:
            assert "坏.pdf" in str(error)


def test_nothing_is_printed_or_logged(tmp_path, capfd, caplog):
    pdf = Pdf().page().text(72, 700, "甲")
    (tmp_path / "a.pdf").write_bytes(pdf.bytes().replace(b"startxref\n", b"startxref\n1"))
    assert load_document(tmp_path / "a.pdf").text == "甲"
    assert capfd.readouterr() == ("", "") and caplog.records == []


def test_three_hundred_pages(tmp_path):
    han = [chr(c) for c in range(0x4E00, 0x4E00 + 3000)]
    pdf = Pdf()
    for page in range(300):
        pdf.page().column(72, 780, ["".join(han[(page * 45 * 40 + row * 40 + k) * 7 % 3000] for k in range(40)) for row in range(45)])
    pdf.save(tmp_path / "a.pdf")
    start = time.perf_counter()
    document = load_document(tmp_path / "a.pdf")
    assert time.perf_counter() - start < 40
    assert len(squeeze(document.text)) == 300 * 45 * 40 and len(document.metadata["page_starts"]) == 300


# ── 别的软件做的 PDF ──


@pytest.mark.parametrize("name", ["质量与安全操作规程", "保密与知识产权须知"])
def test_reportlab_files_give_back_their_source(name):
    """手册里的两份 PDF（一份双栏有页眉页脚，一份用了部首字）读出来，和它们的源文字一字不差。"""
    source = (ROOT / "data" / "handbook_sources" / f"{name}.txt").read_text(encoding="utf-8")
    document = load_document(ROOT / "data" / "handbook" / "制度" / f"{name}.pdf")
    assert squeeze(document.text) == squeeze(source).replace("#", "")
    assert not any("CJK RADICAL" in unicodedata.name(c, "") or "KANGXI" in unicodedata.name(c, "") for c in document.text)
    lines = [line.lstrip("# ").strip() for line in source.split("\n") if line.strip("# ")]
    same = sum(line in document.text.split("\n") for line in lines)
    assert same >= 0.9 * len(lines)             # 段末正好写满一行的，看不出断开
