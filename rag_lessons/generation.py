"""问题 + 检索结果 → 答案文字。

ExtractiveGenerator 不用语言模型：它从检索到的资料里挑出最贴近问题的句子，原样抄下来并写上编号。
它不会概括、不会推理，也因此不会编造；离线时用它。
ChatGenerator 把提示词交给一个聊天模型；写了一半的、空的、被服务拦下的回复，都不会当成答案。
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from rag_lessons.embedding.base import Embedder, check_embedder, check_vectors
from rag_lessons.embedding.toy import ToyEmbedder
from rag_lessons.messages import Reply
from rag_lessons.prompting import (
    NOT_FOUND,
    build_prompt,
    build_structured_prompt,
    parse_structured,
    read_answer,
)
from rag_lessons.tracing import quote_before
from rag_lessons.types import Answer, Hit, RagLessonsError, check_hits, check_whole, is_blank

if TYPE_CHECKING:
    from rag_lessons.chat import Chat

# 句末标点和换行都结束一句；英文句点后面要有空白，免得切开 config.py 和 3.5
SENTENCE = re.compile(r"[^。！？!?\n]+?(?:[。！？!?]+[」』”）》]*|\.(?=\s)|\n|$)")
# 注释符号、列表符号、表格竖线：抄进答案时去掉
DECORATION = re.compile(r"^[\s#>*\-+|/\"'`]+|[\s|\"'`]+$")
# 一句话写到行末还没完（停在逗号、顿号、分号），下一行又不是新的条目，就接上
WRAPPED = re.compile(r"(?<=[，、；])\n[ \t]*(?=[^\s#>*\-+|`\"'\d])")
QUESTION = re.compile(r"[？?][」』”）》)]*$")
MIN_CHARS = 6       # 比这还短的，多半是标题碎片或单个词


class Generator(Protocol):
    """能根据问题和资料写出答案的东西。"""

    def generate(self, question: str, hits: Sequence[Hit]) -> str: ...


def sentences(text: str) -> list[str]:
    """粗切成句：句末标点或换行结束一句，去掉两端的注释和列表符号，太短的不要。

    折成两行的一句话接成一行；除了这里去掉的空白，每句都是原文。

    >>> sentences("# 步数用完就停下来。预算用完也停。\\nmax_steps = 40")
    ['步数用完就停下来。', '预算用完也停。', 'max_steps = 40']
    >>> sentences("先等 1 秒，\\n    之后每次翻倍。")
    ['先等 1 秒，之后每次翻倍。']
    """
    found = (DECORATION.sub("", match.group()) for match in SENTENCE.finditer(WRAPPED.sub("", text)))
    return [sentence for sentence in found if len(sentence) >= MIN_CHARS]


def quoted(sentence: str) -> str:
    """给一句话加上引号；句子里的「」不成对时换一种引号，免得读回来少了一截。

    >>> quoted("最多 40 步"), quoted("也叫「安全阀")
    ('「最多 40 步」', '“也叫「安全阀”')
    """
    tried = [f"{left}{sentence}{right}" for left, right in ("「」", "“”", "『』")]
    return next((text for text in tried if quote_before(text, len(text)) == sentence), tried[0])


class ExtractiveGenerator:
    """抽取式回答：从资料里挑最贴近问题的几句，逐字引用并写上编号。问句不抄：它和问题再像，也不是答案。

    参数
    ----
    embedder : 用来比较句子和问题；不给时用字对重合（ToyEmbedder）。给真嵌入（例如 E5Embedder），换了说法的问题也能挑对。
    limit : 最多抄几句，默认 2。
    """

    name = "抽取式（不调用模型）"

    def __init__(self, embedder: Embedder | None = None, limit: int = 2) -> None:
        self.embedder = embedder if embedder is not None else ToyEmbedder()
        check_embedder(self.embedder)
        self.limit = check_whole(limit, "limit ", least=1)

    def generate(self, question: str, hits: Sequence[Hit]) -> str:
        """返回形如 ``「原句」[1]`` 的文字；资料里没有可抄的句子时返回“资料中未提及”。"""
        if not isinstance(question, str):
            raise RagLessonsError(f"问题要是字符串，收到的是 {type(question).__name__}。")
        places: dict[str, int] = {}
        for number, hit in enumerate(check_hits(hits), 1):
            for sentence in sentences(hit.chunk.text):
                if not QUESTION.search(sentence) and not is_blank(sentence):
                    places.setdefault(sentence, number)
        if not places or is_blank(question):
            return NOT_FOUND
        candidates = list(places)
        vectors = self.embedder.embed_documents(candidates)
        dim, space = self.embedder.dim, self.embedder.space
        asked = check_vectors([self.embedder.embed_query(question)], 1, dim, space)[0]
        scores = check_vectors(vectors, len(candidates), dim, space) @ asked
        order = sorted(range(len(candidates)), key=lambda i: (-round(float(scores[i]), 6), i))
        picked = sorted(order[: self.limit], key=lambda i: (places[candidates[i]], i))
        return "\n".join(f"{quoted(candidates[i])}[{places[candidates[i]]}]" for i in picked)


class ChatGenerator:
    """用聊天模型作答：写好提示词，问一次，把回复的文字交回来。

    参数
    ----
    chat : 有 ``.chat(messages)`` 的对象，例如 ZhipuChat()。
    prompt : (问题, 检索结果) → 提示词；默认 ``build_prompt``。
    read : (回复的文字, 检索结果) → Answer；不写时，``build_structured_prompt`` 配 ``parse_structured``，别的配 ``read_answer``。

    属性 ``last_reply`` 是最近一次的完整回复，用量在 ``last_reply.usage``；还没问过时是 None。
    """

    def __init__(
        self,
        chat: Chat,
        prompt: Callable[[str, Sequence[Hit]], str] = build_prompt,
        read: Callable[[str, Sequence[Hit]], Answer] | None = None,
    ) -> None:
        if isinstance(chat, type) or not callable(getattr(chat, "chat", None)):
            raise RagLessonsError(f"这里要聊天模型，收到 {chat!r}；例如 ZhipuChat()，不要忘了括号。")
        if not callable(prompt):
            raise RagLessonsError(f"prompt 要是函数：(问题, 检索结果) → 提示词，收到 {prompt!r}。")
        if read is not None and not callable(read):
            raise RagLessonsError(f"read 要是函数：(回复的文字, 检索结果) → Answer，收到 {read!r}；没有就不写。")
        self.chat = chat
        self.prompt = prompt
        self.read = read or (parse_structured if prompt is build_structured_prompt else read_answer)
        self.last_reply: Reply | None = None

    @property
    def name(self) -> str:
        """聊天对象的名字，例如 ``智谱 glm-4.7-flash``；没有就用模型名、类名。"""
        return getattr(self.chat, "name", "") or getattr(self.chat, "model", "") or type(self.chat).__name__

    def generate(self, question: str, hits: Sequence[Hit]) -> str:
        """返回模型写的文字。回复是空的、没写完、被内容审查拦下时，抛出 RagLessonsError。"""
        self.last_reply = None
        content = self.prompt(question, check_hits(hits))
        if not isinstance(content, str) or is_blank(content):
            raise RagLessonsError(f"prompt 要返回有内容的字符串，收到 {content!r}；请检查写提示词的函数。")
        self.last_reply = reply = self.chat.chat([{"role": "user", "content": content}])
        text = getattr(reply, "text", reply)
        if not isinstance(text, str | None):
            raise RagLessonsError(f"{self.name}：chat(...) 要返回 Reply，收到的是 {type(reply).__name__}。")
        # 这里没有给工具，只看文字；半句话、审查的套话、一个字没写，都不能当答案
        problem = Reply(text or "", finish_reason=getattr(reply, "finish_reason", "stop")).problem
        if problem:
            raise RagLessonsError(f"{self.name}：{problem}")
        return text
