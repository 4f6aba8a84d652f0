"""Word（.docx）→ 文字。

python-docx 打开文件，正文按文档次序走一遍：段落、表格、文本框都在原来的位置。修订里插入的算数，删除的不算。
标题写成 ``# `` 行，表格写成 Markdown 的行，自动编号（第一条、1.1）写成字：Word 里它们不是文字，不写就搜不到。
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_lessons.loading.clean import strip_invisible
from rag_lessons.loading.markdown import Cell, header_rows, heading, plain_line, spread, table
from rag_lessons.loading.text import Content
from rag_lessons.types import RagLessonsError

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"     # 老 .doc 和加密的 .docx 都装在这种容器里
# .docx 是个压缩包，打开前先看目录里写的大小，免得几十 KB 解出几个 GB
MAX_ENTRIES = 10_000
MAX_UNPACKED = 256 * 1024 * 1024
MAX_XML = 48 * 1024 * 1024                          # 单个 XML；解析出来的树是它的十倍大

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"      # 给老 Word 看的同一样东西

REMOVED = {W + "del", W + "moveFrom", W + "delText", W + "instrText", W + "rt", W + "pPr", W + "rPr", FALLBACK}
WRAPPERS = {W + name for name in ("sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo")}
LITERALS = {W + "tab": "\t", W + "br": "\n", W + "cr": "\n", W + "noBreakHyphen": "-"}


def read_word(path: Path, encoding: str | None = None) -> Content:
    """一份 .docx；``metadata["title"]`` 是“标题”样式的那一段，没有就是文件属性里的标题。"""
    check_package(path)
    import docx

    try:
        document = docx.Document(str(path))
        reader = _Reader(document)
        reader.blocks(document.element.body)
        title = reader.title or (document.core_properties.title or "").strip()
    except RagLessonsError:
        raise
    except Exception as error:      # 坏文件能在 python-docx 里的任何一处出错
        raise RagLessonsError(f"打不开，可能已损坏（{type(error).__name__}）；请用 Word 打开，另存为新的 .docx。") from None
    return Content(reader.text(), {"title": title} if title else {})


def check_package(path: Path) -> None:
    """打开之前先看一眼：是不是 .docx，有没有加密，解开会不会太大。"""
    with path.open("rb") as file:
        magic = file.read(len(OLE_MAGIC))
    if magic == OLE_MAGIC:
        raise RagLessonsError("加了密码，或者是改了后缀的老 .doc；请用 Word 打开，去掉密码，另存为 .docx。")
    try:
        with zipfile.ZipFile(path) as package:
            entries = package.infolist()
            total = sum(entry.file_size for entry in entries)
            largest = max((e.file_size for e in entries if e.filename.lower().endswith((".xml", ".rels"))), default=0)
            if len(entries) > MAX_ENTRIES or total > MAX_UNPACKED or largest > MAX_XML:
                raise RagLessonsError(
                    f"解开后有 {total / 2**20:.0f} MB、{len(entries)} 个部件，超过上限；请拆成几份，或检查它是不是压缩包炸弹。"
                )
            broken = package.testzip()      # 一小段一小段地解：目录里的大小可能是假的
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, RagLessonsError):
            raise
        raise RagLessonsError(f"不是有效的 .docx，可能已损坏或没下载完（{error}）；请用 Word 打开，另存一次。") from None
    if broken is not None:
        raise RagLessonsError(f"已损坏：其中的 {broken} 校验不对；请重新下载，或用 Word 打开另存一次。")


class _Reader:
    """走一遍正文，攒下一段一段的 Markdown。"""

    def __init__(self, document: Any) -> None:
        self.styles = _Styles(document.styles.element)
        self.numbering = _Numbering(_part_xml(document, "/numbering"))
        self.notes = {kind: _notes(_part_xml(document, f"/{kind}s"), kind) for kind in ("footnote", "endnote")}
        self.parts: list[tuple[str, bool]] = []         # （一段，它是不是列表项）
        self.carry = ""                                 # 段落标记被删除：这段要和下一段接上
        self.title = ""

    def text(self) -> str:
        if self.carry:
            self.parts.append((self.carry, False))
            self.carry = ""
        out: list[str] = []
        for i, (part, item) in enumerate(self.parts):
            if i:
                out.append("\n" if item and self.parts[i - 1][1] else "\n\n")
            out.append(part)
        return "".join(out)

    def blocks(self, container: Any) -> None:
        for node in container:
            if node.tag == W + "p":
                self.paragraph(node)
            elif node.tag == W + "tbl":
                self.table(node)
            elif node.tag in WRAPPERS:
                self.blocks(node)

    def paragraph(self, node: Any) -> None:
        boxes: list[Any] = []
        notes: list[str] = []
        text = self.carry + self.inline(node, boxes, notes)
        self.carry = ""
        style = self.styles.of(node)
        if node.find(f"{W}pPr/{W}rPr/{W}del") is not None:
            self.carry = text
        else:
            lines = [line for raw in text.split("\n") if (line := raw.strip())]
            number, is_item = self.numbering.label(node, style)
            if lines and not style.is_contents:
                self.emit(lines, number, is_item, _outline_level(node, style), style)
        for box in boxes:
            self.blocks(box)
        self.parts += [(plain_line(f"注：{note}"), False) for note in notes]

    def emit(self, lines: list[str], number: str, is_item: bool, level: int | None, style: _Style) -> None:
        if level is not None:
            self.parts.append((heading(level, (number.strip() + " " if number else "") + " ".join(lines)), False))
            return
        if style.is_title and not self.title:
            self.title = " ".join(lines)
        first = number + lines[0] if number else plain_line(lines[0])
        self.parts.append(("\n".join([first, *map(plain_line, lines[1:])]), is_item))

    def inline(self, node: Any, boxes: list[Any] | None = None, notes: list[str] | None = None) -> str:
        """一段的文字；途中遇到的文本框放进 boxes，脚注放进 notes。"""
        out: list[str] = []

        def visit(parent: Any) -> None:
            for child in parent:
                tag = child.tag
                if tag in (W + "t", MATH + "t"):
                    out.append(child.text or "")
                elif tag in LITERALS:
                    out.append(LITERALS[tag])
                elif tag == W + "txbxContent":
                    if boxes is not None:
                        boxes.append(child)
                elif tag in (W + "footnoteReference", W + "endnoteReference"):
                    kind = "footnote" if tag.endswith("footnoteReference") else "endnote"
                    note = self.notes[kind].get(child.get(W + "id"))
                    if notes is not None and note is not None and (text := self.inline(note).strip()):
                        notes.append(" ".join(text.split()))
                elif tag not in REMOVED and isinstance(tag, str) and not _is_vanished(child):
                    visit(child)

        visit(node)
        return strip_invisible("".join(out).replace("\u00a0", " ").replace("\t", " "))

    def table(self, node: Any) -> None:
        rows = [row for row in _children(node, W + "tr") if row.find(f"{W}trPr/{W}del") is None]
        cells = [[c for c in _children(row, W + "tc") if c.find(f"{W}tcPr/{W}cellDel") is None] for row in rows]
        if sum(map(len, cells)) <= 1 or any(c.find(f".//{W}tbl") is not None for line in cells for c in line):
            for cell in (c for line in cells for c in line):        # 拿来排版的表：里面的东西照常走
                self.blocks(cell)
            return
        grid: list[list[Cell]] = []
        origin: dict[int, tuple[int, int]] = {}                     # 列 → 往下合并的格子从哪里开始
        for row, line in zip(rows, cells, strict=True):
            before = _number(row.find(f"{W}trPr/{W}gridBefore"), 0)
            out = [Cell("", across=before)] if before else []
            grid.append(out)
            column = before
            for cell in line:
                across = max(1, _number(cell.find(f"{W}tcPr/{W}gridSpan"), 1))
                merge = cell.find(f"{W}tcPr/{W}vMerge")
                if merge is not None and merge.get(W + "val", "continue") == "continue" and column in origin:
                    y, x = origin[column]
                    grid[y][x] = grid[y][x]._replace(down=grid[y][x].down + 1)
                else:
                    if merge is None:
                        origin.pop(column, None)
                    else:
                        origin[column] = (len(grid) - 1, len(out))
                    out.append(Cell(self.cell(cell), across=across))
                column += across
        marked = [row.find(f"{W}trPr/{W}tblHeader") is not None for row in rows]
        headers = marked.index(False) if False in marked else 0
        if text := table(spread(grid), headers or header_rows(grid)):
            self.parts.append((text, False))

    def cell(self, node: Any) -> str:
        """一格里的文字；几段之间用空格隔开。"""
        texts = []
        for paragraph in node.iter(W + "p"):
            boxes: list[Any] = []
            number, _ = self.numbering.label(paragraph, self.styles.of(paragraph))
            text = self.inline(paragraph, boxes).strip()
            texts.append(number.strip().removeprefix("-") + " " + text if number and text else text)
        return " ".join(" ".join(texts).split())


def _children(node: Any, tag: str) -> Iterator[Any]:
    """直接的子元素，连同内容控件、修订标记里包着的。"""
    for child in node:
        if child.tag == tag:
            yield child
        elif child.tag in WRAPPERS:
            yield from _children(child, tag)


def _part_xml(document: Any, kind: str) -> Any:
    """文档附带的一个部件（编号、脚注）的 XML；没有就是 None。"""
    from docx.oxml import parse_xml

    for relation in document.part.rels.values():
        if relation.reltype.endswith(kind) and not relation.is_external:
            part = relation.target_part
            return part.element if hasattr(part, "element") else parse_xml(part.blob)
    return None


def _notes(root: Any, kind: str) -> dict[str, Any]:
    return {} if root is None else {note.get(W + "id"): note for note in root.iter(W + kind)}


def _number(node: Any, default: int) -> int:
    """``<w:x w:val="3"/>`` 里的数。"""
    value = None if node is None else node.get(W + "val")
    return int(value) if value is not None and re.fullmatch(r"-?\d{1,9}", value) else default


def _is_vanished(run: Any) -> bool:
    """隐藏文字。"""
    mark = run.find(f"{W}rPr/{W}vanish") if run.tag == W + "r" else None
    return mark is not None and mark.get(W + "val", "true") not in ("0", "false", "off")


# ── 样式 ──────────────────────────────────────────────────────


class _Style:
    """一个段落样式里我们关心的：名字、大纲级别、编号。"""

    def __init__(self, name: str = "", level: int | None = None, numbering: Any = None) -> None:
        self.name, self.level, self.numbering = name, level, numbering
        self.is_contents = name.startswith(("toc ", "目录 "))       # 自动生成的目录：标题的副本加页码
        self.is_title = name in ("title", "标题")


class _Styles:
    def __init__(self, root: Any) -> None:
        self.nodes = {node.get(W + "styleId"): node for node in root.iter(W + "style") if node.get(W + "type") == "paragraph"}
        self.default = next((key for key, node in self.nodes.items() if node.get(W + "default") in ("1", "true")), None)
        self.known: dict[Any, _Style] = {}

    def of(self, paragraph: Any) -> _Style:
        node = paragraph.find(f"{W}pPr/{W}pStyle")
        key = self.default if node is None else node.get(W + "val")
        if key not in self.known:
            self.known[key] = self._resolve(key)
        return self.known[key]

    def _resolve(self, key: Any) -> _Style:
        """自己没写的，沿着“基于”往上找。"""
        name, level, numbering, seen = "", None, None, set()
        while key in self.nodes and key not in seen:
            seen.add(key)
            node = self.nodes[key]
            own = (node.find(W + "name").get(W + "val") or "").lower() if node.find(W + "name") is not None else ""
            name = name or own
            if level is None:
                named = re.fullmatch(r"(?:heading|标题)\s*([1-9])", own)
                level = int(named[1]) if named else _level(node)
            if numbering is None:
                numbering = node.find(f"{W}pPr/{W}numPr")
            base = node.find(W + "basedOn")
            key = None if base is None else base.get(W + "val")
        return _Style(name, level, numbering)


def _level(node: Any) -> int | None:
    """大纲级别，从 1 数起；9 表示正文。"""
    found = node.find(f"{W}pPr/{W}outlineLvl")
    value = _number(found, 9)
    return value + 1 if 0 <= value < 9 else None


def _outline_level(paragraph: Any, style: _Style) -> int | None:
    own = paragraph.find(f"{W}pPr/{W}outlineLvl")
    return style.level if own is None else _level(paragraph)


# ── 自动编号 ──────────────────────────────────────────────────


class _Numbering:
    """按 numbering.xml 的规定数数，给出每一段前面显示的编号。"""

    def __init__(self, root: Any) -> None:
        self.levels: dict[str, dict[int, Any]] = {}         # 抽象编号 → 级别 → 定义
        self.numbers: dict[str, tuple[str, dict[int, int]]] = {}    # 编号 → （抽象编号，各级另定的起始值）
        self.counts: dict[str, dict[int, int]] = {}
        self.started: set[tuple[str, int]] = set()
        if root is None:
            return
        for node in root.iter(W + "abstractNum"):
            levels = {int(lvl.get(W + "ilvl") or 0): lvl for lvl in node.iter(W + "lvl")}
            self.levels[node.get(W + "abstractNumId")] = levels
        for node in root.iter(W + "num"):
            link = node.find(W + "abstractNumId")
            starts = {
                int(o.get(W + "ilvl") or 0): _number(o.find(W + "startOverride"), 1)
                for o in node.iter(W + "lvlOverride") if o.find(W + "startOverride") is not None
            }  # fmt: skip
            if link is not None:
                self.numbers[node.get(W + "numId")] = (link.get(W + "val"), starts)

    def label(self, paragraph: Any, style: _Style) -> tuple[str, bool]:
        """（段前的编号，算不算列表项）；没有编号是空串。列表项之间不空行。"""
        own = paragraph.find(f"{W}pPr/{W}numPr")
        properties = own if own is not None else style.numbering
        if properties is None:
            return "", False
        id_node = properties.find(W + "numId")
        if id_node is None and style.numbering is not None:
            id_node = style.numbering.find(W + "numId")
        key = None if id_node is None else id_node.get(W + "val")
        if key not in self.numbers:                         # numId 0 表示取消编号
            return "", False
        abstract, starts = self.numbers[key]
        levels = self.levels.get(abstract, {})
        depth = _number(properties.find(W + "ilvl"), 0)
        if properties.find(W + "ilvl") is None and style.level is not None:
            depth = style.level - 1
        if depth not in levels:
            return "", False
        if _format(levels[depth]) == "bullet":
            return "  " * depth + "- ", True
        counts = self.counts.setdefault(abstract, {})
        if depth in starts and (key, depth) not in self.started:
            counts[depth] = starts[depth]
        else:
            counts[depth] = counts.get(depth, _number(levels[depth].find(W + "start"), 1) - 1) + 1
        self.started.add((key, depth))
        for deeper in [d for d in counts if d > depth]:
            del counts[deeper]
        template = levels[depth].find(W + "lvlText")
        text = "" if template is None else template.get(W + "val") or ""

        def value(match: re.Match[str]) -> str:
            place = int(match[1]) - 1
            level = levels.get(place)
            first = 1 if level is None else _number(level.find(W + "start"), 1)
            legal = levels[depth].find(W + "isLgl") is not None
            return count_as("decimal" if level is None or legal else _format(level), counts.get(place, first))

        text = re.sub(r"%([1-9])", value, text).strip()
        return (text + " " if text else ""), "第" not in text


def _format(level: Any) -> str:
    node = level.find(W + "numFmt")
    return "decimal" if node is None else node.get(W + "val") or "decimal"


def count_as(style: str, n: int) -> str:
    """编号 n 写成 Word 的某种格式。

    >>> [count_as(s, 12) for s in ("decimal", "chineseCounting", "lowerLetter", "upperRoman", "decimalEnclosedCircle")]
    ['12', '十二', 'l', 'XII', '⑫']
    """
    if style == "none":
        return ""
    if style == "decimalZero":
        return f"{n:02d}"
    if style == "decimalEnclosedCircle" and 1 <= n <= 20:
        return chr(0x2460 + n - 1)
    if style.endswith("Letter") and n >= 1:
        letter = chr(ord("a") + (n - 1) % 26) * ((n - 1) // 26 + 1)
        return letter.upper() if style.startswith("upper") else letter
    if style.endswith("Roman") and 1 <= n < 4000:
        roman = ""
        for value, mark in zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
                               ["m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"], strict=True):  # fmt: skip
            roman += mark * (n // value)
            n %= value
        return roman.upper() if style.startswith("upper") else roman
    if style.startswith(("chinese", "japaneseCounting", "taiwaneseCounting", "ideographDigital")) and 0 < n < 10000:
        return chinese_number(n)
    return str(n)


def chinese_number(n: int) -> str:
    """1 到 9999 的汉字写法。

    >>> [chinese_number(n) for n in (7, 10, 12, 20, 105, 1030)]
    ['七', '十', '十二', '二十', '一百零五', '一千零三十']
    """
    out, zero = "", False
    for power, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // power % 10
        if digit:
            out += ("零" if zero and out else "") + "零一二三四五六七八九"[digit] + unit
        zero = not digit and bool(out)
    return out[1:] if out.startswith("一十") else out
