"""网页：编码、块与行、表格、看不见的东西。"""

import html as stdlib_html
import re
import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import RagLessonsError, RagLessonsWarning, load_document, load_folder
from rag_lessons.loading.html import MAX_HTML_BYTES, decode_html, html_to_text


def body(source):
    return html_to_text(source)[0]


# ── 编码 ──

GB = '<html><head><meta http-equiv="Content-Type" content="text/html; charset=gb2312"></head><p>朱镕基 陶喆</p>'


@pytest.mark.parametrize("data", [
    GB.encode("gb18030"), GB.encode("utf-8"), GB.encode("utf-8-sig"), GB.encode("utf-16"),
    GB.replace("gb2312", "GBK").encode("gb18030"), GB.replace("gb2312", "utf-8").encode("gb18030"),
    GB.replace("gb2312", "没有").encode("gb18030"), GB.replace("gb2312", "x-unknown").encode("utf-8"),
    "<meta charset=gb2312><p>朱镕基 陶喆</p>".encode("gb18030"), '<META CHARSET="GB2312"/><p>朱镕基 陶喆</p>'.encode("gb18030"),
    "<?xml version='1.0' encoding='gb2312'?><html><p>朱镕基 陶喆</p></html>".encode("gb18030"),
    "<p>朱镕基 陶喆</p>".encode("gb18030"), "<p>朱镕基 陶喆</p>".encode(),
])
def test_encodings(tmp_path, data):
    (tmp_path / "a.html").write_bytes(data)
    assert load_document(tmp_path / "a.html").text == "朱镕基 陶喆"


def test_declared_charset_is_used_when_it_is_not_chinese(tmp_path):
    (tmp_path / "a.htm").write_bytes("<meta charset=big5><p>繁體中文</p>".encode("big5"))
    assert load_document(tmp_path / "a.htm").text == "繁體中文"
    assert decode_html("<meta charset=shift_jis>日本語のテキスト".encode("shift_jis")).endswith("日本語のテキスト")
    assert decode_html("<meta charset=iso-8859-1>café “x”".encode("cp1252")).endswith("café “x”")
    assert decode_html("<!-- <meta charset=big5> --><p>朱镕基".encode("gb18030")).endswith("朱镕基")
    (tmp_path / "b.html").write_bytes("<p>繁體</p>".encode("big5"))
    assert load_document(tmp_path / "b.html", encoding="big5").text == "繁體"


def test_unreadable_bytes_ask_for_the_encoding(tmp_path):
    (tmp_path / "a.html").write_bytes(b"<meta charset=gb2312><p>\xff\xff\x80")
    with pytest.raises(RagLessonsError, match="encoding="):
        load_document(tmp_path / "a.html")


@given(st.text(alphabet=st.characters(codec="gb18030", exclude_categories=["Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp", "Cf"]), min_size=1, max_size=20))
def test_round_trip(text):
    page = f"<meta charset=gb2312><p>甲{stdlib_html.escape(text)}乙</p>"
    assert html_to_text(decode_html(page.encode()))[0] == f"甲{text}乙"


def test_installed_detectors_do_not_matter(tmp_path):
    """装着会乱认的检测器，结果也一样。"""
    for name in ("chardet", "cchardet", "charset_normalizer"):
        (tmp_path / f"{name}.py").write_text(
            "def detect(b, *a, **k): return {'encoding': 'latin-1', 'confidence': 1}\n"
            "def from_bytes(*a, **k): raise RuntimeError('不该来问我')\n", encoding="utf-8")
    (tmp_path / "a.html").write_bytes(GB.encode("gb18030"))
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import chardet; from rag_lessons import load_document;"
            "print(load_document(sys.argv[1] + '/a.html').text == '朱镕基 陶喆')")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "True", done.stderr


# ── 块、行、空白 ──


def test_the_small_page():
    text, title = html_to_text("<title>标题</title><p>甲</p><p>乙</p><table><tr><td>一</td><td>二</td></tr></table>"
                               "<p>中<b>国</b></p><script>var a = '脚本';</script>")
    assert title == "标题"
    assert text == "甲\n\n乙\n\n| 一 | 二 |\n| --- | --- |\n\n中国"


@pytest.mark.parametrize(("source", "text"), [
    ("<div>甲</div><div>乙</div>丙", "甲\n乙\n丙"),
    ("甲<br>乙<br/><br/>丙", "甲\n乙\n丙"),
    ("<h1>一</h1>正文<h3>三<br>层</h3>", "# 一\n\n正文\n\n### 三 层"),
    ("<span>中</span><i>国</i><a href=x>人</a><font>民</font>", "中国人民"),
    ("<p>向量数\n   据库 和\n vector\n search</p>", "向量数据库 和 vector search"),
    ("甲&nbsp;&nbsp;乙&amp;丙&lt;&#20013;&mdash;&unknown;", "甲 乙&丙<中—&unknown;"),
    ("中&shy;国<wbr>人\u200b民", "中国人民"),
    ("汉<ruby>漢<rp>(</rp><rt>hàn</rt><rp>)</rp></ruby>字", "汉漢字"),
    ("H<sub>2</sub>O 10<sup>3</sup>", "H2O 103"),
    ("<ul><li>甲<ul><li>乙</ul><li><p>丙</p><p>丁</p></ul>", "- 甲\n  - 乙\n- 丙\n  丁"),
    ("<ol start=3><li>甲<li>乙</ol>", "3. 甲\n4. 乙"),
    ("<dl><dt>年假</dt><dd>五天</dd></dl>", "年假\n五天"),
    ("<p># 井号开头</p><p>```</p><p>#标签</p>", "\\# 井号开头\n\n\\```\n\n#标签"),
    ("<body>甲<style>x{}</style><noscript>请开启脚本</noscript><template>模板</template><!-- 注释 -->乙", "甲乙"),
    ("甲<p hidden>藏</p><p style='color:red; DISPLAY : none'>藏</p><div aria-hidden='true'>藏</div>", "甲"),
    ("<svg><title>图标</title><text>图</text></svg>甲<select><option>选</option></select>", "甲"),
    ("", ""), ("<html></html>", ""), ("没有标签", "没有标签"), ("https://example.com/a", "https://example.com/a"),
    ("<p>没关上<b>的标签<div>和<错的>尖括号 1 < 2", "没关上的标签\n和<错的>尖括号 1 < 2"),
    ("𠀀 与 😀", "𠀀 与 😀"),
])
def test_blocks_lines_and_spaces(source, text):
    assert body(source) == text


def test_pre_is_verbatim_and_fenced():
    code = "def f():\n\n    # 注释\n\treturn `x`  "
    assert body(f"甲<pre>\n{code}</pre>乙") == f"甲\n\n```\n{code}\n```\n\n乙"
    assert body("<pre><code>a <b>&lt;</b>\n```\nb</code></pre>") == "````\na <\n```\nb\n````"


def test_title_is_apart(tmp_path):
    assert html_to_text("<html><head><title>\n 员工 手册\n</title></head><body>正文") == ("正文", "员工 手册")
    assert html_to_text("<svg><title>图</title></svg>正文") == ("正文", "")
    (tmp_path / "a.html").write_text("<title>手册</title>正文", encoding="utf-8")
    (tmp_path / "b.html").write_text("正文", encoding="utf-8")
    assert [d.metadata for d in load_folder(tmp_path)] == [{"title": "手册"}, {}]


# ── 表格 ──


def test_tables():
    two_heads = ("<table><caption>差旅</caption><thead><tr><th rowspan=2>职级<th colspan=2>费用<tr><th>交通<th>住宿</thead>"
                 "<tfoot><tr><td colspan=3>注：含税</tfoot><tr><td rowspan=2>P1<td>1|2<td><p>3</p><p>4</p><tr><td>5<td></table>")
    assert body(two_heads) == ("差旅\n\n| 职级 | 费用 / 交通 | 费用 / 住宿 |\n| --- | --- | --- |\n| P1 | 1\\|2 | 3 4 |\n"
                               "| P1 | 5 |  |\n| 注：含税 |  |  |")


def test_header_without_th_over_two_rows():
    source = "<table><tr><td rowspan=2>职级<td colspan=2>费用<tr><td>交通<td>住宿<tr><td>P1<td>1<td>2</table>"
    assert body(source).splitlines()[0] == "| 职级 | 费用 / 交通 | 费用 / 住宿 |"


def test_nested_tables_are_layout():
    source = "<table><tr><td><h2>左</h2><table><tr><td>一</td><td>二</td></tr></table></td><td><p>右</p></td></tr></table>"
    assert body(source) == "## 左\n\n| 一 | 二 |\n| --- | --- |\n\n右"


def test_a_single_cell_is_no_table():
    assert body("<table><tr><td><p>甲</p><p>乙</p></td></tr></table>") == "甲\n\n乙"


# ── 坏的、大的 ──

TAGS = st.sampled_from(["<p>", "</p>", "<table>", "<tr>", "<td rowspan=2>", "</td>", "</table>", "<ul>", "<li>", "</ul>", "<pre>", "</pre>",
                        "<h2>", "</h2>", "<b>", "<br>", "<script>", "</script>", "<td colspan=x>", "<!--", "-->", "<ol start=''>", "&", "<", "甲 乙\n丙"])


@given(st.lists(TAGS, max_size=30))
def test_any_tag_soup_is_read(parts):
    text = body("".join(parts))
    assert "\n\n\n" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("source", ["<div>" * 50_000 + "深", "<table><tr><td>" * 3000 + "深", "<b>" * 50_000 + "深", "<ul><li>" * 5000 + "深"])
def test_deep_nesting_ends(source):
    start = time.perf_counter()
    body(source)
    assert time.perf_counter() - start < 30


def test_wide_spans_and_huge_pages_are_refused(tmp_path):
    (tmp_path / "a.html").write_text("<table>" + "<tr><td colspan=999999>x<td>y" * 1000 + "</table>", encoding="utf-8")
    (tmp_path / "b.html").write_text("<p>" + "x" * MAX_HTML_BYTES, encoding="utf-8")
    (tmp_path / "c.html").write_text("<p>好", encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [d.text for d in load_folder(tmp_path)] == ["好"]
    assert sorted(str(w.message)[:10] for w in caught) == ["跳过 a.html：", "跳过 b.html："]
    assert all(w.category is RagLessonsWarning for w in caught)
