"""按块长修正分数：符号、强度、并列、怪参数。"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import Chunk, RagLessonsError, below, normalize_length
from rag_lessons.types import Hit


def hit(length: int, score: float, name: str = "a.md") -> Hit:
    return Hit(Chunk("字" * length, name, 0, length), score, 1, {"dense": score})


def order(hits: list[Hit], *args, **kwargs) -> list[int]:
    return [len(h.chunk.text) for h in normalize_length(hits, *args, **kwargs)]


def test_the_sign():
    """同样的余弦：除以 √长度把短块排到前面，其余三种把长块排到前面。"""
    hits = [hit(50, 0.4), hit(800, 0.4)]
    assert order(hits, "power", -0.5, center=False) == [50, 800]
    for method in ("power", "saturating", "pivoted"):
        assert order(hits, method, center=False) == [800, 50]
    hits.append(hit(200, 0.3))
    assert order(hits, "power", -0.5) == [50, 800, 200]
    for method in ("power", "saturating", "pivoted"):
        assert order([*hits, hit(90, 0.2, "b.md")], method) == [800, 50, 200, 90]


def test_values():
    (one,) = normalize_length([hit(100, 0.3)], "power", -0.5, center=False)
    assert one.score == 0.03 and one.details == {"dense": 0.3, "length_factor": 0.1}
    (one,) = normalize_length([hit(20, 0.3)], "saturating", 20, center=False)
    assert one.score == 0.15
    two = normalize_length([hit(100, 0.3), hit(400, 0.3)], "pivoted", 0.5, pivot=100, center=False)
    assert [h.score for h in two] == [round(0.3 * 20 / 15, 6), 0.3]


def test_nothing_changes_at_the_neutral_strength():
    hits = [hit(n, s) for n, s in ((10, 0.9), (500, 0.5), (90, 0.7))]
    for method, strength in (("power", 0), ("saturating", 0), ("pivoted", 1)):
        assert [h.score for h in normalize_length(hits, method, strength, center=False)] == [0.9, 0.7, 0.5]
        assert [h.score for h in normalize_length(hits, method, strength)] == [0.2, 0.0, -0.2]


def test_center_keeps_squeezed_scores_from_being_drowned():
    hits = [hit(30, 0.90), *(hit(600, 0.80 + i / 1000, f"{i}.md") for i in range(9))]
    assert order(hits, "saturating", center=False)[0] == 600
    assert order(hits, "saturating")[0] == 30


@given(st.lists(st.tuples(st.integers(1, 900), st.floats(-1, 1)), max_size=20), st.booleans())
def test_ranks_are_complete_and_do_not_depend_on_input_order(pairs, center):
    hits = [hit(n, s, f"{i:02d}.md") for i, (n, s) in enumerate(pairs)]
    once = normalize_length(hits, center=center)
    assert [h.rank for h in once] == list(range(1, len(hits) + 1))
    assert {h.chunk.id for h in once} == {h.chunk.id for h in hits}
    assert all(math.isfinite(h.score) for h in once)
    assert normalize_length(random.Random(0).sample(hits, len(hits)), center=center) == once


@pytest.mark.parametrize("kwargs", [{"method": "sqrt"}, {"method": "saturating", "strength": -1}, {"method": "pivoted", "strength": 2}, {"pivot": 0}])
def test_odd_arguments(kwargs):
    with pytest.raises(RagLessonsError):
        normalize_length([hit(3, 0.5)], **kwargs)
    assert normalize_length([]) == []


def test_wrong_arguments_get_one_sentence():
    hits = [Hit(Chunk("甲乙", "a.md", 0, 2), 0.5, 1, {"dense": 0.5})]
    for wrong in (None, "abc", [None], [hits[0].chunk], hits[0]):
        with pytest.raises(RagLessonsError, match="检索结果"):
            normalize_length(wrong)
        with pytest.raises(RagLessonsError, match="检索结果"):
            below(0.5)(wrong)
    for wrong in ("a", None, float("nan"), True):
        with pytest.raises(RagLessonsError, match="阈值"):
            below(wrong)
    for wrong in ("a", float("nan"), float("inf"), True, 1e300):
        for method in ("power", "saturating", "pivoted"):
            with pytest.raises(RagLessonsError, match="strength"):
                normalize_length(hits, method, wrong)
    for wrong in ("a", float("nan"), float("inf"), 0, -1):
        with pytest.raises(RagLessonsError, match="pivot"):
            normalize_length(hits, pivot=wrong)
    with pytest.raises(RagLessonsError, match="method"):
        normalize_length(hits, [])


def test_a_generator_of_hits_and_an_empty_chunk():
    hits = [Hit(Chunk("甲" * n, "a.md", 0, n), 0.5, 1, {"dense": 0.5}) for n in (0, 3, 30)]
    for method in ("power", "saturating", "pivoted"):
        assert normalize_length((h for h in hits), method) == normalize_length(hits, method)
    assert len(normalize_length(hits, "power", -0.5)) == len(normalize_length(hits, "saturating", 0)) == 3
    assert below(0.6)(h for h in hits) == below(0.6)(hits)
