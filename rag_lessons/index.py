"""VectorIndex：一个 numpy 矩阵加一列块，检索就是一次矩阵乘法。

十万条以内不需要向量数据库；再多时该换什么，见第 A1 课。
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from rag_lessons.embedding.base import Embedder, FloatArray, check_embedder, check_vectors
from rag_lessons.paths import as_path
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_hits, check_number, check_whole, is_blank

Where = Callable[[Chunk], bool]
T = TypeVar("T")
# 索引文件的格式版本；格式变了就加一，旧文件会得到一句说明而不是乱码
FILE_VERSION = 1
LEFTOVER_SECONDS = 3600     # 旁边那些没写完的文件，过了这么久才当作没人要
BUSY_SECONDS = 3.0 if os.name == "nt" else 0.0      # Windows 上别人正开着的文件换不掉，最多等这么久


def cosine_top_k(matrix: FloatArray, vector: FloatArray, k: int) -> list[tuple[int, float]]:
    """单位向量矩阵 (n, dim) 里与 vector (dim,) 余弦最大的 k 行，返回 [(行号, 分数), …]。

    分数四舍五入到 6 位小数再排：同一段文字放在矩阵的不同行，乘出来最后一位可能不同。相同的按行号排；
    k 大于 n 时返回全部 n 行。

    >>> cosine_top_k(np.eye(3), np.array([0.0, 1.0, 0.0]), k=2)
    [(1, 1.0), (0, 0.0)]
    """
    scores = matrix @ vector
    k = min(k, len(scores))
    kth = np.partition(scores, -k)[-k] if k else 0.0
    rows = np.flatnonzero(scores >= kth - 1e-6)       # 前 k 名，连同并列的
    rounded = scores[rows].astype(float).round(6) + 0.0     # 加 0.0：不留下 -0.0
    best = np.lexsort((rows, -rounded))[:k]
    return [(int(rows[i]), float(rounded[i])) for i in best]


def check_k(k: object) -> int:
    """k 要是至少为 1 的整数；返回普通的 int：numpy 的小整数乘几倍就会溢出。"""
    return check_whole(k, "k ", least=1)


def check_where(where: object) -> None:
    """where 要是函数，或者不写。"""
    if where is not None and not callable(where):
        raise RagLessonsError(f"where 要是函数，收到 {where!r}；例如 where=lambda chunk: chunk.source == \"a.md\"。")


def check_options(k: object, threshold: object, where: object) -> tuple[int, float | None]:
    """search 的三个选项都查一遍；返回整数的 k、浮点数的 threshold。"""
    check_where(where)
    return check_k(k), None if threshold is None else check_number(threshold, "threshold")


def dense_hits(found: Iterable[tuple[Chunk, float]], threshold: float | None) -> list[Hit]:
    """排好的（块、余弦）→ 结果；余弦低于 threshold 的不要。"""
    kept = [(chunk, score) for chunk, score in found if threshold is None or score >= threshold]
    return [Hit(chunk, score, rank, {"dense": score}) for rank, (chunk, score) in enumerate(kept, 1)]


def allows(where: Where, chunk: Chunk) -> bool:
    """where 要不要这一块；where 自己出错时，说明是在哪一块上、什么错。"""
    try:
        return bool(where(chunk))
    except RagLessonsError:
        raise
    except Exception as error:
        raise RagLessonsError(
            f"where 在 {chunk.label} 这一块上出错（{type(error).__name__}: {error}）；"
            "它收到一块，返回要不要；metadata 里不一定有的项，用 chunk.metadata.get(...)。"
        ) from error


def check_question(question: object) -> None:
    """问题要是有内容的字符串。"""
    if not isinstance(question, str):
        raise RagLessonsError(f"问题要是字符串，收到的是 {type(question).__name__}。")
    if is_blank(question):
        raise RagLessonsError("问题是空白，没有东西可查；请写一个问题。")


def chunk_order(chunk: Chunk) -> tuple[str, int, int, str]:
    """块的次序：（来源、位置、id）。分数一样的，也按它排。"""
    return chunk.source, chunk.start, chunk.end, chunk.id


def in_order(chunks: Sequence[Chunk]) -> list[Chunk]:
    """按（来源、位置）排好并去掉重复的块：结果不依赖喂进来的次序，建索引的格子跑几遍也不会有副本。"""
    unique: dict[str, Chunk] = {}
    for chunk in chunks:
        other = unique.setdefault(chunk.id, chunk)
        if other is not chunk and chunk.embedding_text < other.embedding_text:     # 同一处、标题不同：留哪个也与次序无关
            unique[chunk.id] = chunk
    return sorted(unique.values(), key=chunk_order)


def indexable(chunks: Sequence[Chunk]) -> list[Chunk]:
    """可以放进索引的块：排好、去重，空白的不要；混进别的类型时抛出 RagLessonsError。"""
    if not isinstance(chunks, Iterable):
        raise RagLessonsError(f"这里要 Chunk 的列表，收到 {type(chunks).__name__}；只有一块时写成 [chunk]。")
    chunks = list(chunks)                       # 也收生成器
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            raise RagLessonsError(f"这里要 Chunk 的列表，收到 {type(chunk).__name__}；请先用 chunk_by_... 切块。")
    return in_order([chunk for chunk in chunks if not is_blank(chunk.embedding_text)])


@dataclass(frozen=True)
class SyncCounts:
    """一次同步的结果：新算了向量的块数、去掉的块数、沿用旧向量的块数。"""

    added: int
    removed: int
    kept: int


def count_changes(old: Iterable[Chunk], new: Iterable[Chunk]) -> SyncCounts:
    """从一批块换成另一批：按送去算向量的文字数，新的几块，去掉的几块，沿用的几块。"""
    before = Counter(chunk.embedding_text for chunk in old)
    after = Counter(chunk.embedding_text for chunk in new)
    added = sum(times for text, times in after.items() if text not in before)
    return SyncCounts(added, (before - after).total(), after.total() - added)


def fingerprint(chunks: Iterable[Chunk]) -> str:
    """一批块的指纹：位置、原文（id 里有），和送去算向量、切词的文字。"""
    joined = "\0".join(f"{chunk.id}\1{chunk.embedding_text}" for chunk in chunks)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


class VectorIndex:
    """块与它们的向量。用 ``VectorIndex.build(chunks, embedder)`` 来建。

    属性
    ----
    chunks : 按（来源、位置）排好的块。
    vectors : (n, dim) float32，每行单位长度，与 chunks 一一对应。
    embedder : 查询时用同一个嵌入器。
    space : 建索引时的向量空间；换了别的空间会报错，哪怕维数一样。
    """

    def __init__(self, chunks: Sequence[Chunk], vectors: FloatArray, embedder: Embedder, space: str) -> None:
        self.embedder = embedder
        self.space = space
        self._hold(chunks, vectors)

    def _hold(self, chunks: Sequence[Chunk], vectors: FloatArray) -> None:
        chunks, vectors = list(chunks), np.ascontiguousarray(vectors, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(chunks):
            raise RagLessonsError(f"有 {len(chunks)} 块，却有 {len(vectors)} 条向量；两者必须一一对应。")
        # 一次换掉：别的线程正在检索时，看到的要么全是旧的，要么全是新的
        self._held = chunks, vectors, {chunk.id: i for i, chunk in enumerate(chunks)}

    @property
    def chunks(self) -> list[Chunk]:
        return self._held[0]

    @property
    def vectors(self) -> FloatArray:
        return self._held[1]

    @classmethod
    def build(cls, chunks: Sequence[Chunk], embedder: Embedder) -> VectorIndex:
        """给每块算向量。重复的块只留一份；没有块也能建，检索时得到空列表。"""
        check_embedder(embedder)
        chunks = indexable(chunks)
        vectors = embedder.embed_documents([chunk.embedding_text for chunk in chunks])
        vectors = check_vectors(vectors, len(chunks), embedder.dim, embedder.space)
        return cls(chunks, vectors, embedder, embedder.space)

    def __len__(self) -> int:
        return len(self.chunks)

    def __repr__(self) -> str:
        return f"VectorIndex({len(self)} 块, 空间 {self.space!r})"

    def check_space(self) -> None:
        """问题的向量必须和索引里的向量来自同一个空间，否则余弦没有意义。"""
        if self.embedder.space != self.space:
            raise RagLessonsError(
                f"这个索引是用 {self.space!r} 建的，现在的嵌入器是 {self.embedder.space!r}；两个空间不能比较。"
                "请换回原来的嵌入器，或用新的重建索引。"
            )

    def search(
        self, query: str, k: int = 3, threshold: float | None = None, where: Where | None = None
    ) -> list[Hit]:
        """问题 → 最近的 k 块。

        参数
        ----
        query : 问题；空白时抛出 RagLessonsError。
        k : 最多几条；比块数还大时返回全部。小于 1 时抛出 RagLessonsError。
        threshold : 余弦低于它的不要。各模型的合适值不同，见第 04、05 课。
        where : 块 → 要不要；先筛选，再取前 k。
        """
        check_k(k)
        check_question(query)
        self.check_space()
        if not self.chunks:
            return []
        return self.search_vector(self.embedder.embed_query(query), k, threshold, where)

    def search_vector(
        self, vector: FloatArray, k: int = 3, threshold: float | None = None, where: Where | None = None
    ) -> list[Hit]:
        """已经有向量时直接检索；向量会先归一化。参数同 search。"""
        k, threshold = check_options(k, threshold, where)
        chunks, matrix, _ = self._held
        vector = query_vector(vector, matrix.shape[1] if chunks else None)
        if not chunks:
            return []
        if where is not None:
            rows = [i for i, chunk in enumerate(chunks) if allows(where, chunk)]
            chunks, matrix = [chunks[i] for i in rows], matrix[rows]
        return dense_hits(((chunks[i], score) for i, score in cosine_top_k(matrix, vector, k)), threshold)

    def vectors_of(self, hits: Sequence[Hit]) -> FloatArray:
        """几条结果各自的向量 (len(hits), dim)。"""
        hits = check_hits(hits)
        _, vectors, row = self._held
        missing = [hit.chunk.label for hit in hits if hit.chunk.id not in row]
        if missing:
            raise RagLessonsError(f"{missing[0]} 不在这个索引里；请用检索出它的那个索引。")
        return vectors[[row[hit.chunk.id] for hit in hits]]

    def sync(self, chunks: Sequence[Chunk]) -> SyncCounts:
        """把索引换成这些块，只给内容没见过的块算向量。

        插入一行会让后面所有块的位置和 id 都变，但文字没变，向量就照用。返回 SyncCounts。
        嵌入中途失败时抛出错误，索引保持原样。
        """
        self.check_space()
        chunks = indexable(chunks)
        old, vectors, _ = self._held
        row_of_text = {chunk.embedding_text: i for i, chunk in enumerate(old)}
        new_texts = list(dict.fromkeys(c.embedding_text for c in chunks if c.embedding_text not in row_of_text))
        new_row = {text: len(old) + i for i, text in enumerate(new_texts)}
        fresh = self.embedder.embed_documents(new_texts) if new_texts else vectors[:0]
        dim = vectors.shape[1] if len(vectors) else self.embedder.dim
        fresh = check_vectors(fresh, len(new_texts), dim, self.space)
        pool = np.concatenate([vectors, fresh]) if len(vectors) else fresh
        rows = [row_of_text.get(c.embedding_text, new_row.get(c.embedding_text, 0)) for c in chunks]
        self._hold(chunks, pool[rows])
        return count_changes(old, chunks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """存成一个文件：向量、块、空间的名字。先写在旁边再换名，中途被打断时旧文件还在。"""
        path = as_path(path)
        chunks, vectors, _ = self._held
        if not path.name or os.path.isdir(path):  # noqa: PTH112 没有权限时是 False，不抛异常
            raise RagLessonsError(f"{path} 是文件夹；请写上文件名，例如 {path / 'index.zip'}。")
        meta = {"version": FILE_VERSION, "space": self.space, "chunks": [asdict(chunk) for chunk in chunks]}
        described = json.dumps(meta, ensure_ascii=False, default=plain).encode("utf-8", "surrogatepass")
        with written_beside(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("index.json", described)
            with archive.open("vectors.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, vectors, allow_pickle=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str], embedder: Embedder) -> VectorIndex:
        """读回 save 存的文件。embedder 的空间与存时不同，就抛出写明两个空间的 RagLessonsError。"""
        check_embedder(embedder)
        path = as_path(path)
        try:
            if not path.exists():
                raise FileNotFoundError(f"找不到索引文件 {path}；请先 index.save(path)。")
            with _when_free(lambda: zipfile.ZipFile(path)) as archive:
                meta = json.loads(archive.read("index.json"))
                with archive.open("vectors.npy") as part:
                    vectors = np.lib.format.read_array(part, allow_pickle=False)
        except FileNotFoundError:
            raise
        except PermissionError:
            raise RagLessonsError(f"{path} 没有权限读；请检查它的权限。") from None
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError, NotImplementedError, RuntimeError):
            raise _incomplete(path) from None
        if not isinstance(meta, dict):
            raise _incomplete(path)
        if meta.get("version") != FILE_VERSION:
            raise RagLessonsError(f"{path.name} 的格式版本是 {meta.get('version')}，这里只认 {FILE_VERSION}；请重建索引。")
        try:
            chunks, space = [Chunk(**record) for record in meta["chunks"]], meta["space"]
            vectors = check_vectors(vectors, len(chunks), vectors.shape[1], space)
        except (KeyError, TypeError, IndexError, ValueError):
            raise _incomplete(path) from None
        index = cls(chunks, vectors, embedder, space)
        index.check_space()
        return index


def query_vector(vector: object, dim: int | None) -> FloatArray:
    """查询向量 → 单位长度的 float32 (dim,)；dim 是 None 时不看维数。

    不是一串实数、维数不对、没有方向（零或含 NaN）时抛出 RagLessonsError。极大、极小的数先缩到 1 附近，免得溢出。
    """
    try:
        raw = np.asarray(vector)
        if raw.dtype.kind not in "fiuO":        # 文字、复数、True/False 都不是向量
            raise TypeError
        wide = raw.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RagLessonsError("查询向量要是一串数；文字请用 search(query)。") from None
    if dim is not None and wide.shape != (dim,):
        raise RagLessonsError(f"向量的形状应是 ({dim},)，收到 {wide.shape}；是不是换了模型？")
    largest = float(np.abs(wide).max(initial=0.0))
    if np.isfinite(largest) and largest and not 1e-15 < largest < 1e15:
        wide = wide / largest
    narrow = wide.astype(np.float32)
    length = float(np.linalg.norm(narrow))
    if dim is not None and (not np.isfinite(length) or length == 0):
        raise RagLessonsError("查询向量是零或含 NaN，没有方向可比；请检查嵌入器的返回值。")
    return narrow / np.float32(length) if length else narrow


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[BinaryIO]:
    """先写在旁边，写完整了再换名：中途被打断，旧文件还在。写不进去时抛出 RagLessonsError。"""
    part_file = path.with_name(f"{_part_prefix(path)}{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_file.open("xb") as file:
            yield file
        _when_free(lambda: part_file.replace(path))
        _sweep(path)
    except OSError as error:
        raise RagLessonsError(f"{path} 写不进去（{error.strerror or error}）；请检查权限和剩余空间，或换一个位置。") from None
    finally:
        with contextlib.suppress(OSError):
            part_file.unlink(missing_ok=True)


def _when_free(action: Callable[[], T]) -> T:
    """做一件要文件空着才行的事；被拒绝就等一会儿再试，最多 BUSY_SECONDS 秒。"""
    limit = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() >= limit:
                raise
            time.sleep(0.01)


def _part_prefix(path: Path) -> str:
    """没写完的文件的名字怎么开头：认得出是哪个索引的，又不比原来的名字长多少。"""
    return f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}-"


def _sweep(path: Path) -> None:
    """收走写到一半被杀时留在旁边的文件；太新的也许别的程序正在写，留着。"""
    for left in path.parent.glob(f"{_part_prefix(path)}*.part"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFTOVER_SECONDS:
                left.unlink()


def plain(value: Any) -> Any:
    """JSON 不认得的 metadata：numpy 的数变成普通的数，其余说明白。"""
    if isinstance(value, np.generic):
        return value.item()
    raise RagLessonsError(f"块的 metadata 里有 {type(value).__name__}，存不进索引文件；请先换成字符串、数或列表。")


def _incomplete(path: Path) -> RagLessonsError:
    return RagLessonsError(f"{path.name} 不是完整的索引文件；请删掉它，重建索引再 save。")
