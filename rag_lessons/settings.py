"""密钥和开关从哪里来：先看环境变量，再看仓库根目录的 ``.env``。

密钥不打印、不进报错、不进笔记本的输出。读到的值都是 Secret：它是普通字符串，
只是在单元格最后一行或调试器里显示时，看到的是“已隐藏”。
"""

from __future__ import annotations

import io
import os
from functools import lru_cache
from pathlib import Path

from rag_lessons.paths import repo_root
from rag_lessons.types import RagLessonsError, is_blank

ENV_FILE = ".env"
# 复制粘贴时常带上的引号
QUOTES = "\"'`“”‘’「」『』＂＇"
FALSE_WORDS = {"", "0", "false", "no", "off"}


class Secret(str):
    """repr 看不到内容的字符串；别处和 str 完全一样。

    >>> Secret("abc")
    '（已隐藏）'
    >>> "Bearer " + Secret("abc")
    'Bearer abc'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'（已隐藏）'"


def env_path() -> Path | None:
    """``.env`` 应在的位置（不管有没有这个文件）；找不到仓库根目录时是 None。"""
    try:
        return repo_root() / ENV_FILE
    except FileNotFoundError:
        return None


def load_settings() -> dict[str, Secret]:
    """读仓库根目录的 ``.env``，返回 {名字: 值}；没有这个文件时是空字典。

    同一个文件只读一次，改动过才重读。值已去掉引号、空白、换行和 BOM。
    不写进 os.environ：子进程和别的库不该顺手拿到你的密钥。
    文件打不开时抛出 RagLessonsError。
    """
    path = env_path()
    if path is None or not path.is_file():
        return {}
    try:
        stat = path.stat()
        return dict(_read_env(path, stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        raise RagLessonsError(f"读不了仓库根目录的 .env（{error.strerror}）；请检查它的权限。") from None


@lru_cache(maxsize=4)
def _read_env(path: Path, _mtime: int, _size: int) -> dict[str, Secret]:
    """按 .env 的写法解析。Windows 的记事本会存成 UTF-16 或 GBK，所以从字节读起。"""
    from dotenv import dotenv_values

    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", errors="replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("gb18030", errors="replace")
    # interpolate=False：值里的 $ 就是 $
    values = dict(dotenv_values(stream=io.StringIO(text), interpolate=False))
    for line in text.splitlines():          # 引号没有配对的行，dotenv 会跳过
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name = name.strip()
        if equals and name.isidentifier() and values.get(name) is None:
            values[name] = value
    return {name: _trim(value or "") for name, value in values.items()}


def _trim(value: str) -> Secret:
    """去掉两头的引号、空白、换行、BOM 和零宽字符，里外几层都去掉。"""
    start, end = 0, len(value)
    while start < end and (value[start] in QUOTES or is_blank(value[start])):
        start += 1
    while end > start and (value[end - 1] in QUOTES or is_blank(value[end - 1])):
        end -= 1
    return Secret(value[start:end])


def _find(name: str) -> tuple[Secret, str] | None:
    """（值, 在哪里找到的）；空的值等于没有设。"""
    value = _trim(os.environ.get(name, ""))
    if value:
        return value, "环境变量"
    value = load_settings().get(name, Secret())
    return (value, "仓库根目录的 .env") if value else None


def get_setting(name: str) -> str | None:
    """一项普通设置（例如服务地址 ZHIPUAI_BASE_URL）；没有设时是 None。"""
    found = _find(name)
    return str.__str__(found[0]) if found else None


def clean_key(value: str, name: str, where: str = "传入的参数") -> Secret:
    """整理并检查一个密钥。中间夹着空白或非 ASCII 字符时抛出 RagLessonsError，报错里没有密钥本身。

    这样的密钥发不出去，而 HTTP 库的报错会把它整个印出来，所以在这里就拦下。
    """
    if not isinstance(value, str):
        raise RagLessonsError(f"{name} 要是字符串，收到的是 {type(value).__name__}（来自{where}）。")
    key = _trim(value)
    if not key:
        raise RagLessonsError(f"{name} 是空的（来自{where}）；请填上密钥。")
    if not all("!" <= char <= "~" for char in key):
        raise RagLessonsError(
            f"{name} 里夹着空格或非 ASCII 字符，例如全角字母（来自{where}）；请到服务商的网页重新复制一次。"
        )
    return key


def get_key(name: str) -> Secret | None:
    """取密钥：先环境变量，再 ``.env``；都没有时返回 None。

    两头的引号、空白、换行和 BOM 会去掉。中间还有空白或非 ASCII 字符时抛出 RagLessonsError。
    """
    found = _find(name)
    return clean_key(found[0], name, found[1]) if found else None


def explain_key(name: str) -> str:
    """一句话：这个密钥找到没有，在哪里找过，没有的话怎么设。不含密钥，也不抛异常。"""
    try:
        found = _find(name)
        if found:
            clean_key(found[0], name, found[1])
            return f"{name}：已找到（{found[1]}）。"
    except RagLessonsError as error:
        return str(error)
    path = env_path()
    file = "仓库根目录的 .env 里也没有" if path and path.is_file() else "仓库根目录也没有 .env 文件"
    return (
        f"没有找到 {name}：环境变量里没有，{file}。"
        f"需要时在仓库根目录的 .env 里写一行 {name}=你的密钥，保存后重新运行这一格。"
    )


def offline() -> bool:
    """设了 RAG_LESSONS_OFFLINE（1、true、yes、on）就只用离线的做法，有密钥也不联网。"""
    found = _find("RAG_LESSONS_OFFLINE")
    return found is not None and found[0].lower() not in FALSE_WORDS
