"""评测：指标与 ir-measures 一致，区间可信，位置找得准，答案的对错查得出。"""

from __future__ import annotations

import dataclasses
import random
import time
from types import SimpleNamespace

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, R, Success, nDCG

from rag_lessons import (
    Answer,
    Chunk,
    Citation,
    Document,
    Hit,
    RagLessonsError,
    ToyEmbedder,
    VectorIndex,
    ask,
    chunk_by_chars,
    chunk_by_definition,
    chunk_by_heading,
    chunk_by_lines,
    chunk_by_paragraph,
    chunk_recursive,
    load_folder,
    load_golden,
)
from rag_lessons import evaluation as ev
from rag_lessons.course.notebooks import same_as_package
from rag_lessons.evaluation import Gold, Question, compare_reports, evaluate, evaluate_answers, sweep
from rag_lessons.paths import data_path

KS = (1, 3, 5)


def piece(i: int, source: str = "a.md") -> Chunk:
    """第 i 块：五个字，位置紧接着上一块。"""
    return Chunk(f"第{i:03d}段", source, 5 * i, 5 * i + 5)


def question(name: str, *gold: int, **more: str) -> Question:
    """金标是第 gold 块整块的问题。"""
    return Question(name, f"{name}？", more.pop("type", "literal"), tuple(Gold("a.md", piece(i).text) for i in gold), **more)


class Fixed:
    """照着写好的名次回答。"""

    def __init__(self, answers: dict[str, list[int]], size: int = 30) -> None:
        self.answers, self.chunks = answers, [piece(i) for i in range(size)]

    def search(self, query: str, k: int = 3) -> list[Hit]:
        found = self.answers[query.rstrip("？")][:k]
        return [Hit(piece(i), 1 / rank, rank, {"dense": 1 / rank}) for rank, i in enumerate(found, 1)]


class Searching:
    """search 由一个函数来答；可以没有 chunks。"""

    def __init__(self, answer, **parts) -> None:
        self.answer = answer
        vars(self).update(parts)

    def search(self, query, k=3):
        return self.answer(query, k)


# ---------------------------------------------------------------- 指标


def test_three_golds_one_hit_at_rank_one():
    report = evaluate(Fixed({"q": [1, 7, 8]}), [question("q", 1, 2, 3)])
    assert {name: round(value, 4) for name, value in report.metrics.items()} == {
        "recall@1": 0.3333, "recall@3": 0.3333, "recall@5": 0.3333,
        "hit@1": 1, "hit@3": 1, "hit@5": 1,
        "ndcg@1": 1, "ndcg@3": 0.4693, "ndcg@5": 0.4693, "mrr": 1,
    }  # fmt: skip


RANKINGS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 11), max_size=8),                   # 名次：可以比 k 短，可以是空的，可以有重复
        st.lists(st.integers(0, 11), max_size=4, unique=True),      # 金标：可以没有
        st.lists(st.integers(1, 3), min_size=8, max_size=8),        # 分数：并列的很多
    ),
    min_size=1, max_size=6,
).filter(lambda all_of_them: any(gold for _, gold, _ in all_of_them))  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(RANKINGS)
def test_metrics_agree_with_ir_measures(rankings):
    """重复的块占着名次、金标只算一次；在 ir-measures 那边，重复的写成一个不相关的编号。"""
    qrels, run, answers, asked = [], [], {}, []
    for number, (ranking, gold, scores) in enumerate(rankings):
        name = f"q{number}"
        answers[name] = ranking
        asked.append(question(name, *gold))
        # ir-measures 把并列的按编号从大到小排，所以编号随名次变小；是哪一块另记着
        labels = {i: f"{99 - rank:02d}" for rank, i in reversed(list(enumerate(ranking)))}
        for rank, score in enumerate(sorted(scores[:len(ranking)], reverse=True)):
            run.append(ir_measures.ScoredDoc(name, f"{99 - rank:02d}", float(score)))
        qrels += [ir_measures.Qrel(name, labels.get(i, f"never{i}"), 1) for i in gold]
    theirs = ir_measures.calc_aggregate([m @ k for m in (R, Success, nDCG) for k in KS], qrels, run)
    near = [doc for doc in run if int(doc.doc_id) > 99 - max(KS)]       # RR@5 由别的库来算，并列时次序不同；截到前 5 再算 RR
    theirs |= ir_measures.calc_aggregate([RR], qrels, near)
    ours = evaluate(Fixed(answers), asked, KS).metrics
    names = {"recall": R, "hit": Success, "ndcg": nDCG}
    for name, value in ours.items():
        kind, _, k = name.partition("@")
        expected = theirs[RR if kind == "mrr" else names[kind] @ int(k)]
        assert value == pytest.approx(expected, abs=1e-9), name


def test_k_beyond_the_list_and_beyond_the_corpus():
    searcher = Fixed({"q": [4, 2]}, size=5)
    report = evaluate(searcher, [question("q", 2)], ks=[50, 2])
    assert report.ks == (2, 50) and report.metrics["recall@50"] == report.metrics["recall@2"] == 1
    assert evaluate(searcher, [question("q", 2)], ks=2).ks == (2,)


def test_one_chunk_that_holds_two_golds_takes_one_place():
    long = Chunk("甲乙丙丁", "a.md", 0, 4)
    asked = Question("q", "问", "literal", (Gold("a.md", "甲"), Gold("a.md", "丁"), Gold("a.md", "甲")))
    report = evaluate(VectorIndex.build([long], ToyEmbedder()), [asked])
    assert set(report.metrics.values()) == {1.0} and report.rows[0].gold_count == 2


@given(st.lists(st.integers(1, 12), max_size=5), st.integers(0, 4), st.integers(1, 12))
def test_metrics_stay_between_zero_and_one_and_rise_with_k(found, unseen, k):
    count = len(found) + unseen
    if not count:
        return
    for metric in (ev.recall_at_k, ev.ndcg_at_k):
        assert 0 <= metric(found, count, k) <= 1 + 1e-12
    assert ev.recall_at_k(found, count, k) <= ev.recall_at_k(found, count, k + 1)
    assert 0 <= ev.reciprocal_rank(found) <= 1


def test_write_once_names_lead_through_the_package():
    source = "def overlaps(chunk, span):\n    source, start, end = span\n    return chunk.source == source and chunk.start < end and start < chunk.end"
    assert same_as_package("rag_lessons.evaluation.overlaps", source) == ""
    assert "不同" in same_as_package("rag_lessons.evaluation.overlaps", source.replace("<", "<="))
    for name in ("first_rank", "hit_at_k", "recall_at_k", "ndcg_at_k", "bootstrap_interval", "paired_interval", "says"):
        assert "没有定义" in same_as_package(f"rag_lessons.evaluation.{name}", "x = 1")


# ---------------------------------------------------------------- 不合用的输入


def test_odd_questions():
    searcher = Fixed({"q": [1], "n": [2]})
    with pytest.raises(RagLessonsError, match="一题也没有"):
        evaluate(searcher, [])
    with pytest.raises(RagLessonsError, match="没有一题有金标"):
        evaluate(searcher, [question("n", type="unanswerable")])
    with pytest.raises(RagLessonsError, match="题号 q 出现了不止一次"):
        evaluate(searcher, [question("q", 1), question("q", 2)])
    with pytest.raises(RagLessonsError, match="收到 str"):
        evaluate(searcher, "agent")
    with pytest.raises(RagLessonsError, match="收到 dict"):
        evaluate(searcher, [{"id": "q"}])
    assert len(evaluate(searcher, (q for q in [question("q", 1)]))) == 1


@pytest.mark.parametrize("ks", [(), 0, (1, 0), (-1,), 1.5, "3", (True,), None])
def test_odd_ks(ks):
    with pytest.raises(RagLessonsError):
        evaluate(Fixed({"q": [1]}), [question("q", 1)], ks)


def test_unanswerable_questions_are_counted_apart():
    asked = [question("q", 1), question("n", type="unanswerable")]
    report = evaluate(Fixed({"q": [1]}), asked)     # 没有答案的题不去检索：Fixed 里没有它，去问就是 KeyError
    assert len(report) == 1 and [q.id for q in report.unanswerable] == ["n"] and report.metrics["recall@1"] == 1
    assert "另有 1 题没有答案" in str(report)


def test_searchers_that_return_less_more_or_nonsense():
    asked, chunks = [question("q", 1)], [piece(i) for i in range(9)]
    hit = {i: Hit(piece(i), 0.5, 1) for i in range(9)}

    def score(answer):
        return evaluate(Searching(answer, chunks=chunks), asked).metrics

    assert score(lambda query, k: [])["recall@5"] == 0
    assert score(lambda query, k: [hit[1]])["mrr"] == 1
    assert score(lambda query, k: [hit[i] for i in (2, 2, 2, 1)])["mrr"] == 0.25, "名次按返回的次序，不信 hit.rank"
    assert score(lambda query, k: [hit[0]] * 5 + [hit[1]])["mrr"] == 0, "给多了，只看前 k"
    assert score(lambda query, k: (hit[i] for i in (0, 1)))["mrr"] == 0.5, "生成器也收"
    assert score(lambda query, k: [hit[1]] * 5)["recall@5"] == 1, "同一块返回五次，金标只算一次"
    for wrong in (None, [piece(1)], "abc", [(piece(1), 0.5)]):
        with pytest.raises(RagLessonsError, match=r"问题 q：.*检索结果"):
            score(lambda query, k, wrong=wrong: wrong)
    for wrong in (None, VectorIndex, [1]):
        with pytest.raises(RagLessonsError, match="search"):
            evaluate(wrong, asked)


# ---------------------------------------------------------------- 位置：从块拼回原文


@pytest.mark.parametrize("corpus", ["agent", "handbook", "product"])
@pytest.mark.parametrize(
    "cut", [chunk_by_lines, chunk_by_chars, chunk_by_paragraph, chunk_recursive, chunk_by_heading, chunk_by_definition]
)
def test_positions_from_chunks_are_those_from_documents(corpus, cut):
    documents = load_folder(data_path(corpus))
    chunks = [c for d in documents for c in cut(d)]
    random.Random(0).shuffle(chunks)
    stitched = ev.golden.stitch(chunks)
    for q in load_golden(corpus):
        assert ev.gold_spans(q, stitched) == ev.gold_spans(q, documents)


def test_gold_across_two_chunks_with_white_space_between():
    text = "第一句。\n\n  第二句。\n"
    chunks = [Chunk("第一句。", "a.md", 0, 4), Chunk("第二句。", "a.md", 8, 12)]
    asked = Question("q", "第二句", "literal", (Gold("a.md", "一句。\n\n  第二"),))
    index = VectorIndex.build(chunks, ToyEmbedder())
    report = evaluate(index, [asked], ks=1)
    assert report.rows == evaluate(index, [asked], ks=1, documents=[Document("a.md", text)]).rows
    assert report.metrics["recall@1"] == 1 and len(report.rows[0].found) == 1


def test_overlapping_chunks_parents_and_children_stitch():
    text = "春眠不觉晓处处闻啼鸟夜来风雨声"
    spans = [(0, 15), (0, 5), (3, 9), (8, 12), (12, 15)]
    chunks = [Chunk(text[a:b], "a.md", a, b) for a, b in spans]
    assert [d.text for d in ev.golden.stitch(chunks)] == [text]


def test_changed_document_names_the_question():
    index = VectorIndex.build([Chunk("每晚 500 元", "a.md", 0, 8)], ToyEmbedder())
    changed = Question("h007", "多少", "literal", (Gold("a.md", "每晚 450 元"),))
    elsewhere = Question("h008", "多少", "literal", (Gold("b.md", "每晚"),))
    for q in (changed, elsewhere):
        with pytest.raises(RagLessonsError, match=rf"问题 {q.id} .*documents="):
            evaluate(index, [q])
        with pytest.raises(RagLessonsError, match=f"问题 {q.id} "):
            evaluate(index, [q], documents=[Document("a.md", "每晚 500 元")])


def test_chunks_that_contradict_their_positions():
    wrong_length = [Chunk("甲乙丙", "a.md", 0, 2)]
    two_versions = [Chunk("甲乙丙", "a.md", 0, 3), Chunk("丁戊", "a.md", 2, 4)]
    for chunks in (wrong_length, two_versions):
        searcher = Searching(lambda query, k, chunks=chunks: [Hit(chunks[0], 1.0, 1)], chunks=chunks)
        with pytest.raises(RagLessonsError, match=r"拼不回原文.*documents"):
            evaluate(searcher, [Question("q", "甲", "literal", (Gold("a.md", "甲"),))])


def test_nested_searchers_are_walked_to_the_chunks():
    inner = Fixed({"q": [3, 1]})
    asked = [question("q", 1)]

    @dataclasses.dataclass(slots=True)
    class Slotted:
        inner: object

        def search(self, query, k=3):
            return self.inner.search(query, k)

    def answer(query, k):
        return inner.search(query, k)

    wrapped = Searching(answer, dense=Slotted(Searching(answer, parts=[inner])))
    by_name = Searching(answer, ways={"甲": inner})
    for searcher in (wrapped, by_name):
        assert evaluate(searcher, asked).metrics["mrr"] == 0.5
    loop = Searching(answer)
    loop.itself = loop
    for searcher in (loop, Searching(answer), SimpleNamespace(search=inner.search)):
        with pytest.raises(RagLessonsError, match=r"找不到 \.chunks.*documents="):
            evaluate(searcher, asked)
    documents = [Document("a.md", "".join(piece(i).text for i in range(30)))]
    assert evaluate(loop, asked, documents=documents).metrics["mrr"] == 0.5
    with pytest.raises(RagLessonsError, match="收到 str"):
        evaluate(loop, asked, documents=["a.md"])


def test_two_halves_of_a_corpus_are_put_together():
    left, right = Fixed({"q": [1]}), Fixed({"q": [1]})
    left.chunks, right.chunks = left.chunks[:15], right.chunks[15:]
    both = Searching(left.search, halves=(left, right))
    assert evaluate(both, [question("q", 1, 29)]).metrics["recall@1"] == 0.5


def test_other_folder_is_not_mistaken_for_bad_retrieval():
    index = VectorIndex.build([Chunk("甲乙", "data/a.md", 0, 2)], ToyEmbedder())
    with pytest.raises(RagLessonsError, match="路径对不上"):
        evaluate(index, [Question("q", "甲", "literal", (Gold("a.md", "甲"),))], documents=[Document("a.md", "甲乙")])


# ---------------------------------------------------------------- 区间与比较


def many(seed: int, size: int = 40) -> tuple[Fixed, list[Question]]:
    rng = random.Random(seed)
    asked = [question(f"q{i:02d}", *rng.sample(range(20), rng.choice([1, 1, 2, 3]))) for i in range(size)]
    return Fixed({q.id: rng.sample(range(20), 6) for q in asked}), asked


def test_order_of_questions_does_not_matter():
    searcher, asked = many(1)
    other = asked.copy()
    random.Random(2).shuffle(other)
    one, two = evaluate(searcher, asked), evaluate(searcher, other)
    assert one == two and str(one) == str(two) and one._repr_html_() == two._repr_html_()
    values = np.random.default_rng(0).random(30)
    assert ev.bootstrap_interval(values) == ev.bootstrap_interval(values[::-1])


def test_intervals_are_reproducible_and_hold_the_mean():
    values = [1, 0, 0, 1, 1, 0.5, 0, 1, 1, 1]
    low, high = ev.bootstrap_interval(values)
    assert (round(low, 3), round(high, 3)) == (0.35, 0.9)
    assert ev.bootstrap_interval(np.array(values)) == (low, high) and low < np.mean(values) < high
    assert ev.bootstrap_interval(values, seed=1) != (0, 0)
    report = evaluate(*many(3))
    for name, (low, high) in report.intervals.items():
        assert low <= report.metrics[name] <= high


def test_interval_covers_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(7)
    samples = [rng.random(60) < 0.6 for _ in range(200)]
    inside = sum(low <= 0.6 <= high for low, high in map(ev.bootstrap_interval, samples))
    assert 0.88 <= inside / 200 <= 0.985


def test_interval_agrees_with_the_textbook_for_many_questions():
    values = np.random.default_rng(3).random(400) < 0.7
    low, high = ev.bootstrap_interval(values)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.006) and high == pytest.approx(values.mean() + half, abs=0.006)


def test_ten_thousand_resamples_of_200_questions_take_well_under_a_second():
    values = np.random.default_rng(0).random(200)
    best = min(timed(lambda: ev.bootstrap_interval(values)) for _ in range(3))
    assert best < 0.5


def timed(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@pytest.mark.parametrize("values", [[], [float("nan")], [1, float("inf")]])
def test_no_interval_of_nothing(values):
    with pytest.raises(RagLessonsError):
        ev.bootstrap_interval(values)


def test_pairing_narrows_the_interval():
    hard = np.random.default_rng(0).random(100) < 0.5
    a, b = hard.astype(float), hard.astype(float)
    b[:4] = 1 - a[:4] * 0          # 只有前四题变好
    low, high = ev.paired_interval(a, b)
    apart = np.subtract(*ev.bootstrap_interval(b)[::-1]) + np.subtract(*ev.bootstrap_interval(a)[::-1])
    assert high - low < apart / 3
    with pytest.raises(RagLessonsError, match="题数不同"):
        ev.paired_interval([1], [1, 0])


def test_compare_reports():
    asked = [question(f"q{i}", i) for i in range(6)]
    before = evaluate(Fixed({f"q{i}": [9] for i in range(5)} | {"q5": [5]}), asked)
    after = evaluate(Fixed({f"q{i}": [i] for i in range(5)} | {"q5": [9]}), asked)
    found = compare_reports(before, after, "recall@1")
    assert (found.mean, found.n, found.wins, found.losses) == (pytest.approx(4 / 6), 6, 5, 1)
    assert (found.low, found.high) == ev.paired_interval([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 0])
    assert "高 5、低 1、平 0" in str(found)
    back = compare_reports(after, before, "recall@1")
    assert (back.mean, back.wins) == (-found.mean, 1)
    same = compare_reports(before, before)
    assert (same.metric, same.mean, same.low, same.high, same.clear) == ("recall@3", 0, 0, 0, False)
    assert "+0.000" in str(same) and "-0.000" not in str(same)
    assert compare_reports(before, after, "chars@1").mean == 0
    with pytest.raises(RagLessonsError, match=r"没有叫 'recall@7'.*recall@1"):
        compare_reports(before, after, "recall@7")
    with pytest.raises(RagLessonsError, match=r"题目不同.*q5"):
        compare_reports(before, evaluate(Fixed({f"q{i}": [i] for i in range(5)}), asked[:5]))
    with pytest.raises(RagLessonsError, match="收到 dict"):
        compare_reports(before, {})


def test_chance_to_see_agrees_with_intervals_drawn_one_by_one():
    gaps = np.array([1] * 12 + [-1] * 4 + [0] * 64, float)
    rng = np.random.default_rng(5)
    for n in (40, 160):
        seen = np.mean([ev.bootstrap_interval(rng.choice(gaps, n))[0] > 0 for _ in range(150)])
        assert ev.chance_to_see(gaps, n) == pytest.approx(seen, abs=0.1)


def test_questions_needed_is_near_the_textbook():
    gaps = np.array([1] * 15 + [-1] * 5 + [0] * 80, float)
    for size in (0.03, 0.05, 0.1):
        textbook = (1.96 + 0.842) ** 2 * gaps.var() / size**2
        assert ev.questions_needed(gaps, size) == pytest.approx(textbook, rel=0.12)
    assert ev.questions_needed(gaps, -0.05) == pytest.approx(ev.questions_needed(gaps, 0.05), rel=0.1)
    assert ev.questions_needed(gaps, 0.05, power=0.95) > ev.questions_needed(gaps, 0.05) > ev.questions_needed(gaps, 0.1)
    assert ev.chance_to_see(gaps - gaps.mean() + 0.05, 20) < 0.15, "20 题看不出 5 个百分点"
    report = evaluate(*many(4))
    shifted = evaluate(Fixed({q: r[1:] for q, r in many(4)[0].answers.items()}), many(4)[1])
    difference = compare_reports(report, shifted, "mrr")
    assert ev.questions_needed(difference) == ev.questions_needed(difference.differences)


@pytest.mark.parametrize(
    ("gaps", "more"),
    [([], {}), ([0, 0, 0], {}), ([1, 1], {}), ([1, -1], {}), ([1, 0], {"power": 1}), ([1, 0], {"power": 0}),
     ([1, -1, 0], {"size": 1e-5}), ([1, 0], {"size": "大"}), ([float("nan")], {})],
)  # fmt: skip
def test_questions_needed_says_why_not(gaps, more):
    with pytest.raises(RagLessonsError):
        ev.questions_needed(gaps, **more)


# ---------------------------------------------------------------- 成绩单


def test_the_bill_grows_with_k():
    report = evaluate(Fixed({"a": [1, 2, 3], "b": [4]}), [question("a", 1), question("b", 4)], KS, count=lambda text: 2)
    assert report.bill == {1: {"chars": 5, "tokens": 2}, 3: {"chars": 10, "tokens": 4}, 5: {"chars": 10, "tokens": 4}}
    assert "token" in str(report) and list(evaluate(Fixed({"a": [1]}), [question("a", 1)]).bill[1]) == ["chars"]


def test_subsets():
    asked = [question("a", 1, type="table"), question("b", 2, split="tune"), question("n", type="unanswerable")]
    report = evaluate(Fixed({"a": [1], "b": [9]}), asked)
    assert report.of(type="table").metrics["recall@1"] == 1 and not report.of(type="table").unanswerable
    assert [row.question.id for row in report.of(type=["table", "literal"], split="tune").rows] == ["b"]
    assert [q.id for q in report.of(type=["literal", "unanswerable"]).unanswerable] == ["n"]
    assert [row.question.id for row in report.missed()] == ["b"]
    with pytest.raises(RagLessonsError, match=r"没有一题符合.*literal、table"):
        report.of(type="表格")
    with pytest.raises(RagLessonsError, match="题目没有 'kind'"):
        report.of(kind="table")


def test_missed_depends_on_k():
    report = evaluate(Fixed({"a": [9, 8, 1]}), [question("a", 1)])
    assert [len(report.missed(k)) for k in (1, 2, 3)] == [1, 1, 0]


def test_text_table_is_aligned_and_html_is_escaped():
    reports = sweep({"<b>&甲": lambda: Fixed({"q": [1]})}, [question("q", 1)])
    shown = reports._repr_html_()
    assert "&lt;b&gt;&amp;甲" in shown and "<b>" not in shown and shown == reports._repr_html_()
    lines = str(evaluate(*many(5))).splitlines()[1:5]
    columns = [[i for i, c in enumerate(wide(line)) if c == "["] for line in lines[1:]]
    assert len(columns[0]) == 3 and columns[0] == columns[1] == columns[2]


def wide(line: str) -> str:
    return "".join(c * 2 if "一" <= c <= "龥" else c for c in line)


def test_identical_scores_come_with_a_warning_word():
    assert "别当真" in str(evaluate(Fixed({"q": [1]}), [question("q", 1)]))
    assert "别当真" not in str(evaluate(*many(6)))


def test_plot_has_chinese_and_no_warning():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    report, before = evaluate(*many(7)), dict(mpl.rcParams)
    ax = report.plot("hit", label="玩具")
    report.plot(ax=ax, label="e5", color="#0072B2")
    report.plot(ax=plt.subplots()[1]).figure.canvas.draw()
    ax.figure.canvas.draw()         # 缺字形在这里会变成警告，警告在这里是错误
    assert "命中率" not in ax.get_ylabel() and "召回率" in ax.get_ylabel()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["玩具", "e5"]
    assert dict(mpl.rcParams) == before, "不改你的全局设置"
    plt.close("all")
    for more in ({"metric": "mrr"}, {"x": "tokens"}, {"x": "字"}):
        with pytest.raises(RagLessonsError, match="只能是"):
            report.plot(**more)


def test_settings_are_drawn_over_what_they_read():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    long = Fixed({"q": [1, 2]})
    long.search = lambda query, k: [Hit(Chunk("字" * 50, "b.md", 0, 50), 1.0, 1)] * k
    reports = sweep({"短": lambda: Fixed({"q": [1, 2]}), "长": lambda: long}, [question("q", 1)], ks=(1, 2), count=len)
    for x, places in (("chars", [[5, 10], [50, 100]]), ("tokens", [[5, 10], [50, 100]]), ("k", [[1, 2], [1, 2]])):
        ax = reports.plot(x=x, colors={"短": "#000000"})
        ax.figure.canvas.draw()
        assert [list(map(float, bars.lines[0].get_xdata())) for bars in ax.containers] == places
        assert ax.containers[0].lines[0].get_color() == "#000000"
    plt.close("all")


def test_by_type():
    asked = [question("a", 1, type="table"), question("b", 2), question("c", 3)]
    shown = evaluate(Fixed({"a": [1], "b": [9], "c": [3]}), asked, ks=1).by("type")
    assert {name: (len(r), r.metrics["recall@1"]) for name, r in shown.items()} == {"literal": (2, 0.5), "table": (1, 1)}
    assert str(shown).startswith("题型") and repr(shown) == str(shown)
    with pytest.raises(RagLessonsError, match="type、split、short"):
        shown["table"].by("question")


def test_sweep_builds_a_fresh_searcher_each_time():
    asked, made = [question("q", 1)], []

    def build(found):
        made.append(found)
        return Fixed({"q": found})

    reports = sweep({"好": lambda: build([1]), "坏": lambda: build([2])}, asked, ks=(1, 2))
    assert made == [[1], [2]] and [r.metrics["recall@1"] for r in reports.values()] == [1, 0]
    assert str(reports).splitlines()[1].startswith("好") and reports.of(type="literal").keys() == reports.keys()
    one = Fixed({"q": [1]})
    with pytest.raises(RagLessonsError, match="同一个检索器"):
        sweep({"a": lambda: one, "b": lambda: one}, asked)
    with pytest.raises(RagLessonsError, match="要是函数"):
        sweep({"a": one}, asked)
    for wrong in ({}, [one]):
        with pytest.raises(RagLessonsError, match="非空的字典"):
            sweep(wrong, asked)


def test_different_cuts_share_one_golden_set():
    documents, asked = load_folder(data_path("product")), load_golden("product")
    reports = sweep(
        {str(size): lambda size=size: VectorIndex.build([c for d in documents for c in chunk_recursive(d, size=size)], ToyEmbedder())
         for size in (200, 500, 1000)},
        asked,
    )  # fmt: skip
    assert [len(r) for r in reports.values()] == [35] * 3
    bills = [r.bill[5]["chars"] for r in reports.values()]
    assert bills == sorted(bills)
    assert evaluate(VectorIndex.build([c for d in documents for c in chunk_recursive(d)], ToyEmbedder()), asked) == reports["500"]


# ---------------------------------------------------------------- 答案


@pytest.mark.parametrize(
    ("text", "short", "expected"),
    [
        ("见 doc10", "doc1", False), ("见 doc1。", "doc1", True), ("见 mydoc1", "doc1", False), ("见 DOC1", "doc1", True),
        ("见 doc1", "doc", False), ("见 doc_1", "doc", False), ("doc1,doc2", "doc1", True),
        ("上限 400 步", "40", False), ("上限 40 步", "40", True), ("上限 140 步", "40", False), ("上限 40.5", "40", False),
        ("上限 1.40", "40", False), ("上限 ４０ 步", "40步", True), ("上限40步", "40 步", True), ("上限 40 步", "４０ 步", True),
        ("1,400 元", "400", False), ("1,400 元", "1400 元", True), ("1400 元", "1,400", True), ("40，500", "40", True),
        ("40%", "40", False), ("40%", "40%", True), ("４０％", "40%", True), ("40", "40%", False), ("5 万元", "5", False),
        ("Max Steps", "max steps", True), ("maxsteps", "max steps", False), ("max  steps", "max steps", True),
        ("SafetyValve 跳闸", "safetyvalve", True), ("青禾负责", "青禾", True), ("", "40", False), ("40", "", False),
        ("DB-2024-117 号", "DB-2024-117", True), ("DB-2024-1170", "DB-2024-117", False), ("a.b", "a.b", True), ("axb", "a.b", False),
    ],
)  # fmt: skip
def test_whole_tokens(text, short, expected):
    assert ev.says(text, short) is expected


@pytest.mark.parametrize(
    ("text", "short", "expected"),
    [
        ("6 步，剩余的三成", "6 步；剩余的三成", True), ("6 步", "6 步；剩余的三成", False), ("6 步，三成", "6 步;三成", True),
        ("20 秒后发 SIGTERM，再 SIGKILL", "20 秒，先 SIGTERM，两秒后 SIGKILL", True),
        ("200 秒后发 SIGTERM，再 SIGKILL", "20 秒，先 SIGTERM，两秒后 SIGKILL", False),
        ("都可以", "不可以，会议要开摄像头", None), ("450", "450 元", None), ("4500", "450 元", False), ("老柯", "青禾", False), ("", "", None),
    ],
)  # fmt: skip
def test_right_wrong_or_undecided(text, short, expected):
    assert ev.is_right(text, short) is expected


RULE = "一线城市住宿每晚 500 元，旺季上浮 20%，发票按 1,200 元封顶。"
CHUNK = Chunk(RULE, "差旅.md", 0, len(RULE), line=7, headings=("第 3 章",))


def cited(text: str, *numbers: int) -> Answer:
    return Answer(text, tuple(Citation(n, "", CHUNK) for n in numbers), (Hit(CHUNK, 0.9, 1),))


@pytest.mark.parametrize(
    ("answer", "loose"),
    [
        (cited("每晚 500 元 [1]", 1), []),
        (cited("每晚 ５００ 元，上浮 20 % [1]，封顶 1200 元【1】", 1), []),
        (cited("每晚 50 元 [1]", 1), ["数 50"]),
        (cited("上浮 20 元 [1]", 1), ["数 20"]),
        (cited("五千以内，见第 3 章、第 7 行 [1]", 1), []),
        (cited("每晚 500 元"), ["没有引用"]),
        (cited("每晚 500 元 [4]", 1), ["编号 [4]"]),
        (cited("规定说「每晚500元」，并且“上浮 20%”[1]", 1), []),
        (cited("规定说「每晚 600 元」，并且“随便报”[1]", 1), ["引文「每晚 600 元」", "引文「随便报」", "数 600"]),
        (cited("2024 年 6 月，每晚 500 元 [1]", 1), ["数 2024"]),
    ],
)  # fmt: skip
def test_what_does_not_stand(answer, loose):
    assert ev.ungrounded(answer, "6 月住一线城市多少钱") == loose


def test_quote_is_checked_against_its_own_source():
    other = Chunk("高铁只报二等座。", "差旅.md", 40, 48)
    hits = (Hit(CHUNK, 0.9, 1), Hit(other, 0.8, 2))
    wrong = Answer("「高铁只报二等座」[1]", (Citation(1, "高铁只报二等座", CHUNK), Citation(2, "", other)), hits)
    assert ev.ungrounded(wrong) == ["引文「高铁只报二等座」"]


GOLD = (Gold("差旅.md", "每晚 500 元"),)
ASKED = [
    Question("a", "一线城市多少", "table", GOLD, "500 元"),
    Question("b", "一线城市多少", "literal", GOLD, "500 元"),
    Question("c", "一线城市多少", "literal", GOLD, "500 元", split="tune"),
    Question("d", "能带狗吗", "unanswerable"),
    Question("e", "能带猫吗", "unanswerable"),
    Question("f", "什么事", "literal", GOLD, "要看情况，没有一定的说法"),
]
REFUSED = Answer("资料中未提及", hits=(Hit(CHUNK, 0.5, 1),), refused=True)
ELSEWHERE = Chunk("狗要拴好。", "食堂.md", 0, 5)
ANSWERS = [
    cited("每晚 500 元 [1]", 1), cited("每晚 450 元 [1]", 1), REFUSED, REFUSED,
    Answer("狗要拴好 [1]", (Citation(1, "", ELSEWHERE),), (Hit(ELSEWHERE, 0.6, 1),)),
    Answer("看情况 [1]", (Citation(1, "", ELSEWHERE),), (Hit(ELSEWHERE, 0.6, 1),)),
]  # fmt: skip


@pytest.mark.parametrize("documents", [None, [Document("差旅.md", CHUNK.text), Document("食堂.md", ELSEWHERE.text)]])
def test_answer_report(documents):
    report = evaluate_answers(ANSWERS, ASKED, documents=documents)
    assert report.counts == {"right": (1, 3), "wrongly_refused": (1, 4), "cited": (2, 3), "grounded": (3, 4), "refused": (1, 2)}
    assert report.metrics["right"] == pytest.approx(1 / 3) and report.undecided == 1
    assert {row.question.id: row.problems for row in report.failed()} == {
        "b": ["没答对", "站不住：数 450"], "c": ["误拒"], "e": ["资料里没有，却答了"], "f": ["引的不是金标所在"],
    }  # fmt: skip
    assert report == evaluate_answers({q.id: a for q, a in zip(ASKED, ANSWERS, strict=True)}, ASKED[::-1], documents=documents)
    assert "拒得对（没答案的题）" in str(report) and "1 题靠字符串判不了" in str(report)
    assert report.of(split="tune").counts == {"right": (0, 1), "wrongly_refused": (1, 1)}
    assert report._repr_html_() == report._repr_html_() and "<td" in report._repr_html_()


def test_judge_replaces_the_string_check():
    report = evaluate_answers(ANSWERS, ASKED, judge=lambda text, q: "情况" in text)
    assert report.counts["right"] == (1, 4) and report.undecided == 0


def test_cited_is_unknown_when_the_gold_was_never_retrieved():
    far = Chunk("机票只报经济舱。", "差旅.md", 50, 58)
    answer = Answer("经济舱 [1]", (Citation(1, "", far),), (Hit(far, 0.9, 1),))
    assert evaluate_answers([answer], ASKED[:1]).rows[0].cited is None
    text = RULE.ljust(50) + far.text
    assert evaluate_answers([answer], ASKED[:1], documents=[Document("差旅.md", text)]).rows[0].cited is False


def test_hand_made_chunks_with_careless_positions_still_do():
    careless = Chunk("住宿每晚 500 元", "差旅.md", 0, 3)
    answer = Answer("500 元 [1]", (Citation(1, "", careless),), (Hit(careless, 0.9, 1),))
    assert evaluate_answers([answer], ASKED[:1]).rows[0].cited is True


def test_odd_answers():
    for wrong, match in (([], "0 个答案"), ({}, "问题 a 没有答案"), (["500 元"], "收到 str")):
        with pytest.raises(RagLessonsError, match=match):
            evaluate_answers(wrong, ASKED[:1])
    with pytest.raises(RagLessonsError, match="一题也没有"):
        evaluate_answers([], [])
    with pytest.raises(RagLessonsError, match="没有叫 'good'"):
        evaluate_answers(ANSWERS, ASKED).values("good")


def test_extractive_answers_stand_on_their_sources():
    documents, asked = load_folder(data_path("agent")), load_golden("agent")
    index = VectorIndex.build([c for d in documents for c in chunk_recursive(d)], ToyEmbedder())
    report = evaluate_answers([ask(q.question, index) for q in asked], asked, documents=documents)
    assert report.metrics["grounded"] == 1, [row.loose for row in report.rows if row.loose]


# ---------------------------------------------------------------- 拒答的阈值


def scored(scores: dict[str, float | None]) -> Searching:
    """每题第一名的 dense 分数是写好的；None 是一条结果也没有。"""
    def answer(query, k):
        score = scores[query.rstrip("？")]
        return [] if score is None else [Hit(piece(1), 9.0, 1, {"dense": 0.1, "bm25": 2.0}), Hit(piece(2), 8.0, 2, {"dense": score})][:k]

    return Searching(answer, chunks=[])


def tuned(scores: dict[str, float | None]) -> list[Question]:
    """名字以 n 开头的没有答案。"""
    return [question(name, *([] if name.startswith("n") else [1]), split="tune") for name in scores]


def test_threshold_between_two_clean_groups():
    scores = {"a": 0.9, "b": 0.8, "n1": 0.6, "n2": 0.3}
    found = ev.calibrate_refusal(scored(scores), tuned(scores))
    assert (found.threshold, found.balanced_accuracy, found.wrongly_refused, found.wrongly_answered) == (0.7, 1, 0, 0)
    assert (found.answerable, found.unanswerable) == (2, 2) and "分得不好" not in str(found)
    assert found.refuse([Hit(piece(1), 1.0, 1, {"dense": 0.69})]) and found.refuse([Hit(piece(1), 1.0, 1, {"dense": 0.71})]) is None
    assert found.scores["n1"] == (0.6, False)


def test_the_lowest_of_equally_good_lines():
    scores = {"a": 0.9, "b": 0.5, "n1": 0.7, "n2": 0.3}
    found = ev.calibrate_refusal(scored(scores), tuned(scores))
    assert (found.threshold, found.balanced_accuracy, found.wrongly_refused) == (0.4, 0.75, 0)


def test_bad_separation_is_said_and_kept_within_bounds():
    scores = {"a": 0.9, "b": 0.5, "c": 0.4, "n1": 0.8, "n2": 0.45}
    found = ev.calibrate_refusal(scored(scores), tuned(scores))
    assert 0.5 <= found.balanced_accuracy < 0.8 and "分得不好" in str(found)
    loose = ev.calibrate_refusal(scored(scores), tuned(scores), keep=1)
    assert loose.wrongly_refused == 0 and loose.threshold <= 0.4
    assert f"误拒 {found.wrongly_refused} 题" in str(found) and "乱猜是 0.50" in str(found)


@given(st.dictionaries(st.text("an12", min_size=2, max_size=4), st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=2, max_size=12))
def test_no_other_line_is_better(scores):
    asked = tuned(scores)
    if len({bool(q.gold) for q in asked}) < 2:
        return
    found = ev.calibrate_refusal(scored(scores), asked)
    yes, no = ([found.scores[q.id][0] for q in asked if bool(q.gold) is side] for side in (True, False))
    best = max(ev.balanced_accuracy(yes, no, line) for line in (-2, *(s for s in (*yes, *no)), 2))
    assert found.balanced_accuracy == pytest.approx(best)
    assert found.balanced_accuracy == pytest.approx(ev.balanced_accuracy(yes, no, found.threshold))


def test_only_the_tune_half_is_looked_at():
    scores = {"a": 0.9, "n1": 0.3, "r1": 0.1, "n2": 0.95}
    asked = [dataclasses.replace(q, split="report") if q.id in ("r1", "n2") else q for q in tuned(scores)]
    found = ev.calibrate_refusal(scored(scores), asked)
    assert found.balanced_accuracy == 1 and set(found.scores) == {"a", "n1"}
    there = found.on(scored(scores), asked)
    assert (there.split, there.threshold, there.balanced_accuracy, there.wrongly_refused, there.wrongly_answered) == ("report", 0.6, 0, 1, 1)


def test_nothing_found_counts_as_refused():
    scores = {"a": 0.9, "b": None, "n1": None, "n2": 0.4}
    found = ev.calibrate_refusal(scored(scores), tuned(scores))
    assert (found.wrongly_refused, found.wrongly_answered) == (1, 0)
    with pytest.raises(RagLessonsError, match="keep=1 做不到"):
        ev.calibrate_refusal(scored(scores), tuned(scores), keep=1)
    with pytest.raises(RagLessonsError, match="没有检索到东西"):
        ev.calibrate_refusal(scored(dict.fromkeys(scores)), tuned(scores))


def test_odd_calibrations():
    scores = {"a": 0.9, "n1": 0.3}
    with pytest.raises(RagLessonsError, match=r"没有名为 'maxsim'.*bm25、dense"):
        ev.calibrate_refusal(scored(scores), tuned(scores), of="maxsim")
    for asked in (tuned({"a": 1}), tuned({"n1": 1}), [dataclasses.replace(q, split="report") for q in tuned(scores)]):
        with pytest.raises(RagLessonsError, match="两种题"):
            ev.calibrate_refusal(scored(scores), asked)
    for more in ({"keep": 2}, {"k": 0}, {"keep": "多"}):
        with pytest.raises(RagLessonsError):
            ev.calibrate_refusal(scored(scores), tuned(scores), **more)


def test_a_rank_only_score_can_be_measured_but_not_used():
    def answer(query, k):
        return [Hit(piece(1), 1.0, 1, {"weighted": 1.0})]

    found = ev.calibrate_refusal(Searching(answer), tuned({"a": 1, "n": 1}), of="weighted")
    assert found.balanced_accuracy == 0.5 and "分得不好" in str(found)
    with pytest.raises(RagLessonsError, match="不能用来拒答"):
        _ = found.refuse


# ---------------------------------------------------------------- 别人递来的东西

def test_what_evaluate_is_handed_is_checked():
    searcher, asked = many(1)
    for wrong in (None, [None], {"a": asked[0]}):
        with pytest.raises(RagLessonsError, match="Question 的列表"):
            evaluate(searcher, wrong)
    with pytest.raises(RagLessonsError, match="Document 的列表"):
        evaluate(searcher, asked, documents=[None])
    with pytest.raises(RagLessonsError, match="count 要是函数"):
        evaluate(searcher, asked, count=5)
    for wrong in ("多", None, float("nan")):
        with pytest.raises(RagLessonsError, match="count 返回的 token 数"):
            evaluate(searcher, asked, count=lambda text, wrong=wrong: wrong)
    report = evaluate(searcher, asked)
    for use in (report.values, report.by, report.plot):
        with pytest.raises(RagLessonsError):
            use(["recall"])


def test_reports_with_other_gold_are_not_compared():
    searcher = Fixed({"一": [1, 2]})
    a, b = (evaluate(searcher, [question("一", place)]) for place in (1, 2))
    with pytest.raises(RagLessonsError, match="题目不同"):
        compare_reports(a, b, "mrr")


def test_sweep_takes_generators_and_keeps_every_name():
    searcher, asked = many(1)
    again, _ = many(1)
    both = sweep({"甲": lambda: searcher, "乙": lambda: again}, iter(asked), (k for k in (1, 3)))
    assert [report.ks for report in both.values()] == [(1, 3), (1, 3)]
    with pytest.raises(RagLessonsError, match="同一个名字"):
        sweep({1: lambda: searcher, "1": lambda: again}, asked)
    with pytest.raises(RagLessonsError, match="一份成绩单也没有"):
        ev.Sweep({})


def test_what_evaluate_answers_is_handed_is_checked():
    asked = [question("一", 1)]
    for wrong in (None, Answer("好"), "好", {"一": None}, {Answer("好")}):
        with pytest.raises(RagLessonsError, match="Answer 的列表"):
            evaluate_answers(wrong, asked)
    assert len(evaluate_answers([Answer("好")], asked[0])) == 1
    for wrong in ("yes", 0.5, 1):
        with pytest.raises(RagLessonsError, match="True、False 或 None"):
            evaluate_answers([Answer("好")], asked, judge=lambda text, q, wrong=wrong: wrong)
    assert evaluate_answers([Answer("好")], asked, judge=lambda text, q: np.True_).metrics["right"] == 1


def test_answers_whose_gold_cannot_be_placed_are_counted_aloud():
    """引用的块来自同一份文件，金标原句却拼不出来：判不了引得对不对，成绩单上要写明有几题。"""
    report = evaluate_answers([Answer("好 [1]", (Citation(1, "", piece(5)),))], [question("一", 1)])
    assert "cited" not in report.metrics and "另有 1 题找不到金标的位置" in str(report)


def test_a_full_width_thousand_is_the_same_number():
    assert ev.says("上限１，０００元", "1,000 元") and ev.says("上限 1,000 元", "１，０００元")
    assert not ev.says("第 1，000 号", "1000")


@pytest.mark.parametrize("value", ["高", None, float("nan")])
def test_a_threshold_is_not_picked_from_scores_that_are_no_numbers(value):
    scores = {"一": 0.9, "n二": 0.1}
    searcher = scored(scores)
    asked = tuned(scores)
    plain = searcher.search
    searcher.search = lambda query, k=3: [dataclasses.replace(hit, details={"dense": value}) for hit in plain(query, k)]
    with pytest.raises(RagLessonsError, match=r"dense.*要是一个数"):
        ev.calibrate_refusal(searcher, asked)


@pytest.mark.parametrize("differences", [None, 5, [], ["a"], [[1, 0]], [float("nan")]])
def test_differences_are_numbers_one_a_question(differences):
    for use in (lambda: ev.questions_needed(differences), lambda: ev.chance_to_see(differences, 5)):
        with pytest.raises(RagLessonsError, match="逐题的差"):
            use()
