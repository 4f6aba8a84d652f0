"""名次条：行的次序、正确段落的那一行、与 VectorIndex 相同的并列规则。"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from rag_lessons.course.plotting import rank_strip, use_style
from rag_lessons.types import RagLessonsError


def ticks(ax: plt.Axes) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


@pytest.fixture(autouse=True)
def style():
    use_style()
    yield
    plt.close("all")


def test_top_rows_then_gold_then_the_rest():
    ax = rank_strip([0.1, 0.9, 0.3, 0.2], list("甲乙丙丁"), gold=[0], k=2)
    assert ticks(ax) == ["1. 乙", "2. 丙", "4. 甲", "其余 1 块"]


def test_gold_inside_the_top_rows_is_not_repeated():
    ax = rank_strip([0.1, 0.9, 0.3, 0.2], list("甲乙丙丁"), gold=[2, 0], k=2)
    assert ticks(ax) == ["1. 乙", "2. 丙", "其余 2 块"]


def test_ties_by_row_after_rounding_like_the_index():
    ax = rank_strip([0.5, 0.5 + 1e-8, 0.1], list("甲乙丙"), k=2)
    assert ticks(ax) == ["1. 甲", "2. 乙", "其余 1 块"]


def test_fewer_rows_than_k_and_equal_scores_still_draw():
    ax = rank_strip(np.zeros(2, dtype=np.float32), ["甲", "乙"], gold=[1], k=5)
    assert ticks(ax) == ["1. 甲", "2. 乙", "其余 0 块"]
    ax.figure.canvas.draw()


def test_wrong_shape_is_refused():
    with pytest.raises(RagLessonsError, match="3 个名字"):
        rank_strip([0.1, 0.2], ["甲", "乙", "丙"])
