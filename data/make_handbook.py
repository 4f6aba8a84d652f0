"""由 data/handbook_sources/ 里的 UTF-8 文字做出 data/handbook/ 里不是 UTF-8 纯文本的几份文件。

    python data/make_handbook.py            # 写进 data/handbook/
    python data/make_handbook.py 文件夹      # 写到别处

改了文字就改源文件，再运行一次；不要直接改做出来的文件。
日期、编号、次序都是固定的，同一个环境里每次做出来的字节完全相同。
要 python-docx 和 reportlab（开发依赖），字体取自 zhplot 包里的 Noto Sans SC。
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import unicodedata
import zipfile
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "handbook_sources"
TARGET = HERE / "handbook"

COMPANY = "岱柏仪表"
AUTHOR = "岱柏仪表股份有限公司"
STAMP = datetime(2024, 10, 9, 9, 0, 0)          # 写进文件属性的时间
ZIP_DATE = (2024, 10, 9, 9, 0, 0)


def read(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


# ---- 纯文本与网页：只是编码不同 ----


def legacy_bytes(text: str, encoding: str) -> bytes:
    """老系统导出的样子：CRLF 换行，指定的编码。"""
    return text.replace("\n", "\r\n").encode(encoding)


# ---- Word ----

TRACKED = re.compile(r"\{([+-])(.*?)\1\}")


def add_tracked(paragraph, text: str, ids) -> None:
    """写一段文字；{+…+} 成为修订插入，{-…-} 成为修订删除。"""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    position = 0
    for match in TRACKED.finditer(text):
        if match.start() > position:
            paragraph.add_run(text[position:match.start()])
        inserted = match[1] == "+"
        change = OxmlElement("w:ins" if inserted else "w:del")
        change.set(qn("w:id"), str(next(ids)))
        change.set(qn("w:author"), "章小满")
        change.set(qn("w:date"), STAMP.strftime("%Y-%m-%dT%H:%M:%SZ"))
        run = OxmlElement("w:r")
        words = OxmlElement("w:t" if inserted else "w:delText")
        words.text = match[2]
        words.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
        run.append(words)
        change.append(run)
        paragraph._p.append(change)
        position = match.end()
    if position < len(text):
        paragraph.add_run(text[position:])


def add_table(document, rows: list[list[str]]) -> None:
    """表格；单元格写 ^ 的并入上一格，写 < 的并入左一格。"""
    table = document.add_table(rows=len(rows), cols=len(rows[0]), style="Table Grid")
    owner = {}
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            owner[i, j] = owner[i - 1, j] if cell == "^" else owner[i, j - 1] if cell == "<" else (i, j)
    for start in sorted(set(owner.values())):
        cells = [place for place, first in owner.items() if first == start]
        cell = table.cell(*start)
        if len(cells) > 1:
            cell = cell.merge(table.cell(*max(cells)))
        cell.text = rows[start[0]][start[1]]


def word_bytes(text: str) -> bytes:
    """一点点 Markdown（标题、段落、表格、修订）→ .docx。"""
    from docx import Document
    from docx.oxml.ns import qn

    document = Document()
    for style in ("Normal", "Title", "Heading 1"):
        fonts = document.styles[style].element.get_or_add_rPr().get_or_add_rFonts()
        fonts.set(qn("w:eastAsia"), "宋体")
    document.sections[0].header.paragraphs[0].text = f"{COMPANY} 内部资料"
    ids = iter(range(101, 1000))
    for block in re.split(r"\n{2,}", text.strip()):
        if block.startswith("# "):
            document.add_heading(block[2:], level=0)
        elif block.startswith("## "):
            document.add_heading(block[3:], level=1)
        elif block.startswith("|"):
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
            add_table(document, rows)
        else:
            add_tracked(document.add_paragraph(), block, ids)
    properties = document.core_properties
    properties.author = properties.last_modified_by = AUTHOR
    properties.title, properties.comments = text.split("\n", 1)[0].lstrip("# "), ""
    properties.created = properties.modified = STAMP
    properties.revision = 1
    raw = io.BytesIO()
    document.save(raw)
    return with_fixed_dates(raw.getvalue())


def with_fixed_dates(data: bytes) -> bytes:
    """重新打包：成员的次序不变，时间都写成同一个。"""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            info = zipfile.ZipInfo(member.filename, ZIP_DATE)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 0, 0
            new.writestr(info, old.read(member.filename))
    return packed.getvalue()


# ---- PDF ----

FONT = "NotoSansSC"
NOT_FIRST = "，。；：！？、）》」』”’%℃…"       # 不出现在行首
NOT_LAST = "（《「『“‘"                         # 不出现在行尾
TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.,\-/]*|.")
# 有些软件做的 PDF 里，与部首同形的字会被换成部首的码位；NFKC 认得第一块，认不得第二块里的这些
SIMPLIFIED_RADICALS = {"贝": "⻉", "见": "⻅", "车": "⻋", "长": "⻓", "门": "⻔", "青": "⻘", "页": "⻚", "风": "⻛", "马": "⻢"}
KANGXI = {unicodedata.normalize("NFKC", chr(c)): chr(c) for c in range(0x2F00, 0x2FD6)} | SIMPLIFIED_RADICALS


def register_font() -> None:
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    folder = Path(importlib.util.find_spec("zhplot").submodule_search_locations[0])
    pdfmetrics.registerFont(TTFont(FONT, str(folder / "fonts" / "NotoSansSC-Regular.ttf")))


def wrap(text: str, size: float, width: float) -> list[str]:
    """按宽度折行：数字和拉丁词不拆开，句末的标点不落到行首。"""
    from reportlab.pdfbase.pdfmetrics import stringWidth

    lines, line = [], ""
    for token in TOKEN.findall(text):
        fits = stringWidth(line + token, FONT, size) <= width
        if fits or not line or token in NOT_FIRST:
            line += token
            continue
        carry = ""
        while line[-1] in NOT_LAST:
            line, carry = line[:-1], line[-1] + carry
        lines.append(line.rstrip())
        line = (carry + token).lstrip()
    return [*lines, line.rstrip()] if line else lines


def rows_of(text: str, width: float) -> list[tuple[str, float]]:
    """源文字 → 一行行的 (文字, 字号)；空串是空行。标题前空一行，段落之间不空。"""
    rows: list[tuple[str, float]] = []
    for block in re.split(r"\n{2,}", text.strip()):
        if block.startswith("## "):
            rows += [("", BODY), *((line, HEAD) for line in wrap(block[3:], HEAD, width))]
        else:
            rows += [(line, BODY) for line in wrap(block, BODY, width)]
    return rows


BODY, HEAD, TITLE, SMALL = 11.5, 12.5, 16.0, 8.0


def pdf_canvas(title: str, page: tuple[float, float]):
    from reportlab.pdfgen.canvas import Canvas

    raw = io.BytesIO()
    canvas = Canvas(raw, pagesize=page, invariant=1, pageCompression=1, pdfVersion=(1, 4), lang="zh-CN")
    canvas.setTitle(title)
    canvas.setAuthor(AUTHOR)
    canvas.setCreator(AUTHOR)
    return canvas, raw


def put(canvas, x: float, y: float, text: str, size: float) -> None:
    canvas.setFont(FONT, size)
    canvas.drawString(x, y, text)


def two_columns(text: str) -> bytes:
    """两栏，有页眉页脚。左右两栏同一高度的两行挨着写进文件，不少排版软件就是这样写的。"""
    width, height = 419.5, 595.3                       # A5
    margin, gutter, top, leading, depth = 40.0, 22.0, 74.0, 19.6, 23
    column = (width - 2 * margin - gutter) / 2
    title, body = text.split("\n", 1)
    rows = rows_of(body, column)
    pages: list[list[list[tuple[str, float]]]] = []
    while rows:
        page = []
        for _ in range(2):
            while rows and not rows[0][0]:             # 栏顶不留空行
                rows.pop(0)
            room = depth - 2 if not pages else depth   # 第一页给题目留两行
            while room > 0 and room < len(rows) and rows[room - 1][1] == HEAD:
                room -= 1                              # 标题不留在栏底
            page.append(rows[:room])
            rows = rows[room:]
        pages.append(page)
    canvas, raw = pdf_canvas(title.lstrip("# "), (width, height))
    for number, (left, right) in enumerate(pages, 1):
        put(canvas, margin, height - 36, f"{COMPANY}股份有限公司 内部资料", SMALL)
        start = height - top
        if number == 1:
            put(canvas, margin, start, title.lstrip("# "), TITLE)
            start -= 2 * leading
        for line in range(max(len(left), len(right))):
            for x, side in ((margin, left), (margin + column + gutter, right)):
                if line < len(side) and side[line][0]:
                    put(canvas, x, start - line * leading, *side[line])
        put(canvas, width / 2 - 70, 34, f"第 {number} 页 共 {len(pages)} 页 版权所有", SMALL)
        canvas.showPage()
    canvas.save()
    return raw.getvalue()


def one_column(text: str) -> bytes:
    """一栏，汉字凡与部首同形的都写成部首。"""
    width, height = 595.3, 841.9                       # A4
    margin, leading, depth = 72.0, 20.0, 34
    text = "".join(KANGXI.get(c, c) for c in text)
    title, body = text.split("\n", 1)
    rows = [(title.lstrip("# "), TITLE), ("", BODY), *rows_of(body, width - 2 * margin)]
    canvas, raw = pdf_canvas(title.lstrip("# "), (width, height))
    for start in range(0, len(rows), depth):
        for line, (words, size) in enumerate(rows[start:start + depth]):
            if words:
                put(canvas, margin, height - 90 - line * leading, words, size)
        put(canvas, width / 2 - 6, 40, str(start // depth + 1), SMALL)
        canvas.showPage()
    canvas.save()
    return raw.getvalue()


def make(target: Path = TARGET) -> list[Path]:
    """做出全部文件，返回它们的路径。"""
    register_font()
    files = {
        "制度/差旅费管理办法2023.gbk.txt": legacy_bytes(read("差旅费管理办法2023.txt"), "gbk"),
        "问答/考勤问答.html": legacy_bytes(read("考勤问答.html"), "gbk"),           # 声明 gb2312，实为 GBK
        "问答/信息服务问答.html": read("信息服务问答.html").encode("utf-8"),        # 声明 gb2312，实为 UTF-8
        "制度/采购与合同审批办法.docx": word_bytes(read("采购与合同审批办法.md")),
        "制度/固定资产与办公用品管理办法.docx": word_bytes(read("固定资产与办公用品管理办法.md")),
        "制度/质量与安全操作规程.pdf": two_columns(read("质量与安全操作规程.txt")),
        "制度/保密与知识产权须知.pdf": one_column(read("保密与知识产权须知.txt")),
    }
    paths = []
    for name, data in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        paths.append(path)
    return paths


if __name__ == "__main__":
    for made in make(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET):
        print(f"{made.stat().st_size:>8,} 字节  {made}")
