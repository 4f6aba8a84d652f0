"""Chroma：嵌在 Python 里的向量库；存在文件夹里，用 HNSW 检索。"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray
from rag_lessons.paths import as_path
from rag_lessons.stores.base import NAME, Store, batches, from_json, load, stored_space, to_json
from rag_lessons.types import Chunk

PAGE = 5000
EFFORT = 100                # HNSW 检索时找多宽；条数不超过它时等于全部比一遍


class ChromaStore(Store):
    """Chroma。

    参数
    ----
    path : 文件夹；不写就只在内存里。

    它给的是距离，默认还是 L2 的平方（0 到 4，越小越近）；这里建库时定为余弦距离（0 到 2），再换成余弦：1 - 距离。
    """

    title = " Chroma "
    exact = False

    def __init__(self, embedder: Embedder, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else as_path(path)
        super().__init__(embedder)

    def _connect(self) -> None:
        chromadb = load("chromadb", "chromadb")
        settings = chromadb.Settings(anonymized_telemetry=False)
        if self.path is None:
            # 一个进程里的内存库是共用的，所以各用各的名字，关上时删掉
            client, name = chromadb.EphemeralClient(settings=settings), f"{NAME}-{uuid.uuid4().hex}"
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            client, name = chromadb.PersistentClient(str(self.path), settings=settings), NAME
        self._closers.callback(client.close)
        self._table = client.get_or_create_collection(
            name, embedding_function=None, metadata={"space": self.space},
            configuration={"hnsw": {"space": "cosine", "ef_search": EFFORT, "ef_construction": EFFORT}},
        )  # fmt: skip
        if self.path is None:
            self._closers.callback(client.delete_collection, name)
        self._check_stored(stored_space(self._table.metadata))
        self._most = client.get_max_batch_size()

    def _stored(self) -> Iterable[Chunk]:
        for part in batches(self._table.count(), PAGE):
            yield from map(from_json, self._table.get(limit=PAGE, offset=part.start, include=["documents"])["documents"])

    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        for part in batches(len(chunks), self._most):
            self._table.upsert(
                ids=[chunk.id for chunk in chunks[part]], embeddings=vectors[part], documents=[to_json(c) for c in chunks[part]]
            )

    def _remove(self, ids: Sequence[str]) -> None:
        for part in batches(len(ids), self._most):
            self._table.delete(ids=list(ids[part]))

    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        only = {} if among is None else {"ids": list(among)}
        found = self._table.query(query_embeddings=vector[None], n_results=k, include=["distances"], **only)
        return [(name, 1 - distance) for name, distance in zip(found["ids"][0], found["distances"][0], strict=True)]

    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        found: dict[str, FloatArray] = {}
        for part in batches(len(ids), PAGE):
            got = self._table.get(ids=list(ids[part]), include=["embeddings"])
            found |= zip(got["ids"], got["embeddings"], strict=True)
        return np.stack([found[name] for name in ids]).astype(np.float32)
