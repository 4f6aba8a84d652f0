"""把块的边界和重叠直接涂在原文上。

``paint(document, chunks)`` 在 notebook 里显示成涂了底色的原文，在终端里显示成夹着记号的原文。
每块开头有一个带块号的记号，单双号的底色不同；重叠的部分是两色斜纹加虚线，没有块要的字划掉。
颜色、记号、线条各说一遍同样的事，分不清颜色、样式被去掉时也读得懂。
底色是半透明的，字用页面自己的颜色，深浅两种主题下都清楚。原文一律转义，同样的输入总是同样的字节。

>>> paint("今天下雨。明天晴！", [(0, 5), (5, 9)])
1▸今天下雨。2▸明天晴！
"""

from __future__ import annotations

import html
import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_lessons.types import Chunk, Document, RagLessonsError, is_blank

Span = tuple[int, int]

# Okabe-Ito 的蓝和橙，色觉异常的人也分得开；最后一个数是不透明度
ODD, EVEN = (0, 114, 178, 0.26), (230, 159, 0, 0.26)
ODD_DARK, EVEN_DARK = (0, 114, 178, 0.40), (230, 159, 0, 0.40)     # 重叠处的斜纹


def _rgba(color: tuple[int, int, int, float]) -> str:
    red, green, blue, alpha = color
    return f"rgba({red},{green},{blue},{alpha:g})"


_STRIPES = (
    f"background-color:{_rgba(ODD)};background-image:repeating-linear-gradient(135deg,"
    f"{_rgba(ODD_DARK)} 0,{_rgba(ODD_DARK)} 5px,{_rgba(EVEN_DARK)} 5px,{_rgba(EVEN_DARK)} 10px);"
    "border-bottom:2px dashed rgba(128,128,128,.9)"
)
_PLAIN = tuple(f"background-color:{_rgba(color)}" for color in (EVEN, ODD))      # 下标是块号除以 2 的余数
_LOST = "text-decoration:line-through"
_BOLD = "font-weight:700;border-bottom:3px solid currentcolor"
_MARK = (
    "font-size:75%;font-weight:700;font-style:normal;border:1px solid currentcolor;border-radius:3px;"
    "padding:0 3px;margin:0 1px;white-space:nowrap;user-select:none"
)
_BOX = (
    "white-space:pre-wrap;overflow-wrap:anywhere;font-family:inherit;font-size:100%;line-height:1.9;"
    "background:transparent;color:inherit;margin:4px 0;padding:6px 10px;"
    "border:1px solid rgba(128,128,128,.35);border-radius:4px"
)


@dataclass(frozen=True)
class Painting:
    """``paint`` 的结果；放在一格的最后一行就会显示。``html`` 是网页，``plain`` 是纯文字。"""

    html: str
    plain: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.plain


def paint(
    text: Document | str,
    chunks: Iterable[Chunk | Span],
    start: int = 0,
    end: int | None = None,
    bold: Iterable[Span] = (),
) -> Painting:
    """涂一段原文。

    参数
    ----
    text : 文档，或一段文字。
    chunks : 块，或 (start, end) 的位置；按给的次序从 1 编号。
    start, end : 只涂原文的这一段，左闭右开；默认是全文。
    bold : 要加粗并画实线的位置，例如一句被切断的话。

    位置不在原文里、块不是从这份文档切的，抛出 RagLessonsError。
    """
    body = text.text if isinstance(text, Document) else text
    spans = [_span(body, text, chunk, number) for number, chunk in enumerate(chunks, 1)]
    end = len(body) if end is None else min(end, len(body))
    if not 0 <= start <= end:
        raise RagLessonsError(f"要涂的一段是 {start} 到 {end}，不在全文的 0 到 {len(body)} 之内；请核对 start 和 end。")
    bolds = [(a, b) for a, b in bold]
    web, plain = [], []
    if start > 0:
        web.append("…")
        plain.append("…")
    cuts = {start, end, *(x for span in [*spans, *bolds] for x in span if start < x < end)}
    edges = sorted(cuts)
    for a, b in itertools.pairwise(edges):
        for label in _labels(spans, a, start):
            web.append(f'<b style="{_MARK}">{label}</b>')
            plain.append(label)
        inside = [n for n, (x, y) in enumerate(spans, 1) if x <= a and b <= y]
        piece = body[a:b]
        web.append(_piece(piece, inside, any(x <= a and b <= y for x, y in bolds)))
        plain.append(piece)
    for label in _ends(spans, end):
        web.append(f'<b style="{_MARK}">{label}</b>')
        plain.append(label)
    if end < len(body):
        web.append("…")
        plain.append("…")
    return Painting(f'<pre style="{_BOX}">{"".join(web)}</pre>', "".join(plain))


def _span(body: str, text: Document | str, chunk: Chunk | Span, number: int) -> Span:
    a, b = (chunk.start, chunk.end) if isinstance(chunk, Chunk) else chunk
    if not 0 <= a < b <= len(body):
        raise RagLessonsError(f"第 {number} 块的位置是 ({a}, {b})，不在长 {len(body)} 的原文里；请核对切块的函数。")
    if isinstance(chunk, Chunk) and (body[a:b] != chunk.text or getattr(text, "source", chunk.source) != chunk.source):
        raise RagLessonsError(f"第 {number} 块（{chunk.label}）不是从这份原文切出来的；请把块和它的文档配好对。")
    return a, b


def _labels(spans: Sequence[Span], place: int, start: int) -> list[str]:
    """place 处的记号：先是在这里结束的，再是在这里开始的。从半块涂起时，开头只写块号。"""
    begin = [f"{n}▸" for n, (a, _) in enumerate(spans, 1) if a == place]
    if place == start:
        return [str(n) for n, (a, b) in enumerate(spans, 1) if a < place < b] + begin
    return _ends(spans, place) + begin


def _ends(spans: Sequence[Span], place: int) -> list[str]:
    """结束的记号只在重叠处才有：平时下一块的开头已经说明上一块到哪里。"""
    return [
        f"◂{n}"
        for n, (_, b) in enumerate(spans, 1)
        if b == place and any(x < b <= y for m, (x, y) in enumerate(spans, 1) if m != n)
    ]


def _piece(piece: str, inside: Sequence[int], bold: bool) -> str:
    if len(inside) > 1:
        style = _STRIPES
    elif inside:
        style = _PLAIN[inside[0] % 2]
    else:
        style = "" if is_blank(piece) else _LOST
    if bold:
        style = f"{style};{_BOLD}" if style else _BOLD
    shown = _escape(piece)
    return f'<span style="{style}">{shown}</span>' if style else f"<span>{shown}</span>"


def _escape(piece: str) -> str:
    """转义；看不见的控制字符换成 �，免得打乱整段的方向；$ 和反斜线单独包起来，免得被当成公式。"""
    shown = "".join("\ufffd" if _is_control(c) else c for c in piece)
    shown = html.escape(shown, quote=False)
    return shown.replace("$", "<span>$</span>").replace("\\", "<span>\\</span>")


def _is_control(char: str) -> bool:
    return char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs")
