"""每本 notebook 的结构、导航、练习答案；以及这些检查自己抓得住错。"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from rag_lessons.course import lessons as table
from rag_lessons.course import notebooks
from rag_lessons.course.exercises import all_exercises
from rag_lessons.course.kernel import first_cell
from rag_lessons.course.lessons import LESSONS, PIPELINE, Lesson, existing

HAVE = existing()
ROOT = Path(__file__).resolve().parents[1]


# ---------------------------------------------------------------- 真的 notebook


@pytest.mark.parametrize("lesson", HAVE, ids=lambda lesson: lesson.number)
@pytest.mark.parametrize("name", notebooks.CHECKS)
def test_lesson(lesson: Lesson, name: str) -> None:
    problems = list(notebooks.CHECKS[name](notebooks.read(lesson.path), lesson))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("lesson", HAVE, ids=lambda lesson: lesson.number)
def test_printed_answers_pass_their_checks(lesson: Lesson) -> None:
    results = notebooks.answer_results(lesson)
    assert len(results) >= 2, results
    assert all(passed for _, passed, _ in results), [r for r in results if not r[1]]


def test_every_notebook_is_in_the_table() -> None:
    files = {p.stem for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert files == {lesson.stem for lesson in HAVE}


def test_table_is_complete_and_in_order() -> None:
    assert [lesson.number for lesson in LESSONS] == [f"{n:02d}" for n in range(17)] + ["A1", "A2"]
    assert len({lesson.title for lesson in LESSONS}) == len(LESSONS)
    for lesson in LESSONS:
        assert set(lesson.stages) <= set(PIPELINE) and lesson.stages and 10 <= lesson.minutes <= 90
        assert lesson.summary.endswith("。")


def test_readme_table_agrees_with_lessons() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for lesson in HAVE:
        row = next((line for line in readme.splitlines() if f"notebooks/{lesson.stem}.ipynb)" in line and "|" in line), "")
        assert lesson.title in row and re.search(rf"\b{lesson.minutes}\b", row), lesson.stem


def test_some_functions_are_written_once() -> None:
    marked = [name for lesson in HAVE for name, _ in notebooks.write_once(notebooks.read(lesson.path))]
    assert len(marked) >= 3 and len(marked) == len(set(marked)), marked


def test_registered_exercises_belong_to_existing_lessons() -> None:
    numbers = {table.find(exercise.id.split(".")[0]).number for exercise in all_exercises()}
    assert numbers <= {lesson.number for lesson in HAVE}


# ---------------------------------------------------------------- 一本小小的合格品，弄坏它


def make(lesson: Lesson) -> nbformat.NotebookNode:
    """结构齐全的最小 notebook（不满三十格，不管篇幅）。"""
    fields = "\n\n".join(f"**{name}**" for name in notebooks.OPENING_FIELDS[:3])
    opening = f"# {lesson.number} {lesson.title}\n\n{fields}\n\n**预计用时**：{lesson.minutes} 分钟\n\n"
    opening += f"**本课在流水线中的位置**\n\n{lesson.map}"
    folded = "<details><summary>提示</summary>\n\n想一想\n\n</details>\n\n"
    folded += "<details><summary>答案与说明</summary>\n\n```python\nx = 1\n```\n\n</details>"
    quiz = "## 自测\n\n" + "<details><summary>答案</summary>\n\n是\n\n</details>\n\n" * 3
    image = new_output("display_data", data={"image/png": "aGk=", "text/plain": "<Figure size 640x480 with 1 Axes>"})
    cells = [
        new_markdown_cell(opening, metadata={"tags": ["opening"]}),
        new_code_cell(first_cell(lesson.number), outputs=[new_output("stream", text="一行\n")]),
        new_code_cell("画图", outputs=[image]),
    ]
    for n in (1, 2):
        source = f'x = ...\ncheck("{int(lesson.number)}.{n}", x)'
        output = new_output("stream", text="还没写完：x。写好后再运行这一格。\n")
        cells += [new_code_cell(source, metadata={"tags": ["exercise"]}, outputs=[output]), new_markdown_cell(folded)]
    cells += [new_markdown_cell(quiz), new_markdown_cell("## 小结\n\n好"), new_markdown_cell("## 下一课\n\n再见")]
    for n, cell in enumerate(c for c in cells if c.cell_type == "code"):
        cell.execution_count = n + 1
    return notebooks.normalize(notebooks.navigation(new_notebook(cells=cells), lesson))


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(table, "repo_root", lambda: tmp_path)
    chosen = table.find("05")
    chosen.path.write_text("", encoding="utf-8")
    return chosen


def complaints(nb: nbformat.NotebookNode, lesson: Lesson) -> str:
    notebooks.write(nb, lesson.path)
    lines = notebooks.problems(lesson)
    return "\n".join(line for line in lines if "格，应在" not in line and "登记处" not in line)


def code(nb: nbformat.NotebookNode, n: int) -> nbformat.NotebookNode:
    return [c for c in nb.cells if c.cell_type == "code"][n]


def replace(nb: nbformat.NotebookNode, old: str, new: str) -> None:
    cell = next(c for c in nb.cells if old in c.source)
    cell.source = cell.source.replace(old, new)


def test_the_small_notebook_is_fine(lesson: Lesson) -> None:
    assert complaints(make(lesson), lesson) == ""


BREAKAGE = {
    "缺栏目": (lambda nb: replace(nb, "**学到什么**", ""), "缺少「学到什么」"),
    "图不对": (lambda nb: replace(nb, "**【向量化】**", "向量化"), "流水线图"),
    "用时不对": (lambda nb: replace(nb, "60 分钟", "61 分钟"), "预计用时应写 60 分钟"),
    "题目不对": (lambda nb: replace(nb, "语义鸿沟", "别的"), "一级标题"),
    "没有小结": (lambda nb: replace(nb, "小结", "完"), "小结"),
    "自测两题": (lambda nb: replace(nb, "</details>\n\n<details><summary>答案</summary>\n\n是\n\n</details>\n\n<", "</details>\n\n<"),
             "自测"),
    "折叠块不空行": (lambda nb: replace(nb, "\n\n想一想", "\n想一想"), "各空一行"),
    "没有答案": (lambda nb: replace(nb, "答案与说明", "说明"), "缺少折叠的「答案」"),
    "答案没有代码": (lambda nb: replace(nb, "```python", "```text"), "答案里没有"),
    "练习没标": (lambda nb: code(nb, 2).metadata.clear(), "exercise 标签"),
    "只有一个练习": (lambda nb: nb.cells.pop(-6), "至少要有两个练习"),
    "存了做完的练习": (lambda nb: code(nb, 2).outputs[0].update(text="通过\n"), "还没写完"),
    "序号乱": (lambda nb: code(nb, 2).update(execution_count=9), "执行序号"),
    "没执行": (lambda nb: code(nb, 2).update(execution_count=None), "执行序号"),
    "stderr": (lambda nb: code(nb, 1).outputs.append(new_output("stream", name="stderr", text="Warning: 字体")), "stderr"),
    "没标的异常": (lambda nb: code(nb, 1).outputs.append(new_output("error", ename="E", evalue="e", traceback=["E: e"])),
              "没标的异常"),
    "标了没异常": (lambda nb: code(nb, 1).metadata.update(tags=["raises-exception"]), "没有异常"),
    "内存地址": (lambda nb: code(nb, 0).outputs[0].update(text="<X at 0x7f0a12345678>\n"), "内存地址"),
    "本机路径": (lambda nb: code(nb, 0).outputs[0].update(text="/home/me/x.py\n"), "本机路径"),
    "numpy 的数": (lambda nb: code(nb, 0).outputs[0].update(text="[np.float64(0.5)]\n"), "np.float64"),
    "没有图": (lambda nb: code(nb, 1).update(outputs=[]), "一张图"),
    "代码太长": (lambda nb: code(nb, 1).update(source="\n".join(f"x{i} = {i}" for i in range(26))), "26 行"),
    "第一格不对": (lambda nb: code(nb, 0).update(source="import rag_lessons"), "first_cell"),
    "感叹号": (lambda nb: replace(nb, "再见", "再见！"), "感叹号"),
    "缺空格": (lambda nb: replace(nb, "再见", "用RAG再见"), "缺空格"),
    "半角标点": (lambda nb: replace(nb, "再见", "好,再见"), "半角标点"),
    "导航被改": (lambda nb: nb.cells[0].update(source="[首页](x)"), "规范写法"),
    "元数据多余": (lambda nb: nb.metadata.update(widgets={}), "规范写法"),
    "格号随机": (lambda nb: nb.cells[3].update(id="abc"), "规范写法"),
    "别的内核": (lambda nb: nb.metadata.kernelspec.update(name="conda-env"), "python3"),
    "写一次不一样": (
        lambda nb: code(nb, 1).update(source="# 写一次：rag_lessons.course.notebooks.tags\ndef tags(cell):\n    return 1"),
        "与包里的写法不同"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKAGE)
def test_a_broken_notebook_is_caught(lesson: Lesson, name: str) -> None:
    damage, said = BREAKAGE[name]
    nb = make(lesson)
    damage(nb)
    assert said in complaints(nb, lesson)


def test_crlf_is_caught(lesson: Lesson) -> None:
    notebooks.write(make(lesson), lesson.path)
    lesson.path.write_bytes(lesson.path.read_bytes().replace(b"\n", b"\r\n"))
    assert any("LF" in line for line in notebooks.problems(lesson))


# ---------------------------------------------------------------- 规范写法


def test_normal_form(lesson: Lesson) -> None:
    nb = make(lesson)
    cell = code(nb, 1)
    cell.outputs = [
        new_output("stream", text="一"),
        new_output("stream", text="二\n"),
        new_output("error", ename="ValueError", evalue="坏", traceback=["\x1b[31m/机器/上/的/路径", "坏"]),
        new_output("execute_result", data={"text/plain": "3"}, execution_count=7, metadata={"a": {}}),
    ]
    cell.execution_count = 40
    cell.metadata = {"execution": {"iopub.execute_input": "2026"}, "tags": ["b", "a"], "collapsed": True}
    nb.cells.insert(3, new_code_cell("  \n"))
    nb.metadata["language_info"]["version"] = "3.11.7"
    once = notebooks.normalize(nb)
    assert notebooks.dumps(notebooks.normalize(once)) == notebooks.dumps(once)
    cell = code(once, 1)
    assert cell.outputs[0].text == "一二\n" and cell.outputs[1].traceback == ["ValueError: 坏"]
    assert cell.outputs[2].execution_count == cell.execution_count == 2 and cell.outputs[2].metadata == {}
    assert cell.metadata == {"tags": ["a", "b"]}
    assert len(once.cells) == len(nb.cells) - 1, "空格子去掉"
    assert once.metadata == {"kernelspec": notebooks.KERNELSPEC, "language_info": {"name": "python"}}
    notebooks.write(once, lesson.path)
    raw = lesson.path.read_bytes()
    assert raw.endswith(b"}\n") and b"\r" not in raw and "一二".encode() in raw
    assert json.loads(raw)["nbformat_minor"] == 5
    nbformat.validate(nbformat.read(lesson.path, as_version=4))


def test_cell_ids_depend_on_content_not_on_position(lesson: Lesson) -> None:
    nb = make(lesson)
    before = {c.source: c.id for c in nb.cells[1:-1]}
    nb.cells.insert(2, new_markdown_cell("新的一格"))
    nb.cells.insert(2, new_markdown_cell("新的一格"))
    after = notebooks.normalize(nb)
    assert len({c.id for c in after.cells}) == len(after.cells)
    changed = [s for s, i in before.items() if i not in {c.id for c in after.cells if c.source == s}]
    assert not changed


# ---------------------------------------------------------------- 导航


def test_navigation_links_existing_lessons_only(lesson: Lesson) -> None:
    for number in ("00", "04"):
        table.find(number).path.write_text("", encoding="utf-8")
    top = notebooks.navigation_text(lesson)
    assert "04_search.ipynb" in top and "../README.md" in top and "06_" not in top
    assert "第 06 课 短块偏好" in notebooks.navigation_text(lesson, bottom=True)
    assert "04_search.ipynb" in notebooks.navigation_text(table.find("00")), "跳过还没写的课"
    assert "还在写" not in notebooks.navigation_text(table.find("04"), bottom=True)


def test_navigation_is_idempotent_and_fills_the_map(lesson: Lesson) -> None:
    nb = make(lesson)
    replace(nb, lesson.map, "（流水线图）")
    again = notebooks.normalize(notebooks.navigation(notebooks.navigation(nb, lesson), lesson))
    assert notebooks.dumps(again) == notebooks.dumps(make(lesson))


# ---------------------------------------------------------------- 执行


def executed(lesson: Lesson, *sources: str) -> str:
    notebooks.write(new_notebook(cells=[new_code_cell(s) for s in sources]), lesson.path)
    said: list[str] = []
    good = notebooks.run_all([lesson], write_back=True, echo=said.append)
    return ("好 " if good else "坏 ") + "\n".join(said)


def test_run_reports_the_failing_cell_and_writes_nothing(lesson: Lesson) -> None:
    said = executed(lesson, "x = 1", "y = x / 0  # 这里", "z = 2")
    assert said.startswith("坏") and "第 2 个代码格「y = x / 0  # 这里」：ZeroDivisionError" in said
    assert all(c.execution_count is None for c in notebooks.read(lesson.path).cells)


def test_run_writes_normal_form_from_a_fresh_kernel_in_the_notebooks_folder(lesson: Lesson) -> None:
    said = executed(
        lesson, "import sys, os\nprint('一')\nprint('二')", "sys.executable, os.path.basename(os.getcwd())", "1 / 1"
    )
    assert said.startswith("好") and "通过，已写回" in said
    cells = [c for c in notebooks.read(lesson.path).cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == [1, 2, 3] and cells[0].outputs[0].text == "一\n二\n"
    where, folder = ast.literal_eval(cells[1].outputs[0].data["text/plain"])
    assert folder == "notebooks" and Path(where).resolve() == Path(sys.executable).resolve()
    text = lesson.path.read_text(encoding="utf-8")
    assert executed(lesson, *[c.source for c in cells]).startswith("好")
    assert lesson.path.read_text(encoding="utf-8") == text, "再执行一遍，字节相同"


def test_wrong_and_missing_answers_are_seen(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = next(e for e in all_exercises() if e.kind == "function")
    source = f'from rag_lessons.course import check\ncheck("{exercise.id}", lambda *a, **k: None)'
    folded = "<details><summary>答案</summary>\n\n```python\n{}\n```\n\n</details>"
    cells = []
    for answer in ("pass", "1 / 0"):
        cells += [new_code_cell(source, metadata={"tags": ["exercise"]}), new_markdown_cell(folded.format(answer))]
    notebooks.write(new_notebook(cells=cells), lesson.path)
    (first, second) = notebooks.answer_results(lesson)
    assert first[:2] == (exercise.id, False) and "还没写完" in first[2]
    assert second[1] is False and "ZeroDivisionError" in second[2]


# ---------------------------------------------------------------- 写一次


def test_comparison_ignores_words_and_sees_logic() -> None:
    name = "rag_lessons.course.lessons.existing"
    same = '# 注释\ndef existing():\n    """别的说明。"""\n    return [lesson for lesson in LESSONS if lesson.path.is_file()]'
    assert notebooks.same_as_package(name, same) == ""
    assert "与包里的写法不同" in notebooks.same_as_package(name, same.replace("is_file", "exists"))
    assert "没有定义 existing" in notebooks.same_as_package(name, "x = 1")
    assert "请核对标记" in notebooks.same_as_package(name + "_", "def existing_(): pass")
    assert "请核对标记" in notebooks.same_as_package("nowhere.f", "def f(): pass")
    method = 'class Lesson:\n    pass\n\ndef stem(self):\n    return f"{self.number}_{self.name}"'
    assert "与包里" in notebooks.same_as_package("rag_lessons.course.lessons.Lesson.stem", method), "装饰器也要一样"
