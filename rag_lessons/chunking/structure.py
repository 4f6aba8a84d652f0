"""按文档自己的结构切块：Markdown 的标题、表格、代码和问答；Python 的函数和类。

``text`` 仍是原文的一段；标题路径、重复的表头、表格改写成的句子只放进 ``embedding_text``。
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rag_lessons.chunking.base import Cutter, check_document, check_size, newline_ends, no_nesting, trim
from rag_lessons.chunking.recursive import chunk_recursive, recursive_spans
from rag_lessons.types import Chunk, Document, RagLessonsError, RagLessonsWarning, is_blank

Span = tuple[int, int]

# 这些文件里的 # 是注释，不是标题
CODE_SUFFIXES = (".py", ".toml", ".ini", ".cfg", ".yml", ".yaml", ".sh", ".js", ".ts", ".json", ".c", ".rs", ".go", ".java")
FRONT_MATTER = re.compile(r"\A---[^\S\n]*\n.*?\n(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
# 问答一条的开头：“问：”“Q：”“Q12.”，前面可以有加粗、列表或序号
ENTRY = re.compile(r"^[^\S\n]*(?:[-*+]\s+|\d+[.、]\s*)?(?:\*\*)?(?:问|问题|Q|q)\s*\d*\s*[:：.、]", re.MULTILINE)
CAPTION = 80            # 紧挨在表格前、不超过这么长的一段，当作表格的说明，与表格放在一起
WHOLE_CODE = 4          # 代码不超过块长的这么多倍就整段保留


@dataclass(frozen=True)
class Block:
    """一个 Markdown 块：位置、种类、所在的标题路径、是不是标题。"""

    start: int
    end: int
    kind: Literal["heading", "table", "code", "text"]
    path: tuple[str, ...]


def markdown_blocks(text: str) -> list[Block]:
    """全文 → 首尾相接的块。标题只在正文里认，围栏代码、缩进代码、引用、列表里的 # 不算。

    语法是 CommonMark 加表格，由 markdown-it-py 解析：https://spec.commonmark.org
    """
    from markdown_it import MarkdownIt

    front = FRONT_MATTER.match(text)
    skipped = front.end() if front else 0
    source = "\n" * text.count("\n", 0, skipped) + text[skipped:]
    starts = [0, *newline_ends(text)]
    starts += [len(text)] * 2

    def place(line: int) -> int:
        return starts[min(line, len(starts) - 1)]

    found: list[tuple[int, str, int, str]] = []        # 起点、种类、标题级别、标题文字
    # 正文里的加粗、链接用不着，不解析（段落为主的文档快十倍）；只有标题的文字要
    markdown, references = MarkdownIt("commonmark").enable("table").disable("inline"), {}
    tokens = markdown.parse(source, references)
    for i, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        kind = {"heading_open": "heading", "table_open": "table", "fence": "code", "code_block": "code"}.get(token.type, "text")
        level = int(token.tag[1]) if kind == "heading" else 0
        title = _plain_title(markdown, tokens[i + 1].content, references) if kind == "heading" else ""
        found.append((place(token.map[0]), kind, level, " ".join(title.split())))
    if not found or found[0][0] > 0:
        found.insert(0, (0, "text", 0, ""))
    blocks: list[Block] = []
    path: list[tuple[int, str]] = []
    ends = [start for start, *_ in found[1:]] + [len(text)]
    for (start, kind, level, title), end in zip(found, ends, strict=True):
        if kind == "heading":
            path = [p for p in path if p[0] < level] + [(level, title)]
        blocks.append(Block(start, end, kind, tuple(name for _, name in path if name)))
    return blocks


def _plain_title(markdown: Any, title: str, references: dict) -> str:
    """标题里的加粗、链接只留文字。"""
    found: list[Any] = []
    markdown.inline.parse(title, markdown, references, found)
    return "".join(token.content for token in found)


def table_rows(table: str) -> list[list[str]]:
    """Markdown 表格 → 各行的格子，第一行是表头，分隔行不算。

    >>> table_rows("| 城市 | 上限 |\\n|---|---|\\n| 一线 | 500 |")
    [['城市', '上限'], ['一线', '500']]
    """
    rows = []
    for line in table.strip().split("\n"):
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            rows.append(cells)
    return rows


def table_sentences(table: str, title: str = "") -> str:
    """表格 → 每行一句话，表头写进句子：一行脱离了表也看得懂。

    >>> print(table_sentences("| 城市 | 住宿上限 |\\n|---|---|\\n| 一线 | 500 |\\n| 二线 | 350 |", "差旅标准"))
    【差旅标准】城市 一线：住宿上限 500；
    【差旅标准】城市 二线：住宿上限 350；
    """
    header, *rows = table_rows(table)
    label = f"【{title}】" if title else ""
    sentences = []
    for row in rows:
        pairs = [f"{name} {cell}" for name, cell in zip(header, row, strict=False) if cell]
        sentences.append(f"{label}{pairs[0]}：{'，'.join(pairs[1:])}；" if pairs else "")
    return "\n".join(sentence for sentence in sentences if sentence)


def _cut_table(text: str, start: int, end: int, size: int) -> Iterator[Span]:
    """太大的表格在两行之间切开；每块至少一行。"""
    lines = [start + offset for offset in [0, *newline_ends(text[start:end])] if start + offset < end] + [end]
    first = lines[0]
    for here, after in itertools.pairwise(lines):
        if after - first > size and here - first > 0:
            yield first, here
            first = here
    yield first, end


@dataclass(frozen=True)
class Piece:
    """准备成块的一段：位置，能不能和邻居合并，嵌入时要补在前面的文字（表头）。"""

    start: int
    end: int
    alone: bool = False
    header: str = ""


def _pieces(text: str, blocks: list[Block], size: int, overlap: int) -> Iterator[Piece]:
    """一节里的块 → 各段。表格和代码是整块；其余连成一片，放不下就递归切。"""
    i = 0
    while i < len(blocks):
        block = blocks[i]
        if block.kind == "table" and block.end - block.start > size:
            header = "\n".join(text[block.start:block.end].split("\n")[:2])
            spans = list(_cut_table(text, block.start, block.end, size))
            yield from (Piece(a, b, alone=True, header=header if a > block.start else "") for a, b in spans)
        elif block.kind in ("table", "code"):
            length = block.end - block.start
            if length <= size * WHOLE_CODE:
                yield Piece(block.start, block.end)
            else:
                yield from (Piece(block.start + a, block.start + b, alone=True)
                            for a, b in recursive_spans(text[block.start:block.end], size, 0))
        else:
            first = block.start
            while i + 1 < len(blocks) and blocks[i + 1].kind in ("text", "heading"):
                i += 1
            end = blocks[i].end
            follows = blocks[i + 1].kind if i + 1 < len(blocks) else ""
            caption = blocks[i].start if follows == "table" and end - blocks[i].start <= CAPTION and blocks[i].kind == "text" else end
            yield from _text_pieces(text, first, caption, size, overlap)
            if caption < end:                           # 说明和表格合成一段
                i += 1
                table = blocks[i]
                if table.end - caption <= size:
                    yield Piece(caption, table.end, alone=True)
                else:
                    yield Piece(caption, end)
                    i -= 1
        i += 1


def _text_pieces(text: str, start: int, end: int, size: int, overlap: int) -> Iterator[Piece]:
    entries = [start + m.start() for m in ENTRY.finditer(text[start:end])]
    if len(entries) >= 2:                               # 问答：一条一块
        cuts, marks = [start, *[e for e in entries if e > start], end], set(entries)
        for a, b in itertools.pairwise(cuts):
            for x, y in recursive_spans(text[a:b], size, overlap):
                yield Piece(a + x, a + y, alone=a in marks)
        return
    for a, b in recursive_spans(text[start:end], size, overlap):
        yield Piece(start + a, start + b)


def _sections(blocks: list[Block]) -> Iterator[list[Block]]:
    """一节 = 标题和它下面的块，到下一个标题为止；光有标题没有正文的，并到下一节。"""
    section: list[Block] = []
    for block in blocks:
        if block.kind == "heading" and section and section[-1].kind != "heading":
            yield section
            section = []
        section.append(block)
    if section:
        yield section


def chunk_by_heading(
    document: Document, size: int = 800, overlap: int = 150, *, tables: Literal["rows", "sentences"] = "rows"
) -> list[Chunk]:
    """按 Markdown 标题切：一节一块，块上带着标题路径；表格和代码不从中间切开。

    参数
    ----
    size : 每块最多多少个字符；代码不超过它的 4 倍时整段保留，表格里一行就超过它时也保留整行。
    overlap : 一节太长、要在正文里切开时，相邻两块最多共有多少个字符。
    tables : 表格送去算向量时的样子。"rows" 是原样的 Markdown 行；"sentences" 是每行一句话，
        表头写进句子。无论哪种，``text`` 都是原文。

    表格放不下时在两行之间切开，后面的块在 ``embedding_text`` 里重复表头，``metadata["table_header"]`` 也记着它，
    写提示词时补在前面。“问：”“Q：”开头的问答一条一块。
    代码文件里的 # 是注释，这样的文档按 chunk_recursive 切。

    >>> chunks = chunk_by_heading(Document("a.md", "# 手册\\n\\n## 请假\\n\\n提前三天。\\n\\n## 报销\\n\\n月底前。"))
    >>> [c.headings for c in chunks]
    [('手册', '请假'), ('手册', '报销')]
    >>> print(chunks[0].embedding_text)
    手册 > 请假
    # 手册
    <BLANKLINE>
    ## 请假
    <BLANKLINE>
    提前三天。
    """
    check_document(document)
    size, overlap = check_size(size, overlap)
    if tables not in ("rows", "sentences"):
        raise RagLessonsError(f'tables 只能是 "rows" 或 "sentences"，收到 {tables!r}。')
    if document.source.lower().endswith(CODE_SUFFIXES):
        return chunk_recursive(document, size, overlap)
    text = document.text
    blocks = markdown_blocks(text)
    spans: list[tuple[int, int, tuple[str, ...], str]] = []
    for section in _sections(blocks):
        path = section[-1].path
        start, end = section[0].start, section[-1].end
        entries = len(ENTRY.findall(text[start:end])) >= 2
        if end - start <= size and not entries:
            merged = [Piece(start, end)]
        else:
            merged = _merge(list(_pieces(text, section, size, overlap)), size)
        spans += [(p.start, p.end, path, p.header) for p in merged]
    return _with_paths(document, spans, blocks, tables)


def _merge(pieces: list[Piece], size: int) -> list[Piece]:
    """相邻、能合并、合起来放得下的段并成一段。"""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last and not last.alone and not piece.alone and piece.end - last.start <= size:
            merged[-1] = Piece(last.start, piece.end)
        else:
            merged.append(piece)
    return merged


def _with_paths(
    document: Document, spans: list[tuple[int, int, tuple[str, ...], str]], blocks: list[Block], tables: str
) -> list[Chunk]:
    text, cutter = document.text, Cutter(document)
    in_tables = [b for b in blocks if b.kind == "table"] if tables == "sentences" else []
    chunks: list[Chunk] = []
    trimmed = ((*trim(text, start, end), path, header) for start, end, path, header in spans)
    for start, end, path, header in no_nesting(s for s in trimmed if not is_blank(text[s[0]:s[1]])):
        body = _with_tables(text, start, end, in_tables, path, header)
        if not body and header:
            body = header + "\n" + text[start:end]
        custom = " > ".join(path) + "\n" + body if path and body else body
        chunks.append(cutter.cut(start, end, path, embedding_text=custom, table_header=header))
    return chunks


def _with_tables(text: str, start: int, end: int, tables: list[Block], path: tuple[str, ...], header: str) -> str:
    """块里的表格换成句子；没有表格时返回空串，表示不必替换。"""
    inside = tables[bisect_right(tables, start, key=lambda t: t.end):bisect_left(tables, end, key=lambda t: t.start)]
    if not inside:
        return ""
    parts, here = [], start
    for table in inside:
        a, b = max(table.start, start), min(table.end, end)
        rows = (header + "\n" if header else "") + text[a:b]
        parts += [text[here:a], table_sentences(rows, path[-1] if path else ""), "\n"]
        here = b
    return "".join([*parts, text[here:end]]).strip("\n")


# ---------------------------------------------------------------- Python


def definition_spans(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """Python 源码 → 首尾相接的段 [(start, end, 名字路径), …]：每个顶层函数、每个类、其余语句各成一段。

    装饰器和紧挨在上面的注释跟着定义走。源码不合语法时抛出 SyntaxError。
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # 别人代码里的无效转义之类，与切块无关
        tree = ast.parse(text)
    return _definitions(text, tree.body, 0, len(text), (), [0, *newline_ends(text), len(text)])


def _definitions(
    text: str, body: list[ast.stmt], start: int, end: int, path: tuple[str, ...], lines: list[int]
) -> list[tuple[int, int, tuple[str, ...]]]:
    spans: list[tuple[int, int, tuple[str, ...]]] = []
    here = start
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        while first > 0 and lines[first - 1] >= here and text[lines[first - 1]:lines[first]].lstrip().startswith("#"):
            first -= 1
        begin, finish = max(lines[first], here), min(lines[node.end_lineno], end)
        if begin > here:
            spans.append((here, begin, path))
        if finish > begin:
            spans.append((begin, finish, (*path, node.name)))
        here = max(here, finish)
    if here < end:
        spans.append((here, end, path))
    return spans


def chunk_by_definition(document: Document, size: int = 800) -> list[Chunk]:
    """Python 代码按函数和类切：一个定义一块，名字路径放进 ``headings``，例如 ("safety.py", "SafetyValve", "check")。

    参数
    ----
    size : 每块最多多少个字符。类放不下时按方法切，函数放不下时按空行和换行切；
        相邻的小段（同一层的导入、常量）在放得下时合并。

    不是 Python 或不合语法的文档按 chunk_recursive 切，后者给一条 RagLessonsWarning。

    >>> code = "import os\\n\\n\\nclass A:\\n    def f(self):\\n        return 1\\n\\n\\ndef g():\\n    return 2\\n"
    >>> [(c.headings, c.line) for c in chunk_by_definition(Document("a.py", code))]
    [(('a.py',), 1), (('a.py', 'A'), 4), (('a.py', 'g'), 9)]
    """
    check_document(document)
    size, _ = check_size(size)
    text = document.text
    if not document.source.lower().endswith((".py", ".pyi")):
        return chunk_recursive(document, size, 0)
    try:
        top = definition_spans(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"第 {line} 行" if line else "文件"
        warnings.warn(f"{document.source} 的{where}不合 Python 语法，改按标点和换行切。", RagLessonsWarning, stacklevel=2)
        return chunk_recursive(document, size, 0)
    name = document.source.rsplit("/", 1)[-1]
    spans: list[tuple[int, int, tuple[str, ...]]] = []
    for start, end, path in top:
        spans += _fit(text, start, end, path, size)
    cutter = Cutter(document)
    trimmed = ((*trim(text, start, end), path) for start, end, path in spans)
    return [cutter.cut(start, end, (name, *path)) for start, end, path in trimmed if not is_blank(text[start:end])]


def _fit(text: str, start: int, end: int, path: tuple[str, ...], size: int) -> list[tuple[int, int, tuple[str, ...]]]:
    """一段放得下就原样；类放不下按方法切；还放不下就递归切。"""
    if end - start <= size:
        return [(start, end, path)]
    node = _class_at(text[start:end])
    if node is None:
        return [(start + a, start + b, path) for a, b in recursive_spans(text[start:end], size, 0)]
    part = text[start:end]
    lines = [0, *newline_ends(part), len(part)]
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for a, b, inner in _definitions(part, node.body, 0, len(part), path, lines):
        found += _fit(text, start + a, start + b, inner, size) if inner != path else [
            (start + a + x, start + a + y, inner) for x, y in recursive_spans(part[a:b], size, 0)
        ]
    return found


def _class_at(code: str) -> ast.ClassDef | None:
    """这一段是不是恰好一个类（可以有缩进）。"""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse("if 1:\n" + code if code[:1].isspace() else code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    body = body[0].body if code[:1].isspace() and isinstance(body[0], ast.If) else body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1 or len(body) != 1:
        return None
    if code[:1].isspace():                              # 前面加了一行，行号减一
        ast.increment_lineno(classes[0], -1)
    return classes[0]
