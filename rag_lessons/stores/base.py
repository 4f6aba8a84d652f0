"""各家向量库的共同部分：检查、沿用旧向量、次序，与 VectorIndex 同一套规矩。

一家只要会四件事：``_write`` 写几行，``_remove`` 删几行，``_nearest`` 找最近的几个，``_vectors`` 取几行的向量。
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray, check_embedder, check_vectors
from rag_lessons.index import (
    SyncCounts,
    Where,
    allows,
    check_options,
    check_question,
    chunk_order,
    count_changes,
    dense_hits,
    indexable,
    plain,
    query_vector,
)
from rag_lessons.types import Chunk, Hit, RagLessonsError

# gRPC 往 stderr 写自己的日志（每起一个子进程一行，闲了十秒又几行）；真出了错会抛异常。要在任何一家导入它之前设好
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

MORE = 16           # 多取这么多条，好看清第 k 名有没有并列的
NAME = "rag_lessons"
INSTALL = "python start.py --all"


def load(module: str, what: str) -> Any:
    """导入一家的库；没装就用一句话说怎么装。"""
    try:
        with warnings.catch_warnings():         # 导入时的警告说的是那些库自己的事
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError:
        raise RagLessonsError(f"没有装 {what}；请在课程文件夹里运行 {INSTALL}。") from None


def to_json(chunk: Chunk) -> str:
    """一块 → 一行 JSON，只含 ASCII：哪一家的文字列都存得下，NUL 和不成对的代理字符也在内。"""
    try:
        return json.dumps(asdict(chunk), default=plain)
    except (TypeError, ValueError, RecursionError):
        raise RagLessonsError(f"{chunk.label} 的 metadata 存不成 JSON；请先换成字符串、数或列表。") from None


def from_json(text: str) -> Chunk:
    return Chunk(**json.loads(text))


class Store(ABC):
    """一个向量库。用法与 VectorIndex 相同，分数也是：余弦，越高越近。

    用完要 ``close()``，或写成 ``with``：它会停下自己启动的东西，放开自己打开的文件。
    块的文字也存在库里，打开时读进内存，``where`` 和出处才有得看；所以几个程序同时写一个库时，要重新打开才看得到别人写的。
    一个对象同一时刻只给一个线程用。

    属性
    ----
    chunks : 库里的块，按（来源、位置）排好。
    space : 库里向量的空间；换别的空间打开会报错，哪怕维数一样。
    """

    title = ""
    exact = True                # 检索是不是精确的；近似的（HNSW、IVF）可能漏掉几条

    def __init__(self, embedder: Embedder) -> None:
        check_embedder(embedder)
        self.embedder = embedder
        self.space = embedder.space
        self._closers = contextlib.ExitStack()
        self._chunks: dict[str, Chunk] = {}
        self._sorted: list[Chunk] | None = None
        self._open = True
        try:
            self._connect()
            self._chunks = {chunk.id: chunk for chunk in self._stored()}
        except BaseException:
            self.close()
            raise

    # 各家自己的 ------------------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """打开，没有就建；要关的登记在 ``self._closers``，库里记的空间交给 ``_check_stored``。"""

    @abstractmethod
    def _stored(self) -> Iterable[Chunk]:
        """库里的全部块。"""

    @abstractmethod
    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        """写入；id 已经有的换掉。"""

    @abstractmethod
    def _remove(self, ids: Sequence[str]) -> None:
        """按 id 删。"""

    @abstractmethod
    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        """最近的 k 个：（id、余弦）；among 给了就只在这些 id 里找。"""

    @abstractmethod
    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        """这些 id 的向量，次序相同。"""

    # 公共的 ----------------------------------------------------------------------------------------

    @property
    def chunks(self) -> list[Chunk]:
        if self._sorted is None:
            self._sorted = sorted(self._chunks.values(), key=chunk_order)
        return list(self._sorted)

    def __len__(self) -> int:
        return len(self._chunks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} 块, 空间 {self.space!r}{'' if self._open else ', 已关闭'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """关上；可以关几次。"""
        self._open = False
        self._closers.close()

    def check_space(self) -> None:
        """还开着，而且问题的向量与库里的来自同一个空间。"""
        if not self._open:
            raise RagLessonsError("这个向量库已经关上；请重新打开。")
        self._check_stored(self.space)

    def _check_stored(self, space: object) -> None:
        if space != self.embedder.space:
            raise RagLessonsError(
                f"这个{self.title}库是用 {space!r} 建的，现在的嵌入器是 {self.embedder.space!r}；两个空间不能比较。"
                "请换回原来的嵌入器，或换一个位置重建。"
            )

    def upsert(self, chunks: Sequence[Chunk]) -> int:
        """放进去；已有的不动，内容见过的沿用旧向量。返回新算了几条向量。"""
        self.check_space()
        chunks = [chunk for chunk in indexable(chunks) if self._chunks.get(chunk.id) != chunk]
        if not chunks:
            return 0
        home = {chunk.embedding_text: chunk.id for chunk in self._chunks.values()}
        texts = list(dict.fromkeys(chunk.embedding_text for chunk in chunks))
        seen, fresh = [text for text in texts if text in home], [text for text in texts if text not in home]
        made = check_vectors(self.embedder.embed_documents(fresh) if fresh else [], len(fresh), self.embedder.dim, self.space)
        vector = dict(zip(fresh, made, strict=True))
        if seen:
            vector |= zip(seen, self._vectors([home[text] for text in seen]), strict=True)
        self._write(chunks, np.stack([vector[chunk.embedding_text] for chunk in chunks]))
        self._chunks |= {chunk.id: chunk for chunk in chunks}
        self._sorted = None
        return len(fresh)

    def delete(self, chunks: Iterable[Chunk | str]) -> int:
        """删去这些块（或 id）；库里没有的不算。返回删了几块。"""
        self.check_space()
        if isinstance(chunks, str | Chunk) or not isinstance(chunks, Iterable):
            raise RagLessonsError("delete 要块或 id 的列表；只有一块时写成 [chunk]。")
        asked = [chunk.id if isinstance(chunk, Chunk) else chunk for chunk in chunks]
        ids = [name for name in dict.fromkeys(asked) if name in self._chunks]
        if ids:
            self._remove(ids)
            for name in ids:
                del self._chunks[name]
            self._sorted = None
        return len(ids)

    def sync(self, chunks: Sequence[Chunk]) -> SyncCounts:
        """把库换成这些块：新的写入，没有了的删去，内容没变的不再算向量。先写后删，中间被杀会多出旧的，再 sync 一次就好。"""
        self.check_space()
        chunks = indexable(chunks)
        counts = count_changes(self._chunks.values(), chunks)
        self.upsert(chunks)
        kept = {chunk.id for chunk in chunks}
        self.delete([name for name in self._chunks if name not in kept])
        return counts

    def search(self, query: str, k: int = 3, threshold: float | None = None, where: Where | None = None) -> list[Hit]:
        """问题 → 最近的 k 块；参数与 VectorIndex.search 相同，where 也在取前 k 之前起作用。"""
        check_options(k, threshold, where)
        check_question(query)
        self.check_space()
        if not self._chunks:
            return []
        return self.search_vector(self.embedder.embed_query(query), k, threshold, where)

    def search_vector(
        self, vector: FloatArray, k: int = 3, threshold: float | None = None, where: Where | None = None
    ) -> list[Hit]:
        """已经有向量时直接检索；向量会先归一化。"""
        k, threshold = check_options(k, threshold, where)
        self.check_space()
        vector = query_vector(vector, self.embedder.dim)
        among = None if where is None else [chunk.id for chunk in self.chunks if allows(where, chunk)]
        total = len(self._chunks if among is None else among)
        found = self._with_ties(vector, min(k, total), total, among) if total else []
        return dense_hits(((self._chunks[name], score) for name, score in found), threshold)

    def _with_ties(self, vector: FloatArray, k: int, total: int, among: list[str] | None) -> list[tuple[str, float]]:
        """前 k 个。并列的按块的次序排，所以要取到第一个比第 k 名低的为止。"""
        depth = min(k + MORE, total)
        while True:
            found = [(name, round(score, 6) + 0.0) for name, score in self._nearest(vector, depth, among) if name in self._chunks]
            found.sort(key=lambda pair: (-pair[1], chunk_order(self._chunks[pair[0]])))
            if depth == total or len(found) < depth or found[-1][1] < found[k - 1][1]:
                return found[:k]
            depth = min(4 * depth, total)


def stored_space(settings: Mapping[str, Any] | None) -> Any:
    """库的说明里记的空间；没有就不是我们建的。"""
    return (settings or {}).get("space")


def batches(count: int, size: int) -> Iterable[slice]:
    """0 到 count，每 size 个一段。"""
    return (slice(start, start + size) for start in range(0, count, size))
