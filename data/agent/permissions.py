"""动手之前问一声。

工具分三级：read 只看不动；write 会改工作目录里的文件；exec 会运行外面的程序。
级别写在工具登记的地方，这里只管问不问、怎么问、记不记得上次的回答。
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from errors import PermissionDenied
from log import get_logger

logger = get_logger("permissions")


class Level(str, Enum):
    """工具的级别，从轻到重。"""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"


class Answer(Enum):
    """用户的回答。"""

    YES = "y"
    NO = "n"
    ALWAYS = "a"


def ask_terminal(question: str) -> Answer:
    """在终端里问。直接回车、按 Ctrl-D、乱答三次，都算不同意。"""
    for _ in range(3):
        try:
            text = input(f"{question} [y 同意 / n 拒绝 / a 本次会话都同意] ").strip().lower()
        except EOFError:
            return Answer.NO
        if text in ("y", "n", "a"):
            return Answer(text)
        if not text:
            return Answer.NO
    return Answer.NO


class Gate:
    """权限确认只对 write 与 exec 两级工具弹出，read 级直接放行。

    mode 有三种：ask 每次问；auto 不问，全部放行，只该用在一次性的容器里；
    deny 不问，除了 read 一概拒绝，适合给别人演示。

    回答 a 之后，同一个会话里同一个工具不再问，换一个工具照样问。
    exec 级没有这个待遇：每一回都要重新点头，答 a 等于答 y。
    """

    def __init__(self, mode: str = "ask", ask: Callable[[str], Answer] = ask_terminal) -> None:
        if mode not in ("ask", "auto", "deny"):
            raise ValueError("mode 只能是 ask、auto 或 deny")
        self.mode = mode
        self._ask = ask
        self._always: set[str] = set()

    def require(self, tool: str, level: Level, summary: str) -> None:
        """放行就什么都不做，不放行抛 PermissionDenied。"""
        if level is Level.READ:
            return
        if self.mode == "auto":
            logger.info("自动放行 %s：%s", tool, summary)
            return
        if self.mode == "deny":
            raise PermissionDenied(f"当前模式不允许 {tool}（{level.value} 级）")
        if level is Level.WRITE and tool in self._always:
            return
        answer = self._ask(f"{tool} 想要：{summary}")
        if answer is Answer.NO:
            raise PermissionDenied(f"用户拒绝了 {tool}")
        if answer is Answer.ALWAYS and level is Level.WRITE:
            self._always.add(tool)

    def reset(self) -> None:
        """会话结束时忘掉所有「都同意」。"""
        self._always.clear()
