"""README 与实际一致：命令、课程表、链接、图。"""

import re
from pathlib import Path

import pytest

from rag_lessons.course.lessons import LESSONS, existing
from rag_lessons.paths import repo_root

ROOT = repo_root()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_come_first():
    assert re.findall(r"python start\.py( test)?", README)[:2] == ["", " test"]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_every_lesson_is_listed_as_it_is(lesson):
    if lesson.number.startswith("A"):
        assert lesson.number in README
        return
    (row,) = re.findall(rf"^\| \[?{lesson.number} .*\|$", README, re.MULTILINE)
    if lesson in existing():
        assert f"(notebooks/{lesson.stem}.ipynb)" in row and row.endswith(f"| {lesson.minutes} |")
    else:
        assert "编写中" in row
    assert lesson.title in row


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target):
    assert target.startswith("http") or (ROOT / target).exists()


def test_teaching_pages_have_no_dead_links():
    for page in Path(ROOT / "notebooks" / "teaching").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


def test_conda_name_is_the_one_in_the_file():
    name = re.search(r"^name:\s*(\S+)", (ROOT / "environment.yml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"conda activate {name}" in README
