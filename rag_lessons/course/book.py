"""把全部课程做成一个文件夹的网页：不用装任何东西就能读，手机上也行，断网也行。

命令行：``python start.py book [文件夹]``，或 ``python -m rag_lessons.course.book 文件夹``。

页面里没有脚本，也不从网上取东西；图在页面里面。输出用的是 notebook 里存着的那些，这里不执行代码。
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rag_lessons.course.lessons import Lesson, existing, neighbours
from rag_lessons.course.notebooks import read, tags
from rag_lessons.paths import repo_root
from rag_lessons.types import RagLessonsError

TITLE = "从零手写 RAG"
STYLE_FILE = "style.css"
TEACHING = (("classroom", "给老师"), ("terms", "术语表"))
MARK = "<!-- 从零手写 RAG：start.py book -->"

STYLE = """
:root { --ink: #1c1c1c; --paper: #fff; --faint: #6a6a6a; --line: #dcdcdc; --code: #f6f7f8; --link: #0b5fa5; }
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 17px/1.75 "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", sans-serif }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem }
p, li, summary, blockquote { max-width: 48rem }
a { color: var(--link) }
nav.bar { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--line); padding-bottom: .5rem }
nav.bar.end { border: 0; border-top: 1px solid var(--line); padding-top: .5rem; margin-top: 3rem }
nav.inside { background: var(--code); padding: .75rem 1.25rem; margin: 1rem 0; columns: 2 16rem; font-size: .95rem }
nav.inside a { display: block; text-decoration: none; break-inside: avoid }
h1, h2, h3 { line-height: 1.35; margin: 2.2rem 0 .8rem } h1 { font-size: 1.8rem } h2 { font-size: 1.35rem } h3 { font-size: 1.1rem }
.anchor-link { display: none }
pre, code { font-family: Consolas, Menlo, "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace; font-size: .8rem }
pre { line-height: 1.5; overflow-x: auto; margin: 0; padding: .6rem .8rem }
.highlight, .text_cell_render pre, details pre { background: var(--code); border-left: 3px solid var(--line) }
.highlight pre { padding: .6rem .8rem }
:not(pre) > code { background: var(--code); padding: .05rem .25rem }
.jp-OutputArea { margin: .25rem 0 1.25rem; overflow-x: auto } .output_stderr pre { color: #a33 }
img, svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: .95rem; margin: .75rem 0; display: block; max-width: 100%; overflow-x: auto } th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left }
blockquote { margin: .75rem 0; padding: .1rem 1rem; border-left: 3px solid var(--line); color: var(--faint) }
details { border: 1px solid var(--line); padding: .4rem .9rem; margin: .6rem 0 } summary { cursor: pointer; color: var(--link) }
.minutes { color: var(--faint); white-space: nowrap }
@media print { body { font-size: 11pt } nav { display: none } pre { white-space: pre-wrap } details > * { display: block } }
"""


def code_colors() -> str:
    """代码的颜色。"""
    from pygments.formatters import HtmlFormatter

    colors = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    return "\n".join(line for line in colors.splitlines() if line.startswith(".highlight .")) + "\n"


def page(title: str, body: str) -> str:
    """一整页 HTML。"""
    return (
        f'<!doctype html>\n{MARK}\n<html lang="zh-CN">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="stylesheet" href="{STYLE_FILE}"></head>\n<body><main>\n{body}\n</main></body>\n</html>\n'
    )


def relinked(body: str) -> str:
    """指向 notebook 和目录的链接改成指向网页；指向这套网页里没有的文件的链接，只留文字。"""

    def change(match: re.Match[str]) -> str:
        target, text = html.unescape(match["href"]), match["text"]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        name, _, anchor = target.partition("#")
        stem = Path(name).stem
        if name.endswith(".ipynb") and stem in {lesson.stem for lesson in existing()}:
            new = f"{stem}.html"
        elif Path(name).name == "README.md" and "data" not in name:
            new = "index.html"
        elif stem in dict(TEACHING):
            new = f"{stem}.html"
        else:
            return text
        return f'<a href="{new}{"#" + anchor if anchor else ""}">{text}</a>'

    return re.sub(r'<a\b[^>]*?href="(?P<href>[^"]*)"[^>]*>(?P<text>.*?)</a>', change, body, flags=re.S)


def bar(lesson: Lesson, end: bool = False) -> str:
    """上一课、目录、下一课。"""
    before, after = neighbours(lesson)
    left = f'<a href="{before.stem}.html">← {before.label}</a>' if before else "<span></span>"
    right = f'<a href="{after.stem}.html">{after.label} →</a>' if after else "<span></span>"
    return f'<nav class="bar{" end" if end else ""}">{left}<a href="index.html">目录</a>{right}</nav>'


def lesson_page(lesson: Lesson) -> str:
    """一课的网页：首尾导航换成网页的，小节列在前面。"""
    from nbconvert import HTMLExporter

    notebook = read(lesson.path)
    notebook.cells = [cell for cell in notebook.cells if "nav" not in tags(cell)]
    body, _ = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True).from_notebook_node(notebook)
    sections = re.findall(r'<h2 id="([^"]*)">(.*?)(?:<a class="anchor-link".*?)?</h2>', body, flags=re.S)
    inside = "".join(f'<a href="#{name}">{re.sub("<[^>]+>", "", text)}</a>' for name, text in sections)
    head, mark, rest = body.partition("</h1>")
    body = f'{head}{mark}<nav class="inside">{inside}</nav>{rest}' if inside and mark else body
    return page(f"{lesson.label} · {TITLE}", f"{bar(lesson)}\n{relinked(body)}\n{bar(lesson, end=True)}")


def teaching_page(name: str, title: str) -> str:
    """给老师的话、术语表。"""
    from markdown_it import MarkdownIt

    text = (repo_root() / "notebooks" / "teaching" / f"{name}.md").read_text(encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(text)
    return page(f"{title} · {TITLE}", f'<nav class="bar"><a href="index.html">目录</a></nav>\n{relinked(body)}')


def index_page() -> str:
    """目录。"""
    rows = "".join(
        f'<tr><td><a href="{lesson.stem}.html">{lesson.number} {html.escape(lesson.title)}</a></td>'
        f'<td>{html.escape(lesson.summary)}</td><td class="minutes">{lesson.minutes} 分钟</td></tr>\n'
        for lesson in existing()
    )
    links = "　".join(f'<a href="{name}.html">{title}</a>' for name, title in TEACHING)
    return page(TITLE, f"<h1>{TITLE}</h1>\n<p>这里只能读。要动手改、做练习，在课程文件夹里运行 <code>python start.py</code>。</p>\n"
                       f"<table>\n{rows}</table>\n<p>{links}</p>")


def make_book(folder: Path | str) -> list[Path]:
    """把全部课程写成网页，放进文件夹，返回写了哪些文件。

    文件夹里已有的、不是这个函数写的同名文件不会被盖掉：那时一个文件也不写，抛出 RagLessonsError。
    """
    folder = Path(folder)
    lessons = existing()
    if not lessons:
        raise RagLessonsError("notebooks/ 里一课也没有；请在完整的课程文件夹里运行。")
    pages = {"index.html": index_page()}
    pages |= {f"{lesson.stem}.html": lesson_page(lesson) for lesson in lessons}
    pages |= {f"{name}.html": teaching_page(name, title) for name, title in TEACHING}
    folder.mkdir(parents=True, exist_ok=True)
    for name in pages:
        path = folder / name
        if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:200]:
            raise RagLessonsError(f"{path} 已经在那里，而且不是课程的网页；请换一个文件夹。")
    pages[STYLE_FILE] = STYLE.lstrip() + code_colors()
    written = []
    for name, text in pages.items():
        path = folder / name
        beside = path.with_name(f"{name}.part")
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
        written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("用法：python -m rag_lessons.course.book 文件夹", file=sys.stderr)
        return 2
    try:
        written = make_book(Path(arguments[0]).expanduser())
    except RagLessonsError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"写好 {len(written)} 个文件。打开 {written[0].resolve()} 开始读。")
    return 0


if __name__ == "__main__":
    sys.exit(main())
