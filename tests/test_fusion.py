"""融合：尺子、名次、按 id 认块、退化的情形、筛选在前。"""

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import (
    Chunk,
    FeedbackSearch,
    HybridSearch,
    PairReranker,
    ParentSearch,
    RagLessonsError,
    RerankSearch,
    ToyEmbedder,
    VectorIndex,
    below,
)
from rag_lessons.keyword import BM25Index
from rag_lessons.retrieval import min_max, rrf
from rag_lessons.retrieval.base import in_rank_order
from rag_lessons.types import Hit

TEXTS = [
    "安全阀在步数超出预算时停下智能体", "预算用完以后要重新申请", "DB-2024-117 号通知：五月起调整差旅标准",
    "DB-2024-171 号通知：六月起调整餐补", "年假按工龄计算，满一年有五天", "病假要交医院的证明", "报销要附发票和行程单",
    "出差住宿每晚不超过四百元", "智能体的工具在启动时登记", "日志保留九十天", "记忆分长期和短期", "路由器挑选子智能体",
]
CHUNKS = [Chunk(text, f"{i:02d}.md", 0, len(text)) for i, text in enumerate(TEXTS)]
QUERIES = ["DB-2024-117 说了什么", "差旅的标准", "智能体什么时候停下", "年假几天"]


class Fixed:
    """分数已知的检索器：真的会筛选，不足 k 条就少给。"""

    def __init__(self, scores, kind):
        self.scores, self.kind = scores, kind
        self.chunks = [chunk for chunk in CHUNKS if chunk.source[:2] in scores]

    def search(self, query, k=3, where=None):
        pairs = [(self.scores[c.source[:2]], c) for c in self.chunks if where is None or where(c)]
        pairs.sort(key=lambda pair: (-pair[0], pair[1].source))
        return [Hit(c, s, rank, {self.kind: s}) for rank, (s, c) in enumerate(pairs[:k], 1)]


def both(chunks=CHUNKS, **kwargs):
    return HybridSearch(VectorIndex.build(chunks, ToyEmbedder()), BM25Index.build(chunks), **kwargs)


def names(hits):
    return [hit.chunk.source[:2] for hit in hits]


# ---------------------------------------------------------------- 两个小函数


@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_min_max_stays_between_0_and_1_and_keeps_the_order(scores):
    scaled = min_max(scores)
    assert len(scaled) == len(scores) and all(0 <= s <= 1 for s in scaled)
    assert not scores or max(scaled) == 1
    assert all(x >= y for a, x in zip(scores, scaled, strict=True) for b, y in zip(scores, scaled, strict=True) if a > b)
    order = random.Random(0).sample(range(len(scores)), len(scores))
    assert min_max([scores[i] for i in order]) == [scaled[i] for i in order]


def test_min_max_by_hand():
    assert min_max([2, 4, 3]) == [0, 1, 0.5]
    assert min_max([4, 3], low=2) == [1, 0.5]
    assert min_max([7]) == [1] and min_max([0, 0]) == [1, 1] and min_max([]) == []


@given(st.lists(st.permutations(range(8)), max_size=4), st.integers(1, 100))
def test_rrf_is_a_sum_over_rankings_in_any_order(rankings, k):
    scores = rrf(rankings, k)
    assert scores.keys() == {name for ranking in rankings for name in ranking}
    for name in scores:
        assert scores[name] == pytest.approx(sum(1 / (k + ranking.index(name) + 1) for ranking in rankings))
    again = rrf(rankings[::-1], k)
    assert all(again[name] == pytest.approx(scores[name]) for name in scores)


def test_rrf_by_hand():
    scores = rrf([["a", "b"], ["b", "c"]])
    assert scores == {"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62}
    assert rrf([]) == {} and rrf([[], []]) == {}


# ---------------------------------------------------------------- 融合


def test_weighted_by_hand():
    dense = Fixed({"00": 0.9, "01": 0.8, "02": 0.5}, "dense")
    keyword = Fixed({"02": 10.0, "01": 5.0}, "bm25")
    hits = HybridSearch(dense, keyword).search("甲")
    assert [(n, h.score) for n, h in zip(names(hits), hits, strict=True)] == [("01", 0.65), ("00", 0.6), ("02", 0.4)]
    assert hits[0].details == {"bm25": 5.0, "dense": 0.8, "weighted": 0.65}
    assert hits[1].details == {"dense": 0.9, "weighted": 0.6}
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert names(HybridSearch(dense, keyword, alpha=0.3).search("甲")) == ["02", "01", "00"]


def test_rrf_method_by_hand():
    dense = Fixed({"00": 0.9, "01": 0.8, "02": 0.5}, "dense")
    keyword = Fixed({"02": 10.0, "01": 5.0}, "bm25")
    hits = HybridSearch(dense, keyword, method="rrf").search("甲")
    assert names(hits) == ["02", "01", "00"]
    assert [h.score for h in hits] == [round(1 / 61 + 1 / 63, 6), round(2 / 62, 6), round(1 / 61, 6)]
    assert hits[1].details == {"bm25": 5.0, "dense": 0.8, "rrf": hits[1].score}
    assert HybridSearch(dense, keyword, method="rrf", rrf_k=1).search("甲")[0].score == 0.75


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_both_raw_scores_also_for_what_one_side_did_not_rank(method):
    """每路只取一条：没取到的那条，另一路的原始分数照样在。"""
    search = both(method=method, candidates=1)
    for query in QUERIES:
        for hit in search.search(query, k=1):
            (dense,) = (h for h in search.dense.search(query, 99) if h.chunk == hit.chunk)
            keyword = {h.chunk: h.score for h in search.keyword.search(query, 99)}
            assert hit.details["dense"] == pytest.approx(dense.score, abs=2e-6)
            assert hit.details.get("bm25") == keyword.get(hit.chunk)


def test_what_only_the_vectors_ranked_gets_its_keyword_score():
    search = HybridSearch(Fixed({"00": 0.9, "01": 0.2}, "dense"), Fixed({"01": 10.0, "00": 8.0}, "bm25"), candidates=1)
    (hit,) = search.search("甲", 1)
    assert hit.details == {"bm25": 8.0, "dense": 0.9, "weighted": hit.score} and hit.chunk == CHUNKS[0]


@pytest.mark.parametrize("method", ["weighted", "rrf"])
@given(seed=st.integers(0, 10_000))
def test_the_order_of_the_corpus_does_not_matter(method, seed):
    """每路各自打乱：按 id 认块，不按它在列表里的位置。"""
    shuffle = random.Random(seed)
    one = VectorIndex.build(shuffle.sample(CHUNKS, len(CHUNKS)), ToyEmbedder())
    two = BM25Index.build(shuffle.sample(CHUNKS, len(CHUNKS)))
    mixed, plain = HybridSearch(one, two, method=method), both(method=method)
    for query in QUERIES:
        assert mixed.search(query, 12) == plain.search(query, 12)


def test_each_side_may_hold_other_chunks():
    """两路的块不完全一样，序号对不上：仍然按 id。"""
    search = HybridSearch(VectorIndex.build(CHUNKS[2:], ToyEmbedder()), BM25Index.build(CHUNKS[:6]))
    assert names(search.search("DB-2024-117", 1)) == ["02"]
    assert [h.details.get("bm25") for h in search.search("智能体", 12) if h.chunk == CHUNKS[9]] == [None]
    assert CHUNKS[1] in [h.chunk for h in search.search("预算用完", 12)]
    assert len(search.chunks) == 12


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_one_side_empty_leaves_the_other_unchanged(method):
    search = both(method=method)
    assert search.search("？！", 5) == search.dense.search("？！", 5)
    assert search.search("xyz qwerty", 5) == search.dense.search("xyz qwerty", 5)
    nothing = HybridSearch(Fixed({}, "dense"), search.keyword, method=method)
    assert nothing.search("差旅", 2) == search.keyword.search("差旅", 2)
    assert HybridSearch(Fixed({}, "dense"), Fixed({}, "bm25"), method=method).search("差旅") == []


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_equal_scores_fall_back_on_the_order_of_chunks(method):
    same = Fixed(dict.fromkeys(["03", "01", "02"], 0.5), "dense")
    hits = HybridSearch(same, Fixed(dict.fromkeys(["02", "03", "01"], 2.0), "bm25"), method=method).search("甲")
    assert names(hits) == ["01", "02", "03"]
    crossed = HybridSearch(Fixed({"03": 0.9, "01": 0.5}, "dense"), Fixed({"01": 4.0}, "bm25"), alpha=0.5).search("甲")
    assert [(n, h.score) for n, h in zip(names(crossed), crossed, strict=True)] == [("01", 0.5), ("03", 0.5)]
    single = HybridSearch(Fixed({"04": 0.3}, "dense"), Fixed({"04": 9.0}, "bm25"), method=method).search("甲")
    assert names(single) == ["04"] and np.isfinite(single[0].score)


def test_a_single_keyword_hit_counts_in_full():
    """关键词只找到一块：它是 1，不是 0。"""
    search = HybridSearch(Fixed({"00": 0.90, "01": 0.89, "02": 0.7}, "dense"), Fixed({"01": 3.0}, "bm25"))
    assert names(search.search("甲")) == ["01", "00", "02"]


def test_zero_lies_at_the_farthest_chunk_not_at_the_last_candidate():
    """候选取几条，不改变前几名的分数。"""
    narrow, wide = both(candidates=3), both(candidates=12)
    for query in QUERIES:
        few = {h.chunk.id: h.score for h in narrow.search(query)}
        all_of_them = {h.chunk.id: h.score for h in wide.search(query, 12)}
        assert all(score == pytest.approx(all_of_them[name], abs=2e-6) for name, score in few.items())


def test_alpha_at_the_ends_is_one_side_alone():
    search = both()
    for query in QUERIES:
        assert both(alpha=1).search(query, 5) == search.dense.search(query, 5)
        assert both(alpha=0).search(query, 5) == search.keyword.search(query, 5)


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_filter_before_top_k(method):
    search = both(method=method, candidates=1)
    allowed = {"09.md", "10.md"}
    hits = search.search("DB-2024-117", 2, where=lambda chunk: chunk.source in allowed)
    assert {h.chunk.source for h in hits} == allowed
    assert search.search("DB-2024-117", 2, where=lambda chunk: False) == []


def test_k_beyond_candidates_and_beyond_the_corpus():
    assert len(both(candidates=1).search("差旅", 8)) == 8
    assert len(both().search("差旅", 99)) == 12


def test_same_in_every_process():
    code = ("from tests.test_fusion import both, QUERIES\n"
            "print([[(h.chunk.id, h.score) for m in ('weighted', 'rrf') for h in both(method=m).search(q, 12)] for q in QUERIES])")
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8", cwd=sys.path[0] or ".",
                           env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".:tests", "PATH": "", "PYTHONIOENCODING": "utf-8"}).stdout
            for seed in ("0", "1", "77")}
    assert len(runs) == 1


@pytest.mark.parametrize("kwargs", [
    {"method": "sum"}, {"method": None}, {"method": []}, {"alpha": 1.2}, {"alpha": -0.1}, {"alpha": "a"}, {"alpha": float("nan")},
    {"candidates": 0}, {"candidates": 2.5}, {"candidates": True}, {"rrf_k": 0}, {"rrf_k": -1}, {"rrf_k": float("inf")},
])
def test_odd_settings(kwargs):
    with pytest.raises(RagLessonsError):
        both(**kwargs)


def test_odd_arguments():
    search = both()
    for k in (0, -1, 1.5, None, True):
        with pytest.raises(RagLessonsError, match="k "):
            search.search("差旅", k)
    for query in ("", " ", "\u200b", None, 3):
        with pytest.raises(RagLessonsError, match="问题"):
            search.search(query)
    with pytest.raises(RagLessonsError, match="where"):
        search.search("差旅", where="02.md")
    for wrong in (None, [], VectorIndex, CHUNKS):
        with pytest.raises(RagLessonsError, match="search"):
            HybridSearch(wrong, search.keyword)


class NoWhere:
    def __init__(self, inner):
        self.inner = inner

    def search(self, query, k):
        return self.inner.search(query, k)


def test_a_searcher_without_where_is_not_filtered_afterwards():
    search = HybridSearch(NoWhere(both().dense), both().keyword)
    assert len(search.search("差旅", 3)) == 3
    with pytest.raises(RagLessonsError, match="NoWhere 的 search 不收 where"):
        search.search("差旅", 3, where=lambda chunk: True)


class Sloppy:
    """交出来的结果重复、太多、名次乱写的检索器。"""

    def search(self, query, k=3):
        hits = both().search(query, 6)
        return (Hit(hit.chunk, hit.score, 99) for hit in [*hits, *hits])


@pytest.mark.parametrize("outer", [
    lambda inner: HybridSearch(inner, BM25Index.build(CHUNKS)), lambda inner: HybridSearch(inner, BM25Index.build(CHUNKS), "rrf"),
    lambda inner: HybridSearch(inner, BM25Index.build(CHUNKS), alpha=1), lambda inner: RerankSearch(inner, PairReranker(lambda p: [0.5] * len(p))),
    lambda inner: ParentSearch(inner, CHUNKS),
])
def test_sloppy_results_are_put_in_order(outer):
    hits = outer(Sloppy()).search("年假几天", 3)
    assert [hit.rank for hit in hits] == [1, 2, 3] and len(set(names(hits))) == 3


def test_a_set_has_no_order():
    with pytest.raises(RagLessonsError, match="Hit 的列表"):
        below(0.5)(set(both().search("年假几天")))


@pytest.mark.parametrize("value", [None, "高", float("nan")])
def test_a_raw_score_that_is_no_number_is_not_compared(value):
    with pytest.raises(RagLessonsError, match="details 里的 dense"):
        below(0.5)([Hit(CHUNKS[0], 0.9, 1, {"dense": value})])


def test_an_rrf_k_so_large_that_all_ranks_tie_is_refused():
    with pytest.raises(RagLessonsError, match="不超过 1000"):
        both(method="rrf", rrf_k=1e6)


def test_equal_scores_keep_the_order_of_the_chunks():
    """同一处开始、长短不同的块（两种切法放在一起），分数一样时短的在前，与索引里的次序一致。"""
    chunks = [Chunk("甲" * n, "a.md", 0, n) for n in range(1, 9)]
    hits = [Hit(chunk, 0.5, rank) for rank, chunk in enumerate(reversed(chunks), 1)]
    assert [hit.chunk for hit in in_rank_order(hits)] == VectorIndex.build(chunks, ToyEmbedder()).chunks


class Plain:
    """返回列表、长度不是 1 的嵌入器。"""

    space, dim = "plain", 2

    def embed_documents(self, texts):
        return [[3.0, 4.0] if "年假" in text else [4.0, 3.0] for text in texts]

    def embed_query(self, text):
        return [30.0, 40.0]


def test_an_embedder_that_returns_lists_works_everywhere():
    index = VectorIndex.build(CHUNKS, Plain())
    plain = {hit.chunk.id: hit.score for hit in index.search("年假", 9)}
    mixed = HybridSearch(index, BM25Index.build(CHUNKS), candidates=2).search("差旅的标准", 4)
    assert all(hit.details["dense"] == plain[hit.chunk.id] for hit in mixed)
    assert FeedbackSearch(index).search("年假", 1)[0].details["dense"] == 1.0
