"""Milvus：本机一个文件（Milvus Lite），或一个集群；换过去只改一个地址。"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray
from rag_lessons.paths import as_path
from rag_lessons.stores.base import NAME, Store, batches, from_json, load, stored_space, to_json
from rag_lessons.types import Chunk, RagLessonsError

PAGE = 10_000
MOST_BYTES = 65_535         # VARCHAR 的上限
MOST_K = 16_384             # 一次检索最多要几条


_users: Counter[str] = Counter()      # 每个文件，这个程序里有几个人开着


def stop_lite(path: str | os.PathLike[str]) -> None:
    """停下一个文件上的 Milvus Lite。它是这个进程里的一个服务，MilvusClient.close() 只断开连接，不停它。"""
    load("milvus_lite.server_manager", "milvus-lite").server_manager_instance.release_server(str(path))


class MilvusStore(Store):
    """Milvus。

    参数
    ----
    uri : 一个文件名（Milvus Lite，Windows 上没有），或集群的地址，例如 ``http://localhost:19530``。
    token : 集群的 ``用户:密码`` 或密钥；没有就不写。
    kind : "flat" 精确（默认），"hnsw" 近似；Milvus Lite 里数据少，用 flat。

    COSINE 在它那里是越高越近，与这里相同。一块连同 metadata 写成 JSON 后超过 65,535 字节时存不进去，会报错。
    """

    title = " Milvus "

    def __init__(self, embedder: Embedder, uri: str | os.PathLike[str], token: str = "", kind: str = "flat") -> None:
        if kind not in ("flat", "hnsw"):
            raise RagLessonsError(f"kind 只能是 flat、hnsw，收到 {kind!r}。")
        remote = isinstance(uri, str) and "://" in uri
        if not remote and sys.platform == "win32":
            raise RagLessonsError("Milvus Lite 没有 Windows 版；请用 Linux、macOS，或写一个集群的地址。")
        self.uri = uri if remote else str(as_path(uri).absolute())
        self._remote, self._token, self.kind, self.exact = remote, token, kind, kind == "flat"
        super().__init__(embedder)

    def _connect(self) -> None:
        module = load("pymilvus", "pymilvus")
        if not self._remote:
            load("milvus_lite", "milvus-lite")
            as_path(self.uri).parent.mkdir(parents=True, exist_ok=True)
            _users[self.uri] += 1
            self._closers.callback(self._release)
        logging.getLogger("pymilvus.client.iterator.query_iterator").setLevel(logging.ERROR)      # Milvus Lite 没有它要的时间戳，每次都警告
        self._client = module.MilvusClient(self.uri, token=self._token)
        self._closers.callback(self._client.close)
        if not self._client.has_collection(NAME):
            kinds, schema = module.DataType, module.MilvusClient.create_schema()
            schema.add_field("id", kinds.VARCHAR, is_primary=True, max_length=64)
            schema.add_field("chunk", kinds.VARCHAR, max_length=MOST_BYTES)
            schema.add_field("vector", kinds.FLOAT_VECTOR, dim=self.embedder.dim)
            index = module.MilvusClient.prepare_index_params()
            more = {"params": {"M": 32, "efConstruction": 80}} if self.kind == "hnsw" else {}
            index.add_index("vector", index_type=self.kind.upper(), metric_type="COSINE", **more)
            settings = {"space": self.space}        # description 也能放，但 Milvus Lite 不存它
            self._client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong", properties=settings)
        self._check_stored(stored_space(self._client.describe_collection(NAME)["properties"]))
        self._client.load_collection(NAME)

    def _release(self) -> None:
        _users[self.uri] -= 1
        if not _users[self.uri]:
            del _users[self.uri]
            stop_lite(self.uri)

    def _stored(self) -> Iterable[Chunk]:
        pages = self._client.query_iterator(NAME, filter='id != ""', output_fields=["chunk"], batch_size=PAGE)
        while rows := pages.next():
            yield from (from_json(row["chunk"]) for row in rows)
        pages.close()

    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        texts = [to_json(chunk) for chunk in chunks]
        long = next((c.label for c, text in zip(chunks, texts, strict=True) if len(text) > MOST_BYTES), None)
        if long is not None:
            raise RagLessonsError(f"{long} 这一块写成 JSON 超过 {MOST_BYTES:,} 字节，Milvus 存不下；请把块切小。")
        for part in batches(len(chunks), PAGE):
            rows = [
                {"id": chunk.id, "chunk": text, "vector": vector}
                for chunk, text, vector in zip(chunks[part], texts[part], vectors[part], strict=True)
            ]
            new = not any(row["id"] in self._chunks for row in rows)
            (self._client.insert if new else self._client.upsert)(NAME, rows)       # insert 不用先找旧的，快得多

    def _remove(self, ids: Sequence[str]) -> None:
        for part in batches(len(ids), PAGE):
            self._client.delete(NAME, ids=list(ids[part]))

    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        only: dict[str, Any] = {} if among is None else {"filter": f"id in {json.dumps(list(among))}"}
        found = self._client.search(NAME, data=[vector.tolist()], limit=min(k, MOST_K), output_fields=["id"], **only)
        return [(hit["id"], hit["distance"]) for hit in found[0]]

    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        found = {}
        for part in batches(len(ids), PAGE):
            rows = self._client.get(NAME, ids=list(ids[part]), output_fields=["id", "vector"])
            found |= {row["id"]: row["vector"] for row in rows}
        return np.array([found[name] for name in ids], dtype=np.float32)
