"""pgvector：PostgreSQL 的一个扩展；向量是表里的一列，和别的列一起用 SQL 查。"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray
from rag_lessons.paths import as_path
from rag_lessons.stores.base import Store, from_json, load, to_json
from rag_lessons.stores.postgres import CREATE, DATABASE, LocalPostgres
from rag_lessons.types import Chunk, RagLessonsError

KINDS = ("flat", "hnsw")
EFFORT = 100                # HNSW 检索时找多宽
INDEX = "CREATE INDEX IF NOT EXISTS {table}_hnsw ON {table} USING hnsw (embedding vector_cosine_ops)"


class PgvectorStore(Store):
    """pgvector。

    参数
    ----
    path : 数据文件夹；PostgreSQL 由这里启动，close() 时停下。
    uri : 一个已有的 PostgreSQL，例如 ``postgresql://用户:密码@主机/库``，要有 pgvector 扩展。两个写一个。
    kind : "flat" 全部比一遍（精确，默认），"hnsw" 建一张近邻图；每个位置第一次打开时定下。
    table : 表名，小写字母、数字和下划线。

    它的 ``<=>`` 是余弦距离（0 到 2，越小越近）：余弦 = 1 - 距离。HNSW 索引最多 2,000 维。
    """

    title = " pgvector "

    def __init__(
        self, embedder: Embedder, path: str | os.PathLike[str] | None = None, uri: str | None = None,
        kind: str = "flat", table: str = "rag_lessons",
    ) -> None:  # fmt: skip
        if kind not in KINDS:
            raise RagLessonsError(f"kind 只能是 {'、'.join(KINDS)}，收到 {kind!r}。")
        if (path is None) == (uri is None):
            raise RagLessonsError("path 和 uri 写一个：path 是本机的数据文件夹，uri 是已有的 PostgreSQL。")
        if not (table.isascii() and table.isidentifier() and table == table.lower()):
            raise RagLessonsError(f"table 要是小写字母、数字和下划线，收到 {table!r}。")
        self.path, self.uri = None if path is None else as_path(path), uri
        self.kind, self.table, self.exact, self.effort = kind, table, kind == "flat", EFFORT
        super().__init__(embedder)

    def _connect(self) -> None:
        psycopg = load("psycopg", "psycopg")
        uri, options = self.uri, {}
        if uri is None:
            server = LocalPostgres.open(self.path)
            self._closers.callback(server.release)
            uri, options = server.uri, {"dbname": DATABASE}
            with psycopg.connect(uri, autocommit=True) as first:
                if not first.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    first.execute(CREATE)
        try:
            self._sql = psycopg.connect(uri, autocommit=True, **options)
        except psycopg.OperationalError as error:
            raise RagLessonsError(f"连不上 PostgreSQL（{str(error).splitlines()[0]}）；请检查 uri。") from None
        self._closers.callback(self._sql.close)
        table = self.table
        self._sql.execute("SET client_min_messages = warning")
        self._sql.execute("CREATE EXTENSION IF NOT EXISTS vector")
        self._sql.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (id text PRIMARY KEY, chunk text NOT NULL, embedding vector({self.embedder.dim}) NOT NULL)"
        )
        stored = self._sql.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [table]).fetchone()[0]
        self._check_stored(self.space if stored is None else stored)
        if stored is None:
            self._sql.execute(f"COMMENT ON TABLE {table} IS {psycopg.sql.Literal(self.space).as_string(self._sql)}")
        if self.kind == "hnsw":
            self._sql.execute(INDEX.format(table=table))
            self._sql.execute("SET maintenance_work_mem = '512MB'")              # 图要整个放得进内存，建得才快
            self._sql.execute("SET max_parallel_maintenance_workers = 0")        # 容器里的共享内存常常只有 64 MB
            self._sql.execute("SET hnsw.iterative_scan = strict_order")      # 先筛选时，图上多走几步，凑够 k 条

    def _stored(self) -> Iterable[Chunk]:
        return (from_json(text) for (text,) in self._sql.execute(f"SELECT chunk FROM {self.table}"))

    def _write(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        with self._sql.transaction():
            self._sql.execute(f"CREATE TEMP TABLE fresh (LIKE {self.table}) ON COMMIT DROP")
            with self._sql.cursor().copy("COPY fresh FROM STDIN (FORMAT binary)") as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
                for chunk, vector in zip(chunks, vectors, strict=True):
                    fields = chunk.id.encode(), to_json(chunk).encode(), struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()
                    copy.write(struct.pack(">h", 3) + b"".join(struct.pack(">i", len(field)) + field for field in fields))
                copy.write(struct.pack(">h", -1))
            rebuild = self.kind == "hnsw" and len(chunks) > len(self._chunks)      # 一条条插进图里，比写完再建慢几倍
            if rebuild:
                self._sql.execute(f"DROP INDEX IF EXISTS {self.table}_hnsw")
            self._sql.execute(
                f"INSERT INTO {self.table} SELECT * FROM fresh ON CONFLICT (id) DO UPDATE "
                "SET chunk = excluded.chunk, embedding = excluded.embedding"
            )
            if rebuild:
                self._sql.execute(INDEX.format(table=self.table))

    def _remove(self, ids: Sequence[str]) -> None:
        self._sql.execute(f"DELETE FROM {self.table} WHERE id = ANY(%s)", [list(ids)])

    def _nearest(self, vector: FloatArray, k: int, among: Sequence[str] | None) -> list[tuple[str, float]]:
        only, given = ("", {}) if among is None else ("WHERE id = ANY(%(among)s)", {"among": list(among)})
        near: dict[str, Any] = {"vector": _literal(vector), "k": k, **given}
        if self.kind == "hnsw":
            self._sql.execute("SELECT set_config('hnsw.ef_search', %s, false)", [str(min(max(self.effort, k), 1000))])
        rows = self._sql.execute(
            f"SELECT id, 1 - (embedding <=> %(vector)s::vector) FROM {self.table} {only} "
            "ORDER BY embedding <=> %(vector)s::vector LIMIT %(k)s", near
        )  # fmt: skip
        return [(name, float(score)) for name, score in rows]

    def _vectors(self, ids: Sequence[str]) -> FloatArray:
        rows = self._sql.execute(f"SELECT id, embedding::real[] FROM {self.table} WHERE id = ANY(%s)", [list(ids)])
        found = dict(rows.fetchall())
        return np.array([found[name] for name in ids], dtype=np.float32)


def _literal(vector: FloatArray) -> str:
    """pgvector 的写法：[0.1,0.2]；位数足够还原 float32。"""
    return "[" + ",".join(f"{x:.9g}" for x in vector.tolist()) + "]"
