"""把结构写成 Markdown：网页和 Word 的标题、表格读进来以后都是这个样子，切块时认得出。"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rag_lessons.types import RagLessonsError

MAX_COLUMNS = 1000      # HTML 标准规定 colspan 最多 1000
MAX_CELLS = 200_000     # 一张表展开合并格以后最多多少格；再多就不像真的表格

_LOOKS_LIKE_MARKUP = re.compile(r"#{1,6}(?:\s|$)|```|~~~")


def plain_line(text: str) -> str:
    """正文里碰巧像 Markdown 标题或围栏的一行，前面加反斜杠，免得被当成标题。

    >>> plain_line("# 不是标题"), plain_line("#标签")
    ('\\\\# 不是标题', '#标签')
    """
    return "\\" + text if _LOOKS_LIKE_MARKUP.match(text) else text


def heading(level: int, text: str) -> str:
    """标题行；级别限制在 1 到 6。

    >>> heading(2, "第一章 总则")
    '## 第一章 总则'
    """
    return "#" * min(max(level, 1), 6) + " " + text


def fence(code: str) -> str:
    """代码块，里面一字不动；围栏比里面最长的一串反引号还长。

    >>> print(fence("# 注释"))
    ```
    # 注释
    ```
    """
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}\n{code}\n{mark}"


def table(rows: Sequence[Sequence[str]], headers: int = 1) -> str:
    """表格 → Markdown。

    参数
    ----
    rows : 各行的各格；合并格应当已经展开（每一格都填上同样的值），这样每一行单独拿出来也看得懂。
        只有一格的行，是横跨整行的：在最前面的当作表的题目，单独成行；在中间的是小标题或备注，不重复填。
    headers : 前几行是表头。Markdown 只有一行表头，几行的话逐列合成一行，用 / 隔开。

    >>> print(table([["差旅标准"], ["职级", "住宿"], ["P1", "300|400"], ["注：含税"]]))
    差旅标准
    <BLANKLINE>
    | 职级 | 住宿 |
    | --- | --- |
    | P1 | 300\\|400 |
    | 注：含税 |  |
    """
    columns = max((len(row) for row in rows), default=0)
    grid = [[" ".join(cell.split()) for cell in row] for row in rows]
    grid = [row for row in grid if any(row)]
    above = []
    while len(grid) > 1 and columns > 1 and len(grid[0]) == 1:
        above.append(plain_line(grid.pop(0)[0]))
        headers -= 1
    if grid:
        grid = [[cell.replace("|", "\\|") for cell in row] + [""] * (columns - len(row)) for row in grid]
        headers = min(max(headers, 1), len(grid))
        top = [" / ".join(dict.fromkeys(filter(None, column))) for column in zip(*grid[:headers], strict=True)]
        above.append("\n".join(map(_row, [top, ["---"] * columns, *grid[headers:]])))
    return "\n\n".join(above)


class Cell(NamedTuple):
    """一格：文字、往下占几行、往右占几列。"""

    text: str
    down: int = 1
    across: int = 1


def header_rows(rows: Sequence[Sequence[Cell]]) -> int:
    """没有标明的表头有几行：第一行既有往右合并的、又有往下合并的格子，就是几行的表头；否则一行。

    >>> header_rows([[Cell("职级", down=2), Cell("费用", across=2)], [Cell("交通"), Cell("住宿")]])
    2
    """
    first = next((i for i, row in enumerate(rows) if len(row) > 1), 0)
    row = rows[first] if rows else []
    return first + (max((cell.down for cell in row), default=1) if any(cell.across > 1 for cell in row) else 1)


def spread(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """展开合并格：占到的每一格都填上同样的值；一格横跨整行的，那一行只有一格。

    >>> spread([[Cell("华东", down=2), Cell("上海")], [Cell("杭州")], [Cell("注", across=2)]])
    [['华东', '上海'], ['华东', '杭州'], ['注']]
    """
    # 独占一行的格子常写 colspan=100，不能让它把表撑宽
    widths = [1 if len(row) == 1 else sum(max(cell.across, 1) for cell in row) for row in rows]
    columns = min(max(widths, default=0), MAX_COLUMNS)
    if columns * len(rows) > MAX_CELLS:
        raise RagLessonsError(f"有一张表展开后有 {columns} 列 × {len(rows)} 行，超过上限 {MAX_CELLS} 格；请先拆小。")
    waiting: dict[int, tuple[str, int]] = {}                # 列 → 上面的格子占下来的文字、还要占几行
    grid = []
    for row in rows:
        line: list[str] = []

        def carried(line: list[str] = line) -> None:
            while len(line) in waiting:
                text, left = waiting.pop(len(line))
                if left > 1:
                    waiting[len(line)] = (text, left - 1)
                line.append(text)

        alone = len(row) == 1 and not waiting and 1 < columns <= row[0].across
        for cell in row:
            carried()
            for _ in range(max(1, min(cell.across, columns - len(line)))):
                if cell.down > 1:
                    waiting[len(line)] = (cell.text, min(cell.down, len(rows)) - 1)
                line.append(cell.text)
        carried()
        grid.append([row[0].text] if alone else line)
    return grid


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
