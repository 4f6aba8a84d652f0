"""一次回复里有多个工具调用时，放到线程池里一起做。"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

#: 线程数。工具大多在等磁盘或网络，四个足够；再多，日志就看不清了。
WORKERS = 4


@dataclass(frozen=True)
class Outcome:
    """一个任务的下场：value 和 error 里恰有一个不是 None（value 也可以本来就是 None）。"""

    index: int
    value: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


def run_all(jobs: Sequence[Callable[[], Any]], workers: int = WORKERS) -> list[Outcome]:
    """把 jobs 都跑完，收齐再交。

    并行调用按提交的先后给出结果，和完成先后无关；单个出错只影响它自己那一格。
    模型靠位置把答复和调用对上号，所以次序不能乱。

    只有一个任务时不开线程，栈跟踪好读一些。
    """
    if len(jobs) == 1:
        return [_guard(0, jobs[0])]
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(jobs)))) as pool:
        futures = [pool.submit(_guard, i, job) for i, job in enumerate(jobs)]
        return [f.result() for f in futures]


def _guard(index: int, job: Callable[[], Any]) -> Outcome:
    """工具的异常收进 Outcome；KeyboardInterrupt 之类照常往外走。"""
    try:
        return Outcome(index, value=job())
    except Exception as exc:
        return Outcome(index, error=exc)


def can_parallel(levels: Sequence[str]) -> bool:
    """这一批调用能不能一起做：全是只读的才行。

    有一个要写东西，就老老实实一个一个来。两个写同一份文件的调用
    谁先谁后会得到不同的内容，这种错最难查。
    """
    return all(level == "read" for level in levels)
