"""玩具向量：相邻两个字（character bigram）哈希到固定的格子里计数，再除以长度。

只懂字面：两段话共有的字对越多，余弦越大；换一种说法就认不出来。它不花时间、不用下载，
正好用来看清“向量”是怎么回事，以及它缺什么。

哈希是写死的整数运算，不用内置的 ``hash()``：后者每个进程撒一次盐，今天存的向量明天就对不上。
方法的出处：Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009。
"""

from __future__ import annotations

import sys

import numpy as np

from rag_lessons.embedding.base import BaseEmbedder, FloatArray, Role
from rag_lessons.types import RagLessonsError, check_whole

# 两个大的奇数，让相近的码位散开（乘法散列，Knuth TAOCP 卷 3 第 6.4 节）
FIRST, SECOND = 2654435761, 2246822519
# 一次处理这么多格子（文本数 x 维数），让计数表留在处理器的二级缓存里
BLOCK_CELLS = 1 << 18
# 格子再多也没有用：常用字对也就几十万
MOST_CELLS = 1 << 20


def bigrams(text: str) -> list[str]:
    """相邻的两个字；含空白的不算。没有字对时（例如只有一个字）退而用单字。

    >>> bigrams("安全阀 ok")
    ['安全', '全阀', 'ok']
    >>> bigrams("阀")
    ['阀']
    """
    pairs = [text[i:i + 2] for i in range(len(text) - 1)]
    pairs = [pair for pair in pairs if not pair[0].isspace() and not pair[1].isspace()]
    return pairs or [char for char in text if not char.isspace()]


def slot(pair: str, dim: int) -> int:
    """字对 → 0..dim-1 的格子号；同一个字对在任何机器、任何进程里都落在同一格。

    >>> slot("安全", 1024)
    833
    """
    second = ord(pair[1]) if len(pair) > 1 else 0
    mixed = (ord(pair[0]) * 2654435761 + second * 2246822519) % 2**32
    mixed ^= mixed >> 15
    return (mixed * 2654435761 % 2**32 >> 8) % dim


def bigram_vector(text: str, dim: int = 1024) -> FloatArray:
    """一段文字 → (dim,) 向量，长度为 1。逐个字对累加，看得懂但慢；ToyEmbedder 算的是同一个东西。

    >>> int((bigram_vector("安全阀安全", dim=1024) > 0).sum())
    3
    """
    vector = np.zeros(dim)
    for pair in bigrams(text):
        vector[slot(pair, dim)] += 1
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def _space_table() -> np.ndarray:
    """码位 → 是不是空白；空白都在基本平面里，其余码位归到最后一格。"""
    table = np.zeros(0x10001, dtype=bool)
    table[[c for c in range(0x10000) if chr(c).isspace()]] = True
    return table


class ToyEmbedder(BaseEmbedder):
    """字对哈希的嵌入器。问题和文档同样处理。

    参数
    ----
    dim : 格子数，默认 1024。越小，不同的字对越容易落进同一格（冲突）。

    >>> toy = ToyEmbedder()
    >>> a, b = toy.embed_documents(["安全阀在哪", "安全阀在这"])
    >>> round(float(a @ b), 2)
    0.75
    """

    def __init__(self, dim: int = 1024) -> None:
        dim = check_whole(dim, "维数", least=1)
        if dim > MOST_CELLS:
            raise RagLessonsError(f"维数最多 {MOST_CELLS}，收到 {dim}；1024 就够用。")
        self.dim = dim
        self.space = f"toy/char-bigram/{dim}/none/v1"
        self._is_space: np.ndarray | None = None

    def _encode(self, texts: list[str], role: Role) -> FloatArray:
        rows = max(1, BLOCK_CELLS // self.dim)
        result = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), rows):
            block = texts[start:start + rows]
            counts = self._count(block)
            result[start:start + len(block)] = counts / np.sqrt(np.einsum("ij,ij->i", counts, counts))[:, None]
        return result

    def _count(self, texts: list[str]) -> np.ndarray:
        """各段字对的计数 (len(texts), dim)。整批文字连成一个码位数组，一次算完全部格子号。"""
        if self._is_space is None:
            self._is_space = _space_table()
        # 段与段之间放一个空格：跨段的字对含空白，自然不算
        joined = " ".join(texts) + " "
        encoding = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"
        code = np.frombuffer(joined.encode(encoding, "surrogatepass"), dtype=np.uint32)
        space = self._is_space[np.minimum(code, 0x10000)]
        mixed = code[:-1] * np.uint32(FIRST) + code[1:] * np.uint32(SECOND)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(FIRST)
        mixed >>= np.uint32(8)
        cell = (mixed & np.uint32(self.dim - 1)) if self.dim & (self.dim - 1) == 0 else mixed % np.uint32(self.dim)
        cell = cell.astype(np.intp)
        lengths = np.fromiter((len(text) + 1 for text in texts), dtype=np.intp, count=len(texts))
        offsets = np.repeat(np.arange(len(texts), dtype=np.intp) * self.dim, lengths)[:-1]
        keep = ~(space[:-1] | space[1:])
        counts = np.bincount((cell + offsets)[keep], minlength=len(texts) * self.dim)
        counts = counts.reshape(len(texts), self.dim).astype(np.float32)
        for row in np.flatnonzero(~counts.any(axis=1)):      # 没有字对的，用单字
            for char in bigrams(texts[row]):
                counts[row, slot(char, self.dim)] += 1
        return counts
