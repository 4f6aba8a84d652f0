"""纯文本：字节 → 文字。

编码不靠猜：统计式的检测器在短文本上会认错（只有“你好”两个字的 GBK 文件就够了）。
这里按固定次序严格试：UTF-8（可带 BOM）→ 带 BOM 的 UTF-16 → GB18030；都不成立就请你写明 ``encoding=``。
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_lessons.types import RagLessonsError


@dataclass(frozen=True)
class Content:
    """一份文件里读出来的东西。

    参数
    ----
    text : 清理过的全文。
    metadata : 标题、页码位置之类，放进 ``Document.metadata``。
    problem : 能读，但有一部分没读成时，说清楚是哪一部分；没问题就是空串。
    """

    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def decode(data: bytes, encoding: str | None = None) -> str:
    """字节 → 文字。

    参数
    ----
    data : 文件的全部字节。
    encoding : 写明时只用它，严格解码；不写时依次试 utf-8-sig、带 BOM 的 UTF-16、gb18030。

    解不开时抛出 RagLessonsError。

    >>> decode("标题：缓存".encode("gbk"))
    '标题：缓存'
    >>> decode("甲".encode("utf-16"))
    '甲'
    """
    if encoding is not None:
        try:
            return data.decode(encoding)
        except LookupError:
            raise RagLessonsError(f"没有叫 {encoding!r} 的编码；常用的是 utf-8、gb18030、utf-16、big5。") from None
        except UnicodeError as error:
            raise RagLessonsError(f"不是 {encoding} 编码（第 {getattr(error, 'start', 0)} 个字节起解不开）；请换一个 encoding=。") from None
    wide_bom = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    candidates = ("utf-16",) if wide_bom else ("utf-8-sig", "gb18030")
    for candidate in candidates:
        try:
            text = data.decode(candidate)
        except UnicodeError:
            continue
        if "\0" not in text:
            return text
    if b"\0" in data:
        raise RagLessonsError("含有零字节，像是二进制文件，不是文本；请先转成文本，或用 patterns= 排除它。")
    raise RagLessonsError("不是 UTF-8、UTF-16（带 BOM）或 GB18030；请写明编码，例如 load_document(path, encoding='big5')。")


def read_text(path: Path, encoding: str | None = None) -> Content:
    """一份纯文本文件。"""
    return Content(decode(path.read_bytes(), encoding))
