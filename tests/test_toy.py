"""玩具向量：快的写法和逐字的写法是同一个东西；跨进程一字不差。"""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import RagLessonsError, ToyEmbedder
from rag_lessons.embedding.toy import bigram_vector, bigrams, slot
from rag_lessons.types import is_blank

TEXT = st.text(max_size=80) | st.text(alphabet="安全阀失控 \n\u3000ab𠮷\x1c\x85", max_size=30)


@given(st.lists(TEXT, max_size=12), st.sampled_from([1, 7, 64, 1000, 1024, 4096]))
def test_same_as_the_plain_loop(texts, dim):
    fast = ToyEmbedder(dim).embed_documents(texts)
    assert fast.shape == (len(texts), dim) and fast.dtype == np.float32
    for text, row in zip(texts, fast, strict=True):
        if is_blank(text):
            assert not row.any()
        else:
            np.testing.assert_allclose(row, bigram_vector(text, dim), atol=1e-6)
            assert abs(np.linalg.norm(row) - 1) < 1e-6


@given(st.lists(TEXT, min_size=1, max_size=8))
def test_a_row_does_not_depend_on_its_neighbours(texts):
    toy = ToyEmbedder()
    together = toy.embed_documents(texts)
    for text, row in zip(texts, together, strict=True):
        assert (toy.embed_documents([text])[0] == row).all()


def test_bigrams():
    assert bigrams("安全阀") == ["安全", "全阀"]
    assert bigrams("a b") == ["a", "b"]
    assert bigrams("甲\n乙丙") == ["乙丙"]
    assert bigrams("") == []


@given(st.characters(), st.characters(), st.integers(1, 5000))
def test_slot_is_in_range(a, b, dim):
    assert 0 <= slot(a + b, dim) < dim


def test_slots_are_spread():
    counts = np.bincount([slot(chr(0x4E00 + i % 500) + chr(0x4E00 + i // 500), 1024) for i in range(100_000)], minlength=1024)
    expected = 100_000 / 1024
    assert ((counts - expected) ** 2 / expected).sum() < 1024 + 6 * (2 * 1024) ** 0.5      # 卡方：均匀时约等于 1023


@pytest.mark.parametrize("seed", ["0", "1", None])
def test_same_bytes_in_every_process(seed):
    code = ("import hashlib; from rag_lessons import ToyEmbedder, Document, chunk_by_lines;"
            "v = ToyEmbedder().embed_documents(['安全阀在哪个文件定义', '失控']);"
            "c = chunk_by_lines(Document('a.md', '甲\\n乙'))[0];"
            "print(hashlib.sha256(v.tobytes()).hexdigest(), c.id)")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    if seed is not None:
        env["PYTHONHASHSEED"] = seed
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.split()
    assert out == fingerprint()


def fingerprint():
    import hashlib

    from rag_lessons import Document, chunk_by_lines
    vectors = ToyEmbedder().embed_documents(["安全阀在哪个文件定义", "失控"])
    return [hashlib.sha256(vectors.tobytes()).hexdigest(), chunk_by_lines(Document("a.md", "甲\n乙"))[0].id]


def test_blank_and_wrong_input():
    toy = ToyEmbedder()
    rows = toy.embed_documents(["甲", "", "   ", "\u3000\n", "\u200b", "乙"])
    assert [bool(row.any()) for row in rows] == [True, False, False, False, False, True]
    assert toy.embed_documents([]).shape == (0, 1024)
    for bad in ("", "  ", "\u200b"):
        with pytest.raises(RagLessonsError, match="空白"):
            toy.embed_query(bad)
    with pytest.raises(RagLessonsError, match="列表"):
        toy.embed_documents("安全阀")
    with pytest.raises(RagLessonsError, match="第 1 条"):
        toy.embed_documents(["甲", None])
    with pytest.raises(RagLessonsError):
        ToyEmbedder(0)


def test_query_and_document_are_the_same_for_the_toy():
    toy = ToyEmbedder()
    assert (toy.embed_query("安全阀") == toy.embed_documents(["安全阀"])[0]).all()
    assert toy.space != ToyEmbedder(512).space


@pytest.mark.parametrize("wrong", ["a", 2.5, True, None, 0, -1, 2**33, np.float64(3)])
def test_a_wrong_dimension_is_refused(wrong):
    with pytest.raises(RagLessonsError, match="维数"):
        ToyEmbedder(wrong)


@pytest.mark.parametrize("wrong", [None, 5, "abc", b"x", [None], [b"x"]])
def test_things_that_are_not_a_list_of_texts_are_refused(wrong):
    with pytest.raises(RagLessonsError):
        ToyEmbedder().embed_documents(wrong)
