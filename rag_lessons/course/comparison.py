"""把几个检索器对同一个问题的结果并排放好。

``compare("失控保护怎么触发", {"玩具": toy_index, "e5": e5_index}, gold="安全阀")``
在 notebook 里显示成一张表，在终端里显示成几段文字。同样的结果总是同样的字节，
文件里的文字一律转义后才放进 HTML。
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rag_lessons.course.plotting import COLORS
from rag_lessons.evaluation import Gold, Question
from rag_lessons.types import Chunk, Hit, RagLessonsError

SNIPPET = 40  # 每条结果显示多少个字
DEPTH = 50  # 给了 gold 时，往下找多少名

# 检索器的名字里含有左边的词，就用右边那种方法的颜色
_WORDS = (
    ("玩具", "toy"), ("toy", "toy"), ("e5", "e5"), ("zhipu", "zhipu"), ("智谱", "zhipu"), ("embedding-3", "zhipu"),
    ("bm25", "bm25"), ("混合", "hybrid"), ("hybrid", "hybrid"), ("重排", "rerank"), ("rerank", "rerank"),
)  # fmt: skip
_GRAY = "rgba(128,128,128,.8)"
_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"


class Searcher(Protocol):
    """能回答 ``search(question, k)`` 的东西。"""

    def search(self, query: str, k: int = 3) -> list[Hit]: ...


Target = None | str | Mapping[str, str] | Gold | Question | Callable[[Chunk], bool] | Iterable[Any]


def matcher(gold: Target) -> Callable[[Chunk], str | None]:
    """把 gold 变成一个函数：这一块是正确段落时返回命中的引文（没有引文时为空串），否则返回 None。

    gold 可以是：一段引文或一个文件名（字符串）；``{"source": ..., "quote": ...}``；
    ``load_golden`` 读出的一道 Question 或一个 Gold；收 Chunk、返回真假的函数；或由它们组成的列表。
    """
    if gold is None:
        return lambda chunk: None
    if isinstance(gold, str):
        text = gold.strip()
        if not text:
            raise RagLessonsError("gold 是空白；请给一段引文、一个文件名，或不写 gold。")
        return lambda chunk: text if text in chunk.text else ("" if chunk.source == text else None)
    if isinstance(gold, Mapping):
        source, quote = gold.get("source"), gold.get("quote", "")
        return lambda chunk: quote if (source is None or chunk.source == source) and quote in chunk.text else None
    if isinstance(gold, Question):
        return matcher(list(gold.gold))
    if isinstance(gold, Gold):
        return matcher({"source": gold.source, "quote": gold.quote})
    if callable(gold):
        predicate = gold
        return lambda chunk: "" if predicate(chunk) else None
    several = [matcher(g) for g in gold]
    return lambda chunk: next((m for each in several if (m := each(chunk)) is not None), None)


@dataclass(frozen=True)
class Row:
    """一条结果：名次、出处、分数、摘录；gold 表示是否正确段落，quote 是摘录里要加重的部分。"""

    rank: int
    label: str
    score: float
    snippet: str
    gold: bool
    quote: str = ""


@dataclass(frozen=True)
class Comparison:
    """``compare`` 的结果。

    属性
    ----
    question : 问题。
    columns : {检索器的名字: 前 k 条 Row}。
    gold_ranks : {检索器的名字: 正确段落的名次}；前 depth 名里没有时是 None。没给 gold 时是空字典。
    marks : {检索器的名字: 列头的颜色}。
    """

    question: str
    columns: dict[str, list[Row]]
    gold_ranks: dict[str, int | None]
    depth: int = DEPTH
    marks: dict[str, str] = field(default_factory=dict, repr=False)

    def verdict(self, name: str) -> str:
        """这个检索器把正确段落排在第几。"""
        if name not in self.gold_ranks:
            return ""
        rank = self.gold_ranks[name]
        return f"正确段落：第 {rank} 名" if rank else f"正确段落：前 {self.depth} 名里没有"

    def __repr__(self) -> str:
        lines = [f"问：{self.question}"]
        for name, rows in self.columns.items():
            lines.append(f"【{name}】" + self.verdict(name))
            width = max((_width(r.label) for r in rows), default=0)
            for r in rows:
                label = r.label + " " * (width - _width(r.label))
                lines.append(f"{'✓' if r.gold else ' '} {r.rank}  {r.score:.3f}  {label}  {r.snippet}")
            if not rows:
                lines.append("  没有结果")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        names = list(self.columns)
        head = "".join(
            f'<th scope="col" style="text-align:left;vertical-align:bottom;padding:4px 12px;'
            f'border-bottom:3px solid {self.marks.get(name, _GRAY)}">{_escape(name)}'
            f'<br><span style="font-weight:normal">{_escape(self.verdict(name))}</span></th>'
            for name in names
        )
        body = []
        for i in range(max((len(rows) for rows in self.columns.values()), default=0)):
            cells = "".join(_cell(rows[i] if i < len(rows) else None) for rows in self.columns.values())
            body.append(f"<tr>{cells}</tr>")
        if not body:
            body.append(f'<tr><td colspan="{max(len(names), 1)}">没有结果</td></tr>')
        return (
            f'<div style="overflow-x:auto"><p style="margin:4px 0"><b>问：{_escape(self.question)}</b></p>'
            f'<table style="border-collapse:collapse;background:transparent;color:inherit">'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )


def compare(
    question: str, searchers: Mapping[str, Searcher], k: int = 3, gold: Target = None, depth: int = DEPTH
) -> Comparison:
    """同一个问题，几个检索器，前 k 条并排。

    参数
    ----
    question : 问题。
    searchers : {名字: 有 ``search(question, k)`` 的对象}，按给的顺序从左到右。
    k : 每列几条，默认 3。
    gold : 正确段落，写法见 ``matcher``；给了就标出来，并在前 depth 名里找它的名次。
    depth : 往下找多少名，默认 50。

    返回 Comparison；放在一格的最后一行就会显示。
    """
    if not isinstance(searchers, Mapping) or not searchers:
        raise RagLessonsError('searchers 要是非空的字典，例如 {"玩具": index_toy, "e5": index_e5}。')
    if k <= 0:
        raise RagLessonsError(f"k 要是正整数，收到的是 {k}。")
    match = matcher(gold)
    columns, ranks, marks = {}, {}, {}
    for name, searcher in searchers.items():
        marks[name] = _mark(name, searcher)
        hits = list(searcher.search(question, k=k if gold is None else max(k, depth)))
        if gold is not None:
            ranks[name] = next((h.rank for h in hits if match(h.chunk) is not None), None)
        columns[name] = [_row(hit, match(hit.chunk)) for hit in hits[:k]]
    return Comparison(question, columns, ranks, max(k, depth), marks)


def _row(hit: Hit, quote: str | None) -> Row:
    text = _plain(hit.chunk.text)
    wanted = _plain(quote or "")
    start = text.find(wanted) if wanted else 0
    start = max(0, start - (SNIPPET - len(wanted)) // 2) if start + len(wanted) > SNIPPET else 0
    snippet = text[start : start + max(SNIPPET, len(wanted))]
    snippet = ("…" if start else "") + snippet + ("…" if start + len(snippet) < len(text) else "")
    score = round(float(hit.score), 3) + 0.0  # +0.0 把 -0.000 变成 0.000
    return Row(hit.rank, hit.chunk.label, score, snippet, quote is not None, wanted)


def _plain(text: str) -> str:
    """压成一行，去掉看不见的控制字符（双向控制符会打乱整张表）。"""
    text = " ".join(text.split())
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _escape(text: str) -> str:
    return html.escape(_plain(text), quote=True)


def _mark(name: str, searcher: Searcher) -> str:
    """列头的颜色：先看名字，再看它用的嵌入空间（"e5/…"、"toy/…"）。"""
    lower = name.lower()
    method = next((method for word, method in _WORDS if word in lower), None)
    if method is None:
        method = str(getattr(getattr(searcher, "embedder", None), "space", "")).split("/")[0]
    return COLORS.get(method, _GRAY)


def _cell(row: Row | None) -> str:
    if row is None:
        return f'<td style="{_LINE}"></td>'
    snippet = _escape(row.snippet)
    if row.quote:
        quote = _escape(row.quote)
        snippet = snippet.replace(quote, f"<b>{quote}</b>", 1)
    edge = "border-left:4px solid #009E73" if row.gold else "border-left:4px solid transparent"
    return (
        f'<td style="text-align:left;vertical-align:top;padding:4px 12px;max-width:26em;white-space:normal;'
        f'{_LINE};{edge}">{"✓ " if row.gold else ""}{row.rank}. <b>{_escape(row.label)}</b> {row.score:.3f}'
        f"<br>{snippet}</td>"
    )
