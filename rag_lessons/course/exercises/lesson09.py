"""第 09 课的练习：标题的路径、带着表头切表格、用 ast 找出函数和类。"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- 9.1 标题的路径


def paths(headings: Sequence[tuple[int, str]]) -> list[tuple[str, ...]]:
    """(级别, 标题) 的列表 → 每个标题的路径：它上面各级的标题，加上它自己。"""
    found: list[tuple[str, ...]] = []
    stack: list[tuple[int, str]] = []
    for level, title in headings:
        stack = [one for one in stack if one[0] < level] + [(level, title)]
        found.append(tuple(name for _, name in stack))
    return found


def _stacked(
    keep: Callable[[int, int], bool], show: Callable[[list[str]], Any] = tuple
) -> Callable[[Sequence[tuple[int, str]]], list[Any]]:
    """paths 的变种：旧标题什么时候留下，路径怎样写出来。"""

    def attempt(headings: Sequence[tuple[int, str]]) -> list[Any]:
        found, stack = [], []
        for level, title in headings:
            stack = [one for one in stack if keep(one[0], level)] + [(level, title)]
            found.append(show([name for _, name in stack]))
        return found

    return attempt


def _by_slot(headings: Sequence[tuple[int, str]]) -> list[tuple[str, ...]]:
    found, path = [], []
    for level, title in headings:
        path = [*path[: level - 1], title]
        found.append(tuple(path))
    return found


def _pop_one(headings: Sequence[tuple[int, str]]) -> list[tuple[str, ...]]:
    found, stack = [], []
    for level, title in headings:
        if stack and stack[-1][0] >= level:
            stack.pop()
        stack.append((level, title))
        found.append(tuple(name for _, name in stack))
    return found


def _shared(headings: Sequence[tuple[int, str]]) -> list[list[str]]:
    found, levels, names = [], [], []
    for level, title in headings:
        while levels and levels[-1] >= level:
            levels.pop()
            names.pop()
        levels.append(level)
        names.append(title)
        found.append(names)
    return found


def _by_level(headings: Sequence[tuple[int, str]]) -> list[tuple[str, ...]]:
    found, titles = [], {}
    for level, title in headings:
        titles[level] = title
        found.append(tuple(titles[n] for n in sorted(titles) if n <= level))
    return found


def _six_slots(headings: Sequence[tuple[int, str]]) -> list[tuple[str, ...]]:
    found, path = [], [""] * 6
    for level, title in headings:
        path = [*path[: level - 1], title, *[""] * (6 - level)]
        found.append(tuple(path[:level]))
    return found


def _with_levels(headings: Sequence[tuple[int, str]]) -> list[tuple[tuple[int, str], ...]]:
    found, stack = [], []
    for level, title in headings:
        stack = [one for one in stack if one[0] < level] + [(level, title)]
        found.append(tuple(stack))
    return found


_PATHS = Exercise(
    id="9.1",
    title="每个标题的路径",
    reference=paths,
    cases=[
        case("一级套二级", [(1, "手册"), (2, "请假"), (2, "出差")]),
        case("从三级回到二级", [(1, "手册"), (2, "考勤"), (3, "请假"), (3, "加班"), (2, "薪酬"), (3, "发薪")]),
        case("从三级回到一级", [(1, "甲"), (2, "乙"), (3, "丙"), (1, "丁"), (2, "戊")]),
        case("跳过一级：一级下面直接是三级", [(1, "手册"), (3, "附则"), (3, "附表")]),
        case("新的一章里跳了级", [(1, "考勤"), (2, "请假"), (1, "差旅"), (3, "附表")]),
        case("开头不是一级", [(2, "前言"), (3, "说明"), (1, "正文")]),
        case("两章里有同名的一节", [(1, "手册"), (2, "考勤"), (3, "批准"), (2, "差旅"), (3, "批准")]),
        case("没有标题", []),
    ],
    wrong=[
        Wrong("从不出栈", _stacked(lambda old, new: True), "路径越来越长：来了新标题，同级和更低一级的旧标题要先去掉。"),
        Wrong(
            "同级不去掉",
            _stacked(lambda old, new: old <= new),
            "同级的旧标题还留着：「请假」和「出差」是兄弟，不是上下级，比较时用 <，不是 <=。",
        ),
        Wrong(
            "只去掉同级",
            _stacked(lambda old, new: old != new),
            "只去掉了同级的：从三级回到二级时，那个三级标题也要去掉。",
        ),
        Wrong("只弹出一个", _pop_one, "只去掉了最后一个：从三级回到一级时，要一直去到比它高的为止。"),
        Wrong(
            "按级别当下标",
            _by_slot,
            "你拿级别当下标去切：一级下面直接是三级时，下标和层数对不上，兄弟就成了上下级。要看栈里记着的级别。",
        ),
        Wrong(
            "按级别记在字典里",
            _by_level,
            "换了新的一章，上一章的二级标题还留在字典里：来了一个标题，比它低的各级都要清掉。",
        ),
        Wrong("空着的级别也占一项", _six_slots, "跳过的级别在路径里占了一项空的：没有标题的级别，什么也不写。"),
        Wrong("级别也写了进去", _with_levels, "路径里只写标题；级别只在你手里那一列里用，还出去时去掉。"),
        Wrong("只要上一级", _stacked(lambda old, new: old < new, lambda names: tuple(names[-2:])), "只留了上一级；再上面的也要。"),
        Wrong("没有自己", _stacked(lambda old, new: old < new, lambda names: tuple(names[:-1])), "路径里少了标题自己；它是最后一项。"),
        Wrong("次序反了", _stacked(lambda old, new: old < new, lambda names: tuple(names[::-1])), "次序反了：最高一级在最前。"),
        Wrong(
            "拼成了字符串",
            _stacked(lambda old, new: old < new, lambda names: " > ".join(names)),
            "这里要的是元组，一级一项；拼成一行是以后的事。",
        ),
        Wrong(
            "放进了同一个列表",
            _shared,
            "每次放进去的是同一个列表，后来一改，先放的也跟着变：放进去之前用 tuple(…) 复制一份。",
        ),
    ],
    follow_up="Markdown、网页的 h1 到 h6、Word 的标题样式，路径都是这样算的。",
)

# ---------------------------------------------------------------- 9.2 带着表头切表格


def split_table(table: str, size: int) -> list[str]:
    """Markdown 表格 → 几截：每一截都是表头、分隔行，加上装得下的若干行；至少一行。"""
    lines = table.split("\n")
    head, rows = lines[:2], lines[2:]
    pieces: list[list[str]] = []
    for row in rows:
        if pieces and len("\n".join([*head, *pieces[-1], row])) <= size:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    return ["\n".join([*head, *piece]) for piece in pieces]


def _packed(
    head: Callable[[list[str], int], list[str]] = lambda lines, n: lines[:2],
    *,
    counted: int = 2,
    most: int = 10**6,
    strict: bool = False,
    loses: bool = False,
    last: bool = True,
    body: int = 2,
) -> Callable[[str, int], list[str]]:
    """split_table 的变种：每截前面放什么、算长度时算上几行表头、何时算满、引起换截的那行丢不丢。"""

    def attempt(table: str, size: int) -> list[str]:
        lines = table.split("\n")
        pieces: list[list[str]] = []
        for row in lines[body:]:
            length = len("\n".join([*lines[:counted], *(pieces[-1] if pieces else []), row]))
            fits = length < size if strict else length <= size
            if pieces and fits and len(pieces[-1]) < most:
                pieces[-1].append(row)
            else:
                pieces.append([] if loses and pieces else [row])
        pieces = pieces if last or len(pieces) < 2 else pieces[:-1]
        return ["\n".join([*head(lines, n), *piece]) for n, piece in enumerate(pieces)]

    return attempt


def _by_chars(table: str, size: int) -> list[str]:
    lines = table.split("\n")
    head, rest = "\n".join(lines[:2]), "\n".join(lines[2:])
    step = max(size - len(head) - 1, 1)
    return [head + "\n" + rest[a:a + step] for a in range(0, len(rest), step)]


def _joined(table: str, size: int) -> list[str]:
    lines = table.split("\n")
    head, pieces, held = "\n".join(lines[:2]), [], ""
    for row in lines[2:]:
        if held and len(head) + len(held) + len(row) > size:
            pieces.append(head + held)
            held = ""
        held += "\n" + row
    return [*pieces, head + held]


def _empty_first(table: str, size: int) -> list[str]:
    lines = table.split("\n")
    head, pieces, held = lines[:2], [], []
    for row in lines[2:]:
        if len("\n".join([*head, *held, row])) > size:
            pieces.append("\n".join([*head, *held]))
            held = []
        held = [*held, row]
    return [*pieces, "\n".join([*head, *held])]


def _grown_head(table: str, size: int) -> list[str]:
    lines = table.split("\n")
    head, pieces = lines[:2], []
    held = list(head)
    for row in lines[2:]:
        if len(held) > 2 and len("\n".join([*held, row])) > size:
            pieces.append("\n".join(held))
            held = head
        held.append(row)
    return [*pieces, "\n".join(held)]


_CITIES = "| 城市 | 上限 | 旺季 |\n|---|---|---|\n| 北京 | 500 | 4 月 |\n| 青岛 | 350 | 7 月 |\n| 三亚 | 280 | 1 月 |\n| 拉萨 | 280 | 8 月 |"
_LONG = "| 编号 | 办法 |\n|---|---|\n| E1 | 看日志 |\n| E2 | " + "先停下，再问一声，" * 4 + "再重来 |\n| E3 | 不用管 |"

_SPLIT = Exercise(
    id="9.2",
    title="每一截都带着表头",
    reference=split_table,
    cases=[
        case("四行，每截装得下两行", _CITIES, 65),
        case("四行，每截装得下三行", _CITIES, 85),
        case("整张都装得下", _CITIES, 200),
        case("恰好装得下整张", _CITIES, len(_CITIES)),
        case("差一个字装不下整张", _CITIES, len(_CITIES) - 1),
        case("有一行自己就超过 size", _LONG, 45),
        case("只有一行", "| 甲 | 乙 |\n|---|---|\n| 1 | 2 |", 10),
    ],
    wrong=[
        Wrong(
            "后面没有表头",
            _packed(lambda lines, n: lines[:2] if n == 0 else []),
            "只有第一截有表头；后面几截又成了没有名字的数。每一截都要带。",
        ),
        Wrong(
            "少了分隔行",
            _packed(lambda lines, n: lines[:1]),
            "少了 |---|---| 那一行：没有它，Markdown 就不认得这是表格。",
        ),
        Wrong(
            "第一截才有分隔行",
            _packed(lambda lines, n: lines[:2] if n == 0 else lines[:1]),
            "后面几截只有表头、没有分隔行；两行要一起带。",
        ),
        Wrong(
            "没有算上表头",
            _packed(counted=0),
            "量长度时没有算上表头，加上它就超过 size 了：要量的是拼好以后的那一截。",
        ),
        Wrong("按字数切", _by_chars, "你按字数切，把行切断了；只能在两行之间切。"),
        Wrong("一行一截", _packed(most=1), "一行一截切得太碎：装得下的要放在同一截里。"),
        Wrong("差一个字不敢放", _packed(strict=True), "恰好等于 size 也算装得下：比较时用 <=。"),
        Wrong("换行没有算", _joined, "拼的时候每一行前面还有一个换行，量长度时漏了它，有一截因此超过了 size。"),
        Wrong("开头多了一截空的", _empty_first, "一行自己就装不下时，先交出了一截只有表头的：这一截里还没有行，就不要交。"),
        Wrong(
            "表头的列表被改了",
            _grown_head,
            "另起一截时，你直接往表头那个列表里添行，表头就越来越长：先用 list(…) 复制一份。",
        ),
        Wrong("整张没有切", lambda table, size: [table], "整张表原样还了回来：超过 size 的，要在两行之间切开。"),
        Wrong("丢了一行", _packed(loses=True), "引起换截的那一行丢了；它是新一截的第一行。"),
        Wrong("忘了最后一截", _packed(last=False), "最后一截没有交出来。"),
        Wrong(
            "表头当成了数据",
            _packed(body=0),
            "表头和分隔行又被当成数据放了一遍：数据从第三行开始。",
        ),
    ],
    follow_up="表头在每一截里重复一遍，就是这种切法的价钱。",
)

# ---------------------------------------------------------------- 9.3 函数和类在第几行


def definitions(code: str) -> list[tuple[str, int, int]]:
    """Python 源码 → 顶层的每个函数和类：(名字, 第一行, 最后一行)，行号从 1 数起，装饰器算在内。"""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno)
        for node in ast.parse(code).body if isinstance(node, kinds)
    ]


def _found(
    kinds: tuple[type, ...] = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *,
    walk: bool = False,
    first: Callable[[Any], int] = lambda node: min([node.lineno, *(d.lineno for d in node.decorator_list)]),
    shift: int = 0,
    end: Callable[[ast.AST], int] = lambda node: node.end_lineno,
) -> Callable[[str], list[tuple[str, int, int]]]:
    """definitions 的变种：认哪些、走多深、第一行是哪一行、行号从几数、最后一行是哪一行。"""

    def attempt(code: str) -> list[tuple[str, int, int]]:
        tree = ast.parse(code)
        nodes = [node for node in (ast.walk(tree) if walk else tree.body) if isinstance(node, kinds)]
        return [(node.name, first(node) + shift, end(node) + shift) for node in nodes]

    return attempt


def _by_pattern(code: str) -> list[tuple[str, int, int]]:
    lines = code.split("\n")
    starts = [(n, m[1]) for n, line in enumerate(lines, 1) if (m := re.match(r"(?:async def|def|class)\s+(\w+)", line))]
    ends = [n - 1 for n, _ in starts[1:]] + [len(lines)]
    return [(name, start, end) for (start, name), end in zip(starts, ends, strict=True)]


def _until_next(code: str) -> list[tuple[str, int, int]]:
    found = definitions(code)
    total = len(code.split("\n"))
    ends = [first - 1 for _, first, _ in found[1:]] + [total]
    return [(name, first, end) for (name, first, _), end in zip(found, ends, strict=True)]


_PLAIN = "import os\n\n\ndef read(path):\n    return open(path).read()\n\n\ndef size(path):\n    return len(read(path))\n"
_DECORATED = "from dataclasses import dataclass\n\n\n@dataclass(\n    frozen=True,\n)\nclass Verdict:\n    stop: bool\n\n\n@cache\ndef look(n):\n    return n\n"
_STACKED = "import functools\n\n\n@retry(times=3)\n@functools.cache\ndef fetch(url):\n    return url\n"
_METHODS = "class Valve:\n    def __init__(self):\n        self.n = 0\n\n    def check(self):\n        return self.n\n\n\nLIMIT = 12\n"
_QUOTED = 'TEXT = """\ndef fake():\n    pass\n"""\n\n\ndef real():\n    return TEXT\n\n\nprint(real())\n'
_ASYNC = "async def fetch(url):\n    return url\n\n\nclass Empty: ...\n"

_DEFINITIONS = Exercise(
    id="9.3",
    title="函数和类在第几行到第几行",
    reference=definitions,
    cases=[
        case("两个函数", _PLAIN),
        case("带装饰器", _DECORATED),
        case("两个装饰器", _STACKED),
        case("类里有方法，后面有常量", _METHODS),
        case("字符串里写着 def", _QUOTED),
        case("async 函数和一行的类", _ASYNC),
        case("没有定义", "import os\n\nprint(os.name)\n"),
    ],
    wrong=[
        Wrong(
            "装饰器不算",
            _found(first=lambda node: node.lineno),
            "装饰器被丢在外面了：node.lineno 是 def 或 class 那一行，装饰器的行号在 node.decorator_list 里。",
        ),
        Wrong(
            "一个装饰器算一行",
            _found(first=lambda node: node.lineno - len(node.decorator_list)),
            "你按一个装饰器一行往上数：装饰器自己可以占好几行，它从哪一行开始，要看它的 lineno。",
        ),
        Wrong(
            "只算了最后一个装饰器",
            _found(first=lambda node: node.decorator_list[-1].lineno if node.decorator_list else node.lineno),
            "有两个装饰器时少了上面那个：decorator_list[-1] 是紧挨着 def 的，第一个是 [0]。",
        ),
        Wrong(
            "一行写完的没有了",
            lambda code: [one for one in definitions(code) if one[1] != one[2]],
            "一行写完的类也是定义，例如 class Empty: ...；它的第一行和最后一行是同一行。",
        ),
        Wrong("走到了里面", _found(walk=True), "连类里的方法也列出来了：ast.walk 会走到最里面，顶层的在 tree.body 里。"),
        Wrong("只认函数", _found((ast.FunctionDef, ast.AsyncFunctionDef)), "类不见了：ast.ClassDef 也要。"),
        Wrong("只认类", _found((ast.ClassDef,)), "函数不见了：ast.FunctionDef 和 ast.AsyncFunctionDef 也要。"),
        Wrong("漏了 async", _found((ast.FunctionDef, ast.ClassDef)), "async def 不见了：它是另一种结点，ast.AsyncFunctionDef。"),
        Wrong("行号从 0 数", _found(shift=-1), "行号差了 1：ast 的行号从 1 数起，不用再减。"),
        Wrong(
            "最后一行是最后一条语句的开头",
            _found(end=lambda node: node.body[-1].lineno),
            "最后一行不对：body[-1].lineno 是最后一条语句的第一行，它可能有好几行；用 end_lineno。",
        ),
        Wrong(
            "到下一个定义为止",
            _until_next,
            "最后一行伸得太远：空行和后面的常量、语句也算进去了；用 end_lineno。",
        ),
        Wrong(
            "按字面找 def",
            _by_pattern,
            "你按字面找 def 和 class，字符串里的也当了真，装饰器和结尾也不对：交给 ast.parse。",
        ),
    ],
    follow_up="ast 只看语法，不运行代码，别人的文件也可以放心地读。",
)

EXERCISES = [_PATHS, _SPLIT, _DEFINITIONS]
