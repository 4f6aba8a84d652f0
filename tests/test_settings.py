"""密钥从哪里来、怎样整理，以及它不会出现在任何地方。"""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_lessons import settings
from rag_lessons.settings import Secret, clean_key, explain_key, get_key, get_setting, load_settings, offline
from rag_lessons.types import RagLessonsError

NAME = "ZHIPUAI_API_KEY"
KEY = "0123abcd.SecretPart"
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "repo_root", lambda: tmp_path)
    for name in (NAME, "RAG_LESSONS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(root, content, encoding="utf-8"):
    (root / ".env").write_bytes(content.encode(encoding))


@pytest.mark.parametrize(
    "line",
    [
        f"{NAME}={KEY}",
        f"{NAME}={KEY}\n",
        f"{NAME}={KEY}\r\n",
        f"{NAME} = {KEY}  ",
        f"export {NAME}={KEY}",
        f'{NAME}="{KEY}"',
        f"{NAME}='{KEY}'",
        f'{NAME}="{KEY}\n"\n',
        f"{NAME}=\"'{KEY}'\"",
        f"{NAME}=“{KEY}”",
        f'{NAME}="{KEY}',                   # 少了一个引号
        f"{NAME}={KEY}'",
        f"\ufeff{NAME}={KEY}",
        f"{NAME}=\ufeff{KEY}\u200b",
        f"{NAME}=\u3000{KEY}\xa0",
        f"# 说明\n\n{NAME}={KEY}  # 我的密钥\nOTHER=1\n",
        f"OTHER='没有配对\n{NAME}={KEY}\n",
    ],
)
def test_trimmed(root, line):
    write(root, line)
    assert get_key(NAME) == KEY


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_any_notepad_encoding(root, encoding):
    write(root, f"# 我的密钥\r\n{NAME}={KEY}\r\n", encoding)
    assert get_key(NAME) == KEY


@pytest.mark.parametrize("value", [KEY, f'"{KEY}"', f"{KEY}\n", f"\ufeff{KEY}\r\n", f" '{KEY}' "])
def test_the_environment_comes_first_and_is_trimmed_too(root, monkeypatch, value):
    write(root, f"{NAME}=other")
    monkeypatch.setenv(NAME, value)
    assert get_key(NAME) == KEY
    assert explain_key(NAME) == f"{NAME}：已找到（环境变量）。"


@pytest.mark.parametrize("value", ["", " ", '""', "\n", "\ufeff"])
def test_an_empty_value_is_no_value(root, monkeypatch, value):
    monkeypatch.setenv(NAME, value)
    assert get_key(NAME) is None
    write(root, f"{NAME}={value}\n")
    assert get_key(NAME) is None
    write(root, f"{NAME}={KEY}\n")
    assert get_key(NAME) == KEY
    assert "仓库根目录的 .env" in explain_key(NAME)


def test_a_dollar_is_a_dollar(root, monkeypatch):
    monkeypatch.setenv("HOME_X", "expanded")
    write(root, f"{NAME}=a${{HOME_X}}$HOME_X")
    assert get_key(NAME) == "a${HOME_X}$HOME_X"


@pytest.mark.parametrize("bad", ["abc SecretPart", "abc\tSecretPart", "ａｂｃSecretPart", "密钥SecretPart", "a\x00SecretPart"])
def test_a_damaged_key_is_an_error_that_hides_it(root, bad):
    write(root, f"{NAME}={bad}\n")
    with pytest.raises(RagLessonsError, match=r"仓库根目录的 \.env") as caught:
        get_key(NAME)
    for text in (str(caught.value), repr(caught.value), explain_key(NAME)):
        assert NAME in text and "SecretPart" not in text


def test_not_found_says_where_it_looked(root):
    assert "环境变量里没有" in explain_key(NAME) and "没有 .env 文件" in explain_key(NAME)
    write(root, "OTHER=1\n")
    assert ".env 里也没有" in explain_key(NAME)
    assert get_key(NAME) is None


def test_no_repository(monkeypatch):
    def lost():
        raise FileNotFoundError

    monkeypatch.setattr(settings, "repo_root", lost)
    assert get_key(NAME) is None
    assert load_settings() == {}
    assert "没有找到" in explain_key(NAME)


def test_unreadable_env_file(root, monkeypatch):
    write(root, "A=1")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RagLessonsError, match="权限"):
        get_key(NAME)
    assert "权限" in explain_key(NAME)
    (root / ".env").unlink()
    (root / ".env").mkdir()
    assert get_key(NAME) is None


def test_the_file_is_read_once_until_it_changes(root, monkeypatch):
    write(root, f"{NAME}=first")
    assert get_key(NAME) == "first"
    reads = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: reads.append(self) or original(self))
    for _ in range(3):
        assert get_key(NAME) == "first"
    assert reads == []
    write(root, f"{NAME}=second!")
    assert get_key(NAME) == "second!" and len(reads) == 1


def test_the_environment_of_children_stays_clean(root):
    write(root, f"{NAME}={KEY}")
    assert get_key(NAME) == KEY
    assert NAME not in os.environ


def test_the_secret_is_not_shown(root, capsys, caplog):
    write(root, f"{NAME}={KEY}\n'broken line\n")
    with caplog.at_level(logging.DEBUG):
        key = get_key(NAME)
        shown = [repr(key), repr(load_settings()), repr([key]), f"{key!r}", explain_key(NAME), caplog.text]
    shown += capsys.readouterr()
    assert not any("SecretPart" in text for text in shown)
    assert f"Bearer {key}" == f"Bearer {KEY}" and isinstance(key, Secret)
    assert clean_key(f" {KEY} ", NAME) == KEY


def test_plain_settings(root, monkeypatch):
    write(root, "ZHIPUAI_BASE_URL=http://127.0.0.1:1/v4\n")
    assert get_setting("ZHIPUAI_BASE_URL") == "http://127.0.0.1:1/v4"
    assert type(get_setting("ZHIPUAI_BASE_URL")) is str
    assert get_setting("NOT_THERE_AT_ALL") is None


@pytest.mark.parametrize(("value", "expected"), [
    ("1", True), ("true", True), ("YES", True), ("on", True), (" 1 ", True),
    ("0", False), ("", False), ("false", False), ("No", False), ("off", False),
])
def test_offline(root, monkeypatch, value, expected):
    assert offline() is False
    monkeypatch.setenv("RAG_LESSONS_OFFLINE", value)
    assert offline() is expected
    monkeypatch.delenv("RAG_LESSONS_OFFLINE")
    write(root, f"RAG_LESSONS_OFFLINE={value}\n")
    assert offline() is expected


@pytest.mark.parametrize("folder", [ROOT, ROOT / "notebooks", Path("/")])
def test_found_from_any_working_folder(folder, tmp_path):
    """真的另开进程：当前文件夹在哪里都一样，读的是仓库根目录的 .env。"""
    code = (
        "import pathlib, sys, warnings\n"
        "import rag_lessons.paths as p\n"
        "warnings.filterwarnings('error', category=EncodingWarning, module=r'rag_lessons\\.')\n"
        "p.repo_root = lambda: pathlib.Path(sys.argv[1])\n"
        "from rag_lessons.settings import get_key\n"
        f"print(get_key({NAME!r}) == {KEY!r})\n"
    )
    write(tmp_path, f"{NAME}={KEY}\n")
    env = {k: v for k, v in os.environ.items() if k != NAME}
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", code, str(tmp_path)],
        cwd=folder, env=env, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("wrong", [5, b"sk-hidden", ["sk-hidden"]])
def test_a_key_of_another_type_is_refused_without_showing_it(wrong):
    with pytest.raises(RagLessonsError, match="字符串") as caught:
        clean_key(wrong, "ZHIPUAI_API_KEY")
    assert "hidden" not in str(caught.value)
