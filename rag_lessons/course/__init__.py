"""只为教学准备的东西：每课的 ``setup()``、画图、并排比较、练习检查。包的其余部分不依赖这里。

notebook 里这样用::

    from rag_lessons import course
    course.setup("05")

    from rag_lessons.course import check, compare, plotting
"""

from __future__ import annotations

import importlib
from typing import Any

# 名字 → 所在的模块。用到才导入：环境缺包时 doctor 也要能运行，而它就在这个包里
_HOMES = {
    "setup": "kernel",
    "embedder": "kernel",
    "generator": "kernel",
    "data_path": "kernel",
    "first_cell": "kernel",
    "report_card": "diagnosis",
    "ReportCard": "diagnosis",
    "solved": "diagnosis",
    "QuestionForm": "labelling",
    "load_questions": "labelling",
    "questions_path": "labelling",
    "compare": "comparison",
    "Comparison": "comparison",
    "check": "checks",
    "grade": "checks",
    "case": "checks",
    "Case": "checks",
    "Exercise": "checks",
    "Wrong": "checks",
    "Result": "checks",
}
_MODULES = ("plotting", "doctor", "exercises")
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"rag_lessons.course.{name}")
    if name not in _HOMES:
        raise AttributeError(f"rag_lessons.course 里没有 {name}")
    value = getattr(importlib.import_module(f"rag_lessons.course.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
