"""检索的成绩单：给任何检索器打分，比较两种设置，扫一排设置。"""

from __future__ import annotations

import html
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rag_lessons.evaluation.golden import Question, gold_spans, stitch
from rag_lessons.evaluation.intervals import bootstrap_interval, paired_interval
from rag_lessons.evaluation.metrics import found_ranks, ndcg_at_k, recall_at_k, reciprocal_rank
from rag_lessons.paths import FONT, font_path
from rag_lessons.retrieval.base import Searcher, check_searcher
from rag_lessons.types import (
    Chunk,
    Document,
    Hit,
    RagLessonsError,
    check_all,
    check_hits,
    check_number,
    check_whole,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES = {"recall": "召回率", "hit": "命中率", "ndcg": "nDCG"}      # 随 k 变的指标
_COST = ("chars", "tokens")
_GROUPS = {"type": "题型", "split": "哪一半", "short": "短答案"}
_AXES = {"k": "前 k 块（下一行是它们平均共几个字）", "chars": "每问平均读几个字", "tokens": "每问平均读几个 token"}
_CELL = "text-align:left;padding:3px 12px;border-bottom:1px solid rgba(128,128,128,.35)"


@dataclass(frozen=True)
class Row:
    """一道题的成绩。

    属性
    ----
    question : 这道题。
    gold_count : 金标有几处（同一处写了两遍算一处）。
    found : 各处金标第一次被碰到的名次；没碰到的不在里面。
    values : {"recall@3": 0.5, "mrr": 1.0, "chars@3": 820, …}。
    hits : 检索到的结果，名次按返回的次序重新编过。
    """

    question: Question
    gold_count: int
    found: tuple[int, ...]
    values: dict[str, float] = field(hash=False)
    hits: tuple[Hit, ...] = field(repr=False)


@dataclass(frozen=True)
class Report:
    """一个检索器在一批题上的成绩单。``print`` 出来是表，notebook 里也是表。

    属性
    ----
    rows : 逐题的成绩，按题号排好；没有答案的题不在里面。
    ks : 看前几名，从小到大。
    unanswerable : 没有答案的题：检索指标不算它们。
    metrics : {"recall@1": 0.52, "hit@1": …, "ndcg@1": …, "mrr": …}，各题的平均。MRR 只看前 max(ks) 名。
    intervals : 同样的键，95% 自助区间 (下限, 上限)。
    bill : {k: {"chars": 前 k 块平均共几个字, "tokens": 几个 token}}；没给 count 时没有 tokens。
    """

    rows: tuple[Row, ...] = field(repr=False)
    ks: tuple[int, ...]
    unanswerable: tuple[Question, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def metrics(self) -> dict[str, float]:
        names = [*(f"{curve}@{k}" for curve in CURVES for k in self.ks), "mrr"]
        return {name: fmean(self.values(name)) for name in names}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        return {name: bootstrap_interval(self.values(name)) for name in self.metrics}

    @cached_property
    def bill(self) -> dict[int, dict[str, float]]:
        counted = [name for name in _COST if f"{name}@{self.ks[0]}" in self.rows[0].values]
        return {k: {name: fmean(self.values(f"{name}@{k}")) for name in counted} for k in self.ks}

    def values(self, metric: str) -> list[float]:
        """逐题的得分，与 rows 同序。metric 是 "recall@3"、"hit@1"、"ndcg@5"、"mrr"、"chars@3"、"tokens@3"。"""
        if not isinstance(metric, str) or metric not in self.rows[0].values:
            raise RagLessonsError(f"没有叫 {metric!r} 的指标；有的是：{'、'.join(self.rows[0].values)}。")
        return [row.values[metric] for row in self.rows]

    def of(self, **wanted: Any) -> Report:
        """只留一部分题：``report.of(type="table")``、``report.of(split="tune", short=True)``、``report.of(type=["table", "literal"])``。"""
        rows = tuple(row for row in self.rows if fits(row.question, wanted))
        if not rows:
            some = self.rows[0].question
            known = "；".join(f"{name} 有 {'、'.join(sorted({str(getattr(r.question, name)) for r in self.rows}))}"
                             for name in wanted if hasattr(some, name) and name in ("type", "split", "short"))
            raise RagLessonsError(f"没有一题符合 {wanted}" + (f"（{known}）。" if known else "；请检查筛选条件。"))
        return Report(rows, self.ks, tuple(q for q in self.unanswerable if fits(q, wanted)))

    def missed(self, k: int | None = None) -> list[Row]:
        """前 k 名（默认 max(ks)）一处金标也没碰到的题：先看它们，再想怎么改。"""
        k = max(self.ks) if k is None else check_whole(k, "k ", least=1)
        return [row for row in self.rows if not any(rank <= k for rank in row.found)]

    def _table(self) -> list[list[str]]:
        names = {"chars": "字数", "tokens": "token"}
        counted = list(self.bill[self.ks[0]])
        table = [["k", *CURVES.values(), *(names[name] for name in counted)]]
        for k in self.ks:
            scores = [self._cell(f"{curve}@{k}") for curve in CURVES]
            table.append([str(k), *scores, *(f"{self.bill[k][name]:,.0f}" for name in counted)])
        return table

    def _cell(self, metric: str) -> str:
        low, high = self.intervals[metric]
        return f"{self.metrics[metric]:.2f} [{low:.2f}, {high:.2f}]"

    def _notes(self) -> list[str]:
        apart = f"（另有 {len(self.unanswerable)} 题没有答案，不计）" if self.unanswerable else ""
        notes = [f"{len(self)} 题{apart}，方括号里是 95% 区间", f"MRR（前 {max(self.ks)} 名）{self._cell('mrr')}"]
        if any(low == high for low, high in self.intervals.values()):
            notes.append("上下限相同的，是各题得分都一样；题少时，这样的区间别当真。")
        return notes

    def __str__(self) -> str:
        first, *rest = self._notes()
        return "\n".join([first, text_table(self._table()), *rest])

    def _repr_html_(self) -> str:
        return html_table(self._table(), *self._notes())

    def by(self, name: str = "type") -> Sweep:
        """按题目的一项分开看：``report.by("type")``、``report.by("split")``、``report.by("short")``。"""
        if not isinstance(name, str) or name not in _GROUPS:
            raise RagLessonsError(f"只能按 {'、'.join(_GROUPS)} 分开看，收到 {name!r}；别的条件用 report.of(...)。")
        options = sorted({getattr(row.question, name) for row in self.rows})
        return Sweep({str(option): self.of(**{name: option}) for option in options}, title=_GROUPS[name])

    def plot(
        self, metric: str = "recall", x: str = "k", ax: Axes | None = None, label: str = "", color: str | None = None
    ) -> Axes:
        """指标随 k 的变化，竖线是 95% 区间。返回 ax，可以接着往上画别的。

        参数
        ----
        metric : "recall"、"hit" 或 "ndcg"。
        x : 横轴。"k" 是前几块，下面写着它们平均共几个字；"chars"、"tokens" 是平均读几个字、几个 token：
            块有长有短时，同样的 k 读的字数不同，按字数比才公平。
        """
        if not isinstance(metric, str) or metric not in CURVES:
            raise RagLessonsError(f"metric 只能是 {'、'.join(CURVES)}，收到 {metric!r}。")
        known = ["k", *self.bill[self.ks[0]]]
        if x not in known:
            raise RagLessonsError(f"x 只能是 {'、'.join(known)}，收到 {x!r}；要 tokens，先在 evaluate 里给 count。")
        import matplotlib.pyplot as plt

        names = [f"{metric}@{k}" for k in self.ks]
        middle = [100 * self.metrics[name] for name in names]
        lows, highs = zip(*(self.intervals[name] for name in names), strict=True)
        reach = [[max(0.0, m - 100 * low) for m, low in zip(middle, lows, strict=True)],
                 [max(0.0, 100 * high - m) for m, high in zip(middle, highs, strict=True)]]
        places = list(self.ks) if x == "k" else [self.bill[k][x] for k in self.ks]
        style = _chinese()
        with plt.rc_context(style):
            ax = ax if ax is not None else plt.subplots()[1]
            ax.errorbar(places, middle, yerr=reach, marker="o", capsize=3, label=label or None, color=color)
            if x == "k":
                ax.set_xticks(self.ks, [f"{k}\n{self.bill[k]['chars']:,.0f}" for k in self.ks], fontsize=9)
            ax.set(xlabel=_AXES[x], ylabel=f"{CURVES[metric]}（%）", ylim=(-3, 103))
            if label:
                ax.legend()
        if style:           # 传进来的 ax 上，这些文字早已有了字体
            for text in (ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()):
                text.set_family(style["font.family"])
        return ax


def evaluate(
    searcher: Searcher,
    questions: Iterable[Question],
    ks: Sequence[int] | int = (1, 3, 5),
    *,
    documents: Iterable[Document] | None = None,
    count: Callable[[str], int] | None = None,
) -> Report:
    """给一个检索器打分。

    参数
    ----
    searcher : 有 ``.search(query, k)`` 的对象：索引、融合、重排、父子检索……
    questions : ``load_golden`` 读出的题；没有答案的题不算进指标，另外记着。
    ks : 看前几名，默认 1、3、5。每题只检索一次，取 max(ks) 条。
    documents : 全部文档，用来找金标原句的位置；不给时，用检索器自己的块按位置拼出来。
    count : 文字 → token 数，例如 ``lambda text: len(e5.tokenize(text))``；给了，账单里就有 token。

    返回 Report。块与金标原句的位置有重叠就算碰到，所以怎么切块都能比。
    返回的块比 k 少，就按少的算；同一块返回两次，占两个名次，金标只算一次。
    """
    check_searcher(searcher)
    asked, ks = check_questions(questions), _check_ks(ks)
    if count is not None and not callable(count):
        raise RagLessonsError(f"count 要是函数（文字 → token 数），收到 {count!r}；例如 lambda text: len(e5.tokenize(text))。")
    answerable = [q for q in asked if q.gold]
    if not answerable:
        raise RagLessonsError("没有一题有金标，算不出检索的成绩；请检查筛选条件。")
    spans = _all_spans(searcher, answerable, documents)
    rows = [_row(searcher, q, spans[q.id], ks, count) for q in answerable]
    _check_sources(rows, spans)
    return Report(tuple(rows), ks, tuple(q for q in asked if not q.gold))


def check_questions(questions: Iterable[Question]) -> list[Question]:
    """一批题，按题号排好；是空的、混进别的东西、题号重复时，抛出 RagLessonsError。"""
    message = "questions 要是 Question 的列表，{}；请用 load_golden 读，或检查筛选条件。"
    asked = [questions] if isinstance(questions, Question) else check_all(questions, Question, message.format("收到 {}"))
    if not asked:
        raise RagLessonsError(message.format("一题也没有"))
    twice = [name for name, times in Counter(q.id for q in asked).items() if times > 1]
    if twice:
        raise RagLessonsError(f"题号 {twice[0]} 出现了不止一次；每题要有自己的题号。")
    return sorted(asked, key=lambda q: q.id)


def _check_ks(ks: Sequence[int] | int) -> tuple[int, ...]:
    listed = list(ks) if isinstance(ks, Iterable) and not isinstance(ks, str | bytes) else [ks]
    if not listed:
        raise RagLessonsError("ks 是空的；想看前几名就写几，例如 ks=(1, 3, 5)。")
    return tuple(sorted({check_whole(k, "k ", least=1) for k in listed}))


def chunks_of(searcher: object) -> list[Chunk]:
    """检索器里的块；套着别的检索器时，一层层找下去，合在一起。找不到是空列表。"""
    todo, seen, found = [searcher], {}, {}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        parts = [getattr(one, name, None) for name in (*getattr(one, "__dict__", ()), *_slots(one))]
        for part in (getattr(one, "chunks", None), getattr(one, "parents", None)):
            found |= {chunk.id: chunk for chunk in _members(part) if isinstance(chunk, Chunk)}
        todo += [member for part in parts for member in (part, *_members(part)) if callable(getattr(member, "search", None))]
    return list(found.values())


def _slots(one: object) -> tuple[str, ...]:
    slots = getattr(type(one), "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _members(part: object) -> list[Any]:
    if isinstance(part, Mapping):
        return list(part.values())
    return list(part) if isinstance(part, list | tuple) else []


def _all_spans(
    searcher: object, questions: Sequence[Question], documents: Iterable[Document] | None
) -> dict[str, list[tuple[str, int, int]]]:
    """{题号: 金标原句的位置}。同一处写了两遍的，只留一处。"""
    if documents is not None:
        documents, hint = check_documents(documents), ""
    else:
        chunks = chunks_of(searcher)
        if not chunks:
            raise RagLessonsError(f"{type(searcher).__name__} 里找不到 .chunks，不知道金标原句在哪里；请传 documents=全部文档。")
        documents, hint = stitch(chunks), "（全文由检索器里的块拼成；只索引了一部分，或切块丢了字的话，请传 documents=全部文档。）"
    try:
        return {q.id: list(dict.fromkeys(gold_spans(q, documents))) for q in questions}
    except RagLessonsError as error:
        raise RagLessonsError(f"{error}{hint}") from None


def check_documents(documents: Iterable[Document]) -> list[Document]:
    """全部文档，收成列表；混进别的东西时抛出 RagLessonsError。"""
    if isinstance(documents, Document):
        return [documents]
    return check_all(documents, Document, "documents 要是 Document 的列表，收到 {}；请用 load_folder 读。")


def _row(
    searcher: Searcher,
    question: Question,
    spans: Sequence[tuple[str, int, int]],
    ks: Sequence[int],
    count: Callable[[str], int] | None,
) -> Row:
    try:
        hits = check_hits(searcher.search(question.question, max(ks)))[:max(ks)]
    except RagLessonsError as error:
        raise RagLessonsError(f"问题 {question.id}：{error}") from None
    hits = [hit if hit.rank == rank else replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]
    found = found_ranks(hits, spans)
    values = {f"recall@{k}": recall_at_k(found, len(spans), k) for k in ks}
    values |= {f"hit@{k}": float(any(rank <= k for rank in found)) for k in ks}
    values |= {f"ndcg@{k}": ndcg_at_k(found, len(spans), k) for k in ks}
    values["mrr"] = reciprocal_rank(found)
    values |= {f"chars@{k}": sum(len(hit.chunk.text) for hit in hits[:k]) for k in ks}
    if count is not None:
        tokens = [check_number(count(hit.chunk.text), "count 返回的 token 数") for hit in hits]
        values |= {f"tokens@{k}": sum(tokens[:k]) for k in ks}
    return Row(question, len(spans), tuple(found), values, tuple(hits))


def _check_sources(rows: Sequence[Row], spans: Mapping[str, Sequence[tuple[str, int, int]]]) -> None:
    """检索到的文件和金标的文件一个也对不上，多半是读的文件夹不同，不是检索不好。"""
    there = sorted({hit.chunk.source for row in rows for hit in row.hits})
    wanted = sorted({source for one in spans.values() for source, _, _ in one})
    same_name = {s.rsplit("/", 1)[-1] for s in there} & {s.rsplit("/", 1)[-1] for s in wanted}
    if there and not set(there) & set(wanted) and same_name:
        raise RagLessonsError(f"检索到的块来自 {there[0]} 等，金标写的是 {wanted[0]} 等，路径对不上；请用 load_folder 从同一个文件夹读。")


def fits(question: Question, wanted: Mapping[str, Any]) -> bool:
    """这道题符合条件没有；条件是 {题目的属性: 值，或几个值的列表}。"""
    for name, value in wanted.items():
        if not hasattr(question, name):
            raise RagLessonsError(f"题目没有 {name!r} 这一项；可以按 type、split、short、pair、id 来筛。")
        options = value if isinstance(value, list | tuple | set | frozenset) else [value]
        if getattr(question, name) not in options:
            return False
    return True


@dataclass(frozen=True)
class Difference:
    """两种设置逐题相减的结果：正数表示 b 比 a 好（chars、tokens 则是 b 读得多）。

    属性
    ----
    metric : 比的是哪个指标。
    mean : 平均差，b 减 a。
    low, high : 平均差的 95% 区间。含 0，就不能说谁好。
    n : 题数。
    wins, losses : b 比 a 高的题数、比 a 低的题数；其余打平。
    differences : 逐题的差，按题号排列。
    """

    metric: str
    mean: float
    low: float
    high: float
    n: int
    wins: int
    losses: int
    differences: tuple[float, ...] = field(repr=False)

    @property
    def clear(self) -> bool:
        """区间不含 0。"""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        digits = 0 if self.metric.split("@")[0] in _COST else 3
        mean, low, high = (f"{value + 0.0:+.{digits}f}" for value in (self.mean, self.low, self.high))
        ties = self.n - self.wins - self.losses
        verdict = "区间不含 0" if self.clear else "区间含 0，这些题分不出高下"
        return f"{self.metric}：后者减前者 {mean}（95% 区间 {low} 到 {high}），{self.n} 题里高 {self.wins}、低 {self.losses}、平 {ties}；{verdict}"


def compare_reports(a: Report, b: Report, metric: str = "recall@3") -> Difference:
    """同一批题的两份成绩单，逐题相减：b 减 a。题目不同时抛出 RagLessonsError。"""
    for report in (a, b):
        if not isinstance(report, Report):
            raise RagLessonsError(f"这里要两份 evaluate 的结果，收到 {type(report).__name__}。")
    mine, theirs = ({(row.question.id, row.question.question, row.question.gold) for row in report.rows} for report in (a, b))
    if mine != theirs:
        odd = min(question[0] for question in mine ^ theirs)
        raise RagLessonsError(f"两份成绩单的题目不同（例如 {odd}）；要用同一批题打分，才能逐题比较。")
    before, after = a.values(metric), b.values(metric)
    gaps = tuple(round(y - x, 9) for x, y in zip(before, after, strict=True))
    low, high = paired_interval(before, after)
    wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return Difference(metric, fmean(gaps), low, high, len(gaps), wins, losses, gaps)


class Sweep(dict[str, Report]):
    """``sweep`` 的结果：{设置的名字: Report}，次序就是你给的次序；``print`` 出来是一张表。title 是第一列的列名。"""

    def __init__(self, reports: Mapping[str, Report], title: str = "设置") -> None:
        super().__init__(reports)
        self.title = title
        if not self:
            raise RagLessonsError("一份成绩单也没有，列不成表；请用 sweep 的返回值。")

    def of(self, **wanted: Any) -> Sweep:
        """每份成绩单都只留一部分题，写法同 ``Report.of``。"""
        return Sweep({name: report.of(**wanted) for name, report in self.items()}, self.title)

    def plot(self, metric: str = "recall", x: str = "chars", ax: Axes | None = None, colors: Mapping[str, str] | None = None) -> Axes:
        """几份成绩单画在一起，参数同 ``Report.plot``；横轴默认是读的字数。colors 是 {设置的名字: 颜色}。"""
        for name, report in self.items():
            ax = report.plot(metric, x, ax, name, (colors or {}).get(name))
        if x == "k":
            ks = next(iter(self.values())).ks
            ax.set_xticks(ks, [str(k) for k in ks])     # 各有各的字数，不写
            ax.set_xlabel("前 k 块")
        return ax

    def _table(self) -> list[list[str]]:
        ks = next(iter(self.values())).ks
        metrics = [*(f"recall@{k}" for k in ks), "mrr"]
        table = [[self.title, "题数", *metrics, f"字数（前 {max(ks)} 块）"]]
        for name, report in self.items():
            scores = [report._cell(metric) for metric in metrics]
            table.append([name, str(len(report)), *scores, f"{report.bill[max(ks)]['chars']:,.0f}"])
        return table

    def __str__(self) -> str:
        return text_table(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._table())


def sweep(
    settings: Mapping[str, Callable[[], Searcher]],
    questions: Iterable[Question],
    ks: Sequence[int] | int = (1, 3, 5),
    *,
    documents: Iterable[Document] | None = None,
    count: Callable[[str], int] | None = None,
) -> Sweep:
    """一排设置，各打一次分。

    参数
    ----
    settings : {名字: 不带参数、当场建好一个新检索器的函数}。给函数而不给检索器，是为了每次都重建：
        旧索引里留着上一种设置的块，分数就没有意义。在循环里写 lambda 要把变量绑住：
        ``{str(size): lambda size=size: build(size) for size in (200, 500, 1000)}``；不绑，三个都会用最后的 size。
    其余参数同 ``evaluate``。

    返回 Sweep：{名字: Report}。
    """
    if not isinstance(settings, Mapping) or not settings:
        raise RagLessonsError('settings 要是非空的字典，例如 {"500 字": lambda: build(500)}。')
    wrong = [name for name, make in settings.items() if not callable(make)]
    if wrong:
        raise RagLessonsError(f"设置 {wrong[0]} 要是函数，当场建一个新的检索器；写成 lambda: VectorIndex.build(...)。")
    if len({str(name) for name in settings}) < len(settings):
        raise RagLessonsError("有两个设置写成文字是同一个名字（例如 1 和 \"1\"）；请各用各的名字。")
    ks = _check_ks(ks)
    asked, documents = check_questions(questions), None if documents is None else check_documents(documents)
    made, reports = [], {}
    for name, make in settings.items():
        searcher = make()
        if any(searcher is other for other in made):
            raise RagLessonsError(f"设置 {name} 交出的是前面用过的同一个检索器；每个设置都要新建一个。")
        made.append(searcher)
        reports[str(name)] = evaluate(searcher, asked, ks, documents=documents, count=count)
    return Sweep(reports)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def text_table(table: Sequence[Sequence[str]]) -> str:
    """几行格子 → 对齐的文字，汉字按两格宽算。

    >>> print(text_table([["k", "召回率"], ["10", "0.5"]]))
    k   召回率
    10  0.5
    """
    widths = [max(_width(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ("  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines)


def html_table(table: Sequence[Sequence[str]], *notes: str) -> str:
    """几行格子 → HTML 表格，文字都转义过；notes 的第一条放在表上面，其余放在下面。"""
    head, *body = [[html.escape(cell) for cell in row] for row in table]
    above, below = ("".join(f'<p style="margin:4px 0">{html.escape(n)}</p>' for n in part) for part in (notes[:1], notes[1:]))
    top = "".join(f'<th scope="col" style="{_CELL}">{cell}</th>' for cell in head)
    rows = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in body)
    table_html = f'<table style="border-collapse:collapse"><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div style="overflow-x:auto">{above}{table_html}{below}</div>'


def _chinese() -> dict[str, Any]:
    """画图用的中文字体；已经设好（course.setup()）或没有装字体时，不改。"""
    import matplotlib as mpl
    from matplotlib import font_manager

    try:
        path = str(font_path())
    except FileNotFoundError:
        return {}
    if FONT in mpl.rcParams["font.family"]:
        return {}
    if all(font.fname != path for font in font_manager.fontManager.ttflist):
        font_manager.fontManager.addfont(path)
    return {"font.family": [FONT, "DejaVu Sans"]}
