"""流水线各级之间只传四样东西：Document、Chunk、Hit、Answer。

它们都是冻结的 dataclass：造好以后不再改动，所以可以放心地传来传去、放进集合、写进缓存。
"""

from __future__ import annotations

import hashlib
import math
import operator
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


class RagLessonsError(ValueError):
    """本包主动报告的错误：一句话说清哪里不对、该怎么办。它也是 ValueError。"""


class RagLessonsWarning(UserWarning):
    """事情还能继续，但你应当知道。"""


def is_blank(text: str) -> bool:
    """没有任何看得见的字符：空串、空白、全角空格、零宽字符都算。

    >>> [is_blank(t) for t in ("", " \\n", "\\u3000", "\\u200b", "甲")]
    [True, True, True, True, False]
    """
    return all(c.isspace() or unicodedata.category(c) in ("Cf", "Cc") for c in text)


def check_whole(value: object, what: str, least: int) -> int:
    """整数参数：返回普通的 int（numpy 的整数也收）；别的类型、True/False、小于 least 的，抛出 RagLessonsError。

    >>> check_whole(3, "k", least=1)
    3
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise RagLessonsError(f"{what}要是整数，收到 {value!r}。")
    if number < least:
        raise RagLessonsError(f"{what}要至少是 {least}，收到 {number}。")
    return number


def check_number(value: object, what: str) -> float:
    """小数参数：返回普通的 float；不是数、True/False、NaN 时抛出 RagLessonsError。

    >>> check_number(1, "threshold")
    1.0
    """
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise RagLessonsError(f"{what} 要是一个数，收到 {value!r}。")
    return number


@dataclass(frozen=True)
class Document:
    """一份读进来的文件。

    参数
    ----
    source : 相对所加载文件夹的路径，用 ``/`` 分隔，Unicode NFC 形式。
    text : 全文。换行一律是 LF，开头没有 BOM；造对象时会自动整理成这样，
        因此 ``Chunk.start`` / ``Chunk.end`` 总能指回 ``text``。
    metadata : 其他信息，例如 ``{"page_starts": [...]}``。

    >>> Document("a\\\\b.md", "\\ufeff甲\\r\\n乙").text
    '甲\\n乙'
    """

    source: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not isinstance(self.text, str):
            raise RagLessonsError("Document 的 source 和 text 都要是字符串；读文件请用 load_document。")
        if not isinstance(self.metadata, dict):
            raise RagLessonsError("Document 的 metadata 要是字典；没有就不写。")
        source = unicodedata.normalize("NFC", self.source.replace("\\", "/"))
        text = self.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "text", text)


@dataclass(frozen=True)
class Chunk:
    """文档里的一段，逐字照抄：``document.text[start:end] == text``。

    参数
    ----
    text : 这一段的原文。
    source : 来自哪份文档（``Document.source``）。
    start, end : 在 ``Document.text`` 里的字符位置，左闭右开。
    line : 第一行的行号，从 1 数起。
    headings : 标题路径，例如 ``("员工手册", "第三章 考勤")``。
    metadata : 其他信息。``page`` 是页码；``embedding_text`` 可以替换送去算向量的文字；``table_header`` 是切开的表格的表头。
    """

    text: str
    source: str
    start: int
    end: int
    line: int = 1
    headings: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not isinstance(self.source, str):
            raise RagLessonsError("Chunk 的 text 和 source 都要是字符串。")
        if not isinstance(self.headings, list | tuple):
            raise RagLessonsError("Chunk 的 headings 要是几个标题的列表，例如 (\"第三章\", \"考勤\")；没有就不写。")
        object.__setattr__(self, "headings", tuple(self.headings))
        if not all(isinstance(heading, str) for heading in self.headings):
            raise RagLessonsError(f"Chunk 的 headings 里每个标题都要是字符串，收到 {self.headings!r}。")
        if not isinstance(self.metadata, dict) or not isinstance(self.metadata.get("embedding_text"), str | None):
            raise RagLessonsError("Chunk 的 metadata 要是字典，其中的 embedding_text 要是字符串；没有就不写。")
        for name in ("start", "end", "line"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                object.__setattr__(self, name, check_whole(getattr(self, name), f"Chunk 的 {name} ", least=0))

    @cached_property
    def id(self) -> str:
        """由来源、位置、原文算出的 16 位十六进制串；换进程、换系统都不变。

        >>> Chunk("甲", "a.md", 0, 1).id
        'de6182e4ec0519f6'
        """
        key = f"{self.source}\0{self.start}\0{self.end}\0{self.text}"
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def label(self) -> str:
        """给人看的出处：``safety.py:40``，有页码时是 ``手册.pdf 第3页``。"""
        page = self.metadata.get("page")
        return f"{self.source} 第{page}页" if page is not None else f"{self.source}:{self.line}"

    @property
    def embedding_text(self) -> str:
        """送去算向量的文字：标题路径加原文。标题路径只在这里出现，不混进 ``text``。"""
        custom = self.metadata.get("embedding_text")
        if custom is not None:
            return custom
        return " > ".join(self.headings) + "\n" + self.text if self.headings else self.text


@dataclass(frozen=True)
class Hit:
    """一条检索结果。

    参数
    ----
    chunk : 命中的块。
    score : 排序用的分数，越大越靠前。
    rank : 名次，从 1 数起。
    details : 各路原始分数，例如 ``{"dense": 0.83}``；判断要不要拒答时看它，不看融合后的分数。
    """

    chunk: Chunk
    score: float
    rank: int
    details: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.chunk, Chunk) or not isinstance(self.details, dict):
            raise RagLessonsError("Hit 的 chunk 要是 Chunk，details 要是字典；没有原始分数就不写 details。")
        if type(self.score) is not float or not math.isfinite(self.score):
            object.__setattr__(self, "score", check_number(self.score, "Hit 的 score"))
            if math.isinf(self.score):
                raise RagLessonsError("Hit 的 score 是无穷大，没法比较；请检查算分数的那一步。")
        if type(self.rank) is not int or self.rank < 0:
            object.__setattr__(self, "rank", check_whole(self.rank, "Hit 的 rank ", least=0))


def check_all(values: object, kind: type, message: str) -> list[Any]:
    """一列同一类型的东西，收成列表（也收生成器）；不是一列、没有次序、混进别的东西时抛出 RagLessonsError。

    message 里的 {} 换成收到的类型。
    """
    listed = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | set | frozenset)
    result = list(values) if listed else [values]
    wrong = [value for value in result if not isinstance(value, kind)]
    if wrong or not listed:
        raise RagLessonsError(message.format(type(wrong[0] if wrong else values).__name__))
    return result


def check_hits(hits: Iterable[Hit]) -> list[Hit]:
    """检索结果，收成列表；混进别的东西时抛出 RagLessonsError。"""
    return check_all(hits, Hit, "这里要检索结果（Hit 的列表），收到 {}；请传 index.search(...) 的返回值。")


@dataclass(frozen=True)
class Citation:
    """答案里的一个引用：第几号资料、引了哪句话（可以没有）、是哪一块。"""

    number: int
    quote: str
    chunk: Chunk

    def __post_init__(self) -> None:
        if not isinstance(self.quote, str) or not isinstance(self.chunk, Chunk):
            raise RagLessonsError("Citation 的 quote 要是字符串，chunk 要是 Chunk；没有引原句时 quote 写成空串。")


@dataclass(frozen=True)
class QuoteCheck:
    """一句引文的核对结果。

    参数
    ----
    citation : 核对的是哪个引用。
    verdict : ``"verbatim"`` 一字不差；``"loose"`` 只有空白、全半角、引号或排版记号不同；
        ``"number"`` 数字和原文不同；``"absent"`` 资料里没有这句；``"none"`` 没有引原句，无从核对。
    start, end : 在 ``Document.text`` 里的位置，左闭右开；没找到、或引到了补给表格的表头，是 None。
    line : 原文所在的行号，从 1 数起；没找到时是 None。
    found : 资料里的原文；没找到时是空串。
    """

    citation: Citation
    verdict: str
    start: int | None = None
    end: int | None = None
    line: int | None = None
    found: str = ""

    @property
    def ok(self) -> bool:
        """引文确实在资料里。这不等于答案是对的：引得对，也可能答非所问。"""
        return self.verdict in ("verbatim", "loose")

    @property
    def wrong(self) -> bool:
        """引了资料里没有的话。没有引原句的不算错，只是无从核对。"""
        return self.verdict in ("number", "absent")

    def __str__(self) -> str:
        where = self.citation.chunk.label + "（补上的表头）"
        if self.start is not None:
            where = f"{self.citation.chunk.source} 第 {self.line} 行，位置 {self.start}–{self.end}"
        quote = self.citation.quote
        return f"[{self.citation.number}] " + {
            "verbatim": f"一字不差：{where}",
            "loose": f"只有空白、全半角或排版记号不同：{where}",
            "number": f"数字对不上：引的是「{quote}」，{self.citation.chunk.label} 写的是「{self.found}」",
            "absent": f"引文不在资料里：「{quote}」，{self.citation.chunk.label} 没有这句话",
            "none": f"没有引原句：{self.citation.chunk.label}",
        }[self.verdict]


@dataclass(frozen=True)
class Answer:
    """一次问答的结果。

    参数
    ----
    text : 答案，含 ``[1]`` 这样的编号。
    citations : 答案里用到的资料。
    hits : 检索到的全部结果（包括没有被引用的）。
    missing : 资料里没有的信息点；拒答的理由、答案里指向不存在资料的编号也记在这里。
    refused : 是否因为资料不足而没有作答。
    checks : 每个引用的核对结果，与 citations 一一对应。

    放在 notebook 一格的最后一行，会显示成点得开的网页：点编号，看到那段资料，引文涂了底色。
    """

    text: str
    citations: tuple[Citation, ...] = ()
    hits: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    refused: bool = False
    checks: tuple[QuoteCheck, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise RagLessonsError(f"答案要是字符串，收到的是 {type(self.text).__name__}。")
        kinds = {"citations": Citation, "hits": Hit, "missing": str, "checks": QuoteCheck}
        for name, kind in kinds.items():
            listed = check_all(getattr(self, name), kind, f"Answer 的 {name} 要是 {kind.__name__} 的列表，收到 {{}}；没有就不写。")
            object.__setattr__(self, name, tuple(listed))

    def __str__(self) -> str:
        lines = [self.text]
        if self.citations:
            sources = dict.fromkeys((c.number, c.chunk.label) for c in self.citations)      # 一号资料引了几句，只列一次
            lines += ["", "来源："] + [f"  [{number}] {label}" for number, label in sources]
        problems = [*self.missing, *(str(check) for check in self.checks if check.wrong)]
        if problems:
            lines += ["", "注意："] + [f"  {problem}" for problem in problems]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from rag_lessons.tracing import answer_html

        return answer_html(self)
