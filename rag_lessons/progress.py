"""长活的进度条：让等的人看见它在动，做完不留痕迹。

只在有人看着的时候画：终端里写到 stderr；Jupyter 里用一个会更新的显示格。
程序执行 notebook 时（``start.py run``、nbval、nbclient）没有人看着，什么都不显示，
所以存下来的输出里没有进度条；重定向到文件、``%%capture`` 里也一样。
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
DELAY = 2.0  # 秒：比这短的活不必显示
INTERVAL = 0.2  # 秒：两次重画之间
WIDTH = 24
# Jupyter 里画完会清空的显示格带着这个标记，整理 notebook 时凭它删去空格子
METADATA = {"rag_lessons": {"progress": True}}


def progress(
    iterable: Iterable[T],
    total: int | None = None,
    label: str = "",
    size: Callable[[T], int] = lambda item: 1,
) -> Iterator[T]:
    """原样给出 iterable 的每一项；超过 2 秒还没做完，就显示进度。

    参数
    ----
    iterable : 要做的各项。
    total : 总量；不给就用 ``len(iterable)``，没有长度时不显示。
    label : 显示在前面的一句话。
    size : 每一项算多少量，默认每项是 1。

    >>> list(progress([1, 2, 3], label="数数"))
    [1, 2, 3]
    """
    if total is None:
        total = len(iterable) if isinstance(iterable, Sized) else 0
    bar, done = Bar(total, label), 0
    try:
        for item in iterable:
            yield item
            done += size(item)
            bar.update(done)
    finally:
        bar.close()


class Bar:
    """一根进度条：``update(已做的量)``，最后 ``close()``；没有人看着时什么都不做。

    参数
    ----
    total : 总量；0 表示不知道，不显示。
    label : 显示在前面的一句话。
    delay : 过多少秒才开始显示，默认 2 秒。
    """

    def __init__(self, total: int, label: str = "", delay: float | None = None) -> None:
        self.total, self.label = total, label
        self._start = time.monotonic()
        self._next = self._start + (DELAY if delay is None else delay)
        self._screen: _Screen | None = None
        self._tried = False

    def update(self, done: float) -> None:
        """已做了 done；离上次重画太近就不画。"""
        now = time.monotonic()
        if self.total <= 0 or now < self._next:
            return
        if not self._tried:
            self._tried, self._screen = True, _screen()
        if self._screen is not None:
            self._next = now + INTERVAL
            self._screen.show(render(self.label, done / self.total, now - self._start))

    def close(self) -> None:
        """擦掉进度条。可以多次调用。"""
        if self._screen is not None:
            self._screen.clear()
        self._screen = None


def render(label: str, share: float, seconds: float) -> str:
    """进度条的一行字。

    >>> render("计算向量", 0.25, 10)
    '计算向量 ██████░░░░░░░░░░░░░░░░░░ 25%，约还要 30 秒'
    """
    share = min(max(share, 0.0), 1.0)
    full = round(WIDTH * share)
    left = f"，约还要 {seconds / share - seconds:.0f} 秒" if share > 0 else ""
    return f"{label} {'█' * full}{'░' * (WIDTH - full)} {share:.0%}{left}".strip()


def watched() -> bool:
    """现在有没有人看着：stderr 是终端，或者前端是可以交互的 Jupyter。"""
    return _screen() is not None


class _Screen(Protocol):
    def show(self, text: str) -> None: ...

    def clear(self) -> None: ...


def _screen() -> _Screen | None:
    shell = _shell()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return _Notebook() if _interactive(shell) else None
    try:
        return _Terminal() if sys.stderr.isatty() else None
    except (AttributeError, ValueError):  # stderr 是 None（pythonw）或者已经关闭
        return None


def _shell() -> Any:
    """当前的 IPython；没有用到 IPython 时不去导入它。"""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _interactive(shell: Any) -> bool:
    """前端能不能交互。JupyterLab、VS Code 允许 input()，程序执行时（nbclient、nbval）不允许。"""
    try:
        from IPython.core.displaypub import CapturingDisplayPublisher

        if isinstance(shell.display_pub, CapturingDisplayPublisher):
            return False
        return bool(shell.kernel.get_parent()["content"]["allow_stdin"])
    except (ImportError, AttributeError, KeyError, TypeError):
        return False


class _Terminal:
    """终端：回到行首重写一行，最后擦掉。"""

    def show(self, text: str) -> None:
        encoding = sys.stderr.encoding or "ascii"
        text = text.encode(encoding, "replace").decode(encoding)
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


class _Notebook:
    """Jupyter：更新同一个显示格，最后清空它。"""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        from IPython.display import display

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True, metadata=METADATA)
        else:
            self._handle.update(data, raw=True, metadata=METADATA)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.update({}, raw=True, metadata=METADATA)
        self._handle = None
