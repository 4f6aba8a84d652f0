"""文字清理：部首字、断行、页眉页脚、乱码。"""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import RagLessonsError, load_document
from rag_lessons.loading.clean import (
    clean_pages,
    garbled_share,
    join_broken_lines,
    map_radicals,
    remove_running_lines,
    running_lines,
    seam,
)
from rag_lessons.loading.markdown import Cell, spread, table

WORDS = st.text(alphabet="向量数据库员工ab12 ，。\n-", max_size=60)


# ── 部首字 ──


def test_both_radical_blocks_become_ordinary_characters():
    for code in range(0x2F00, 0x2FD6):
        assert map_radicals(chr(code)) == unicodedata.normalize("NFKC", chr(code))
    left = [chr(c) for c in range(0x2E81, 0x2EF4) if c != 0x2E9A and 0x2E80 <= ord(map_radicals(chr(c))) < 0x2FE0]
    assert left == []
    assert map_radicals("⻘⻓⻔⻚⻛⻜⻢⻥⻦⻰⻋⻅⻉⻩⻬") == "青长门页风飞马鱼鸟龙车见贝黄齐"
    assert map_radicals("⾦⽟⾒") == "金玉見"
    assert map_radicals("\uf90a\uf98e") == "金年"


def test_household_follows_the_script_of_the_document():
    assert map_radicals("⼤客⼾，应当为") == "大客户，应当为"
    assert map_radicals("⼤客⼾，應當為") == "大客戶，應當為"


@given(st.text(max_size=40))
def test_mapping_keeps_every_position(text):
    mapped = map_radicals(text)
    assert len(mapped) == len(text) and map_radicals(mapped) == mapped
    assert all(a == b or re.match("[\u2e80-\u2fd5\uf900-\ufad9]", a) for a, b in zip(text, mapped, strict=True))


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_every_format_is_mapped(tmp_path, name):
    (tmp_path / name).write_text("⾏业⼈才", encoding="utf-8")
    assert load_document(tmp_path / name).text == "行业人才"


# ── 断行 ──


@pytest.mark.parametrize(("broken", "whole"), [
    ("向量数\n据库 支持 RAG", "向量数据库 支持 RAG"),
    ("vector\nsearch", "vector search"),
    ("infor-\nmation", "information"),
    ("通知 DB-2024-\n117 号", "通知 DB-2024-117 号"),
    ("使用 RAG 和 BM25，再用\nRAG", "使用 RAG 和 BM25，再用 RAG"),
    ("使用RAG和BM25，再用\nRAG", "使用RAG和BM25，再用RAG"),
    ("支持，\nRAG", "支持，RAG"),
    ("占 8%\n的 A 与 B 和 C 的", "占 8% 的 A 与 B 和 C 的"),
    ("甲\n\n乙", "甲\n\n乙"),
    ("到此为止。\n另起一句", "到此为止。\n另起一句"),
    ("前文\n1. 打卡\n2. 请假", "前文\n1. 打卡\n2. 请假"),
    ("前文\n（一）打卡\n一、请假\n• 加班", "前文\n（一）打卡\n一、请假\n• 加班"),
    ("第三章 考勤\n员工应当", "第三章 考勤\n员工应当"),
    ("工资的\n1.5 倍", "工资的 1.5 倍"),
    ("| 甲 | 乙 |\n| 1 | 2 |", "| 甲 | 乙 |\n| 1 | 2 |"),
])
def test_broken_lines(broken, whole):
    assert join_broken_lines(broken) == whole


def test_short_lines_of_a_long_page_stay():
    full = "这一行排得满满的一直写到了右边的边上"
    assert join_broken_lines(f"{full}\n{full}\n小标题\n{full}\n{full}").split("\n") == [f"{full}{full}小标题", f"{full}{full}"]
    assert join_broken_lines("张三\n李四\n王五和赵六\n" + full).count("\n") == 3


@given(WORDS)
def test_joining_loses_nothing(text):
    squeeze = lambda s: re.sub(r"[\s-]", "", s)  # noqa: E731
    assert squeeze(join_broken_lines(text)) == squeeze(text)
    assert join_broken_lines(text).count("\n\n") <= text.count("\n")


@given(WORDS, WORDS)
def test_seam_keeps_words_apart(left, right):
    kept, between = seam(left, right)
    assert left.startswith(kept) and between in ("", " ")
    if re.search("[ab12]$", left.rstrip()) and re.match("[ab12]", right.lstrip()):
        assert between == " "


# ── 页眉页脚 ──


def pages_with(head, foot, n=6):
    return [f"{head(i)}\n第{i}页的正文甲\n正文乙{i}，长一些\n正文丙{i}\n{foot(i)}" for i in range(1, n + 1)]


@pytest.mark.parametrize("foot", [
    lambda i: f"第 {i} 页", lambda i: f"第{i}页 共 6 页", lambda i: f"第{i}页/共6页", lambda i: f"- {i} -", lambda i: f"{i} / 6",
    lambda i: f"Page {i} of 6", lambda i: str(i), lambda i: f"{i}  版权所有", lambda i: f"版权所有 | {i}", lambda i: f"第 {i} 页 版权所有",
    lambda i: ["第一页", "第二页", "第三页", "第四页", "第五页", "第六页"][i - 1], lambda i: ["i", "ii", "iii", "iv", "v", "vi"][i - 1],
])  # fmt: skip
def test_heads_and_feet_go(foot):
    cleaned = remove_running_lines(pages_with(lambda i: "员工手册 v3.2", foot))
    assert cleaned == [f"第{i}页的正文甲\n正文乙{i}，长一些\n正文丙{i}" for i in range(1, 7)]


def test_odd_and_even_heads_go():
    cleaned = remove_running_lines(pages_with(lambda i: "员工手册" if i % 2 else "第三章 考勤", lambda i: f"- {i} -"))
    assert all("员工手册" not in page and "第三章" not in page for page in cleaned)


def test_body_text_stays():
    ledger = ["\n".join(f"2024-0{m}-{d:02d} 支出 {d * 7} 元" for d in range(1, 9)) for m in range(1, 7)]
    assert remove_running_lines(ledger) == ledger
    forms = ["请假单\n姓名\n部门\n事由\n日期\n签字"] * 5
    assert remove_running_lines(forms) == forms
    twice = [f"小计\n小计\n正文{i}\n又{i}\n还{i}\n再{i}" for i in range(5)]
    assert remove_running_lines(twice) == twice
    ruled = [f"＊＊＊\n甲{i}\n乙{i}\n丙{i}\n＊＊＊\n丁{i}\n＊＊＊\n戊{i}\n己{i}\n庚{i}" for i in range(5)]
    assert remove_running_lines(ruled) == ruled
    assert remove_running_lines(["甲", "乙"]) == ["甲", "乙"]
    assert remove_running_lines(["一样的一行\n甲\n第 1 页", "一样的一行\n乙\n第 2 页"]) == ["一样的一行\n甲", "一样的一行\n乙"]
    assert remove_running_lines(["只有一页\n页脚"]) == ["只有一页\n页脚"]
    assert remove_running_lines([]) == []


def test_head_only_page_becomes_empty():
    pages = [*pages_with(lambda i: "手册", lambda i: f"- {i} -"), "手册\n\n- 7 -"]
    assert remove_running_lines(pages)[-1].strip() in ("", "手册\n\n- 7 -")


@given(st.lists(st.lists(st.sampled_from(["手册", "第 3 页", "甲", "乙", "", "12"]), max_size=8), max_size=8))
def test_running_lines_are_at_the_edges(pages):
    for page, found in zip(pages, running_lines(pages), strict=True):
        filled = [i for i, line in enumerate(page) if line]
        assert found <= set(filled[:3]) | set(filled[-3:])


def test_clean_pages_does_all():
    pages = [f"内部资料\n⾏业{i}向量数\n据库\u200b很{i}好\n第 {i} 页" for i in range(1, 5)]
    assert clean_pages(pages) == [f"行业{i}向量数据库很{i}好" for i in range(1, 5)]


def test_gaps_limit_heads_and_rescue_them_from_repeated_pages():
    pages = [["手册", f"正文{i}", "签字", f"- {i} -"] for i in range(1, 5)]
    assert running_lines(pages) == [{0, 2, 3}] * 4
    assert running_lines(pages, [([1], [1])] * 4) == [{0, 3}] * 4
    same = [["手册", "甲", "乙", "丙", "丁", f"- {i} -"] for i in range(1, 5)]
    assert running_lines(same) == [set()] * 4
    assert running_lines(same, [([1], [1])] * 4) == [{0, 5}] * 4


# ── 乱码 ──


@pytest.mark.parametrize(("text", "bad"), [
    ("(cid:12)(cid:88)", True), ("\ufffd\ufffd", True), ("\ue001\ue002\x01", True),
    ("正常的文字", False), ("", False), ("正文 (cid:3) 里夹了一个，别的都好", False),
])
def test_garbled(text, bad):
    assert (garbled_share(text) >= 0.3) is bad


# ── 表格 ──


def test_merged_cells_are_repeated_and_equal_values_are_not_merged():
    grid = spread([[Cell("甲", down=2), Cell("乙", across=2)], [Cell("是"), Cell("是")], [Cell("备注", across=3)], [Cell("是")] * 3])
    assert grid == [["甲", "乙", "乙"], ["甲", "是", "是"], ["备注"], ["是", "是", "是"]]
    assert table(grid).splitlines()[3:] == ["| 备注 |  |  |", "| 是 | 是 | 是 |"]


@given(st.lists(st.lists(st.builds(Cell, st.sampled_from("甲乙丙"), st.integers(-1, 5), st.integers(-1, 5)), max_size=4), max_size=6))
def test_any_table_is_rectangular_markdown(rows):
    grid = spread(rows)
    assert len(grid) == len(rows)
    lines = [line for line in table(grid).split("\n") if line.startswith("|")]
    assert len({line.count("|") for line in lines}) <= 1
    shown = "".join(lines) + table(grid)
    assert all(cell.text in shown for row in rows for cell in row)


def test_absurd_spans_are_refused():
    with pytest.raises(RagLessonsError, match="拆小"):
        spread([[Cell("x", across=10**9)] * 2] * 1000)
