"""索引：名次稳定、空间不混、存取不丢、同步只算新的。"""

import os
import random
import sys
import threading
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_lessons import (
    BM25Index,
    Chunk,
    Document,
    Hit,
    RagLessonsError,
    ToyEmbedder,
    VectorIndex,
    chunk_by_lines,
)
from rag_lessons.embedding.base import BaseEmbedder, check_vectors
from rag_lessons.index import cosine_top_k

TOY = ToyEmbedder()


def chunks_of(*texts: str, source: str = "a.md") -> list[Chunk]:
    return chunk_by_lines(Document(source, "\n".join(texts)), lines=1)


class Counting(BaseEmbedder):
    """记下送进来的文字，向量用玩具的。"""

    def __init__(self, space: str = TOY.space, fail_on: str | None = None) -> None:
        self.space, self.dim, self.sent, self.fail_on = space, TOY.dim, [], fail_on

    def _encode(self, texts, role):
        if self.fail_on in texts:
            raise RagLessonsError("服务断了")
        self.sent += texts
        return TOY.embed(texts, role)


@given(st.integers(1, 40), st.integers(1, 45), st.integers(0, 2**32 - 1))
def test_top_k_equals_a_full_sort(n, k, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, (n, 4)).astype(np.float32)      # 小整数：很多并列
    vector = rng.integers(-2, 3, 4).astype(np.float32)
    scores = matrix @ vector
    expected = sorted(((i, float(s)) for i, s in enumerate(scores)), key=lambda p: (-p[1], p[0]))[:k]
    assert cosine_top_k(matrix, vector, k) == expected


def test_rank_starts_at_one_and_scores_fall():
    hits = VectorIndex.build(chunks_of("安全阀在这里", "安全第一", "毫不相干"), TOY).search("安全阀", k=3)
    assert [h.rank for h in hits] == [1, 2, 3]
    assert hits[0].chunk.text == "安全阀在这里"
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    assert hits[0].details == {"dense": hits[0].score}
    assert all(type(h.score) is float for h in hits)


def test_k_and_empty():
    index = VectorIndex.build(chunks_of("甲乙", "丙丁"), TOY)
    assert len(index.search("甲乙", k=3)) == 2
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError):
            index.search("甲乙", k=k)
    for query in ("", " ", "\u200b", None, 3):
        with pytest.raises(RagLessonsError):
            index.search(query)
    empty = VectorIndex.build([], TOY)
    assert empty.search("甲乙") == [] and len(empty) == 0


def test_build_three_times_no_copies():
    chunks = chunks_of("甲乙", "丙丁")
    assert len(VectorIndex.build(chunks * 3, TOY)) == 2


def test_permuted_input_same_result():
    chunks = [c for i in range(6) for c in chunks_of("同一段许可", f"第{i}份", "同一段许可", source=f"{i}.md")]
    expected = VectorIndex.build(chunks, TOY).search("同一段许可证", k=9)
    for seed in range(5):
        shuffled = random.Random(seed).sample(chunks, len(chunks))
        assert VectorIndex.build(shuffled, TOY).search("同一段许可证", k=9) == expected
    assert len({h.chunk.label for h in expected}) == 9


def test_threshold_and_where_before_top_k():
    index = VectorIndex.build(chunks_of("安全阀", "安全阀门", "安全帽", "别的"), TOY)
    assert {h.chunk.text for h in index.search("安全阀", k=9, threshold=0.5)} == {"安全阀", "安全阀门", "安全帽"}
    assert index.search("安全阀", k=9, threshold=1.1) == []
    only = index.search("安全阀", k=1, where=lambda c: c.line == 3)
    assert [h.chunk.text for h in only] == ["安全帽"]
    assert index.search("安全阀", where=lambda c: False) == []


def test_spaces_do_not_mix_even_at_the_same_dimension(tmp_path):
    index = VectorIndex.build(chunks_of("甲乙"), TOY)
    index.save(tmp_path / "i.rag")
    other = Counting(space="zhipu/embedding-3/1024/none/v1")
    with pytest.raises(RagLessonsError) as caught:
        VectorIndex.load(tmp_path / "i.rag", other)
    assert TOY.space in str(caught.value) and other.space in str(caught.value)
    index.embedder = other
    with pytest.raises(RagLessonsError, match="两个空间"):
        index.search("甲乙")


def test_save_and_load(tmp_path):
    chunks = [*chunks_of("甲乙", "丙丁"), Chunk("戊", "b.md", 0, 1, headings=("一", "二"), metadata={"page": 2})]
    index = VectorIndex.build(chunks, TOY)
    index.save(tmp_path / "子" / "i.rag")
    loaded = VectorIndex.load(tmp_path / "子" / "i.rag", TOY)
    assert loaded.chunks == index.chunks and (loaded.vectors == index.vectors).all()
    assert loaded.search("甲乙") == index.search("甲乙")
    assert [p.name for p in (tmp_path / "子").iterdir()] == ["i.rag"]
    data = (tmp_path / "子" / "i.rag").read_bytes()
    for broken in (b"", b"xx", data[: len(data) // 2], data[:-30]):
        (tmp_path / "x.rag").write_bytes(broken)
        with pytest.raises(RagLessonsError, match="不是完整的索引"):
            VectorIndex.load(tmp_path / "x.rag", TOY)
    with pytest.raises(FileNotFoundError):
        VectorIndex.load(tmp_path / "没有.rag", TOY)


def test_sync_embeds_only_what_changed():
    embedder = Counting()
    index = VectorIndex.build(chunks_of("甲甲", "乙乙", "丙丙"), embedder)
    embedder.sent.clear()
    counts = index.sync(chunks_of("新行", "甲甲", "乙乙", "丁丁"))
    assert sorted(embedder.sent) == ["丁丁", "新行"]
    assert (counts.added, counts.removed, counts.kept) == (2, 1, 2)
    fresh = VectorIndex.build(chunks_of("新行", "甲甲", "乙乙", "丁丁"), TOY)
    assert index.chunks == fresh.chunks and (index.vectors == fresh.vectors).all()
    assert all("丙" not in h.chunk.text for h in index.search("丙丙", k=9))
    assert (index.sync([]).removed, len(index)) == (4, 0)
    assert index.sync(chunks_of("再来")).added == 1


def test_failed_sync_changes_nothing():
    index = VectorIndex.build(chunks_of("甲甲", "乙乙"), Counting(fail_on="坏的"))
    before = index.chunks
    with pytest.raises(RagLessonsError, match="断了"):
        index.sync(chunks_of("甲甲", "坏的"))
    assert index.chunks == before and len(index.vectors) == 2


def test_vectors_of_and_search_vector():
    index = VectorIndex.build(chunks_of("甲乙", "丙丁"), TOY)
    hits = index.search("丙丁", k=2)
    assert np.allclose(index.vectors_of(hits) @ TOY.embed_query("丙丁"), [h.score for h in hits], atol=1e-6)
    assert index.search_vector(TOY.embed_query("丙丁") * 7, k=2) == hits
    with pytest.raises(RagLessonsError):
        index.search_vector(np.zeros(1024), 1)
    with pytest.raises(RagLessonsError, match="形状"):
        index.search_vector(np.ones(3), 1)
    other = VectorIndex.build(chunks_of("甲乙", source="z.md"), TOY)
    with pytest.raises(RagLessonsError, match="不在这个索引"):
        index.vectors_of(other.search("甲乙"))


def test_not_chunks():
    with pytest.raises(RagLessonsError, match="Chunk"):
        VectorIndex.build(["甲"], TOY)


@pytest.mark.parametrize("bad, word", [
    ([[1.0, 0.0]], "返回了 1 条"),
    ([[1.0, 0.0], [0.0, 0.0]], "零向量"),
    ([[1.0, 0.0], [float("nan"), 0.0]], "NaN"),
    ([[1.0, 0.0], [float("inf"), 0.0]], "NaN"),
    ([[1.0], [1.0]], "应是 2 维"),
    ([], "返回了 0 条"),
])
def test_vectors_are_checked(bad, word):
    with pytest.raises(RagLessonsError, match=word):
        check_vectors(bad, 2, 2, "某空间")


def test_vectors_become_unit_float32():
    rows = check_vectors([[3, 4], [0, 2]], 2, 2, "某空间")
    assert rows.dtype == np.float32 and np.allclose(rows, [[0.6, 0.8], [0, 1]])


def test_a_generator_of_chunks_is_not_lost():
    chunks = chunks_of("甲乙", "丙丁", "戊己")
    index = VectorIndex.build((chunk for chunk in chunks), TOY)
    assert len(index) == 3
    assert index.sync(chunk for chunk in chunks).kept == 3
    assert index.vectors_of(hit for hit in index.search("丙丁")).shape == (3, TOY.dim)


def test_sync_counts_stay_right_when_a_text_is_copied_or_one_copy_goes():
    one, two = Chunk("甲乙", "a.md", 0, 2), Chunk("甲乙", "b.md", 0, 2)
    index = VectorIndex.build([one], TOY)
    for chunks, expected in [([one, two], (0, 0, 2)), ([two], (0, 1, 1)), ([], (0, 1, 0)), ([one], (1, 0, 0))]:
        counts = index.sync(chunks)
        assert (counts.added, counts.removed, counts.kept) == expected


class Careless:
    """只守约定的形状，不守规矩：不归一，或者缺一条、含 NaN。"""

    space, dim = "careless/2", 2

    def __init__(self, rows) -> None:
        self.rows = rows

    def embed_documents(self, texts):
        return self.rows(len(texts))

    def embed_query(self, text):
        return np.array([1.0, 0.0])


def test_vectors_from_other_embedders_are_checked_and_normalised():
    chunks = chunks_of("甲乙", "丙丁")
    index = VectorIndex.build(chunks, Careless(lambda n: [[3.0, 4.0]] * n))
    assert [hit.score for hit in index.search("问")] == [0.6, 0.6]
    for rows in (lambda n: [[1.0, 0.0]] * (n - 1), lambda n: [[np.nan, 0.0]] * n, lambda n: [[0.0, 0.0]] * n, lambda n: [[1.0]] * n):
        with pytest.raises(RagLessonsError, match="careless"):
            VectorIndex.build(chunks, Careless(rows))
        with pytest.raises(RagLessonsError, match="careless"):
            VectorIndex.build([], Careless(rows)).sync(chunks)


def test_wrong_arguments_get_one_sentence():
    index = VectorIndex.build(chunks_of("甲乙", "丙丁"), TOY)
    for wrong in (None, 5, index.chunks[0]):
        with pytest.raises(RagLessonsError, match="Chunk"):
            VectorIndex.build(wrong, TOY)
    for wrong in (None, "toy", ToyEmbedder):
        with pytest.raises(RagLessonsError, match="嵌入器"):
            VectorIndex.build(index.chunks, wrong)
    for wrong in ("0.5", [1], float("nan"), True):
        with pytest.raises(RagLessonsError, match="threshold"):
            index.search("甲乙", threshold=wrong)
    for wrong in ("a.md", 5, {"source": "a.md"}):
        with pytest.raises(RagLessonsError, match="where"):
            index.search("甲乙", where=wrong)
    for wrong in ("甲乙", None, ["甲"] * TOY.dim, [[1, 2], [3]], np.ones(TOY.dim, complex)):
        with pytest.raises(RagLessonsError, match="向量"):
            index.search_vector(wrong)
    for wrong in (None, [None], index.chunks, index.search("甲乙")[0]):
        with pytest.raises(RagLessonsError, match="检索结果"):
            index.vectors_of(wrong)


@pytest.mark.parametrize("scale", [1e300, 1e30, 1e-30, 1e-300])
def test_the_length_of_a_query_vector_does_not_matter(scale):
    index = VectorIndex.build(chunks_of("甲乙", "丙丁"), TOY)
    vector = TOY.embed_query("丙丁").astype(np.float64)
    assert index.search_vector(vector * scale) == index.search_vector(vector)


def test_save_keeps_odd_text_and_numpy_numbers(tmp_path):
    chunk = Chunk("甲\ud800乙\0", "文\udcff.md", np.int64(0), 4, headings=["标\ud800"], metadata={"n": np.int64(3), "x": np.float32(0.5)})
    index = VectorIndex.build([chunk], TOY)
    index.save(tmp_path / ("长" * 80))
    assert VectorIndex.load(tmp_path / ("长" * 80), TOY).chunks == [chunk]


def test_save_failures_say_why_and_leave_nothing_behind(tmp_path):
    with pytest.raises(RagLessonsError, match="metadata"):
        VectorIndex.build([Chunk("甲乙", "a.md", 0, 2, metadata={"s": {1}})], TOY).save(tmp_path / "i")
    index = VectorIndex.build(chunks_of("甲乙"), TOY)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for wrong in (tmp_path, "", ".", tmp_path / "file" / "i", "x" * 5000, "a\0b", "\ud800", None, 5, b"x"):
        with pytest.raises(RagLessonsError):
            index.save(wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name == "nt", reason="Windows 没有这种权限位")
def test_a_saved_index_can_be_read_by_the_same_people_as_other_files(tmp_path):
    VectorIndex.build(chunks_of("甲乙"), TOY).save(tmp_path / "i")
    (tmp_path / "plain").write_text("x", encoding="utf-8")
    assert (tmp_path / "i").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("meta", ["[]", "5", "{}", '{"version": 1}', '{"version": 1, "space": "x", "chunks": [5]}',
                                  '{"version": 1, "space": "x", "chunks": [{"a": 1}]}', '{"version": 1, "space": "x", "chunks": []}'])
def test_an_index_file_with_strange_contents_is_refused(tmp_path, meta):
    with zipfile.ZipFile(tmp_path / "i", "w") as archive:
        archive.writestr("index.json", meta)
        with archive.open("vectors.npy", "w") as part:
            np.save(part, np.ones((1, 2), np.float32)[0] if meta.endswith("[]}") else np.ones((1, 2), np.float32))
    with pytest.raises(RagLessonsError):
        VectorIndex.load(tmp_path / "i", TOY)


# ---------------------------------------------------------------- 别人递来的东西

def test_small_numpy_integers_do_not_overflow():
    index = VectorIndex.build(chunks_of(*(f"第{i}条规定" for i in range(300))), TOY)
    for k in (np.uint8(200), np.uint64(2), np.int8(100)):
        assert len(index.search("规定", k)) == int(k)


@pytest.mark.parametrize("where", [
    lambda chunk: chunk.metadata["page"] > 3, lambda chunk: np.array([True, False]), lambda: True,
])
def test_a_where_that_fails_says_on_which_chunk(where):
    with pytest.raises(RagLessonsError, match=r"a\.md:1 这一块上出错.*chunk\.metadata\.get"):
        VectorIndex.build(chunks_of("年假五天"), TOY).search("年假", where=where)


def test_which_of_two_equal_places_is_kept_does_not_depend_on_the_order():
    twice = [Chunk("年假五天", "a.md", 0, 4, headings=(name,)) for name in ("请假", "考勤")]
    kept = [VectorIndex.build(order, TOY).chunks[0].headings for order in (twice, twice[::-1])]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("wrong", [
    {"headings": (1, None)}, {"metadata": None}, {"metadata": {"embedding_text": 5}},
    {"start": None}, {"start": "0"}, {"end": 1.5}, {"line": -1},
])
def test_a_chunk_is_checked_when_it_is_made(wrong):
    with pytest.raises(RagLessonsError, match="Chunk 的"):
        Chunk(**({"text": "甲", "source": "a.md", "start": 0, "end": 1} | wrong))


@pytest.mark.parametrize("wrong", [
    {"chunk": None}, {"score": None}, {"score": "0.5"}, {"score": float("nan")}, {"score": float("-inf")},
    {"rank": "1"}, {"rank": -1}, {"details": None},
])
def test_a_hit_is_checked_when_it_is_made(wrong):
    with pytest.raises(RagLessonsError, match="Hit 的"):
        Hit(**({"chunk": Chunk("甲", "a.md", 0, 1), "score": 0.5, "rank": 1} | wrong))


def test_numbers_from_numpy_become_plain_ones():
    chunk = Chunk("甲", "a.md", np.int64(0), np.int32(1))
    hit = Hit(chunk, np.float32(0.5), np.int64(1))
    assert [type(value) for value in (chunk.start, chunk.end, hit.score, hit.rank)] == [int, int, float, int]
    assert chunk.id == Chunk("甲", "a.md", 0, 1).id


@pytest.mark.parametrize("vectors", [[[1, 0], [1]], [["a", "b"]] * 2, np.array([[1 + 1j, 0]] * 2), [[10**400, 1]] * 2])
def test_vectors_that_are_not_numbers_are_refused(vectors):
    with pytest.raises(RagLessonsError, match="不是一行一条、长短一致的数"):
        check_vectors(vectors, 2, 2, "某家")


@pytest.mark.parametrize("kind", ["vector", "bm25"])
def test_a_search_never_sees_half_a_sync(kind):
    small, large = chunks_of("年假五天"), chunks_of(*(f"年假第{i}条的说明" for i in range(400)))
    make = (lambda chunks: VectorIndex.build(chunks, TOY)) if kind == "vector" else BM25Index.build
    index, stop, problems = make(large), threading.Event(), []
    held = {chunk.id: chunk for chunk in [*small, *large]}

    def ask():
        while not stop.is_set():
            try:
                for hit in index.search("年假", 5):
                    assert held[hit.chunk.id] == hit.chunk
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(40):
            index.sync(small)
            index.sync(large)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
    assert not problems
