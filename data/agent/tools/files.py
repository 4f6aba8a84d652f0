"""和文件打交道的四个工具：读、写、列、找。

四个工具都只认相对路径，都从同一个沙箱里出发。
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from errors import BadArguments, FileTooLarge, OutsideSandbox
from tools.registry import Registry
from utils import atomic_write, human_size

#: 单次读取的上限。再大的文件请用 grep 找，或者用 start 与 lines 分段读。
MAX_READ = 256 * 1024

#: grep 最多给出多少行。
MAX_MATCHES = 50

#: 列目录和查找时不看的东西。
SKIP = {".git", "__pycache__", "node_modules", ".xiaoman"}


class Sandbox:
    """文件工具的活动范围。

    沙箱：路径先 resolve 再比对，只要不在 workspace 之内，一律抛 OutsideSandbox。
    先 resolve 是为了对付 ../ 和符号链接：看字面还在里面，跟过去就出去了。
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def path(self, text: str) -> Path:
        """相对路径变成真实路径；出界就抛错。"""
        target = (self.root / text).resolve()
        if target != self.root and self.root not in target.parents:
            raise OutsideSandbox(f"{text} 不在工作目录里")
        return target

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def walk(self) -> list[Path]:
        """里面的全部文件，按路径排序，跳过 SKIP。"""
        found = []
        for path in sorted(self.root.rglob("*")):
            parts = path.relative_to(self.root).parts
            if path.is_file() and not SKIP.intersection(parts):
                found.append(path)
        return found


def decode(data: bytes, name: str) -> str:
    """先按 UTF-8 读，不行再按 GB18030；都不行就说它不是文本。"""
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise BadArguments(f"{name} 看起来不是文本文件")


def register(registry: Registry, root: Path) -> None:
    """把四个工具登记进去。"""
    box = Sandbox(root)

    @registry.tool("read")
    def read_file(path: str, start: int = 1, lines: int = 400) -> str:
        """读一个文本文件，带行号。start 是起始行（从 1 数起），lines 是最多读几行。"""
        target = box.path(path)
        if not target.is_file():
            raise BadArguments(f"没有这个文件：{path}")
        size = target.stat().st_size
        if size > MAX_READ:
            raise FileTooLarge(f"{path} 有 {human_size(size)}，单次最多 {human_size(MAX_READ)}")
        if start < 1 or lines < 1:
            raise BadArguments("start 和 lines 都从 1 数起")
        content = decode(target.read_bytes(), path).splitlines()
        chosen = content[start - 1 : start - 1 + lines]
        body = "\n".join(f"{n:>5}  {line}" for n, line in enumerate(chosen, start))
        rest = len(content) - (start - 1 + len(chosen))
        return body + (f"\n（后面还有 {rest} 行）" if rest > 0 else "")

    @registry.tool("write")
    def write_file(path: str, content: str, append: bool = False) -> str:
        """写一个文本文件；append 为 true 时接在末尾，否则整个换掉。目录不存在会自动建。"""
        target = box.path(path)
        if target.is_dir():
            raise BadArguments(f"{path} 是一个目录")
        old = target.read_text(encoding="utf-8") if append and target.exists() else ""
        atomic_write(target, old + content)
        return f"已写入 {box.relative(target)}，共 {len(old + content)} 字"

    @registry.tool("read")
    def list_dir(path: str = ".") -> str:
        """列出一个目录：目录在前，文件在后，文件带大小。"""
        target = box.path(path)
        if not target.is_dir():
            raise BadArguments(f"没有这个目录：{path}")
        entries = [p for p in target.iterdir() if p.name not in SKIP]
        entries.sort(key=lambda p: (p.is_file(), p.name))
        if not entries:
            return "（空目录）"
        return "\n".join(
            f"{p.name}  {human_size(p.stat().st_size)}" if p.is_file() else f"{p.name}/" for p in entries
        )

    @registry.tool("read", cacheable=False)
    def grep(pattern: str, glob: str = "*") -> str:
        """在所有文件里找一个正则，给出「文件:行号: 内容」。glob 限定文件名，例如 *.md。"""
        try:
            compiled = re.compile(pattern)
        except re.error as exc:
            raise BadArguments(f"正则写错了：{exc}") from exc
        found: list[str] = []
        for path in box.walk():
            if not fnmatch.fnmatch(path.name, glob) or path.stat().st_size > MAX_READ:
                continue
            try:
                text = decode(path.read_bytes(), path.name)
            except BadArguments:
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                if compiled.search(line):
                    found.append(f"{box.relative(path)}:{number}: {line.strip()[:200]}")
                    if len(found) == MAX_MATCHES:
                        return "\n".join(found) + f"\n（只列前 {MAX_MATCHES} 处，请把正则写窄一些）"
        return "\n".join(found) or "没有找到"
