"""Qdrant：一个向量库服务；本机的小库可以不要服务，直接开在 Python 里。"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray
from rag_lessons.paths import as_path
from rag_lessons.stores.base import NAME, Store, batches, from_json, load, stored_space, to_json
from rag_lessons.types import Chunk, RagLessonsError

PAGE = 2000


class QdrantStore(Store):
    """Qdrant。

    参数
    ----
    path : 文件夹，开在 Python 里；path 和 url 都不写就只在内存里。
    url : 一个 Qdrant 服务，例如 ``http://localhost:6333``；其余代码不变。那时检索走 HNSW，不再是精确的。
    api_key : 服务的密钥；没有就不写。

    它的余弦本来就是越高越近，不用换算。点的编号只能是整数或 UUID，所以由块的 id 算出一个 UUID。
    """

    title = " Qdrant "

    def __init__(
        self, embedder: Embedder, path: str | os.PathLike[str] | None = None, url: str | None = None, api_key: str | None = None
    ) -> None:
        if path is not None and url is not None:
            raise RagLessonsError("path 和 url 只能写一个：path 是本机的文件夹，url 是服务的地址。")
        self.path, self.url, self._key = None if path is None else as_path(path), url, api_key
        self.exact = url is None
        super().__init__(embedder)

    def _connect(self) -> None:
        module = load("qdrant_client", "qdrant-client")
        self._models = models = module.models
        if self.url is not None:
            self._client = module.QdrantClient(url=self.url, api_key=self._key)
        elif self.path is not None:
            try:
                with quiet():
                    self._client = module.QdrantClient(path=str(self.path))
            except RuntimeError:
                raise RagLessonsError(f"{self.path} 正被另一个程序（或另一格代码）打开；请先在那里 close()。") from None
        else:
            self._client = module.QdrantClient(":memory:")
        self._closers.callback(self._client.close)
        if not self._client.collection_exists(NAME):
            size = models.VectorParams(size=self.embedder.dim, distance=models.Distance.COSINE)
            self._client.create_collection(NAME, vectors_config=size, metadata={"space": self.space})
        self._check_stored(stored_space(self._client.get_collection(NAME).config.metadata))

    def _stored(self) -> Iterable[Chunk]:
        offset = None
        while True:
            points, offset = self._client.scroll(NAME, limit=PAGE, offset=offset, with_payload=True)
            yield from (from_json(point.payload["chunk"]) for point in points)
            if offset is None:
                return

    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        texts = [to_json(chunk) for chunk in chunks]
        with quiet(), self._one_commit():
            for part in batches(len(chunks), PAGE):
                points = self._models.Batch(
                    ids=[_point(chunk.id) for chunk in chunks[part]],
                    vectors=vectors[part].tolist(),
                    payloads=[{"id": c.id, "chunk": text} for c, text in zip(chunks[part], texts[part], strict=True)],
                )
                self._client.upsert(NAME, points, wait=True)

    def _remove(self, ids: Sequence[str]) -> None:
        with self._one_commit():
            self._client.delete(NAME, self._models.PointIdsList(points=[_point(name) for name in ids]), wait=True)

    @contextlib.contextmanager
    def _one_commit(self) -> Iterator[None]:
        """开在文件夹里的，它每写一个点就提交一次，两万个点要等两万次磁盘；这里合成一次，要么全写进去，要么全没写。"""
        try:
            storage = self._client._client.collections[NAME].storage
            connection = storage.storage
        except AttributeError:                  # 服务，或只在内存里
            yield
            return
        storage.storage = _Uncommitted(connection)
        try:
            with connection:
                yield
        finally:
            storage.storage = connection

    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        models, only = self._models, None
        if among is not None:
            only = models.Filter(must=[models.HasIdCondition(has_id=[_point(name) for name in among])])
        found = self._client.query_points(NAME, query=vector.tolist(), limit=k, query_filter=only, with_payload=["id"])
        return [(point.payload["id"], point.score) for point in found.points]

    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        points = self._client.retrieve(NAME, [_point(name) for name in ids], with_vectors=True, with_payload=["id"])
        found = {point.payload["id"]: point.vector for point in points}
        return np.array([found[name] for name in ids], dtype=np.float32)


class _Uncommitted:
    """一个 SQLite 连接，``with`` 完了不提交。"""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute, self.cursor, self.close = connection.execute, connection.cursor, connection.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """两万条以上，它会劝你换成服务；什么时候该换，是第 A1 课的事。"""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Local mode is not recommended")
        yield


def _point(name: str) -> str:
    return str(uuid.UUID(hex=name.zfill(32)))
