"""位置：仓库、数据、缓存；不看当前文件夹，写不了时退到临时文件夹并说一声。"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from rag_lessons import paths
from rag_lessons.types import RagLessonsError, RagLessonsWarning

ROOT = Path(__file__).resolve().parents[1]


def test_data_is_found_from_any_folder(tmp_path):
    code = "from rag_lessons.paths import data_path; print(data_path('agent'))"
    for folder in (ROOT, ROOT / "notebooks", tmp_path):
        shown = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, encoding="utf-8", check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert Path(shown.stdout.strip()) == ROOT / "data" / "agent"


def test_cache_folder_is_chosen_and_made(monkeypatch, tmp_path):
    monkeypatch.setenv("RAG_LESSONS_CACHE", f" {tmp_path / '深' / '缓存'} ")
    assert not paths.preferred_cache_dir().exists()
    assert paths.cache_dir() == tmp_path / "深" / "缓存" and paths.cache_dir().is_dir()
    assert list(paths.cache_dir().iterdir()) == []
    monkeypatch.setenv("RAG_LESSONS_CACHE", "")
    assert "rag_lessons" in paths.preferred_cache_dir().parts


def test_unwritable_cache_falls_back_with_one_warning(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("这里是文件，不是文件夹", encoding="utf-8")
    monkeypatch.setenv("RAG_LESSONS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(RagLessonsWarning, match="RAG_LESSONS_CACHE") as caught:
        folder = paths.cache_dir()
    assert len(caught) == 1 and folder.is_dir() and folder != paths.preferred_cache_dir()
    (folder / "x").write_bytes(b"1")
    (folder / "x").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert paths.cache_dir() == folder


@pytest.mark.parametrize("wrong", [None, 5, b"x", [], "a\0b", "\ud800", "x" * 5000])
def test_a_path_the_system_cannot_hold_is_explained(wrong):
    with pytest.raises(RagLessonsError, match="路径"):
        paths.as_path(wrong)


@pytest.mark.parametrize("name", ["RAG_LESSONS_CACHE", "RAG_LESSONS_E5", "RAG_LESSONS_WHEELHOUSE"])
def test_a_home_that_does_not_exist_is_one_sentence(name, tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAG_LESSONS_E5")}
    env |= {"RAG_LESSONS_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", name: "~no-such-user/x"}
    command = [sys.executable, "-m", "rag_lessons", "fetch-model"]
    done = subprocess.run(command, env={**env, "PYTHONIOENCODING": "utf-8"}, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "完整的路径" in done.stderr and "Traceback" not in done.stderr


def test_the_command_line_survives_a_terminal_without_chinese():
    command = [sys.executable, "-m", "rag_lessons", "-h"]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, encoding="ascii")
    assert done.returncode == 0 and "doctor" in done.stdout and "Traceback" not in done.stderr
