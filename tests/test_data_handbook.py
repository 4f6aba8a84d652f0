"""公司资料与音箱说明书：文件的毛病确实在、读出来是对的、数字前后一致，金标对得上。"""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from rag_lessons.evaluation import gold_spans, load_golden
from rag_lessons.loading import load_folder
from rag_lessons.paths import data_path
from rag_lessons.types import Document

HANDBOOK = data_path("handbook")
SOURCES = data_path("handbook_sources")
TYPES = {"literal", "paraphrase", "exact_number", "table", "multi_passage", "contradiction", "unanswerable"}
OLD_RULE = "制度/差旅费管理办法2023.gbk.txt"
STANDARD = "制度/差旅费标准2024.md"
PURCHASE = "制度/采购与合同审批办法.docx"
ASSETS = "制度/固定资产与办公用品管理办法.docx"
TWO_COLUMNS = "制度/质量与安全操作规程.pdf"
RADICALS = "制度/保密与知识产权须知.pdf"
GBK_PAGE = "问答/考勤问答.html"
UTF8_PAGE = "问答/信息服务问答.html"
MADE = {OLD_RULE, PURCHASE, ASSETS, TWO_COLUMNS, RADICALS, GBK_PAGE, UTF8_PAGE}
SHORT = 160                     # 不到这么多字的算短文件
TIERS = ("一线", "二线", "三线", "其他")


def read_golden(name: str) -> list[dict]:
    text = data_path("golden", f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def squeeze(text: str) -> str:
    """去掉空白和 Markdown 的井号，只比文字。"""
    return re.sub(r"[\s#]", "", text)


def bigrams(text: str) -> set[str]:
    return {a + b for a, b in pairwise(text) if a.isalnum() and b.isalnum()}


def rows(text: str) -> list[list[str]]:
    return [[c.strip() for c in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")]


@pytest.fixture(scope="module")
def documents() -> dict[str, list[Document]]:
    """两份语料；有一份文件读不了就会有警告，测试里警告就是失败。"""
    return {"handbook": load_folder(HANDBOOK), "product": load_folder(data_path("product"))}


@pytest.fixture(scope="module")
def texts(documents: dict[str, list[Document]]) -> dict[str, str]:
    return {d.source: d.text for d in documents["handbook"]}


@pytest.fixture(scope="module", params=["handbook", "product"])
def golden(request: pytest.FixtureRequest) -> tuple[str, list[dict]]:
    return request.param, read_golden(request.param)


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_handbook", data_path("make_handbook.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- 语料 ----


def test_sizes(documents: dict[str, list[Document]], texts: dict[str, str]) -> None:
    assert 20 <= len(texts) <= 30
    assert 50_000 <= sum(map(len, texts.values())) <= 90_000
    assert {Path(source).suffix for source in texts} == {".md", ".txt", ".html", ".docx", ".pdf"}
    assert sum(len(text) < SHORT for text in texts.values()) >= 6
    (manual,) = documents["product"]
    assert manual.source == "product.md" and 8_000 <= len(manual.text) <= 12_000


def test_readme_states_the_real_counts(documents: dict[str, list[Document]]) -> None:
    readme = data_path("README.md").read_text(encoding="utf-8")
    total = sum(len(d.text) for d in documents["handbook"])
    assert f"| `handbook/` | 虚构公司「岱柏仪表」的制度、通知、问答、公告 | {len(documents['handbook'])} 份文件，约 {total / 10_000:.1f} 万字 |" in readme
    assert f"约 {len(documents['product'][0].text) / 10_000:.1f} 万字" in readme
    counts = {name: Counter(q["type"] for q in read_golden(name)) for name in ("handbook", "product")}
    for name, count in counts.items():
        assert re.search(rf"\| `golden/{name}\.jsonl` \|.*\| {count.total()} 题 \|", readme)
    for kind in TYPES:
        assert f"| `{kind}` | {counts['handbook'][kind]} | {counts['product'][kind]} |" in readme


def test_handbook_has_three_heading_levels(texts: dict[str, str]) -> None:
    lines = texts["员工手册v3.2.md"].splitlines()
    levels = Counter(len(line) - len(line.lstrip("#")) for line in lines if line.startswith("#"))
    assert set(levels) == {1, 2, 3} and levels[2] >= 11
    assert [lines[0], "## 第三章 考勤", "### 3.2 请假流程"] == [
        line for line in lines if line in (lines[0], "## 第三章 考勤", "### 3.2 请假流程")
    ]
    assert sum("（二）逐级批准。" in line for line in lines) >= 7, "不看标题就分不清是哪件事的审批"
    assert f"| {levels[3]} | 调休有效期" in texts["员工手册v3.2.md"], "版本记录里的条数"


def test_tables_are_long_enough_to_be_cut(texts: dict[str, str]) -> None:
    cities, abroad = texts[STANDARD].split("## 四、附表三")
    assert sum(row[1] in TIERS for row in rows(cities)) >= 30
    assert len(rows(abroad.split("## 五")[0])) >= 22
    for source in (PURCHASE, ASSETS, "后勤/班车时刻表.md", "制度/售后服务规范.md"):
        assert len(rows(texts[source])) >= 20, source


def test_rates_agree_between_documents(texts: dict[str, str]) -> None:
    """通知、标准、旧办法里的同一个数要相同；故意留的矛盾只有 README 里列的那些。"""
    new, old = texts["通知/DB-2024-117.md"], texts["通知/DB-2023-117.md"]
    for row in rows(texts[STANDARD]):
        if len(row) == 7 and row[1] in TIERS and row[0] != "县和县级市":
            name = "其他地级市" if row[1] == "其他" else row[1] + "城市"
            before, after = re.search(rf"{name}(?:每人每晚)?由 (\d+) 元调整为 (\d+) 元", new).groups()
            assert row[2] == after, row
            assert re.search(rf"{name}(?:每人每晚)? {before} 元", old), row
            assert re.search(rf"^{row[1]}\t{before}\t", texts[OLD_RULE], re.MULTILINE), row
            food = re.search(rf"餐饮补贴：.*?{name}(?:每天)?由 (\d+) 元调整为 (\d+) 元", new)
            assert row[3] == food[2] or row[0] in ("乌鲁木齐", "拉萨"), row
            assert re.search(rf"^{row[1]}\t{food[1]}$", texts[OLD_RULE], re.MULTILINE), row
    county = next(row for row in rows(texts[STANDARD]) if row[0] == "县和县级市")
    assert f"应为「由 150 元调整为 {county[2]} 元」" in texts["通知/DB-2024-203.md"]
    devices = next(row for row in rows(texts[ASSETS]) if "笔记本电脑" in row)
    assert "四年更换一次" in texts["员工手册v3.2.md"] and "4 年" in devices


def test_near_copies_differ_in_place_and_one_number(texts: dict[str, str]) -> None:
    one, two = (texts[f"部门/{c}实验室使用规定.md"].splitlines() for c in ("杭州", "成都"))
    assert len(one) == len(two) > 40
    changed = [(a, b) for a, b in zip(one, two, strict=True) if a != b]
    assert [(a.replace("杭州", "成都"), a.replace("提前 2 个", "提前 3 个")) for a, _ in changed] == [
        (changed[0][1], changed[0][0]), (changed[1][0], changed[1][1])
    ]


# ---- 格式上的毛病 ----


def test_script_makes_the_same_files(maker, tmp_path: Path) -> None:
    first = maker.make(tmp_path / "a")
    second = maker.make(tmp_path / "b")
    assert {p.relative_to(tmp_path / "a").as_posix() for p in first} == MADE
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
        kept = HANDBOOK / one.relative_to(tmp_path / "a")
        if one.suffix in (".txt", ".html"):
            assert kept.read_bytes() == one.read_bytes(), kept
        elif one.suffix == ".docx":             # 压缩后的字节随 zlib 的版本变，比压缩之前的
            with zipfile.ZipFile(one) as new, zipfile.ZipFile(kept) as old:
                assert [(i.filename, i.date_time, i.CRC) for i in new.infolist()] == [
                    (i.filename, i.date_time, i.CRC) for i in old.infolist()
                ], kept
        else:
            assert raw_pages(one) == raw_pages(kept), kept


def test_made_files_match_their_sources(texts: dict[str, str]) -> None:
    for source in (TWO_COLUMNS, RADICALS, OLD_RULE):
        name = Path(source).name.removesuffix(".gbk.txt").removesuffix(".pdf") + ".txt"
        assert squeeze(texts[source]) == squeeze((SOURCES / name).read_text(encoding="utf-8")), source
    for source in MADE:
        assert (HANDBOOK / source).stat().st_size < 300_000, source


def test_encodings_lie() -> None:
    gbk, utf8 = (HANDBOOK / GBK_PAGE).read_bytes(), (HANDBOOK / UTF8_PAGE).read_bytes()
    assert b"charset=gb2312" in gbk and b"charset=gb2312" in utf8
    assert {"镕", "喆"} <= set(gbk.decode("gbk"))
    for wrong in ("gb2312", "utf-8"):
        with pytest.raises(UnicodeDecodeError):
            gbk.decode(wrong)
    assert "信息服务问答" in utf8.decode("utf-8")
    assert "信息服务问答" not in utf8.decode("gb18030", "replace")
    plain = (HANDBOOK / OLD_RULE).read_bytes()
    assert b"\r\n" in plain and "差旅费管理办法" in plain.decode("gbk")
    with pytest.raises(UnicodeDecodeError):
        plain.decode("utf-8")


def test_pages_come_out_clean(texts: dict[str, str]) -> None:
    assert "| 李喆 | 总部与办事处 | 8122 | 1 号楼 305 |" in texts[GBK_PAGE]
    for source in (GBK_PAGE, UTF8_PAGE):
        assert not re.search(r"openMenu|document\.|font-family|<[a-z]", texts[source]), source


def test_word_files_have_merged_cells_and_tracked_changes(texts: dict[str, str]) -> None:
    with zipfile.ZipFile(HANDBOOK / PURCHASE) as archive:
        xml = archive.read("word/document.xml").decode("utf-8")
    for tag in ("<w:ins ", "<w:del ", "<w:delText", "<w:gridSpan ", "<w:vMerge"):
        assert tag in xml, tag
    assert "\n5 万元以上的采购，应当取得三家以上供应商的书面报价。报价的有效期" in texts[PURCHASE]
    assert "3 万元以上的采购" not in texts[PURCHASE] and "十天内补办" not in texts[PURCHASE]
    assert ["设备与工装", "80 万元以上", "董事会", "15 个工作日", "全部会签部门"] in rows(texts[PURCHASE])


def raw_pages(path: Path) -> list[str]:
    """不做任何整理，pypdf 给什么就是什么。"""
    from pypdf import PdfReader

    return [page.extract_text() for page in PdfReader(path).pages]


def test_two_columns_come_out_interleaved_when_read_naively(texts: dict[str, str]) -> None:
    pages = raw_pages(HANDBOOK / TWO_COLUMNS)
    for number, page in enumerate(pages, 1):
        assert f"第 {number} 页 共 {len(pages)} 页 版权所有" in page
        assert "岱柏仪表股份有限公司 内部资料" in page
    assert len(pages) == 12
    clause = "上岗前应当完成三级安全教育：公司级八学时，车间级十二学时，班组级四学时。"
    assert clause not in squeeze(pages[0]) and clause in texts[TWO_COLUMNS]
    assert "版权所有" not in texts[TWO_COLUMNS] and "内部资料" not in texts[TWO_COLUMNS]


def test_radicals_look_like_characters_when_read_naively(texts: dict[str, str]) -> None:
    naive = "".join(raw_pages(HANDBOOK / RADICALS))
    both = re.compile("[\u2e80-\u2eff\u2f00-\u2fdf]")
    assert "人手一份" not in naive and len(both.findall(naive)) > 80
    assert re.search("[\u2e80-\u2eff]", naive), "第二块部首"
    assert "入职时人手一份" in texts[RADICALS] and not both.search(texts[RADICALS])


# ---- 金标 ----


def test_golden_fields(golden: tuple[str, list[dict]]) -> None:
    name, questions = golden
    assert len(questions) >= {"handbook": 80, "product": 30}[name]
    assert len({q["id"] for q in questions}) == len(questions) == len({q["question"] for q in questions})
    counts = Counter(q["type"] for q in questions)
    assert set(counts) == TYPES
    if name == "handbook":
        assert counts["table"] >= 15 and counts["exact_number"] >= 12 and counts["unanswerable"] >= 12
    for q in questions:
        assert set(q) - {"short", "helps"} == {"id", "question", "type", "gold", "answer", "split"}
        assert bool(q["gold"]) == bool(q["answer"]) == (q["type"] != "unanswerable"), q["id"]
        if q["type"] in ("multi_passage", "contradiction"):
            assert len(q["gold"]) >= 2, q["id"]


def test_every_quote_occurs_once(golden: tuple[str, list[dict]], documents: dict[str, list[Document]]) -> None:
    name, questions = golden
    known = {d.source: d.text for d in documents[name]}
    for q in questions:
        for gold in q["gold"]:
            assert known[gold["source"]].count(gold["quote"]) == 1, (q["id"], gold)
            assert "\n" not in gold["quote"], q["id"]


def test_the_course_can_score_them(golden: tuple[str, list[dict]], documents: dict[str, list[Document]]) -> None:
    name, questions = golden
    loaded = load_golden(name)
    assert [q.id for q in loaded] == [q["id"] for q in questions]
    assert sum(len(gold_spans(q, documents[name])) for q in loaded) == sum(len(q["gold"]) for q in questions)


def test_ids_are_unique_across_files() -> None:
    ids = [q["id"] for name in ("agent", "handbook", "product") for q in read_golden(name)]
    assert len(ids) == len(set(ids))


def test_splits_are_balanced_by_type(golden: tuple[str, list[dict]]) -> None:
    _, questions = golden
    counts = Counter((q["type"], q["split"]) for q in questions)
    for kind in TYPES:
        assert abs(counts[kind, "tune"] - counts[kind, "report"]) <= 1, kind


def test_short_gold_lies_in_short_documents(texts: dict[str, str]) -> None:
    short = [q for q in read_golden("handbook") if q.get("short")]
    assert len(short) >= 8 and {q["split"] for q in short} == {"tune", "report"}
    for q in short:
        assert any(len(texts[g["source"]]) < SHORT for g in q["gold"]), q["id"]


def test_path_questions_need_the_path(texts: dict[str, str]) -> None:
    asked = [q for q in read_golden("handbook") if q.get("helps") == "path"]
    assert len(asked) >= 10
    for q in asked:
        (gold,) = q["gold"]
        before = texts[gold["source"]].split(gold["quote"])[0].splitlines()
        assert before[-1].startswith("（"), (q["id"], "条款写成（一）（二），事由只在标题里")


def test_paraphrases_share_nothing_with_their_passage(golden: tuple[str, list[dict]]) -> None:
    for q in golden[1]:
        if q["type"] == "paraphrase":
            shared = bigrams(q["question"]) & set().union(*(bigrams(g["quote"]) for g in q["gold"]))
            assert not shared, (q["id"], shared)


def test_table_questions_point_into_tables(
    golden: tuple[str, list[dict]], documents: dict[str, list[Document]]
) -> None:
    name, questions = golden
    known = {d.source: d.text for d in documents[name]}
    for q in questions:
        if q["type"] == "table":
            for gold in q["gold"]:
                (line,) = [line for line in known[gold["source"]].splitlines() if gold["quote"] in line]
                assert line.startswith("|") and line.endswith("|"), q["id"]


def test_contradictions_come_from_two_places(golden: tuple[str, list[dict]]) -> None:
    name, questions = golden
    for q in questions:
        if q["type"] == "contradiction" and name == "handbook":
            assert len({g["source"] for g in q["gold"]}) >= 2, q["id"]


def test_unanswerable_names_do_not_occur(texts: dict[str, str]) -> None:
    everything = "\n".join(texts.values())
    for word in ("加拿大", "DB-2024-172", "DB-2023-171", "E-35", "健身房", "股票", "夜宵窗口", "国庆", "会费"):
        assert word not in everything, word
    assert "第十四条" not in texts["通知/DB-2024-117.md"]
