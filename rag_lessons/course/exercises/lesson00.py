"""第 00 课的练习。"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from rag_lessons.course.checks import Case, Exercise, Wrong, case
from rag_lessons.embedding.toy import bigrams
from rag_lessons.types import Answer, Chunk, Citation, Hit, is_blank

if TYPE_CHECKING:
    from rag_lessons.index import VectorIndex

GOLD = "安全阀只在这个文件定义一次"
LIMIT = 10                              # 排进前 10 名算找得到
NEAR = 30                               # 10 到 30 名：说的是这件事，只是没认出来


@cache
def _indexes() -> tuple[VectorIndex, VectorIndex]:
    """（玩具的索引，真嵌入的索引）。真嵌入的向量在缓存里，不必重算。"""
    from rag_lessons import ToyEmbedder, VectorIndex, chunk_by_lines, load_folder
    from rag_lessons.course import data_path, embedder

    chunks = [chunk for document in load_folder(data_path("agent")) for chunk in chunk_by_lines(document)]
    return VectorIndex.build(chunks, ToyEmbedder()), VectorIndex.build(chunks, embedder())


def ranks(question: str) -> tuple[int, int]:
    """正确的块在（玩具，真嵌入）里各排第几。"""
    toy, real = (
        next(hit.rank for hit in index.search(question, k=len(index)) if GOLD in hit.chunk.text)
        for index in _indexes()
    )
    return toy, real


def common_pairs(question: str) -> list[str]:
    """问题和正确的块共有的字对。"""
    right = next(chunk for chunk in _indexes()[0].chunks if GOLD in chunk.text)
    return sorted(set(bigrams(question)) & set(bigrams(right.text)))


def judge_question(question: object) -> str:
    """空串表示可以；否则说出哪里不合要求。"""
    if not isinstance(question, str):
        return "这里要一个字符串，例如 my_question = \"……\"。"
    if is_blank(question):
        return "问题是空白；写一句话试试。"
    if question.strip(" ？?。") == "失控保护怎么触发":
        return "这一句课文里用过了；换一个你自己的说法。"
    toy, real = ranks(question)
    seen = f"玩具排第 {toy} 名，真嵌入排第 {real} 名。"
    if toy <= LIMIT:
        common = common_pairs(question)
        if not common:
            return seen + "玩具碰巧找到了：没有共同的字对，分数全靠不同的字对挤进一格；换个说法再试。"
        return seen + f"玩具也找到了：你的话和原文共有{''.join(f'「{pair}」' for pair in common)}，换掉这几个字对。"
    if real > NEAR:
        return seen + "真嵌入也没找到：要说的是 agent 一直停不下来这件事，而不是别的事。"
    if real > LIMIT:
        return seen + f"真嵌入差一点，要排进前 {LIMIT} 名：意思留着，换一两个近义的词再试。"
    return ""


def cited(answer: Answer) -> list[str]:
    """答案引用的出处，按编号从小到大，不重复。"""
    labels = []
    for citation in sorted(answer.citations, key=lambda c: c.number):
        if citation.chunk.label not in labels:
            labels.append(citation.chunk.label)
    return labels


def _answer(order: Sequence[int], sources: Sequence[str]) -> Answer:
    chunks = [Chunk("原文", source, 0, 2) for source in sources]
    hits = tuple(Hit(chunk, 0.9 - 0.1 * i, i + 1) for i, chunk in enumerate(chunks))
    return Answer("答案", tuple(Citation(n, "", chunks[n - 1]) for n in order), hits)


def _case(label: str, order: Sequence[int], sources: Sequence[str]) -> Case:
    """名字里写明 citations 依次是什么：Answer 整个打印出来太长。"""
    answer = _answer(order, sources)
    seen = "、".join(f"[{c.number}] {c.chunk.label}" for c in answer.citations) or "空的"
    return case(f"{label}（citations：{seen}）", answer)


def _cases() -> list[Case]:
    return [
        _case("引用了两块", [1, 2], ["safety.py", "loop.py", "log.py"]),
        _case("编号没有按次序", [3, 1], ["safety.py", "loop.py", "agent.toml"]),
        _case("同一出处引了两次", [1, 2, 3], ["safety.py", "loop.py", "safety.py"]),
        _case("没有引用", [], ["safety.py"]),
    ]


EXERCISES = [
    Exercise(
        id="0.1",
        title="换一个你自己的说法：玩具找不到，真嵌入找得到",
        kind="value",
        reference="一直死循环怎么办",
        judge=judge_question,
        wrong=[
            Wrong("还是原来的词", "安全阀在哪里定义"),
            Wrong("课文里用过的", "失控保护怎么触发？"),
            Wrong("说的是别的事", "今天中午吃什么"),
            Wrong("空白", "  "),
            Wrong("不是字符串", 42),
        ],
        follow_up="同一件事，字面上毫无关系，真嵌入把它认了出来。",
    ),
    Exercise(
        id="0.2",
        title="答案引用了哪些出处",
        reference=cited,
        cases=_cases,
        wrong=[
            Wrong("把检索到的都算上", lambda answer: [hit.chunk.label for hit in answer.hits],
                  "你用的是 answer.hits，那是检索到的全部；被引用的在 answer.citations 里。"),
            Wrong("没有按编号排", lambda answer: list(dict.fromkeys(c.chunk.label for c in answer.citations)),
                  "先按 number 从小到大排，再取出处。"),
            Wrong("照 citations 原样", lambda answer: [c.chunk.label for c in answer.citations],
                  "有两处要改：先按 number 从小到大排；同一个出处只留一次。"),
            Wrong("没有去掉重复", lambda answer: [c.chunk.label for c in sorted(answer.citations, key=lambda c: c.number)],
                  "同一个出处出现了两次；已经在列表里的就不要再放。"),
            Wrong("按出处的字母排", lambda answer: sorted({c.chunk.label for c in answer.citations}),
                  "你按出处的字母排了序；题目要的是按编号的次序。"),
            Wrong("只取了第一个", lambda answer: [c.chunk.label for c in answer.citations[:1]],
                  "只拿到了一个引用；要把 answer.citations 从头走到尾。"),
            Wrong("返回了文件名", lambda answer: list(dict.fromkeys(
                c.chunk.source for c in sorted(answer.citations, key=lambda c: c.number))),
                "你返回的是 chunk.source，没有行号；出处要用 chunk.label。"),
        ],
        follow_up="检索到的不一定被引用；排查错误时把这两样分开看。",
    ),
]
