"""重排：MaxSim、交叉编码器、去近似，和把它们套进检索器。"""

import random
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import (
    CachedEmbedder,
    Chunk,
    E5Embedder,
    HybridSearch,
    MaxSimReranker,
    MMRReranker,
    PairReranker,
    RagLessonsError,
    RerankSearch,
    ToyEmbedder,
    VectorIndex,
    mmr,
)
from rag_lessons.keyword import BM25Index
from rag_lessons.retrieval import max_sim, mmr_order
from rag_lessons.types import Hit

TEXTS = ["年假按工龄计算，满一年有五天。", "病假要交医院的证明。", "报销要附发票和行程单。", "出差住宿每晚不超过四百元。", "日志保留九十天。", "年假要提前三天申请。"]
CHUNKS = [Chunk(text, f"{i}.md", 0, len(text)) for i, text in enumerate(TEXTS)]
INDEX = VectorIndex.build(CHUNKS, ToyEmbedder())
KEYWORD = BM25Index.build(CHUNKS)


def hits_of(*scores):
    return [Hit(chunk, score, rank, {"dense": score}) for rank, (chunk, score) in enumerate(zip(CHUNKS, scores, strict=False), 1)]


def names(hits):
    return [hit.chunk.source[0] for hit in hits]


# ---------------------------------------------------------------- MaxSim


def test_max_sim_is_the_mean_of_each_query_rows_best():
    rng = np.random.default_rng(0)
    query, document = rng.standard_normal((3, 8)), rng.standard_normal((5, 8))
    slow = sum(max(float(q @ d) for d in document) for q in query) / 3
    assert max_sim(query, document) == pytest.approx(slow)
    assert max_sim(query, document[::-1]) == pytest.approx(slow)
    assert max_sim(query, np.concatenate([document, query / np.linalg.norm(query, axis=1, keepdims=True)])) >= slow


class Words:
    """每个字一个单位向量，相同的字相同；数得出算了哪些文字。"""

    def __init__(self):
        self.asked = []

    def token_vectors(self, texts, role):
        self.asked.append((role, list(texts)))
        return [np.eye(400)[[ord(c) % 400 for c in text]] for text in texts]


def test_maxsim_scores_by_hand():
    hits = MaxSimReranker(Words()).rerank("年假", hits_of(0.1, 0.9, 0.2), k=2)
    assert names(hits)[0] == "0" and hits[0].score == 1.0
    assert hits[0].details == {"dense": 0.1, "maxsim": 1.0} and [h.rank for h in hits] == [1, 2]


def test_maxsim_remembers_documents_up_to_a_bound():
    words = Words()
    reranker = MaxSimReranker(words, cache_tokens=len(TEXTS[0]) + len(TEXTS[1]))
    first = reranker.rerank("年假", hits_of(0.1, 0.9), 2)
    assert words.asked == [("query", ["年假"]), ("document", TEXTS[:2])]
    assert reranker.rerank("年假", hits_of(0.1, 0.9), 2) == first
    assert words.asked[2:] == [("query", ["年假"])]
    reranker.rerank("年假", hits_of(0, 0, 0)[2:], 1)          # 放不下了，忘掉最久没用的
    assert reranker._held <= reranker.cache_tokens and list(reranker._known) != []
    assert reranker.rerank("年假", hits_of(0.1, 0.9), 2) == first
    same = MaxSimReranker(words, cache_tokens=0)
    assert same.rerank("年假", hits_of(0.1, 0.9), 2) == first and not same._known and same._held == 0


def test_maxsim_on_e5():
    """真的 e5：与逐对计算一致，与候选的次序、缓存无关。"""
    e5 = E5Embedder()
    reranker = MaxSimReranker(CachedEmbedder(e5))
    hits = reranker.rerank("每年有几天假", hits_of(*[0.5] * 6), 6)
    (query,) = e5.token_vectors(["每年有几天假"], "query")
    assert len(query) == len(e5.tokenize("每年有几天假"))
    for hit in hits:
        (document,) = e5.token_vectors([hit.chunk.text], "document")
        assert hit.score == pytest.approx(max_sim(query, document), abs=5e-6)
    assert names(hits)[0] == "0"
    again = MaxSimReranker(e5).rerank("每年有几天假", hits_of(*[0.5] * 6)[::-1], 6)
    assert names(again) == names(hits)


def test_maxsim_needs_token_vectors():
    for wrong in (ToyEmbedder(), None, E5Embedder):
        if wrong is not E5Embedder:
            with pytest.raises(RagLessonsError, match="token_vectors"):
                MaxSimReranker(wrong)
    with pytest.raises(RagLessonsError, match="cache_tokens"):
        MaxSimReranker(Words(), cache_tokens=-1)


# ---------------------------------------------------------------- 交叉编码器


def scored(values, **kwargs):
    return PairReranker(lambda pairs: values[: len(pairs)], **kwargs)


def test_pair_gets_question_and_text_once_each():
    seen = []
    PairReranker(lambda pairs: seen.append(pairs) or [0.5] * len(pairs)).rerank("年假", hits_of(1, 1), 2)
    assert seen == [[("年假", TEXTS[0]), ("年假", TEXTS[1])]]


def test_logits_become_probabilities_one_by_one():
    hits = scored([-4.0, 2.0, 0.0]).rerank("年假", hits_of(1, 1, 1), 3)
    assert names(hits) == ["1", "2", "0"]
    assert [h.score for h in hits] == [0.880797, 0.5, 0.017986]
    assert [h.details["pair"] for h in hits] == [2.0, 0.0, -4.0]
    alone = scored([-4.0]).rerank("年假", hits_of(1), 1)
    assert alone[0].score == 0.017986, "一组都不相关时，不会拉出一个满分"


def test_probabilities_stay_as_they_are():
    assert [h.score for h in scored([0.2, 0.9]).rerank("年假", hits_of(1, 1), 2)] == [0.9, 0.2]
    assert [h.score for h in scored([0.2, 0.9], logits=True).rerank("年假", hits_of(1, 1), 2)] == [0.710950, 0.549834]
    with pytest.raises(RagLessonsError, match="logits=True"):
        scored([0.2, 1.9], logits=False).rerank("年假", hits_of(1, 1), 2)


def test_far_logits_keep_their_order():
    hits = scored([40.0, 900.0, -900.0]).rerank("年假", hits_of(1, 1, 1), 3)
    assert names(hits) == ["1", "0", "2"] and [h.score for h in hits] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("values", [np.float32([[0.3], [0.7]]), np.array([0.3, 0.7], np.float16), (0.3, 0.7)])
def test_shapes_a_model_may_return(values):
    assert names(scored(values).rerank("年假", hits_of(1, 1), 2)) == ["1", "0"]


@pytest.mark.parametrize("values", [[0.5], [0.5] * 3, [], None, "ab", [[0.1, 0.9], [0.2, 0.8]], [0.5, "x"], 0.5,
                                    [0.5, float("nan")], [float("inf"), 0.1], [None, 0.1]])
def test_bad_scores_raise(values):
    with pytest.raises(RagLessonsError, match="score_pairs"):
        PairReranker(lambda pairs: values).rerank("年假", hits_of(1, 1), 1)


def test_pair_without_hits_or_function():
    assert PairReranker(lambda pairs: 1 / 0).rerank("年假", [], 3) == []
    with pytest.raises(RagLessonsError, match="predict"):
        PairReranker("BAAI/bge-reranker-v2-m3")


# ---------------------------------------------------------------- MMR

scores = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


def vectors(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 5))


@given(scores, st.integers(1, 8), st.floats(0, 1), st.integers(0, 99))
def test_mmr_is_a_choice_of_k_independent_of_input_order(values, k, lam, seed):
    hits, rows = hits_of(*values), vectors(len(values), seed)
    chosen = mmr(hits, rows, k, lam)
    assert len(chosen) == min(k, len(hits)) and len(set(names(chosen))) == len(chosen)
    assert [h.rank for h in chosen] == list(range(1, len(chosen) + 1))
    assert all(a.score >= b.score for a, b in pairwise(chosen))
    order = random.Random(seed).sample(range(len(hits)), len(hits))
    assert names(mmr([hits[i] for i in order], rows[order], k, lam)) == names(chosen)
    assert names(chosen[:1]) == names(mmr(hits, rows, 1, 1.0)), "第一个总是最相关的"


@given(scores, st.integers(0, 99))
def test_lam_1_is_the_order_of_relevance(values, seed):
    hits = hits_of(*values)
    by_score = sorted(hits, key=lambda h: (-round(h.score, 6), h.chunk.source))
    assert names(mmr(hits, vectors(len(hits), seed), 9, lam=1)) == names(by_score)


def test_lam_0_takes_the_farthest():
    rows = np.array([[1.0, 0], [0.9, 0.1], [0.1, 0.9], [0.95, 0.05]])
    assert names(mmr(hits_of(0.9, 0.8, 0.1, 0.7), rows, 2, lam=0)) == ["0", "2"]


def test_near_copies_make_room_also_on_a_squeezed_scale():
    """e5 那样的余弦：谁跟谁都在 0.8 以上，近似的副本 0.99。"""
    base = np.random.default_rng(3).standard_normal(64)
    rows = np.array([base + 0.3 * np.random.default_rng(i).standard_normal(64) for i in range(4)])
    rows = np.concatenate([rows[:1], rows[:1] + 1e-3, rows[1:]])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert (unit @ unit.T).min() > 0.8
    hits = hits_of(0.93, 0.929, 0.91, 0.90, 0.80)
    assert names(hits)[:2] == ["0", "1"] and names(mmr(hits, rows, 3)) == ["0", "2", "3"]


def test_mmr_order_by_hand():
    pairs = [[1, 1, 0.2], [1, 1, 0.2], [0.2, 0.2, 1]]
    assert mmr_order([1, 0.8, 0.5], pairs, 3, 0.5) == [(0, 0.5), (2, 0.15), (1, -0.1)]
    assert mmr_order([0.5, 0.5], [[1, 1], [1, 1]], 2, 1.0) == [(0, 0.5), (1, 0.5)]
    assert mmr_order([], [], 3, 0.5) == []


def test_mmr_odd_input():
    assert mmr([], np.zeros((0, 5)), 3) == [] and mmr([], [], 3) == []
    assert len(mmr(hits_of(0.5, 0.4), np.zeros((2, 3)), 2)) == 2
    assert len(mmr(hits_of(0.5, 0.4), np.ones((2, 3)), 2)) == 2
    for rows in (np.ones((3, 2)), np.ones(2), None, "ab", [[1.0], [1.0, 2.0]], [[np.nan], [1.0]], [[np.inf], [1.0]]):
        with pytest.raises(RagLessonsError, match="vectors"):
            mmr(hits_of(0.5, 0.4), rows, 2)
    for lam in (-0.1, 1.1, "a", None, float("nan")):
        with pytest.raises(RagLessonsError, match="lam"):
            mmr(hits_of(0.5), np.ones((1, 2)), 1, lam)
        with pytest.raises(RagLessonsError, match="lam"):
            MMRReranker(INDEX, lam)
    with pytest.raises(RagLessonsError, match="vectors_of"):
        MMRReranker(KEYWORD)


def test_foreign_hits_have_no_vectors():
    foreign = [Hit(Chunk("别处来的", "x.md", 0, 4), 0.5, 1)]
    with pytest.raises(RagLessonsError, match=r"x\.md:1 不在这个索引里"):
        MMRReranker(INDEX).rerank("年假", foreign, 1)
    assert MaxSimReranker(Words()).rerank("年假", foreign, 1)[0].chunk == foreign[0].chunk, "MaxSim 只看文字，哪里来的都行"


# ---------------------------------------------------------------- 套进检索器


RERANKERS = {"maxsim": MaxSimReranker(Words()), "pair": PairReranker(lambda pairs: [len(t) / 40 for _, t in pairs]), "mmr": MMRReranker(INDEX)}


@pytest.mark.parametrize("name", RERANKERS)
def test_rerankers_share_their_manners(name):
    reranker = RERANKERS[name]
    assert reranker.rerank("年假", [], 3) == []
    assert len(reranker.rerank("年假", (h for h in hits_of(0.5, 0.4, 0.3)), 9)) == 3
    for k in (0, -1, None, True):
        with pytest.raises(RagLessonsError, match="k "):
            reranker.rerank("年假", hits_of(0.5), k)
    for query in ("", " ", None):
        with pytest.raises(RagLessonsError, match="问题"):
            reranker.rerank(query, hits_of(0.5), 1)
    for hits in (None, "ab", CHUNKS):
        with pytest.raises(RagLessonsError, match="检索结果"):
            reranker.rerank("年假", hits, 1)


@pytest.mark.parametrize("name", RERANKERS)
@pytest.mark.parametrize("weight", [1.0, 0.3, 0.0])
def test_rerank_search_nests_and_filters_first(name, weight):
    for inner in (INDEX, KEYWORD, HybridSearch(INDEX, KEYWORD)):
        search = RerankSearch(RerankSearch(inner, RERANKERS[name], 6, weight), RERANKERS[name], 2, weight)
        hits = search.search("年假有几天", 3)
        assert hits and [h.rank for h in hits] == list(range(1, len(hits) + 1))
        assert all(a.score >= b.score for a, b in pairwise(hits))
        allowed = search.search("年假有几天", 3, where=lambda chunk: chunk.source == "5.md")
        assert names(allowed) == ["5"]
        assert search.search("年假", 1, where=lambda chunk: False) == []
        assert search.chunks == CHUNKS


def test_candidates_bound_what_reranking_can_save():
    last_first = PairReranker(lambda pairs: [i / 10 for i in range(len(pairs))])
    order = names(INDEX.search("年假有几天", 6))
    assert names(RerankSearch(INDEX, last_first, candidates=2).search("年假有几天", 1)) == [order[1]]
    assert names(RerankSearch(INDEX, last_first, candidates=6).search("年假有几天", 1)) == [order[5]]
    assert len(RerankSearch(INDEX, last_first, candidates=2).search("年假有几天", 5)) == 5


def test_mixed_scores_by_hand():
    class Given:
        chunks = CHUNKS

        def search(self, query, k=3, where=None):
            return hits_of(0.9, 0.8, 0.7)[:k]

    prefer_last = PairReranker(lambda pairs: [0.0, 0.5, 0.9])
    hits = RerankSearch(Given(), prefer_last, weight=0.3).search("年假", 3)
    assert [(n, h.score) for n, h in zip(names(hits), hits, strict=True)] == [("0", 0.7), ("1", 0.5), ("2", 0.27)]
    assert hits[0].details == {"dense": 0.9, "pair": 0.0, "mixed": 0.7}
    assert RerankSearch(Given(), prefer_last, weight=0).search("年假", 3) == hits_of(0.9, 0.8, 0.7)
    assert names(RerankSearch(Given(), prefer_last).search("年假", 3)) == ["2", "1", "0"]


def test_mixing_keeps_the_scale_of_weighted_fusion():
    """融合的分数已经是 0 到 1：再按候选拉一次，最低的候选就被压成 0。"""
    hybrid = HybridSearch(INDEX, KEYWORD)
    before = {h.chunk: h.score for h in hybrid.search("年假有几天", 2)}
    level = PairReranker(lambda pairs: [0.5] * len(pairs))
    for hit in RerankSearch(hybrid, level, candidates=2, weight=0.3).search("年假有几天", 2):
        assert hit.score == pytest.approx(0.7 * before[hit.chunk] + 0.15, abs=2e-6)
    low = RerankSearch(INDEX, level, candidates=2, weight=0.3).search("年假有几天", 2)
    assert [h.score for h in low] == [0.85, 0.15], "余弦没有拉过，按候选拉"


def test_rerank_search_odd_settings():
    for wrong in (None, MaxSimReranker, "bge"):
        with pytest.raises(RagLessonsError, match="rerank"):
            RerankSearch(INDEX, wrong)
    for kwargs in ({"candidates": 0}, {"candidates": "20"}, {"weight": -0.1}, {"weight": 1.5}, {"weight": None}):
        with pytest.raises(RagLessonsError):
            RerankSearch(INDEX, RERANKERS["mmr"], **kwargs)
    for k in (0, -3):
        with pytest.raises(RagLessonsError, match="k "):
            RerankSearch(INDEX, RERANKERS["mmr"]).search("年假", k)


# ---------------------------------------------------------------- 别人递来的东西

class Hands:
    def __init__(self, rerank):
        self.made = rerank

    def rerank(self, query, hits, k=3):
        return self.made(hits)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_what_a_reranker_returns_is_checked(weight):
    def search(made):
        return RerankSearch(INDEX, Hands(made), weight=weight).search("年假几天", 3)

    for made in (lambda hits: None, lambda hits: [0.5] * len(hits)):
        with pytest.raises(RagLessonsError, match="Hit 的列表"):
            search(made)
    with pytest.raises(RagLessonsError, match="候选里没有的块"):
        search(lambda hits: [Hit(Chunk("外来", "x.md", 0, 2), 1.0, 1)])
    hits = search(lambda hits: iter([*reversed(hits), *hits]))
    assert [hit.rank for hit in hits] == [1, 2, 3] and len(set(names(hits))) == 3


def test_one_pair_may_get_a_bare_number():
    assert PairReranker(lambda pairs: 0.25).rerank("问", hits_of(0.5))[0].score == 0.25


class OnTheCard:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("tensor is on cuda")


@pytest.mark.parametrize("scores", [OnTheCard(), [10**400, 1, 2]])
def test_scores_that_cannot_be_read(scores):
    with pytest.raises(RagLessonsError, match="没有返回一列数"):
        PairReranker(lambda pairs: scores).rerank("问", hits_of(0.1, 0.2, 0.3))


@pytest.mark.parametrize("logits", [0, 1, "yes"])
def test_logits_is_a_yes_or_no(logits):
    with pytest.raises(RagLessonsError, match="logits 要是"):
        PairReranker(lambda pairs: [0.5], logits=logits)


class Tokens:
    def __init__(self, made):
        self.made = made

    def token_vectors(self, texts, role):
        return self.made(texts)


@pytest.mark.parametrize("made", [
    lambda texts: None, lambda texts: [np.eye(2)] * (len(texts) - 1), lambda texts: [np.ones(3)] * len(texts),
    lambda texts: [None] * len(texts), lambda texts: [np.full((2, 2), np.nan)] * len(texts),
    lambda texts: [[[1.0], [1.0, 2.0]]] * len(texts),
])
def test_token_vectors_are_checked(made):
    with pytest.raises(RagLessonsError, match="token_vectors"):
        MaxSimReranker(Tokens(made)).rerank("问", hits_of(0.1, 0.2))


def test_token_vectors_may_be_lists_of_any_length():
    hits = MaxSimReranker(Tokens(lambda texts: [[[3.0, 0.0]]] * len(texts))).rerank("问", hits_of(0.1, 0.2))
    assert [hit.score for hit in hits] == [1.0, 1.0]


def test_one_max_sim_reranker_in_many_threads():
    reranker = MaxSimReranker(Tokens(lambda texts: [np.eye(2)[:1]] * len(texts)), cache_tokens=3)
    hits, problems = hits_of(*(i / 10 for i in range(6))), []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(300):
                reranker.rerank("问", rng.sample(hits, 4))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch)
    assert not problems and reranker._held == sum(map(len, reranker._known.values())) <= 3


@pytest.mark.parametrize("rows", [np.eye(3) * 1j, [["1", "2"]] * 3])
def test_mmr_wants_real_numbers(rows):
    with pytest.raises(RagLessonsError, match="一条结果一行"):
        mmr(hits_of(0.9, 0.8, 0.7), rows, 2)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_mmr_with_very_large_and_very_small_vectors(scale):
    rows, hits = np.array([[1.0, 0], [1, 0.01], [0, 1]]), hits_of(0.9, 0.89, 0.8)
    assert names(mmr(hits, rows * scale, 2)) == names(mmr(hits, rows, 2))
