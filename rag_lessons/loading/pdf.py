"""PDF → 文字。

pypdf 拆文件、解内容流、认字体；这里执行每一页的绘图指令，记下每串字画在哪里。字画在哪里之后的事——
拼成行、理顺双栏、接上断行——在 ``layout`` 里，页眉页脚在 ``clean`` 里。
"""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_lessons.loading.clean import (
    garbled_share,
    is_simplified,
    map_radicals,
    running_lines,
    strip_invisible,
)
from rag_lessons.loading.layout import Line, Piece, compose, edge_gaps, is_table_row, lines_of, reading_order
from rag_lessons.loading.text import Content
from rag_lessons.progress import progress
from rag_lessons.types import RagLessonsError

# 上限：按件数算，不按秒数算，在快慢不同的机器上结果一样
MAX_PAGES = 3000
MAX_STREAM = 16 * 1024 * 1024       # 一个流解压后
MAX_PAGE_OPERATIONS = 300_000       # 一页的绘图指令；一页密密麻麻的字不到一万条
MAX_OPERATIONS = 6_000_000          # 全份
MAX_BYTES = 512 * 1024 * 1024       # 全份的内容流解压后
KEEP_BYTES = 32 * 1024 * 1024       # pypdf 记着解压过的流；攒到这么多就放掉
MAX_CMAP = 4 * 1024 * 1024          # 一个字体的编码表
MAX_FONTS = 2000
MAX_FORM_DEPTH = 8

GARBLED = 0.3                       # 乱码超过这个比例的页不要


class PageError(Exception):
    """一页读不了；别的页照常。"""


# ── 打开文件 ──────────────────────────────────────────────────


def read_pdf(path: Path, encoding: str | None = None) -> Content:
    """一份 PDF。``metadata["page_starts"]`` 是每一页在 text 里的起点；没读入的页，起点和下一页相同。"""
    with path.open("rb") as file, quiet():
        if b"%PDF-" not in file.read(1024):
            raise RagLessonsError("不是 PDF，或者已损坏：开头没有 PDF 的标记；请重新下载或导出。")
        file.seek(0)
        from pypdf.errors import DependencyError

        try:
            reader = open_reader(file)
            count = len(reader.pages)
            if count > MAX_PAGES:
                raise RagLessonsError(f"有 {count} 页，超过上限 {MAX_PAGES} 页；请先拆小。")
            pages, problems = read_pages(reader, path.name)
        except RagLessonsError:
            raise
        except DependencyError:         # AES 加密，要另装密码学的库才解得开
            raise RagLessonsError(ENCRYPTED) from None
        except Exception as error:      # 坏文件能在 pypdf 里的任何一处出错
            raise RagLessonsError(f"打不开，可能已损坏或没下载完（{type(error).__name__}）；请重新下载，或用阅读器另存一份。") from None
    text, starts = compose(pages)
    return Content(text, {"page_starts": starts}, describe(problems))


@contextmanager
def quiet() -> Iterator[None]:
    """pypdf 把小毛病记进日志，会打到屏幕上；这里收起来，顺便压低它的各项上限。"""
    from pypdf import apply_configuration

    logger = logging.getLogger("pypdf")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with apply_configuration(zlib_maximum_output_length=MAX_STREAM, stream_parsing_work_maximum_count=4 * MAX_PAGE_OPERATIONS):
            yield
    finally:
        logger.setLevel(level)


ENCRYPTED = "加了密；请用阅读器打开，去掉密码，另存一份（打印成 PDF 也可以）。"


def open_reader(file: Any) -> Any:
    """PdfReader；有密码打不开的说清楚。只限制打印、复制的（空密码）照读。"""
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise RagLessonsError(ENCRYPTED)
    return reader


def read_pages(reader: Any, name: str) -> tuple[list[list[Line]], dict[str, list[int]]]:
    """每一页按阅读次序的各行，和读不了的页：{毛病: [页码]}。"""
    from pypdf.errors import DependencyError, LimitReachedError

    fonts = Fonts(reader)
    drawn: list[list[Run]] = []
    problems: dict[str, list[int]] = defaultdict(list)
    operations = size = kept = 0
    for number, page in enumerate(progress(reader.pages, label=f"读 {name}"), 1):
        painter = Painter(page, reader, fonts)
        runs: list[Run] = []
        try:
            runs = painter.run()
        except (RagLessonsError, DependencyError):
            raise
        except (PageError, LimitReachedError):
            problems["太复杂"].append(number)
        except Exception:               # 一页坏了，别的页照常
            problems["已损坏"].append(number)
        drawn.append(runs)
        operations, size, kept = operations + painter.operations, size + painter.size, kept + painter.size
        if operations > MAX_OPERATIONS or size > MAX_BYTES:
            raise RagLessonsError(f"内容太多，读到第 {number} 页就超过了上限；请拆成几份，或检查文件是否正常。")
        if kept > KEEP_BYTES:
            reader.resolved_objects.clear()
            kept = 0
    fonts.decode()
    pages = [lines_of([run.decoded() for run in runs]) for runs in drawn]
    broken = {number for numbers in problems.values() for number in numbers}
    for number, lines in enumerate(pages, 1):
        text = " ".join(line.text for line in lines)
        if number not in broken and not text.strip():
            problems["没有文字（空白，或是扫描的图）"].append(number)
        elif garbled_share(text) >= GARBLED:
            problems["是乱码（字体没有带编码表）"].append(number)
            lines.clear()
    running = running_lines([[line.text for line in lines] for lines in pages], [edge_gaps(lines) for lines in pages])
    for lines, dropped in zip(pages, running, strict=True):
        dropped = {i for i in dropped if not is_table_row(lines, i)}
        lines[:] = [line for i, line in enumerate(lines) if i not in dropped]
    return [reading_order(lines) for lines in pages], problems


def describe(problems: dict[str, list[int]]) -> str:
    """没读入的页，合成一句话。

    >>> describe({"是乱码": [2, 3, 4, 9]})
    '第 2-4、9 页是乱码，没有读入；请换一份能复制出文字的 PDF，或先做文字识别（OCR）。'
    """
    said = []
    for problem, numbers in problems.items():
        spans: list[list[int]] = []
        for number in numbers:
            if spans and number == spans[-1][1] + 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        shown = "、".join(str(a) if a == b else f"{a}-{b}" for a, b in spans[:10])
        said.append(f"第 {shown} 页{'等' if len(spans) > 10 else ''}{problem}")
    return "，".join(said) + "，没有读入；请换一份能复制出文字的 PDF，或先做文字识别（OCR）。" if said else ""


# ── 字体 ──────────────────────────────────────────────────────

# 这些字体编码里，一个字是一或两个字节；其余复合字体都是两个字节
_MIXED = re.compile(r"/(?:GB|GBpc|GBK\w*|90\w*|83pv|Add|Ext|EUC|ETen\w*|B5pc|HKscs|ETHK\w*|CNS\w*|KSC\w*)-(?:EUC|RKSJ|B5|UHC|H|V)")
_NARROW, _WIDE = frozenset(b"iljtfrI.,:;'|![]() "), frozenset(b"mwMW@%&")


# Symbol、Wingdings 字体里常用的项目符号
_BULLETS = {0xF0B7: "•", 0xF06C: "●", 0xF06E: "■", 0xF075: "◆", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓"}


class Font:
    """一个字体：怎样把字节分成一个个码，每个码多宽，是什么字。"""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self.composite = resource.get("/Subtype") == "/Type0"
        encoding = resource.get("/Encoding")
        encoding = encoding if isinstance(encoding, str) else ""
        self.mixed = self.composite and _MIXED.match(encoding) is not None
        # 两个字节是字形号，又没有对照表：取不出文字，只会得到乱码
        self.readable = not (self.composite and encoding.startswith("/Identity") and "/ToUnicode" not in resource)
        self.by_cid = encoding.startswith("/Identity") or not encoding
        self.text: dict[bytes, str] = {}            # 用到的码 → 字；先记下用到哪些，最后一起解
        self.widths, self.default = self._widths()

    def _widths(self) -> tuple[dict[int, float], float | None]:
        """码 → 宽度（千分之一字高）；没有写的按 default，default 是 None 时按字母的样子估。"""
        found: dict[int, float] = {}
        if not self.composite:
            widths = self.resource.get("/Widths")
            first = int(self.resource.get("/FirstChar", 0))
            if widths is not None:
                found = {first + i: float(w) for i, w in enumerate(widths.get_object()[:256])}
            return found, None
        descendant = self.resource["/DescendantFonts"].get_object()[0].get_object()
        row = [item.get_object() for item in descendant.get("/W", [])] if self.by_cid else []
        i = 0
        while i + 1 < len(row):
            if isinstance(row[i + 1], list):        # 起点 [宽 宽 …]
                found.update({int(row[i]) + k: float(w) for k, w in enumerate(row[i + 1])})
                i += 2
            elif i + 2 < len(row):                  # 起点 终点 宽
                found.update(dict.fromkeys(range(int(row[i]), min(int(row[i + 1]), 0xFFFF) + 1), float(row[i + 2])))
                i += 3
            else:
                break
        return found, float(descendant.get("/DW", 1000))

    def codes(self, data: bytes) -> list[bytes]:
        if not self.composite:
            return [data[i:i + 1] for i in range(len(data))]
        if not self.mixed:
            return [data[i:i + 2] for i in range(0, len(data), 2)]
        codes, i = [], 0
        while i < len(data):
            step = 2 if data[i] > 0x80 else 1
            codes.append(data[i:i + step])
            i += step
        return codes

    def width(self, code: bytes) -> float:
        """一个码的宽度，以字高为 1。"""
        value = int.from_bytes(code, "big")
        known = self.widths.get(value)
        if known is not None:
            return known / 1000
        if self.default is None:
            return 0.28 if value in _NARROW else 0.85 if value in _WIDE else 0.55
        return 0.5 if not self.by_cid and value < 0x80 else self.default / 1000


class Fonts:
    """全份用到的字体；同一个字体只解一次。"""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.known: dict[Any, Font] = {}

    def get(self, resources: Any, name: Any) -> Font | None:
        try:
            table = resources["/Font"].get_object()
            reference = table.raw_get(name)
        except (KeyError, TypeError, AttributeError):
            return None
        key = getattr(reference, "idnum", None) or id(reference)
        if key not in self.known:
            if len(self.known) >= MAX_FONTS:
                raise RagLessonsError(f"用了 {MAX_FONTS} 种以上的字体；请检查文件是否正常。")
            self.known[key] = Font(reference.get_object())
        return self.known[key]

    def decode(self) -> None:
        """解出每个字体用到的各个码是什么字。"""
        for font in self.known.values():
            try:
                ask_pypdf(font, self.reader)
            except Exception:                   # 这个字体坏了：它的字都算乱码
                font.readable = False
        simplified = is_simplified("".join("".join(font.text.values()) for font in self.known.values()))
        for font in self.known.values():
            font.text = {code: map_radicals(text.translate(_BULLETS), simplified) for code, text in font.text.items()}


def ask_pypdf(font: Font, reader: Any) -> None:
    """造一页假的，把这个字体用到的每个码各写一遍，看 pypdf 读成什么字。

    这样每个字体只解析一次；逐页取文字的话，几千字的中文字体每一页都要重新解析。
    """
    from pypdf import PageObject
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    codes = list(font.text)
    table = font.resource.get("/ToUnicode")
    if not codes or not font.readable or (isinstance(table, dict) and len(table.get_data()) > MAX_CMAP):
        font.readable = font.readable and not codes
        return
    page = PageObject.create_blank_page(reader, 10, 10)
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F"): font.resource})}
    )
    stream = DecodedStreamObject()
    stream.set_data(b"\n".join(b"BT /F 1 Tf <%s> Tj ET" % code.hex().encode() for code in codes))
    page[NameObject("/Contents")] = stream
    read = [""] * len(codes)
    current = -1

    def before(operator: bytes, *_: Any) -> None:
        nonlocal current
        current += operator == b"Tj"

    def visit(text: str, *_: Any) -> None:
        if current >= 0:
            read[current] += text.rstrip("\n")

    page.extract_text(visitor_operand_before=before, visitor_text=visit)
    font.text = dict(zip(codes, read, strict=True))


# ── 一页：绘图指令 → 字块 ─────────────────────────────────────

Matrix = tuple[float, float, float, float, float, float]
IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def multiply(m: Matrix, n: Matrix) -> Matrix:
    """先 m 后 n 的变换。"""
    return (
        m[0] * n[0] + m[1] * n[2], m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2], m[2] * n[1] + m[3] * n[3],
        m[4] * n[0] + m[5] * n[2] + n[4], m[4] * n[1] + m[5] * n[3] + n[5],
    )  # fmt: skip


@dataclass(slots=True)
class Run:
    """一串字，还没解成文字：用什么字体、哪些码，其余和 layout.Piece 一样。"""

    font: Font
    codes: list[bytes]
    x0: float
    x1: float
    y: float
    size: float
    turn: int

    def decoded(self) -> Piece:
        return Piece(self.text(), self.x0, self.x1, self.y, self.size, self.turn)

    def text(self) -> str:
        if not self.font.readable:
            return "\ufffd" * len(self.codes)
        text = "".join(self.font.text[code] for code in self.codes)
        if any("\ud800" <= c <= "\udfff" for c in text):        # UTF-16 的代理对分在两个码里
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return strip_invisible(text).replace("\u00a0", " ")


JOIN_GAP = 0.12         # 空隙小于这么多字高，是同一串


@dataclass
class State:
    """图形状态里和文字有关的部分。"""

    ctm: Matrix = IDENTITY
    font: Font | None = None
    size: float = 0.0
    spacing: float = 0.0        # Tc
    word_spacing: float = 0.0   # Tw
    stretch: float = 1.0        # Tz
    leading: float = 0.0        # TL
    rise: float = 0.0           # Ts

    def copy(self) -> State:
        return State(**vars(self))


class Painter:
    """执行一页的绘图指令，只留下文字。"""

    def __init__(self, page: Any, reader: Any, fonts: Fonts) -> None:
        self.page, self.reader, self.fonts = page, reader, fonts
        self.runs: list[Run] = []
        self.state = State()
        self.stack: list[State] = []
        self.line: Matrix = IDENTITY            # 行首
        self.pen = 0.0                          # 从行首往右走了多远
        self.marks: list[bool] = []             # 标记内容：是不是页眉页脚之类
        self.operations = self.size = 0
        self.parsed: dict[int, list[Any]] = {}

    def run(self) -> list[Run]:
        contents = self.page.get("/Contents")
        if contents is not None:
            self.execute(contents.get_object(), self.page.get("/Resources"), 0)
        return self.inside(self.runs)

    def inside(self, runs: list[Run]) -> list[Run]:
        """画在纸面以外的字看不见，不要；要是全在外面，就是页面尺寸写错了，都要。"""
        box = self.page.cropbox
        left, bottom, right, top = (float(v) for v in (box.left, box.bottom, box.right, box.top))

        def visible(p: Run) -> bool:
            x, y = [(p.x0, p.y), (-p.y, p.x0), (-p.x0, -p.y), (p.y, -p.x0)][p.turn]
            return left - p.size <= x <= right + p.size and bottom - p.size <= y <= top + p.size

        return [p for p in runs if visible(p)] or runs

    def execute(self, content: Any, resources: Any, depth: int) -> None:
        from pypdf.generic import ContentStream

        resources = resources.get_object() if resources is not None else {}
        if id(content) not in self.parsed:
            stream = ContentStream(content, self.reader, "bytes")
            data = stream.get_data()
            self.size += len(data)
            has_text = re.search(rb"Tj|TJ|Do|['\"]", data)
            self.parsed[id(content)] = stream.operations if has_text else []
        for operands, operator in self.parsed[id(content)]:
            self.operations += 1
            if self.operations > MAX_PAGE_OPERATIONS:
                raise PageError
            if operator == b"Do":
                self.form(operands, resources, depth)
            elif operator == b"Tf":
                self.state.font = self.fonts.get(resources, operands[0]) if operands else None
                self.state.size = _floats(operands[1:], 1)[0]
            else:
                self.step(operator, operands)

    def form(self, operands: Any, resources: Any, depth: int) -> None:
        """嵌入的一组指令（form XObject），像子程序。"""
        try:
            form = resources["/XObject"].get_object()[operands[0]].get_object()
        except (KeyError, IndexError, TypeError):
            return
        if form.get("/Subtype") != "/Form" or depth >= MAX_FORM_DEPTH:
            return
        saved, stack, line, pen, marks = self.state, self.stack, self.line, self.pen, self.marks
        self.state, self.stack, self.marks = saved.copy(), [], list(marks)
        self.state.ctm = multiply(_matrix(form.get("/Matrix")), saved.ctm)
        self.execute(form, form.get("/Resources", resources), depth + 1)
        self.state, self.stack, self.line, self.pen, self.marks = saved, stack, line, pen, marks

    def step(self, operator: bytes, operands: Any) -> None:
        state = self.state
        if operator == b"Tj":
            self.show(operands[:1])
        elif operator == b"TJ":
            self.show(operands[0] if operands else [])
        elif operator in (b"Td", b"TD"):
            x, y = _floats(operands, 2)
            if operator == b"TD":
                state.leading = -y
            self.move(x, y)
        elif operator == b"Tm":
            self.line, self.pen = _matrix(operands), 0.0
        elif operator == b"T*":
            self.move(0, -state.leading)
        elif operator == b"'":
            self.move(0, -state.leading)
            self.show(operands[:1])
        elif operator == b'"':
            state.word_spacing, state.spacing = _floats(operands, 2)
            self.move(0, -state.leading)
            self.show(operands[2:3])
        elif operator == b"BT":
            self.line, self.pen = IDENTITY, 0.0
        elif operator == b"cm":
            state.ctm = multiply(_matrix(operands), state.ctm)
        elif operator == b"q":
            if len(self.stack) < 500:
                self.stack.append(state.copy())
        elif operator == b"Q":
            if self.stack:
                self.state = self.stack.pop()
        elif operator in (b"Tc", b"Tw", b"TL", b"Ts"):
            name = {b"Tc": "spacing", b"Tw": "word_spacing", b"TL": "leading", b"Ts": "rise"}[operator]
            setattr(state, name, _floats(operands, 1)[0])
        elif operator == b"Tz":
            state.stretch = _floats(operands, 1)[0] / 100
        elif operator in (b"BDC", b"BMC"):
            properties = operands[1] if len(operands) > 1 else None
            is_head = isinstance(properties, dict) and properties.get("/Type") == "/Pagination"
            self.marks.append(operands[:1] == ["/Artifact"] and is_head)
        elif operator == b"EMC" and self.marks:
            self.marks.pop()

    def move(self, x: float, y: float) -> None:
        self.line, self.pen = multiply((1, 0, 0, 1, x, y), self.line), 0.0

    def show(self, items: Sequence[Any]) -> None:
        state = self.state
        font, size = state.font, state.size
        if font is None:
            return
        for item in items:
            if isinstance(item, (int, float)):
                self.pen -= float(item) / 1000 * size * state.stretch
                continue
            data = item if isinstance(item, bytes) else str(item).encode("latin-1", "replace")
            codes = font.codes(data)
            start = self.pen
            for code in codes:
                extra = state.spacing + (state.word_spacing if code == b" " else 0.0)
                self.pen += (font.width(code) * size + extra) * state.stretch
            if codes and not any(self.marks):
                self.paint(font, codes, start, self.pen - state.spacing * state.stretch)

    def paint(self, font: Font, codes: list[bytes], start: float, end: float) -> None:
        """记下一串字；和上一串连着的，接在后面。"""
        a, b, c, d, e, f = multiply(self.line, self.state.ctm)
        sign = -1.0 if self.state.size < 0 else 1.0
        size = abs(self.state.size) * math.hypot(c, d)
        angle = math.degrees(math.atan2(b * sign, a * sign))
        turn = round(angle / 90) % 4
        x, y = a * start + c * self.state.rise + e, b * start + d * self.state.rise + f
        length = (end - start) * sign * math.hypot(a, b)
        if not all(map(math.isfinite, (x, y, length, size))) or not 0.5 < size < 2000 or abs(angle - round(angle / 90) * 90) > 3:
            return                              # 斜着的是水印
        x, y = [(x, y), (y, -x), (-x, -y), (-y, x)][turn]
        for code in codes:
            font.text.setdefault(code, "")
        last = self.runs[-1] if self.runs else None
        if (
            last is not None and last.font is font and last.turn == turn and abs(last.y - y) < 0.05 * size
            and abs(last.size - size) < 0.05 * size and -0.3 * size < x - last.x1 < JOIN_GAP * size
        ):  # fmt: skip
            last.codes += codes
            last.x1 = x + length
        else:
            self.runs.append(Run(font, list(codes), x, x + length, y, size, turn))


def _floats(operands: Sequence[Any], count: int) -> list[float]:
    """前 count 个操作数；缺的、不是数的算 0。"""
    values = [float(v) if isinstance(v, (int, float)) else 0.0 for v in list(operands)[:count]]
    return values + [0.0] * (count - len(values))


def _matrix(operands: Any) -> Matrix:
    values = list(operands.get_object() if hasattr(operands, "get_object") else operands or ())
    if len(values) != 6 or not all(isinstance(v, (int, float)) for v in values):
        return IDENTITY
    a, b, c, d, e, f = map(float, values)
    return a, b, c, d, e, f
