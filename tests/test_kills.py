"""随时被杀：存索引、同步、写缓存，SIGKILL 落在哪一刻都行，留下的要么是旧的，要么是新的，付过钱的不丢。

CI 上每种杀几次；环境变量 RAG_LESSONS_KILLS=100 时每种杀一百次。杀的时刻是随机的，种子写死，出错时写明是哪一次。
一半只看时间，一半瞄着写盘的时候：旁边的文件写到几成、日志刚出现，就动手。
每种都查有多少次真的杀在半中间：全落在空档里的测试什么也没有测。
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from test_cache import as_nobody, needs_fork, public  # noqa: F401 public 是 fixture

from rag_lessons import CachedEmbedder, Chunk, RagLessonsError, VectorIndex
from rag_lessons import index as index_module
from rag_lessons.embedding.base import BaseEmbedder
from rag_lessons.index import _part_prefix

KILLS = int(os.environ.get("RAG_LESSONS_KILLS", "8"))
ROWS, DIM = 400, 4096      # 一次 save 的时间多半花在写文件上
BATCH = 16                  # 缓存一批存几条
LONGEST = 0.25              # 子进程开始干活以后，最晚多少秒动手

# 两种状态：甲、乙。文字写明自己属于哪一种，混在一起就看得出来
CHILD = """
import os, sys, time
import numpy as np
sys.path.insert(0, sys.argv[3])
from test_kills import Counted, batch_of, chunks_of
from rag_lessons import CachedEmbedder, VectorIndex

job, path = sys.argv[1], sys.argv[2]
say = lambda text: os.write(1, (text + "\\n").encode())
embedder = Counted()
if job == "save":
    made = {name: VectorIndex.build(chunks_of(name), embedder) for name in "甲乙"}
    made["甲"].save(path)
    say("开始")
    while True:
        for name in "乙甲":
            say("("); made[name].save(path); say(")")
elif job == "sync":
    VectorIndex.build(chunks_of("甲"), embedder).save(path)
    say("开始")
    while True:
        for name in "乙甲":
            say("(")
            index = VectorIndex.load(path, embedder)
            index.sync(chunks_of(name))
            index.save(path)
            say(")")
elif job == "hot":
    # 一个大事务改到一半：缓存只留几页，改过的页提前写进主文件，原样在日志里
    import sqlite3
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = 4")
    db.execute("PRAGMA synchronous = OFF")              # 只为快些：进程被杀，写出去的字节照样在
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE vectors SET vector = zeroblob(length(vector))")
    say("开始")
    time.sleep(60)
else:
    start = int(sys.argv[4])
    cached = CachedEmbedder(Counted(lambda n: say(f"付 {n}")), path)
    say("开始")
    for batch in range(start, start + 100_000):
        cached.embed_documents(batch_of(batch))
        say(f"收 {batch}")
"""


class Counted(BaseEmbedder):
    """文字里的编号决定向量；送来一批就报一次账。"""

    def __init__(self, paid=lambda n: None):
        self.space, self.dim, self.paid, self.calls = f"test/kills/{DIM}", DIM, paid, 0

    def _encode(self, texts, role):
        numbers = np.array([sum(map(ord, text)) + 7 * len(text) for text in texts])
        made = np.sin(np.outer(numbers, np.arange(1, self.dim + 1)) + 0.5).astype(np.float32)
        self.calls += len(texts)
        self.paid(int(texts[0].split()[1]) // BATCH if texts[0].startswith("文") else -1)
        return made


def chunks_of(name):
    """甲、乙各一套：一半的文字相同，同步时有增、有删、有留。"""
    return [
        Chunk(f"共有的第 {n} 句。" if n % 2 else f"{name}的第 {n} 句。", f"{name}.md", 20 * n, 20 * n + 19)
        for n in range(ROWS)
    ]


def batch_of(number):
    """缓存里第 number 批的文字。"""
    return [f"文 {BATCH * number + i}" for i in range(BATCH)]


class Victim:
    """一个子进程，和它说过的话。"""

    def __init__(self, job, path, *more):
        command = [sys.executable, "-c", CHILD, job, str(path), str(Path(__file__).parent), *map(str, more)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        limit = time.monotonic() + 60
        while not self.said and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.001)
        if not self.said:
            self.process.kill()
            raise AssertionError("子进程没有开始：" + self.process.communicate()[1].decode(errors="replace"))

    def _read(self):
        for line in self.process.stdout:
            self.said.append(line.decode().strip())

    def kill(self, after=0.0, when=None):
        """等这么久（有 when，就再等到它成立），杀掉，返回它说过的话。它自己先死了就是测试的错。"""
        time.sleep(after)
        limit = time.monotonic() + 10
        while when is not None and not when() and self.process.poll() is None and time.monotonic() < limit:
            pass                                # 不睡：睡一觉，写盘的那几毫秒就过去了
        alive = self.process.poll() is None
        self.process.kill()                     # Windows 上是 TerminateProcess
        self.process.wait()
        self.reader.join(10)
        errors = self.process.stderr.read().decode(errors="replace")
        self.process.stdout.close()
        self.process.stderr.close()
        assert alive, f"还没杀它就退出了：{errors}"
        assert not errors, errors
        return self.said


@cache
def whole_index(name):
    return VectorIndex.build(chunks_of(name), Counted())


def state_of(path):
    """索引文件现在是哪一种状态；混着的、读不出的都算错。"""
    index = VectorIndex.load(path, Counted())
    (name,) = {chunk.source.removesuffix(".md") for chunk in index.chunks}
    wanted = whole_index(name)
    assert index.chunks == wanted.chunks
    np.testing.assert_array_equal(index.vectors, wanted.vectors)
    assert index.search("甲的第 10 句。", 1)
    return name


def written(folder, known, size):
    """旁边新写的文件写到 size 个字节了没有；known 是以前就在的。"""
    for part in names(folder) - known:
        with contextlib.suppress(OSError):
            if part.endswith(".part") and (folder / part).stat().st_size >= size:
                return True
    return False


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("job", ["save", "sync"])
def test_an_index_is_old_or_new(tmp_path, job):
    moments, path = random.Random(f"index {job}"), tmp_path / "索引 1.zip"
    VectorIndex.build(chunks_of("甲"), Counted()).save(path)
    whole, middle, old, new = path.stat().st_size, 0, 0, 0
    for number in range(KILLS):
        wait, share, known = moments.uniform(0, LONGEST), moments.uniform(0, 0.8), names(tmp_path)
        aimed = (lambda size=share * whole, known=known: written(tmp_path, known, size)) if number % 2 else None
        said = Victim(job, path).kill(wait, aimed)
        begun, done = said.count("("), said.count(")")
        middle += begun > done
        try:
            state = state_of(path)
            # 第 n 次存的：单数是乙，双数是甲（第 0 次是开工前那份）
            assert state in {"甲乙"[done % 2], "甲乙"[begun % 2]}
            left = names(tmp_path) - {path.name}
            assert len(left) <= number + 1 and all(name.endswith(".part") for name in left), left
        except BaseException as error:
            error.add_note(f"第 {number} 次：等 {wait:.4f} 秒，{f'写到 {share:.2f} 时' if aimed else '不看文件'}；它说 {said[-4:]}")
            raise
        old, new = old + (begun > done and state == "甲乙"[done % 2]), new + (begun > done and state == "甲乙"[begun % 2])
    print(f"{job}：杀 {KILLS} 次，{middle} 次在半中间（留下旧的 {old} 次、新的 {new} 次），{len(left)} 次文件写到一半")
    assert middle >= KILLS // 2, f"{KILLS} 次里只有 {middle} 次杀在半中间"
    assert len(left) >= KILLS // 5, f"{KILLS} 次里只有 {len(left)} 次文件写到一半"
    # 半个文件没有越积越多：过了期限，下一次 save 收走
    mine = tmp_path / f".{'0' * 32}.part"
    stale, fresh = (tmp_path / f"{_part_prefix(path)}{digit * 32}.part" for digit in "12")
    stale.write_bytes(b"x")
    mine.write_bytes(b"x")
    for part in tmp_path.glob(".*.part"):
        os.utime(part, (0, 0))
    fresh.write_bytes(b"x")
    VectorIndex.load(path, Counted()).save(path)
    assert names(tmp_path) == {path.name, mine.name, fresh.name}     # 别人的、太新的留着


def heard(said, word):
    return [int(line.split()[1]) for line in said if line.startswith(word)]


def check_cache(path, bought, got, note):
    """一次被杀以后：收到的都在，付过的最多丢手上那一批；文件完好，用的不是 WAL。返回丢了几批。"""
    try:
        assert set(got) <= set(bought)
        journal = Path(f"{path}-journal")
        again = Counted()
        cached = CachedEmbedder(again, path)
        for number in got:
            np.testing.assert_array_equal(cached.embed_documents(batch_of(number)), Counted().embed_documents(batch_of(number)))
        assert again.calls == 0, "报过收到的一批，又要付一次钱"
        for number in bought:
            cached.embed_documents(batch_of(number))
        assert again.calls in (0, BATCH), f"杀一次，丢了 {again.calls / BATCH} 批"
        assert not journal.exists(), "日志没有收走"
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert names(path.parent) <= {path.name}, "留下了别的文件"
    except BaseException as error:
        error.add_note(note)
        raise
    return again.calls // BATCH


def test_a_cache_loses_nothing_that_was_paid_for(tmp_path):
    moments, path = random.Random("cache"), tmp_path / "向量 1.sqlite"
    journal, start, paid, middle, hot, lost = Path(f"{path}-journal"), 0, set(), 0, 0, 0
    for number in range(KILLS):
        wait = moments.uniform(0, LONGEST)
        said = Victim("cache", path, start).kill(wait, journal.exists if number % 2 else None)
        bought, got = heard(said, "付"), heard(said, "收")
        middle += len(bought) > len(got)
        hot += journal.exists() and journal.stat().st_size > 0
        lost += check_cache(path, bought, got, f"第 {number} 次：等 {wait:.4f} 秒；它说 {said[-4:]}")
        paid |= set(bought)
        start = max([start - 1, *bought]) + 1
    again = Counted()
    cached = CachedEmbedder(again, path)
    for batch in sorted(paid):
        cached.embed_documents(batch_of(batch))
    assert again.calls == 0                                 # 别的批一直都在
    print(f"缓存：杀 {KILLS} 次，{middle} 次在半中间，{hot} 次留下没收的日志；付了 {len(paid)} 批，重新付 {lost} 批")
    assert middle >= KILLS // 3, f"{KILLS} 次里只有 {middle} 次杀在半中间"
    assert len(paid) >= KILLS


def test_a_cache_killed_while_it_is_being_made(tmp_path):
    """第一次写：建文件、建表、写第一批。每次都是新的文件。"""
    moments, unborn = random.Random("birth"), 0
    for number in range(KILLS):
        path, wait = tmp_path / str(number) / "v.sqlite", 0 if number % 2 else moments.uniform(0, 0.02)
        said = Victim("cache", path, 0).kill(wait, path.exists if number % 2 else None)
        got = heard(said, "收")
        unborn += not got
        check_cache(path, heard(said, "付") or [0], got, f"第 {number} 次：等 {wait:.4f} 秒；它说 {said[-4:]}")
    print(f"新的缓存：杀 {KILLS} 次，{unborn} 次在第一批收好之前")
    assert unborn >= KILLS // 5, f"{KILLS} 次里只有 {unborn} 次杀在第一批收好之前"


def hot_cache(path):
    """一个缓存文件，十批；有人改到一半被杀，主文件里有改过的页，日志还热着。"""
    path.parent.mkdir(exist_ok=True)
    cached = CachedEmbedder(Counted(), path)
    for number in range(10):
        cached.embed_documents(batch_of(number))
    before = path.read_bytes()
    Victim("hot", path).kill()
    assert path.read_bytes() != before and Path(f"{path}-journal").stat().st_size > 0
    return before


def test_a_hot_journal_is_rolled_back_by_the_next_reader(tmp_path):
    path = tmp_path / "v.sqlite"
    before = hot_cache(path)
    assert check_cache(path, range(10), range(10), "热日志") == 0
    assert path.read_bytes() == before


@needs_fork
def test_a_hot_journal_in_a_read_only_folder(public):  # noqa: F811
    """回滚要写文件，只读文件夹里做不到：说一声，照常计算，决不拿改到一半的向量；放开以后，原样都在。"""
    path = public / "v.sqlite"
    before = hot_cache(path)
    journal = Path(f"{path}-journal")
    for file, mode in ((path, 0o444), (journal, 0o444), (public, 0o555)):
        file.chmod(mode)

    def use():
        again = Counted()
        cached = CachedEmbedder(again, path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                np.testing.assert_array_equal(cached.embed_documents(batch_of(3)), Counted().embed_documents(batch_of(3)))
        assert again.calls == 2 * BATCH
        assert [word in str(w.message) for w, word in zip(caught, ("读不了", "写不了"), strict=True)] == [True, True]

    assert as_nobody(use) == 0
    for file, mode in ((public, 0o755), (path, 0o644), (journal, 0o644)):
        file.chmod(mode)
    assert check_cache(path, range(10), range(10), "热日志") == 0
    assert path.read_bytes() == before


@needs_fork
def test_an_index_in_a_read_only_folder(public):  # noqa: F811
    path = public / "索引.zip"
    VectorIndex.build(chunks_of("甲"), Counted()).save(path)
    public.chmod(0o555)

    def use():
        index = VectorIndex.load(path, Counted())
        with pytest.raises(RagLessonsError, match="写不进去"):
            index.save(path)
        assert state_of(path) == "甲" and names(public) == {path.name}

    assert as_nobody(use) == 0


def test_writers_that_share_a_cache_survive_each_others_death(tmp_path):
    """三个进程写同一个缓存，杀掉一个，另外两个照写；它们收到的都在。"""
    path = tmp_path / "v.sqlite"
    moments = random.Random("shared")
    for round_ in range(max(1, KILLS // 8)):
        victims = [Victim("cache", path, 10_000 * round_ + 3000 * n) for n in range(3)]
        first = victims[0].kill(moments.uniform(0, LONGEST))
        before = [len(victim.said) for victim in victims[1:]]
        limit = time.monotonic() + 20
        while any(len(v.said) <= count for v, count in zip(victims[1:], before, strict=True)) and time.monotonic() < limit:
            time.sleep(0.01)
        said = [first, *(victim.kill(0) for victim in victims[1:])]
        assert all(len(lines) > count for lines, count in zip(said[1:], before, strict=True)), "杀了一个，别的也停了"
        again = Counted()
        cached = CachedEmbedder(again, path)
        for lines in said:
            for batch in heard(lines, "收"):
                cached.embed_documents(batch_of(batch))
        assert again.calls == 0


def test_a_reader_during_saves_sees_old_or_new(tmp_path):
    path = tmp_path / "索引.zip"
    victim = Victim("save", path)
    try:
        seen = {state_of(path) for _ in range(12)}
    finally:
        victim.kill(0)
    assert seen <= {"甲", "乙"}


@needs_fork
@pytest.mark.parametrize("freed", [True, False])
def test_a_file_held_by_others_is_waited_for(public, monkeypatch, freed):  # noqa: F811
    """Windows 上别的程序正读着旧文件时，换名会被拒绝。这里借粘滞位造一个同样的拒绝：别人的文件换不掉，过一会儿放开。"""
    path = public / "索引.zip"
    VectorIndex.build(chunks_of("甲"), Counted()).save(path)
    public.chmod(0o1777)
    if os.geteuid() == 0:
        os.chown(public, 1, 1)
        os.chown(path, 1, 1)
    else:
        pytest.skip("要 root 才造得出别人的文件")
    monkeypatch.setattr(index_module, "BUSY_SECONDS", 20 if freed else 0.2)
    timer = threading.Timer(0.5, lambda: public.chmod(0o777))
    made = whole_index("乙")

    def use():
        if freed:
            made.save(path)
        else:
            with pytest.raises(RagLessonsError, match="写不进去"):
                made.save(path)

    if freed:
        timer.start()
    assert as_nobody(use) == 0
    assert state_of(path) == ("乙" if freed else "甲") and names(public) == {path.name}
