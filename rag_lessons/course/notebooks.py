"""执行、整理、检查课程的 notebook。

命令行（在课程的环境里）::

    python -m rag_lessons.course.notebooks run            按顺序执行全部课程，列出用时和结果
    python -m rag_lessons.course.notebooks run --write 03 执行第 03 课，把输出按规范写回
    python -m rag_lessons.course.notebooks navigation     只重写首尾导航和流水线图，不执行
    python -m rag_lessons.course.notebooks check 03       列出第 03 课不合规范的地方

规范写法（``normalize``）让同一次执行总得到同样的字节：元数据排好序且只留必要的，
执行序号从 1 连续，相邻的输出流合并，没有时间戳和随机的格号。
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_lessons.course.kernel import first_cell
from rag_lessons.course.lessons import LESSONS, PIPELINE, Lesson, existing, find, neighbours
from rag_lessons.types import RagLessonsError

if TYPE_CHECKING:
    from nbformat import NotebookNode

CELL_SECONDS = 120
MAX_BYTES = 1_500_000
MIN_CELLS, MAX_CELLS = 30, 60
LONG_CODE, MAX_CODE = 15, 25  # 代码格的行数：多数不超过前者，任何一格不超过后者
LONG_SHARE = 0.1  # 允许超过 LONG_CODE 的代码格所占的比例

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
OPENING_FIELDS = ("你将做什么", "学到什么", "需要什么", "预计用时", "本课在流水线中的位置")
MARKER = "# 写一次："


# ---------------------------------------------------------------- 读写


def read(path: Path | str) -> NotebookNode:
    """读一本 notebook（nbformat 4）。"""
    import nbformat

    return nbformat.read(Path(path), as_version=4)


def dumps(nb: NotebookNode) -> str:
    """规范的文本：键排序，缩进 1，汉字不转义，LF，末尾换行。"""
    import nbformat

    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"


def write(nb: NotebookNode, path: Path | str) -> None:
    """写到旁边再换上去：写了一半也不会坏掉原来的。"""
    path = Path(path)
    new = path.with_suffix(".new")
    new.write_text(dumps(nb), encoding="utf-8", newline="\n")
    os.replace(new, path)


def tags(cell: NotebookNode) -> list[str]:
    """一格的标签。"""
    return list(cell.metadata.get("tags", []))


# ---------------------------------------------------------------- 规范写法


def normalize(nb: NotebookNode) -> NotebookNode:
    """整理成规范写法，返回新的 notebook；再整理一次不会有任何变化。"""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

    make = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
    cells, used, count = [], set(), 0
    for old in nb.cells:
        source = old.source.replace("\r\n", "\n").strip("\n")
        if not source.strip():
            continue
        cell = make[old.cell_type](source=source)
        if tags(old):
            cell.metadata["tags"] = sorted(set(tags(old)))
        if old.cell_type == "code":
            cell.outputs = _outputs(old.outputs)
            if old.execution_count is not None:
                count += 1
                cell.execution_count = count
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
        cell.id = _cell_id(cell, used)
        cells.append(cell)
    language = {"name": "python"}
    made = new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC), "language_info": language})
    return nbformat.from_dict(json.loads(json.dumps(made, sort_keys=True)))


def _cell_id(cell: NotebookNode, used: set[str]) -> str:
    """由内容算出的格号：别的格增删时它不变。"""
    digest = hashlib.sha256(f"{cell.cell_type}\0{cell.source}".encode()).hexdigest()
    name, number = digest[:12], 2
    while name in used:
        name, number = f"{digest[:12]}-{number}", number + 1
    used.add(name)
    return name


def _outputs(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """合并相邻的同名输出流；去掉空的元数据；异常只留类型和那句话（回溯里有本机路径）。"""
    import nbformat

    kept: list[NotebookNode] = []
    for output in outputs:
        output = nbformat.from_dict(json.loads(json.dumps(output)))
        if output.output_type == "stream":
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += output.text
                continue
        elif output.output_type == "error":
            output.traceback = [f"{output.ename}: {output.evalue}"]
        else:
            output.pop("transient", None)
            output.metadata = {k: v for k, v in output.get("metadata", {}).items() if v}
        kept.append(output)
    return kept


# ---------------------------------------------------------------- 导航


def navigation_text(lesson: Lesson, bottom: bool = False) -> str:
    """导航格的 Markdown。已有的上一课、目录、下一课；末尾一格还说出将来的下一课。"""
    previous, following = neighbours(lesson)
    parts = []
    if previous:
        parts.append(f"[← {previous.label}]({previous.stem}.ipynb)")
    parts.append("[目录](../README.md)")
    if following:
        parts.append(f"[{following.label} →]({following.stem}.ipynb)")
    text = "　|　".join(parts)
    if bottom:
        position = LESSONS.index(lesson)
        planned = LESSONS[position + 1] if position + 1 < len(LESSONS) else None
        if following is None and planned is not None:
            text += f"\n\n后面的课还在写。下一本将是{planned.label}。{planned.summary}"
    return text


def navigation(nb: NotebookNode, lesson: Lesson) -> NotebookNode:
    """重写首尾导航格和开头那一格里的流水线图（或占位的「（流水线图）」）；其余不动。"""
    from nbformat.v4 import new_markdown_cell

    cells = [cell for cell in nb.cells if "nav" not in tags(cell)]
    for cell in cells:
        if "opening" in tags(cell):
            cell.source = re.sub(rf"^(?:（流水线图?）|[*【]*{PIPELINE[0]}[】*]* → .*)$", lesson.map, cell.source, flags=re.M)
    ends = [new_markdown_cell(navigation_text(lesson, bottom), metadata={"tags": ["nav"]}) for bottom in (False, True)]
    nb.cells = [ends[0], *cells, ends[1]]
    return nb


# ---------------------------------------------------------------- 执行


def execute(nb: NotebookNode, folder: Path, seconds: int = CELL_SECONDS) -> str:
    """在新的内核里从头执行，输出写进 ``nb``。返回空串，或一句话：哪一格出了什么错。

    内核总是正在运行的这个 Python，不管用户的 Jupyter 里登记过什么。
    """
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(resource_dir="", **get_kernel_dict())

    class ThisKernel(AsyncKernelManager):
        def _kernel_spec_manager_default(self) -> KernelSpecManager:
            return ThisPython()

    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        nb,
        timeout=seconds,
        kernel_manager_class=ThisKernel,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=40"],  # 启动时的提醒与课程无关
    )
    try:
        client.execute()
    except CellExecutionError as error:
        return f"{_failing_cell(nb)}：{error.ename}: {error.evalue}"
    except CellTimeoutError:
        return f"{_failing_cell(nb)}：{seconds} 秒没有算完"
    except DeadKernelError:
        return f"{_failing_cell(nb)}：内核退出了（多半是内存不够）"
    return ""


def _failing_cell(nb: NotebookNode) -> str:
    """最后开始执行的那一格。"""
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    done = [i for i, cell in enumerate(code) if cell.execution_count is not None or cell.outputs]
    number = done[-1] if done else 0
    first = code[number].source.strip().splitlines()[0] if code else ""
    return f"第 {number + 1} 个代码格「{first[:40]}」"


def run_all(
    lessons: Sequence[Lesson] | None = None, write_back: bool = False, echo: Callable[[str], None] = print
) -> bool:
    """按顺序执行课程，每课一个新内核，最后打印一张表：课、秒、结果。全部成功返回 True。

    参数
    ----
    lessons : 要执行的课；None 是全部已有的课。
    write_back : 把执行成功的课按规范写回（首尾导航也重写）。
    """
    rows = [("课", "秒", "结果")]
    good = True
    for lesson in existing() if lessons is None else lessons:
        if not lesson.path.is_file():
            raise FileNotFoundError(f"{lesson.label} 还没有写好：找不到 notebooks/{lesson.stem}.ipynb。")
        echo(f"{lesson.label} ……")
        nb = read(lesson.path)
        began = time.perf_counter()
        problem = execute(nb, lesson.path.parent)
        seconds = time.perf_counter() - began
        good = good and not problem
        if write_back and not problem:
            write(normalize(navigation(nb, lesson)), lesson.path)
        rows.append((lesson.label, f"{seconds:.1f}", problem or ("通过，已写回" if write_back else "通过")))
    echo("\n" + _table(rows))
    return good


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    def width(text: str) -> int:
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)

    columns = [max(width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell + " " * (w - width(cell)) for cell, w in zip(row, columns, strict=True)).rstrip()
        for row in rows
    )


# ---------------------------------------------------------------- 练习与答案

_DETAILS = re.compile(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", re.S)
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def details(text: str) -> list[tuple[str, str]]:
    """一段 Markdown 里的折叠块：(标题, 正文)。

    >>> details("<details><summary>提示</summary>\\n\\n想一想\\n\\n</details>")
    [('提示', '\\n\\n想一想\\n\\n')]
    """
    return _DETAILS.findall(text)


def checks_in(source: str) -> list[tuple[str, str]]:
    """一格代码里的 ``check("5.1", attempt)``：(编号, attempt 的写法)。"""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) == 2:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if name == "check" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.append((first.value, ast.unparse(node.args[1])))
    return found


def answer_of(nb: NotebookNode, position: int) -> str:
    """第 position 格（练习）之后折叠起来的答案里的 Python 代码；没有就是空串。"""
    for cell in nb.cells[position + 1 : position + 2]:
        for title, body in details(cell.source if cell.cell_type == "markdown" else ""):
            if "答案" in title:
                return "\n".join(_PYTHON.findall(body))
    return ""


_TRY_ANSWER = """\
import json as _json
from rag_lessons.course.checks import grade as _grade
_names = dict(globals())
exec(compile({answer!r}, "<答案>", "exec"), _names)
for _id, _attempt in {checks!r}:
    _result = _grade(_id, eval(_attempt, _names))
    print("@@" + _json.dumps([_id, _result.passed, _result.message]))
"""


def with_answers(nb: NotebookNode) -> NotebookNode:
    """在每个练习后面插入一格：在当时的变量里运行折叠的答案，再交给检查。返回新的 notebook。"""
    from nbformat.v4 import new_code_cell, new_notebook

    cells = []
    for position, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        cells.append(new_code_cell(cell.source, metadata={"tags": tags(cell)}))
        if "exercise" in tags(cell):
            source = _TRY_ANSWER.format(answer=answer_of(nb, position), checks=checks_in(cell.source))
            cells.append(new_code_cell(source, metadata={"tags": ["try-answer", "raises-exception"]}))
    return new_notebook(cells=cells, metadata={"kernelspec": dict(KERNELSPEC)})


def answer_results(lesson: Lesson) -> list[tuple[str, bool, str]]:
    """执行一课，途中试每一个折叠的答案：(练习编号, 是否通过, 检查的话)。"""
    nb = with_answers(read(lesson.path))
    problem = execute(nb, lesson.path.parent)
    results = [("执行", False, problem)] if problem else []
    for cell in nb.cells:
        if "try-answer" not in tags(cell):
            continue
        for output in cell.outputs:
            if output.output_type == "error":
                results.append(("答案", False, f"{output.ename}: {output.evalue}"))
            lines = output.get("text", "").splitlines() if output.output_type == "stream" else []
            results += [tuple(json.loads(line[2:])) for line in lines if line.startswith("@@")]
    return results


# ---------------------------------------------------------------- 写一次


def write_once(nb: NotebookNode) -> list[tuple[str, str]]:
    """标了「写一次」的格：(包里的全名, 这一格的代码)。一格里可以标几个函数。"""
    return [
        (line.removeprefix(MARKER).strip(), cell.source)
        for cell in _code(nb)
        for line in cell.source.splitlines()
        if line.startswith(MARKER)
    ]


def same_as_package(name: str, source: str) -> str:
    """比较一格里的函数与包里的同名函数（不看文档串、注解和注释）。相同返回空串，否则一句话。

    >>> print(same_as_package("rag_lessons.course.notebooks.tags", "def tags(cell):\\n    return []"))
    rag_lessons.course.notebooks.tags 与包里的写法不同，从这里开始：包里是 return list(cell.metadata.get('tags', []))，这里是 return []
    """
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:cut]))
        except (ImportError, AttributeError):
            continue
        if spec is not None and spec.origin:
            break
    else:
        return f"{name} 不在包里；请核对标记。"
    package = _in_package(spec.origin, parts[cut:])
    here = _definition(ast.parse(source), parts[-1:])
    if package is None:
        return f"{name} 不在 {'.'.join(parts[:cut])} 里；请核对标记。"
    if here is None:
        return f"标了 {name} 的格里没有定义 {parts[-1]}。"
    if ast.dump(package) == ast.dump(here):
        return ""
    pairs = zip(_lines(package), _lines(here), strict=False)
    theirs, ours = next(((a, b) for a, b in pairs if a != b), ("（结束）", "（还有）"))
    return f"{name} 与包里的写法不同，从这里开始：包里是 {theirs}，这里是 {ours}"


def _in_package(file: str, path: Sequence[str]) -> ast.AST | None:
    """模块里的定义；子包的 __init__ 只是转手时（from … import 名字），顺着找到写它的那个文件。"""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    found = _definition(tree, path)
    for node in tree.body if found is None else ():
        if isinstance(node, ast.ImportFrom) and node.module and path[0] in [a.name for a in node.names]:
            spec = importlib.util.find_spec(node.module)
            return _in_package(spec.origin, path) if spec is not None and spec.origin else None
    return found


def _lines(node: ast.AST) -> list[str]:
    return [line.strip() for line in ast.unparse(node).splitlines()]


def _definition(tree: ast.AST, path: Sequence[str]) -> ast.AST | None:
    """顺着名字找函数或类的定义，去掉文档串和注解。"""
    node: ast.AST | None = tree
    for name in path:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        node = next((n for n in node.body if isinstance(n, kinds) and n.name == name), None)
        if node is None:
            return None
    return _Bare().visit(node)


class _Bare(ast.NodeTransformer):
    """去掉文档串和注解，只留会执行的东西。"""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                node.body = node.body[1:] or [ast.Pass()]
            if not isinstance(node, ast.ClassDef):
                node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value, lineno=0))


# ---------------------------------------------------------------- 规范


def _code(nb: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def _markdown(nb: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in nb.cells if cell.cell_type == "markdown"]


def _brief(cell: NotebookNode) -> str:
    return f"「{cell.source.strip().splitlines()[0][:40]}」"


def check_normal(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """文件就是规范写法，导航与课程表一致。"""
    text = lesson.path.read_text(encoding="utf-8")
    if dumps(normalize(navigation(read(lesson.path), lesson))) != text:
        yield f"不是规范写法，或导航与课程表不一致；请运行 python start.py run --write {lesson.number}"
    if b"\r" in lesson.path.read_bytes():
        yield "换行应是 LF"
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "内核名应是 python3"


def check_size(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """格数、代码格的行数、文件大小。"""
    if not MIN_CELLS <= len(nb.cells) <= MAX_CELLS:
        yield f"有 {len(nb.cells)} 格，应在 {MIN_CELLS} 到 {MAX_CELLS} 之间"
    lengths = [(len(cell.source.strip().splitlines()), cell) for cell in _code(nb)]
    yield from (f"{_brief(c)} 有 {n} 行，最多 {MAX_CODE} 行" for n, c in lengths if n > MAX_CODE)
    long = [c for n, c in lengths if n > LONG_CODE]
    if len(long) > LONG_SHARE * len(lengths):
        yield f"{len(lengths)} 个代码格里有 {len(long)} 个超过 {LONG_CODE} 行：{'、'.join(map(_brief, long))}"
    size = lesson.path.stat().st_size
    if size > MAX_BYTES:
        yield f"文件有 {size / 1e6:.1f} MB，最多 {MAX_BYTES / 1e6:.1f} MB"


def check_opening(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """第二格是开头：题目、五个固定栏目、流水线图、用时。第一个代码格是约定的写法。"""
    cell = nb.cells[1]
    if "opening" not in tags(cell) or cell.cell_type != "markdown":
        yield "第二格（导航之后）应是带 opening 标签的 Markdown"
        return
    title = cell.source.strip().splitlines()[0]
    if not title.startswith("# ") or lesson.title not in title:
        yield f"开头一格的第一行应是一级标题，含有「{lesson.title}」"
    yield from (f"开头一格缺少「{name}」" for name in OPENING_FIELDS if name not in cell.source)
    if lesson.map not in cell.source.splitlines():
        yield f"开头一格缺少流水线图，单独一行：{lesson.map}"
    minutes = re.search(r"预计用时\D*(\d+)\s*分钟", cell.source)
    if minutes is None or int(minutes[1]) != lesson.minutes:
        yield f"预计用时应写 {lesson.minutes} 分钟（与课程表一致）"
    if not _code(nb) or _code(nb)[0].source.strip() != first_cell(lesson.number):
        yield f'第一个代码格应是 first_cell("{lesson.number}") 的内容'


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_LOCAL_PATH = re.compile(r"(?<![\w.])/(?:root|home|tmp|work|Users|private|var/folders)/|[A-Z]:\\\\?Users")


def check_outputs(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """每个代码格都执行过，序号连续；没有 stderr，没有没标的异常，没有机器上的痕迹；至少一张图。"""
    counts = [cell.execution_count for cell in _code(nb)]
    if counts != list(range(1, len(counts) + 1)):
        yield "执行序号应从 1 连续；请用 python start.py run --write 重写输出"
    images = 0
    for cell in _code(nb):
        kinds = [output.output_type for output in cell.outputs]
        tagged = "raises-exception" in tags(cell)
        if ("error" in kinds) != tagged:
            yield f"{_brief(cell)} {'标了 raises-exception 却没有异常' if tagged else '有没标的异常'}"
        for output in cell.outputs:
            if output.get("name") == "stderr":
                yield f"{_brief(cell)} 有 stderr 输出：{output.text.strip()[:80]}"
            data = output.get("data", {})
            images += "image/png" in data or "image/svg+xml" in data
            text = output.get("text", "") + "".join(v for k, v in data.items() if k.startswith("text/"))
            text += str(output.get("evalue", ""))
            for what, pattern in (("内存地址", _ADDRESS), ("本机路径", _LOCAL_PATH)):
                if pattern.search(text):
                    yield f"{_brief(cell)} 的输出里有{what}：{pattern.search(text)[0]}"
            if "np.float" in text or "np.int" in text:
                yield f"{_brief(cell)} 的输出里有 np.float64(…) 一类的写法；先转成普通的数"
    if not images:
        yield "至少要有一张图"


def check_exercises(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """至少两个练习；每个后面紧跟提示和答案；存下的是没写时的输出；标签与登记处一致。"""
    from rag_lessons.course.exercises import load, module_name

    ids = []
    for position, cell in enumerate(nb.cells):
        found = checks_in(cell.source) if cell.cell_type == "code" else []
        if bool(found) != ("exercise" in tags(cell)):
            yield f"{_brief(cell)} 的 exercise 标签与 check(\"编号\", …) 应同时出现"
        if not found:
            continue
        ids += [one for one, _ in found]
        after = nb.cells[position + 1] if position + 1 < len(nb.cells) else None
        titles = [t for t, _ in details(after.source)] if after is not None and after.cell_type == "markdown" else []
        for wanted in ("提示", "答案"):
            if not any(wanted in title for title in titles):
                yield f"练习 {found[0][0]} 后面紧跟的一格缺少折叠的「{wanted}」"
        if not answer_of(nb, position):
            yield f"练习 {found[0][0]} 的答案里没有 ```python 代码"
        text = "".join(output.get("text", "") for output in cell.outputs)
        if "还没写完" not in text:
            yield f"练习 {found[0][0]} 存下的输出应是「还没写完」"
    if len(ids) < 2:
        yield f"至少要有两个练习，现在有 {len(ids)} 个"
    try:
        known = [exercise.id for exercise in load(module_name(lesson.number))]
    except ImportError:
        known = []
    if sorted(ids) != sorted(known):
        yield f"notebook 里的练习是 {ids}，登记处的是 {known}"


def check_sections(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """自测三题、小结、下一课；折叠块写得能渲染。"""
    text = "\n\n".join(cell.source for cell in _markdown(nb))
    sections = re.split(r"^#{1,3} ", text, flags=re.M)
    quiz = next((s for s in sections if "自测" in s.splitlines()[0]), "")
    if len(details(quiz)) != 3:
        yield f"「自测」一节应有三题，答案各自折叠；现在有 {len(details(quiz))} 个折叠块"
    if not any(re.search("小结|回顾", s.splitlines()[0]) for s in sections if s.strip()):
        yield "缺少「小结」或「回顾」一节"
    if "下一课" not in text:
        yield "缺少「下一课」"
    if text.count("<details>") != len(details(text)):
        yield "有 <details> 没有配对的 <summary> 或 </details>"
    for title, body in details(text):
        if not body.startswith("\n\n") or not body.endswith("\n\n"):
            yield f"折叠块「{title}」的正文前后要各空一行，否则里面的 Markdown 不会渲染"


def check_write_once(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """标了「写一次」的函数与包里的完全一样。"""
    for name, source in write_once(nb):
        problem = same_as_package(name, source)
        if problem:
            yield problem


def check_wording(nb: NotebookNode, lesson: Lesson) -> Iterator[str]:
    """没有感叹号，汉字与字母数字之间有空格，标点是全角。只看正文，不看代码、链接和「」里的引文。"""
    for cell in _markdown(nb):
        if "nav" in tags(cell):
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`|\$[^$\n]*\$|「[^」]*」|“[^”]*”|\]\([^)]*\)|<[^>]*>", "〇", cell.source, flags=re.S)
        for pattern, why in (
            (r"[！!](?![=\[？?；，、。）])", "感叹号"),
            (r"[一-鿿][A-Za-z0-9]|[A-Za-z0-9][一-鿿]", "汉字与字母数字之间缺空格"),
            (r"[一-鿿][,;:?](?!\d)", "半角标点"),
        ):
            found = re.search(pattern, text)
            if found:
                around = text[max(0, found.start() - 8) : found.end() + 8].replace("\n", " ")
                yield f"{_brief(cell)} 里有{why}：…{around}…"


CHECKS = {
    "规范写法": check_normal,
    "篇幅": check_size,
    "开头": check_opening,
    "输出": check_outputs,
    "练习": check_exercises,
    "章节": check_sections,
    "写一次": check_write_once,
    "文字": check_wording,
}


def problems(lesson: Lesson) -> list[str]:
    """一课里全部不合规范的地方，每条一句话。"""
    nb = read(lesson.path)
    return [f"{name}：{line}" for name, one in CHECKS.items() for line in one(nb, lesson)]


# ---------------------------------------------------------------- 命令行


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rag_lessons.course.notebooks")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("run", "执行"), ("navigation", "重写导航"), ("check", "检查是否合规范")):
        one = commands.add_parser(name, help=text)
        one.add_argument("lessons", nargs="*", help="课号，例如 03 05；不写就是全部已有的课")
        if name == "run":
            one.add_argument("--write", action="store_true", help="把输出按规范写回")
    options = parser.parse_args(arguments)
    try:
        chosen = [find(number) for number in options.lessons] or existing()
        if options.command == "run":
            return 0 if run_all(chosen, write_back=options.write) else 1
        found = 0
        for lesson in chosen:
            if options.command == "navigation":
                write(normalize(navigation(read(lesson.path), lesson)), lesson.path)
                print(f"{lesson.label}：导航已重写")
            else:
                lines = problems(lesson)
                found += len(lines)
                print(f"{lesson.label}：{'合规范' if not lines else ''}")
                print("\n".join(f"  {line}" for line in lines), end="\n" if lines else "")
        return 1 if found else 0
    except (RagLessonsError, ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
