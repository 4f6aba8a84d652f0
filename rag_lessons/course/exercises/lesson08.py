"""第 08 课的练习：几道题的平均召回率，给金标题体检。"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from rag_lessons.course.checks import Case, Exercise, Wrong, case

# ---------------------------------------------------------------- 8.1 平均召回率


def mean_recall(found: Sequence[Sequence[int]], gold_counts: Sequence[int], k: int) -> float:
    """有答案的题，各题的 recall@k 的平均。"""
    each = [sum(rank <= k for rank in ranks) / count for ranks, count in zip(found, gold_counts, strict=True) if count]
    return sum(each) / len(each)


def _each(score: Callable[[Sequence[int], int, int], float]) -> Callable[..., float]:
    """换一种一道题的算法，平均照旧。"""
    return lambda found, gold_counts, k: fmean(score(ranks, n, k) for ranks, n in zip(found, gold_counts, strict=True) if n)


def _near(ranks: Sequence[int], k: int) -> int:
    return sum(rank <= k for rank in ranks)


def _pooled(found: Any, gold_counts: Any, k: int) -> float:
    return sum(_near(ranks, k) for ranks in found) / sum(gold_counts)


def _absent_as(value: float) -> Callable[..., float]:
    return lambda found, gold_counts, k: fmean(_near(r, k) / n if n else value for r, n in zip(found, gold_counts, strict=True))


def _recall_cases() -> list[Case]:
    rng = np.random.default_rng(8)
    counts = rng.integers(1, 5, 30).tolist()
    found = [sorted(rng.choice(20, size=int(rng.integers(0, n + 1)), replace=False).tolist()) for n in counts]
    found = [[rank + 1 for rank in ranks] for ranks in found]
    return [
        case("茶水间的五题", [[1], [1], [2], [2, 3], []], [1, 3, 1, 2, 1], k=3),
        case("三处找到一处", [[1, 7, 9]], [3], k=1),
        case("正好排第 k", [[3], [4]], [1, 1], k=3),
        case("有一题没有答案", [[1], [], [2]], [1, 0, 2], k=5),
        case("三处占满前两名", [[1, 1, 2]], [3], k=2),
        case("三十题", found, counts, k=5),
    ]


_RECALL = Exercise(
    id="8.1",
    title="几道题的平均召回率",
    reference=mean_recall,
    cases=_recall_cases,
    diagnoses=[
        (lambda outputs, wanted: all(np.ndim(o) == 1 for o in outputs), "你返回的是每题的召回率；再求一次平均，给一个数。"),
    ],
    wrong=[
        Wrong("倒在一起算", _pooled, "你把全部答案倒在一起数了：答案多的题占了好几票。先各题算，再平均。"),
        Wrong("算成命中率", _each(lambda r, n, k: float(_near(r, k) > 0)), "这是命中率：找到一处就记 1。召回率要除以这题的答案共几处。"),
        Wrong("除以 k", _each(lambda r, n, k: _near(r, k) / k), "分母是 k，这是「前 k 块里有几成有用」；召回率的分母是这题的答案共几处。"),
        Wrong("分母不超过 k", _each(lambda r, n, k: _near(r, k) / min(n, k)), "分母用了 k 和答案数里小的一个：三处找到一处，recall@1 是 1/3，不是 1。"),
        Wrong("没算上第 k 名", _each(lambda r, n, k: sum(x < k for x in r) / n), "第 k 名也在前 k 名里：用 <=。"),
        Wrong("没看 k", _each(lambda r, n, k: len(r) / n), "没有看 k：排在 k 以后的不算。"),
        Wrong("名次的倒数", _each(lambda r, n, k: 1 / min(r) if r else 0.0), "这是名次的倒数（MRR）；召回率不看排第几，只看在不在前 k 名。"),
        Wrong("没答案的算 0 分", _absent_as(0.0), "没有答案的题被算成了 0 分；它没有东西可找，不该算在内，题数里也要去掉。"),
        Wrong("没答案的算满分", _absent_as(1.0), "没有答案的题被算成了满分；它没有东西可找，不该算在内。"),
        Wrong(
            "没有求平均",
            lambda found, gold_counts, k: [_near(r, k) / n for r, n in zip(found, gold_counts, strict=True) if n],
            "你返回的是每题的召回率；再求一次平均，给一个数。",
        ),
        Wrong(
            "只加没有除",
            lambda found, gold_counts, k: sum(_near(r, k) / n for r, n in zip(found, gold_counts, strict=True) if n),
            "各题的召回率加起来了，还没有除以题数。",
        ),
    ],
    follow_up="把五题的名次代进去，应得 0.667；同样五题的命中率是 0.8。",
)

# ---------------------------------------------------------------- 8.2 给金标题体检

COPIED = 8      # 问题里连着这么多字照抄原句，就算照抄


def lint(question: str, quote: str, text: str) -> list[str]:
    """一道金标题的毛病，次序固定；没有毛病是空列表。"""
    return _lint(question, quote, text)


def _lint(
    question: str, quote: str, text: str, *, size: int = COPIED, stop: int = 0, where: str = "quote",
    missing: Callable[[int], bool] = lambda n: n == 0, twice: Callable[[int], bool] = lambda n: n > 1,
) -> list[str]:
    times = text.count(quote)
    problems = ["找不到"] if missing(times) else []
    problems += ["不止一处"] if twice(times) else []
    source = {"quote": quote, "text": text}[where]
    copied = any(question[i:i + size] in source for i in range(len(question) - size + 1 - stop))
    return [*problems, "照抄"] if copied else problems


def _variant(**changes: Any) -> Callable[[str, str, str], list[str]]:
    return lambda question, quote, text: _lint(question, quote, text, **changes)


def _lint_cases() -> list[Case]:
    gift = "礼品单件价值在 200 元以内的，可以接受，三天内在行政部登记"
    book = f"第五章　廉洁。不得收受现金。{gift}。其余按规定办理。"
    return [
        case("好题", "卖料给我们的老板送盒月饼，能收吗？", gift, book),
        case("原句不在资料里", "送盒月饼，能收吗？", "礼品单件价值在 300 元以内", book),
        case("原句出现两次", "谁来办？", "按规定办理", book + "处分也按规定办理。"),
        case("问题照抄了原句", "礼品单件价值在多少元以内可以接受？", gift, book),
        case("照抄的在问题末尾", "东西收了，三天内在行政部登", "可以接受；三天内在行政部登记", "可以接受；三天内在行政部登记。"),
        case("正好连着八个字", "要在三天内在行政部登哪本账？", "可以接受；三天内在行政部登记", "可以接受；三天内在行政部登记。"),
        case("连着七个字", "要在几天内在行政部登哪本账？", "可以接受；三天内在行政部登记", "可以接受；三天内在行政部登记。"),
        case("和别处的句子像", "不得收受现金。礼品能收吗", "三天内在行政部登记", book),
        case("找不到，又照抄", "礼品单件的价值上限在哪里写着？", "礼品单件的价值上限在 500 元以内", book),
        case("出现两次，又照抄", "三天内在行政部登记是谁的事？", "三天内在行政部登记", book + "三天内在行政部登记。"),
        case("问题很短", "能收吗", gift, book),
        case("末尾两个字碰巧一样", "送来的月饼要不要登记", gift, book),
    ]


_LINT = Exercise(
    id="8.2",
    title="给一道金标题体检",
    reference=lint,
    cases=_lint_cases,
    diagnoses=[
        (lambda outputs, wanted: all(isinstance(o, str) for o in outputs), "要返回列表：没有毛病是 []，有几样就有几项。"),
        (lambda outputs, wanted: all(isinstance(o, bool) for o in outputs), "要返回毛病的列表，不是真假。"),
    ],
    wrong=[
        Wrong("不管出现几次", _variant(twice=lambda n: False), "没有查「不止一处」：原句在资料里出现两次，位置就说不清。"),
        Wrong("一次也算不止", _variant(twice=lambda n: n >= 1), "出现一次正好，不算「不止一处」：要大于 1。"),
        Wrong("没查找不到", _variant(missing=lambda n: False), "没有查「找不到」：原句一个字不对，就对不上位置。"),
        Wrong("找到了说找不到", _variant(missing=lambda n: n > 0, twice=lambda n: n > 1), "反了：text.count(quote) 是 0 才叫「找不到」。"),
        Wrong("七个字就算", _variant(size=7), "连着七个字还不算照抄：要八个或更多。"),
        Wrong("九个字才算", _variant(size=9), "正好连着八个字也算照抄：你要到九个才算。"),
        Wrong(
            "末尾不满八个字的也比",
            lambda question, quote, text: [p for p in lint(question, quote, text) if p != "照抄"]
            + (["照抄"] if any(question[i:i + COPIED] in quote for i in range(len(question))) else []),
            "起点走过头了：末尾的切片不满八个字，碰巧在原句里也算成了照抄。最后一个起点是 len(question) - 8。",
        ),
        Wrong("漏了最后一段", _variant(stop=1), "问题末尾那一段没查到：起点要一直走到 len(question) - 8。"),
        Wrong("拿全文来比", _variant(where="text"), "照抄是和原句比，不是和全文比：别处有同样的话，不是这道题的毛病。"),
        Wrong(
            "整个问题都在才算",
            lambda question, quote, text: [p for p in lint(question, quote, text) if p != "照抄"] + (["照抄"] if question in quote else []),
            "你要整个问题都在原句里才算照抄；只要有一段连着八个字就算。",
        ),
        Wrong(
            "找不到就不往下查",
            lambda question, quote, text: ["找不到"] if quote not in text else lint(question, quote, text),
            "找不到原句的题，照样要查照抄：几样毛病可以同时有。",
        ),
        Wrong(
            "查到一样就返回",
            lambda question, quote, text: lint(question, quote, text)[:1],
            "查到一样就返回了：几样毛病可以同时有，都要列出来。",
        ),
        Wrong(
            "照抄放在前面",
            lambda question, quote, text: lint(question, quote, text)[::-1],
            "次序不对：先是原句的毛病（找不到、不止一处），后是照抄。",
        ),
        Wrong("返回文字", lambda question, quote, text: "、".join(lint(question, quote, text)), "要返回列表：没有毛病是 []，有几样就有几项。"),
    ],
    follow_up="体检查出来的不一定是病：问编号的题只能照抄编号，看一眼再说。",
)

EXERCISES = [_RECALL, _LINT]
