"""附录 A2 的练习：一个头的注意力、带遮罩的平均。"""

from __future__ import annotations

from typing import Any

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case
from rag_lessons.embedding.base import FloatArray

# ---------------------------------------------------------------- A2.1 一个头的注意力


def one_head(q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
    """一列一个片段：q 的第 j 列去看 k 的每一列，取 v 各列的加权平均。"""
    return v @ _softmax(k.T @ q / np.sqrt(len(q)), 0)


def _softmax(scores: FloatArray, axis: int) -> FloatArray:
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def _no_exp(q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
    scores = k.T @ q / np.sqrt(len(q))
    return v @ (scores / scores.sum(axis=0))


def _no_division(q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
    return v @ np.exp(k.T @ q / np.sqrt(len(q)))


def _whole(q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
    weights = np.exp(k.T @ q / np.sqrt(len(q)))
    return v @ (weights / weights.sum())


def _hardest(q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
    return v[:, (k.T @ q).argmax(axis=0)]


def _head_cases() -> list[Case]:
    rng = np.random.default_rng(2)

    def three(columns: int) -> tuple[Any, ...]:
        return tuple(rng.normal(size=(4, columns)) for _ in range(3))

    return [case("三个片段", *three(3)), case("五个片段", *three(5)), case("只有一个片段", *three(1))]


_HEAD = Exercise(
    id="A2.1",
    title="一个头的注意力",
    reference=one_head,
    cases=_head_cases,
    tolerance=1e-6,
    wrong=[
        Wrong("没有除以根号", lambda q, k, v: v @ _softmax(k.T @ q, 0), "少了一步：分数要先除以 √特征数，也就是 np.sqrt(len(q))。"),
        Wrong("除以了特征数", lambda q, k, v: v @ _softmax(k.T @ q / len(q), 0), "除的是特征数的平方根，不是特征数本身。"),
        Wrong("行列弄反", lambda q, k, v: v @ _softmax(k.T @ q / np.sqrt(len(q)), 1), "和为 1 的方向反了：每一列是一个片段投出的票，要沿 axis=0 求和。"),
        Wrong("q 和 k 对调", lambda q, k, v: v @ _softmax(q.T @ k / np.sqrt(len(q)), 0), "q 和 k 对调了：列是提问的片段，行是被看的片段，写成 k.T @ q。"),
        Wrong("忘了 exp", _no_exp, "没有取 exp：分数有正有负，直接除以总和，权重就会是负的。"),
        Wrong("忘了归一", _no_division, "取了 exp，还要除以每一列的总和：权重加起来要等于 1。"),
        Wrong("除以全部的总和", _whole, "你除以了整张表的总和；每一列各自加起来等于 1。"),
        Wrong("只看最像的", _hardest, "你只取了最像的那一个；注意力是各列 v 的加权平均。"),
        Wrong("平均了 k", lambda q, k, v: k @ _softmax(k.T @ q / np.sqrt(len(q)), 0), "被平均的是 v，不是 k：k 只用来打分。"),
    ],
    follow_up="包里的 attention 一次算十二个头、几段文字，算的就是这个。",
)  # fmt: skip

# ---------------------------------------------------------------- A2.2 带遮罩的平均


def masked_mean(x: FloatArray, mask: FloatArray) -> FloatArray:
    """mask 为 1 的列求平均，再除以长度。"""
    mean = x @ mask / mask.sum()
    return mean / np.linalg.norm(mean)


def _unit(mean: FloatArray) -> FloatArray:
    return mean / np.linalg.norm(mean)


def _mask_cases() -> list[Case]:
    rng = np.random.default_rng(3)
    return [
        case("后两列是补的", rng.normal(size=(4, 5)), np.array([1.0, 1, 1, 0, 0])),
        case("中间一列不要", rng.normal(size=(6, 4)), np.array([1.0, 0, 1, 1])),
        case("只留一列", rng.normal(size=(3, 3)), np.array([0.0, 1, 0])),
    ]


_MASK = Exercise(
    id="A2.2",
    title="带遮罩的平均",
    reference=masked_mean,
    cases=_mask_cases,
    tolerance=1e-6,
    wrong=[
        Wrong("没看遮罩", lambda x, mask: _unit(x.mean(axis=1)), "补的列也算进去了：mask 是 0 的列不参加平均。"),
        Wrong("没有归一", lambda x, mask: x @ mask / mask.sum(), "平均对了，还差最后一步：除以自己的长度。"),
        Wrong("方向反了", lambda x, mask: _unit(x.mean(axis=0)), "一列是一个片段：沿列平均，每个特征剩一个数。"),
        Wrong("留下了补的", lambda x, mask: _unit(x @ (1.001 - mask)), "遮罩看反了：1 是留下的，0 是补的。"),
        Wrong("取了最大", lambda x, mask: _unit(x[:, mask > 0].max(axis=1)), "这是取最大（max pooling）；e5 用的是平均。"),
        Wrong("只取第一列", lambda x, mask: _unit(x[:, 0]), "只取 <s> 那一列是另一类模型的办法；e5 要平均留下的全部列。"),
        Wrong("先归一再平均", lambda x, mask: (x / np.linalg.norm(x, axis=0)) @ mask / mask.sum(), "先把每列归一再平均，结果不是单位长度：先平均，后归一。"),
    ],
    follow_up="我们的包把几段文字首尾相接，不补齐，所以用不着遮罩；别家的引擎多半要。",
)  # fmt: skip

EXERCISES = [_HEAD, _MASK]
