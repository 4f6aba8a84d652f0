"""嵌入器（embedder）的约定，以及对模型返回值的检查。

不管向量从哪里来（手写的哈希、numpy 里的 e5、网络服务），都在这里过同一道关：
条数对不对、有没有 NaN、是不是零向量、有没有归一化。子类只写 ``_encode``。
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from rag_lessons.types import RagLessonsError, is_blank

Role = Literal["query", "document"]
FloatArray = np.ndarray

# 长度与 1 差不到这么多，就不必再除一遍（float32 自身的误差约 6e-8）
UNIT_TOLERANCE = 1e-6


@runtime_checkable
class Embedder(Protocol):
    """能把文字变成向量的东西。

    属性
    ----
    space : 向量空间的名字，写明提供者、模型、维数、角色处理和版本。两个空间的向量不能比较。
    dim : 维数。
    """

    space: str
    dim: int

    def embed_documents(self, texts: Sequence[str]) -> FloatArray: ...

    def embed_queries(self, texts: Sequence[str]) -> FloatArray: ...

    def embed_query(self, text: str) -> FloatArray: ...


def check_embedder(embedder: object) -> None:
    """能算向量的对象；只写名字、忘了写括号，是常见的手误。"""
    if isinstance(embedder, type):
        raise RagLessonsError(f"收到的是类 {embedder.__name__}，不是嵌入器；后面加上括号：{embedder.__name__}()。")
    if not callable(getattr(embedder, "embed_documents", None)):
        raise RagLessonsError(f"这里要嵌入器，收到的是 {type(embedder).__name__}；例如 ToyEmbedder()，或 get_embedder(\"e5\")。")


def check_texts(texts: Sequence[str]) -> list[str]:
    """确认收到的是字符串的列表；只给一个字符串是常见的手误，逐字拆开会得到一堆错的向量。"""
    if isinstance(texts, str | bytes):
        raise RagLessonsError("这里要的是字符串列表；只有一条时写成 [text]，或用 embed_query(text)。")
    if not isinstance(texts, Iterable):
        raise RagLessonsError(f"这里要的是字符串列表，收到的是 {type(texts).__name__}；只有一条时写成 [text]。")
    result = list(texts)
    for i, text in enumerate(result):
        if not isinstance(text, str):
            raise RagLessonsError(f"第 {i} 条不是字符串，而是 {type(text).__name__}；请先转成 str。")
    return result


def check_vectors(vectors: object, count: int, dim: int, space: str) -> FloatArray:
    """检查模型返回的向量，并归一化成单位长度的 float32。

    参数
    ----
    vectors : 任何能变成二维数组的东西。
    count, dim : 应有的行数与列数。
    space : 报错时写出是哪个空间。

    返回 (count, dim) 的 float32 数组，每行长度为 1。条数不对、维数不对、含 NaN 或无穷、
    有零向量时抛出 RagLessonsError。
    """
    try:
        array = np.asarray(vectors)
        if array.dtype.kind in "cSU":           # 复数、文字都不是向量
            raise TypeError
        if array.dtype != np.float32:
            array = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RagLessonsError(f"{space} 返回的不是一行一条、长短一致的数；请检查嵌入器。") from None
    if count == 0:
        return np.zeros((0, dim), dtype=np.float32)
    if array.ndim != 2 or array.shape[0] != count:
        got = array.shape[0] if array.ndim else 0
        raise RagLessonsError(f"{space} 送去 {count} 条文字，返回了 {got} 条向量；结果不可信，已丢弃。")
    if array.shape[1] != dim:
        raise RagLessonsError(f"{space} 应是 {dim} 维，返回了 {array.shape[1]} 维；请检查模型名和维数设置。")
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array))      # 有 NaN 或无穷的行，长度也不是有限数
    if not np.isfinite(lengths).all():
        row = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise RagLessonsError(f"{space} 第 {row} 条向量含 NaN 或无穷大；结果不可信，已丢弃。")
    if not lengths.all():
        row = int(np.flatnonzero(lengths == 0)[0])
        raise RagLessonsError(f"{space} 第 {row} 条是零向量，没有方向可比；请检查那条文字。")
    if np.abs(lengths - 1).max() > UNIT_TOLERANCE:
        array = array / lengths[:, None]
    return array.astype(np.float32, copy=False)


class BaseEmbedder:
    """公共部分：检查输入、跳过空白、检查输出。子类设好 ``space``、``dim`` 并实现 ``_encode``。

    维数要等第一次计算才知道的嵌入器，先把 ``dim`` 设为 0，算出第一批时再改成真的。
    """

    space: str
    dim: int

    def _encode(self, texts: list[str], role: Role) -> object:
        """texts 里没有空白文字，且至少一条；返回 (len(texts), dim)。"""
        raise NotImplementedError

    def _encode_batches(self, texts: list[str], role: Role) -> Iterator[tuple[Sequence[int], object]]:
        """算好一批就交出一批：（这批在 texts 里的位置, 向量）。默认一批做完；要分批的子类改写它。"""
        yield range(len(texts)), self._encode(texts, role)

    def check_input(self, texts: Sequence[str], role: Role) -> list[str]:
        """动手之前检查全部文字，有一条不行就抛出 RagLessonsError；子类可以加上自己的限制。"""
        return check_texts(texts)

    def embed_batches(self, texts: Sequence[str], role: Role) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """一批一批地嵌入，每批查验过才交出：（位置, (批大小, dim) float32 单位向量）。

        texts 里不能有空白文字。缓存靠它边算边存：第三批失败时，前两批已经存好。
        """
        texts = list(texts)
        if texts:
            for positions, vectors in self._encode_batches(texts, role):
                yield positions, check_vectors(vectors, len(positions), self.dim, self.space)

    def embed(self, texts: Sequence[str], role: Role) -> FloatArray:
        """按角色（"query" 或 "document"）嵌入。空白文字不送给模型，对应行是零：它与谁的相似度都是 0。"""
        texts = self.check_input(texts, role)
        wanted = [i for i, text in enumerate(texts) if not is_blank(text)]
        result, filled = None, np.zeros(len(wanted), dtype=bool)
        for positions, vectors in self.embed_batches([texts[i] for i in wanted], role):
            filled[positions] = True
            if positions == range(len(texts)):
                return vectors
            if result is None:
                result = np.zeros((len(texts), vectors.shape[1]), dtype=np.float32)
            result[[wanted[p] for p in positions]] = vectors
        if not filled.all():
            raise RagLessonsError(f"{self.space} 漏了 {(~filled).sum()} 条没有算；结果不可信，已丢弃。")
        if result is None:
            if texts and not self.dim:
                raise RagLessonsError("送来的全是空白，而这个嵌入器的维数还不知道；请先去掉空白文字，或写明维数。")
            result = np.zeros((len(texts), self.dim), dtype=np.float32)
        return result

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """文档 → (n, dim) float32，每行单位长度；空白文字得到零行。"""
        return self.embed(texts, "document")

    def embed_queries(self, texts: Sequence[str]) -> FloatArray:
        """问题 → (n, dim) float32。有空白的问题时抛出 RagLessonsError。"""
        texts = check_texts(texts)
        for i, text in enumerate(texts):
            if is_blank(text):
                raise RagLessonsError(f"第 {i} 个问题是空白，没有东西可查；请写一个问题。")
        return self.embed(texts, "query")

    def embed_query(self, text: str) -> FloatArray:
        """一个问题 → (dim,) float32。"""
        if not isinstance(text, str):
            raise RagLessonsError(f"问题要是字符串，收到的是 {type(text).__name__}。")
        if is_blank(text):
            raise RagLessonsError("问题是空白，没有东西可查；请写一个问题。")
        return self.embed_queries([text])[0]
