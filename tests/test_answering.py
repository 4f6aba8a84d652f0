"""作答：抽取式、聊天模型、ask 与拒答、溯源的三层、显示成网页。提示词与编号见 test_prompting.py。"""

import re
import warnings
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import KEY, Loopback

from rag_lessons import (
    AnthropicChat,
    ChatGenerator,
    Chunk,
    Document,
    ExtractiveGenerator,
    OpenAIChat,
    RagLessonsError,
    ToyEmbedder,
    VectorIndex,
    ZhipuChat,
    ask,
    below,
    build_prompt,
    build_structured_prompt,
    chunk_by_heading,
    chunk_by_lines,
    load_folder,
    load_golden,
    parse_citations,
)
from rag_lessons.evaluation import read_jsonl
from rag_lessons.generation import quoted, sentences
from rag_lessons.paths import data_path
from rag_lessons.prompting import read_answer
from rag_lessons.types import Answer, Hit


def hits_of(*texts: str) -> list[Hit]:
    return [Hit(Chunk(t, f"{i}.md", 0, len(t)), 0.9, i, {"dense": 0.9}) for i, t in enumerate(texts, 1)]


def test_prompt_shows_path_and_source():
    chunk = Chunk("三天", "手册.md", 0, 2, line=8, headings=("手册", "请假"))
    assert "[1] 出处 手册.md:8（手册 > 请假），相关度 0.812" in build_prompt("几天", [Hit(chunk, 0.8123, 1)])
    assert "没有检索到资料" in build_prompt("几天", [])


def test_extractive_answer_is_verbatim():
    texts = ["# 步数用完，安全阀就会合上。\n# 别的话题说的是缓存。", "预算用完也算，安全阀同样合上。"]
    text = ExtractiveGenerator().generate("安全阀什么时候合上", hits_of(*texts))
    good, bad = parse_citations(text, hits_of(*texts))
    assert not bad and [c.number for c in good] == [1, 2]
    for citation in good:
        assert citation.quote and citation.quote in citation.chunk.text
    assert ExtractiveGenerator(limit=1).generate("安全阀什么时候合上", hits_of(*texts)).count("[") == 1
    assert ExtractiveGenerator().generate("问题", hits_of("短")) == "资料中未提及"
    assert ExtractiveGenerator().generate("问题", []) == "资料中未提及"


def test_sentences():
    assert sentences("| 一线 | 500 |\n1.5 秒后重试 config.py 一次。Then stop. Now go on.") == [
        "一线 | 500", "1.5 秒后重试 config.py 一次。", "Then stop.", "Now go on."]
    assert sentences("") == []


INDEX = VectorIndex.build(chunk_by_lines(Document("a.md", "安全阀由 guard 函数定义。\n缓存放在内存里面。"), 1), ToyEmbedder())


class Never:
    def generate(self, question, hits):
        raise AssertionError("不应调用")


def test_ask():
    answer = ask("安全阀由谁定义", INDEX)
    assert not answer.refused and answer.citations[0].chunk.label == "a.md:1"
    assert "安全阀由 guard 函数定义。" in answer.text and "a.md:1" in str(answer)
    assert len(answer.hits) == 2


def test_refusal_does_not_call_the_generator():
    answer = ask("安全阀由谁定义", INDEX, Never(), refuse=below(0.99))
    assert (answer.text, answer.citations, answer.refused) == ("资料中未提及", (), True)
    assert answer.hits and "0.99" in answer.missing[0]
    empty = ask("安全阀", VectorIndex.build([], ToyEmbedder()), Never())
    assert empty.refused and empty.text == "资料中未提及" and empty.hits == ()


@pytest.mark.parametrize("text, refused", [
    ("资料中未提及", True), ("资料中未提及。\n", True), ("“资料中未提及”。", True), ("资料中未提及 A，B 是 40 步 [1]", False), ("上限 40 步 [1]", False)])
def test_the_model_may_refuse_too(text, refused):
    assert read_answer(text, hits_of("甲")).refused == refused


def test_below_needs_a_raw_score():
    with pytest.raises(RagLessonsError, match="dense"):
        below(0.5, of="bm25")(hits_of("甲"))


@pytest.mark.parametrize("of", ["rrf", "weighted", "mmr", None, 3, ["dense"]])
def test_a_fused_score_cannot_decide_refusal(of):
    """哪怕结果里有这个分数，也不能拿来和一条固定的线比。"""
    with pytest.raises(RagLessonsError, match="原始分数") as caught:
        below(0.5, of=of)
    assert str(caught.value).count("。") == 1
    with pytest.raises(RagLessonsError, match="有的是：dense）"):
        below(0.5, of="bm25")([Hit(Chunk("甲", "a.md", 0, 1), 0.03, 1, {"rrf": 0.03, "dense": 0.9})])


class Counting:
    def __init__(self):
        self.calls = 0

    def generate(self, question, hits):
        self.calls += 1
        return "答案 [1]"


@given(st.floats(-1, 1), st.lists(st.floats(-1, 1), max_size=4))
def test_the_generator_runs_exactly_when_a_raw_score_reaches_the_line(line, scores):
    hits = [Hit(Chunk(f"第 {i} 段资料", "a.md", i, i + 1), 0.99, i + 1, {"dense": s, "weighted": 1.0}) for i, s in enumerate(scores)]
    searcher = type("Searcher", (), {"search": lambda self, query, k: hits})()
    generator = Counting()
    answer = ask("问", searcher, generator, refuse=below(line))
    enough = bool(scores) and max(scores) >= line
    assert (generator.calls, answer.refused) == (int(enough), not enough)
    if not enough:
        assert (answer.text, answer.citations, answer.checks) == ("资料中未提及", (), ()) and len(answer.missing) == 1
        assert answer.hits == tuple(hits)


def test_invented_numbers_are_reported():
    class Inventing:
        def generate(self, question, hits):
            return "答案在这里 [1][9]"

    answer = ask("安全阀由谁定义", INDEX, Inventing(), k=1)
    assert [c.number for c in answer.citations] == [1] and "[9]" in answer.missing[0]


@pytest.mark.parametrize("question", ["", "  ", None])
def test_blank_question(question):
    with pytest.raises(RagLessonsError):
        ask(question, INDEX)
    with pytest.raises(RagLessonsError):
        ask("甲", INDEX, k=0)


def test_hits_may_come_from_a_generator():
    hits = [Hit(Chunk("步数上限是 40 步。", "a.md", 0, 11), 0.9, 1, {"dense": 0.9})]
    assert build_prompt("问", (h for h in hits)) == build_prompt("问", hits)
    assert parse_citations("[1]", (h for h in hits)) == parse_citations("[1]", hits)
    assert ExtractiveGenerator().generate("步数", (h for h in hits)) == ExtractiveGenerator().generate("步数", hits)


@pytest.mark.parametrize("wrong", [None, "abc", [None], [Chunk("甲", "a.md", 0, 1)], Hit(Chunk("甲", "a.md", 0, 1), 0.5, 1)])
def test_things_that_are_not_hits_get_one_sentence(wrong):
    for call in (
        lambda: build_prompt("问", wrong),
        lambda: parse_citations("[1]", wrong),
        lambda: ExtractiveGenerator().generate("问", wrong),
        lambda: ask("问", type("Searcher", (), {"search": lambda self, query, k: wrong})()),
    ):
        with pytest.raises(RagLessonsError, match="检索结果"):
            call()


def test_wrong_arguments_get_one_sentence():
    hits = [Hit(Chunk("步数上限是 40 步。", "a.md", 0, 11), 0.9, 1, {"dense": 0.9})]
    searcher = type("Searcher", (), {"search": lambda self, query, k: hits})()
    silent = type("Silent", (), {"generate": lambda self, question, hits: None})()
    for call in (
        lambda: build_prompt(None, hits),
        lambda: parse_citations(None, hits),
        lambda: ExtractiveGenerator(limit=0),
        lambda: ExtractiveGenerator(limit="2"),
        lambda: ExtractiveGenerator("toy"),
        lambda: ExtractiveGenerator().generate(None, hits),
        lambda: ask("问", None),
        lambda: ask("问", "索引"),
        lambda: ask("问", searcher, "toy"),
        lambda: ask("问", searcher, silent),
        lambda: ask("问", searcher, refuse=0.8),
    ):
        with pytest.raises(RagLessonsError):
            call()


@pytest.mark.parametrize("wrong", [None, 5, "", "../golden/agent", "agent.jsonl", "a\0b", ["agent"], "x" * 5000])
def test_an_unknown_golden_set_lists_the_known_ones(wrong):
    with pytest.raises(FileNotFoundError, match="agent"):
        load_golden(wrong)


def test_a_line_separator_inside_json_does_not_end_the_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"q": "一\u2028二"}\n{"q": "三\x85"}\n', encoding="utf-8")
    assert [record["q"] for record in read_jsonl(tmp_path / "a.jsonl")] == ["一\u2028二", "三\x85"]


# ---------------------------------------------------------------- 抽取式


def test_a_question_is_not_an_answer():
    hits = hits_of("## 电子发票要打印吗？\n不收打印件，上传原件即可。", "他问：「发票要打印吗？」")
    assert ExtractiveGenerator().generate("电子发票要打印吗？", hits) == "「不收打印件，上传原件即可。」[1]"


@given(st.text(st.sampled_from("甲乙「」“”『』。x [1]"), min_size=6, max_size=20))
def test_a_quoted_sentence_is_read_back(sentence):
    text = quoted(sentence)
    assert text[1:-1] == sentence
    if not re.search("[「」“”『』]", sentence.strip()):
        (citation,), _ = parse_citations(text + "[1]", hits_of("甲"))
        assert citation.quote == sentence


@pytest.mark.parametrize("name, cut", [("agent", chunk_by_lines), ("handbook", chunk_by_heading), ("product", chunk_by_heading)])
def test_every_extract_is_in_its_document(name, cut):
    """抽取式回答不会编造：全部金标问题上，每句引文都在文档里的那个位置。"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        documents = load_folder(data_path(name))
    texts = {document.source: document.text for document in documents}
    index = VectorIndex.build([chunk for document in documents for chunk in cut(document)], ToyEmbedder())
    checks = [check for question in load_golden(name) for check in ask(question.question, index).checks]
    assert len(checks) > 50 and all(check.ok for check in checks)
    for check in checks:
        text = texts[check.citation.chunk.source]
        assert text[check.start:check.end] == check.found and check.line == text.count("\n", 0, check.start) + 1
        assert check.verdict == "loose" or check.found == check.citation.quote.strip()


# ---------------------------------------------------------------- 聊天模型

HITS = hits_of("一线城市每人每晚 450 元。", "一线城市每人每晚由 450 元调整为 500 元。")
CHATS = {"智谱": (ZhipuChat, "zhipu"), "OpenAI": (OpenAIChat, "openai"), "Anthropic": (AnthropicChat, "anthropic")}


@pytest.fixture
def server():
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(params=CHATS, ids=lambda name: name)
def generator(request, server):
    kind, address = CHATS[request.param]
    return ChatGenerator(kind("some-model", base_url=getattr(server, address), api_key=KEY))


def test_the_chat_gets_the_prompt_and_its_words_come_back(generator, server):
    server.say("旧的「每晚 450 元」[1]，新的「调整为 500 元」[2]，另有「每晚 480 元」[1]，[9]")
    assert generator.last_reply is None
    answer = ask("住宿上限", type("S", (), {"search": lambda self, query, k: HITS})(), generator)
    (request,) = server.requests
    assert build_prompt("住宿上限", HITS) in str(request.body).replace("\\n", "\n")
    assert [(c.citation.number, c.verdict) for c in answer.checks] == [(1, "verbatim"), (1, "number"), (2, "verbatim")]
    assert answer.missing == ("答案引用了不存在的资料 [9]",) and not answer.refused
    assert generator.last_reply.usage.total > 0 and "some-model" in generator.name


@pytest.mark.parametrize("behaviour, says", [("length", "长度上限"), ("sensitive", "内容安全"), ("empty", "没有写任何内容")])
def test_half_answers_are_refused_in_one_sentence(generator, server, behaviour, says):
    if behaviour == "empty":
        server.say("")
    else:
        server.next(behaviour)
        server.say("安全阀的上限是")
    with pytest.raises(RagLessonsError, match=says) as caught:
        generator.generate("上限", HITS)
    assert KEY not in str(caught.value) and "\n" not in str(caught.value)
    server.say("上限 450 元 [1]")
    assert generator.generate("上限", HITS) == "上限 450 元 [1]"


def test_refusing_sends_nothing(generator, server):
    searcher = type("S", (), {"search": lambda self, query, k: HITS})()
    assert ask("住宿上限", searcher, generator, refuse=below(0.99)).refused
    assert server.requests == [] and generator.last_reply is None


def test_a_structured_prompt_is_read_as_json(server):
    generator = ChatGenerator(ZhipuChat("some-model", base_url=server.zhipu, api_key=KEY), build_structured_prompt)
    searcher = type("S", (), {"search": lambda self, query, k: HITS})()
    server.say('```json\n{"points": [{"text": "旧", "source": 1, "quote": "每晚 450 元"}], "missing": ["二线"]}\n```', "450 元 [1]")
    answer = ask("住宿上限", searcher, generator)
    assert (answer.text, answer.missing, answer.checks[0].verdict) == ("旧「每晚 450 元」[1]", ("二线",), "verbatim")
    with pytest.raises(RagLessonsError, match="JSON"):
        ask("住宿上限", searcher, generator)
    assert generator.last_reply.text == "450 元 [1]", "原文还看得到"


def test_wrong_chats_get_one_sentence():
    silent = type("Silent", (), {"model": "m", "chat": lambda self, messages: 5})()
    for call in (lambda: ChatGenerator(None), lambda: ChatGenerator(ZhipuChat), lambda: ChatGenerator(silent, "提示"),
                 lambda: ChatGenerator(silent).generate("问", HITS), lambda: ChatGenerator(silent).generate("问", "甲")):
        with pytest.raises(RagLessonsError):
            call()


# ---------------------------------------------------------------- 显示


def test_str_is_quiet_when_all_is_well_and_says_what_is_not():
    fine = read_answer("「每晚 450 元」[1]，又见「450 元」[1]", HITS)
    assert str(fine) == "「每晚 450 元」[1]，又见「450 元」[1]\n\n来源：\n  [1] 1.md:1"
    text = str(read_answer("「每晚 480 元」[1] [7]", HITS))
    assert "不存在的资料 [7]" in text and "引的是「每晚 480 元」" in text and "每晚 450 元" in text
    assert "0.99" in str(ask("安全阀", INDEX, Never(), refuse=below(0.99)))


class Page(HTMLParser):
    """网页里有哪些标签；标签有没有配好对。"""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], set(), ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


EVIL = ["<script>alert(1)</script>", "</div></details><img src=x onerror=alert(1)>", "&lt;b&gt; & \" '", "$x$ \\(y\\)", "\u202e\u200b\x00", "\ud800", "[1]", "「甲」[1][9]", "`[2]`"]


@given(st.lists(st.sampled_from(EVIL) | st.text(max_size=20), min_size=1, max_size=3), st.lists(st.sampled_from(EVIL), max_size=4).map("".join))
def test_html_is_escaped_and_always_the_same(texts, said):
    hits = [Hit(Chunk(t, f"{t}.md", 0, len(t), headings=(t,)), 0.9, i, {}) for i, t in enumerate(texts, 1)]
    answer = read_answer(said, hits)
    html = answer._repr_html_()
    assert html == read_answer(said, hits)._repr_html_()
    page = Page(html)
    assert set(page.tags) <= {"div", "details", "summary", "mark", "span", "b", "s", "br", "ul", "li"} and page.attributes <= {"style"}
    assert "\u202e" not in html and "\ud800" not in html and "\x00" not in html and "$x" not in html
    html.encode("utf-8")


def test_numbers_open_the_passage_with_the_quote_marked():
    long = "前文。\n" * 100
    text = f"{long}一线城市每人每晚 450 元。\n{long}"
    hits = [Hit(Chunk(text, "旧.md", 0, len(text), line=3, headings=("差旅", "住宿")), 0.9, 1), *hits_of("乙")]
    html = read_answer("「每人每晚 450 元」[1]，「每人每晚 480 元」[1]，[1, 2]，[7]", hits)._repr_html_()
    assert re.findall(r"<summary[^>]*>(\[.*?\])</summary>", html) == ["[1]", "[1]", "[1, 2]"]
    assert re.findall(r"<mark[^>]*>(.*?)</mark>", html) == ["每人每晚 450 元", "每人每晚 450 元"]
    assert "旧.md:3（差旅 &gt; 住宿），第 103 行" in html and "数字和原文对不上" in html and "没有资料 7" in html
    assert len(html) < 6000 and html.count("前文。") < 40, "只显示引文附近"
    assert "[1]" in Answer("甲 [1]")._repr_html_(), "没有资料的答案也能显示"


def test_a_quoted_table_header_is_marked():
    chunk = Chunk("| 青岛 | 350 |", "a.md", 30, 42, line=9, metadata={"table_header": "| 城市 | 上限 |\n|---|---|"})
    html = read_answer("「城市 | 上限」[1]，「青岛 | 350」[1]", [Hit(chunk, 0.9, 1)])._repr_html_()
    assert re.findall(r"<mark[^>]*>(.*?)</mark>", html) == ["城市 | 上限", "青岛 | 350"]
    assert html.count("，第 9 行") == 1 and "没有这句话" not in html


# ---------------------------------------------------------------- 别人递来的东西

class Says:
    def __init__(self, text, read=None):
        self.text, self.read = text, read

    def generate(self, question, hits):
        return self.text


def one_index():
    return VectorIndex.build([Chunk("年假有五天，入职满一年", "a.md", 0, 11)], ToyEmbedder())


@pytest.mark.parametrize("refuse", [lambda hits: True, lambda hits: False, lambda hits: ["太低"]])
def test_a_refuse_that_gives_no_reason_is_not_a_refusal(refuse):
    with pytest.raises(RagLessonsError, match="refuse 要返回拒答的理由"):
        ask("年假几天", one_index(), refuse=refuse)


def test_the_parts_of_ask_are_checked():
    index = one_index()
    for generator in (ExtractiveGenerator, Says):
        with pytest.raises(RagLessonsError, match="不要忘了括号"):
            ask("年假几天", index, generator)
    with pytest.raises(RagLessonsError, match="searcher 要有"):
        ask("年假几天", VectorIndex)
    with pytest.raises(RagLessonsError, match="read 要返回 Answer"):
        ask("年假几天", index, Says("五天", lambda text, hits: text))
    assert ask("年假几天", index, Says("五天 [1]")).citations        # read 是 None 就用默认的


def test_hits_that_come_twice_are_one_source():
    class Twice:
        def search(self, query, k=3):
            return one_index().search(query, k) * 2

    assert [hit.rank for hit in ask("年假几天", Twice()).hits] == [1]


@pytest.mark.parametrize("prompt", [lambda question, hits: None, lambda question, hits: 5, lambda question, hits: " "])
def test_a_prompt_must_be_text(prompt):
    with pytest.raises(RagLessonsError, match="prompt 要返回有内容的字符串"):
        ChatGenerator(type("Chat", (), {"chat": lambda self, messages: "好"})(), prompt).generate("问", hits_of("年假五天"))


def test_an_embedder_that_returns_nonsense_does_not_pick_the_sentence():
    class Wrong:
        space, dim, made = "某家", 2, None

        def embed_documents(self, texts):
            return [self.made] * len(texts)

        def embed_query(self, text):
            return [1, 0]

    wrong = Wrong()
    wrong.made = [3, 4]
    assert ExtractiveGenerator(wrong).generate("年假", hits_of("年假有五天，入职满一年")).startswith("「年假")
    for made in ([float("nan"), 1], [1, 2, 3], None):
        wrong.made = made
        with pytest.raises(RagLessonsError, match="某家"):
            ExtractiveGenerator(wrong).generate("年假", hits_of("年假有五天，入职满一年"))


@pytest.mark.parametrize("wrong", [{"text": None}, {"missing": "abc"}, {"missing": (5,)}, {"hits": None}, {"citations": [1]}])
def test_an_answer_is_checked_when_it_is_made(wrong):
    with pytest.raises(RagLessonsError, match=r"答案要是字符串|Answer 的"):
        Answer(**({"text": "好"} | wrong))
