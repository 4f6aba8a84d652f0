"""全部练习的登记处。

每课一个模块 ``lesson03.py``、``lessonA1.py``，里面有一个列表 ``EXERCISES``，装着 ``Exercise``。
编号 "4.3" 的练习在 ``lesson04.py`` 里，"A1.2" 在 ``lessonA1.py`` 里。放好文件就算登记，别处不用改。
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from rag_lessons.types import RagLessonsError

if TYPE_CHECKING:
    from rag_lessons.course.checks import Exercise


def module_name(exercise_id: str) -> str:
    """练习编号对应的模块名。

    >>> module_name("4.3"), module_name("A1.2")
    ('lesson04', 'lessonA1')
    """
    lesson = str(exercise_id).split(".")[0]
    return f"lesson{int(lesson):02d}" if lesson.isascii() and lesson.isdigit() else f"lesson{lesson}"


def lesson_modules() -> list[str]:
    """已有练习的模块名，按课的顺序。"""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("lesson"))


def load(name: str) -> list[Exercise]:
    """一课的练习。编号重复或写到了别的课里，抛出 RagLessonsError。"""
    exercises = list(importlib.import_module(f"{__name__}.{name}").EXERCISES)
    seen: set[str] = set()
    for exercise in exercises:
        if exercise.id in seen or module_name(exercise.id) != name:
            raise RagLessonsError(f"{name}.py 里的练习编号 {exercise.id} 重复或不属于这一课；请改编号。")
        seen.add(exercise.id)
    return exercises


def all_exercises() -> list[Exercise]:
    """全部练习，按课的顺序。"""
    return [exercise for name in lesson_modules() for exercise in load(name)]


def find(exercise_id: str) -> Exercise:
    """按编号取练习。没有这个编号时抛出 RagLessonsError，并列出这一课有哪些编号。"""
    name = module_name(exercise_id)
    exercises = load(name) if name in lesson_modules() else []
    for exercise in exercises:
        if exercise.id == exercise_id:
            return exercise
    known = "、".join(e.id for e in exercises)
    raise RagLessonsError(
        f"没有编号为 {exercise_id!r} 的练习；" + (f"这一课有 {known}。" if known else "请核对编号，例如 check(\"4.3\", ...)。")
    )
