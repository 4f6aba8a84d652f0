"""VectorIndex.search_vector 对 FAISS IndexFlatIP 和逐行点积：100,000 x 384，k=10，结果须一致。"""

from __future__ import annotations

import faiss
import numpy as np
from threadpoolctl import threadpool_info
from timing import best

from rag_lessons import Chunk, VectorIndex
from rag_lessons.embedding.base import BaseEmbedder

COUNT, DIM, K, ROUNDS = 100_000, 384, 10, 30


class Given(BaseEmbedder):
    """向量已经有了，只借它的名字。"""

    space, dim = "bench/random/384", DIM


def main() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((COUNT, DIM), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[123] + 0.05 * rng.standard_normal(DIM, dtype=np.float32)
    query /= np.linalg.norm(query)
    chunks = [Chunk("x", f"{i:06d}", 0, 1) for i in range(COUNT)]
    index = VectorIndex(chunks, vectors, Given(), Given.space)
    threads = max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    faiss.omp_set_num_threads(threads)
    flat = faiss.IndexFlatIP(DIM)
    flat.add(vectors)

    ours = [int(hit.chunk.source) for hit in index.search_vector(query, K)]
    theirs = flat.search(query[None], K)[1][0].tolist()
    assert ours == theirs, (ours, theirs)

    t_ours = best(lambda: index.search_vector(query, K), ROUNDS)
    t_faiss = best(lambda: flat.search(query[None], K), ROUNDS)
    t_loop = best(lambda: sorted(((float(v @ query), i) for i, v in enumerate(vectors)), reverse=True)[:K], 3)
    print(f"检索 {COUNT:,} x {DIM}，k={K}，{threads} 线程，取最快一次")
    for name, seconds, bar in [("VectorIndex", t_ours, ""), ("FAISS IndexFlatIP", t_faiss, "目标：不慢于它"),
                               ("逐行点积", t_loop, "目标：快 15 倍以上")]:
        print(f"  {name:<20}{seconds * 1000:9.2f} 毫秒   它 / 我们 = {seconds / t_ours:6.2f}   {bar}")


if __name__ == "__main__":
    main()
