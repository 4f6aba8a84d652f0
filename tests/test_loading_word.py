"""Word：次序、表格、修订、编号、坏文件。"""

import io
import re
import struct
import time
import tracemalloc
import warnings
import zipfile

import docx
import pytest
from docx.enum.text import WD_BREAK
from docx.oxml import OxmlElement, parse_xml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_lessons import RagLessonsError, RagLessonsWarning, load_document, load_folder
from rag_lessons.loading.word import chinese_number, count_as

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def read(document, tmp_path, name="a.docx"):
    document.save(str(tmp_path / name))
    return load_document(tmp_path / name)


def raw(xml):
    return parse_xml(re.sub(r"^<(\S+?)(?=[ />])", rf"<\1 {W}", xml, count=1))


def fill(table, rows):
    for row, values in zip(table.rows, rows, strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.text = value
    return table


# ── 次序与表格 ──


def test_paragraph_table_paragraph(tmp_path):
    document = docx.Document()
    document.add_paragraph("前一段")
    fill(document.add_table(2, 2), [["甲", "乙"], ["1", "2|3"]])
    document.add_paragraph("后一段")
    assert read(document, tmp_path).text == "前一段\n\n| 甲 | 乙 |\n| --- | --- |\n| 1 | 2\\|3 |\n\n后一段"


def test_merged_cells_make_every_row_readable_alone(tmp_path):
    document = docx.Document()
    table = fill(document.add_table(6, 3), [["差旅", "", ""], ["职级", "费用", ""], ["", "交通", "住宿"], ["P1", "1", "2"], ["", "3", "4"], ["注", "", ""]])
    table.cell(0, 0).merge(table.cell(0, 2))
    table.cell(1, 0).merge(table.cell(2, 0))
    table.cell(1, 1).merge(table.cell(1, 2))
    table.cell(3, 0).merge(table.cell(4, 0))
    table.cell(5, 0).merge(table.cell(5, 2))
    assert read(document, tmp_path).text == (
        "差旅\n\n| 职级 | 费用 / 交通 | 费用 / 住宿 |\n| --- | --- | --- |\n| P1 | 1 | 2 |\n| P1 | 3 | 4 |\n| 注 |  |  |")


def test_marked_header_rows(tmp_path):
    document = docx.Document()
    table = fill(document.add_table(3, 2), [["甲", "乙"], ["丙", "丁"], ["1", "2"]])
    for row in table.rows[:2]:
        row._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    assert read(document, tmp_path).text.splitlines()[0] == "| 甲 / 丙 | 乙 / 丁 |"


def test_nested_table_and_single_cell_box(tmp_path):
    document = docx.Document()
    outer = document.add_table(1, 2)
    outer.cell(0, 0).text = "左"
    fill(outer.cell(0, 1).add_table(2, 2), [["一", "二"], ["三", "四"]])
    document.add_table(1, 1).cell(0, 0).text = "框里的话"
    assert read(document, tmp_path).text == "左\n\n| 一 | 二 |\n| --- | --- |\n| 三 | 四 |\n\n框里的话"


def test_content_controls_are_not_lost(tmp_path):
    document = docx.Document()
    document.add_paragraph("甲")
    document.element.body.insert(1, raw("<w:sdt><w:sdtContent><w:p><w:r><w:t>控件里</w:t></w:r></w:p></w:sdtContent></w:sdt>"))
    document.paragraphs[0]._p.append(raw("<w:sdt><w:sdtContent><w:r><w:t>行内控件</w:t></w:r></w:sdtContent></w:sdt>"))
    assert read(document, tmp_path).text == "甲行内控件\n\n控件里"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(st.one_of(st.text(alphabet="甲乙丙ab 1。", min_size=1, max_size=8),
                                st.lists(st.text(alphabet="子丑xy", min_size=1, max_size=4), min_size=2, max_size=4)), max_size=8))
def test_order_is_the_documents(tmp_path, parts):
    document = docx.Document()
    for part in parts:
        if isinstance(part, str):
            document.add_paragraph(part)
        else:
            fill(document.add_table(1, len(part)), [part])
    text = read(document, tmp_path).text
    words = "".join(part if isinstance(part, str) else "".join(part) for part in parts)
    assert re.sub(r"[\s|-]", "", text) == re.sub(r"\s", "", words)


# ── 标题、列表、编号 ──


def test_headings_title_and_lists(tmp_path):
    document = docx.Document()
    document.add_heading("员工手册", 0)
    document.add_heading("第一章 总则", 1)
    document.add_heading("适用范围", 2)
    document.add_paragraph("全体员工")
    document.add_paragraph("打卡", style="List Bullet")
    document.add_paragraph("请假", style="List Bullet")
    document.add_paragraph("登录", style="List Number")
    document.add_paragraph("提交", style="List Number")
    document.add_paragraph("# 不是标题")
    found = read(document, tmp_path)
    assert found.metadata == {"title": "员工手册"}
    assert found.text == ("员工手册\n\n# 第一章 总则\n\n## 适用范围\n\n全体员工\n\n- 打卡\n- 请假\n1. 登录\n2. 提交\n\n\\# 不是标题")


def test_outline_level_and_derived_styles_are_headings(tmp_path):
    document = docx.Document()
    style = document.styles.add_style("公司标题", 1)
    style.base_style = document.styles["Heading 2"]
    document.add_paragraph("派生的", style="公司标题")
    document.add_paragraph("直接设的")._p.get_or_add_pPr().append(raw('<w:outlineLvl w:val="0"/>'))
    document.add_paragraph("正文")._p.get_or_add_pPr().append(raw('<w:outlineLvl w:val="9"/>'))
    assert read(document, tmp_path).text == "## 派生的\n\n# 直接设的\n\n正文"


def test_automatic_numbers_are_written_out(tmp_path):
    document = docx.Document()
    numbering = document.part.numbering_part.element
    levels = [("chineseCountingThousand", "第%1章"), ("decimal", "%1.%2"), ("chineseCounting", "（%3）")]
    xml = "".join(f'<w:lvl w:ilvl="{i}"><w:start w:val="1"/><w:numFmt w:val="{f}"/><w:lvlText w:val="{t}"/>'
                  f'{"<w:isLgl/>" if i == 1 else ""}</w:lvl>' for i, (f, t) in enumerate(levels))
    numbering.insert(0, raw(f'<w:abstractNum w:abstractNumId="90">{xml}</w:abstractNum>'))
    numbering.append(raw('<w:num w:numId="90"><w:abstractNumId w:val="90"/></w:num>'))
    numbering.append(raw('<w:num w:numId="91"><w:abstractNumId w:val="90"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="8"/></w:lvlOverride></w:num>'))

    def add(text, level, number=90):
        paragraph = document.add_paragraph(text)
        paragraph._p.get_or_add_pPr().append(raw(f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'))
        return paragraph

    add("总则", 0).style = "Heading 1"
    add("甲", 1)
    add("乙", 1)
    add("子", 2)
    add("丑", 2)
    add("考勤", 0).style = "Heading 1"
    add("丙", 1)
    add("附则", 0, 91)
    add("取消编号", 0, 0)
    lines = [line for line in read(document, tmp_path).text.split("\n") if line]
    assert lines == ["# 第一章 总则", "1.1 甲", "1.2 乙", "（一） 子", "（二） 丑", "# 第二章 考勤", "2.1 丙", "第八章 附则", "取消编号"]


def test_number_styles():
    assert [chinese_number(n) for n in (1, 10, 11, 20, 21, 100, 101, 110, 111, 1000, 1001, 1100, 9999)] == [
        "一", "十", "十一", "二十", "二十一", "一百", "一百零一", "一百一十", "一百一十一", "一千", "一千零一", "一千一百", "九千九百九十九"]
    assert [count_as(s, 4) for s in ("lowerRoman", "upperLetter", "decimalZero", "none", "whatever")] == ["iv", "D", "04", "", "4"]
    assert count_as("lowerLetter", 27) == "aa" and count_as("upperRoman", 0) == "0"


def test_generated_table_of_contents_is_dropped(tmp_path):
    document = docx.Document()
    document.styles.add_style("toc 1", 1)
    document.add_paragraph("第一章 总则\t3", style="toc 1")
    document.add_heading("第一章 总则", 1)
    assert read(document, tmp_path).text == "# 第一章 总则"


# ── 段内 ──


def test_insertions_count_and_deletions_do_not(tmp_path):
    document = docx.Document()
    p = document.add_paragraph("住宿费")._p
    p.append(raw('<w:ins w:id="1" w:author="x"><w:r><w:t>每晚 500 元</w:t></w:r></w:ins>'))
    p.append(raw('<w:del w:id="2" w:author="x"><w:r><w:delText>每晚 400 元</w:delText></w:r></w:del>'))
    p.append(raw('<w:moveFrom w:id="3" w:author="x"><w:r><w:t>搬走</w:t></w:r></w:moveFrom>'))
    p.append(raw('<w:moveTo w:id="4" w:author="x"><w:r><w:t>，搬来</w:t></w:r></w:moveTo>'))
    gone = document.add_paragraph("标记删了的段，")._p
    gone.get_or_add_pPr().append(raw('<w:rPr><w:del w:id="5" w:author="x"/></w:rPr>'))
    document.add_paragraph("和这一段相接")
    table = fill(document.add_table(3, 2), [["甲", "乙"], ["删掉的", "行"], ["1", "2"]])
    table.rows[1]._tr.get_or_add_trPr().append(raw('<w:del w:id="6" w:author="x"/>'))
    assert read(document, tmp_path).text == (
        "住宿费每晚 500 元，搬来\n\n标记删了的段，和这一段相接\n\n| 甲 | 乙 |\n| --- | --- |\n| 1 | 2 |")


def test_runs_breaks_links_and_hidden_text(tmp_path):
    document = docx.Document()
    paragraph = document.add_paragraph()
    paragraph.add_run("中")
    paragraph.add_run("国").bold = True
    paragraph.add_run("\t人").add_break(WD_BREAK.LINE)
    paragraph.add_run("下一行\u00a0和\u00ad软")
    paragraph.add_run("藏起来").font.hidden = True
    paragraph._p.append(raw("<w:hyperlink><w:r><w:t>链接</w:t></w:r></w:hyperlink>"))
    paragraph._p.append(raw('<w:r><w:fldChar w:fldCharType="begin"/></w:r>'))
    paragraph._p.append(raw("<w:r><w:instrText>PAGE</w:instrText></w:r>"))
    paragraph._p.append(raw("<w:r><w:noBreakHyphen/><w:t>3</w:t></w:r>"))
    assert read(document, tmp_path).text == "中国 人\n下一行 和软链接-3"


def test_text_box_is_read_once(tmp_path):
    document = docx.Document()
    paragraph = document.add_paragraph("旁边")
    box = '<w:txbxContent><w:p><w:r><w:t>框里</w:t></w:r></w:p></w:txbxContent>'
    paragraph._p.append(parse_xml(
        f'<w:r {W} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml">'
        f'<mc:AlternateContent><mc:Choice Requires="wps"><w:drawing>{box}</w:drawing></mc:Choice>'
        f'<mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>'))
    document.add_paragraph("后面")
    assert read(document, tmp_path).text == "旁边\n\n框里\n\n后面"


def test_footnotes_follow_their_paragraph(tmp_path):
    from docx.opc.packuri import PackURI
    from docx.opc.part import Part

    document = docx.Document()
    paragraph = document.add_paragraph("住宿限额")
    paragraph._p.append(raw('<w:r><w:footnoteReference w:id="2"/></w:r>'))
    blob = f'<w:footnotes {W}><w:footnote w:id="2"><w:p><w:r><w:t>旺季上浮</w:t></w:r></w:p></w:footnote></w:footnotes>'.encode()
    part = Part(PackURI("/word/footnotes.xml"), "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml", blob, document.part.package)
    document.part.relate_to(part, "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes")
    assert read(document, tmp_path).text == "住宿限额\n\n注：旺季上浮"


# ── 坏的、大的 ──


def good(tmp_path):
    document = docx.Document()
    document.add_paragraph("好")
    document.save(str(tmp_path / "好.docx"))
    return (tmp_path / "好.docx").read_bytes()


def rewritten(data, replace):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if name in replace:
                with target.open(name, "w", force_zip64=True) as part:
                    for piece in replace[name]:
                        part.write(piece)
            else:
                target.writestr(name, source.read(name))
    return out.getvalue()


def test_broken_and_hostile_files_each_give_one_warning(tmp_path):
    data = good(tmp_path)
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        xml = package.read("word/document.xml")
    bomb = rewritten(data, {"word/document.xml": (b" " * 2**20 for _ in range(300))})
    lying = bytearray(bomb)
    entry = lying.rfind(b"word/document.xml") - 46
    lying[entry + 24:entry + 28] = struct.pack("<I", 1000)
    laughs = b"<!DOCTYPE x [<!ENTITY a '" + b"ha" * 500 + b"'>" + b"".join(
        b"<!ENTITY %c '%s'>" % (98 + i, b"&%c;" % (97 + i) * 20) for i in range(8)) + b"]>"
    files = {
        "空.docx": b"", "截断.docx": data[: len(data) // 2], "文本.docx": "不是".encode(), "别的包.docx": rewritten(data, {})[:0] or b"PK\x05\x06" + b"\0" * 18,
        "加密.docx": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 4000, "老.doc": b"\xd0\xcf\x11\xe0", "炸弹.docx": bomb, "说谎.docx": bytes(lying),
        "笑.docx": rewritten(data, {"word/document.xml": [xml.replace(b"<w:document", laughs + b"<w:document", 1).replace("好".encode(), b"&i;")]}),
        "深.docx": rewritten(data, {"word/document.xml": [xml.replace(b"<w:p>", b"<w:p>" * 50_000, 1)]}),
        "半截.docx": rewritten(data, {"word/document.xml": [xml[: len(xml) // 2]]}),
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        documents = load_folder(tmp_path)
    spent, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < 20 and peak < 50 * 2**20
    assert [(d.source, d.text) for d in documents] == [("好.docx", "好")]
    assert all(w.category is RagLessonsWarning for w in caught)
    messages = [str(w.message) for w in caught]
    assert len(messages) == len(files)
    for name in files:
        assert sum(name in message for message in messages) == 1, name


def test_what_to_do_is_said(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    with pytest.raises(RagLessonsError, match="去掉密码"):
        load_document(tmp_path / "a.docx")
    (tmp_path / "a.doc").write_bytes(b"x")
    with pytest.raises(RagLessonsError, match=r"另存为 \.docx"):
        load_document(tmp_path / "a.doc")


def test_absurd_spans_are_refused(tmp_path):
    document = docx.Document()
    table = document.add_table(300, 2)
    for row in table.rows:
        row._tr.tc_lst[0].get_or_add_tcPr().append(raw('<w:gridSpan w:val="999999"/>'))
    with pytest.raises(RagLessonsError, match="拆小"):
        read(document, tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=st.floats(0, 1), change=st.binary(min_size=1, max_size=40), cut=st.booleans())
def test_damaged_bytes_never_give_a_traceback(tmp_path, where, change, cut):
    data = good(tmp_path)
    at = int(where * (len(data) - 1))
    (tmp_path / "坏.docx").write_bytes(data[:at] + change + (b"" if cut else data[at + len(change):]))
    try:
        load_document(tmp_path / "坏.docx")
    except RagLessonsError as error:
        assert "坏.docx" in str(error)


