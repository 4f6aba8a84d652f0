"""仓库在哪里、数据在哪里、缓存放哪里。

只用标准库和 platformdirs，别的模块都可以放心地导入它。从哪个文件夹启动都一样：
位置由本包自己的所在地推出，不看当前工作目录。
"""

from __future__ import annotations

import errno
import importlib.util
import os
import tempfile
import uuid
import warnings
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_dir

from rag_lessons.types import RagLessonsError, RagLessonsWarning

FONT = "Noto Sans SC"       # 画图用的中文字体


def as_path(path: str | os.PathLike[str]) -> Path:
    """路径参数 → Path；不是路径、系统存不下的名字（太长、含 NUL 或不成对的代理字符）抛出 RagLessonsError。

    >>> as_path("a/b.npz").as_posix()
    'a/b.npz'
    """
    try:
        result = Path(path)
        os.fsencode(result)
        result.is_file()
    except TypeError:
        raise RagLessonsError(f"路径要是字符串或 Path，收到 {type(path).__name__}。") from None
    except UnicodeError:
        raise RagLessonsError("路径里有不成对的代理字符，系统认不出；请改一个名字。") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise RagLessonsError(f"路径太长，系统存不下：{str(path)[:40]}……；请换一个短的。") from None
    if "\0" in str(path):
        raise RagLessonsError("路径里有 NUL 字符，系统不收；请改一个名字。")
    return result


def expand_home(path: str | os.PathLike[str], name: str) -> Path:
    """把开头的 ``~`` 换成家目录；换不成（没有那个用户、没有家目录）时抛出 RagLessonsError。"""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise RagLessonsError(f"{name} 里的 {path} 以 ~ 开头，而家目录找不到；请写成完整的路径。") from None


def repo_root() -> Path:
    """课程仓库的根：从本包所在处向上，第一个含有 ``data/`` 的文件夹。

    找不到时（例如包被单独装进了别的环境）抛出 FileNotFoundError。

    >>> (repo_root() / "data").is_dir()
    True
    """
    for folder in Path(__file__).resolve().parents:
        if (folder / "data").is_dir():
            return folder
    raise FileNotFoundError("找不到课程的 data 文件夹；请在克隆下来的仓库里安装本包：pip install -e .")


def data_path(*parts: str) -> Path:
    """``data/`` 里的路径，例如 ``data_path("agent")``。不检查它是否存在。

    >>> data_path("golden", "agent.jsonl").relative_to(repo_root()).as_posix()
    'data/golden/agent.jsonl'
    """
    return repo_root().joinpath("data", *parts)


def preferred_cache_dir() -> Path:
    """缓存本来应放的文件夹；不创建，也不管能不能写。

    有环境变量 ``RAG_LESSONS_CACHE`` 就用它，否则是系统给每个用户的缓存文件夹。
    """
    chosen = os.environ.get("RAG_LESSONS_CACHE", "").strip()
    return expand_home(chosen, "RAG_LESSONS_CACHE") if chosen else Path(user_cache_dir("rag_lessons", appauthor=False))


def cache_dir() -> Path:
    """可以写的缓存文件夹，没有就建。放模型权重 ``e5-small-q4.bin`` 和向量 ``vectors.sqlite``。

    本来的位置不能写时（只读的家目录、配额满了），退到临时文件夹，并发出一次 RagLessonsWarning。
    """
    return _usable(preferred_cache_dir())


@lru_cache(maxsize=16)
def _usable(wanted: Path) -> Path:
    if _writable(wanted):
        return wanted
    fallback = _temporary()
    warnings.warn(
        f"缓存文件夹 {wanted} 不能写，这次改用 {fallback}；"
        "想长期保留，请把 RAG_LESSONS_CACHE 设成能写的文件夹。",
        RagLessonsWarning,
        stacklevel=3,
    )
    return fallback


def _writable(folder: Path) -> bool:
    """真的写一个小文件试试：权限位在网络盘和 Windows 上不可信。"""
    probe = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"ok")
        probe.unlink()
    except OSError:
        return False
    return True


def _temporary() -> Path:
    """临时文件夹里属于这个用户的一格；被别人占了名字时另建一个。"""
    uid = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"rag_lessons-{'user' if uid is None else uid}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if (uid is None or folder.stat().st_uid == uid) and not folder.is_symlink() and _writable(folder):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="rag_lessons-"))


def font_path() -> Path:
    """zhplot 包里那个字体文件的位置。只找文件，不导入 zhplot（它一导入就改全局设置）。"""
    spec = importlib.util.find_spec("zhplot")
    if spec is not None and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            path = Path(folder) / "fonts" / "NotoSansSC-Regular.ttf"
            if path.is_file():
                return path
    raise FileNotFoundError("找不到中文字体（zhplot 包里的 NotoSansSC）；请运行 python start.py 重新装好环境。")
