"""doctor：每一项在好的和坏的环境里各说什么。"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rag_lessons.course import doctor
from rag_lessons.course.doctor import FAIL, NOTE, OK, Line

ROOT = Path(__file__).resolve().parents[1]


def run(*options, command=("-m", "rag_lessons", "doctor"), **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RAG_LESSONS", "ZHIPUAI"))}
    return subprocess.run(
        [sys.executable, "-X", "utf8", *options, *command], capture_output=True, encoding="utf-8", cwd=ROOT,
        env={**env, **environment},
    )  # fmt: skip


def one(found):
    lines = [found] if isinstance(found, Line) else list(found)
    assert len(lines) == 1, lines
    return lines[0]


# ---------- 整个命令 ----------


def test_report_has_one_line_per_check_and_a_summary():
    done = run(RAG_LESSONS_OFFLINE="1")
    lines = done.stdout.splitlines()
    assert all(line.startswith((f"{OK}  ", f"{NOTE}  ", f"{FAIL}  ")) for line in lines[:-1])
    assert lines[-1].startswith(f"共 {len(lines) - 1} 项：")
    for subject in ("Python", "依赖包", "中文字体", "e5 权重", "缓存", "Jupyter 内核", "密钥", "将会使用"):
        assert any(f"  {subject}：" in line for line in lines), subject
    assert done.stderr == ""
    assert done.returncode == (1 if any(line.startswith(FAIL) for line in lines) else 0)


def test_every_problem_has_a_remedy_and_one_full_stop():
    for line in run(RAG_LESSONS_OFFLINE="1").stdout.splitlines() + run("-S").stdout.splitlines():
        if line.startswith((FAIL, NOTE)):
            assert "怎么办：" in line
        assert line.endswith("。") and not line.endswith("。。")


def test_works_without_any_package():
    done = run("-S")  # 不载入 site-packages：numpy、platformdirs、dotenv 都没有
    assert done.returncode == 1 and done.stderr == ""
    assert "缺 " in done.stdout and "numpy" in done.stdout and "python start.py" in done.stdout
    assert f"{OK}  Python：" in done.stdout


@pytest.mark.parametrize("key", ["sk-very-secret-1", "sk-very secret-1", "ｓｋ-very-secret-1"])
def test_keys_are_never_shown(key):
    done = run(ZHIPUAI_API_KEY=key)
    assert "very" not in done.stdout + done.stderr and "ｓｋ" not in done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if "  密钥：" in line)
    good = key == "sk-very-secret-1"
    assert line.startswith(OK if good else FAIL) and "ZHIPUAI_API_KEY" in line
    assert good or done.returncode == 1
    assert "。。" not in done.stdout
    assert ("embedding-3" in done.stdout) is good
    assert good or "怎么办：" in line


def test_offline_switch_is_named():
    done = run(ZHIPUAI_API_KEY="abc", RAG_LESSONS_OFFLINE="1")
    line = next(line for line in done.stdout.splitlines() if "  将会使用：" in line)
    assert "e5-small" in line and "RAG_LESSONS_OFFLINE" in line


def test_no_encoding_left_to_the_platform():
    done = run("-W", "error::EncodingWarning", PYTHONWARNDEFAULTENCODING="1", RAG_LESSONS_OFFLINE="1")
    assert "EncodingWarning" not in done.stdout + done.stderr


def test_old_terminals_do_not_stop_it():
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "RAG_LESSONS_OFFLINE": "1"}
    env.pop("PYTHONUTF8", None)
    done = subprocess.run([sys.executable, "-m", "rag_lessons", "doctor"], capture_output=True, cwd=ROOT, env=env)
    assert b"Traceback" not in done.stderr and b"Python" in done.stdout


def test_a_check_that_breaks_becomes_a_line():
    def broken():
        raise RuntimeError("坏了")

    def missing():
        import nothing_like_this  # noqa: F401

    assert doctor.run_check("某项", broken)[0].status == FAIL
    assert "缺少 nothing_like_this" in doctor.run_check("某项", missing)[0].detail


def test_main_arguments(capsys):
    assert doctor.main(["--help"]) == 0 and doctor.main(["x"]) == 2
    assert "用法" in capsys.readouterr().out


# ---------- 各项 ----------


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10, 14), FAIL), ((3, 11, 0), OK), ((3, 13, 2), OK), ((3, 14, 0), FAIL), ((2, 7, 18), FAIL)]
)
def test_python(version, status):
    assert doctor.check_python(version).status == status


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("2.0", ">=2.0,<3", True), ("2.0.0", ">=2,<3", True), ("3.0.0rc1", ">=2.0,<3", False), ("1.99", ">=2.0", False),
        ("10.1", ">=9,<11", True), ("4.4.1", "==4.4.1", True), ("4.4.1", "!=4.4.1", False), ("1.0", "", True),
        ("2.5", ">2.5", False), ("2.5", "<=2.5", True),
    ],
)  # fmt: skip
def test_version_bounds(version, bounds, fits):
    assert doctor.satisfies(version, bounds) is fits


def project(folder, *requirements, lock=""):
    body = "[project]\ndependencies = [" + ", ".join(f'"{r}"' for r in requirements) + "]\n"
    (folder / "pyproject.toml").write_text(body, encoding="utf-8")
    if lock:
        (folder / "requirements.lock").write_text(lock, encoding="utf-8")
    return folder


def test_packages(tmp_path):
    from importlib.metadata import version

    here = version("numpy")
    assert one(doctor.check_packages(project(tmp_path, "numpy>=2.0,<3"))).status == OK
    lines = list(doctor.check_packages(project(tmp_path, "numpy>=2.0,<3", "no-such-package>=1", "nor-this")))
    assert [line.status for line in lines] == [FAIL] and "no-such-package、nor-this" in lines[0].detail
    old = one(doctor.check_packages(project(tmp_path, "numpy>=99")))
    assert old.status == FAIL and here in old.detail and "start.py" in old.remedy
    other = one(doctor.check_packages(project(tmp_path, "numpy>=2", lock="NumPy==2.0.0 \\\n    --hash=sha256:0\n")))
    assert other.status == NOTE and "2.0.0" in other.detail
    lock = f"numpy==2.0.0 ; python_version < '3'\nnumpy=={here} ; python_version >= '3'\n"
    assert one(doctor.check_packages(project(tmp_path, "numpy>=2", lock=lock))).status == OK


def test_model_missing_broken_and_elsewhere(tmp_path, monkeypatch):
    from rag_lessons.embedding.fetch import E5_SMALL, FILE_NAME, MAGIC, model_path

    real = model_path()
    monkeypatch.delenv("RAG_LESSONS_E5", raising=False)
    monkeypatch.setenv("RAG_LESSONS_CACHE", str(tmp_path))
    line = doctor.check_model()
    assert line.status == NOTE and "fetch-model" in line.remedy
    broken = tmp_path / FILE_NAME
    with broken.open("wb") as file:  # 大小、文件头都对，内容不对
        file.write(MAGIC)
        file.truncate(E5_SMALL.size)
    line = doctor.check_model()
    assert line.status == FAIL and "fetch-model" in line.remedy
    if real is not None:
        broken.unlink()
        shutil.copy(real, broken)
        assert doctor.check_model().status == OK
    monkeypatch.setenv("RAG_LESSONS_E5", str(tmp_path / "nowhere.bin"))
    line = one(doctor.check_model())
    assert line.status == FAIL and "RAG_LESSONS_E5" in line.detail and line.remedy


def test_path_length_only_matters_on_windows():
    long = Path("C:/") / ("长" * 60) / ("b" * 60)
    assert list(doctor.check_path(long, windows=False)) == []
    assert one(doctor.check_path(long, windows=True)).status == NOTE
    assert one(doctor.check_path(Path("C:/rag"), windows=True)).status == OK


def test_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run(RAG_LESSONS_CACHE=str(tmp_path / "file" / "cache"), RAG_LESSONS_OFFLINE="1")
    line = next(line for line in done.stdout.splitlines() if "  缓存：" in line)
    assert line.startswith(NOTE) and "RAG_LESSONS_CACHE" in line and done.stderr == ""


def test_cache_check_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("RAG_LESSONS_CACHE", str(tmp_path))
    assert doctor.check_cache().status == OK
    assert list(tmp_path.iterdir()) == []


def test_kernel():
    assert doctor.judge_kernel("python", "/x").status == OK
    assert doctor.judge_kernel(sys.executable, "/x").status == OK
    other = doctor.judge_kernel(str(Path(sys.prefix + "-other") / "bin" / "python"), "/x", "重装内核")
    assert other.status == FAIL and "kernel.json" in other.detail and other.remedy == "重装内核"
    assert doctor.check_kernel().status == OK


def test_a_foreign_kernel_of_the_same_name_is_found(tmp_path):
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    program = str(tmp_path / "elsewhere" / "bin" / "python")
    body = json.dumps({"argv": [program, "-m", "ipykernel_launcher"], "display_name": "旧的", "language": "python"})
    (folder / "kernel.json").write_text(body, encoding="utf-8")
    done = run(JUPYTER_PATH=str(tmp_path), RAG_LESSONS_OFFLINE="1")
    line = next(line for line in done.stdout.splitlines() if "  Jupyter 内核：" in line)
    assert line.startswith(FAIL) and "ipykernel install --sys-prefix" in line and done.returncode == 1


@pytest.mark.parametrize(("free", "status"), [(50_000_000, FAIL), (300_000_000, NOTE), (5_000_000_000, OK)])
def test_disk(free, status):
    assert doctor.check_disk(free).status == status


def test_font_and_numpy_and_data_are_fine_here():
    assert doctor.check_font().status == doctor.check_numpy().status == doctor.check_data().status == OK
