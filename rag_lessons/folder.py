"""一个文件夹 → 能问的索引：第一次全读，以后只读改过的。

索引存在用户的缓存文件夹里（不碰你的资料夹），以文件夹的真实路径和向量空间为名。里面三样：

- ``index.zip``：VectorIndex.save 存的块和向量；
- ``keyword.zip``：BM25Index.save 存的词；
- ``files.json``：文件夹在哪里；每份文件的大小、时间、内容的 sha256，和它的块的指纹。

里面有资料的原文；存着哪些，用 ``saved_folders()`` 看，用 ``forget`` 删。

文件没变就沿用它的块，不再打开解析。“没变”看内容的 sha256：时间会说谎（复制、解压、同步盘都会改它，也会把它改回去）。
不超过 1 MB 的每次都算，五百份约几十毫秒；更大的，大小、修改时间、状态时间都没动就先信一天，一天以后再算一次，
所以变了的迟早会发现。读文件、切块的代码变了，文件也重读一遍。

几个文件分开写，中途被杀会对不上：每份文件的块还要和指纹相符，不符就重读那一份，所以最坏是多读几份文件；
向量按内容缓存，不会再算。
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rag_lessons.chunking import chunk_by_definition, chunk_by_heading, chunk_recursive
from rag_lessons.embedding import CachedEmbedder, get_embedder
from rag_lessons.embedding.base import Embedder
from rag_lessons.generation import Generator
from rag_lessons.index import SyncCounts, VectorIndex, Where, fingerprint, written_beside
from rag_lessons.keyword import BM25Index
from rag_lessons.loading import MAX_BYTES, folder_files, load_document, load_folder
from rag_lessons.paths import as_path, cache_dir, expand_home
from rag_lessons.pipeline import ask
from rag_lessons.progress import progress
from rag_lessons.retrieval import HybridSearch, Refuse
from rag_lessons.types import (
    Answer,
    Chunk,
    Document,
    Hit,
    RagLessonsError,
    RagLessonsWarning,
    is_blank,
)

VERSION = 3                             # files.json 的写法变了，就加一
HASHED_BYTES = 1024 * 1024              # 不超过这么大的，每次都看内容
TRUSTED_SECONDS = 24 * 3600             # 更大的，这么久看一次内容
HAS_CHANGE_TIME = os.name != "nt"       # 状态时间改不回去；Windows 的 st_ctime 是创建时间，用不上
HEADED = (".md", ".markdown", ".html", ".htm", ".xhtml", ".docx", ".pdf")
Chunker = Callable[[Document], Sequence[Chunk]]


def chunk_by_type(document: Document) -> list[Chunk]:
    """按文件的类型切：有标题的（Markdown、网页、Word、PDF）按标题，Python 按定义，其余按标点递归。"""
    suffix = Path(document.source).suffix.lower()
    if suffix in HEADED:
        return chunk_by_heading(document)
    return chunk_by_definition(document) if suffix in (".py", ".pyi") else chunk_recursive(document)


@dataclass(frozen=True)
class FileCounts:
    """一次打开时，文件夹里的文件：新读或重读了几份，沿用几份，不在了几份，读不了几份。"""

    read: int
    kept: int
    gone: int
    failed: int

    def __str__(self) -> str:
        parts = ((self.read, "读了"), (self.kept, "没变"), (self.gone, "不在了"), (self.failed, "读不了"))
        return "，".join(f"{what} {count} 份" for count, what in parts if count) or "没有文件"


@dataclass(frozen=True)
class FolderIndex:
    """打开了的文件夹。用 ``open_folder(path)`` 得到；有 ``.search``，所以能放进别的检索器里。

    属性
    ----
    folder : 文件夹的真实路径。
    index, keyword : 向量索引和关键词索引，同一批块。
    files, counts : 这一次读了几份文件，算了几块。
    problems : 读不了的文件，各一句话。
    home : 索引存在哪里；存不了时是 None。
    """

    folder: Path
    index: VectorIndex
    keyword: BM25Index
    files: FileCounts
    counts: SyncCounts
    problems: tuple[str, ...] = ()
    home: Path | None = None

    @cached_property
    def searcher(self) -> HybridSearch:
        """默认的检索器：向量和关键词混合（第 10 课）。"""
        return HybridSearch(self.index, self.keyword)

    @property
    def chunks(self) -> list[Chunk]:
        return self.index.chunks

    @cached_property
    def documents(self) -> list[Document]:
        """全部文档；用到才读，评测时算位置用。"""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RagLessonsWarning)      # 打开时已经说过
            return load_folder(self.folder)

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → 前 k 块。"""
        return self.searcher.search(query, k, where)

    def ask(
        self, question: str, generator: Generator | None = None, k: int = 5, refuse: Refuse | None = None, where: Where | None = None
    ) -> Answer:
        """问一个问题；where 在取前 k 之前筛。其余见 pipeline.ask。"""
        return ask(question, _Filtered(self.searcher, where) if where is not None else self.searcher, generator, k, refuse)

    def __len__(self) -> int:
        return len(self.index)

    def __str__(self) -> str:
        return f"{self.folder.name}：{self.files}；{len(self)} 块，其中新算 {self.counts.added} 块"


@dataclass(frozen=True)
class _Filtered:
    """只在筛剩下的块里找。"""

    searcher: HybridSearch
    where: Where

    @property
    def chunks(self) -> list[Chunk]:
        return self.searcher.chunks

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        return self.searcher.search(query, k, self.where)


def open_folder(
    path: str | os.PathLike[str], embedder: Embedder | None = None, *, chunker: Chunker = chunk_by_type, store: bool = True
) -> FolderIndex:
    """打开一个文件夹：没变的沿用，新的、改了的才读，才算向量。

    参数
    ----
    path : 文件夹。
    embedder : 默认 ``CachedEmbedder(get_embedder())``：离线是 e5。
    chunker : Document → 块。默认按文件类型；换成别的函数时，索引另存一份。
    store : False 就不存索引，只在内存里。

    读不了的文件各一句话，在 ``problems`` 里，并各给一条 RagLessonsWarning。一份能读的都没有时抛出 RagLessonsError，
    文件夹不存在时抛出 FileNotFoundError。中途按 Ctrl-C：已有的索引不变，算好的向量都在缓存里。
    """
    if isinstance(path, str) and is_blank(path):
        raise RagLessonsError("文件夹的路径是空白；请写上资料所在的文件夹，当前文件夹写成 \".\"。")
    folder = expand_home(as_path(path), "文件夹的路径")
    if not folder.exists():
        raise FileNotFoundError(f"找不到文件夹 {folder}；请检查路径，相对路径是从当前文件夹 {Path.cwd()} 算起的。")
    if not folder.is_dir():
        raise RagLessonsError(f"{folder} 是文件，不是文件夹；请写它所在的文件夹。")
    folder = folder.resolve()
    embedder = CachedEmbedder(get_embedder()) if embedder is None else embedder
    home = _home(folder, embedder.space, chunker) if store else None
    old_index, old_files = _load(home, embedder)
    known = _chunks_by_source(old_index)
    files = dict(sorted((source, file) for file, source in folder_files(folder)))
    chunks: list[Chunk] = []
    records: dict[str, dict[str, Any]] = {}
    fresh: set[str] = set()                 # 这一次打开读了的
    for source, file in progress(files.items(), len(files), "读文件"):
        before = old_files.get(source, {})
        record = _fingerprint(file, before)
        same = record.get("sha256") is not None and record["sha256"] == before.get("sha256")
        if same and before.get("chunks") == fingerprint(known.get(source, [])):
            chunks += known.get(source, [])
            records[source] = before if record.get("checked") == before.get("checked") else before | record
            continue
        made, record["problem"] = _read(file, source, chunker)
        chunks += made
        records[source] = record
        fresh.add(source)
    problems = tuple(record["problem"] for record in records.values() if record.get("problem"))
    for problem in problems:
        warnings.warn(f"跳过 {problem}", RagLessonsWarning, stacklevel=2)
    if not chunks:
        raise RagLessonsError(
            f"{folder} 里没有能读的内容（{'一份文件也没有' if not files else f'{len(files)} 份文件，读不了 {len(problems)} 份，其余是空的'}）；"
            "能读的有文本、Markdown、代码、网页、有文字层的 PDF、.docx。"
        )
    index = old_index if old_index is not None else VectorIndex([], _no_vectors(embedder), embedder, embedder.space)
    moved = fresh or len(chunks) != len(index)
    counts = index.sync(chunks) if moved else SyncCounts(0, 0, len(index))
    gone = len(set(old_files) - set(files))
    keyword = None if fresh or gone else _load_keyword(home, index)
    changed = keyword is None or old_index is None
    keyword = keyword or BM25Index.build(index.chunks)
    if home is not None and (changed or records != old_files):
        home = _save(home, folder, index, keyword, records, everything=changed)
    failed = {source for source, record in records.items() if record.get("problem")}
    found = FileCounts(len(fresh - failed), len(records.keys() - fresh - failed), gone, len(failed))
    return FolderIndex(folder, index, keyword, found, counts, problems, home)


def _read(file: Path, source: str, chunker: Chunker) -> tuple[list[Chunk], str]:
    """读一份，切块；读不了的返回一句话。页面空白、语法不对一类的提醒，也算在那句话里，但块照要。"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RagLessonsWarning)
        try:
            document = load_document(file, source=source)
        except (RagLessonsError, FileNotFoundError) as error:
            return [], str(error)
        except (RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            return [], f"{source}：读的时候出错（{type(error).__name__}: {error}），多半是文件损坏；请另存一份。"
        made = list(chunker(document))
    for warning in caught:
        if issubclass(warning.category, RagLessonsWarning):
            warnings.warn(str(warning.message), RagLessonsWarning, stacklevel=3)
    return made, ""


def _no_vectors(embedder: Embedder) -> Any:
    import numpy as np

    return np.zeros((0, embedder.dim or 1), dtype=np.float32)


# ---------------------------------------------------------------- 存在哪里，变没变


@dataclass(frozen=True)
class SavedFolder:
    """存着的一份索引。

    属性
    ----
    home : 索引在哪里。
    folder : 它是哪个文件夹的；清单坏了、看不出来时是 None。
    size : 占几字节。
    """

    home: Path
    folder: Path | None
    size: int

    @property
    def gone(self) -> bool:
        """文件夹不在了（删了、改了名，或者移动硬盘没有接上）。"""
        return self.folder is None or not self.folder.is_dir()

    def __str__(self) -> str:
        where = "不知道是哪个文件夹的" if self.folder is None else f"{self.folder}{'（不在了）' * self.gone}"
        return f"{self.size / 1e6:7.1f} MB　{where}"


def saved_folders() -> list[SavedFolder]:
    """存着的索引，一份一项；同一个文件夹换过嵌入器、换过切法，就有几份。按文件夹排。"""
    root = cache_dir() / "folders"
    found = [_saved(home) for home in root.iterdir() if home.is_dir()] if root.is_dir() else []
    return sorted(found, key=lambda saved: (str(saved.folder or ""), saved.home.name))


def _saved(home: Path) -> SavedFolder:
    try:
        folder = Path(json.loads((home / "files.json").read_text(encoding="utf-8"))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        folder = None
    return SavedFolder(home, folder, sum(file.stat().st_size for file in home.iterdir() if file.is_file()))


def forget(saved: SavedFolder) -> None:
    """删掉一份存着的索引；资料夹不动，算过的向量也留着，再打开时只要重读文件。"""
    try:
        shutil.rmtree(saved.home)
    except OSError as error:
        raise RagLessonsError(f"{saved.home} 删不掉（{error.strerror or error}）；请关掉正在用它的程序，再试一次。") from None


def _home(folder: Path, space: str, chunker: Chunker) -> Path:
    how = f"{VERSION}:{getattr(chunker, '__module__', '')}.{getattr(chunker, '__qualname__', repr(chunker))}"
    key = hashlib.sha256("\0".join((os.fspath(folder), space, how)).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return cache_dir() / "folders" / key


@cache
def _code() -> str:
    """读文件和切块的代码的指纹；找不到源码时是空串。"""
    here = Path(__file__).parent
    try:
        parts = [file.read_bytes() for name in ("loading", "chunking") for file in sorted((here / name).glob("*.py"))]
    except OSError:
        return ""
    return hashlib.sha256(b"\0".join([*parts, Path(__file__).read_bytes()])).hexdigest()[:16]


def _fingerprint(file: Path, before: dict[str, Any]) -> dict[str, Any]:
    """文件现在的样子；看不了的是空字典。大的文件，状态没动过、上次看过内容不到一天，就沿用上次的 sha256。"""
    try:
        stat = file.stat()
        record: dict[str, Any] = {"size": stat.st_size, "time": stat.st_mtime_ns}
        if HAS_CHANGE_TIME:
            record["changed"] = stat.st_ctime_ns
        if not file.is_file() or stat.st_size > MAX_BYTES:
            return record | {"sha256": f"没有看：{stat.st_size}"}
        if stat.st_size > HASHED_BYTES:
            now, checked = time.time(), before.get("checked", 0)
            if all(before.get(name) == value for name, value in record.items()) and 0 <= now - checked < TRUSTED_SECONDS:
                return record | {"sha256": before.get("sha256"), "checked": checked}
            record["checked"] = now
        with file.open("rb") as opened:
            return record | {"sha256": hashlib.file_digest(opened, "sha256").hexdigest()}
    except OSError:
        return {}


def _chunks_by_source(index: VectorIndex | None) -> dict[str, list[Chunk]]:
    found: dict[str, list[Chunk]] = {}
    for chunk in index.chunks if index is not None else ():
        found.setdefault(chunk.source, []).append(chunk)
    return found


def _load(home: Path | None, embedder: Embedder) -> tuple[VectorIndex | None, dict[str, dict[str, Any]]]:
    """上次存的；没有、坏了就从头来。"""
    if home is None or not (home / "index.zip").is_file():
        return None, {}
    try:
        index = VectorIndex.load(home / "index.zip", embedder)
    except (RagLessonsError, FileNotFoundError) as error:
        warnings.warn(f"上次存的索引用不了（{error}）这次从头建。", RagLessonsWarning, stacklevel=3)
        return None, {}
    try:
        found = json.loads((home / "files.json").read_text(encoding="utf-8"))
        same = found["code"] == _code()
        files = {source: record for source, record in found["files"].items() if same and isinstance(record, dict)}
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        files = {}                      # 只是要重读一遍文件，向量还在
    return index, files


def _load_keyword(home: Path | None, index: VectorIndex) -> BM25Index | None:
    """上次存的关键词索引；没有、坏了、对不上就重建，不必说。"""
    try:
        return None if home is None else BM25Index.load(home / "keyword.zip", index.chunks)
    except (RagLessonsError, FileNotFoundError):
        return None


def _make(home: Path) -> None:
    """建好存索引的文件夹，只许自己看：里面有资料的原文。"""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise RagLessonsError(f"{home} 建不了（{error.strerror or error}）；请检查权限和剩余空间。") from None


def _save(
    home: Path, folder: Path, index: VectorIndex, keyword: BM25Index, records: dict[str, Any], everything: bool
) -> Path | None:
    """先索引，后清单。写不进去时给一条警告，这次只在内存里。"""
    made = _chunks_by_source(index)
    described = {source: record | {"chunks": fingerprint(made.get(source, []))} for source, record in records.items()}
    try:
        _make(home)
        if everything:
            index.save(home / "index.zip")
            keyword.save(home / "keyword.zip")
        with written_beside(home / "files.json") as file:
            file.write(json.dumps({"folder": os.fspath(folder), "code": _code(), "files": described}).encode())
    except RagLessonsError as error:
        warnings.warn(f"索引没有存下：{error}这次在内存里，能用；下次要重新读。", RagLessonsWarning, stacklevel=3)
        return None
    return home
