"""BM25：按共有的词给块打分。少见的词分量重，重复的词收益递减，长的块打一点折扣。

向量擅长“换一种说法”，BM25 擅长“一字不差”：文件编号、型号、人名。中文没有空格，词怎么切决定它能不能用：
这里的汉字按相邻两字（bigram）和单字切，字母、数字、编号整个留下，不需要分词词典。

公式的出处：Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009；
idf 取不会变负的那一种（Lucene 也用它）。
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from operator import add

import numpy as np

from rag_lessons.index import (
    SyncCounts,
    Where,
    allows,
    check_k,
    check_question,
    check_where,
    count_changes,
    fingerprint,
    indexable,
    written_beside,
)
from rag_lessons.paths import as_path
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_number

Tokenizer = Callable[[str], Iterable[str]]
# 比它小的分数，四舍五入到 6 位就是 0，不算结果
LEAST = 5.1e-7
# 关键词索引文件的版本；格式或切词的办法变了就加一，旧文件会重建
FILE_VERSION = 1

# 词与词之间没有空格的文字：汉字（含部首、〇、々）、假名、谚文、泰文、老挝文、缅甸文、高棉文
DENSE = (
    "\u2e80-\u2fdf\u3005\u3007\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc"
    "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
)
# 附在字母上的记号（重音、元音符号）：正则的 \w 不认它们
MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff\u1ab0-\u1aff\u1dc0-\u1dff"
# 带圈、带括号的数字和字，各算一个词：“图 10①”不是 101
ENCLOSED = "\u2460-\u24ff\u2776-\u2793\u3200-\u32ff"
PLAIN = rf"[^\W{DENSE}{ENCLOSED}]"                            # 其余的字母、数字、下划线
LETTERS = rf"{PLAIN}+(?:[{MARKS}]{PLAIN}*)*"
# 夹在字母、数字之间时不断开的符号，半角和全角；全角的逗号、冒号是中文标点，不在内
JOINT = r"[-./\\:@&+#'~‐‑‒–−’－．／＼＠＆＋＃＇～]"
PIECE = re.compile(
    rf"[{DENSE}]+"                                                              # 一串汉字
    rf"|[{ENCLOSED}]"
    r"|(?<![\d.])(?:\d{1,3}(?:,\d{3})+|[０-９]{1,3}(?:，[０-９]{3})+)(?:[.．]\d+)?(?!\d)"     # 1,000
    rf"|(?:(?<!\.)[.．](?=[^\W\d_{DENSE}]))?"                                   # .NET 开头的点
    rf"{LETTERS}(?:(?:[+＋]{{2}}|{JOINT}){LETTERS})*"                            # 单词、编号、路径
    rf"(?:[+＋]{{1,2}}(?!{PLAIN})|[#＃])?"                                       # C++、C# 的尾巴
)
HAN_RUN = re.compile(rf"[{DENSE}]")
# 看不见的字符：软连字符、零宽空格、字形选择符；夹在词中间会把词拆开
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")
SAME_MARK = str.maketrans("‐‑‒–−’", "-----'")
SEGMENT = re.compile(r"[^/\\:@&+#~]+")                      # 路径、网址、邮箱的各段
NAME = re.compile(rf"(?:\w|[{MARKS}]|(?<=\d)\.(?=\d))+")      # 段里的名字，下划线算在内；3.5 的小数点不断开
ATOM = re.compile(r"([^\W\d_]+)(\d[\d.]*)|(\d[\d.]*)([^\W\d_]+)")    # e5、v2.0、100MB：字母、数字各一
CHAIN = re.compile(r"\d+(?:\.\d+){2,}")                     # 2024.03.01、192.168.1.1


def tokenize(text: str) -> list[str]:
    """一段文字 → 词的列表，重复的保留。

    汉字：相邻两字和每个单字。字母、数字：整个留下，编号算两次，再加上它的各部分。全角变半角、大写变小写，
    只在词里变，原文不动；繁体不转简体。标点和表情不算词。

    >>> tokenize("安全阀")
    ['安全', '全阀', '安', '全', '阀']
    >>> tokenize("印发ＤＢ－2024-117号")
    ['印发', '印', '发', 'db-2024-117', 'db-2024-117', 'db', '2024', '117', '号']
    >>> tokenize("用 Python 3.12 写，1,000 次")
    ['用', 'python', '3.12', '写', '1000', '次']
    """
    tokens = []
    for piece in PIECE.findall(INVISIBLE.sub("", text)):
        key = unicodedata.normalize("NFKC", piece)
        tokens += han_tokens(key) if HAN_RUN.match(key) else word_tokens(key)
    return tokens


def han_tokens(run: str) -> list[str]:
    """一串汉字 → 相邻两字，再加单字。

    >>> han_tokens("阀")
    ['阀']
    """
    return [*map(add, run, run[1:]), *run]


def word_tokens(word: str) -> list[str]:
    """一个单词或编号 → 它自己，再加它的各部分（由大到小，不重复）。

    能拆的，整个算两次：短块里碰巧有“2024”和“117”，不该排到真有这个编号的长块前面。

    >>> word_tokens("DB-2024-117")
    ['db-2024-117', 'db-2024-117', 'db', '2024', '117']
    >>> word_tokens("tools/safety.py:40")[2:]
    ['tools', 'safety.py', '40', 'safety', 'py']
    >>> word_tokens("3.5"), word_tokens("1,000")
    (['3.5'], ['1000'])
    """
    word = word.casefold().translate(SAME_MARK)
    if word.isalpha() or word.isdecimal():
        return [word]
    if not any(char.isalnum() for char in word):                # 只有下划线
        return []
    if "," in word:
        return [word.replace(",", "")]
    segments = SEGMENT.findall(word)
    names = [name for segment in segments for name in NAME.findall(segment)]
    runs = [run for name in names for run in name.split("_") if run]
    atoms = [atom for run in runs if (match := ATOM.fullmatch(run)) for atom in match.groups() if atom]
    links = [link for number in runs + atoms if CHAIN.fullmatch(number) for link in number.split(".")]
    parts = [part for part in dict.fromkeys([*segments, *names, *runs, *atoms, *links]) if part != word]
    return [word, word, *parts] if parts else [word]


def idf(N: int, n: int) -> float:
    """一个词的分量：N 个块里有 n 个含它。越少见越大，永远不为负。

    >>> round(idf(100, 1), 2), round(idf(100, 50), 2), round(idf(100, 100), 3)
    (4.21, 0.69, 0.005)
    """
    return math.log(1 + (N - n + 0.5) / (n + 0.5))


def bm25_score(
    query: list[str], document: list[str], corpus: list[list[str]], k1: float = 1.5, b: float = 0.75
) -> float:
    """照公式给一段打分，参数都是词的列表；corpus 是全部的段。问题里重复的词，重复几次算几次。

    慢，但看得懂；BM25Index 算的是同一个数。

    >>> corpus = [["苹果", "好吃"], ["香蕉", "好吃"], ["香蕉", "香蕉"]]
    >>> [round(bm25_score(["香蕉", "好吃"], document, corpus), 3) for document in corpus]
    [0.47, 0.94, 0.671]
    """
    average = sum(map(len, corpus)) / len(corpus)
    score = 0.0
    for token in query:
        tf = document.count(token)
        if tf > 0:
            rarity = idf(len(corpus), sum(token in other for other in corpus))
            score += rarity * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(document) / average))
    return score


class BM25Index:
    """块与它们的词。用 ``BM25Index.build(chunks)`` 来建。

    每个词存一列“哪几块含它、各得几分”，打分就是把问题里各个词的那几列加起来。
    ``BM25Index.build(vector_index.chunks)`` 就和向量索引用同一批块；一万块重建要一两秒，等不及就 save、load。

    属性
    ----
    chunks : 按（来源、位置）排好的块。
    k1, b, tokenize : 建索引时的参数。
    """

    def __init__(self, chunks: Sequence[Chunk], k1: float, b: float, tokenize: Tokenizer) -> None:
        self.k1, self.b, self.tokenize = k1, b, tokenize
        self._hold(list(chunks))

    @classmethod
    def build(
        cls, chunks: Sequence[Chunk], k1: float = 1.5, b: float = 0.75, tokenize: Tokenizer = tokenize
    ) -> BM25Index:
        """给块建索引；重复的块只留一份，空白的不要。一块也没有时抛出 RagLessonsError。

        参数
        ----
        chunks : 块；用来切词的是 ``embedding_text``，标题路径也算在内。
        k1 : 同一个词重复出现，分数涨得多快；0 只看有没有，默认 1.5。不能为负。
        b : 长的块打多少折扣；0 不打，1 全打，默认 0.75。
        tokenize : 文字 → 词的列表；问题和块用同一个。
        """
        k1, b = check_number(k1, "k1"), check_number(b, "b")
        if not 0 <= k1 <= 1000:
            raise RagLessonsError(f"k1 要在 0 和 1000 之间，收到 {k1}；常用 1.2 到 2。")
        if not 0 <= b <= 1:
            raise RagLessonsError(f"b 要在 0 和 1 之间，收到 {b}；常用 0.75。")
        if not callable(tokenize):
            raise RagLessonsError(f"tokenize 要是函数（文字 → 词的列表），收到 {tokenize!r}。")
        chunks = indexable(chunks)
        if not chunks:
            raise RagLessonsError("一块有字的内容也没有，建不了索引；请检查读文件和切块那两步的结果。")
        return cls(chunks, k1, b, tokenize)

    def _hold(self, chunks: list[Chunk]) -> None:
        """切词、数词、算好每个词给每块的分数；全部算完才换掉旧的。"""
        ids: dict[str, int] = defaultdict(count().__next__)       # 没见过的词，取下一个号
        rows = [_numbers(self._tokens(chunk.embedding_text), ids) for chunk in chunks]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        total, average = len(chunks), lengths.sum() / max(len(chunks), 1)
        # 一个整数装下（词，块）：排序以后，同词的挨着，词内按块排
        pairs = np.concatenate(rows) * total + np.repeat(np.arange(total), lengths) if rows else lengths
        pairs.sort()
        first = np.flatnonzero(np.diff(pairs, prepend=-1))
        tf = np.diff(first, append=len(pairs))
        token, chunk = np.divmod(pairs[first], max(total, 1))
        n = np.bincount(token, minlength=len(ids))
        rarity = np.array([idf(total, int(having)) for having in n])
        penalty = self.k1 * (1 - self.b + self.b * lengths[chunk] / average)
        part = rarity[token] * tf * (self.k1 + 1) / (tf + penalty)
        starts = [0, *np.cumsum(n).tolist()]                       # 词 i 的一列是 [starts[i], starts[i + 1])
        # 一次换掉：别的线程正在检索时，看到的要么全是旧的，要么全是新的
        self._held = chunks, dict(ids), starts, chunk.astype(np.int32), part

    def save(self, path: str | os.PathLike[str]) -> None:
        """存成一个文件：词、每个词的那一列，和块的指纹；块本身不在里面，VectorIndex.save 已经存了。"""
        path = as_path(path)
        chunks, ids, starts, chunk, part = self._held
        meta = {"version": FILE_VERSION, "k1": self.k1, "b": self.b, "chunks": fingerprint(chunks), "tokens": list(ids)}
        described = json.dumps(meta, ensure_ascii=False).encode("utf-8", "surrogatepass")
        arrays = {"starts": np.array(starts, dtype=np.int64), "chunk": chunk, "part": part}
        with written_beside(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("keyword.json", described)
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str], chunks: Sequence[Chunk], tokenize: Tokenizer = tokenize) -> BM25Index:
        """读回 save 存的文件；chunks 要是存的时候那一批，tokenize 要是同一个。

        文件不在时抛出 FileNotFoundError；文件坏了、块不是那一批、切词的写法变了，抛出 RagLessonsError：重新 build 就是。
        """
        path = as_path(path)
        if not path.is_file():
            raise FileNotFoundError(f"找不到关键词索引 {path}；请先 index.save(path)。")
        chunks = indexable(chunks)
        try:
            with zipfile.ZipFile(path) as archive:
                meta = json.loads(archive.read("keyword.json"))
                arrays = []
                for name in ("starts", "chunk", "part"):
                    with archive.open(f"{name}.npy") as entry:
                        arrays.append(np.lib.format.read_array(entry, allow_pickle=False))
            starts, chunk, part = arrays
            if (meta["version"], meta["chunks"]) != (FILE_VERSION, fingerprint(chunks)):
                raise RagLessonsError(f"{path.name} 存的不是这一批块；请重新 BM25Index.build。")
            if len(starts) != len(meta["tokens"]) + 1 or not starts[-1] == len(chunk) == len(part):
                raise ValueError
            index = cls([], meta["k1"], meta["b"], tokenize)
            index._held = chunks, dict(zip(meta["tokens"], range(len(starts)), strict=False)), starts.tolist(), chunk, part
        except RagLessonsError:
            raise
        except (zipfile.BadZipFile, zlib.error, KeyError, IndexError, TypeError, ValueError, EOFError, OSError, RuntimeError):
            raise RagLessonsError(f"{path.name} 不是完整的关键词索引；请删掉它，重新 build 再 save。") from None
        return index

    @property
    def chunks(self) -> list[Chunk]:
        return self._held[0]

    def _tokens(self, text: str) -> Iterable[str]:
        tokens = self.tokenize(text)
        if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
            raise RagLessonsError(f"tokenize 要返回词的列表，收到 {type(tokens).__name__}；请让它返回 [\"词\", \"词\"] 这样的列表。")
        return tokens

    def __len__(self) -> int:
        return len(self.chunks)

    def __repr__(self) -> str:
        return f"BM25Index({len(self)} 块, {len(self._held[1])} 个词)"

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → 分数最高的 k 块；一个词也不共有的块不算结果，所以可能不足 k 条，也可能是空的。

        分数照公式算到 6 位小数，没有上限，不同的问题之间不能比较；``details["bm25"]`` 是同一个数。
        问题里重复的词重复计分。分数相同的按（来源、位置）排。

        参数
        ----
        query : 问题；空白时抛出 RagLessonsError。只有标点时没有词，结果是空列表。
        k : 最多几条。小于 1 时抛出 RagLessonsError。
        where : 块 → 要不要；先筛选，再取前 k。idf 和平均长度总是按全部的块算。
        """
        k = check_k(k)
        check_question(query)
        check_where(where)
        chunks, scores = self._scores(query)
        if where is not None:
            scores = np.array([s if s >= LEAST and allows(where, c) else 0.0 for s, c in zip(scores, chunks, strict=True)])
        k = min(k, len(scores))
        kth = np.partition(scores, -k)[-k] if k else 0.0
        rows = np.flatnonzero(scores >= max(kth - 1e-6, LEAST))         # 前 k 名，连同并列的
        rounded = scores[rows].round(6)
        best = np.lexsort((rows, -rounded))[:k]
        return [
            Hit(chunks[rows[i]], float(rounded[i]), rank, {"bm25": float(rounded[i])})
            for rank, i in enumerate(best, 1)
        ]

    def _scores(self, query: str) -> tuple[list[Chunk], np.ndarray]:
        """全部的块，和每一块的分数 (n,)。"""
        chunks, ids, starts, chunk, part = self._held
        try:
            times = Counter(self._tokens(query))
        except TypeError as error:
            raise RagLessonsError("tokenize 返回的词要是字符串。") from error
        known = {ids[token]: n for token, n in times.items() if token in ids}
        if not known:
            return chunks, np.zeros(len(chunks))
        columns = [slice(starts[i], starts[i + 1]) for i in known]
        parts = [part[column] * n for column, n in zip(columns, known.values(), strict=True)]
        touched = np.concatenate([chunk[column] for column in columns])
        return chunks, np.bincount(touched, np.concatenate(parts), minlength=len(chunks))

    def sync(self, chunks: Sequence[Chunk]) -> SyncCounts:
        """把索引换成这些块。idf 随全部的块变，所以整个重算；计数的含义同 VectorIndex.sync。"""
        chunks = indexable(chunks)
        counts = count_changes(self.chunks, chunks)
        self._hold(chunks)
        return counts


def _numbers(tokens: Iterable[str], ids: dict[str, int]) -> np.ndarray:
    """词 → 号。"""
    try:
        return np.fromiter(map(ids.__getitem__, tokens), np.int64)
    except TypeError:
        raise RagLessonsError("tokenize 返回的词要是字符串。") from None
