"""随时被杀：存索引、同步、写缓存，SIGKILL 落在哪一刻都行，留下的要么是旧的，要么是新的，付过钱的不丢。

CI 上每种杀几次；环境变量 RAG_LESSONS_KILLS=100 时每种杀一百次。杀的时刻是随机的，种子写死。
每种都查有多少次真的杀在半中间：全落在空档里的测试什么也没有测。
"""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rag_lessons import CachedEmbedder, Chunk, VectorIndex
from rag_lessons.embedding.base import BaseEmbedder
from rag_lessons.index import _part_prefix

KILLS = int(os.environ.get("RAG_LESSONS_KILLS", "8"))
ROWS, DIM = 400, 4096      # 一次 save 的时间多半花在写文件上
LONGEST = 0.25              # 子进程开始干活以后，最晚多少秒动手

# 两种状态：甲、乙。文字写明自己属于哪一种，混在一起就看得出来
CHILD = """
import os, sys, time
import numpy as np
sys.path.insert(0, sys.argv[3])
from test_kills import Counted, chunks_of
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
else:
    start = int(sys.argv[4])
    cached = CachedEmbedder(Counted(lambda n: say(f"付 {n}")), path)
    say("开始")
    for batch in range(start, start + 100_000):
        cached.embed_documents([f"文 {16 * batch + i}" for i in range(16)])
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
        self.paid(int(texts[0].split()[1]) // 16 if texts[0].startswith("文") else -1)
        return made


def chunks_of(name):
    """甲、乙各一套：一半的文字相同，同步时有增、有删、有留。"""
    return [
        Chunk(f"共有的第 {n} 句。" if n % 2 else f"{name}的第 {n} 句。", f"{name}.md", 20 * n, 20 * n + 19)
        for n in range(ROWS)
    ]


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

    def kill(self, after):
        """等这么久，杀掉，返回它说过的话。它自己先死了就是测试的错。"""
        time.sleep(after)
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        errors = self.process.stderr.read().decode(errors="replace")
        self.process.stdout.close()
        self.process.stderr.close()
        assert alive, f"还没杀它就退出了：{errors}"
        assert not errors, errors
        return self.said


def state_of(path):
    """索引文件现在是哪一种状态；混着的、读不出的都算错。"""
    index = VectorIndex.load(path, Counted())
    (name,) = {chunk.source.removesuffix(".md") for chunk in index.chunks}
    wanted = VectorIndex.build(chunks_of(name), Counted())
    assert index.chunks == wanted.chunks
    np.testing.assert_array_equal(index.vectors, wanted.vectors)
    assert index.search("甲的第 10 句。", 1)
    return name


@pytest.mark.parametrize("job", ["save", "sync"])
def test_an_index_is_old_or_new(tmp_path, job):
    moments, middle, states = random.Random(f"index {job}"), 0, []
    path = tmp_path / "索引 1.zip"
    for number in range(KILLS):
        wait = moments.uniform(0, LONGEST)
        said = Victim(job, path).kill(wait)
        half = said.count("(") > said.count(")")
        middle += half
        states.append(state_of(path))
        left = [p for p in tmp_path.iterdir() if p != path]
        assert len(left) <= number + 1 and all(p.name.endswith(".part") for p in left), left
    print(f"{job}：杀 {KILLS} 次，{middle} 次在半中间，其中 {len(left)} 次文件写到一半；留下甲 {states.count('甲')} 次，乙 {states.count('乙')} 次")
    assert middle >= KILLS // 2, f"{KILLS} 次里只有 {middle} 次杀在半中间"
    # 半个文件没有越积越多：过了期限，下一次 save 收走
    mine = tmp_path / f".{'0' * 32}.part"
    old, fresh = (tmp_path / f"{_part_prefix(path)}{digit * 32}.part" for digit in "12")
    old.write_bytes(b"x")
    mine.write_bytes(b"x")
    for part in tmp_path.glob(".*.part"):
        os.utime(part, (0, 0))
    fresh.write_bytes(b"x")
    VectorIndex.load(path, Counted()).save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, mine.name, fresh.name])     # 别人的、太新的留着


def test_a_cache_loses_nothing_that_was_paid_for(tmp_path):
    moments, middle = random.Random("cache"), 0
    path, start, paid, kept = tmp_path / "向量 1.sqlite", 0, set(), 0
    for _ in range(KILLS):
        said = Victim("cache", path, start).kill(moments.uniform(0, LONGEST))
        bought = [int(line.split()[1]) for line in said if line.startswith("付")]
        got = [int(line.split()[1]) for line in said if line.startswith("收")]
        middle += len(bought) > len(got)
        assert set(got) <= set(bought)
        paid |= set(bought)
        kept += len(got)
        # 手上那一批可能来不及写，别的都在：再算一遍，只许有那一批要重新付钱
        again = Counted()
        cached = CachedEmbedder(again, path)
        for batch in got[-3:] + got[:2]:
            texts = [f"文 {16 * batch + i}" for i in range(16)]
            found = cached.embed_documents(texts)
            np.testing.assert_array_equal(found, Counted().embed_documents(texts))
        assert again.calls == 0, "报过收到的一批，又要付一次钱"
        start = max([start - 1, *bought]) + 1
    again = Counted()
    cached = CachedEmbedder(again, path)
    for batch in sorted(paid):
        cached.embed_documents([f"文 {16 * batch + i}" for i in range(16)])
    print(f"缓存：杀 {KILLS} 次，{middle} 次在半中间；付了 {len(paid)} 批，收到 {kept} 批，重新付 {again.calls // 16} 批")
    assert again.calls <= 16 * KILLS                        # 每杀一次，最多手上那一批
    assert kept >= KILLS
    assert not [p for p in tmp_path.iterdir() if "坏" in p.name or p.suffix == ".part"]


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
            for batch in [int(line.split()[1]) for line in lines if line.startswith("收")]:
                cached.embed_documents([f"文 {16 * batch + i}" for i in range(16)])
        assert again.calls == 0


def test_a_reader_during_saves_sees_old_or_new(tmp_path):
    path = tmp_path / "索引.zip"
    victim = Victim("save", path)
    try:
        seen = {state_of(path) for _ in range(12)}
    finally:
        victim.kill(0)
    assert seen <= {"甲", "乙"}
