"""路径 → Document。

编码不靠猜：统计式的检测器在短文本上会认错（只有“你好”两个字的 GBK 文件就够了）。
这里按固定次序严格试：UTF-8（可带 BOM）→ 带 BOM 的 UTF-16 → GB18030；都不成立就请你写明 ``encoding=``。
"""

from __future__ import annotations

import codecs
import os
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from rag_lessons.types import Document, RagLessonsError, RagLessonsWarning

# 工具和系统留下的东西，从来不是资料
JUNK_FOLDERS = frozenset({"__pycache__", "node_modules", "__MACOSX", "venv"})
JUNK_FILES = frozenset({"Thumbs.db", "desktop.ini"})
JUNK_PREFIXES = (".", "~$")                     # .git、.DS_Store、.ipynb_checkpoints；Office 的锁文件
JUNK_SUFFIXES = (".pyc", ".pyo", ".swp", ".tmp", "~")

# 读文本的上限；一份手写资料到不了这个大小，日志和数据库转储会
MAX_BYTES = 64 * 1024 * 1024

# 这些格式里装的不是纯文本，要等专门的读取器
BINARY_FORMATS = {".pdf": "PDF", ".docx": "Word", ".doc": "Word", ".xlsx": "Excel", ".pptx": "PowerPoint"}


def decode(data: bytes, encoding: str | None = None) -> str:
    """字节 → 文字。

    参数
    ----
    data : 文件的全部字节。
    encoding : 写明时只用它，严格解码；不写时依次试 utf-8-sig、带 BOM 的 UTF-16、gb18030。

    解不开时抛出 RagLessonsError。

    >>> decode("标题：缓存".encode("gbk"))
    '标题：缓存'
    >>> decode("甲".encode("utf-16"))
    '甲'
    """
    if encoding is not None:
        try:
            return data.decode(encoding)
        except LookupError:
            raise RagLessonsError(f"没有叫 {encoding!r} 的编码；常用的是 utf-8、gb18030、utf-16、big5。") from None
        except UnicodeError as error:
            raise RagLessonsError(f"不是 {encoding} 编码（第 {getattr(error, 'start', 0)} 个字节起解不开）；请换一个 encoding=。") from None
    wide_bom = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    candidates = ("utf-16",) if wide_bom else ("utf-8-sig", "gb18030")
    for candidate in candidates:
        try:
            text = data.decode(candidate)
        except UnicodeError:
            continue
        if "\0" not in text:
            return text
    if b"\0" in data:
        raise RagLessonsError("含有零字节，像是二进制文件，不是文本；请先转成文本，或用 patterns= 排除它。")
    raise RagLessonsError("不是 UTF-8、UTF-16（带 BOM）或 GB18030；请写明编码，例如 load_document(path, encoding='big5')。")


def load_document(path: str | os.PathLike[str], *, encoding: str | None = None) -> Document:
    """读一份文件。``source`` 是文件名；要相对文件夹的路径请用 load_folder。

    参数
    ----
    path : 文件路径。
    encoding : 见 ``decode``。

    文件不存在时抛出 FileNotFoundError；读不成文字时抛出 RagLessonsError，错误里写明是哪份文件。
    """
    path = Path(path)
    return _load(path, path.name, encoding)


def _load(path: Path, source: str, encoding: str | None = None) -> Document:
    if path.is_dir():
        raise RagLessonsError(f"{source} 是文件夹；读整个文件夹请用 load_folder。")
    if not path.exists():
        raise FileNotFoundError(f"找不到文件 {path}；请检查路径，相对路径是从当前文件夹 {Path.cwd()} 算起的。")
    if path.suffix.lower() in BINARY_FORMATS:
        raise RagLessonsError(f"{source} 是 {BINARY_FORMATS[path.suffix.lower()]} 文件，还不能直接读；请先另存为文本。")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise RagLessonsError(f"{source} 有 {size / 2**20:.0f} MB，超过上限 {MAX_BYTES / 2**20:.0f} MB；请先拆小。")
        text = decode(path.read_bytes(), encoding)
    except OSError as error:
        raise RagLessonsError(f"{source} 读不出来（{error.strerror or error}）；请检查权限或文件是否还在。") from None
    except RagLessonsError as error:
        raise RagLessonsError(f"{source}：{error}" if source not in str(error) else str(error)) from None
    return Document(source, text)


def is_junk(name: str) -> bool:
    """按名字判断是不是工具或系统留下的东西。

    >>> [is_junk(n) for n in (".DS_Store", "~$手册.docx", "a.pyc", "手册.md")]
    [True, True, True, False]
    """
    return (
        name in JUNK_FOLDERS or name in JUNK_FILES or name.startswith(JUNK_PREFIXES) or name.endswith(JUNK_SUFFIXES)
    )


def _walk(folder: Path) -> Iterator[Path]:
    """folder 下的全部文件；不进垃圾文件夹，也不跟着指回上层的链接打转。"""
    def refuse(error: OSError) -> None:
        warnings.warn(f"文件夹 {error.filename} 打不开（{error.strerror}），已跳过。", RagLessonsWarning, stacklevel=4)

    for place, folders, files in os.walk(folder, followlinks=False, onerror=refuse):
        folders[:] = [name for name in folders if not is_junk(name)]
        yield from (Path(place, name) for name in files if not is_junk(name))


def load_folder(
    path: str | os.PathLike[str], *, patterns: str | Iterable[str] | None = None
) -> list[Document]:
    """读整个文件夹（含子文件夹），按相对路径排序。

    参数
    ----
    path : 文件夹。
    patterns : 只读匹配的文件，例如 ``["*.md", "docs/*.txt"]``；带 ``/`` 的和相对路径比，不带的和文件名比。
        不写则读全部（系统和工具留下的文件除外）。

    返回按 ``source`` 排序的 Document 列表；与文件系统给出的次序无关。读不了的文件各给一条
    RagLessonsWarning，其余照常读入。文件夹不存在时抛出 FileNotFoundError。
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"找不到文件夹 {folder}；请检查路径，相对路径是从当前文件夹 {Path.cwd()} 算起的。")
    if not folder.is_dir():
        raise RagLessonsError(f"{folder} 是文件；读一份文件请用 load_document。")
    wanted = [patterns] if isinstance(patterns, str) else list(patterns) if patterns is not None else None
    documents = []
    for file in _walk(folder):
        source = unicodedata.normalize("NFC", file.relative_to(folder).as_posix())
        name = PurePosixPath(source).name
        if wanted is not None and not any(fnmatch(source if "/" in p else name, p) for p in wanted):
            continue
        try:
            documents.append(_load(file, source))
        except (RagLessonsError, FileNotFoundError) as error:
            warnings.warn(f"跳过 {error}", RagLessonsWarning, stacklevel=2)
    return sorted(documents, key=lambda document: document.source)
