"""改写问题、假想的答案（真的对话客户端连回环服务）、相关反馈。"""

import os
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import KEY, Loopback

from rag_lessons import (
    Chunk,
    FeedbackSearch,
    HybridSearch,
    HydeSearch,
    MMRReranker,
    OpenAIChat,
    ParentSearch,
    RagLessonsError,
    RagLessonsWarning,
    RerankSearch,
    RewriteSearch,
    ToyEmbedder,
    VectorIndex,
    ZhipuChat,
    below,
)
from rag_lessons.keyword import BM25Index
from rag_lessons.retrieval import rocchio
from rag_lessons.retrieval.rewriting import conversation

TEXTS = ["小听二代音箱的价钱是三百九十九元", "小听二代音箱有黑白两种颜色", "年假按工龄计算，满一年有五天", "每年的带薪休假按工龄计算", "报销要附发票"]
CHUNKS = [Chunk(text, f"{i}.md", 0, len(text)) for i, text in enumerate(TEXTS)]
INDEX = VectorIndex.build(CHUNKS, ToyEmbedder())
KEYWORD = BM25Index.build(CHUNKS)
HISTORY = [{"role": "system", "content": "你是客服"}, {"role": "user", "content": "小听二代音箱有几种\n颜色"}, {"role": "assistant", "content": "黑白两种。"}]


@pytest.fixture
def server(monkeypatch):
    for name in os.environ:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with Loopback() as running:
        yield running


@pytest.fixture
def chat(server):
    return OpenAIChat("qwen", server.openai, api_key=KEY)


def asked(server):
    return server.requests[-1].body["messages"]


# ---------------------------------------------------------------- 改写


def test_it_is_replaced_by_what_the_conversation_was_about(server, chat):
    search = RewriteSearch(INDEX, chat, HISTORY)
    server.say("小听二代音箱多少钱？")
    hits = search.search("它多少钱", 1)
    assert hits == INDEX.search("小听二代音箱多少钱？", 1)
    system, user = asked(server)
    assert system["role"] == "system" and "改写" in system["content"]
    assert user["content"] == "对话：\n用户：小听二代音箱有几种 颜色\n助手：黑白两种。\n\n最后一问：它多少钱"


def test_history_grows_between_questions(server, chat):
    history = []
    search = RewriteSearch(INDEX, chat, history)
    server.say("年假有几天")
    search.search("年假几天")
    assert asked(server)[1]["content"] == "最后一问：年假几天"
    history.append({"role": "user", "content": "年假几天"})
    server.say("年假要提前几天申请")
    search.search("那要提前多久申请")
    assert "用户：年假几天" in asked(server)[1]["content"] and len(history) == 1


@pytest.mark.parametrize("said", ["年假有几天", "  年假有几天\n", "改写后的问题：年假有几天", "“年假有几天”", "问题: 年假有几天\n\n（说明：补全了主语）"])
def test_only_the_question_is_kept(server, chat, said):
    server.say(said)
    assert RewriteSearch(INDEX, chat).rewrite("几天") == "年假有几天"


@pytest.mark.parametrize(("behaviour", "said"), [("ok", ""), ("ok", " \n\u200b"), ("ok", "“”"), ("sensitive", "年假"), ("length", "小听二代音箱的")])
def test_nothing_usable_means_the_question_itself(server, chat, behaviour, said):
    server.say(said)
    server.next(behaviour)
    with pytest.warns(RagLessonsWarning, match="照原来的问题检索"):
        hits = RewriteSearch(INDEX, chat, HISTORY).search("年假有几天", 2)
    assert hits == INDEX.search("年假有几天", 2)


def test_works_with_zhipu_too(server):
    chat = ZhipuChat(api_key=KEY, base_url=server.zhipu)
    server.say("报销要附什么")
    assert RewriteSearch(INDEX, chat).search("要附什么", 1)[0].chunk == CHUNKS[4]


def test_conversation_skips_what_was_not_said():
    messages = [*HISTORY, {"role": "tool", "content": "x", "tool_call_id": "1"}, {"role": "assistant", "content": None, "tool_calls": []}]
    assert conversation(messages) == "用户：小听二代音箱有几种 颜色\n助手：黑白两种。"
    for wrong in ("它多少钱", None, 3, {"role": "user", "content": "甲"}, ["它多少钱"], [{"content": "甲"}]):
        with pytest.raises(RagLessonsError, match="history"):
            conversation(wrong)


# ---------------------------------------------------------------- HyDE


def test_hyde_searches_between_question_and_imagined_answer(server, chat):
    server.say("员工每年的带薪休假按照工龄计算。")
    hits = HydeSearch(INDEX, chat).search("能歇多久", 3)
    toy = INDEX.embedder
    question, answer = toy.embed_query("能歇多久"), toy.embed_documents(["员工每年的带薪休假按照工龄计算。"])[0]
    expected = INDEX.search_vector(question + answer, 3)
    assert [(h.chunk, h.score) for h in hits] == [(h.chunk, h.score) for h in expected] and hits[0].chunk == CHUNKS[3]
    assert hits[0].details == {"dense": pytest.approx(float(INDEX.vectors[3] @ question), abs=1e-6), "hyde": hits[0].score}
    assert below(0.3)(hits), "拒答看与问题本身的余弦，假想的答案抬不高它"


def test_hyde_on_other_searchers_adds_the_text(server, chat):
    server.say("员工每年的带薪休假。", "员工每年的带薪休假。")
    for inner in (KEYWORD, HybridSearch(INDEX, KEYWORD)):
        assert HydeSearch(inner, chat).search("能歇多久", 2) == inner.search("能歇多久\n员工每年的带薪休假。", 2)


@pytest.mark.parametrize(("behaviour", "said"), [("ok", ""), ("sensitive", "带薪休假")])
def test_hyde_without_an_answer_is_plain_search(server, chat, behaviour, said):
    for inner in (INDEX, KEYWORD):
        server.say(said)
        server.next(behaviour)
        with pytest.warns(RagLessonsWarning, match="照原来的问题检索"):
            assert HydeSearch(inner, chat).search("年假", 2) == inner.search("年假", 2)


def test_a_cut_answer_still_serves(server, chat):
    server.say("每年的带薪休假")
    server.next("length")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HydeSearch(INDEX, chat).search("能歇多久", 1)[0].chunk == CHUNKS[3]


# ---------------------------------------------------------------- 相关反馈

rows = st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), max_size=4).map(lambda r: np.array(r).reshape(-1, 3))


@given(rows, rows, st.floats(0, 2))
def test_rocchio_gives_a_unit_vector_and_ignores_order(relevant, irrelevant, beta):
    query = np.array([0.6, 0.8, 0.0])
    moved = rocchio(query, relevant, irrelevant, beta=beta)
    assert np.linalg.norm(moved) == pytest.approx(1)
    np.testing.assert_allclose(rocchio(query, relevant[::-1], irrelevant[::-1], beta=beta), moved, atol=1e-9)


def test_rocchio_by_hand():
    query, east = np.array([0.0, 1.0]), np.array([[1.0, 0.0]])
    assert rocchio(query, [], []).tolist() == [0, 1]
    assert rocchio(query, east, beta=1).round(4).tolist() == [0.7071, 0.7071]
    assert rocchio(query, [], east, gamma=1).round(4).tolist() == [-0.7071, 0.7071]
    assert rocchio(query, -query[None], beta=1).tolist() == [0, 1], "刚好抵消时，方向不变"


def test_feedback_moves_towards_the_first_hits():
    search = FeedbackSearch(INDEX, feedback=1, beta=1.0)
    hits = search.search("年假有几天", 5)
    question = INDEX.embedder.embed_query("年假有几天")
    expected = INDEX.search_vector(question + INDEX.vectors[2], 5)
    assert [(h.chunk, h.score) for h in hits] == [(h.chunk, h.score) for h in expected]
    before = {h.chunk: h.score for h in INDEX.search("年假有几天", 5)}
    assert [h.details["dense"] for h in hits] == [pytest.approx(before[h.chunk], abs=2e-6) for h in hits]
    assert [h.chunk for h in hits][:2] == CHUNKS[2:4], "“每年的带薪休假按工龄计算”借第一名的字上来了"
    nothing = FeedbackSearch(INDEX, beta=0).search("年假有几天", 5)
    assert [(h.chunk, h.score) for h in nothing] == [(h.chunk, h.score) for h in INDEX.search("年假有几天", 5)]


def test_forbidden_chunks_do_not_move_the_question():
    allowed = [chunk for chunk in CHUNKS if chunk.source != "2.md"]
    inside = FeedbackSearch(VectorIndex.build(allowed, ToyEmbedder())).search("年假有几天", 4)
    assert FeedbackSearch(INDEX).search("年假有几天", 4, where=lambda c: c.source != "2.md") == inside


# ---------------------------------------------------------------- 共同的规矩


def searchers(chat):
    return [RewriteSearch(INDEX, chat), RewriteSearch(KEYWORD, chat), HydeSearch(INDEX, chat), HydeSearch(KEYWORD, chat), FeedbackSearch(INDEX),
            RewriteSearch(RerankSearch(HydeSearch(HybridSearch(INDEX, KEYWORD), chat), MMRReranker(INDEX)), chat),
            ParentSearch(RewriteSearch(HybridSearch(FeedbackSearch(INDEX), KEYWORD), chat), CHUNKS)]


def test_filter_before_top_k_through_every_layer(chat):
    """回环服务复述收到的话，够检索用。"""
    for search in searchers(chat):
        assert [h.chunk.source for h in search.search("年假报销", 1, where=lambda c: c.source == "4.md")] == ["4.md"]
        assert search.search("年假报销", 2, where=lambda c: False) == []
        assert search.chunks == CHUNKS


def test_odd_arguments_cost_no_call(server, chat):
    for search in searchers(chat):
        for k in (0, -1, None):
            with pytest.raises(RagLessonsError, match="k "):
                search.search("年假", k)
        for query in ("", " ", None):
            with pytest.raises(RagLessonsError, match="问题"):
                search.search(query)
        with pytest.raises(RagLessonsError, match="where"):
            search.search("年假", where="a.md")
    assert server.requests == []


def test_odd_settings(chat):
    for kind in (RewriteSearch, HydeSearch):
        with pytest.raises(RagLessonsError, match="search"):
            kind(None, chat)
        for wrong in (None, OpenAIChat, "glm-4"):
            with pytest.raises(RagLessonsError, match="chat"):
                kind(INDEX, wrong)
    with pytest.raises(RagLessonsError, match="VectorIndex"):
        FeedbackSearch(KEYWORD)
    for kwargs in ({"feedback": 0}, {"feedback": 1.5}, {"beta": -1}, {"beta": "a"}, {"beta": float("inf")}):
        with pytest.raises(RagLessonsError):
            FeedbackSearch(INDEX, **kwargs)


def test_empty_index(chat):
    empty = VectorIndex.build([], ToyEmbedder())
    for search in (RewriteSearch(empty, chat), HydeSearch(empty, chat), FeedbackSearch(empty)):
        assert search.search("年假") == [] and search.chunks == []


def test_a_beta_so_large_that_the_question_is_lost_is_refused():
    with pytest.raises(RagLessonsError, match="beta 要在 0 和"):
        FeedbackSearch(INDEX, beta=1e39)


def test_a_chat_may_return_plain_text():
    class Talk:
        def chat(self, messages):
            return "小听二代音箱多少钱"

    assert RewriteSearch(INDEX, Talk()).rewrite("它多少钱") == "小听二代音箱多少钱"
