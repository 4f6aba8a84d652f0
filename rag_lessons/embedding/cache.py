"""向量缓存：同一个模型算过的同一段文字，不再算第二遍。全部放在一个 SQLite 文件里。

键是（空间、角色、文字）的 SHA-256，所以换了模型、换了维数、问题与文档，都不会混。
值是 float32 的字节（小端）加 4 字节校验码：坏掉的一条等于没有，会重算并写回，别的不受影响。

三个选择和理由：

* 每次调用打开、用完就关。线程、fork、Windows 上移动文件都不用操心，打开一次不到一毫秒。
* 用回滚日志，不用 WAL。WAL 要共享内存，网络盘（NFS）上会坏，只读文件夹里打不开；
  这里一批写一次，用不上它的快。
* 缓存只是帮忙：读不了、写不了都只警告一次，向量照算。
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rag_lessons.embedding.base import (
    BaseEmbedder,
    FloatArray,
    Role,
    check_embedder,
    check_texts,
    check_vectors,
)
from rag_lessons.paths import as_path, cache_dir
from rag_lessons.types import RagLessonsError, RagLessonsWarning

FILE_NAME = "vectors.sqlite"
# 写在 SQLite 文件头里，用来认出“这是本包的缓存”（四个字母 RAGV）
APPLICATION_ID = 0x52414756
SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY,
    space TEXT NOT NULL,
    vector BLOB NOT NULL
)
"""
# 一条 SELECT 里最多问几个键；SQLite 旧版的上限是 999 个参数
KEYS_PER_QUERY = 900
# 别人正在写时最多等几秒；等不到一次之后就不再久等（有的网络盘锁根本不通）
PATIENCE, SHORT_PATIENCE = 10.0, 0.2
# 没有分批接口的嵌入器，一次交给它这么多条
FOREIGN_BATCH = 256
CHECK_BYTES = 4
# 这些是文件本身坏了；其余错误（只读、满了、被锁）只影响这一次
BROKEN_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# 日志必须跟着主文件走，否则会被套到新文件上
COMPANIONS = ("", "-journal", "-wal", "-shm")

T = TypeVar("T")


def cache_key(space: str, role: Role, text: str) -> bytes:
    """32 字节的键；换进程、换系统、换 PYTHONHASHSEED 都一样。

    >>> cache_key("toy", "query", "甲").hex()[:12]
    '73a84b20e35e'
    """
    parts = f"{len(space)}:{space}:{role}:{text}"
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).digest()


def pack(key: bytes, vector: FloatArray) -> bytes:
    """一条向量 → 存进文件的字节：float32 小端，末尾 4 字节校验码（连键一起算）。"""
    data = np.ascontiguousarray(vector, dtype="<f4").tobytes()
    return data + zlib.crc32(data, zlib.crc32(key)).to_bytes(CHECK_BYTES, "little")


def unpack(key: bytes, blob: object) -> bytes | None:
    """存的字节 → 向量的字节；残缺、空白、被改过的返回 None。

    >>> unpack(b"k", pack(b"k", np.ones(2))) == np.ones(2, dtype="<f4").tobytes()
    True
    >>> unpack(b"k", pack(b"k", np.ones(2))[:-1]) is None
    True
    """
    if not isinstance(blob, bytes) or len(blob) <= CHECK_BYTES or len(blob) % 4:
        return None
    data, check = blob[:-CHECK_BYTES], blob[-CHECK_BYTES:]
    return data if zlib.crc32(data, zlib.crc32(key)).to_bytes(CHECK_BYTES, "little") == check else None


class CachedEmbedder(BaseEmbedder):
    """给任何嵌入器加上缓存；用法与原来的嵌入器完全一样，结果逐位相同。

    参数
    ----
    embedder : 真正计算的嵌入器。
    path : 缓存文件；给的是文件夹就放在里面的 ``vectors.sqlite``，不给就用所有课共用的那个文件。

    属性
    ----
    hits, misses : 创建以来，从缓存得到的条数和送去计算的条数；一次调用里重复的文字只送一条。
    embedder : 里面的嵌入器。它的其他方法（例如 token_vectors）可以直接在这里调用。
    path : 缓存文件的位置。

    算好一批存一批：服务在第三批出错时，前两批已经在缓存里，再运行一次只补没算的。

    >>> import tempfile
    >>> from rag_lessons.embedding.toy import ToyEmbedder
    >>> folder = tempfile.TemporaryDirectory()
    >>> cached = CachedEmbedder(ToyEmbedder(), folder.name)
    >>> _ = cached.embed_documents(["甲乙", "丙丁", "甲乙"])
    >>> cached.hits, cached.misses
    (1, 2)
    >>> _ = cached.embed_documents(["丙丁"])
    >>> cached.hits, cached.misses
    (2, 2)
    >>> folder.cleanup()
    """

    def __init__(self, embedder: Any, path: str | os.PathLike[str] | None = None) -> None:
        check_embedder(embedder)
        self.embedder = embedder
        path = cache_dir() if path is None else as_path(path)
        self.path = path / FILE_NAME if os.path.isdir(path) else path  # noqa: PTH112 没有权限时是 False，不抛异常
        self.hits = 0
        self.misses = 0
        self._dim = 0
        self._patience = PATIENCE
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    @property
    def space(self) -> str:
        """里面那个嵌入器的空间。"""
        return self.embedder.space

    @property
    def dim(self) -> int:
        """维数；里面的嵌入器还不知道时，从缓存里的向量得知，都没有时是 0。"""
        return self.embedder.dim or self._dim

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "embedder":
            raise AttributeError(name)
        return getattr(self.embedder, name)

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.embedder!r})"

    # 嵌入 -----------------------------------------------------------------------------------------

    def check_input(self, texts: Sequence[str], role: Role) -> list[str]:
        """里面的嵌入器有什么限制（例如每条的长度），在这里就检查，编号才是你给的编号。"""
        check = getattr(self.embedder, "check_input", None)
        return check(texts, role) if check else check_texts(texts)

    def embed_batches(self, texts: Sequence[str], role: Role) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """先交出缓存里有的，再一批批算没有的；每批先存好再交出。"""
        texts = list(texts)
        space = self.space
        positions: dict[bytes, list[int]] = {}
        for i, text in enumerate(texts):
            positions.setdefault(cache_key(space, role, text), []).append(i)
        found = self._lookup(list(positions))
        if found:
            where = [i for key in found for i in positions[key]]
            rows = np.frombuffer(b"".join(found.values()), dtype="<f4").reshape(len(found), -1)
            rows = rows.astype(np.float32)
            repeats = [len(positions[key]) for key in found]
            self._count(hits=len(where))
            yield where, np.repeat(rows, repeats, axis=0) if max(repeats) > 1 else rows
        missing = [key for key in positions if key not in found]
        for batch, vectors in self._compute([texts[positions[key][0]] for key in missing], role):
            self._same_dim(vectors.shape[1])
            keys = [missing[i] for i in batch]
            self._store(keys, vectors)
            where = [i for key in keys for i in positions[key]]
            self._count(hits=len(where) - len(keys), misses=len(keys))
            yield where, np.repeat(vectors, [len(positions[key]) for key in keys], axis=0)

    def _compute(self, texts: list[str], role: Role) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """没有分批接口的嵌入器（只守 Embedder 约定的），由这里替它分批并查验。"""
        if not texts:
            return
        batches = getattr(self.embedder, "embed_batches", None)
        if batches is not None:
            yield from batches(texts, role)
            return
        call = self.embedder.embed_queries if role == "query" else self.embedder.embed_documents
        for start in range(0, len(texts), FOREIGN_BATCH):
            part = texts[start:start + FOREIGN_BATCH]
            vectors = np.asarray(call(part))
            check_vectors(vectors, len(part), self.dim or vectors.shape[-1], self.space)
            yield range(start, start + len(part)), vectors.astype(np.float32)

    def _same_dim(self, dim: int) -> None:
        if self._dim and self._dim != dim:
            raise RagLessonsError(
                f"缓存里 {self.space!r} 的向量是 {self._dim} 维，现在算出的是 {dim} 维：同一个名字背后的模型换了。"
                "请给新模型另起空间名，或先 clear 掉这个空间。"
            )
        self._dim = dim

    def _count(self, hits: int = 0, misses: int = 0) -> None:
        with self._lock:
            self.hits += hits
            self.misses += misses

    # 读写 -----------------------------------------------------------------------------------------

    def _lookup(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """键 → 向量的字节；没有的、坏的都不在结果里。"""
        if not keys or not self._exists():
            return {}
        rows = self._attempt(lambda: self._select(keys), "读")
        found, broken = {}, 0
        for key, blob in rows or ():
            data = unpack(key, blob)
            size = 0 if data is None else len(data) // 4
            expected = self.dim
            if not expected and size:
                self._dim = expected = size
            if data is not None and size == expected:
                found[key] = data
            else:
                broken += 1
        if broken:
            if "写" not in self._warned:        # 会写回去，所以下次再坏仍要说；写不回去的不必每次都说
                self._warned.discard("坏条目")
            self._warn("坏条目", f"向量缓存 {self.path.name} 里有 {broken} 条坏了，会重新计算；其余不受影响。")
        return {key: found[key] for key in keys if key in found}

    def _exists(self) -> bool:
        """有没有这个文件；文件夹没有权限进去时当作没有（Path.exists 会抛异常）。"""
        return os.path.exists(self.path)  # noqa: PTH110

    def _select(self, keys: list[bytes]) -> list[tuple[bytes, object]]:
        rows: list[tuple[bytes, object]] = []
        with closing(self._connect()) as db:
            if not self._prepared(db):
                return rows
            for start in range(0, len(keys), KEYS_PER_QUERY):
                part = keys[start:start + KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                rows += db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
        return rows

    def _store(self, keys: list[bytes], vectors: FloatArray) -> None:
        space = self.space
        rows = [(key, space, pack(key, vector)) for key, vector in zip(keys, vectors, strict=True)]

        def write() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as db:
                db.execute("BEGIN IMMEDIATE")
                if not self._prepared(db):
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    db.execute(SCHEMA)
                db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
                db.execute("COMMIT")

        self._attempt(write, "写")

    def _connect(self) -> sqlite3.Connection:
        # isolation_level=None：事务由这里自己开、自己交，不让模块代劳
        return sqlite3.connect(self.path, timeout=self._patience, isolation_level=None)

    def _prepared(self, db: sqlite3.Connection) -> bool:
        """表建好没有；文件是 SQLite 却不是本包的缓存时抛出 RagLessonsError，不去碰它。"""
        own = not db.in_transaction
        if own:                                         # 两样要在同一个快照里看：别的线程可能正好在建表
            db.execute("BEGIN")
        try:
            mark = db.execute("PRAGMA application_id").fetchone()[0]
            tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        finally:
            if own and db.in_transaction:
                db.execute("ROLLBACK")
        if mark == APPLICATION_ID and ("vectors",) in tables:
            return True
        if mark or tables:
            raise RagLessonsError(f"{self.path} 是别的程序的数据库，不是向量缓存；请给 CachedEmbedder 换一个 path。")
        return False

    def _attempt(self, action: Callable[[], T], verb: str) -> T | None:
        """做一次读或写。文件坏了就挪开、从新文件重来一次；其他毛病警告一次，当作没有缓存。"""
        for last in (False, True):
            try:
                return action()
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF     # 低 8 位是主错误码
                if code in BROKEN_CODES and not last and self._set_aside():
                    continue
                if code == sqlite3.SQLITE_BUSY:
                    self._patience = SHORT_PATIENCE
                self._warn(verb, f"向量缓存 {self.path.name} {verb}不了（{error}），这次不用它；向量照常计算。")
                return None
            except OSError as error:
                self._warn(verb, f"向量缓存 {self.path.name} {verb}不了（{error.strerror}），这次不用它；向量照常计算。")
                return None
        return None

    def _set_aside(self) -> bool:
        """把坏掉的文件改名留着。几个进程同时发现时只有一个去改，其余看到新文件就接着用。"""
        try:
            # 借一个小数据库当锁：进程被杀，系统会自动放开
            with closing(sqlite3.connect(f"{self.path}.lock", timeout=PATIENCE, isolation_level=None)) as lock:
                lock.execute("BEGIN EXCLUSIVE")
                if not self._is_broken():
                    return True
                kept = f"{self.path}.broken-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
                for suffix in COMPANIONS:
                    part = Path(f"{self.path}{suffix}")
                    if part.exists():
                        part.replace(kept + suffix)
        except (OSError, sqlite3.Error):
            return False
        self._warn("坏文件", f"向量缓存 {self.path.name} 坏了，已改名为 {Path(kept).name}，另开一个新的；向量会重新计算。")
        return True

    def _is_broken(self) -> bool:
        try:
            with closing(self._connect()) as db:
                return db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok"
        except sqlite3.DatabaseError as error:
            return getattr(error, "sqlite_errorcode", 0) & 0xFF in BROKEN_CODES

    def _warn(self, kind: str, message: str) -> None:
        """同一种毛病只说一次。"""
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        depth = 1
        while (frame := sys._getframe(depth)) and frame.f_globals.get("__name__", "").startswith("rag_lessons."):
            depth += 1
        warnings.warn(message, RagLessonsWarning, stacklevel=depth + 1)

    # 管理 -----------------------------------------------------------------------------------------

    def clear(self, space: str | None = None) -> int:
        """删掉一个空间的全部向量；不写 space 就全删。返回删掉的条数。"""
        if not self._exists():
            return 0

        def delete() -> int:
            with closing(self._connect()) as db:
                if not self._prepared(db):
                    return 0
                if space is None:
                    count = db.execute("DELETE FROM vectors").rowcount
                else:
                    count = db.execute("DELETE FROM vectors WHERE space = ?", (space,)).rowcount
                with suppress(sqlite3.OperationalError):    # 别人正在用时，空出来的地方留着以后用
                    db.execute("VACUUM")
                return count

        self._dim = 0
        return self._attempt(delete, "写") or 0

    def stats(self) -> dict[str, int]:
        """{空间: 条数}，按空间名排序。"""
        if not self._exists():
            return {}

        def count() -> dict[str, int]:
            with closing(self._connect()) as db:
                if not self._prepared(db):
                    return {}
                return dict(db.execute("SELECT space, COUNT(*) FROM vectors GROUP BY space ORDER BY space"))

        return self._attempt(count, "读") or {}
