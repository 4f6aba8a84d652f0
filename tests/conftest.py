"""几个测试共用的东西：一份没有网络、从头装好的课程。"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".venv*", ".git", "my", "__pycache__", ".*_cache", ".hypothesis", ".ipynb_checkpoints", ".env"
)
# 在新的网络命名空间里运行：只有本机回环，别的地址一律不存在
NO_NETWORK = """\
import fcntl, os, socket, struct, sys
s = socket.socket()
fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x49))  # SIOCSIFFLAGS：打开 lo
os.execv(sys.argv[1], sys.argv[1:])
"""


def pytest_configure(config: pytest.Config) -> None:
    """离线、真的 e5 权重（没有就取一次，放在用户的缓存里）、临时的缓存文件夹；已设好的不改。"""
    os.environ.setdefault("RAG_LESSONS_OFFLINE", "1")
    if not os.environ.get("RAG_LESSONS_E5"):
        from rag_lessons.embedding.fetch import fetch_model

        os.environ["RAG_LESSONS_E5"] = str(fetch_model())
    if not os.environ.get("RAG_LESSONS_CACHE"):
        temporary = tempfile.TemporaryDirectory(prefix="rag_lessons-", ignore_cleanup_errors=True)
        os.environ["RAG_LESSONS_CACHE"] = temporary.name
        config.add_cleanup(temporary.cleanup)


@pytest.fixture(scope="session")
def e5_file() -> Path:
    """真的权重文件。"""
    return Path(os.environ["RAG_LESSONS_E5"])


def copy_repo(target: Path) -> Path:
    """一份像刚克隆下来的仓库。"""
    shutil.copytree(ROOT, target, ignore=LEFT_OUT)
    return target


def clean_env(**extra: str) -> dict[str, str]:
    """像一台新机器：没有指向当前环境的变量。"""
    drop = ("VIRTUAL_ENV", "RAG_LESSONS_VENV", "RAG_LESSONS_E5", "RAG_LESSONS_WHEELHOUSE", "DISPLAY", "WAYLAND_DISPLAY")
    env = {k: v for k, v in os.environ.items() if k not in drop}
    return {**env, "PYTHONIOENCODING": "utf-8", "RAG_LESSONS_OFFLINE": "1", **extra}


def must_run(reason: str) -> None:
    """本机可以跳过；CI 里缺了条件就是失败。"""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def isolated(command: list[str]) -> list[str]:
    """能隔离网络就隔离（Linux 的 unshare），不能就原样运行。"""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.call([unshare, "-rn", "true"], stderr=subprocess.DEVNULL) != 0:
        return command
    return [unshare, "-rn", sys.executable, "-c", NO_NETWORK, *command]


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    """python start.py wheelhouse 准备的文件夹（start.py test 会准备好）。"""
    folder = Path(os.environ.get("RAG_LESSONS_TEST_WHEELHOUSE") or Path(sys.prefix) / "test-wheelhouse")
    try:
        made_for = json.loads((folder / "wheelhouse.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        must_run("没有离线安装包；运行 python start.py test，或先 python start.py wheelhouse .venv/test-wheelhouse")
    if made_for.get("lock") != hashlib.sha256((ROOT / "requirements.lock").read_bytes()).hexdigest():
        must_run("离线安装包是照旧的锁文件下载的；运行 python start.py test 会换成新的")
    return folder


@dataclass(frozen=True)
class Installed:
    """装好的课程：仓库、缓存文件夹、安装时的输出、用的秒数。"""

    root: Path
    env: dict[str, str]
    output: str
    offline: bool

    @property
    def python(self) -> Path:
        return self.root / (".venv/Scripts/python.exe" if os.name == "nt" else ".venv/bin/python")

    def start(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "start.py"), *arguments]


@pytest.fixture(scope="session")
def installed(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """在路径含汉字和空格的文件夹里，不联网，从头装好一份课程（只做一次）。"""
    place = tmp_path_factory.mktemp("新机器")
    root = copy_repo(place / "张三 的课程" / "rag")
    closed = "http://127.0.0.1:9/simple"
    cache = os.environ.get("RAG_LESSONS_CACHE") or str(place / "cache")  # start.py test 给的是空的：权重要从离线文件夹取
    env = clean_env(PIP_INDEX_URL=closed, PIP_CONFIG_FILE=os.devnull, RAG_LESSONS_CACHE=cache)
    env.pop("PIP_FIND_LINKS", None)
    env.pop("PIP_EXTRA_INDEX_URL", None)
    plain = [sys.executable, str(root / "start.py"), "install", "--wheelhouse", str(wheelhouse)]
    command = isolated(plain)
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
        encoding="utf-8", cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return Installed(root, env, done.stdout, command != plain)
