"""按结构切块：路径、表格、代码、问答、函数；再加所有切块函数都要守的规矩。"""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_chunking import TEXTS, check_invariants

from rag_lessons import (
    Document,
    Hit,
    RagLessonsError,
    RagLessonsWarning,
    ToyEmbedder,
    build_prompt,
    chunk_by_definition,
    chunk_by_heading,
    chunk_by_meaning,
    load_folder,
)
from rag_lessons.chunking.structure import markdown_blocks, table_rows, table_sentences
from rag_lessons.paths import data_path

MARKDOWN = st.lists(st.sampled_from([
    "# 一级\n", "## 二级\n", "### 三级\n", "#标签\n", "#!/bin/sh\n", "\n", "正文一句。", "很长的正文，" * 12 + "完。\n", "```\n# 注释\n```\n",
    "~~~py\n# 注释\n~~~\n", "````\n```\n# 注释\n```\n````\n", "```\n# 没有收尾\n", "   ```\n   # 注释\n   ```\n", "    # 缩进代码\n",
    "| 甲 | 乙 |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n", "| 甲 |\n|---|\n" + "| 很长的一格 |\n" * 15, "- 一\n- 二\n", "> # 引用\n", "标题\n===\n",
    "---\n", "---\ntitle: x\n---\n", "问：为什么？\n答：因为。\n", "Q1: 甲\nA: 乙\n", "\u3000", "\x0c", "\u2028", "\x1c\n", "<div>\n# 不是\n</div>\n",
]), max_size=25).map("".join)
PYTHON = st.lists(st.sampled_from([
    "import os\n", "# 注释\n", "\n", "@cache\ndef f():\n    return 1\n", "class A:\n    '''说明'''\n    x = 1\n\n    def f(self):\n        return 1\n\n    @property\n    def g(self):\n        return 2\n",
    "def g():\n" + "    x = 1\n" * 20, "X = [\n    1,\n    2,\n]\n", "async def h():\n    pass\n", "if X:\n    def k():\n        pass\n",
    "class B:\n    class C:\n        def f(self):\n            " + "pass; " * 20 + "pass\n", "s = '''\ndef 不是():\n    pass\n'''\n", "\x0c\n",
]), max_size=12).map("".join)


@given(st.one_of(MARKDOWN, TEXTS), st.integers(1, 200), st.data())
def test_heading_invariants(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    for tables in ("rows", "sentences"):
        check_invariants(Document("a.md", text), chunk_by_heading(Document("a.md", text), size, overlap, tables=tables))


@given(st.one_of(PYTHON, TEXTS), st.integers(1, 300))
def test_definition_invariants(text, size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RagLessonsWarning)
        check_invariants(Document("a.py", text), chunk_by_definition(Document("a.py", text), size))


@given(TEXTS, st.integers(1, 100))
def test_meaning_invariants(text, size):
    chunks = chunk_by_meaning(Document("a.md", text), ToyEmbedder(64), size)
    check_invariants(Document("a.md", text), chunks)
    assert all(len(chunk.text) <= size for chunk in chunks)


def heading_titles(text):
    return [b.path[-1] for b in markdown_blocks(text) if b.kind == "heading"]


@pytest.mark.parametrize("fence", ["```\n# 注释\n```", "~~~\n# 注释\n~~~", "````\n```\n# 注释\n```\n````", "  ```py\n  # 注释\n  ```",
                                   "```\n# 注释\n"])
def test_headings_only_outside_fences(fence):
    text = f"# 真\n\n{fence}\n"
    assert heading_titles(text) == ["真"]
    (chunk,) = chunk_by_heading(Document("a.md", text))
    assert fence.strip() in chunk.text


@pytest.mark.parametrize("line", ["#标签", "#!/bin/sh", "    # 缩进", "> # 引用", "\\# 转义", "####### 七个"])
def test_what_is_no_heading(line):
    assert heading_titles(f"# 真\n\n{line}\n") == ["真"]


def test_titles():
    assert heading_titles("# 甲 `b` **丙** #\n\n乙\n===\n\n丁\n---\n\n## \n") == ["甲 b 丙", "乙", "丁", "乙"]
    assert heading_titles("---\ntitle: x\n# 不是\n---\n# 真\n") == ["真"]


def test_path_goes_into_embedding_text_only():
    text = "# 员工手册\n\n## 第三章 考勤\n\n### 3.2 请假\n\n提前三天。\n\n## 第四章\n\n### 4.2 请假\n\n提前五天。\n"
    chunks = chunk_by_heading(Document("手册.md", text))
    assert [c.headings for c in chunks] == [("员工手册", "第三章 考勤", "3.2 请假"), ("员工手册", "第四章", "4.2 请假")]
    for chunk in chunks:
        assert chunk.embedding_text == " > ".join(chunk.headings) + "\n" + chunk.text
        assert " > " not in chunk.text


TABLE = "| 城市 | 住宿 | 餐饮 |\n|---|---|---|\n" + "".join(f"| 城{i} | {i * 10} | {i} |\n" for i in range(30))


def test_table_stays_whole_when_it_fits():
    text = f"# 标准\n\n{'前文很长。' * 30}\n\n表 1 差旅标准\n\n{TABLE}\n{'后文很长。' * 30}\n"
    chunks = chunk_by_heading(Document("a.md", text), size=600, overlap=50)
    (holder,) = [c for c in chunks if "城0" in c.text]
    assert TABLE.strip() in holder.text and "表 1" in holder.text


def test_large_table_is_cut_between_rows_with_its_header():
    chunks = chunk_by_heading(Document("a.md", f"# 标准\n\n{TABLE}"), size=150, overlap=20)
    parts = [c for c in chunks if "| 城" in c.text]
    assert len(parts) > 3
    for part in parts:
        assert part.embedding_text.startswith("标准\n")
        assert "| 城市 | 住宿 | 餐饮 |" in part.embedding_text
        assert all(line.startswith("|") and line.endswith("|") for line in part.text.split("\n") if "城" in line)
    assert sum(c.text.count("| 城") for c in parts) == 31


@pytest.mark.parametrize("tables", ["rows", "sentences"])
def test_the_header_of_a_cut_table_reaches_the_prompt(tables):
    """后面几块的原文里没有表头：记在 metadata 里，提示词补上，每块恰好一次。"""
    chunks = chunk_by_heading(Document("a.md", f"# 标准\n\n{TABLE}"), size=150, overlap=20, tables=tables)
    header = "| 城市 | 住宿 | 餐饮 |\n|---|---|---|"
    parts = [c for c in chunks if "| 城" in c.text]
    assert [c.metadata.get("table_header") for c in parts] == [None] + [header] * (len(parts) - 1)
    for chunk in parts:
        prompt = build_prompt("城 20 住宿多少？", [Hit(chunk, 0.9, 1)])
        assert prompt.count(header) == 1 and prompt.index(header) < prompt.index("| 城" + chunk.text.split("| 城")[-1])
    assert all("table_header" not in c.metadata for c in chunk_by_heading(Document("a.md", f"# 标准\n\n{TABLE}"), size=2000))


def test_tables_as_sentences():
    (chunk,) = chunk_by_heading(Document("a.md", "# 差旅标准\n\n说明。\n\n| 城市级别 | 住宿上限 |\n|---|---|\n| 一线 | 500 |\n| 二线 | 350 |\n"), tables="sentences")
    assert "【差旅标准】城市级别 一线：住宿上限 500" in chunk.embedding_text
    assert "|---|" not in chunk.embedding_text and "|---|" in chunk.text and "说明。" in chunk.embedding_text
    parts = chunk_by_heading(Document("a.md", f"# 标准\n\n{TABLE}"), size=150, overlap=20, tables="sentences")
    assert all("住宿" in c.embedding_text for c in parts if "| 城" in c.text)
    assert table_rows("| a \\| b | c |\n|:-:|--|\n|1||") == [["a | b", "c"], ["1", ""]]
    assert table_sentences("| 甲 |\n|---|") == ""
    with pytest.raises(RagLessonsError):
        chunk_by_heading(Document("a.md", ""), tables="html")


def test_code_stays_whole_even_when_longer_than_a_chunk():
    code = "```python\n" + "x = 1\n\n" * 60 + "```"
    chunks = chunk_by_heading(Document("a.md", f"# 甲\n\n{'正文。' * 100}\n\n{code}\n\n后文。\n"), size=200, overlap=30)
    assert sum(code in c.text for c in chunks) == 1


def test_faq_one_entry_a_chunk():
    text = "# 常见问题\n\n" + "\n\n".join(f"**问：第 {i} 个？**\n\n答：第 {i} 答。" for i in range(5))
    chunks = [c for c in chunk_by_heading(Document("a.md", text)) if "问：" in c.text]
    assert [c.text.count("问：") for c in chunks] == [1] * 5
    assert all("答：" in c.text for c in chunks)


def test_comments_in_code_files_are_no_headings():
    chunks = chunk_by_heading(Document("a.py", "# 注释\nx = 1\n"))
    assert [c.headings for c in chunks] == [()]


def test_definitions():
    code = '"""说明"""\nimport os\n\n# 用途\n@cache\ndef f():\n    return 1\n\n\nclass A:\n    """类"""\n\n    def g(self):\n        return 2\n'
    chunks = chunk_by_definition(Document("子/a.py", code))
    assert [c.headings for c in chunks] == [("a.py",), ("a.py", "f"), ("a.py", "A")]
    assert chunks[1].text.startswith("# 用途\n@cache\ndef f")
    assert chunks[2].embedding_text.startswith("a.py > A\nclass A")


def test_large_class_by_methods():
    body = "".join(f"    def m{i}(self):\n        return {i}\n\n" for i in range(30))
    chunks = chunk_by_definition(Document("a.py", f"class A:\n    x = 1\n\n{body}"), size=100)
    assert ("a.py", "A") in [c.headings for c in chunks]
    assert [c.headings for c in chunks if len(c.headings) == 3] == [("a.py", "A", f"m{i}") for i in range(30)]
    nested = "class A:\n    class B:\n" + "".join(f"        def m{i}(self):\n            return {i}\n\n" for i in range(30))
    assert ("a.py", "A", "B", "m7") in [c.headings for c in chunk_by_definition(Document("a.py", nested), size=100)]


def test_broken_python_warns_and_is_still_cut():
    with pytest.warns(RagLessonsWarning, match="第 1 行"):
        assert chunk_by_definition(Document("a.py", "def f(:\n    pass\n"))
    assert chunk_by_definition(Document("a.md", "# 甲\n")) != []


def test_our_own_corpus():
    documents = load_folder(data_path("agent"))
    for document in documents:
        check_invariants(document, chunk_by_definition(document))
        check_invariants(document, chunk_by_heading(document))
    safety = next(d for d in documents if d.source == "safety.py")
    assert ("safety.py", "SafetyValve", "check") in [c.headings for c in chunk_by_definition(safety)]



def test_meaning_cuts_where_the_subject_turns():
    text = "猫吃鱼。猫吃鱼和猫粮。猫爱吃鱼。" * 3 + "火箭升空了。火箭升空点火。火箭点火升空。" * 3
    chunks = chunk_by_meaning(Document("a.md", text), ToyEmbedder(), size=90)
    cut = text.index("火箭")
    assert cut in {c.start for c in chunks}


def test_meaning_embeds_every_window_once():
    """断点后面的两句就是下下个断点前面的两句：n 句话最多算 n + 1 个窗口，不是 2(n - 1) 个。"""

    class Counting(ToyEmbedder):
        sent = 0

        def embed_documents(self, texts):
            self.sent += len(texts)
            return super().embed_documents(texts)

    embedder = Counting()
    text = "".join(f"第 {i} 句讲第 {i} 件事。" for i in range(40))
    assert chunk_by_meaning(Document("a.md", text), embedder, size=200)
    assert embedder.sent == 41
