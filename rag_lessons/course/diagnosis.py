"""成绩单（report card）：十来道题，说出先改什么、为什么。

不靠经验猜：每一种改法都真的改一遍、把全部的题再问一遍，数救回几题、弄坏几题。
改法从便宜到贵：多取几块、换融合的份量、去掉副本、重排、换切法、补上没读到的文字、定一条拒答的线。

一道题算「成」：有答案的题，前 k 块合起来盖住了每一处金标的整句，也没有被拒答；没有答案的题，拒答了。
"""

from __future__ import annotations

import copy
import html
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from rag_lessons.chunking import chunk_recursive
from rag_lessons.course.labelling import TYPES, pairs_of
from rag_lessons.evaluation import Question, calibrate_refusal, gold_spans, paired_interval
from rag_lessons.evaluation.golden import GAP, stitch
from rag_lessons.evaluation.report import check_documents, check_questions, chunks_of, html_table, text_table
from rag_lessons.index import VectorIndex, check_k
from rag_lessons.keyword import BM25Index
from rag_lessons.retrieval import HybridSearch, MaxSimReranker, Refuse, RerankSearch
from rag_lessons.retrieval.base import Searcher, check_searcher, renumbered
from rag_lessons.types import Chunk, Document, Hit, RagLessonsError

Span = tuple[str, int, int]
Chunker = Callable[[Document], Sequence[Chunk]]

DEPTH = 20              # 往下看多少名：排得低的，到这里为止还算「在候选里」
RERANKED = 3            # 重排的候选是 k 的几倍：重排贵，多一块候选就多算一块
LUCK = 0.05             # 碰巧的机会不到这么多，才说「先改」
Z = 1.96                # 95% 区间
COPY = 0.7              # 两块的字对重合到这么多，就当作副本
MARGIN = 1.1            # 换切法时，读的字不许比原来多出一成


# ---------------------------------------------------------------- 区间和运气


def proportion_interval(done: int, total: int) -> tuple[float, float]:
    """total 题成了 done 题，真的比例大概在哪里：威尔逊（Wilson）95% 区间。

    自助法在全对、全错时缩成一点（第 08 课）；题少的时候，这种事常有，所以这里换它。
    Wilson, Probable Inference, JASA 1927。

    >>> [tuple(round(x, 2) for x in proportion_interval(done, 10)) for done in (6, 10)]
    [(0.31, 0.83), (0.72, 1.0)]
    """
    share, square = done / total, Z * Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = Z / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def luck(mended: int, broken: int, tries: int = 1) -> float:
    """改法其实没有用，也能碰巧这么好的机会：动了的题当作抛硬币，救回的是正面；试过几样，就有几次碰巧的机会。

    >>> round(luck(5, 0), 3), round(luck(5, 0, tries=6), 3), luck(0, 0)
    (0.031, 0.173, 1.0)
    """
    moved = mended + broken
    once = sum(math.comb(moved, heads) for heads in range(mended, moved + 1)) / 2**moved
    return 1 - (1 - once) ** tries


# ---------------------------------------------------------------- 一批题问一遍


class Replay:
    """把问过的结果再交一遍，不重新检索。"""

    def __init__(self, answers: Mapping[str, Sequence[Hit]]) -> None:
        self.answers = answers

    def search(self, query: str, k: int = 3) -> list[Hit]:
        return list(self.answers[query][:k])


def enough(hits: Sequence[Hit], spans: Sequence[Span], texts: Mapping[str, str]) -> int | None:
    """要读到第几块，才把每一处金标的整句都盖住；读完也盖不住是 None。空白不算。

    >>> hits = [Hit(Chunk("每晚", "a.md", 0, 2), 0.9, 1), Hit(Chunk("三百元", "a.md", 2, 5), 0.8, 2)]
    >>> enough(hits, [("a.md", 0, 5)], {"a.md": "每晚三百元"}), enough(hits[:1], [("a.md", 0, 5)], {"a.md": "每晚三百元"})
    (2, None)
    """
    left = {(source, i) for source, start, end in spans for i in range(start, end)
            if not texts[source][i].isspace() and texts[source][i] != GAP}
    for rank, hit in enumerate(hits, 1):
        chunk = hit.chunk
        left = {(source, i) for source, i in left if source != chunk.source or not chunk.start <= i < chunk.end}
        if not left:
            return rank
    return None


class Copies:
    """检索器外面套一层：前面已有几乎一样的一块，就不要这一块，往后补。"""

    def __init__(self, searcher: Searcher, candidates: int = DEPTH) -> None:
        self.searcher, self.candidates = searcher, candidates

    @property
    def chunks(self) -> list[Chunk]:
        return chunks_of(self.searcher)

    def search(self, query: str, k: int = 3) -> list[Hit]:
        kept: list[Hit] = []
        for hit in renumbered(self.searcher.search(query, max(2 * k, self.candidates))):
            if all(likeness(hit.chunk.text, other.chunk.text) < COPY for other in kept):
                kept.append(hit)
        return renumbered(kept)[:k]


def likeness(a: str, b: str) -> float:
    """两段共有的字对，占两段全部字对的几成。

    >>> likeness("预约提前两天", "预约提前三天"), likeness("预约", "食堂")
    (0.42857142857142855, 0.0)
    """
    a, b = pairs_of(a), pairs_of(b)
    return len(a & b) / len(a | b) if a | b else 1.0


# ---------------------------------------------------------------- 一种改法


@dataclass(frozen=True)
class Trial:
    """一种改法，真的试过了。

    属性
    ----
    name : 改什么。
    why : 这一步坏在哪里，先看到了什么。
    mended, broken : 救回的题号，弄坏的题号。
    chars : 改了以后，每问平均读几个字；before 是原来的。
    fact : 不靠统计的事实：原句不在读进来的文字里，改什么检索都没有用。
    searcher, k, refuse : 改好的检索器、块数、拒答规则，可以直接拿去用。
    interval : 成了的比例升降的 95% 区间（同一批题逐题相减，自助法）。
    luck : 试了这么多样，改法其实没有用、也碰巧这么好的机会。
    """

    name: str
    why: str
    mended: tuple[str, ...]
    broken: tuple[str, ...]
    chars: float
    before: float
    fact: bool = False
    interval: tuple[float, float] = (0.0, 0.0)
    luck: float = 1.0
    searcher: Any = field(default=None, repr=False, compare=False)
    k: int = 5
    refuse: Refuse | None = field(default=None, repr=False, compare=False)

    @property
    def net(self) -> int:
        """救回的减去弄坏的。"""
        return len(self.mended) - len(self.broken)

    @property
    def certain(self) -> bool:
        """净救回，而且不像是碰巧。"""
        return self.net > 0 and (self.fact or self.luck <= LUCK)


@dataclass(frozen=True)
class Line:
    """一道题：读到第几块才够，成了没有，丢在哪一步。"""

    question: Question
    rank: int | None
    dense: int | None
    keyword: int | None
    done: bool
    lost: str


@dataclass(frozen=True, repr=False)
class ReportCard:
    """一份成绩单。``print`` 出来是文字，notebook 里是表。

    属性
    ----
    lines : 逐题，按题号排好。
    trials : 试过的改法，救回最多的在前；一样多时，便宜的在前。
    skipped : 没有试的改法，和为什么。
    first : 先改哪一样；没有一样净救回时是 None。
    certain : first 是不是看得准：原句根本没读进来，或者碰巧的机会不到 5%。
    """

    lines: tuple[Line, ...]
    trials: tuple[Trial, ...]
    skipped: tuple[str, ...]
    k: int
    searcher: Any = field(repr=False, compare=False)

    @property
    def first(self) -> Trial | None:
        return next((trial for trial in self.trials if trial.net > 0), None)

    @property
    def certain(self) -> bool:
        return self.first is not None and self.first.certain

    @property
    def done(self) -> int:
        return sum(line.done for line in self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    # ------------------------------------------------------------ 说出来

    @property
    def verdict(self) -> str:
        """一两句话：先改什么，凭什么。"""
        if self.first is None:
            left = len(self) - self.done
            if not left:
                return "没有要先改的：这些题全成了。题少，别就此放心。"
            return f"没有一样是确定的：还有 {left} 题没成，试过的改法没有一样救回的比弄坏的多。先看看下面是哪几题。"
        one = self.first
        how = f"{one.why}改了救回 {len(one.mended)} 题，弄坏 {len(one.broken)} 题"
        if one.fact:
            return f"先改「{one.name}」：{how}。这不用统计：没读进来的字，怎么检索也找不到。"
        if one.certain:
            return f"先改「{one.name}」：{how}；改法没有用、也碰巧这么好的机会只有 {one.luck:.1%}。"
        return (f"没有一样是确定的。最值得先试的是「{one.name}」：{how}；"
                f"可是试了 {len(self.trials)} 样，改法全没有用、也碰巧有一样这么好的机会有 {one.luck:.0%}。")

    def _scores(self) -> list[str]:
        found = []
        for name, has in (("有答案的题，找全了", True), ("没有答案的题，拒答了", False)):
            some = [line.done for line in self.lines if bool(line.question.gold) == has]
            if some:
                low, high = proportion_interval(sum(some), len(some))
                found.append(f"{name}：{sum(some)} / {len(some)}，真的比例大概在 {low:.0%} 到 {high:.0%} 之间（95% 区间）")
            else:
                found.append(f"{name}：一题也没有出，这一项不知道")
        kinds: dict[str, list[bool]] = {}
        for line in self.lines:
            kinds.setdefault(TYPES.get(line.question.type, line.question.type), []).append(line.done)
        found.append("按题型：" + "，".join(f"{kind} {sum(some)} / {len(some)}" for kind, some in sorted(kinds.items())))
        low, high = proportion_interval(self.done, len(self))
        apart = f"{len(self)} 题的区间宽 {100 * (high - low):.0f} 个百分点"
        return [*found, f"{apart}：看得出大毛病，分不出小差别。"]

    def _questions(self) -> list[list[str]]:
        table = [["题号", "题型", "第几块找全", "只用向量", "只用关键词", "结果", "问题"]]
        for line in self.lines:
            ranks = [_rank(rank, self.k) if line.question.gold else "" for rank in (line.rank, line.dense, line.keyword)]
            table.append([line.question.id, TYPES.get(line.question.type, line.question.type), *ranks,
                          line.lost or "成了", line.question.question])
        return table

    def _trials(self) -> list[list[str]]:
        table = [["改法", "救回", "弄坏", "比例的变化（95% 区间）", "碰巧的机会", "每问读几个字"]]
        for trial in self.trials:
            low, high = trial.interval
            table.append([trial.name, *(_names(ids) for ids in (trial.mended, trial.broken)),
                          f"{trial.net / len(self) + 0.0:+.2f} [{low + 0.0:+.2f}, {high + 0.0:+.2f}]",
                          "不靠统计" if trial.fact else f"{trial.luck:.0%}",
                          f"{trial.before:,.0f} → {trial.chars:,.0f}"])
        return table

    def __str__(self) -> str:
        parts = [self.verdict, *self._scores(), "", text_table(self._questions())]
        if self.trials:
            parts += ["", "试过的改法（真的改了、全部重问）", text_table(self._trials())]
        return "\n".join([*parts, *(f"没有试：{reason}" for reason in self.skipped)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        verdict = f'<p style="margin:6px 0;font-size:1.1em"><b>{html.escape(self.verdict)}</b></p>'
        scores = "".join(f'<p style="margin:4px 0">{html.escape(one)}</p>' for one in self._scores())
        trials = html_table(self._trials(), "试过的改法（真的改了、全部重问）") if self.trials else ""
        notes = "".join(f'<p style="margin:4px 0">没有试：{html.escape(one)}</p>' for one in self.skipped)
        return f"<div>{verdict}{scores}{html_table(self._questions())}{trials}{notes}</div>"


def depth(k: int) -> int:
    """交给模型 k 块时，往下看多少名。"""
    return max(DEPTH, RERANKED * k)


def _rank(rank: int | None, k: int) -> str:
    return f"第 {rank}" if rank is not None else f"前 {depth(k)} 没有"


def _names(ids: Sequence[str]) -> str:
    return f"{len(ids)} 题（{'、'.join(ids)}）" if ids else "0"


# ---------------------------------------------------------------- 做一份成绩单


def report_card(
    searcher: Any,
    questions: Iterable[Question],
    k: int = 5,
    *,
    documents: Iterable[Document] | None = None,
    refuse: Refuse | None = None,
    chunkers: Mapping[str, Chunker] | None = None,
    reranker: Any = None,
) -> ReportCard:
    """十来道题，一份成绩单：先改什么，为什么。

    参数
    ----
    searcher : 检索器，或 ``open_folder`` 返回的 FolderIndex（有 ``.searcher`` 和 ``.documents``）。
    questions : 自己出的题，有答案的带金标原句，没有答案的 ``gold=()``。
    k : 交给模型几块，默认 5。
    documents : 读进来的全部文档；不给时由检索器里的块拼回去，读文件时丢的字就查不出来。
    refuse : 现在用的拒答规则；没有就是 None。
    chunkers : 想试的切法，{名字: 文档 → 块}。不给时，只在有原句被切断时，试一种重叠够长的。
    reranker : 想试的重排器；不给时，嵌入器有片段向量（e5）就试 MaxSimReranker。

    返回 ReportCard。同样的输入，总得到同样的成绩单。
    """
    if chunkers is not None and not (isinstance(chunkers, Mapping) and all(map(callable, chunkers.values()))):
        raise RagLessonsError('chunkers 要是字典，例如 {"按标题切": chunk_by_heading}。')
    return _examiner(searcher, questions, k, documents, refuse).card(chunkers, reranker)


def solved(
    searcher: Any,
    questions: Iterable[Question],
    k: int = 5,
    *,
    documents: Iterable[Document] | None = None,
    refuse: Refuse | None = None,
) -> dict[str, bool]:
    """{题号: 成了没有}，「成」的意思和参数都同 ``report_card``；只考一次，不试改法。"""
    return _examiner(searcher, questions, k, documents, refuse).base.done


def _examiner(searcher: Any, questions: Iterable[Question], k: int, documents: Iterable[Document] | None,
              refuse: Refuse | None) -> _Examiner:
    """查清递进来的东西；FolderIndex 拆成检索器和文档。"""
    inner = getattr(searcher, "searcher", None)
    if callable(getattr(inner, "search", None)) and hasattr(searcher, "documents"):
        documents = searcher.documents if documents is None else documents
        searcher = inner
    check_searcher(searcher)
    if refuse is not None and not callable(refuse):
        raise RagLessonsError(f"refuse 要是函数，收到 {refuse!r}；按分数拒答写成 below(0.8)。")
    chunks = chunks_of(searcher)
    if not chunks:
        raise RagLessonsError("检索器里一块也没有；文件夹是空的，或者一份文件也没读进来。")
    documents = stitch(chunks) if documents is None else check_documents(documents)
    return _Examiner(searcher, check_questions(questions), check_k(k), documents, chunks, refuse)


@dataclass
class _Answers:
    """一种设置下，全部的题各问了一遍。"""

    hits: dict[str, list[Hit]]
    ranks: dict[str, int | None]
    done: dict[str, bool]
    chars: float


class _Examiner:
    """出成绩单的人：手里有原来的设置，一样一样地试。"""

    def __init__(self, searcher: Any, questions: list[Question], k: int, documents: list[Document],
                 chunks: list[Chunk], refuse: Refuse | None) -> None:
        self.searcher, self.questions, self.k, self.documents = searcher, questions, k, documents
        self.chunks, self.refuse = chunks, refuse
        self.depth = depth(k)
        self.texts = {document.source: document.text for document in documents}
        self.spans: dict[str, list[Span]] = {}
        self.unread: list[Question] = []
        for question in questions:
            try:
                self.spans[question.id] = gold_spans(question, documents)
            except RagLessonsError:
                self.unread.append(question)
        self.dense = next(_inside(searcher, VectorIndex), None)
        self.keyword = next(_inside(searcher, BM25Index), None) or BM25Index.build(chunks)
        self.base = self.ask(searcher, k, refuse)
        self.skipped: list[str] = []

    # ------------------------------------------------------------ 问

    def ask(self, searcher: Any, k: int, refuse: Refuse | None, spans: Mapping[str, Sequence[Span]] | None = None,
            texts: Mapping[str, str] | None = None) -> _Answers:
        """每题问一遍。拒答一律看原来的检索器的结果：规则是按它的分数定的。"""
        spans, texts = spans or self.spans, texts or self.texts
        hits, ranks, done = {}, {}, {}
        for question in self.questions:
            name = question.id
            hits[name] = renumbered(searcher.search(question.question, self.depth))[:self.depth]
            first = self.base.hits[name] if hasattr(self, "base") else hits[name]
            refused = not first or (refuse is not None and refuse(first[:self.k]) is not None)
            ranks[name] = enough(hits[name], spans[name], texts) if question.gold and name in spans else None
            done[name] = ranks[name] is not None and ranks[name] <= k and not refused if question.gold else refused
        chars = fmean(sum(len(hit.chunk.text) for hit in some[:k]) for some in hits.values())
        return _Answers(hits, ranks, done, chars)

    def trial(self, name: str, why: str, searcher: Any, k: int | None = None, refuse: Refuse | None = None,
              answers: _Answers | None = None, fact: bool = False) -> Trial:
        k, refuse = k or self.k, refuse or (self.refuse if answers is None else None)
        answers = answers or self.ask(searcher, k, refuse)
        moved = {q.id: answers.done[q.id] - self.base.done[q.id] for q in self.questions}
        return Trial(
            name, why, tuple(i for i, gap in moved.items() if gap > 0), tuple(i for i, gap in moved.items() if gap < 0),
            answers.chars, self.base.chars, fact,
            paired_interval([self.base.done[i] for i in moved], [answers.done[i] for i in moved]),
            searcher=searcher, k=k, refuse=refuse,
        )  # fmt: skip

    # ------------------------------------------------------------ 看

    def card(self, chunkers: Mapping[str, Chunker] | None, reranker: Any) -> ReportCard:
        alone = {name: self.ask(one, self.k, self.refuse).ranks if one is not None else {}
                 for name, one in (("dense", self.dense), ("keyword", self.keyword))}
        lines = [Line(q, self.base.ranks[q.id], alone["dense"].get(q.id), alone["keyword"].get(q.id), self.base.done[q.id],
                      "" if self.base.done[q.id] else self.lost(q)) for q in self.questions]
        trials = [*self.loading(), *self.refusal(), *self.wider(), *self.weights(alone), *self.copies(),
                  *self.reranking(reranker), *self.chunking(chunkers)]
        trials = [replace(t, luck=luck(len(t.mended), len(t.broken), len(trials))) for t in trials]
        trials.sort(key=lambda t: (-t.net, not t.fact))            # 排序稳定：一样多时，先试的（便宜的）在前
        return ReportCard(tuple(lines), tuple(trials), tuple(self.skipped), self.k, self.searcher)

    def lost(self, question: Question) -> str:
        """没成的题，丢在哪一步。"""
        if not question.gold:
            return "资料里没有，却没有拒答"
        if question in self.unread:
            return "原句不在读进来的文字里"
        rank = self.base.ranks[question.id]
        if rank is not None and rank <= self.k:
            return "找全了，却拒答了"
        if self.cut(question):
            return "原句被切断，没有一块是完整的"
        return f"排在第 {rank}，没进前 {self.k}" if rank is not None else f"前 {self.depth} 块里没有"

    def cut(self, question: Question) -> bool:
        """有一处金标，没有哪一块装得下它的整句。"""
        return any(enough([Hit(chunk, 0, 1)], [span], self.texts) is None
                   for span in self.spans[question.id] for chunk in [self._holder(span)])

    def _holder(self, span: Span) -> Chunk:
        """碰到这一处最多的那一块。"""
        source, start, end = span
        return max(self.chunks, key=lambda c: (min(c.end, end) - max(c.start, start)) if c.source == source else -math.inf)

    def missed(self, most: int | None = None) -> list[Question]:
        """有答案、没找全的题；most 是只要名次在它以内的。"""
        ranks = {q: self.base.ranks[q.id] or math.inf for q in self.questions if q.gold and q.id in self.spans}
        return [q for q, rank in ranks.items() if self.k < rank and (most is None or rank <= most)]

    # ------------------------------------------------------------ 试

    def loading(self) -> Iterator[Trial]:
        """原句不在读进来的文字里：把它补回去，看能不能找到。"""
        if not self.unread:
            return
        extra, spans, texts = [], dict(self.spans), dict(self.texts)
        for question in self.unread:
            spans[question.id] = []
            for gold in question.gold:
                text = texts.get(gold.source, "")
                start = text.find(gold.quote)
                if start < 0:
                    start = len(text) + 1
                    texts[gold.source] = f"{text}\n{gold.quote}"
                    extra.append(Chunk(gold.quote, gold.source, start, start + len(gold.quote)))
                spans[question.id].append((gold.source, start, start + len(gold.quote)))
        files = "、".join(sorted({g.source for q in self.unread for g in q.gold}))
        why = f"有 {len(self.unread)} 题的原句不在读进来的文字里（{files}），文件没读进来、读坏了，或者后来改过。"
        searcher = self.rebuilt([*self.chunks, *extra])
        if searcher is None:
            self.skipped.append(f"补上没读到的文字：{why}这种检索器不会重建，没法试；先把文件读好。")
            return
        yield self.trial("把文件读对", why, searcher, refuse=self.refuse, answers=self.ask(searcher, self.k, self.refuse, spans, texts), fact=True)

    def refusal(self) -> Iterator[Trial]:
        """拒答拒错了：撤掉线；或换一条，线用别的题来定，再拿来判这一题。"""
        without = [q for q in self.questions if not q.gold]
        loose = [q for q in without if not self.base.done[q.id]]
        strict = [q for q in self.questions if q.gold and not self.base.done[q.id] and (self.base.ranks[q.id] or math.inf) <= self.k]
        why = "，".join(filter(None, [loose and f"{len(without)} 道没有答案的题，{len(loose)} 道没有拒答",
                                     strict and f"有 {len(strict)} 题明明找全了，却拒答了"])) + "。"
        if strict:
            yield self.trial("撤掉拒答的线", why, self.searcher, answers=self.ask(self.searcher, self.k, None))
        if not without:
            self.skipped.append("拒答：没有答案的题一题也没有出，不知道该拒的拒不拒得住。")
        if not loose and not strict:
            return
        if len(without) < 2 or len(without) > len(self.questions) - 2:
            self.skipped.append("拒答的线：要有答案的、没有答案的题各两道以上，才能用别的题定线、再判这一题。")
            return
        replay = Replay({q.question: self.base.hits[q.id] for q in self.questions})
        kind = "dense" if all("dense" in hit.details for some in self.base.hits.values() for hit in some[:self.k]) else "bm25"
        tune = [replace(q, split="tune") for q in self.questions]
        done = dict(self.base.done)
        try:
            for question in self.questions:
                others = [q for q in tune if q.id != question.id]
                rule = calibrate_refusal(replay, others, of=kind, k=self.k).refuse
                refused = rule(self.base.hits[question.id][:self.k]) is not None
                rank = self.base.ranks[question.id]
                done[question.id] = refused if not question.gold else rank is not None and rank <= self.k and not refused
            rule = calibrate_refusal(replay, tune, of=kind, k=self.k)
        except RagLessonsError as error:
            self.skipped.append(f"拒答的线：{error}")
            return
        answers = _Answers(self.base.hits, self.base.ranks, done, self.base.chars)
        yield self.trial(f"拒答的线（{kind} 低于 {rule.threshold:g}）", why, self.searcher, refuse=rule.refuse, answers=answers)

    def wider(self) -> Iterator[Trial]:
        """多取一倍的块。"""
        near = self.missed(2 * self.k)
        if near:
            why = f"有 {len(near)} 题要的排在第 {self.k + 1} 到第 {2 * self.k}。"
            yield self.trial(f"k 从 {self.k} 加到 {2 * self.k}", why, self.searcher, 2 * self.k)

    def weights(self, alone: Mapping[str, Mapping[str, int | None]]) -> Iterator[Trial]:
        """只用向量、只用关键词、两路合起来。"""
        failed = self.missed()
        if not failed:
            return

        def rescued(name: str) -> int:
            return sum((alone[name].get(q.id) or math.inf) <= self.k for q in failed)

        if self.dense is None:
            self.skipped.append("向量：检索器里没有 VectorIndex，没有另配嵌入器来试。")
            return
        mixed = isinstance(self.searcher, HybridSearch)
        if not isinstance(self.searcher, VectorIndex):
            why = f"没找全的 {len(failed)} 题，只用向量找得到 {rescued('dense')} 题。"
            yield self.trial("只用向量", why, self.dense)
        if not isinstance(self.searcher, BM25Index):
            why = f"没找全的 {len(failed)} 题，只用关键词找得到 {rescued('keyword')} 题。"
            yield self.trial("只用关键词", why, self.keyword)
        if not mixed:
            why = f"没找全的 {len(failed)} 题，只用关键词找得到 {rescued('keyword')} 题，只用向量找得到 {rescued('dense')} 题。"
            yield self.trial("向量加关键词", why, HybridSearch(self.dense, self.keyword))

    def copies(self) -> Iterator[Trial]:
        """前几名里有几乎一样的几块：只留一块。"""
        def crowded(question: Question) -> bool:
            texts = [hit.chunk.text for hit in self.base.hits[question.id][:self.k]]
            return any(likeness(a, b) >= COPY for i, a in enumerate(texts) for b in texts[:i])

        full = [q for q in self.missed() if crowded(q)]
        if full:
            why = f"没找全的题里，有 {len(full)} 题的前 {self.k} 块有几乎一样的。"
            yield self.trial("去掉副本", why, Copies(self.searcher, self.depth))

    def reranking(self, reranker: Any) -> Iterator[Trial]:
        """在候选里，只是排得低：重排。"""
        candidates = RERANKED * self.k
        low = self.missed(candidates)
        if not low:
            return
        if reranker is None:
            embedder = getattr(self.dense, "embedder", None)
            inner = getattr(embedder, "embedder", embedder)
            if not callable(getattr(inner, "token_vectors", None)):
                self.skipped.append("重排：嵌入器没有片段向量（要 e5），也没有给 reranker。")
                return
            reranker = MaxSimReranker(embedder)
        why = f"有 {len(low)} 题要的已在前 {candidates} 块里，只是排得低。"
        yield self.trial("重排", why, RerankSearch(self.searcher, reranker, candidates))

    def chunking(self, chunkers: Mapping[str, Chunker] | None) -> Iterator[Trial]:
        """换切法。读的字不许比原来多出一成：块大了，就少取几块。"""
        cut = [q for q in self.missed() if self.cut(q)]
        why = f"有 {len(cut)} 题的原句被切断，没有一块是完整的。" if cut else "原句都没有被切断；换切法试的是标题和上下文。"
        tried = dict(chunkers or {})
        if cut and not tried:
            size = max(len(chunk.text) for chunk in self.chunks)
            overlap = max(end - start for q in cut for _, start, end in self.spans[q.id])
            size = max(size, 2 * overlap + 2)
            tried = {f"切成 {size} 字，重叠 {overlap} 字": lambda d: chunk_recursive(d, size=size, overlap=overlap)}
        for name, chunker in tried.items():
            searcher = self.rebuilt([chunk for document in self.documents for chunk in chunker(document)])
            if searcher is None:
                self.skipped.append(f"{name}：这种检索器不会重建，请自己换了切法再出一份成绩单。")
                continue
            k = self.affordable(searcher)
            yield self.trial(name if k == self.k else f"{name}，取 {k} 块", why, searcher, k)

    def affordable(self, searcher: Any) -> int:
        """这种切法，取几块读的字和原来差不多。"""
        hits = [searcher.search(q.question, 4 * self.k) for q in self.questions]
        costs = [fmean(sum(len(hit.chunk.text) for hit in some[:k]) for some in hits) for k in range(1, 4 * self.k + 1)]
        return max([k for k, cost in enumerate(costs, 1) if cost <= MARGIN * self.base.chars], default=1)

    def rebuilt(self, chunks: Sequence[Chunk]) -> Any:
        """同一种检索器，换一批块；不会重建的是 None。"""
        def again(one: Any) -> Any:
            if isinstance(one, VectorIndex):
                return VectorIndex.build(chunks, one.embedder)
            if isinstance(one, BM25Index):
                return BM25Index.build(chunks)
            if type(one) is HybridSearch:
                new = copy.copy(one)
                new.dense, new.keyword = again(one.dense), again(one.keyword)
                return new if new.dense is not None and new.keyword is not None else None
            return None

        return again(self.searcher)


def _inside(searcher: Any, kind: type) -> Iterator[Any]:
    """检索器里面的某一种；一层层找下去。"""
    if isinstance(searcher, kind):
        yield searcher
    for part in getattr(searcher, "__dict__", {}).values():
        if callable(getattr(part, "search", None)) and not isinstance(part, type):
            yield from _inside(part, kind)
