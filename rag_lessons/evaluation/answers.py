"""答案的成绩单：答对没有，站不站得住，该拒的拒了没有，引得对不对。

四样都是用字符串和位置查的，不请模型当裁判，所以快、可复现，也只查得出看得见的错。
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from rag_lessons.evaluation.golden import Question, gold_spans, stitch
from rag_lessons.evaluation.intervals import bootstrap_interval
from rag_lessons.evaluation.metrics import overlaps
from rag_lessons.evaluation.report import check_documents, check_questions, fits, html_table, text_table
from rag_lessons.prompting import check_quotes, with_table_header
from rag_lessons.tracing import find_marks, locate
from rag_lessons.types import Answer, Chunk, Document, RagLessonsError, check_all, is_blank

Span = tuple[str, int, int]
WORDY = 8           # 标准答案的一节超过这么多字，就不指望逐字出现，只看里面的数和西文词
CHECKS = {
    "right": "答对（有答案的题）",
    "wrongly_refused": "误拒（有答案的题）",
    "cited": "引到金标（答了的题）",
    "grounded": "站得住（所有答了的）",
    "refused": "拒得对（没答案的题）",
}
# 数，连同千分号、小数和紧跟着的 %
FIGURE = re.compile(r"\d+(?:,\d{3}(?!\d))*(?:\.\d+)*%?")
KEYS = re.compile(rf"{FIGURE.pattern}|[a-z_][a-z_0-9]*")
QUOTED = re.compile(r"「([^「」]+)」|『([^『』]+)』|“([^“”]+)”")


def fold(text: str) -> str:
    """统一写法再比：全半角、大小写一样，空白只留在两个西文词之间，千分号去掉。

    >>> fold("上限 ４０ 步，Max Steps"), fold("1,000 元")
    ('上限40步、max steps', '1000元')
    """
    text = re.sub("(?<=[０-９])，(?=[０-９]{3}(?![０-９]))", ",", text)
    text = unicodedata.normalize("NFKC", text.replace("，", "、")).casefold()
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return re.sub(r"(?<![a-z0-9_]) | (?![a-z0-9_])", "", re.sub(r"\s+", " ", text))


def says(text: str, short: str) -> bool:
    """text 里有没有 short，作为完整的词：doc1 不算在 doc10 里，40 不算在 400、40.5、40% 里。

    >>> [says("见 doc10，上限 400 步", short) for short in ("doc1", "doc10", "40", "４００步")]
    [False, True, False, True]
    """
    text, short = fold(text), fold(short)
    before = r"(?<![a-z0-9_])" if re.match(r"[a-z0-9_]", short) else ""
    after = r"(?![a-z0-9_])" if re.search(r"[a-z0-9_]$", short) else ""
    if re.match(r"\d", short):
        before += r"(?<!\d[.,])"
    if re.search(r"\d$", short):
        after += r"(?![.,]\d|[%‰百千万亿])"
    return bool(short) and re.search(before + re.escape(short) + after, text) is not None


def is_right(text: str, short: str) -> bool | None:
    """答案里说到了标准答案没有；靠字符串判不了时是 None。

    标准答案按分号分成几节，每节都要说到。逐字出现的一节算对；否则看它里面的数和西文词：少一个算错，
    都在的，8 个字以上的一节算对，更短的判不了（说不准是不是同一个单位）；没有数和西文词的，短的算错，长的判不了。
    查不出意思相反的句子；抄得越多越容易算对，所以另看引用和字数。

    >>> is_right("最多 40 步 [1]", "40 步；由 SafetyValve 管"), is_right("40 步，归 SafetyValve 管", "40 步；由 SafetyValve 管")
    (False, True)
    >>> is_right("要开", "不可以，会议要开摄像头"), is_right("上限 40 层", "40 步"), is_right("上限 400 步", "40 步")
    (None, None, False)
    >>> is_right("2024 年 12 月 20 日起执行 [1]", "2024 年 12 月 1 日")
    False
    """
    plain = _without_marks(text)                    # 编号 [1] 里的 1 不是答案里的 1
    verdicts = [_part_is_right(plain, part) for part in re.split("[;；]", short) if not is_blank(part)]
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def _part_is_right(text: str, part: str) -> bool | None:
    if says(text, part):
        return True
    keys, wordy = KEYS.findall(fold(part)), len(fold(part)) > WORDY
    if not keys:
        return None if wordy else False
    if not all(says(text, key) for key in keys):
        return False
    return True if wordy else None


def ungrounded(answer: Answer, question: str = "") -> list[str]:
    """答案里站不住的东西：不在所引资料里的引文和数、指向不存在资料的编号；一处也没引，也算。都站得住是空列表。

    问题里出现过的数可以重复。标题路径、出处和表头模型也看得见，里面的数不算编造。

    >>> chunk = Chunk("每晚 450 元", "a.md", 0, 8)
    >>> from rag_lessons.types import Citation
    >>> ungrounded(Answer("每晚 450 元，旺季 600 元 [1]", (Citation(1, "", chunk),)))
    ['数 600']
    """
    marks = find_marks(answer.text)
    known = {citation.number for citation in answer.citations}
    loose = [f"编号 [{n}]" for mark in marks for n in mark.numbers if n not in known]
    if not answer.citations:
        return [*dict.fromkeys(loose), "没有引用"]
    loose += [f"引文「{check.citation.quote}」" for check in check_quotes(answer.citations) if check.wrong]
    plain = _without_marks(answer.text)
    seen = [_visible(citation.chunk) for citation in answer.citations]
    quotes = [next(filter(None, found)) for found in QUOTED.findall(plain)]
    loose += [f"引文「{q}」" for q in quotes if all(locate(q, text)[0] not in ("verbatim", "loose") for text in seen)]
    loose += [f"数 {n}" for n in FIGURE.findall(fold(plain)) if not any(n in FIGURE.findall(fold(text)) for text in (*seen, question))]
    return list(dict.fromkeys(loose))


def _without_marks(text: str) -> str:
    """去掉答案里的编号，各换成一个空格。"""
    plain, place = "", 0
    for mark in find_marks(text):
        plain, place = plain + text[place:mark.start] + " ", mark.end
    return plain + text[place:]


def _visible(chunk: Chunk) -> str:
    """模型看得见的：出处、标题路径、表头、原文。"""
    return "\n".join([chunk.label, " > ".join(chunk.headings), with_table_header(chunk)])


def cites_gold(answer: Answer, spans: Sequence[Span]) -> bool:
    """至少有一个引用的块碰到金标原句。"""
    return any(overlaps(citation.chunk, span) for citation in answer.citations for span in spans)


@dataclass(frozen=True)
class AnswerRow:
    """一道题的答案查得怎样。不适用的项是 None。

    属性
    ----
    right : 有答案的题，答对没有（拒答算没答对）；靠字符串判不了时是 None。
    refused : 拒答了没有。
    grounded : 答了的题，引文、数、编号都站得住；哪里站不住在 loose 里。
    cited : 答了的有答案的题，引用的块碰到金标没有；金标的位置找不到时是 None。
    """

    question: Question
    answer: Answer = field(repr=False)
    right: bool | None
    refused: bool
    grounded: bool | None
    cited: bool | None
    loose: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """这一题的毛病，一条一句；没有毛病是空列表。"""
        if self.refused:
            return ["误拒"] if self.question.gold else []
        found = [] if self.question.gold else ["资料里没有，却答了"]
        found += ["没答对"] if self.right is False else []
        found += ["引的不是金标所在"] if self.cited is False else []
        return found + [f"站不住：{item}" for item in self.loose]


@dataclass(frozen=True)
class AnswerReport:
    """一批答案的成绩单。``print`` 出来是表，notebook 里也是表。

    属性
    ----
    rows : 逐题的结果，按题号排好。
    counts : {检查的名字: (做到几题, 共几题)}；一题也不适用的检查不在里面。
    metrics, intervals : 同样的键，比例和 95% 自助区间。
    键：right 答对，wrongly_refused 误拒，cited 引到金标，grounded 站得住，refused 没答案的题拒了。
    undecided : 有答案的题里，靠字符串判不了对错的有几题；不算进 right。
    """

    rows: tuple[AnswerRow, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, check: str) -> list[bool]:
        """逐题的结果，不适用的题不在里面。"""
        if check not in CHECKS:
            raise RagLessonsError(f"没有叫 {check!r} 的检查；有的是：{'、'.join(CHECKS)}。")
        if check in ("refused", "wrongly_refused"):
            return [row.refused for row in self.rows if bool(row.question.gold) == (check == "wrongly_refused")]
        return [value for row in self.rows if (value := getattr(row, check)) is not None]

    @cached_property
    def counts(self) -> dict[str, tuple[int, int]]:
        found = {check: self.values(check) for check in CHECKS}
        return {check: (sum(values), len(values)) for check, values in found.items() if values}

    @cached_property
    def metrics(self) -> dict[str, float]:
        return {check: fmean(self.values(check)) for check in self.counts}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        return {check: bootstrap_interval(self.values(check)) for check in self.counts}

    @property
    def undecided(self) -> int:
        return sum(bool(row.question.gold) and row.right is None for row in self.rows)

    def of(self, **wanted: Any) -> AnswerReport:
        """只留一部分题，写法同 ``Report.of``。"""
        rows = tuple(row for row in self.rows if fits(row.question, wanted))
        if not rows:
            raise RagLessonsError(f"没有一题符合 {wanted}；请检查筛选条件。")
        return AnswerReport(rows)

    def failed(self) -> list[AnswerRow]:
        """有毛病的题；毛病在 ``row.problems`` 里。"""
        return [row for row in self.rows if row.problems]

    def _table(self) -> list[list[str]]:
        table = [["检查", "题数", "比例", "95% 区间"]]
        for check, (done, total) in self.counts.items():
            low, high = self.intervals[check]
            table.append([CHECKS[check], f"{done} / {total}", f"{self.metrics[check]:.2f}", f"[{low:.2f}, {high:.2f}]"])
        return table

    def _notes(self) -> list[str]:
        notes = [f"{len(self)} 题，{sum(bool(row.problems) for row in self.rows)} 题有毛病"]
        notes += [f"另有 {self.undecided} 题靠字符串判不了对错，不算进答对"] if self.undecided else []
        lost = sum(bool(row.question.gold) and not row.refused and row.cited is None for row in self.rows)
        return [*notes, f"另有 {lost} 题找不到金标的位置，不算进引到金标；请传 documents=全部文档"] if lost else notes

    def __str__(self) -> str:
        first, *rest = self._notes()
        return "\n".join([first, text_table(self._table()), *rest])

    def _repr_html_(self) -> str:
        return html_table(self._table(), *self._notes())


def evaluate_answers(
    answers: Sequence[Answer] | Mapping[str, Answer],
    questions: Iterable[Question],
    *,
    documents: Iterable[Document] | None = None,
    judge: Callable[[str, Question], bool | None] | None = None,
) -> AnswerReport:
    """给一批答案打分。

    参数
    ----
    answers : ``ask`` 的结果，与 questions 同序；或 {题号: Answer}。
    questions : 金标问题，有答案的和没答案的都要有，才看得出拒得对不对。
    documents : 全部文档，用来找金标原句的位置。不给时，从答案带着的检索结果里拼；
        拼不出的金标，若引用的块来自同一份文件，就判不了引得对不对（None）。
    judge : (答案文字, 题目) → 对不对，判不了给 None；默认用 ``is_right`` 比标准答案，可以换成模型当裁判。

    返回 AnswerReport。
    """
    asked = list(questions) if isinstance(questions, Iterable) and not isinstance(questions, str) else [questions]
    ordered = check_questions(asked)
    pairs = _by_id(answers, asked)
    if judge is not None and not callable(judge):
        raise RagLessonsError(f"judge 要是函数：(答案文字, 题目) → 对不对，收到 {judge!r}。")
    judge = judge if judge is not None else lambda text, q: is_right(text, q.answer)
    where = None if documents is None else check_documents(documents)
    stitched = [] if where is not None else _stitched(pairs.values())
    rows = []
    for q in ordered:
        answer = pairs[q.id]
        if answer.refused:
            rows.append(AnswerRow(q, answer, False if q.gold else None, True, None, None))
            continue
        loose = tuple(ungrounded(answer, q.question))
        right = _verdict(judge(answer.text, q), q) if q.gold else None
        cited = _cited(q, answer, where, stitched) if q.gold else None
        rows.append(AnswerRow(q, answer, right, False, not loose, cited, loose))
    return AnswerReport(tuple(rows))


def _by_id(answers: Sequence[Answer] | Mapping[str, Answer], asked: Sequence[Question]) -> dict[str, Answer]:
    if isinstance(answers, Mapping):
        missing = next((q.id for q in asked if q.id not in answers), None)
        if missing is not None:
            raise RagLessonsError(f"问题 {missing} 没有答案；请每题都问一遍，拒答的也放进来。")
        listed = [answers[q.id] for q in asked]
    else:
        listed = answers
    listed = check_all(listed, Answer, "答案要是 Answer 的列表，收到 {}；请用 ask(...) 的返回值，一题一个。")
    if len(listed) != len(asked):
        raise RagLessonsError(f"有 {len(asked)} 题，却有 {len(listed)} 个答案；要一题一个，次序相同。")
    return {q.id: answer for q, answer in zip(asked, listed, strict=True)}


def _verdict(value: object, question: Question) -> bool | None:
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    raise RagLessonsError(f"judge 给 {question.id} 的结论要是 True、False 或 None，收到 {value!r}；分数请先和一条线比。")


def _stitched(answers: Iterable[Answer]) -> list[Document]:
    """从答案带着的块拼回文档；块的位置对不上的那几份，就当没有。"""
    by_source: dict[str, dict[str, Chunk]] = {}
    for answer in answers:
        for part in (*answer.hits, *answer.citations):
            by_source.setdefault(part.chunk.source, {})[part.chunk.id] = part.chunk
    documents = []
    for chunks in by_source.values():
        with contextlib.suppress(RagLessonsError):
            documents += stitch(chunks.values())
    return documents


def _cited(question: Question, answer: Answer, where: list[Document] | None, stitched: list[Document]) -> bool | None:
    if where is not None:
        return cites_gold(answer, gold_spans(question, where))
    cited = [citation.chunk for citation in answer.citations]
    spans, unknown = [], False
    for gold in question.gold:
        near = [chunk for chunk in cited if chunk.source == gold.source]
        if any(gold.quote in chunk.text for chunk in near):
            return True
        try:
            spans += gold_spans(replace(question, gold=(gold,)), stitched)
        except RagLessonsError:
            unknown |= bool(near)
    return cites_gold(answer, spans) or (None if unknown else False)
