"""父块：小块找、大块给；k 个不同的大块；筛选在前，不漏也不泄。"""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_lessons import (
    Chunk,
    Document,
    HybridSearch,
    MMRReranker,
    ParentSearch,
    RagLessonsError,
    RerankSearch,
    ToyEmbedder,
    VectorIndex,
    chunk_recursive,
)
from rag_lessons.keyword import BM25Index

SENTENCES = {
    "a.md": [f"年假第{n}条：年假有几天。" for n in "一二三四五六七八九十"] + ["附则。"],
    "b.md": ["病假要证明。", "年假另见一处。", "事假不带薪。"],
    "c.md": ["报销要发票。", "出差有补贴。"],
    "d.md": ["日志保留九十天。"],
}


def corpus():
    small, big = [], []
    for source, sentences in SENTENCES.items():
        text = "".join(sentences)
        big.append(Chunk(text, source, 0, len(text)))
        start = 0
        for sentence in sentences:
            small.append(Chunk(sentence, source, start, start + len(sentence)))
            start += len(sentence)
    return small, big


SMALL, BIG = corpus()
INDEX = VectorIndex.build(SMALL, ToyEmbedder())
KEYWORD = BM25Index.build(SMALL)


def sources(hits):
    return [hit.chunk.source for hit in hits]


def test_one_parent_owns_the_ten_best_children():
    assert sources(INDEX.search("年假有几天", 10)) == ["a.md"] * 10
    hits = ParentSearch(INDEX, BIG).search("年假有几天", 3)
    assert sources(hits)[:2] == ["a.md", "b.md"] and len(set(sources(hits))) == 3
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert all(x.score >= y.score for x, y in pairwise(hits))
    assert all(hit.chunk in BIG for hit in hits)


def test_score_and_place_of_the_best_child():
    (best,) = INDEX.search("年假有几天", 1)
    (hit,) = ParentSearch(INDEX, BIG).search("年假有几天", 1)
    assert hit.score == best.score and hit.details["dense"] == best.score
    start, end = hit.details["child_start"], hit.details["child_end"]
    assert hit.chunk.text[start:end] == best.chunk.text


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_k_parents_or_all_of_them(k):
    for inner in (INDEX, HybridSearch(INDEX, KEYWORD), RerankSearch(HybridSearch(INDEX, KEYWORD), MMRReranker(INDEX), 2)):
        assert len(set(sources(ParentSearch(inner, BIG).search("年假有几天", k)))) == min(k, 4)
    found = {c.source for c in SMALL if any(h.chunk == c for h in KEYWORD.search("年假有几天", 99))}
    assert set(sources(ParentSearch(KEYWORD, BIG).search("年假有几天", 9))) == found, "关键词不给 0 分的块"


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_order_of_chunks_does_not_matter(seed):
    shuffle = random.Random(seed)
    index = VectorIndex.build(shuffle.sample(SMALL, len(SMALL)), ToyEmbedder())
    shuffled = ParentSearch(index, shuffle.sample(BIG, len(BIG)))
    assert shuffled.search("事假和年假", 4) == ParentSearch(INDEX, BIG).search("事假和年假", 4)


def test_parent_of_is_the_container_else_the_largest_overlap():
    text = "零一二三四五六七八九"
    document = Document("t.md", text)
    wide, left, right = Chunk(text, "t.md", 0, 10), Chunk(text[:6], "t.md", 0, 6), Chunk(text[4:], "t.md", 4, 10)

    def parent(start, end, *parents):
        child = Chunk(document.text[start:end], "t.md", start, end)
        return ParentSearch(VectorIndex.build([child], ToyEmbedder()), parents).parent_of(child)

    assert parent(1, 3, left, right) == left and parent(7, 9, left, right) == right
    assert parent(4, 6, right, left) == left, "都装得下，取靠前的"
    assert parent(4, 6, wide, right) == right, "都装得下，取短的"
    assert parent(5, 8, left, right) == right and parent(2, 7, left, right) == left
    assert parent(3, 7, left, right) == left, "重叠一样多，取靠前的"
    assert parent(0, 10, wide, left) == wide


@settings(max_examples=40)
@given(st.integers(20, 120), st.integers(20, 60), st.integers(0, 15))
def test_real_chunks_always_find_the_right_parent(big, small, overlap):
    text = "".join(f"第{i}条，关于假期与报销的规定。" + "\n" * (i % 3) for i in range(30))
    document = Document("t.md", text)
    parents, children = chunk_recursive(document, big, min(overlap, big - 1)), chunk_recursive(document, small, 0)
    search = ParentSearch(VectorIndex.build(children, ToyEmbedder()), parents)
    for child in children:
        shared = [min(p.end, child.end) - max(p.start, child.start) for p in parents]
        mine = search.parent_of(child)
        assert min(mine.end, child.end) - max(mine.start, child.start) == max(shared)


def test_children_without_parent_are_reported():
    with pytest.raises(RagLessonsError, match=r"d\.md:1 不在任何一个大块里"):
        ParentSearch(INDEX, BIG[:3])
    with pytest.raises(RagLessonsError, match="parents 是空的"):
        ParentSearch(INDEX, [])
    with pytest.raises(RagLessonsError, match="Chunk"):
        ParentSearch(INDEX, [Document("a.md", "甲")])
    with pytest.raises(RagLessonsError, match="search"):
        ParentSearch(SMALL, BIG)


def test_children_added_later_are_seen():
    index = VectorIndex.build(SMALL[:3], ToyEmbedder())
    search = ParentSearch(index, BIG)
    index.sync(SMALL)
    assert sources(search.search("日志保留几天", 1)) == ["d.md"]


def test_odd_arguments():
    search = ParentSearch(INDEX, BIG)
    for k in (0, -1, None, 1.5):
        with pytest.raises(RagLessonsError, match="k "):
            search.search("年假", k)
    with pytest.raises(RagLessonsError, match="问题"):
        search.search(" ")
    with pytest.raises(RagLessonsError, match="where"):
        search.search("年假", where="a.md")
    assert ParentSearch(VectorIndex.build([], ToyEmbedder()), BIG).search("年假") == []


# ---------------------------------------------------------------- 筛选


def test_filter_before_top_k():
    search = ParentSearch(INDEX, BIG)
    assert set(sources(search.search("年假有几天", 2, where=lambda c: c.source != "a.md"))) <= {"b.md", "c.md", "d.md"}
    assert len(search.search("年假有几天", 2, where=lambda c: c.source != "a.md")) == 2
    assert sources(search.search("年假有几天", 3, where=lambda c: c.source == "d.md")) == ["d.md"]
    assert search.search("年假有几天", 3, where=lambda c: False) == []


def test_a_parent_with_a_forbidden_part_is_not_handed_out():
    """权限在小块上：大块里夹着一段不许看的，从旁边那段找到它也不行。"""
    secret = [Chunk(c.text, c.source, c.start, c.end, metadata={"level": "secret"}) if "事假" in c.text else c for c in SMALL]
    search = ParentSearch(VectorIndex.build(secret, ToyEmbedder()), BIG)

    def may_see(chunk):
        return chunk.metadata.get("level") != "secret"

    assert sources(search.search("病假要证明吗", 1)) == ["b.md"]
    hits = search.search("病假要证明吗", 4, where=may_see)
    assert "b.md" not in sources(hits) and len(hits) == 3
    assert not any("事假" in hit.chunk.text for hit in hits)


def test_permissions_on_the_parent_count_too():
    closed = [Chunk(p.text, p.source, p.start, p.end, metadata={"level": "secret"}) if p.source == "a.md" else p for p in BIG]
    hits = ParentSearch(INDEX, closed).search("年假有几天", 2, where=lambda c: c.metadata.get("level") != "secret")
    assert "a.md" not in sources(hits) and len(hits) == 2
