"""运行外部程序。

这是所有工具里最要小心的一个，默认不开。打开之前请想清楚三件事：
它跑在谁的账户下，工作目录里有没有要紧的东西，白名单里的程序能不能再拉起别的程序。
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from errors import BadArguments, PermissionDenied, ToolTimeout
from tools.registry import Registry

#: 默认的时限与收尾的宽限，单位秒。
TIMEOUT = 20.0
GRACE = 2.0

#: 允许模型自己要求的最长时限。
MAX_TIMEOUT = 120.0

#: 传给子进程的环境变量。别的一概不传，密钥就在里面。
PASS_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT")


def run(argv: Sequence[str], cwd: Path, timeout: float = TIMEOUT) -> tuple[int, str]:
    """跑一个程序，返回退出码和输出（标准输出与标准错误合在一起）。

    默认超时 20 秒：到点先发 SIGTERM，两秒后还在就 SIGKILL。
    子进程自成一组，它再拉起的孙进程也会一并收走。
    """
    env = {k: os.environ[k] for k in PASS_ENV if k in os.environ}
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _stop(process)
        raise ToolTimeout(f"{argv[0]} 超过 {timeout:.0f} 秒") from None
    return process.returncode, output


def _stop(process: subprocess.Popen) -> None:
    """先礼后兵。Windows 上没有进程组的信号，只能停它自己。"""
    def send(number: int) -> None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.terminate()

    try:
        send(signal.SIGTERM)
        process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired:
        send(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.communicate()
    except ProcessLookupError:
        pass


def split(command: str, allow: Sequence[str]) -> list[str]:
    """拆成参数表，并检查程序在不在白名单里。

    不经过 shell，所以管道、重定向、&& 都不起作用，写了就报错，
    免得模型以为 rm 已经接在后面执行过了。
    """
    try:
        argv = shlex.split(command)
    except ValueError as exc:
        raise BadArguments(f"引号没配对：{exc}") from exc
    if not argv:
        raise BadArguments("空的")
    if any(token in ("|", ">", ">>", "<", "&&", "||", ";", "&") for token in argv):
        raise BadArguments("这里没有 shell，不能用管道、重定向和 &&")
    if argv[0] not in allow:
        raise PermissionDenied(f"{argv[0]} 不在白名单里；可用的有 {'、'.join(allow)}")
    return argv


def register(registry: Registry, root: Path, allow: Sequence[str]) -> None:
    @registry.tool("exec")
    def run_shell(command: str, timeout: float = TIMEOUT) -> str:
        """在工作目录里运行一个白名单内的程序，例如 git status。"""
        argv = split(command, allow)
        code, output = run(argv, root, min(timeout, MAX_TIMEOUT))
        return f"退出码 {code}\n{output}".rstrip()
