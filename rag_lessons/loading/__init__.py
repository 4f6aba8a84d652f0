"""路径 → Document。

按后缀挑读取器：``.html`` ``.pdf`` ``.docx`` 各有各的，其余当纯文本。每个读取器都是一个函数：
``(路径, encoding) → Content``；读不了就抛出 RagLessonsError，这里补上是哪份文件。
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from rag_lessons.loading.clean import map_radicals
from rag_lessons.loading.html import read_html
from rag_lessons.loading.pdf import read_pdf
from rag_lessons.loading.text import Content, decode, read_text
from rag_lessons.loading.word import read_word
from rag_lessons.paths import as_path
from rag_lessons.types import Document, RagLessonsError, RagLessonsWarning

__all__ = ["decode", "folder_files", "is_junk", "load_document", "load_folder"]

# 工具和系统留下的东西，从来不是资料
JUNK_FOLDERS = frozenset({"__pycache__", "node_modules", "__MACOSX", "venv"})
JUNK_FILES = frozenset({"Thumbs.db", "desktop.ini"})
JUNK_PREFIXES = (".", "~$")                     # .git、.DS_Store、.ipynb_checkpoints；Office 的锁文件
JUNK_SUFFIXES = (".pyc", ".pyo", ".swp", ".tmp", "~")

# 一份文件的上限；一份手写资料到不了这个大小，日志和数据库转储会
MAX_BYTES = 64 * 1024 * 1024

READERS: dict[str, Callable[[Path, str | None], Content]] = {
    ".html": read_html, ".htm": read_html, ".xhtml": read_html, ".pdf": read_pdf, ".docx": read_word,
}  # fmt: skip
# 认得、但不读的格式，和该怎么办
OTHER_FORMATS = {
    ".doc": ("老的 Word ", "用 Word 或 WPS 另存为 .docx"), ".wps": ("WPS 文字", "用 WPS 另存为 .docx"),
    ".docm": ("带宏的 Word ", "另存为 .docx"), ".rtf": (" RTF ", "另存为 .docx"), ".odt": (" ODT ", "另存为 .docx"),
    ".xls": (" Excel ", "另存为 CSV"), ".xlsx": (" Excel ", "另存为 CSV"), ".et": ("WPS 表格", "另存为 CSV"),
    ".ppt": (" PowerPoint ", "导出为 PDF"), ".pptx": (" PowerPoint ", "导出为 PDF"), ".epub": (" EPUB ", "转成 HTML"),
    ".mht": ("单文件网页", "另存为 .html"), ".mhtml": ("单文件网页", "另存为 .html"),
}  # fmt: skip


def load_document(
    path: str | os.PathLike[str], *, encoding: str | None = None, source: str | None = None
) -> Document:
    """读一份文件：纯文本、HTML、PDF、Word（.docx）。``source`` 是文件名；要相对文件夹的路径请用 load_folder。

    参数
    ----
    path : 文件路径。
    encoding : 文本和网页的编码；不写时按固定次序严格试，见 ``rag_lessons.loading.text``。PDF 和 Word 用不到它。
    source : 文档的来源；不写就是文件名。

    返回的 ``text`` 已经清理过：部首区的字换成普通汉字；PDF 去了页眉页脚、理顺了双栏、接上了断行。
    ``metadata`` 里，网页和 Word 有 ``title``，PDF 有 ``page_starts``（每一页从第几个字开始）。

    文件不存在时抛出 FileNotFoundError；读不成文字时抛出 RagLessonsError，错误里写明是哪份文件。
    PDF 里有几页是空白或乱码时，给一条 RagLessonsWarning，那几页不读。
    """
    path = as_path(path)
    return _load(path, readable_name(path.name) if source is None else source, encoding)


def _load(path: Path, source: str, encoding: str | None = None) -> Document:
    if path.is_dir():
        raise RagLessonsError(f"{source} 是文件夹；读整个文件夹请用 load_folder。")
    if not path.exists():
        raise FileNotFoundError(f"找不到文件 {path}；请检查路径，相对路径是从当前文件夹 {Path.cwd()} 算起的。")
    try:
        if not path.is_file():
            raise RagLessonsError("不是普通文件（可能是管道或设备），没有内容可读。")
        suffix = path.suffix.lower()
        if suffix in OTHER_FORMATS:
            kind, cure = OTHER_FORMATS[suffix]
            raise RagLessonsError(f"是{kind}文件，不能直接读；请先{cure}。")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise RagLessonsError(f"有 {size / 2**20:.0f} MB，超过上限 {MAX_BYTES / 2**20:.0f} MB；请先拆小。")
        content = READERS.get(suffix, read_text)(path, encoding)
    except OSError as error:
        raise RagLessonsError(f"{source} 读不出来（{error.strerror or error}）；请检查权限或文件是否还在。") from None
    except RagLessonsError as error:
        raise RagLessonsError(f"{source}：{error}") from None
    if content.problem:
        warnings.warn(f"{source}：{content.problem}", RagLessonsWarning, stacklevel=3)
    return Document(source, map_radicals(content.text), content.metadata)


def readable_name(name: str) -> str:
    """文件名写成能显示、能存盘的样子。

    中文 Windows 打的 zip，在 Linux 上解开后文件名是 GBK 字节，Python 用代理码位表示；这里还原成汉字。

    >>> readable_name("测试.txt")
    '测试.txt'
    """
    try:
        name.encode("utf-8")
        return name
    except UnicodeError:
        raw = os.fsencode(name) if os.name != "nt" else name.encode("utf-8", "replace")
    for encoding in ("gb18030", "utf-8"):
        try:
            return raw.decode(encoding)
        except UnicodeError:
            continue
    return raw.decode("utf-8", "replace")


def is_junk(name: str) -> bool:
    """按名字判断是不是工具或系统留下的东西。

    >>> [is_junk(n) for n in (".DS_Store", "~$手册.docx", "a.pyc", "手册.md")]
    [True, True, True, False]
    """
    return (
        name in JUNK_FOLDERS or name in JUNK_FILES or name.startswith(JUNK_PREFIXES) or name.endswith(JUNK_SUFFIXES)
    )


def folder_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """folder 下的全部文件，连同各自的来源（相对路径，NFC）；次序由文件系统定。"""
    for file in _walk(folder):
        yield file, unicodedata.normalize("NFC", readable_name(file.relative_to(folder).as_posix()))


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
    folder = as_path(path)
    if not folder.exists():
        raise FileNotFoundError(f"找不到文件夹 {folder}；请检查路径，相对路径是从当前文件夹 {Path.cwd()} 算起的。")
    if not folder.is_dir():
        raise RagLessonsError(f"{folder} 是文件；读一份文件请用 load_document。")
    wanted = [patterns] if isinstance(patterns, str) else list(patterns) if patterns is not None else None
    documents = []
    for file, source in folder_files(folder):
        name = PurePosixPath(source).name
        if wanted is not None and not any(fnmatch(source if "/" in p else name, p) for p in wanted):
            continue
        try:
            documents.append(_load(file, source))
        except (RagLessonsError, FileNotFoundError) as error:
            warnings.warn(f"跳过 {error}", RagLessonsWarning, stacklevel=2)
    return sorted(documents, key=lambda document: document.source)
