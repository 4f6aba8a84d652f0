"""成绩单：小语料里恰好坏一样，它就得说出那一样；什么也没坏，就不许找事。"""

import hashlib
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import (
    BM25Index,
    Chunk,
    Document,
    Hit,
    HybridSearch,
    PairReranker,
    RagLessonsError,
    ToyEmbedder,
    VectorIndex,
    below,
    chunk_by_chars,
    chunk_recursive,
    course,
)
from rag_lessons.course.diagnosis import enough, likeness, luck, proportion_interval, report_card, solved
from rag_lessons.course.labelling import QuestionForm, load_questions, questions_path, shared_pairs
from rag_lessons.evaluation import Gold, Question
from rag_lessons.folder import open_folder
from rag_lessons.paths import data_path

# 十件事，两两没有共同的字对；每件事一句原句、一个照着问的问题
FACTS = [
    ("食堂晚餐供应到十九点整", "食堂晚餐供应到何时"), ("班车从嘉兴站台出发", "班车从哪出发"), ("年假满周岁给五天", "年假满周岁给多少"),
    ("病休须交诊断证明书", "病休须交什么"), ("工卡遗失补办收费廿五元", "工卡遗失补办多少钱"), ("叉车限速每小时五公里", "叉车限速多少"),
    ("锡膏开封八刻钟内用完", "锡膏开封多久用完"), ("护目镜九月领新的", "护目镜几月领"), ("投标专章归贺一鸣保管", "投标专章归谁"),
    ("夜间宿舍不得喧哗吵闹", "夜间宿舍能喧哗吗"),
]
EXTRA = ["股票代码几位", "健身房开放吗", "国庆放假安排", "海外派驻补贴", "公积金提取办法"]


def documents():
    return [Document(f"{n:02}.md", text) for n, (text, _) in enumerate(FACTS, 1)]


def questions(facts=FACTS, extra=()):
    asked = [Question(f"q{n:02}", ask, "literal", (Gold(f"{n:02}.md", text),)) for n, (text, ask) in enumerate(facts, 1)]
    return asked + [Question(f"u{n:02}", ask, "unanswerable") for n, ask in enumerate(extra, 1)]


def whole(docs):
    return [chunk for d in docs for chunk in chunk_recursive(d)]


def toy(chunks):
    return VectorIndex.build(chunks, ToyEmbedder(4096))


class Deaf:
    """和意思无关的向量：整段文字的哈希。"""

    space, dim = "deaf/v1", 64

    def embed_documents(self, texts):
        seeds = [int.from_bytes(hashlib.sha256(t.encode()).digest()[:4], "big") for t in texts]
        rows = np.array([np.random.default_rng(seed).normal(size=self.dim) for seed in seeds]).reshape(-1, self.dim)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    embed_queries = embed_documents

    def embed_query(self, text):
        return self.embed_documents([text])[0]


class Demoted:
    """别人写的检索器：把最好的那块压到第 place 名。"""

    def __init__(self, inner, place):
        self.ask, self.place = inner.search, place        # 里面的检索器藏着，成绩单看不到
        self.chunks = inner.chunks

    def search(self, query, k=3):
        hits = self.ask(query, len(self.chunks))
        order = [*hits[1:self.place], hits[0], *hits[self.place:]]
        return [Hit(hit.chunk, 1 / rank, rank, hit.details) for rank, hit in enumerate(order, 1)][:k]


# ---------------------------------------------------------------- 恰好坏一样


def test_nothing_is_broken():
    card = report_card(toy(whole(documents())), questions(), k=3, documents=documents())
    assert card.first is None and not card.certain and card.done == 10
    assert "没有要先改的" in str(card) and "一题也没有出" in str(card)


def test_a_file_that_was_not_read():
    docs = documents()
    kept = docs[:4]
    card = report_card(toy(whole(kept)), questions(), k=3, documents=kept)
    assert card.first.name == "把文件读对" and card.certain and len(card.first.mended) == 6 and not card.first.broken
    assert "05.md" in card.first.why and "不用统计" in card.verdict
    assert {line.lost for line in card.lines} == {"", "原句不在读进来的文字里"}


def test_a_file_that_was_read_badly():
    bad = [Document(d.source, d.text.replace("的", "").replace("一", "⼀") if i == 8 else d.text) for i, d in enumerate(documents())]
    card = report_card(toy(whole(bad)), questions(), k=3, documents=bad)
    assert card.first.name == "把文件读对" and card.first.mended == ("q09",) and card.certain


def test_quotes_cut_in_half():
    docs = [Document(d.source, "前" * 6 + d.text) for d in documents()]
    small = [c for d in docs for c in chunk_by_chars(d, size=9, overlap=0)]
    card = report_card(toy(small), questions(), k=1, documents=docs)
    assert card.first.name.startswith("切成") and card.certain and "切断" in card.first.why
    assert sum(line.lost.startswith("原句被切断") for line in card.lines) >= 8


def test_vectors_that_do_not_understand():
    chunks = whole(documents() + [Document(f"x{n}.md", f"无关的段落第{n}号") for n in range(40)])
    card = report_card(VectorIndex.build(chunks, Deaf()), questions(), k=1)
    assert card.first.name == "只用关键词" and card.certain and not card.first.broken
    assert sum(line.keyword == 1 for line in card.lines) == 10


def test_keywords_that_do_not_match():
    """问题和原句没有一个词相同：关键词找不到，向量找得到。"""
    words = {f"第{n}问": text for n, (text, _) in enumerate(FACTS, 1)}

    class Knows(Deaf):
        space = "knows/v1"

        def embed_documents(self, texts):
            return super().embed_documents([words.get(t, t) for t in texts])

        embed_queries = embed_documents

    chunks = whole(documents() + [Document(f"x{n}.md", f"第{n}问") for n in range(100, 140)])
    asked = [Question(f"q{n:02}", f"第{n}问", "paraphrase", (Gold(f"{n:02}.md", text),)) for n, (text, _) in enumerate(FACTS, 1)]
    card = report_card(BM25Index.build(chunks), asked, k=1)
    assert card.first is None and any("VectorIndex" in reason for reason in card.skipped)      # 没有嵌入器，不装作试过
    both = HybridSearch(VectorIndex.build(chunks, Knows()), BM25Index.build(chunks), alpha=0)
    card = report_card(both, asked, k=1)
    assert card.first.name == "只用向量" and card.certain


def test_found_but_ranked_low():
    def shared(pairs):
        return [len(set(q) & set(t)) / len(set(q)) for q, t in pairs]

    searcher = Demoted(toy(whole(documents())), place=9)
    card = report_card(searcher, questions(), k=3, reranker=PairReranker(shared))
    assert card.first.name == "重排" and card.certain
    assert all(line.rank == 9 and "排在第 9" in line.lost for line in card.lines)
    without = report_card(searcher, questions(), k=3)
    assert without.first is None and any("重排" in reason for reason in without.skipped)


def test_found_with_a_larger_k():
    card = report_card(Demoted(toy(whole(documents())), place=5), questions(), k=3)
    assert card.first.name == "k 从 3 加到 6" and card.certain and card.first.k == 6
    assert card.first.chars > card.first.before


def test_near_copies_fill_the_top():
    """每件事有八份几乎一样、只问不答的旧稿，占满前六名。"""
    drafts = [Document(f"{n:02}-旧{i}.md", f"{ask}{ask}待定{i}") for n, (_, ask) in enumerate(FACTS, 1) for i in range(8)]
    docs = documents() + drafts
    card = report_card(toy(whole(docs)), questions(), k=3, documents=docs)
    assert card.first.name == "去掉副本" and card.certain and len(card.first.mended) == 10


def test_unanswerable_questions_get_answered():
    searcher = toy(whole(documents()))
    asked = questions(FACTS[:6], EXTRA)
    card = report_card(searcher, asked, k=3, documents=documents())
    assert card.first.name.startswith("拒答的线") and len(card.first.mended) == 5 and not card.first.broken
    after = report_card(searcher, asked, k=3, documents=documents(), refuse=card.first.refuse)
    assert after.done == len(asked) and after.first is None


def test_a_line_that_refuses_everything_is_seen():
    searcher = toy(whole(documents()))
    card = report_card(searcher, questions(), k=3, refuse=below(2.0))
    assert card.done == 0 and all(line.lost == "找全了，却拒答了" for line in card.lines)
    assert card.first.name == "撤掉拒答的线" and card.certain and card.first.refuse is None
    assert [t.name for t in card.trials] == ["撤掉拒答的线"]                         # 检索没有坏，不去试检索的改法


def test_thin_evidence_is_called_thin():
    """十题里只有一题排得低：一比零像抛硬币。"""
    inner = toy(whole(documents()))

    class Once(Demoted):
        def search(self, query, k=3):
            return super().search(query, k) if query == FACTS[0][1] else inner.search(query, k)

    card = report_card(Once(inner, 5), questions(), k=3)
    assert card.first.mended == ("q01",) and not card.certain and card.verdict.startswith("没有一样是确定的")


# ---------------------------------------------------------------- 规矩


def test_same_input_same_card():
    docs, asked = documents()[:7], questions(extra=EXTRA)
    searcher = toy(whole(docs))
    one = report_card(searcher, asked, k=2, documents=docs)
    mixed = random.Random(1)
    other = report_card(toy(whole(mixed.sample(docs, 7))), mixed.sample(asked, len(asked)), k=2, documents=mixed.sample(docs, 7))
    assert str(one) == str(other) and one._repr_html_() == other._repr_html_()


def test_every_claim_is_what_really_happens():
    """写着救回哪几题，换上那个检索器再考，成的就是哪几题。"""
    docs = documents()
    searcher = Demoted(toy(whole(docs)), place=5)
    card = report_card(searcher, questions(extra=EXTRA), k=3, documents=docs)
    for trial in card.trials:
        if trial.name.startswith("拒答"):       # 线是用别的题定的，不是同一条
            continue
        before = solved(searcher, questions(extra=EXTRA), 3, documents=docs)
        after = solved(trial.searcher, questions(extra=EXTRA), trial.k, documents=docs)
        assert {i for i in after if after[i] > before[i]} == set(trial.mended)
        assert {i for i in after if after[i] < before[i]} == set(trial.broken)
    assert [t.net for t in card.trials] == sorted((t.net for t in card.trials), reverse=True)


def test_folder_index_is_taken_apart(tmp_path):
    for document in documents()[:7]:
        (tmp_path / document.source).write_text(document.text, encoding="utf-8")
    card = report_card(open_folder(tmp_path, ToyEmbedder(4096), store=False), questions(), k=3)
    assert card.done == 7 and card.first.name == "把文件读对" and card.first.mended == ("q08", "q09", "q10")


def test_text_is_escaped_in_html():
    asked = [Question("<b>", "<script>食堂晚餐供应", "literal", (Gold("01.md", FACTS[0][0]),))]
    page = report_card(toy(whole(documents())), asked)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_chunkers_read_about_as_much():
    docs = [Document(d.source, d.text + "。" + "补白" * 30) for d in documents()]
    card = report_card(toy(whole(docs)), questions(), k=2, documents=docs,
                       chunkers={"短的": lambda d: chunk_recursive(d, size=30, overlap=5)})
    (trial,) = [t for t in card.trials if t.name.startswith("短的")]
    assert trial.k > 2 and trial.chars <= 1.1 * trial.before


@pytest.mark.parametrize(("arguments", "says"), [
    ((toy(whole(documents())), []), "一题也没有"),
    ((toy([]), questions()), "一块也没有"),
    ((VectorIndex, questions()), "search"),
    ((toy(whole(documents())), questions(), 0), "k"),
    ((toy(whole(documents())), questions() * 2), "不止一次"),
])
def test_errors_are_one_sentence(arguments, says):
    with pytest.raises(RagLessonsError, match=says) as error:
        report_card(*arguments)
    assert "\n" not in str(error.value) and str(error.value).endswith("。")


def test_wrong_options():
    searcher = toy(whole(documents()))
    with pytest.raises(RagLessonsError, match="refuse"):
        report_card(searcher, questions(), refuse=0.8)
    with pytest.raises(RagLessonsError, match="chunkers"):
        report_card(searcher, questions(), chunkers=[chunk_recursive])


def test_exported_from_course():
    assert course.report_card is report_card and course.solved is solved


# ---------------------------------------------------------------- 小函数


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_proportion_interval_holds_the_share(pair):
    done, total = pair
    low, high = proportion_interval(done, total)
    assert 0 <= low <= done / total + 1e-12 and done / total - 1e-12 <= high <= 1 and low < high


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_luck_is_a_chance(mended, broken, tries):
    assert 0 < luck(mended, broken, tries) <= 1
    assert luck(mended + 1, broken) <= luck(mended, broken) + 1e-12
    assert luck(mended, broken + 1) >= luck(mended, broken) - 1e-12
    assert luck(mended, broken, tries + 1) >= luck(mended, broken, tries) - 1e-12


def test_luck_is_what_coins_do():
    rng = np.random.default_rng(0)
    heads = rng.integers(0, 2, (200_000, 6)).sum(axis=1)
    assert math.isclose(luck(5, 1), (heads >= 5).mean(), abs_tol=0.005)


@given(st.integers(1, 12), st.integers(1, 5), st.data())
def test_enough_is_the_smallest_covering_prefix(length, size, data):
    text = "字" * length
    start = data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(start + 1, length))
    cuts = [Chunk(text[i:i + size], "a.md", i, min(i + size, length)) for i in range(0, length, size)]
    order = data.draw(st.permutations(cuts))
    hits = [Hit(c, 1, n) for n, c in enumerate(order, 1)]
    rank = enough(hits, [("a.md", start, end)], {"a.md": text})

    def covers(some):
        return set(range(start, end)) <= {i for h in some for i in range(h.chunk.start, h.chunk.end)}

    assert covers(hits[:rank]) and not covers(hits[:rank - 1])


@given(st.text("甲乙丙", max_size=8), st.text("甲乙丙", max_size=8))
def test_likeness_is_symmetric(a, b):
    assert likeness(a, b) == likeness(b, a) and 0 <= likeness(a, b) <= 1 == likeness(a, a)
    assert 0 <= shared_pairs(a, b) <= 1


# ---------------------------------------------------------------- 出题的小表格


def form():
    return QuestionForm([Document("规定.md", "宿舍 23:00 以后保持安静。违反三次的，收回床位。"), Document("说明.md", "打印机在三楼。\n墨盒找前台领。")])


def test_find_pick_and_save(tmp_path, capsys):
    one = form()
    one.find("床位")
    one.add("总是吵会怎样？", pick=1)
    one.add("墨盒找前台领吗？", "墨盒找前台领。")
    one.add("有健身房吗？")
    said = capsys.readouterr().out
    assert "1. 规定.md　违反三次的，收回床位。" in said and "换说法" in said and "照着原文问的" in said and "没有答案" in said
    path = one.save(tmp_path / "my" / "题.jsonl")
    assert load_questions(path) == one.questions and path.read_bytes().decode("utf-8").count("\n") == 3
    before = path.read_bytes()
    one.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["题.jsonl"]                # 一样的，不留副本
    one.add("总是吵会怎样？", "收回床位")                                            # 同一个问题：改它
    assert [q.id for q in one.questions] == ["题01", "题02", "题03"]
    one.save(path)
    assert path.with_name("题.1.jsonl").read_bytes() == before and path.read_bytes() != before
    assert "题.1.jsonl" in capsys.readouterr().out


@pytest.mark.parametrize(("call", "says"), [
    (lambda f: f.add(" "), "空白"),
    (lambda f: f.add("问", "宿舍23:00 以后"), "空白或换行不一样"),
    (lambda f: f.add("问", "没有这句"), "一字不差"),
    (lambda f: f.add("问", pick=1), "find"),
    (lambda f: (f.find("宿舍"), f.add("问", pick=9)), "1 到 1"),
    (lambda f: f.add("问", "床位", type="unanswerable"), "不写原句"),
    (lambda f: f.add("问", type="literal"), "不写原句"),
    (lambda f: f.add("问", "床位", type="难的"), "type"),
    (lambda f: f.find(""), "空白"),
    (lambda f: f.save("x.jsonl"), "还没有题"),
])
def test_form_errors(call, says):
    with pytest.raises(RagLessonsError, match=says) as error:
        call(form())
    assert "\n" not in str(error.value)


def test_same_quote_in_two_files_needs_a_source():
    two = QuestionForm([Document("甲.md", "提前三天预约"), Document("乙.md", "提前三天预约")])
    with pytest.raises(RagLessonsError, match="source"):
        two.add("几天前约？", "提前三天预约")
    assert two.add("几天前约？", "提前三天预约", source="乙.md").gold[0].source == "乙.md"


def test_mix_asks_for_what_is_missing(capsys):
    one = form()
    one.add("墨盒找前台领吗？", "墨盒找前台领。")
    one.mix()
    said = capsys.readouterr().out
    assert "再出 9 题" in said and "没有答案的至少两题" in said and "换说法" in said


def test_questions_file_that_is_broken(tmp_path):
    assert load_questions(tmp_path / "没有.jsonl") == []
    path = tmp_path / "坏.jsonl"
    path.write_text('{"question": "缺了编号"}\n', encoding="utf-8")
    with pytest.raises(RagLessonsError, match="少了 id"):
        load_questions(path)


def test_folders_of_one_name_keep_their_own_questions(tmp_path):
    (tmp_path / "甲" / "资料").mkdir(parents=True)
    (tmp_path / "乙" / "资料").mkdir(parents=True)
    one, other = (questions_path(tmp_path / where / "资料") for where in "甲乙")
    assert one != other and one == questions_path(tmp_path / "甲" / "." / "资料")
    assert one.name.startswith("questions_资料_") and questions_path(data_path("handbook")).name == "questions_handbook.jsonl"
