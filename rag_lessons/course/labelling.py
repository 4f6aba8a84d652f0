"""出题用的小表格：找原句，挑一句，记下来，存好。只用函数和打印，哪里的 notebook 都一样。

找原句不用要考的那个检索器：它找不到的，你就永远标不上，成绩白白好看。这里只认字面，像在全部文件里按 Ctrl+F。
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rag_lessons.evaluation import Gold, Question, read_jsonl
from rag_lessons.paths import as_path, repo_root
from rag_lessons.types import Document, RagLessonsError, is_blank

SHOWN = 8               # 一次最多列几句
NEARBY = 40             # 原句前后各看多少字：小标题、上一句，也是问题会照抄的地方
LITERAL = 0.2           # 问题的字对有这么多在原句和前后，算字面的题；三份金标里，字面的题九成在它以上，换说法的九成在它以下
COPIED = 0.5            # 有这么多，就提醒：照着抄的问题，怎么检索都找得到
SHORTEST = 6            # 原句少于这么多字，多半在别处也有
SENTENCE = re.compile(r"[^。！？\n]+[。！？]?")
TYPES = {"literal": "字面", "paraphrase": "换说法", "exact_number": "准确数字", "table": "表格", "multi_passage": "看几处",
         "contradiction": "矛盾", "unanswerable": "没有答案"}  # fmt: skip


def shared_pairs(question: str, quote: str) -> float:
    """问题的字对，有几成在原句里。1 是一字不差地照抄，0 是一个字对也不共有。

    >>> shared_pairs("宿舍几点熄灯", "宿舍 23:00 熄灯"), shared_pairs("落了把伞", "遗失物品")
    (0.4, 0.0)
    """
    pairs = pairs_of(question)
    return len(pairs & pairs_of(quote)) / len(pairs) if pairs else 0.0


def pairs_of(text: str) -> set[str]:
    """一段文字的字对；标点、空白、大小写不算。"""
    text = "".join(c for c in text.casefold() if c.isalnum())
    return {text[i:i + 2] for i in range(len(text) - 1)}


def questions_path(folder: str | os.PathLike[str]) -> Path:
    """这个文件夹的题存在哪里：课程文件夹的 my/ 下面，一个文件夹一份。

    课程自己的语料只用名字；别处的文件夹可能同名，名字后面再加六位，由它的位置算出。
    """
    folder, root = as_path(folder).resolve(), repo_root()
    name = folder.name or "folder"
    if not folder.is_relative_to(root / "data"):
        name += f"_{hashlib.sha256(os.fspath(folder).encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
    return root / "my" / f"questions_{name}.jsonl"


class QuestionForm:
    """一张出题的表。

    参数
    ----
    documents : 读进来的全部文档，原句要在里面找得到。
    questions : 已经有的题，例如 ``load_questions(path)``。

    属性
    ----
    questions : 记下的题。
    """

    def __init__(self, documents: Iterable[Document], questions: Sequence[Question] = ()) -> None:
        self.documents = list(documents)
        self.questions = list(questions)
        self.found: list[Gold] = []

    def find(self, words: str) -> None:
        """列出同时含有这几个词的句子，编好号；词用空格隔开，照原文写。号码交给 ``add(..., pick=号码)``。"""
        if not isinstance(words, str) or is_blank(words):
            raise RagLessonsError("要找的词是空白；请写一两个原文里会有的词，用空格隔开。")
        wanted = words.split()
        self.found = [Gold(document.source, sentence) for document in self.documents
                      for sentence in dict.fromkeys(found.strip() for found in SENTENCE.findall(document.text))
                      if all(word.casefold() in sentence.casefold() for word in wanted)]
        for number, gold in enumerate(self.found[:SHOWN], 1):
            print(f"{number}. {gold.source}　{gold.quote}")
        if not self.found:
            print(f"没有一句同时含有「{'」「'.join(wanted)}」；少写一个词，或换成原文的说法。")
        elif len(self.found) > SHOWN:
            print(f"……共 {len(self.found)} 句，只列前 {SHOWN} 句；多写一个词，可以少几句。")

    def add(self, question: str, quote: str = "", *, pick: int | None = None, source: str | None = None,
            type: str | None = None, answer: str = "") -> Question:
        """记一道题，打印一行。同一个问题再记一次，就是改它。

        参数
        ----
        question : 问题，照真的会有人问的样子写。
        quote : 答案所在的原句，逐字抄；不写、也没有 pick，就是资料里没有答案的题。
        pick : 或者写 ``find`` 列出的号码。
        source : 原句在哪份文件；几份文件里都有时才要写。
        type : literal、paraphrase 等；不写时按共有的字对分。
        """
        if not isinstance(question, str) or is_blank(question):
            raise RagLessonsError("问题是空白，没有东西可问；请写一个问题。")
        question = question.strip()
        gold = self._picked(pick) if pick is not None else self._located(quote, source) if quote else None
        if type is not None and type not in TYPES:
            raise RagLessonsError(f"type 只能是 {'、'.join(TYPES)}，收到 {type!r}；不写也可以。")
        share = shared_pairs(question, self._around(gold)) if gold is not None else 0.0
        kind = type or ("unanswerable" if gold is None else "literal" if share >= LITERAL else "paraphrase")
        if (kind == "unanswerable") != (gold is None):
            raise RagLessonsError(f"「{question}」：没有答案的题不写原句，有答案的题要写；请改 type 或 quote。")
        same = next((i for i, q in enumerate(self.questions) if q.question == question), None)
        number = len(self.questions) + 1 if same is None else None
        name = f"题{number:02}" if number else self.questions[same].id
        made = Question(name, question, kind, (gold,) if gold else (), answer)
        if same is None:
            self.questions.append(made)
        else:
            self.questions[same] = made
        print(self._line(made, share))
        return made

    def _line(self, made: Question, share: float) -> str:
        if not made.gold:
            return f"{made.id}　没有答案　{made.question}"
        gold = made.gold[0]
        text = next(d.text for d in self.documents if d.source == gold.source)
        place = f"{gold.source}:{text[:text.index(gold.quote)].count(chr(10)) + 1}"
        notes = []
        if share >= COPIED:
            notes.append("照着原文问的，偏容易")
        if len(gold.quote) < SHORTEST:
            notes.append("原句太短，多抄几个字")
        if text.count(gold.quote) > 1:
            notes.append(f"这句在文件里有 {text.count(gold.quote)} 处，只认第一处，前后多抄几个字")
        kind = TYPES.get(made.type, made.type)
        return f"{made.id}　{kind}　{made.question}　← {place}，共有字对 {share:.0%}" + "".join(f"　注意：{n}" for n in notes)

    def _around(self, gold: Gold) -> str:
        """原句，连同前后各 NEARBY 个字。"""
        text = next(d.text for d in self.documents if d.source == gold.source)
        start = text.index(gold.quote)
        return text[max(0, start - NEARBY):start + len(gold.quote) + NEARBY]

    def _picked(self, pick: int) -> Gold:
        if not self.found:
            raise RagLessonsError("还没有候选的句子；请先用 form.find(\"几个词\") 找，再写 pick。")
        if isinstance(pick, bool) or not isinstance(pick, int) or not 1 <= pick <= len(self.found):
            raise RagLessonsError(f"pick 要是 1 到 {len(self.found)} 的号码，收到 {pick!r}；请看 find 列出的那几句。")
        return self.found[pick - 1]

    def _located(self, quote: str, source: str | None) -> Gold:
        holders = [d.source for d in self.documents if quote in d.text and source in (None, d.source)]
        if not holders:
            squeezed = "".join(quote.split())
            near = [d.source for d in self.documents if squeezed and squeezed in "".join(d.text.split())]
            if near:
                raise RagLessonsError(f"「{quote[:30]}」在 {near[0]} 里，可是空白或换行不一样；请用 form.find 找到它，照抄或写 pick。")
            raise RagLessonsError(f"「{quote[:30]}」不在读进来的文字里，要一字不差；请用 form.find 找到它，照抄或写 pick。")
        if len(holders) > 1:
            raise RagLessonsError(f"「{quote[:30]}」在 {len(holders)} 份文件里都有（{'、'.join(holders[:3])}）；请写 source=其中一份。")
        return Gold(holders[0], quote)

    def mix(self) -> None:
        """数一数各样各几题，少了什么。"""
        counts = Counter("unanswerable" if not q.gold else q.type for q in self.questions)
        print(f"共 {len(self.questions)} 题：" + "，".join(f"{TYPES.get(kind, kind)} {n}" for kind, n in sorted(counts.items())))
        wants = []
        if len(self.questions) < 10:
            wants.append(f"再出 {10 - len(self.questions)} 题，凑满十题")
        if counts["unanswerable"] < 2:
            wants.append("没有答案的至少两题，否则不知道该拒的拒不拒得住")
        if counts["paraphrase"] < max(3, len(self.questions) // 3):
            wants.append("换说法的再多几题：用的人没读过原文，不会照着原句问")
        files = {g.source for q in self.questions for g in q.gold}
        if len(self.questions) >= 5 and len(files) == 1 < len(self.documents):
            wants.append("答案全在一份文件里，换几份")
        print("还差：" + "；".join(wants) + "。" if wants else "几样都有了。")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """存成一行一题的 .jsonl（UTF-8）。已有的文件不一样时，旧的改名留着，不会悄悄盖掉。"""
        path = as_path(path)
        if not self.questions:
            raise RagLessonsError("还没有题，没有东西可存；请先用 form.add 记几道。")
        text = "".join(json.dumps(_record(q), ensure_ascii=False) + "\n" for q in self.questions)
        new = path.with_name(path.name + ".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.read_bytes() != text.encode("utf-8"):
                number = next(n for n in range(1, 10_000) if not path.with_name(f"{path.stem}.{n}{path.suffix}").exists())
                kept = path.with_name(f"{path.stem}.{number}{path.suffix}")
                os.replace(path, kept)
                print(f"原来的那份改名为 {kept.name}，留着")
            new.write_text(text, encoding="utf-8", newline="\n")
            os.replace(new, path)
        except OSError as error:
            raise RagLessonsError(f"存不进 {path.name}（{error.strerror or error}）；请给 save 一个你能写的路径。") from None
        print(f"{len(self.questions)} 题存在 {path.parent.name}/{path.name}")
        return path


def _record(question: Question) -> dict:
    gold = [{"source": g.source, "quote": g.quote} for g in question.gold]
    return {"id": question.id, "question": question.question, "type": question.type, "gold": gold, "answer": question.answer}


def load_questions(path: str | os.PathLike[str]) -> list[Question]:
    """读 ``form.save`` 存的题；文件还不存在时是空列表。"""
    path = as_path(path)
    if not path.exists():
        return []
    try:
        return [Question(r["id"], r["question"], r["type"], tuple(Gold(g["source"], g["quote"]) for g in r.get("gold", ())),
                         r.get("answer", "")) for r in read_jsonl(path)]
    except (KeyError, TypeError, AttributeError):
        raise RagLessonsError(f"{path.name} 里有一行少了 id、question 或 type；请修好这一行，或用 form.save 重存。") from None
