"""网页 → 文字。

编码自己按固定次序认（见 ``decode_html``），再把文字交给解析器；装没装 chardet 之类的检测器，结果都一样。
标题写成 ``# `` 行，表格写成 Markdown 的行，``<pre>`` 放进代码围栏：切块时认得出结构。
"""

from __future__ import annotations

import codecs
import re
import warnings
from pathlib import Path
from typing import Any

from rag_lessons.loading.clean import CJK
from rag_lessons.loading.markdown import Cell, fence, header_rows, heading, plain_line, spread, table
from rag_lessons.loading.text import Content, decode
from rag_lessons.types import RagLessonsError

MAX_HTML_BYTES = 8 * 1024 * 1024        # 解析出来的树是原文的上百倍大
SNIFF_BYTES = 4096                      # 只在开头找编码声明；标准规定 1024，有些页面放得更后

# 浏览器的规矩：声明这些名字时，实际按更大的那个字符集读
_WIDER = {
    "gb2312": "gb18030", "gb_2312-80": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030", "chinese": "gb18030",
    "big5": "big5hkscs", "big5-hkscs": "big5hkscs", "x-x-big5": "big5hkscs", "cn-big5": "big5hkscs",
    "iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
    "shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949",
}  # fmt: skip
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CHARSET = re.compile(rb"""(?:<meta\b[^>]*?\bcharset|<\?xml\b[^>]*?\bencoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def declared_charset(data: bytes) -> str | None:
    """网页自己声明的编码（``<meta charset>``、``http-equiv`` 或 XML 声明），换成实际该用的名字；没有就是 None。

    >>> declared_charset(b'<meta http-equiv="Content-Type" content="text/html; charset=gb2312">')
    'gb18030'
    """
    found = _CHARSET.search(_COMMENT.sub(b"", data[:SNIFF_BYTES]))
    if found is None:
        return None
    name = found[1].decode("ascii", "replace").lower()
    try:
        return codecs.lookup(_WIDER.get(name, name)).name
    except LookupError:
        return None


def decode_html(data: bytes, encoding: str | None = None) -> str:
    """网页的字节 → 文字。写明 ``encoding`` 时只用它。

    次序：BOM → UTF-8 → 网页声明的编码 → GB18030，每一步都严格，解不开才试下一步。
    先试 UTF-8 再看声明，是因为另存网页时常常改了编码却没改声明；反过来，GBK 的汉字几乎不可能碰巧是合法的 UTF-8。

    >>> decode_html('<meta charset="gb2312">朱镕基'.encode("gb18030"))[-3:]
    '朱镕基'
    >>> decode_html('<meta charset="gb2312">朱镕基'.encode("utf-8"))[-3:]
    '朱镕基'
    """
    if encoding is not None or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return decode(data, encoding)
    for candidate in ("utf-8-sig", declared_charset(data)):
        try:
            if candidate is not None and "\0" not in (text := data.decode(candidate)):
                return text
        except (UnicodeError, LookupError):
            continue
    return decode(data)


def _names(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


# 从不显示的，和显示出来也不是文字的；rt、rp 是注音，夹在汉字中间
SKIP = _names("""
    script style noscript template head title meta link svg iframe object embed canvas audio video map rt rp
    select datalist textarea button input
""")
# 前后各空一行的块，和只是另起一行的块
PARAGRAPHS = _names("p ul ol dl table pre blockquote figure form fieldset hr h1 h2 h3 h4 h5 h6")
BLOCKS = PARAGRAPHS | _names("""
    html body div section article main header footer nav aside address li dt dd tr td th caption thead tbody tfoot
    figcaption details summary dialog center legend menu dir
""")
HEADINGS = {f"h{n}": n for n in range(1, 7)}
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BREAK_IN_CJK = re.compile(rf"(?<=[{CJK}])[ \t]*\n\s*(?=[{CJK}])")      # 源码里折行，不该变成空格
_SPACES = re.compile("[ \t\n\r\f\u00a0]+")
_UNSEEN = dict.fromkeys([0xAD, 0x200B, 0x2060, 0xFEFF])
LINE_BREAK = "\x1f"     # 收集行内文字时暂代 <br>


def tidy(raw: str) -> list[str]:
    """行内文字按浏览器的规矩收拾：空白合成一个空格，``<br>`` 处分行，看不见的字去掉。"""
    lines = [_SPACES.sub(" ", _BREAK_IN_CJK.sub("", line)).strip() for line in raw.translate(_UNSEEN).split(LINE_BREAK)]
    return [line for line in lines if line]


def html_to_text(html: str) -> tuple[str, str]:
    """网页 → （正文，标题）。

    >>> html_to_text("<title>假期</title><h1>年假</h1><p>满<b>一</b>年<br>五天</p><script>x</script>")
    ('# 年假\\n\\n满一年\\n五天', '假期')
    """
    from bs4 import BeautifulSoup

    # 已经是文字了，里面的编码声明不再作数；XML 声明会让解析器拒收
    html = re.sub(r"\A\s*<\?xml[^>]*\?>", "", html.replace("\0", "").replace(LINE_BREAK, ""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # “这看起来像文件名”“这像 XML”：都不是问题
        soup = BeautifulSoup(html, "lxml")
    title = next((t for t in soup.find_all("title") if t.find_parent("svg") is None), None)
    writer = _Writer()
    writer.walk(soup)
    return writer.text(), " ".join(tidy(title.get_text())) if title else ""


class _Writer:
    """按文档次序走一遍树，写出各行。不递归：网页可以嵌套得很深。"""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.inline: list[str] = []             # 还没写成行的行内文字
        self.lists: list[int | None] = []       # 外层到内层的列表：有序的是下一个号码，无序的是 None
        self.marker = ""                        # 列表项的 - 或 1.，等第一行文字出来才写
        self.level = 0                          # 正在标题里面时是它的级别

    def text(self) -> str:
        self.flush()
        return "\n".join(self.lines).strip("\n")

    def flush(self) -> None:
        """行内文字写成行。"""
        lines = tidy("".join(self.inline))
        self.inline.clear()
        if not lines:
            return
        if self.level:
            self.lines.append(heading(self.level, " ".join(lines)))
            return
        indent = "  " * max(0, len(self.lists) - 1)
        for line in lines:
            self.lines.append(indent + (self.marker or ("  " if self.lists else "")) + plain_line(line))
            self.marker = ""

    def gap(self) -> None:
        """空一行；列表里不空，免得一项一段。"""
        self.flush()
        if self.lines and self.lines[-1] and not self.lists:
            self.lines.append("")

    def block(self, text: str) -> None:
        """已经排好的一块（表格、代码）：前后空行，里面不动。"""
        self.gap()
        self.lines += [*text.split("\n"), ""]

    def walk(self, root: Any) -> None:
        stack: list[tuple[Any, bool]] = [(child, False) for child in reversed(root.contents)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self.leave(node.name)
            elif node.name is None:
                self.inline.append(shown(node))
            elif node.name in SKIP or is_hidden(node):
                continue
            elif node.name == "pre":
                code = pre_text(node)
                if code.strip():
                    self.block(fence(code))
            elif node.name == "table" and is_data_table(node):
                self.block(table_text(node))
            elif node.name == "br":
                self.inline.append(LINE_BREAK)
            else:
                self.enter(node)
                stack.append((node, True))
                stack += [(child, False) for child in reversed(node.contents)]

    def enter(self, node: Any) -> None:
        name = node.name
        if name in PARAGRAPHS:
            self.gap()
        elif name in BLOCKS:
            self.flush()
        if name in HEADINGS:
            self.level = HEADINGS[name]
        elif name in ("ul", "menu", "dir"):
            self.lists.append(None)
        elif name == "ol":
            self.lists.append(_number(node.get("start"), 1))
        elif name == "li":
            number = self.lists[-1] if self.lists else None
            self.marker = "- " if number is None else f"{number}. "
            if number is not None:
                self.lists[-1] = number + 1

    def leave(self, name: str) -> None:
        if name not in BLOCKS:
            return
        self.flush()
        if name in HEADINGS:
            self.level = 0
        elif name in ("ul", "ol", "menu", "dir") and self.lists:
            self.lists.pop()
        elif name == "li":
            self.marker = ""
        if name in PARAGRAPHS:
            self.gap()


def shown(node: Any) -> str:
    """文字节点里显示出来的字；注释、声明之类不显示。"""
    from bs4.element import PreformattedString

    return "" if isinstance(node, PreformattedString) else str(node)


def is_hidden(node: Any) -> bool:
    """写明了不显示的元素。"""
    if node.has_attr("hidden") or node.get("aria-hidden") == "true":
        return True
    return _HIDDEN_STYLE.search(str(node.get("style") or "")) is not None


def _number(value: Any, default: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default


def pre_text(node: Any) -> str:
    """``<pre>`` 里的文字，一字不动；紧跟开始标签的换行不算（HTML 的规定）。"""
    parts = ["\n" if child.name == "br" else shown(child) if child.name is None else "" for child in node.descendants]
    return "".join(parts).replace("\r\n", "\n").removeprefix("\n").rstrip("\n")


def inline_text(node: Any) -> str:
    """一格里的文字，写成一行：块与块之间一个空格，行内标签之间什么也不加。"""
    parts: list[str] = []
    stack = list(reversed(node.contents))
    while stack:
        child = stack.pop()
        if isinstance(child, str):
            parts.append(shown(child) if child is not LINE_BREAK else child)
        elif child.name not in SKIP and not is_hidden(child):
            if child.name in BLOCKS or child.name == "br":
                parts.append(LINE_BREAK)
                stack.append(LINE_BREAK)
            stack += reversed(child.contents)
    return " ".join(tidy("".join(parts)))


def is_data_table(node: Any) -> bool:
    """是真的表格，不是拿来排版的：里面没有别的表格、标题、代码；只有一行的，格子里也没有段落和列表。"""
    if node.get("role") == "presentation" or node.find(["table", "pre", *HEADINGS]) is not None:
        return False
    if len(node.find_all("tr", limit=2)) < 2 and node.find(["p", "div", "ul", "ol"]) is not None:
        return False
    return len(node.find_all(["td", "th"], limit=2)) > 1


def table_text(node: Any) -> str:
    """数据表 → Markdown；题目（caption）放在表的前面。"""
    caption = node.find("caption")
    order = {"thead": 0, "tfoot": 2}
    rows = sorted(
        (row for row in node.find_all("tr") if not is_hidden(row)), key=lambda row: order.get(row.parent.name, 1)
    )
    cells = [[cell for cell in row.find_all(["td", "th"], recursive=False) if not is_hidden(cell)] for row in rows]
    headers = 0
    for row, line in zip(rows, cells, strict=True):
        if not line or not (row.parent.name == "thead" or all(cell.name == "th" for cell in line)):
            break
        headers += 1
    grid = [
        [Cell(inline_text(cell), _number(cell.get("rowspan"), 1) or len(rows), _number(cell.get("colspan"), 1)) for cell in line]
        for line in cells
    ]
    above = [plain_line(" ".join(tidy(caption.get_text())))] if caption is not None and caption.get_text(strip=True) else []
    return "\n\n".join([*above, table(spread(grid), headers or header_rows(grid))])


def read_html(path: Path, encoding: str | None = None) -> Content:
    """一份网页；``metadata["title"]`` 是它的标题。"""
    size = path.stat().st_size
    if size > MAX_HTML_BYTES:
        raise RagLessonsError(f"有 {size / 2**20:.0f} MB，网页超过 {MAX_HTML_BYTES / 2**20:.0f} MB 就不解析了；请先拆小。")
    text, title = html_to_text(decode_html(path.read_bytes(), encoding))
    return Content(text, {"title": title} if title else {})
