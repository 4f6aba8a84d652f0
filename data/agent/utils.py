"""零碎的小函数。

放进来的标准只有一条：至少有两个模块要用，而且和业务无关。
只有一处用的，就留在那一处。
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# ---------------------------------------------------------------- 文件


def atomic_write(path: Path, text: str) -> None:
    """先写到旁边的临时文件，再改名换上去。

    中途断电，留下的要么是旧的完整文件，要么是新的完整文件，不会是半截。
    临时文件和目标在同一个目录，跨磁盘改名不是原子的。
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)


def write_json(path: Path, data: Any) -> None:
    """缩进两格、键排好序：同样的内容得到同样的字节，比对和入库都省事。"""
    atomic_write(path, json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True) + "\n")


def read_json(path: Path, default: Any = None) -> Any:
    """读一个 JSON 文件；文件不存在时给 default。内容坏了照样抛错，不替你瞒着。"""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default


def read_lines(path: Path) -> list[dict[str, Any]]:
    """读 JSON Lines：一行一个对象，空行跳过。"""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """往 JSON Lines 末尾添一行。"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="\n") as handle:
        handle.write(json.dumps(data, ensure_ascii=False) + "\n")


# ---------------------------------------------------------------- 文字


def clip(text: str, limit: int = 4000) -> str:
    """太长的文字截断后再交给模型。

    截断：头尾各留一半，中间换成一行「…省略 N 字…」，默认 4000 字。
    报错信息常在末尾，文件说明常在开头，两头都比中间要紧。

    >>> clip("甲" * 5 + "乙" * 5, limit=4)
    '甲甲\\n…省略 6 字…\\n乙乙'
    """
    if limit < 2:
        raise ValueError("limit 至少是 2")
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n…省略 {len(text) - 2 * half} 字…\n{text[-half:]}"


def first_line(text: str) -> str:
    """第一行非空的文字，没有就给空串。列表和日志里用它当标题。"""
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return ""


def slug(text: str, limit: int = 40) -> str:
    """变成能当文件名的样子：字母数字和汉字留下，其余换成短横线。

    >>> slug("周报：第 12 周 (草稿)")
    '周报-第-12-周-草稿'
    """
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[^\w\u4e00-\u9fff]+", "-", text).strip("-_")
    return text[:limit] or "untitled"


def display_width(text: str) -> int:
    """终端上占几格：全角字符占两格。

    >>> display_width("小满 v1")
    7
    """
    return sum(2 if unicodedata.east_asian_width(ch) in "WF" else 1 for ch in text)


def pad(text: str, width: int) -> str:
    """按显示宽度在右边补空格，中英文混排的表格才对得齐。"""
    return text + " " * max(0, width - display_width(text))


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """把几行文字排成对齐的列，第一行当表头。

    >>> print(format_table([["工具", "级别"], ["calc", "read"]]))
    工具  级别
    calc  read
    """
    if not rows:
        return ""
    widths = [max(display_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(pad(c, w) for c, w in zip(row, widths)).rstrip() for row in rows)


# ---------------------------------------------------------------- 数字


def human_size(count: int) -> str:
    """字节数变成人读的样子，1024 进位。

    >>> human_size(512), human_size(1536), human_size(5 * 1024 * 1024)
    ('512 B', '1.5 KB', '5.0 MB')
    """
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("走不到这里")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """把 ``90s``、``5m``、``24h``、``7d`` 变成秒数；不带单位按秒算。

    >>> parse_duration("5m"), parse_duration("24h"), parse_duration("90")
    (300.0, 86400.0, 90.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if not match:
        raise ValueError(f"看不懂的时长：{text!r}；写成 90s、5m、24h 或 7d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def clamp(value: float, low: float, high: float) -> float:
    """夹到区间里。"""
    return max(low, min(high, value))


# ---------------------------------------------------------------- 容器


def deep_merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """把 extra 盖到 base 上，字典逐层合并，其余整个换掉。两个参数都不改动。

    列表不拼接：想在默认列表后面添一项的人少，想换掉整个列表的人多。

    >>> deep_merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": [4]})
    {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    result = dict(base)
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = deep_merge(result[key], value)
        else:
            result[key] = value
    return result


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """每 size 个一组，最后一组可以不满。"""
    if size < 1:
        raise ValueError("size 至少是 1")
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def stable_hash(data: Any, length: int = 16) -> str:
    """内容相同，摘要就相同：换进程、换机器、换键的次序都一样。

    内置的 hash() 每次启动都换盐，不能用来做缓存的键。
    """
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:length]


def unique(items: Iterable[T]) -> list[T]:
    """去重，保持第一次出现的次序。"""
    return list(dict.fromkeys(items))
