"""金标问题：问题、答案应当出自哪里、属于哪一类。"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_lessons.paths import data_path
from rag_lessons.types import Chunk, Document, RagLessonsError

GAP = "\uffff"       # 不是任何文字的码位


@dataclass(frozen=True)
class Gold:
    """答案所在：哪份文件里的哪一句（逐字）。"""

    source: str
    quote: str


@dataclass(frozen=True)
class Question:
    """一道金标问题。

    参数
    ----
    type : literal（字面）、paraphrase（换说法）、exact_number（准确数字）、table（表格）、
        multi_passage（要看几处）、contradiction（资料矛盾）、unanswerable（资料里没有）。
    split : tune（调参用）或 report（最后报一次用）。
    pair : 同一件事的字面问法和换说法的问法，编号相同。
    short : 答案是否在很短的文件里（不到 160 字的公告、通知）；按块长修正分数时，这些题要单独数。
    """

    id: str
    question: str
    type: str
    gold: tuple[Gold, ...] = ()
    answer: str = ""
    split: str = "report"
    pair: str = ""
    short: bool = False


def load_golden(name: str) -> list[Question]:
    """读 ``data/golden/{name}.jsonl``，例如 ``load_golden("agent")``。"""
    folder = data_path("golden")
    path = folder / f"{name}.jsonl"
    if path not in folder.glob("*.jsonl"):      # 只认列得出的：名字里有斜杠、太长、不是字符串，都在这里说清
        known = "、".join(sorted(p.stem for p in folder.glob("*.jsonl") if p.stem != "paraphrases"))
        raise FileNotFoundError(f"没有叫 {name!r} 的金标问题；现有的是：{known or '无'}。")
    return [_question(record) for record in read_jsonl(path)]


def read_jsonl(path: Path) -> list[dict]:
    """一行一个 JSON 对象的文件 → 列表；坏行报出行号。"""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):      # 不用 splitlines：JSON 里可以有 U+2028
        if line.strip():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise RagLessonsError(f"{path.name} 第 {number} 行不是合法的 JSON（{error.msg}）；请修好这一行。") from None
    return records


def _question(record: dict) -> Question:
    gold = tuple(Gold(g["source"], g["quote"]) for g in record.get("gold", ()))
    fields = {k: record[k] for k in ("id", "question", "type", "answer", "split", "pair", "short") if k in record}
    return Question(gold=gold, **fields)


def gold_spans(question: Question, documents: Sequence[Document]) -> list[tuple[str, int, int]]:
    """金标原句在文档里的位置 [(source, start, end), …]。原句找不到时抛出 RagLessonsError。"""
    texts = {document.source: document.text for document in documents}
    spans = []
    for gold in question.gold:
        start = _find(texts.get(gold.source, ""), gold.quote)
        if start < 0:
            raise RagLessonsError(f"问题 {question.id} 的金标原句不在 {gold.source} 里；文档改过的话，请更新金标。")
        spans.append((gold.source, start, start + len(gold.quote)))
    return spans


def _find(text: str, quote: str) -> int:
    """quote 在 text 里的位置，没有是 -1；text 里的 GAP 当作任意一个空白。"""
    if GAP not in text:
        return text.find(quote)
    pattern = "".join(f"[{GAP}{re.escape(c)}]" if c.isspace() else re.escape(c) for c in quote)
    match = re.search(pattern, text)
    return match.start() if match else -1


def stitch(chunks: Iterable[Chunk]) -> list[Document]:
    """把块按位置拼回文档，只为找金标原句的位置；块没盖住的字（切块时去掉的空白）用 GAP 占着。

    >>> [d.text.replace(GAP, "?") for d in stitch([Chunk("丙", "a.md", 3, 4), Chunk("甲乙", "a.md", 0, 2)])]
    ['甲乙?丙']
    """
    texts: dict[str, list[str]] = {}
    for chunk in sorted(chunks, key=lambda c: (c.source, c.start, c.end)):
        text = texts.setdefault(chunk.source, [])
        text += GAP * (chunk.start - len(text))
        known = len(text) - chunk.start
        if chunk.end - chunk.start != len(chunk.text) or "".join(text[chunk.start:chunk.end]) != chunk.text[:known]:
            raise RagLessonsError(f"{chunk.label} 这一块的位置与文字对不上，拼不回原文；请重新切块，或传 documents=全部文档。")
        text += chunk.text[known:]
    return [Document(source, "".join(text)) for source, text in texts.items()]
