"""只为教学准备的东西：每课的 ``setup()``、画图、并排比较、练习检查。包的其余部分不依赖这里。

notebook 里这样用::

    from rag_lessons import course
    course.setup("05")

    from rag_lessons.course import check, compare, plotting
"""

from rag_lessons.course.checks import Case, Exercise, Result, Wrong, case, check, grade
from rag_lessons.course.compare import Comparison, compare
from rag_lessons.course.kernel import data_path, embedder, first_cell, setup

__all__ = [
    "Case",
    "Comparison",
    "Exercise",
    "Result",
    "Wrong",
    "case",
    "check",
    "compare",
    "data_path",
    "embedder",
    "first_cell",
    "grade",
    "setup",
]
