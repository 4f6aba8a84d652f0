"""向量缓存：逐位相同、互不混淆、坏了能自己好、多进程、被杀、只读。"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import hashed_vectors

from rag_lessons.embedding import cache
from rag_lessons.embedding.base import BaseEmbedder, Embedder
from rag_lessons.embedding.cache import CachedEmbedder, cache_key
from rag_lessons.embedding.toy import ToyEmbedder
from rag_lessons.types import RagLessonsError, RagLessonsWarning, is_blank


class Counting(BaseEmbedder):
    """记下算过哪些文字；向量由 (空间, 角色, 文字) 决定。"""

    def __init__(self, space="counting/8", dim=8, batch=None):
        self.space, self.dim, self.batch, self.sent = space, dim, batch, []

    def _encode_batches(self, texts, role):
        size = self.batch or len(texts)
        for start in range(0, len(texts), size):
            part = texts[start:start + size]
            self.sent += [(role, text) for text in part]
            named = [f"{self.space}|{role}|{text!r}" for text in part]
            yield range(start, start + len(part)), hashed_vectors(named, self.dim)

    def token_vectors(self, texts, role):
        return [role, *texts]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "v.sqlite"


def texts(count, name="段"):
    return [f"{name} {i}" for i in range(count)]


@contextlib.contextmanager
def recorded():
    """记下全部警告。别处不用它：pyproject 里警告就是错误，没有记下的警告会让测试失败。"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


# --- 基本 ---------------------------------------------------------------------------------------------

def test_bitwise_the_same(path):
    plain = Counting().embed_documents(texts(200))
    first = CachedEmbedder(Counting(batch=64), path)
    computed = first.embed_documents(texts(200))
    again = CachedEmbedder(Counting(), path)
    stored = again.embed_documents(texts(200))
    assert plain.tobytes() == computed.tobytes() == stored.tobytes()
    assert stored.dtype == np.float32 and stored.flags.writeable
    assert (first.hits, first.misses, again.hits, again.misses) == (0, 200, 200, 0)
    assert again.embedder.sent == []


def test_partly_known_in_any_order(path):
    cached = CachedEmbedder(Counting(batch=7), path)
    cached.embed_documents(texts(50)[::3])
    mixed = random.Random(1).sample([*texts(50), *texts(20), " ", ""], 72)
    assert cached.embed_documents(mixed).tobytes() == Counting().embed_documents(mixed).tobytes()
    assert len(cached.embedder.sent) == 50
    assert (cached.hits, cached.misses) == (70 - 33, 17 + 33)


def test_duplicates_blanks_and_nothing(path):
    cached = CachedEmbedder(Counting(), path)
    vectors = cached.embed_documents(["甲", "", "甲", "\u3000", "甲"])
    assert cached.embedder.sent == [("document", "甲")]
    assert vectors[0].tobytes() == vectors[2].tobytes() and not vectors[1].any()
    assert (cached.hits, cached.misses) == (2, 1)
    assert cached.embed_documents([]).shape == (0, 8)
    assert cached.embed_documents(["", " "]).shape == (2, 8)
    for query in ("", " ", "\u200b"):
        with pytest.raises(RagLessonsError, match="空白"):
            cached.embed_query(query)
    with pytest.raises(RagLessonsError, match="列表"):
        cached.embed_documents("甲乙")
    with pytest.raises(RagLessonsError, match="第 1 条不是字符串"):
        cached.embed_documents(["甲", 1])


def test_query_and_document_are_two_entries(path):
    cached = CachedEmbedder(Counting(), path)
    query, document = cached.embed_query("甲"), cached.embed_documents(["甲"])[0]
    assert query.shape == (8,) and not np.array_equal(query, document)
    assert cached.stats() == {"counting/8": 2}
    assert cached.embed_query("甲").tobytes() == query.tobytes()
    assert cached.embed_documents(["甲"])[0].tobytes() == document.tobytes()


def test_three_spaces_in_one_folder(tmp_path):
    inner = [Counting("zhipu/embedding-3/512/none/v1", 512), Counting("zhipu/embedding-3/2048/none/v1", 2048),
             ToyEmbedder(1024), Counting("other/1024", 1024)]
    for _ in range(2):
        for embedder in inner:
            cached = CachedEmbedder(embedder, tmp_path)
            assert cached.embed_documents(texts(20)).tobytes() == embedder.embed_documents(texts(20)).tobytes()
            assert cached.hits + cached.misses == 20 and cached.space == embedder.space
    assert CachedEmbedder(ToyEmbedder(), tmp_path).stats() == dict.fromkeys(sorted(e.space for e in inner), 20)
    assert [p.name for p in tmp_path.iterdir()] == ["vectors.sqlite"]


def test_clear(path):
    a, b = CachedEmbedder(Counting("a"), path), CachedEmbedder(Counting("b"), path)
    assert a.clear() == 0 and a.stats() == {}
    a.embed_documents(texts(300))
    b.embed_documents(texts(5))
    assert b.clear("a") == 300 and b.stats() == {"b": 5}
    assert b.clear("") == 0
    assert b.clear() == 5 and b.stats() == {}
    assert path.stat().st_size < 30_000


def test_passes_through(path):
    cached = CachedEmbedder(Counting(), path)
    assert cached.token_vectors(["甲"], "query") == ["query", "甲"]
    assert (cached.space, cached.dim) == ("counting/8", 8)
    assert isinstance(cached, Embedder) and "Counting" in repr(cached)
    with pytest.raises(AttributeError):
        _ = cached.nothing_like_this
    with pytest.raises(AttributeError):
        _ = cached._repr_html_


def test_default_path(monkeypatch, tmp_path):
    monkeypatch.setenv("RAG_LESSONS_CACHE", str(tmp_path / "深" / "处"))
    assert CachedEmbedder(Counting()).path == tmp_path / "深" / "处" / "vectors.sqlite"


def test_missing_parent_folders_are_made(tmp_path):
    CachedEmbedder(Counting(), tmp_path / "a" / "b" / "v.sqlite").embed_query("甲")
    assert (tmp_path / "a" / "b" / "v.sqlite").is_file()


def test_only_the_embedder_protocol_is_needed(path):
    class Foreign:
        space, dim = "foreign/8", 8

        def __init__(self):
            self.calls = []

        def embed_documents(self, given):
            self.calls.append(len(given))
            return Counting().embed_documents(given)

        def embed_queries(self, given):
            return Counting().embed_queries(given)

    cached = CachedEmbedder(Foreign(), path)
    for _ in range(2):
        assert cached.embed_documents(texts(300)).tobytes() == Counting().embed_documents(texts(300)).tobytes()
    assert cached.embedder.calls == [256, 44]
    assert cached.embed_query("甲").tobytes() == Counting().embed_query("甲").tobytes()


def test_a_foreign_embedder_that_returns_too_few(path):
    class Short:
        space, dim = "short/8", 8

        def embed_documents(self, given):
            return Counting().embed_documents(given[:-1])

    with pytest.raises(RagLessonsError, match="返回了 2 条"):
        CachedEmbedder(Short(), path).embed_documents(texts(3))
    assert not path.exists()


class Learns(Counting):
    """第一次算之前不知道维数。"""

    def __init__(self, width=8):
        super().__init__("learns/default", 0)
        self.width = width

    def _encode_batches(self, given, role):
        self.dim = self.width
        yield from super()._encode_batches(given, role)


def test_an_unknown_width_is_learned_from_the_cache(path):
    cached = CachedEmbedder(Learns(), path)
    assert cached.dim == 0
    first = cached.embed_documents(texts(3))
    assert cached.dim == 8
    again = CachedEmbedder(Learns(), path)
    assert again.embed_documents(texts(3)).tobytes() == first.tobytes()
    assert again.dim == 8 and again.embedder.dim == 0


def test_a_model_swapped_behind_the_same_name(path):
    CachedEmbedder(Learns(8), path).embed_documents(texts(3))
    swapped = CachedEmbedder(Learns(9), path)
    with pytest.raises(RagLessonsError, match="8 维，现在算出的是 9 维"):
        swapped.embed_documents(texts(5))
    assert swapped.stats() == {"learns/default": 3}
    swapped.clear(swapped.space)
    assert swapped.embed_documents(texts(5)).shape == (5, 9)


def test_a_failure_keeps_the_finished_batches(path):
    class Fails(Counting):
        def _encode_batches(self, given, role):
            for number, batch in enumerate(super()._encode_batches(given, role)):
                if number == 2:
                    raise KeyboardInterrupt
                yield batch

    with pytest.raises(KeyboardInterrupt):
        CachedEmbedder(Fails(batch=10), path).embed_documents(texts(50))
    cached = CachedEmbedder(Counting(), path)
    assert cached.embed_documents(texts(50)).tobytes() == Counting().embed_documents(texts(50)).tobytes()
    assert (cached.hits, cached.misses) == (20, 30)


# --- 键 -----------------------------------------------------------------------------------------------

def test_keys_do_not_run_together():
    keys = {
        cache_key(space, role, text)
        for space in ("a", "ab", "a:query", "", "a:query:b")
        for role in ("query", "document")
        for text in ("", "b", "query:b", ":b", "\0", "甲", "甲\u0301", "\ud800", "\ufffd", "?")
    }
    assert len(keys) == 5 * 2 * 10


def test_the_same_bytes_in_every_process(tmp_path):
    code = """
        import sys
        from rag_lessons.embedding.cache import CachedEmbedder, cache_key
        from rag_lessons.embedding.toy import ToyEmbedder
        cached = CachedEmbedder(ToyEmbedder(64), sys.argv[1])
        rows = cached.embed_documents(["安全阀", "失控保护", "safety valve", "😀"])
        print(cache_key(cached.space, "document", "安全阀").hex(), rows.tobytes().hex(), cached.hits)
    """
    shown = set()
    for number, seed in enumerate(("0", "1", "random", "0")):
        target = tmp_path / ("shared" if number in (0, 3) else f"own{number}")
        target.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(target)], check=True, capture_output=True, text=True,
            encoding="utf-8", env={**os.environ, "PYTHONHASHSEED": seed},
        )
        *same, hits = done.stdout.split()
        assert hits == ("4" if number == 3 else "0")
        shown.add(tuple(same))
    assert len(shown) == 1


ANY_TEXT = st.text(st.characters(), max_size=30)        # 含不成对的代理字符


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(ANY_TEXT, max_size=8), second=st.lists(ANY_TEXT, max_size=8))
def test_any_text_round_trips(first, second):
    with tempfile.TemporaryDirectory() as folder:
        cached = CachedEmbedder(Surrogates(), folder)
        for given_texts in (first, second, first + second):
            expected = Surrogates().embed_documents(given_texts)
            assert cached.embed_documents(given_texts).tobytes() == expected.tobytes()
        wanted = {t for t in first + second if not is_blank(t)}
        assert len(cached.embedder.sent) == len(wanted)
        assert cached.embed_documents(first + second).tobytes() == expected.tobytes()
        assert len(cached.embedder.sent) == len(wanted)


class Surrogates(Counting):
    """Counting 用 repr 取种子，不成对的代理字符也行。"""


# --- 坏条目 -------------------------------------------------------------------------------------------

def spoil(path, sql, *values):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(sql, values).rowcount > 0


BLOBS = {
    "truncated": lambda blob: blob[:-4],
    "half": lambda blob: blob[: len(blob) // 2],
    "odd": lambda blob: blob[:-1],
    "empty": lambda blob: b"",
    "random": lambda blob: random.Random(0).randbytes(len(blob)),
    "random longer": lambda blob: random.Random(0).randbytes(len(blob) + 8),
    "one bit": lambda blob: bytes([blob[0] ^ 1]) + blob[1:],
    "zeros": lambda blob: bytes(len(blob)),
    "only checksum": lambda blob: blob[-4:],
    "text": lambda blob: "不是字节",
    "number": lambda blob: 3,
}


@pytest.mark.parametrize("kind", BLOBS)
def test_a_broken_entry_is_a_miss_and_is_rewritten(path, kind):
    CachedEmbedder(Counting(), path).embed_documents(texts(10))
    key = cache_key("counting/8", "document", "段 3")
    with contextlib.closing(sqlite3.connect(path)) as db:
        blob = db.execute("SELECT vector FROM vectors WHERE key = ?", [key]).fetchone()[0]
    spoil(path, "UPDATE vectors SET vector = ? WHERE key = ?", BLOBS[kind](blob), key)
    cached = CachedEmbedder(Counting(), path)
    with pytest.warns(RagLessonsWarning, match="有 1 条坏了") as caught:
        vectors = cached.embed_documents(texts(10))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert vectors.tobytes() == Counting().embed_documents(texts(10)).tobytes()
    assert cached.embedder.sent == [("document", "段 3")]
    assert (cached.hits, cached.misses) == (9, 1)
    again = CachedEmbedder(Counting(), path)
    again.embed_documents(texts(10))        # 没有警告，也没有再算
    assert again.misses == 0


def test_many_broken_entries_one_warning(path):
    cached = CachedEmbedder(Counting(), path)
    cached.embed_documents(texts(2000))
    spoil(path, "UPDATE vectors SET vector = x'00' WHERE rowid % 2 = 0")
    with pytest.warns(RagLessonsWarning, match="有 1000 条坏了") as caught:
        vectors = cached.embed_documents(texts(2000))
    assert len(caught) == 1
    assert vectors.tobytes() == Counting().embed_documents(texts(2000)).tobytes()
    spoil(path, "UPDATE vectors SET vector = x'' WHERE rowid = 3")
    with pytest.warns(RagLessonsWarning, match="有 1 条坏了"):
        cached.embed_documents(texts(2000))


def test_swapped_entries_are_noticed(path):
    """整条换成另一条的字节：校验码连着键一起算，骗不过去。"""
    CachedEmbedder(Counting(), path).embed_documents(texts(2))
    spoil(path, "UPDATE vectors SET vector = (SELECT vector FROM vectors ORDER BY rowid LIMIT 1)")
    with pytest.warns(RagLessonsWarning, match="有 1 条坏了"):
        vectors = CachedEmbedder(Counting(), path).embed_documents(texts(2))
    assert vectors.tobytes() == Counting().embed_documents(texts(2)).tobytes()


# --- 坏文件 -------------------------------------------------------------------------------------------

FILES = {
    "not a database": lambda data: b"not a database",
    "long not a database": lambda data: b"hello " * 10_000,
    "random": lambda data: random.Random(0).randbytes(len(data)),
    "header gone": lambda data: bytes(100) + data[100:],
    "truncated": lambda data: data[: len(data) // 2],
    "truncated to the first page": lambda data: data[:4096],
    "truncated inside the header": lambda data: data[:60],
    "tail overwritten": lambda data: data[:8192] + random.Random(0).randbytes(len(data) - 8192),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("known", [True, False])
def test_a_broken_file_is_set_aside(path, kind, known):
    CachedEmbedder(Counting(dim=64), path).embed_documents(texts(500))
    data = FILES[kind](path.read_bytes())
    path.write_bytes(data)
    cached = CachedEmbedder(Counting(dim=64), path)
    wanted = texts(500) if known else texts(3, "新")
    with pytest.warns(RagLessonsWarning, match="坏了，已改名为") as caught:
        vectors = cached.embed_documents(wanted)
    assert len(caught) == 1
    assert vectors.tobytes() == Counting(dim=64).embed_documents(wanted).tobytes()
    kept = [p for p in path.parent.iterdir() if ".broken-" in p.name]
    assert len(kept) == 1 and kept[0].read_bytes() == data and kept[0].name in str(caught[0].message)
    again = CachedEmbedder(Counting(dim=64), path)
    again.embed_documents(wanted)
    assert again.misses == 0


def test_an_empty_file_is_a_new_cache(path):
    path.write_bytes(b"")
    cached = CachedEmbedder(Counting(), path)
    cached.embed_documents(texts(3))
    assert cached.stats() == {"counting/8": 3}


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_an_old_journal_does_not_spoil_the_new_file(path, suffix):
    path.write_bytes(b"not a database" * 100)
    Path(f"{path}{suffix}").write_bytes(b"old journal" * 5000)
    with pytest.warns(RagLessonsWarning, match="已改名为"):
        CachedEmbedder(Counting(), path).embed_documents(texts(3))
    assert not Path(f"{path}{suffix}").exists()
    again = CachedEmbedder(Counting(), path)
    again.embed_documents(texts(3))
    assert again.misses == 0


def test_somebody_elses_database_is_left_alone(path):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE vectors (mine TEXT)")
    before = path.read_bytes()
    cached = CachedEmbedder(Counting(), path)
    for call in (lambda: cached.embed_query("甲"), cached.clear, cached.stats):
        with pytest.raises(RagLessonsError, match="别的程序的数据库"):
            call()
    assert path.read_bytes() == before


def test_processes_that_find_it_broken_together(path):
    """八个进程同时看到坏文件：只挪走一次，挪走的是坏的那个，没有人的新向量被挪走。"""
    path.write_bytes(b"not a database" * 1000)
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    workers = [context.Process(target=work_quietly, args=(path, n, start)) for n in range(8)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert sum(".broken-" in p.name for p in path.parent.iterdir()) == 1
    assert CachedEmbedder(Counting(), path).stats() == {"counting/8": 8 * 30}


def work_quietly(path, number, start):
    start.wait()
    with warnings.catch_warnings(record=True):
        work(path, number)


# --- 同时用 -------------------------------------------------------------------------------------------

def work(path, number, rounds=10):
    """写自己的 3 x rounds 条，每写一批都读回来核对。"""
    for i in range(rounds):
        mine = texts(3, f"进程 {number} 轮 {i}")
        cached = CachedEmbedder(Counting(), path)
        for _ in range(2):
            assert cached.embed_documents(mine).tobytes() == Counting().embed_documents(mine).tobytes()
        assert (cached.hits, cached.misses) == (3, 3)


def test_many_processes(path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(path, n)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert CachedEmbedder(Counting(), path).stats() == {"counting/8": 6 * 30}


def test_many_threads_on_one_object(path):
    cached = CachedEmbedder(Counting(), path)
    expected = Counting().embed_documents(texts(40)).tobytes()
    failures = []

    def run():
        try:
            for _ in range(5):
                assert cached.embed_documents(texts(40)).tobytes() == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert cached.hits + cached.misses == 8 * 5 * 40
    assert cached.stats() == {"counting/8": 40}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="没有 fork")
def test_usable_after_fork(path):
    cached = CachedEmbedder(Counting(), path)
    cached.embed_documents(texts(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)     # 3.12 起，有线程时 fork 会警告
        child = os.fork()
    if child == 0:
        ok = cached.embed_documents(texts(9)).tobytes() == Counting().embed_documents(texts(9)).tobytes()
        os._exit(0 if ok and cached.hits == 5 else 1)
    assert os.waitpid(child, 0)[1] == 0
    cached.embed_documents(texts(9))
    assert cached.misses == 5 and cached.hits == 9


def test_a_long_lock_costs_one_wait_and_one_warning(path, monkeypatch):
    monkeypatch.setattr(cache, "PATIENCE", 0.3)
    monkeypatch.setattr(cache, "SHORT_PATIENCE", 0.01)
    cached = CachedEmbedder(Counting(), path)
    cached.embed_documents(texts(3))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.monotonic()
        with recorded() as caught:
            for _ in range(5):
                assert cached.embed_documents(texts(3)).shape == (3, 8)
        assert time.monotonic() - start < 2
        assert [word in str(w.message) for w, word in zip(caught, ("读不了", "写不了"), strict=True)] == [True, True]
        other.execute("ROLLBACK")
    cached.embed_documents(texts(3))
    assert cached.hits == 3


# --- 被杀 ---------------------------------------------------------------------------------------------

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_cache import Counting, texts
from rag_lessons.embedding.cache import CachedEmbedder
cached = CachedEmbedder(Counting(dim=512, batch=5), sys.argv[1])
print("go", flush=True)
for n in range(10_000):
    cached.embed_documents(texts(50, f"{sys.argv[3]}-{n}"))
    print(n, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="没有 kill -9")
def test_killed_while_writing(path):
    chance = random.Random(7)
    for number in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent), str(number)],
            stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )
        with process:
            assert process.stdout.readline() == "go\n"
            time.sleep(chance.uniform(0.02, 0.25))
            process.kill()
            finished = [int(line) for line in process.stdout.read().split()]
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        cached = CachedEmbedder(Counting(dim=512), path)
        done = [t for n in finished for t in texts(50, f"{number}-{n}")]
        expected = Counting(dim=512).embed_documents(done)
        assert cached.embed_documents(done).tobytes() == expected.tobytes()
        assert cached.misses == 0           # 说写好了的，都在
        if path.exists():
            assert sum(cached.stats().values()) % 5 == 0       # 一批要么全在，要么全不在
    assert sum(cached.stats().values()) > 0


# --- 只读、满了、没有 ---------------------------------------------------------------------------------

def as_nobody(action):
    """在子进程里放弃 root 身份再做；权限对 root 不起作用。返回子进程的退出码。"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            action()
            code = 0
        except BaseException as error:
            os.write(2, repr(error).encode("utf-8", "replace"))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@pytest.fixture
def public():
    """别的用户也进得去的文件夹（pytest 的 tmp_path 不行）。"""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="没有 fork 和 setuid")


@needs_fork
@pytest.mark.parametrize("modes", [(0o444, 0o555), (0o444, 0o755), (0o644, 0o555)])
def test_read_only_reads_and_skips_writes_with_one_warning(public, modes):
    path = public / "v.sqlite"
    CachedEmbedder(Counting(), path).embed_documents(texts(10))
    before = path.read_bytes()
    path.chmod(modes[0])
    public.chmod(modes[1])

    def use():
        cached = CachedEmbedder(Counting(), path)
        assert cached.embed_documents(texts(10)).shape == (10, 8)        # 只读：没有警告
        assert (cached.hits, cached.misses) == (10, 0)
        with recorded() as caught:
            for n in range(3):
                wanted = texts(12, "段") + texts(2, f"新 {n}")
                assert cached.embed_documents(wanted).tobytes() == Counting().embed_documents(wanted).tobytes()
        assert [w.category for w in caught] == [RagLessonsWarning], [str(w.message) for w in caught]
        assert "写不了" in str(caught[0].message)
        assert sorted(p.name for p in public.iterdir()) == ["v.sqlite"]

    assert as_nobody(use) == 0
    assert path.read_bytes() == before


@needs_fork
def test_a_broken_entry_in_a_read_only_file(public):
    path = public / "v.sqlite"
    CachedEmbedder(Counting(), path).embed_documents(texts(10))
    spoil(path, "UPDATE vectors SET vector = x'' WHERE rowid = 1")
    path.chmod(0o444)
    public.chmod(0o555)

    def use():
        cached = CachedEmbedder(Counting(), path)
        with recorded() as caught:
            for _ in range(3):
                assert cached.embed_documents(texts(10)).tobytes() == Counting().embed_documents(texts(10)).tobytes()
        assert [word in str(w.message) for w, word in zip(caught, ("坏了", "写不了"), strict=True)] == [True, True]

    assert as_nobody(use) == 0


@needs_fork
def test_a_broken_file_that_cannot_be_moved(public):
    path = public / "v.sqlite"
    path.write_bytes(b"not a database" * 1000)
    path.chmod(0o444)
    public.chmod(0o555)

    def use():
        cached = CachedEmbedder(Counting(), path)
        with recorded() as caught:
            for _ in range(3):
                assert cached.embed_documents(texts(10)).tobytes() == Counting().embed_documents(texts(10)).tobytes()
        assert {w.category for w in caught} == {RagLessonsWarning} and len(caught) == 2     # 读、写各一次

    assert as_nobody(use) == 0


@needs_fork
def test_a_folder_that_cannot_be_made(public):
    public.chmod(0o555)

    def use():
        cached = CachedEmbedder(Counting(), public / "deep" / "v.sqlite")
        with recorded() as caught:
            for _ in range(2):
                assert cached.embed_documents(texts(3)).shape == (3, 8)
        assert len(caught) == 1 and "写不了" in str(caught[0].message)

    assert as_nobody(use) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="没有 /dev/full")
def test_a_disk_that_is_full(path, monkeypatch):
    """用 max_page_count 让真的 SQLite 报“满了”。"""
    cached = CachedEmbedder(Counting(dim=256), path)
    cached.embed_documents(texts(5))
    connect = sqlite3.connect

    def small(*args, **kwargs):
        db = connect(*args, **kwargs)
        db.execute("PRAGMA max_page_count = 8")
        return db

    monkeypatch.setattr(cache.sqlite3, "connect", small)
    with pytest.warns(RagLessonsWarning, match=r"写不了.*full") as caught:
        for _ in range(2):
            assert cached.embed_documents(texts(500)).tobytes() == Counting(dim=256).embed_documents(texts(500)).tobytes()
    assert len(caught) == 1
    assert cached.stats() == {"counting/8": 5}


# --- 快 -----------------------------------------------------------------------------------------------

def test_ten_thousand_hits_are_fast(path):
    cached = CachedEmbedder(ToyEmbedder(384), path)
    wanted = [f"{i} 号段落" + "一些文字" * 50 for i in range(10_000)]
    cached.embed_documents(wanted)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        cached.embed_documents(wanted)
        seconds.append(time.perf_counter() - start)
    assert cached.misses == 10_000
    assert min(seconds) < 1


@pytest.mark.skipif(os.name == "nt", reason="Windows 没有这种权限位")
def test_a_folder_that_may_not_be_entered(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    code = textwrap.dedent("""
        import os, sys, warnings
        import rag_lessons
        from rag_lessons import *
        for name in rag_lessons.__all__:
            getattr(rag_lessons, name)
        place, toy = sys.argv[1], ToyEmbedder(16)
        index = VectorIndex.build([Chunk("甲乙", "a.md", 0, 2)], toy)
        if os.getuid() == 0:
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
        else:
            os.chmod(place, 0)
        warnings.simplefilter("ignore")
        cached = CachedEmbedder(toy, place + "/v.sqlite")
        assert cached.embed_documents(["甲乙"]).shape == (1, 16) and cached.stats() == {} and cached.clear() == 0
        for call in (lambda: index.save(place + "/i"), lambda: VectorIndex.load(place + "/i", toy)):
            try:
                call()
            except RagLessonsError as error:
                assert "权限" in str(error)
            else:
                raise SystemExit("没有报错")
    """)
    done = subprocess.run([sys.executable, "-c", code, str(closed)], capture_output=True, encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"})
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr
