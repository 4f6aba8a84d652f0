"""对话：真的 SDK，对着回环地址上真的 HTTP 服务器。"""

import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import KEY, Loopback

from rag_lessons import get_chat
from rag_lessons.chat import (
    PRICES,
    AnthropicChat,
    ChatServiceError,
    OpenAIChat,
    Reply,
    ToolCall,
    Usage,
    ZhipuChat,
)
from rag_lessons.messages import check_messages, check_tools
from rag_lessons.service import Retry, ServiceError
from rag_lessons.types import RagLessonsError

FAST = Retry(first_wait=0.01, longest_wait=0.1)
ASK = [{"role": "system", "content": "只按资料回答。"}, {"role": "user", "content": "安全阀在哪里？"}]
SEARCH = {
    "type": "function",
    "function": {
        "name": "search", "description": "查资料",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
NAMES = [
    f"{vendor}_{what}" for vendor in ("ZHIPUAI", "OPENAI", "ANTHROPIC") for what in ("API_KEY", "BASE_URL")
] + [f"RAG_LESSONS_{vendor}_CHAT_MODEL" for vendor in ("ZHIPU", "OPENAI", "ANTHROPIC")]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """测试不看这台机器上的密钥、地址和模型名。"""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("rag_lessons.settings.repo_root", lambda: tmp_path)


@pytest.fixture
def server():
    with Loopback() as running:
        yield running


def zhipu(server, **options):
    return ZhipuChat(**{"api_key": KEY, "base_url": server.zhipu, "retry": FAST, "timeout": 5, **options})


def compatible(server, **options):
    return OpenAIChat(**{"api_key": KEY, "base_url": server.openai, "retry": FAST, "timeout": 5, **options})


def anthropic(server, **options):
    return AnthropicChat(**{"api_key": KEY, "base_url": server.anthropic, "retry": FAST, "timeout": 5, **options})


CLIENTS = pytest.mark.parametrize("client", [zhipu, compatible, anthropic])


# --- 一问一答 -----------------------------------------------------------------------------------------

@CLIENTS
def test_an_answer_with_usage_and_cost(server, client):
    server.say("在 config.py [1]")
    chat = client(server)
    reply = chat.chat(ASK)
    assert (reply.text, reply.tool_calls, reply.finish_reason, reply.problem) == ("在 config.py [1]", (), "stop", "")
    assert reply.model == chat.model == server.requests[0].body["model"]
    assert reply.usage.completion == len("在 config.py [1]") and reply.usage.prompt > 0
    assert reply.usage.total == reply.usage.prompt + reply.usage.completion
    price = PRICES[chat.model]
    expected = (reply.usage.prompt * price.input + reply.usage.completion * price.output) / 1e6
    assert reply.usage.cost == pytest.approx(expected) and reply.usage.currency == price.currency
    assert reply.message == {"role": "assistant", "content": "在 config.py [1]"}


@CLIENTS
def test_what_is_sent(server, client):
    messages = [*ASK, {"role": "assistant", "content": "不知道"}, {"role": "user", "content": "再找找", "name": "某人"}]
    before = json.dumps(messages)
    client(server).chat(messages)
    body = server.requests[0].body
    if client is anthropic:
        assert body["system"] == "只按资料回答。" and body["max_tokens"] == 8000
        assert [(m["role"], m["content"][0]["text"]) for m in body["messages"]] == [
            ("user", "安全阀在哪里？"), ("assistant", "不知道"), ("user", "再找找")]
    else:
        assert body["messages"] == [{k: v for k, v in m.items() if k != "name"} for m in messages]
    assert "temperature" not in body and not body.get("tools")
    assert json.dumps(messages) == before


@CLIENTS
def test_unknown_models_have_no_price(server, client):
    usage = client(server, model="some-model").chat(ASK).usage
    assert usage.prompt > 0 and usage.cost is None
    assert "价格未知" in str(usage)


def test_long_prompts_cost_more(server):
    chat = anthropic(server)
    assert chat._usage(100_000, 1000).cost == pytest.approx((100_000 * 0.10 + 1000 * 0.50) / 1e6)
    assert chat._usage(100_001, 1000).cost == pytest.approx((100_001 * 0.50 + 1000 * 2.50) / 1e6)


def test_no_usage_reported(server):
    server.always("no_usage")
    assert zhipu(server).chat(ASK).usage is None


@CLIENTS
def test_options(server, client):
    client(server, max_tokens=50, extra={"top_p": 0.5}).chat(ASK)
    body = server.requests[0].body
    assert body["top_p"] == 0.5
    assert body["max_completion_tokens" if client is compatible else "max_tokens"] == 50
    compatible(server, model="qwen3:8b", max_tokens=50).chat(ASK)
    assert server.requests[1].body["max_tokens"] == 50


def test_thinking_is_off_where_it_can_be(server):
    def thinking(make, model):
        make(server, model=model).chat(ASK)
        return (server.requests[-1].body.get("thinking") or {}).get("type")

    for model in ("glm-4.7-flash", "glm-4.7", "glm-4.5-air", "glm-4.6v", "glm-5", "glm-5.1", "GLM-5.2", "glm-5-turbo"):
        assert thinking(zhipu, model) == "disabled", model
    for model in ("glm-4-plus", "glm-4-flash-250414", "glm-5.3", "glm-5.3-flash", "glm-4.10"):
        assert thinking(zhipu, model) is None, model
    assert thinking(anthropic, "claude-haiku-5-5") == "disabled"
    assert thinking(anthropic, "claude-opus-5-5") is None
    zhipu(server, extra={"thinking": {"type": "enabled"}}).chat(ASK)
    assert server.requests[-1].body["thinking"]["type"] == "enabled"


# --- 工具 ---------------------------------------------------------------------------------------------

@CLIENTS
def test_a_tool_is_called_and_its_result_goes_back(server, client):
    chat = client(server)
    server.call(("search", {"query": "安全阀"}), ("search", {"query": "max_steps"}))
    server.say("在 config.py [1]")
    reply = chat.chat(ASK, tools=[SEARCH])
    assert [(c.name, c.arguments, c.error) for c in reply.tool_calls] == [
        ("search", {"query": "安全阀"}, ""), ("search", {"query": "max_steps"}, "")]
    assert reply.finish_reason == "tool_calls" and reply.text == "" and reply.problem == ""
    assert json.loads(reply.tool_calls[0].raw) == {"query": "安全阀"}
    first, second = (call.id for call in reply.tool_calls)
    assert first != second
    messages = [*ASK, reply.message, {"role": "tool", "tool_call_id": first, "content": "config.py:3"},
                {"role": "tool", "tool_call_id": second, "content": ""}]
    assert chat.chat(messages, tools=[SEARCH]).text == "在 config.py [1]"
    body = server.requests[1].body
    if client is anthropic:
        assert body["tools"] == [{"name": "search", "description": "查资料", "input_schema": SEARCH["function"]["parameters"]}]
        assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use", "tool_use"]
        assert body["messages"][2] == {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": first, "content": "config.py:3"},
            {"type": "tool_result", "tool_use_id": second, "content": ""}]}
    else:
        assert body["tools"] == [SEARCH]
        assert body["messages"][2]["tool_calls"][0] == {
            "id": first, "type": "function", "function": {"name": "search", "arguments": '{"query": "安全阀"}'}}


@pytest.mark.parametrize("raw", ['{"query": "安', "安全阀", "[1]", '"x"', "null", "3", "{'query': 1}", "[" * 100_000])
@pytest.mark.parametrize("client", [zhipu, compatible])
def test_malformed_arguments_are_reported_not_raised(server, client, raw):
    server.call(("search", raw))
    reply = client(server).chat(ASK, tools=[SEARCH])
    call = reply.tool_calls[0]
    assert (call.name, call.arguments, call.raw) == ("search", {}, raw)
    assert "JSON" in call.error
    server.say("好的")                       # 写回对话时服务器还认得
    again = [*ASK, reply.message, {"role": "tool", "tool_call_id": call.id, "content": call.error}]
    assert client(server).chat(again, tools=[SEARCH]).text == "好的"


def test_odd_arguments(server):
    server.call(("search", ""), ("search", "  "))
    assert [(c.arguments, c.error) for c in compatible(server).chat(ASK, [SEARCH]).tool_calls] == [({}, "")] * 2
    server.call(("search", [1, 2]))
    call = anthropic(server).chat(ASK, [SEARCH]).tool_calls[0]
    assert call.arguments == {} and "对象" in call.error


def test_text_beside_a_tool_call(server):
    for client in (zhipu, compatible, anthropic):
        server.call(("search", {}), text="我先查一下。")
        reply = client(server).chat(ASK, [SEARCH])
        assert (reply.text, len(reply.tool_calls)) == ("我先查一下。", 1)


def test_some_services_say_stop_although_they_call_a_tool(server):
    message = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "search", "arguments": {"query": "甲"}}}]}
    server.next((200, {}, json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})))
    reply = compatible(server, model="m").chat(ASK, [SEARCH])
    assert reply.finish_reason == "tool_calls" and reply.model == "m"
    assert reply.tool_calls == (ToolCall("call_0", "search", {"query": "甲"}, '{"query": "甲"}'),)


# --- 不完整的回答 -------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("behaviour", "reason", "hint"),
    [("empty", "stop", "没有写任何内容"), ("length", "length", "长度上限就停了，只有前 4 个字符"), ("sensitive", "sensitive", "内容安全")],
)
@CLIENTS
def test_an_incomplete_answer_says_so(server, client, behaviour, reason, hint):
    server.next(behaviour)
    server.say("安全阀在")
    reply = client(server).chat(ASK)
    assert reply.finish_reason == reason and hint in reply.problem
    assert reply.text == ("" if behaviour == "empty" else "安全阀在")


def test_openai_refusals(server):
    message = {"role": "assistant", "content": None, "refusal": "I can't help with that."}
    server.next((200, {}, json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})))
    assert compatible(server).chat(ASK).finish_reason == "sensitive"


def test_zhipu_network_error_is_tried_again(server):
    server.next("network_error")
    assert zhipu(server).chat(ASK).finish_reason == "stop"
    server.always("network_error")
    with pytest.raises(ChatServiceError, match="推理中途出错") as caught:
        zhipu(server).chat(ASK)
    assert caught.value.retryable and len(server.requests) == 2 + 5


@pytest.mark.parametrize("behaviour", ["no_choices", "no_message", "html", "bad_json"])
@CLIENTS
def test_a_reply_that_is_none(server, client, behaviour):
    server.always(behaviour)
    with pytest.raises(ChatServiceError, match="base_url") as caught:
        client(server, retry=Retry(sleep=pytest.fail)).chat(ASK)
    assert not caught.value.retryable and len(server.requests) == 1
    if behaviour == "no_message" and client is not anthropic:
        assert "upstream is down" in str(caught.value)


@pytest.mark.parametrize("body", ["null", "[]", "3", '"text"', "{}", '{"choices": null}', '{"choices": [null]}', '{"choices": {}}', '{"content": 3}'])
@CLIENTS
def test_any_json_becomes_one_sentence(server, client, body):
    server.always((200, {}, body))
    with pytest.raises(ChatServiceError, match="base_url"):
        client(server).chat(ASK)


# --- 重试与报错 ---------------------------------------------------------------------------------------

@CLIENTS
def test_429_twice_then_success(server, client):
    slept = []
    server.next("429:1302", "429:1305")
    assert client(server, retry=Retry(sleep=slept.append)).chat(ASK).text
    assert len(server.requests) == 3
    assert 1 <= slept[0] <= 1.5 and 2 <= slept[1] <= 3


@pytest.mark.parametrize("behaviour", ["429:1305", "429:1302", "429", "500", "502", "503", "529", "408", "cut", "cut_body"])
@CLIENTS
def test_trouble_for_ever_is_given_up(server, client, behaviour):
    slept = []
    server.always(behaviour)
    with pytest.raises(ChatServiceError) as caught:
        client(server, retry=Retry(attempts=3, sleep=slept.append)).chat(ASK)
    assert caught.value.retryable and len(server.requests) == 3     # SDK 自己不重试
    assert len(slept) == 2 and slept == sorted(slept)


@pytest.mark.parametrize(
    ("behaviour", "hint"),
    [
        ("401:1000", "不认这个密钥"), ("401", "不认这个密钥"), ("403", "不认这个密钥"),
        ("400:1214", "参数不对.*请检查模型名"), ("400", "参数不对"), ("400:1261", "提示词太长"),
        ("400:context_length_exceeded", "提示词太长"), ("413", "参数不对"),
        ("400:1301", "内容不安全或敏感.*换一种问法"), ("400:content_filter", "内容不安全或敏感"),
        ("404", "没有这个模型或地址"), ("400:1211", "没有这个模型或地址"),
        ("429:1113", "余额"), ("402", "余额"), ("429:insufficient_quota", "余额"),
    ],
)
@CLIENTS
def test_hopeless_errors_are_not_retried(server, client, behaviour, hint):
    server.always(behaviour)
    for use in (lambda c: c.chat(ASK), lambda c: list(c.stream(ASK))):
        with pytest.raises(ChatServiceError, match=hint) as caught:
            use(client(server, retry=Retry(sleep=pytest.fail)))
        assert not caught.value.retryable
        assert isinstance(caught.value, ServiceError) and isinstance(caught.value, ValueError)
        assert str(caught.value.status) == behaviour.partition(":")[0]
    assert len(server.requests) == 2


@CLIENTS
def test_a_wrong_key(server, client):
    with pytest.raises(ChatServiceError, match="不认这个密钥") as caught:
        client(server, api_key="wrong-key-wrong-key").chat(ASK)
    assert "wrong-key" not in str(caught.value)


@CLIENTS
def test_timeouts_are_retried(server, client):
    server.next("slow:5")
    assert client(server, timeout=1).chat(ASK).text
    assert len(server.requests) == 2
    server.always("slow:3")
    with pytest.raises(ChatServiceError, match=r"0\.3 秒内没有回复"):
        client(server, timeout=0.3, retry=Retry(attempts=2, first_wait=0.01)).chat(ASK)
    assert len(server.requests) == 4


@CLIENTS
def test_nobody_listens(client):
    with Loopback() as gone:
        pass
    for use in (lambda c: c.chat(ASK), lambda c: list(c.stream(ASK))):
        with pytest.raises(ChatServiceError, match="连不上服务"):
            use(client(gone, retry=Retry(attempts=2, first_wait=0.01)))


# --- 分段读 -------------------------------------------------------------------------------------------

@CLIENTS
def test_a_stream(server, client):
    server.say("在 config.py [1]")
    chat = client(server)
    stream = chat.stream(ASK)
    assert stream.reply is None and server.requests == []
    pieces = list(stream)
    assert len(pieces) > 3 and "".join(pieces) == "在 config.py [1]"
    server.say("在 config.py [1]")
    assert stream.reply == chat.chat(ASK)       # 用量、价钱、模型、原因都一样
    assert stream.reply.usage.completion == len("在 config.py [1]")


@CLIENTS
def test_pieces_arrive_as_they_are_written(server, client):
    server.next("drip:0.3")
    server.say("甲乙丙丁戊己")
    start = time.monotonic()
    arrived = []
    for piece in client(server, timeout=2).stream(ASK):
        arrived.append((piece, time.monotonic() - start))
    assert [piece for piece, _ in arrived] == ["甲乙", "丙丁", "戊己"]
    assert arrived[0][1] < arrived[2][1] - 0.4      # 不是攒齐了才给


BROKEN = {
    "cut_stream": (True, "连不上服务，或连接中途断了"),
    "end_early": (True, "没有说完就断了"),
    "stall:3": (True, "秒内没有回复"),
    "error_stream": (True, "中途报错.*busy"),
    "bad_stream": (False, "不是约定的 JSON"),
}


@pytest.mark.parametrize("behaviour", BROKEN)
@CLIENTS
def test_a_broken_stream_gives_what_came_and_one_error(server, client, behaviour):
    server.next(behaviour)
    server.say("甲乙丙丁戊己庚辛")
    stream = client(server, timeout=0.5, retry=Retry(sleep=pytest.fail)).stream(ASK)
    got = []
    with pytest.raises(ChatServiceError, match="只收到前 4 个字符.*" + BROKEN[behaviour][1] if behaviour != "end_early" else "没有说完就断了，只收到前 4 个字符") as caught:
        for piece in stream:
            got.append(piece)
    assert got == ["甲乙", "丙丁"]
    assert caught.value.retryable == BROKEN[behaviour][0]
    assert (stream.reply.text, stream.reply.finish_reason) == ("甲乙丙丁", "interrupted")
    assert "中途断了，只收到前 4 个字符" in stream.reply.problem
    assert len(server.requests) == 1


@pytest.mark.parametrize(("behaviour", "hint"), [("length", "长度上限"), ("sensitive", "内容安全"), ("empty", "没有写任何内容")])
@CLIENTS
def test_an_incomplete_stream_ends_with_an_error(server, client, behaviour, hint):
    server.next(behaviour)
    server.say("甲乙丙")
    got = []
    stream = client(server).stream(ASK)
    with pytest.raises(ChatServiceError, match=hint):
        got.extend(stream)
    assert stream.reply.text == "".join(got) == ("" if behaviour == "empty" else "甲乙丙")
    assert stream.reply.problem


@CLIENTS
def test_a_page_instead_of_a_stream(server, client):
    server.always("html")
    with pytest.raises(ChatServiceError, match=r"一个字也没有收到.*base_url"):
        list(client(server).stream(ASK))


@CLIENTS
def test_opening_a_stream_is_retried(server, client):
    server.next("429:1302", "cut")
    assert "".join(client(server).stream(ASK)).startswith("收到")
    assert len(server.requests) == 3


@CLIENTS
def test_a_stream_can_be_left(server, client):
    server.next("drip:0.2")
    server.say("字" * 100)
    stream = client(server).stream(ASK)
    assert next(stream) == "字字"
    stream.close()
    assert list(stream) == [] and stream.reply is None
    assert client(server).chat(ASK).text


def test_streams_do_not_disturb_each_other(server):
    chat = zhipu(server)
    results = {}

    def ask(name):
        results[name] = "".join(chat.stream([{"role": "user", "content": name}]))

    threads = [threading.Thread(target=ask, args=(f"问题{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {f"问题{i}": f"收到：问题{i}" for i in range(8)}


# --- 消息与工具的检查 ---------------------------------------------------------------------------------

CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
USER = {"role": "user", "content": "问"}
BAD_MESSAGES = {
    "不是列表": ("列表", "你好"),
    "空的": ("列表", []),
    "一条字典": ("列表", USER),
    "None": ("列表", None),
    "不是字典": ("第 1 条消息的 role", ["你好"]),
    "没有 role": ("role", [{"content": "问"}]),
    "别的 role": ("第 2 条消息的 role", [USER, {"role": "机器人", "content": "问"}]),
    "没有 content": ("content 要是字符串", [{"role": "user"}]),
    "content 是列表": ("content 要是字符串", [{"role": "user", "content": [{"type": "text", "text": "问"}]}]),
    "空白": ("空白", [{"role": "user", "content": " \u200b\n"}]),
    "代理字符": ("代理字符", [{"role": "user", "content": "甲\ud83d"}]),
    "system 在后": ("第 2 条消息是 system", [USER, {"role": "system", "content": "规矩"}, USER]),
    "只有 system": ("最后一条", [{"role": "system", "content": "规矩"}]),
    "assistant 收尾": ("最后一条", [USER, {"role": "assistant", "content": "答"}]),
    "没问就有结果": ("对不上", [USER, {"role": "tool", "tool_call_id": "1", "content": "x"}]),
    "缺结果": ("工具调用 1 还没有结果", [USER, {"role": "assistant", "tool_calls": [CALL]}, USER]),
    "缺结果就结束": ("最后一条", [USER, {"role": "assistant", "tool_calls": [CALL]}]),
    "结果交了两次": ("对不上", [USER, {"role": "assistant", "tool_calls": [CALL]}, *[{"role": "tool", "tool_call_id": "1", "content": "x"}] * 2]),
    "调用没有 id": ("Reply.message", [USER, {"role": "assistant", "tool_calls": [{**CALL, "id": None}]}]),
    "参数是字典": ("Reply.message", [USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "search", "arguments": {}}}]}]),
    "参数是坏的": ("Reply.message", [USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "search", "arguments": "{"}}]}]),
    "调用不是列表": ("Reply.message", [USER, {"role": "assistant", "tool_calls": "search"}]),
    "调用是数": ("Reply.message", [USER, {"role": "assistant", "tool_calls": 5}]),
}


@pytest.mark.parametrize("case", BAD_MESSAGES)
@CLIENTS
def test_bad_messages_are_refused_before_sending(server, client, case):
    hint, messages = BAD_MESSAGES[case]
    chat = client(server)
    for use in (chat.chat, chat.stream):
        with pytest.raises(RagLessonsError, match=hint):
            use(messages)
    assert server.requests == []


BAD_TOOLS = [
    "search", SEARCH, ["search"], [{"name": "search"}], [{"type": "function"}], [{"type": "function", "function": {}}],
    [{"type": "function", "function": {"name": "查资料"}}], [{"type": "function", "function": {"name": "a b"}}],
    [{"type": "function", "function": {"name": "x" * 65}}], [SEARCH, SEARCH], 5,
    [{"type": "function", "function": {"name": "search", "parameters": {1, 2}}}],
    [{"type": "function", "function": {"name": "search", "description": "甲\ud83d"}}],
]


@pytest.mark.parametrize("tools", BAD_TOOLS)
def test_bad_tools_are_refused_before_sending(server, tools):
    with pytest.raises(RagLessonsError, match=r"工具|tools"):
        zhipu(server).chat(ASK, tools)
    assert server.requests == []


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "assistant", "tool", "system", "1", "{}", "function"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "id", "function", "name", "arguments", "type"]), inner, max_size=5),
    max_leaves=12,
)
LIKELY = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.text(max_size=3) | JSONS},
    optional={"tool_calls": st.lists(st.just(CALL) | JSONS, max_size=2) | JSONS, "tool_call_id": st.just("1") | JSONS},
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LIKELY, max_size=5) | JSONS, JSONS | st.lists(st.just(SEARCH) | JSONS, max_size=2))
def test_any_messages_are_sendable_or_refused_in_one_sentence(messages, tools):
    chats = [make(api_key=KEY) for make in (ZhipuChat, OpenAIChat, AnthropicChat)]
    for chat in chats:
        try:
            body = chat._body(check_messages(messages), check_tools(tools))
        except RagLessonsError as error:
            assert str(error).endswith("。") and "\n" not in str(error)
        else:
            json.dumps(body, ensure_ascii=False).encode("utf-8")


def test_no_tools_is_no_tools(server):
    for tools in (None, [], ()):
        zhipu(server).chat(ASK, tools)
    assert all(not r.body.get("tools") for r in server.requests)


def test_wrong_arguments_get_one_sentence(server):
    for make in (zhipu, compatible, anthropic):
        for options in (
            {"model": ""}, {"model": 5}, {"timeout": 0}, {"timeout": "x"}, {"max_tokens": 0}, {"max_tokens": 1.5},
            {"extra": [1]}, {"extra": {"stop": {1}}}, {"api_key": "a b"}, {"api_key": 5}, {"base_url": "ftp://me:hidden@x"},
        ):
            with pytest.raises(RagLessonsError) as caught:
                make(server, **options)
            assert "hidden" not in str(caught.value)


# --- 密钥、模型与选择 ---------------------------------------------------------------------------------

def test_no_key():
    for make in (ZhipuChat, OpenAIChat, AnthropicChat):
        with pytest.raises(RagLessonsError, match=r"没有找到 \w+_API_KEY.*\.env"):
            make()


def test_a_local_service_needs_no_key():
    with Loopback(key=None) as server:
        assert OpenAIChat("qwen3:8b", base_url=server.openai).chat(ASK).text


def test_settings_from_the_environment(server, monkeypatch):
    for name, url in (("ZHIPU", server.zhipu), ("OPENAI", server.openai), ("ANTHROPIC", server.anthropic)):
        vendor = "ZHIPUAI" if name == "ZHIPU" else name
        monkeypatch.setenv(f"{vendor}_API_KEY", f'"{KEY}"\n')
        monkeypatch.setenv(f"{vendor}_BASE_URL", url)
        monkeypatch.setenv(f"RAG_LESSONS_{name}_CHAT_MODEL", f"{name.lower()}-m")
        chat = get_chat({"ZHIPU": "zhipu"}.get(name, name.lower()))
        assert chat.chat(ASK).model == f"{name.lower()}-m"
        assert type(chat)("other").model == "other"


def test_settings_from_the_env_file(server, tmp_path):
    (tmp_path / ".env").write_text(
        f"ZHIPUAI_API_KEY='{KEY}'\nZHIPUAI_BASE_URL={server.zhipu}\nRAG_LESSONS_ZHIPU_CHAT_MODEL=glm-4-plus\n", encoding="utf-8-sig")
    reply = ZhipuChat().chat(ASK)
    assert reply.model == "glm-4-plus" and reply.usage.currency == "元" and reply.usage.cost > 0


def test_defaults_have_prices():
    for make in (ZhipuChat, OpenAIChat, AnthropicChat):
        chat = make(api_key=KEY)
        assert chat.model in PRICES and chat.model in chat.name and chat.base_url is None


def test_get_chat(monkeypatch, server):
    monkeypatch.setenv("RAG_LESSONS_OFFLINE", "0")
    assert get_chat() is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert isinstance(get_chat(), AnthropicChat)
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
    assert isinstance(get_chat(), AnthropicChat)        # 有地址还不知道用哪个模型
    monkeypatch.setenv("RAG_LESSONS_OPENAI_CHAT_MODEL", "qwen3:8b")
    assert get_chat().name == "OpenAI 兼容服务 qwen3:8b"
    monkeypatch.setenv("ZHIPUAI_API_KEY", KEY)
    assert get_chat("auto").name == "智谱 glm-4.7-flash"
    monkeypatch.setenv("RAG_LESSONS_OFFLINE", "1")
    assert get_chat() is None
    assert isinstance(get_chat("zhipu"), ZhipuChat)     # 点了名的，离线也给
    for wrong in ("glm", None, 5, ["zhipu"]):
        with pytest.raises(RagLessonsError, match="可选 auto"):
            get_chat(wrong)


@pytest.mark.parametrize(
    "behaviour",
    ["401:1000", "400:1214", "400:1301", "404", "429:1305", "429:1113", "500", "cut", "slow:2", "bad_json", "no_choices",
     "cut_stream", "end_early", "error_stream", "bad_stream", "stall:2"],
)
@pytest.mark.parametrize("streaming", [False, True])
@CLIENTS
def test_the_key_never_shows(server, client, behaviour, streaming, caplog, capsys):
    """服务把收到的密钥写进报错；我们的报错、异常链、日志、repr 里都不能有它。"""
    parts = [KEY, *KEY.split(".")]
    server.always(behaviour)
    chat = client(server, timeout=0.3, retry=Retry(attempts=2, first_wait=0.01))
    stream = chat.stream(ASK)
    seen = []
    with caplog.at_level(logging.DEBUG):
        try:
            seen += list(stream) if streaming else [repr(chat.chat(ASK))]
            error = None
        except ChatServiceError as caught:
            error = caught
            seen += [str(error), repr(error), repr(vars(error)), repr(error.args), *traceback.format_exception(error)]
    only_streams = behaviour in ("cut_stream", "end_early", "error_stream", "bad_stream", "stall:2")
    assert (error is None) == ((only_streams and not streaming) or (behaviour == "no_choices" and streaming))
    while error is not None:            # 异常链：谁也不能顺着它摸到 SDK 的请求对象
        assert type(error).__module__.startswith("rag_lessons")
        error = error.__cause__ or error.__context__
    seen += [repr(chat), repr(vars(chat)), repr(stream), repr(stream.reply), chat.name]
    seen += [record.getMessage() for record in caplog.records] + list(capsys.readouterr())
    assert caplog.records
    for text in seen:
        for part in parts:
            assert part not in text


# --- 样子 ---------------------------------------------------------------------------------------------

def test_values_can_be_compared_and_hashed():
    one, two = (Reply("甲", (ToolCall("1", "search", {"query": "甲"}, "{}"),), Usage(1, 2, 0.1, "元")) for _ in range(2))
    assert one == two and hash(one) == hash(two)
    assert str(Usage(10, 5, 0.0, "元")) == "输入 10 + 输出 5 = 15 token，0 元"


def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, encoding="utf-8", env={**os.environ, **env}, timeout=120, check=False,
    )


def test_importing_is_light():
    done = run("""
        import sys
        import rag_lessons.chat
        print(sorted({"zhipuai", "openai", "anthropic", "httpx", "tenacity", "numpy"} & set(sys.modules)))
    """)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(("package", "name"), [("openai", "OpenAIChat"), ("anthropic", "AnthropicChat")])
def test_without_the_package(package, name):
    done = run(f"""
        import sys
        sys.modules["{package}"] = None
        from rag_lessons import {name}
        try:
            {name}("m", "http://127.0.0.1:1/v1", api_key="k")
        except ValueError as error:
            sys.stdout.buffer.write(str(error).encode("utf-8"))
    """)
    assert f"{name} 要用 {package} 这个包" in done.stdout and f"pip install {package}" in done.stdout, done.stderr


def test_auto_skips_a_service_whose_package_is_missing():
    done = run("""
        import sys
        class Hide:
            def find_spec(self, name, path=None, target=None):
                if name == "openai":
                    raise ModuleNotFoundError(name)
        import importlib.util
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "openai" else real(name, *rest)
        from rag_lessons import get_chat
        print(get_chat())
    """, RAG_LESSONS_OFFLINE="0", OPENAI_API_KEY=KEY)
    assert done.stdout == "None\n", done.stderr
