"""FAISS：一个检索库，不是数据库：它只管向量，块由我们自己存在旁边。"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray
from rag_lessons.index import cosine_top_k, written_beside
from rag_lessons.paths import as_path
from rag_lessons.stores.base import Store, from_json, load, stored_space, to_json
from rag_lessons.types import Chunk, RagLessonsError

KINDS = ("flat", "hnsw", "ivf")
LINKS = 32                  # HNSW 里每个点连几条边
BUILD_EFFORT = 80           # 建 HNSW 时找多宽
EFFORT = {"flat": 0, "hnsw": 64, "ivf": 8}
SEED = 1234


class FaissStore(Store):
    """FAISS。

    参数
    ----
    path : 一个文件，每次写入后整个重写在旁边再换名；不写就只在内存里。
    kind : "flat" 全部比一遍（精确），"hnsw" 走一张近邻图，"ivf" 先分成约 √n 堆，只看最近的几堆。

    只在筛剩下的块里找时（``where``），总是精确的。属性 ``effort`` 是检索时找多宽：HNSW 的 efSearch（默认 64），IVF 看几堆（默认 8）；越大越准，越慢。
    HNSW 和 IVF 删不了单独一行，所以改动时整个重建。
    """

    title = " FAISS "

    def __init__(self, embedder: Embedder, path: str | os.PathLike[str] | None = None, kind: str = "flat") -> None:
        if kind not in KINDS:
            raise RagLessonsError(f"kind 只能是 {'、'.join(KINDS)}，收到 {kind!r}。")
        self.kind, self.effort, self.exact = kind, EFFORT[kind], kind == "flat"
        self.path = None if path is None else as_path(path)
        super().__init__(embedder)

    def _connect(self) -> None:
        self._faiss = load("faiss", "faiss-cpu")
        self._ids: list[str] = []
        self._matrix = np.zeros((0, self.embedder.dim), dtype=np.float32)
        self._texts: list[str] = []
        if self.path is not None and self.path.exists():
            self._matrix, settings = _read(self.path, self._faiss)
            self._check_stored(stored_space(settings))
            self._texts = settings["chunks"]
        self._rebuild()

    def _stored(self) -> Iterable[Chunk]:
        chunks = [from_json(text) for text in self._texts]
        self._ids = [chunk.id for chunk in chunks]
        return chunks

    def _rebuild(self) -> None:
        """从矩阵重建索引。"""
        faiss, dim = self._faiss, self.embedder.dim
        if self.kind == "hnsw":
            self._index = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = BUILD_EFFORT
        elif self.kind == "ivf" and len(self._matrix):
            lists = max(1, round(len(self._matrix) ** 0.5))
            self._index = faiss.index_factory(dim, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
            self._index.cp.seed, self._index.cp.min_points_per_centroid = SEED, 1
            self._index.train(self._matrix)
        else:
            self._index = faiss.IndexFlatIP(dim)
        if len(self._matrix):
            self._index.add(self._matrix)

    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        changed = {chunk.id for chunk in chunks} & set(self._ids)
        keep = [i for i, name in enumerate(self._ids) if name not in changed]
        texts = [*(self._texts[i] for i in keep), *(to_json(chunk) for chunk in chunks)]
        ids = [*(self._ids[i] for i in keep), *(chunk.id for chunk in chunks)]
        self._replace(ids, texts, np.concatenate([self._matrix[keep], vectors]))

    def _remove(self, ids: Sequence[str]) -> None:
        gone = set(ids)
        keep = [i for i, name in enumerate(self._ids) if name not in gone]
        self._replace([self._ids[i] for i in keep], [self._texts[i] for i in keep], self._matrix[keep])

    def _replace(self, ids: list[str], texts: list[str], matrix: FloatArray) -> None:
        if self.path is not None:
            _save(self.path, matrix, {"space": self.space, "chunks": texts}, self._faiss)
        self._ids, self._texts, self._matrix = ids, texts, np.ascontiguousarray(matrix)
        self._rebuild()

    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        faiss, options = self._faiss, {}
        if among is not None:
            row = {name: i for i, name in enumerate(self._ids)}
            allowed = np.array([row[name] for name in among], dtype=np.int64)
            if self.kind != "flat":     # 图上走不到、堆里看不到的，筛选以后会少给；筛剩下的直接全比一遍
                best = cosine_top_k(self._matrix[allowed], vector, k)
                return [(among[i], score) for i, score in best]
            options["sel"] = faiss.IDSelectorBatch(allowed)
        if self.kind == "hnsw":
            parameters = faiss.SearchParametersHNSW(efSearch=max(self.effort, k), **options)
        elif self.kind == "ivf":
            parameters = faiss.SearchParametersIVF(nprobe=self.effort, **options)
        else:
            parameters = faiss.SearchParameters(**options)
        scores, rows = self._index.search(vector[None], k, params=parameters)
        return [(self._ids[i], float(s)) for i, s in zip(rows[0], scores[0], strict=True) if i >= 0]

    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        row = {name: i for i, name in enumerate(self._ids)}
        return self._matrix[[row[name] for name in ids]]


def _save(path: Path, matrix: FloatArray, settings: dict[str, Any], faiss: Any) -> None:
    """一个压缩包：FAISS 自己格式的向量，和块。"""
    flat = faiss.IndexFlatIP(matrix.shape[1])
    if len(matrix):
        flat.add(np.ascontiguousarray(matrix))
    with written_beside(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("chunks.json", json.dumps(settings))
        archive.writestr("vectors.faiss", faiss.serialize_index(flat).tobytes())


def _read(path: Path, faiss: Any) -> tuple[FloatArray, dict[str, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            settings = json.loads(archive.read("chunks.json"))
            flat = faiss.deserialize_index(np.frombuffer(archive.read("vectors.faiss"), dtype=np.uint8))
        matrix = flat.reconstruct_n(0, flat.ntotal) if flat.ntotal else np.zeros((0, flat.d), np.float32)
        if flat.ntotal != len(settings["chunks"]):
            raise KeyError
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, RuntimeError, EOFError, OSError):
        raise RagLessonsError(f"{path.name} 不是完整的 FAISS 库文件；请删掉它，再 upsert 一次。") from None
    return matrix, settings
