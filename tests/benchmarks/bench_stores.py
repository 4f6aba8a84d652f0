"""五家向量库和 VectorIndex 并排：写入、打开、检索一次要多久，前十名找对几成。

    python tests/benchmarks/bench_stores.py [条数]

向量是随机的，维数 384，条数默认 10,000：比的是各家的开销；漏多少要看自己的数据（附录 A1）。
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from timing import best

from rag_lessons import Chunk, VectorIndex
from rag_lessons.embedding.base import BaseEmbedder, FloatArray
from rag_lessons.stores import (
    ChromaStore,
    FaissStore,
    MilvusStore,
    PgvectorStore,
    QdrantStore,
    Store,
    available,
)

DIM, K, QUERIES = 384, 10, 20


class Numbered(BaseEmbedder):
    """文字是编号，向量是那一行。"""

    space, dim = f"bench/numbered/{DIM}", DIM

    def __init__(self, vectors: FloatArray) -> None:
        self.vectors = vectors

    def _encode(self, texts: Sequence[str], role: str) -> FloatArray:
        return self.vectors[[int(text) for text in texts]]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    vectors = np.random.default_rng(0).standard_normal((count, DIM), dtype=np.float32)
    embedder = Numbered(vectors)
    chunks = [Chunk(str(n), f"{n // 1000:04}.md", 10 * (n % 1000), 10 * (n % 1000) + len(str(n))) for n in range(count)]
    start = time.perf_counter()
    index = VectorIndex.build(chunks, embedder)
    built = time.perf_counter() - start
    targets = vectors[:: count // QUERIES][:QUERIES] + np.float32(0.5)
    truth = [{hit.chunk.id for hit in index.search_vector(v, K)} for v in targets]
    base = best(lambda: [index.search_vector(v, K) for v in targets], 3) / len(targets)
    print(f"{count:,} x {DIM}，k={K}；检索取三次里最快的")
    print(f"  {'VectorIndex':<16}写入 {built:7.2f} 秒   {'':<15}检索 {1000 * base:8.2f} 毫秒   它 / 我们 =   1.00   找对 100 %")
    missing = available()
    with tempfile.TemporaryDirectory(prefix="bench ") as folder:
        makers: dict[str, Callable[[], Store]] = {
            "FAISS": lambda: FaissStore(embedder, Path(folder, "flat.faiss")),
            "FAISS hnsw": lambda: FaissStore(embedder, Path(folder, "hnsw.faiss"), kind="hnsw"),
            "FAISS ivf": lambda: FaissStore(embedder, Path(folder, "ivf.faiss"), kind="ivf"),
            "Chroma": lambda: ChromaStore(embedder, Path(folder, "chroma")),
            "Qdrant": lambda: QdrantStore(embedder, Path(folder, "qdrant")),
            "Milvus": lambda: MilvusStore(embedder, Path(folder, "milvus.db")),
            "pgvector": lambda: PgvectorStore(embedder, Path(folder, "pg")),
            "pgvector hnsw": lambda: PgvectorStore(embedder, Path(folder, "pg"), kind="hnsw", table="graph"),
        }
        for name, make in makers.items():
            if missing[name.split()[0]]:
                print(f"  {missing[name.split()[0]]}")
                continue
            start = time.perf_counter()
            with make() as store:
                store.upsert(chunks)
            wrote, start = time.perf_counter() - start, time.perf_counter()
            with make() as store:
                opened = time.perf_counter() - start
                found = [{hit.chunk.id for hit in store.search_vector(v, K)} for v in targets]
                seconds = best(lambda store=store: [store.search_vector(v, K) for v in targets], 3) / len(targets)
            right = sum(len(a & b) for a, b in zip(found, truth, strict=True)) / (K * len(targets))
            print(f"  {name:<16}写入 {wrote:7.2f} 秒   再打开 {opened:6.2f} 秒   检索 {1000 * seconds:8.2f} 毫秒"
                  f"   它 / 我们 = {seconds / base:6.2f}   找对 {100 * right:.0f} %", flush=True)


if __name__ == "__main__":
    main()
