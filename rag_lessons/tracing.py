"""溯源：答案里的编号在哪里，引文是不是原文，怎样显示成点得开的网页。

这里只和字符串打交道，不认识块和检索结果；``parse_citations``、``check_quotes``、``Answer`` 都用它。
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_GAP = r"[ \t\u3000\xa0]{0,2}"
_NUMBER = rf"{_GAP}(?:(?:资料|来源){_GAP})?\^?\d{{1,3}}{_GAP}"      # 三位以内：[2024] 是年份，不是编号
_DASH = r"[-–—~～至到]"
_LIST = rf"{_NUMBER}(?:(?:[,，、;；和]|{_DASH}){_NUMBER})*"
_BRACKETS = rf"[\[【［]{_LIST}[\]】］]"
# [1]、[1, 3]、[1-3]、[1]-[3]、[^1]、【资料 2】，以及（见资料 1、2）；(1) 多半是条目的序号，不算
CITATION = re.compile(rf"{_BRACKETS}(?:{_GAP}{_DASH}{_GAP}{_BRACKETS})?|[（(](?:参?见)?(?={_GAP}(?:资料|来源)){_LIST}[）)]")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)     # 代码里的 a[1] 是下标
LONGEST_QUOTE = 2000        # 引号里的话往回最多找这么远
WIDEST_RANGE = 50           # [1-3] 展开成 1、2、3；跨得更远的，只取两头
QUOTES = {"」": "「", "』": "『", "”": "“"}
_QUOTE_MARK = re.compile("[「」『』“”]")


class Mark(NamedTuple):
    """答案里的一处编号：位置、编号、它前面引号里的话（没有就是空串）。"""

    start: int
    end: int
    numbers: tuple[int, ...]
    quote: str


def _partners(text: str) -> dict[int, int]:
    """{右引号的位置: 与它配对的左引号的位置}；三种引号各配各的，配不上的不在里面。"""
    found: dict[int, int] = {}
    waiting: dict[str, list[int]] = {opening: [] for opening in QUOTES.values()}
    for match in _QUOTE_MARK.finditer(text):
        if match.group() in waiting:
            waiting[match.group()].append(match.start())
        elif waiting[QUOTES[match.group()]]:
            found[match.start()] = waiting[QUOTES[match.group()]].pop()
    return found


def quote_before(text: str, end: int, partners: dict[int, int] | None = None) -> str:
    """text[:end] 末尾那对引号里的话；引号可以套引号，后面可以有一两个标点；末尾不是引号时返回空串。

    partners 是 ``_partners(text)``，查许多处时只算一次。

    >>> quote_before("见「问「甲」的事」。[1]", 10)
    '问「甲」的事'
    """
    begin = max(0, end - LONGEST_QUOTE)
    head = text[begin:end].rstrip(" \t\u3000，。；：、,.;:（(")
    if head.endswith('"'):
        return head[head.rfind('"', 0, -1) + 1:-1] if head.count('"') > 1 else ""
    if not head or head[-1] not in QUOTES:
        return ""
    closing = begin + len(head) - 1
    opening = (_partners(text[:end]) if partners is None else partners).get(closing, -1)
    return text[opening + 1:closing] if opening >= begin else ""


def _expand(text: str) -> tuple[int, ...]:
    """一处编号里写的数：``[1-3, 5]`` → (1, 2, 3, 5)。"""
    numbers: list[int] = []
    dash = False
    for piece in re.findall(rf"\d+|{_DASH}", text):
        if not piece.isdigit():
            dash = True
            continue
        number = int(piece)
        if dash and 1 < number - numbers[-1] <= WIDEST_RANGE:
            numbers += range(numbers[-1] + 1, number)
        numbers.append(number)
        dash = False
    return tuple(dict.fromkeys(numbers))


def find_marks(text: str) -> list[Mark]:
    """答案里的每一处编号。代码里的、引文自己带的，不算。

    >>> [(m.numbers, m.quote) for m in find_marks("「见 [7]」[1][2]，又见 [3-5]；`a[0]` 是下标")]
    [((1,), '见 [7]'), ((2,), '见 [7]'), ((3, 4, 5), '')]
    """
    code = [match.span() for match in CODE.finditer(text)]
    partners = _partners(text)
    marks: list[tuple[Mark, int]] = []      # 第二项是引文开始的位置
    for match in CITATION.finditer(text):
        while code and code[0][1] <= match.start():
            code.pop(0)
        if code and code[0][0] <= match.start():
            continue
        quote = quote_before(text, match.start(), partners)
        place = text.rfind(quote, 0, match.start()) if quote else match.start()
        if not quote and marks and not text[marks[-1][0].end:match.start()].strip():
            quote, place = marks[-1][0].quote, marks[-1][1]        # 「原句」[1][2]：两处说的是同一句
        marks.append((Mark(*match.span(), _expand(match.group()), quote), place))
    kept: list[Mark] = []
    inside = (0, 0)
    for mark, place in reversed(marks):
        if not inside[0] <= mark.start < inside[1]:
            kept.append(mark)
            inside = (place, place + len(mark.quote))
    return kept[::-1]


# 数、西文单词、连写的汉字数字各是一个整体：引文里的 40 不会和原文的 400 对上
# 全角的数用全角的逗号、句点；半角数字后面的全角逗号是标点
_FIGURE = r"(?:(?<![0-9A-Za-z)\]])[-−－])?(?:[０-９]{1,3}(?:，[０-９]{3}(?!\d))+|\d+(?:,\d{3}(?!\d))*)(?:[.．]\d+)*(?:\s?[%％‰万亿])?"
# 西文词；夹着软连字符、零宽字符，重音分开写，仍是一个词
_LETTER = "A-Za-zＡ-Ｚａ-ｚ_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_HIDDEN = "\u00ad\u200b-\u200d\u2060\ufeff"
_HAN_FIGURE = "零〇一二两三四五六七八九十百千万亿"
_TOKEN = re.compile(rf"{_FIGURE}|[{_LETTER}][{_LETTER}{_HIDDEN}\u0300-\u036f]*|[{_HAN_FIGURE}]{{2,}}|[^\s`*|]")
_SAME = str.maketrans(dict.fromkeys("「」『』“”‘’'", '"') | {"−": "-"})


@lru_cache(maxsize=20_000)
def _written_alike(word: str) -> str:
    """词 → 统一了全半角、引号、千分号的写法；看不见的字符是空串。"""
    if unicodedata.category(word[0]) == "Cf":
        return ""
    word = unicodedata.normalize("NFKC", re.sub(f"[{_HIDDEN}]", "", word)).translate(_SAME)
    return re.sub(r"[\s,]", "", word) if word[-1:].isalnum() or word[-1:] in "%‰" else word


def _tokens(text: str) -> list[tuple[str, int, int]]:
    """(统一了写法的词, 开始, 结束)；空白、零宽字符、反引号、星号、表格竖线不算。"""
    found = ((_written_alike(match.group()), *match.span()) for match in _TOKEN.finditer(text))
    return [token for token in found if token[0]]


def _is_figure(word: str) -> bool:
    return any(c.isdigit() for c in word) or all(c in _HAN_FIGURE for c in word)


def locate(quote: str, text: str) -> tuple[str, int, int]:
    """引文在原文的哪里：(结论, 开始, 结束)，位置是 text 里的，找不到时是 0、0。

    结论：``"verbatim"`` 一字不差；``"loose"`` 只有空白、全半角、引号或排版记号不同；
    ``"number"`` 别的字都对，数字不同；``"absent"`` 没有这句；``"none"`` 引文是空的。

    >>> locate("上限 40 步", "# 上限 40 步。"), locate("上限40步", "# 上限 40 步。")
    (('verbatim', 2, 9), ('loose', 2, 9))
    >>> locate("上限 40 步", "上限 400 步"), locate("上限 4", "上限 40 步"), locate("没有上限", "上限 40 步")
    (('number', 0, 8), ('number', 0, 5), ('absent', 0, 0))
    """
    quote = quote.strip()
    wanted, there = _tokens(quote), _tokens(text)
    if not wanted:
        return "none", 0, 0
    loose: tuple[int, int] | None = None
    exact = quote in text
    for i in _runs([w for w, _, _ in wanted], [w for w, _, _ in there]):
        start, end = there[i][1], there[i + len(wanted) - 1][2]
        begin = start - wanted[0][1]
        if exact and begin >= 0 and text.startswith(quote, begin):
            return "verbatim", begin, begin + len(quote)
        loose = loose or (start, end)
        if not exact:
            break
    if loose:
        return "loose", *loose
    if sum(not _is_figure(w) for w, _, _ in wanted) >= 2:       # 只剩一两个字时，换掉数字到处都对得上
        blank = [["#" if _is_figure(w) else w for w, _, _ in side] for side in (wanted, there)]
        for i in _runs(*blank):
            return "number", there[i][1], there[i + len(wanted) - 1][2]
    return "absent", 0, 0


def _runs(wanted: list[str], there: list[str]) -> Iterator[int]:
    """wanted 在 there 里连着出现的每个位置。KMP：重复的字再多，也只走一遍。"""
    same, matched = [0], 0          # same[i]：wanted 的前 i + 1 个词，开头和末尾最长有几个词一样
    for word in wanted[1:]:
        while matched and wanted[matched] != word:
            matched = same[matched - 1]
        matched += wanted[matched] == word
        same.append(matched)
    matched = 0
    for i, word in enumerate(there):
        while matched and (matched == len(wanted) or wanted[matched] != word):
            matched = same[matched - 1]
        matched += wanted[matched] == word
        if matched == len(wanted):
            yield i + 1 - matched


# ---------------------------------------------------------------- 显示

VERDICTS = {
    "verbatim": "原句一字不差",
    "loose": "原句只有空白、全半角或排版记号不同",
    "number": "数字和原文对不上",
    "absent": "资料里没有这句话",
    "none": "没有引原句",
}
_SHOWN = 300        # 引文前后各显示这么多字，最多五行；没有引文时显示开头
_LINES = 5
_BOX = (
    "white-space:pre-wrap;overflow-wrap:anywhere;font-family:inherit;font-size:100%;line-height:1.7;"
    "background:transparent;color:inherit;margin:4px 0;padding:6px 10px;"
    "border:1px solid rgba(128,128,128,.35);border-radius:4px"
)
_INLINE = "display:inline-block;vertical-align:top;max-width:100%"      # 合着的时候不换行
_LINK = "display:inline;cursor:pointer;color:#0072B2;font-weight:700;text-decoration:underline"
_QUOTED = "background-color:#b3e2d5;color:#000;border-bottom:2px solid #009e73"     # 深色主题下也是浅底黑字
_WRONG = "color:#D55E00;font-weight:700"


def escape(text: str) -> str:
    """转义成网页里的文字；看不见的控制字符换成 �，免得打乱整段的方向；$ 和反斜线单独包起来，免得被当成公式。

    >>> escape("<b>1 & 2</b>\\u202e")
    '&lt;b&gt;1 &amp; 2&lt;/b&gt;\ufffd'
    """
    shown = "".join("\ufffd" if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text)
    return html.escape(shown).replace("$", "<span>$</span>").replace("\\", "<span>\\</span>")


def _given(chunk: Any) -> str:
    """交给模型的那段文字：从表格中间切下来的块，前面有补上的表头。"""
    header = chunk.metadata.get("table_header")
    return f"{header}\n{chunk.text}" if header else chunk.text


def _passage(number: int, chunk: Any, quote: str) -> tuple[str, str]:
    """一段资料：（网页, 核对的结论）；网页里有出处、结论、原文，引文涂上底色。"""
    text = _given(chunk)
    verdict, start, end = locate(quote, text)
    before = "\n".join(text[max(0, start - _SHOWN):start].split("\n")[-_LINES:])
    wide = 1 if end else 3
    after = "\n".join(text[end:end + wide * _SHOWN].split("\n")[:wide * _LINES])
    path = f"（{' > '.join(chunk.headings)}）" if chunk.headings else ""
    line = chunk.line + text.count("\n", 0, start) - (text.count("\n") - chunk.text.count("\n"))       # 补上的表头不算行
    if end and line >= chunk.line and "page" not in chunk.metadata:
        path += f"，第 {line} 行"
    marked = f'<mark style="{_QUOTED}">{escape(text[start:end])}</mark>' if end else ""
    return (
        f'<div style="{_BOX}"><b>[{number}] {escape(chunk.label + path)}</b>　{VERDICTS[verdict]}\n'
        f'{"…" if len(before) < start else ""}{escape(before)}{marked}{escape(after)}{"…" if end + len(after) < len(text) else ""}</div>'
    ), verdict


def answer_html(answer: Any) -> str:
    """Answer → 网页：编号点开就是那段资料，引文涂了底色。

    只用 ``<details>``：不靠脚本，也不靠 id，所以没有信任过的 notebook、导出的网页、VS Code 里都点得开。
    文字全部转义，同样的答案总是同样的字节。
    """
    chunks = {number: hit.chunk for number, hit in enumerate(answer.hits, 1)} | {c.number: c.chunk for c in answer.citations}
    parts, place = [], 0
    passage = lru_cache(maxsize=None)(lambda number, quote: _passage(number, chunks[number], quote))     # 同一句引了几遍，只找一次
    for mark in find_marks(answer.text):
        parts.append(escape(answer.text[place:mark.start]))
        place = mark.end
        shown = escape(answer.text[mark.start:mark.end])
        known = [number for number in mark.numbers if number in chunks]
        if known:
            passages = "".join(passage(number, mark.quote)[0] for number in known)
            parts.append(f'<details style="{_INLINE}"><summary style="{_LINK}">{shown}</summary>{passages}</details>')
        else:
            parts.append(f'<s style="{_WRONG}">{shown}</s>')
        problems = [f"没有资料 {number}" for number in mark.numbers if number not in chunks]
        verdicts = {number: passage(number, mark.quote)[1] for number in known}
        problems += [f"[{number}] {VERDICTS[verdict]}" for number, verdict in verdicts.items() if verdict in ("number", "absent")]
        if problems:
            parts.append(f'<span style="{_WRONG}">（{escape("；".join(problems))}）</span>')
    parts.append(escape(answer.text[place:]))
    lines = [f"[{number}] {escape(hit.chunk.label)}　{hit.score:.3f}" for number, hit in enumerate(answer.hits, 1)]
    below = "".join(f"<li>{escape(item)}</li>" for item in answer.missing)
    return (
        f'<div style="white-space:pre-wrap;line-height:1.9">{"".join(parts)}</div>'
        + (f"<div>注意：<ul>{below}</ul></div>" if below else "")
        + (f'<details><summary style="cursor:pointer">检索到的 {len(lines)} 段资料</summary><div>{"<br>".join(lines)}</div></details>' if lines else "")
    )
