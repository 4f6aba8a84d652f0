"""融合：把向量检索和关键词检索的结果合成一份名次。

两路的分数不是一把尺子：余弦挤在 0.8 上下，BM25 可以是 3，也可以是 30。直接相加，大的那路说了算。
两种办法：各自拉到 0 到 1 再加权（min_max），或者只看名次（rrf）。同一块按 id 认，不按它在列表里的位置。
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from rag_lessons.index import Where
from rag_lessons.retrieval.base import (
    Asked,
    Searcher,
    all_chunks,
    by_id,
    check_search,
    check_searcher,
    in_rank_order,
    takes_where,
)
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_number, check_whole

METHODS = ("weighted", "rrf")
MOST_RRF_K = 1000


def min_max(scores: Sequence[float], low: float | None = None) -> list[float]:
    """一组分数拉到 0 到 1：最高的是 1，low 是 0；全都相等时都是 1。

    low 不写时取这一组里最低的；写的话，不能高于最低的。

    >>> min_max([0.8, 0.9, 0.82])
    [0.0, 1.0, 0.2]
    >>> min_max([4.0, 3.0], low=0)
    [1.0, 0.75]
    >>> min_max([3.0, 3.0]), min_max([])
    ([1.0, 1.0], [])
    """
    low = min(scores, default=0) if low is None else low
    high = max(scores, default=0)
    if high <= low:
        return [1.0] * len(scores)
    return [round((score - low) / (high - low), 6) for score in scores]


def rrf(rankings: Sequence[Sequence[Hashable]], k: float = 60) -> dict[Hashable, float]:
    """倒数名次融合（reciprocal rank fusion）：每份名次里排第 r，得 1 / (k + r) 分，几份相加。

    只看名次，不看分数，所以不用管尺子；代价是“遥遥领先”和“险胜”没有区别。k 越大，前几名之间差得越少。
    Cormack 等, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods, SIGIR 2009。

    >>> {name: round(score, 4) for name, score in rrf([["甲", "乙"], ["乙", "丙"]]).items()}
    {'甲': 0.0164, '乙': 0.0325, '丙': 0.0161}
    """
    scores = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, 1):
            scores[name] = scores.get(name, 0) + 1 / (k + rank)
    return scores


class HybridSearch:
    """向量检索加关键词检索。

    参数
    ----
    dense, keyword : 两个检索器，通常是 VectorIndex 和 BM25Index。
    method : "weighted" 按分数加权（默认），或 "rrf" 按名次。
    alpha : 加权时向量那路的份量，0 到 1；关键词是 1 - alpha。1 就是只用向量，0 只用关键词。
    candidates : 每路各取多少条来融合；k 比它大时取 k 条。
    rrf_k : RRF 的 k，正数。

    结果的 ``score`` 是融合后的分数，换一个问题就不能比，拒答不要看它；两路的原始分数在
    ``details["dense"]``、``details["bm25"]`` 里，只被一路找到的块，另一路的分数会补上
    （关键词一个也没有的，没有 "bm25"）。一路什么也没找到时，原样返回另一路的结果。

    >>> from rag_lessons.index import VectorIndex
    >>> from rag_lessons.keyword import BM25Index
    >>> from rag_lessons.embedding.toy import ToyEmbedder
    >>> chunks = [Chunk("年假有五天", "a.md", 0, 5), Chunk("报销要发票", "b.md", 0, 5)]
    >>> both = HybridSearch(VectorIndex.build(chunks, ToyEmbedder()), BM25Index.build(chunks))
    >>> [(hit.chunk.source, hit.score) for hit in both.search("发票报销")]
    [('b.md', 1.0), ('a.md', 0.0)]
    """

    def __init__(
        self,
        dense: Searcher,
        keyword: Searcher,
        method: str = "weighted",
        alpha: float = 0.6,
        candidates: int = 50,
        rrf_k: float = 60,
    ) -> None:
        check_searcher(dense, "dense")
        check_searcher(keyword, "keyword")
        if method not in METHODS:
            raise RagLessonsError(f"method 只能是 {' 或 '.join(METHODS)}，收到 {method!r}。")
        self.dense, self.keyword, self.method = dense, keyword, method
        self.alpha = check_number(alpha, "alpha")
        if not 0 <= self.alpha <= 1:
            raise RagLessonsError(f"alpha 要在 0 到 1 之间，收到 {alpha!r}；它是向量那路的份量。")
        self.candidates = check_whole(candidates, "candidates ", least=1)
        self.rrf_k = check_number(rrf_k, "rrf_k")
        if not 0 < self.rrf_k <= MOST_RRF_K:
            raise RagLessonsError(f"rrf_k 要是正数，不超过 {MOST_RRF_K}，收到 {rrf_k!r}；常用 60，太大时前后名次分不出高下。")

    @property
    def chunks(self) -> list[Chunk]:
        """两路的全部块。"""
        return all_chunks(self.dense, self.keyword)

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → 融合后的前 k 块。where 在取前 k 之前交给两路。"""
        k = check_search(query, k, where)
        if self.method == "weighted" and self.alpha in (0, 1):
            only = self.dense if self.alpha else self.keyword
            return Asked(only, query)(k, where)
        depth = max(k, self.candidates)
        ask_dense, ask_keyword = Asked(self.dense, query), Asked(self.keyword, query)
        dense, keyword = by_id(ask_dense(depth, where)), by_id(ask_keyword(depth, where))
        if not dense or not keyword:
            return list((dense or keyword).values())[:k]
        rankings = [list(dense), list(keyword)]
        if takes_where(self.dense) and takes_where(self.keyword):
            only_dense = [hit for name, hit in dense.items() if name not in keyword]
            only_keyword = [hit for name, hit in keyword.items() if name not in dense]
            dense |= ask_dense.scores_of(only_keyword)
            keyword |= ask_keyword.scores_of(only_dense)
        if self.method == "rrf":
            fused = rrf(rankings, self.rrf_k)
        else:
            fused = self._weighted(dense, keyword, ask_dense.lowest())
        return in_rank_order(self._merge(fused[i], dense.get(i), keyword.get(i)) for i in fused)[:k]

    def _weighted(self, dense: dict[str, Hit], keyword: dict[str, Hit], lowest: float | None) -> dict[str, float]:
        """两路各自拉到 0 到 1，加权相加。

        0 放在哪里要紧。放在候选里最低的那块，第 50 名就成了 0，e5 前几名之间一点点的差别被拉成天差地别，
        压过了关键词；所以放在全部块里最低的：向量是离问题最远的那块，关键词是一个词也不共有的 0 分。
        """
        fused = dict.fromkeys([*dense, *keyword], 0.0)
        for hits, weight, low in ((dense, self.alpha, lowest), (keyword, 1 - self.alpha, 0.0)):
            scores = [hit.score for hit in hits.values()]
            for name, score in zip(hits, min_max(scores, low if low is None else min([low, *scores])), strict=True):
                fused[name] += weight * score
        return fused

    def _merge(self, score: float, dense: Hit | None, keyword: Hit | None) -> Hit:
        details: dict[str, float] = {}
        for kind, hit in (("bm25", keyword), ("dense", dense)):
            details |= {} if hit is None else {kind: hit.score, **hit.details}
        return replace(dense or keyword, score=score, details={**details, self.method: round(score, 6)})
