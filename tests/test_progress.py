"""进度条：有人看着才画，做完不留痕迹；存下来的 notebook、重定向的输出里没有它。"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from rag_lessons.progress import METADATA, Bar, progress, render

ROOT = Path(__file__).resolve().parents[1]
# 进度条立刻就画，不等 2 秒
CODE = """\
import time
import rag_lessons.progress as p
p.DELAY = p.INTERVAL = 0.0
print("前")
for item in p.progress([1, 2, 3], label="数数"):
    time.sleep(0.05)
    print(item)
print("后")
"""


def execute(cell, allow_stdin):
    """在真的内核里运行一格，返回 (输出的类型, 数据) 的列表，像前端那样。"""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    messages = []
    try:
        reply = client.execute_interactive(
            cell, allow_stdin=allow_stdin, timeout=60, output_hook=lambda m: messages.append((m["msg_type"], m["content"]))
        )
        assert reply["content"]["status"] == "ok", reply
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return messages


def test_items_pass_through_unchanged():
    assert list(progress(iter("abc"), total=3)) == ["a", "b", "c"]
    assert list(progress([], label="空")) == []
    assert list(progress(x for x in (1, 2))) == [1, 2]


def test_render_stays_in_range():
    assert render("x", 0, 1).endswith("0%")
    assert "100%" in render("x", 1.7, 1) and "0 秒" in render("x", 1, 9)


def test_errors_inside_and_early_stops_close_the_bar():
    steps = progress([1, 2, 3])
    assert next(steps) == 1
    steps.close()
    with pytest.raises(ZeroDivisionError):
        for _ in progress([1, 2]):
            raise ZeroDivisionError


def test_nothing_is_drawn_when_nobody_watches():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, cwd=ROOT, text=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["前", "1", "2", "3", "后"]


def test_closed_stderr_is_no_accident():
    text = "import sys\nsys.stderr = None\n" + CODE
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, cwd=ROOT, text=True, encoding="utf-8")
    assert done.returncode == 0 and done.stdout.split()[-1] == "后"


@pytest.mark.skipif(os.name == "nt", reason="伪终端只在类 Unix 系统上有")
def test_a_terminal_sees_it_move_and_vanish():
    import pty

    master, slave = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=slave, cwd=ROOT)
    out, _ = done.communicate(timeout=60)
    os.close(slave)
    drawn = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:
            break
        if not block:
            break
        drawn += block
    os.close(master)
    text = drawn.decode("utf-8")
    assert "数数" in text and "33%" in text and "100%" in text
    assert text.endswith("\r\x1b[2K") and "\n" not in text
    assert out.decode("utf-8").split() == ["前", "1", "2", "3", "后"]


def test_executed_notebooks_store_nothing(tmp_path):
    from nbclient import NotebookClient

    notebook = new_notebook(cells=[new_code_cell(CODE)])
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = notebook.cells[0].outputs
    assert [(o.output_type, o.get("name")) for o in outputs] == [("stream", "stdout")]
    assert outputs[0].text.split() == ["前", "1", "2", "3", "后"]
    path = tmp_path / "n.ipynb"
    nbformat.write(notebook, path)
    compared = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-c", os.devnull, str(path)],
        capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert compared.returncode == 0, compared.stdout


def test_someone_watching_sees_it_and_it_ends_empty():
    messages = execute(CODE, allow_stdin=True)
    drawn = [content for kind, content in messages if kind in ("display_data", "update_display_data")]
    assert "数数" in drawn[0]["data"]["text/plain"] and len(drawn) == 4
    assert drawn[-1]["data"] == {} and drawn[-1]["metadata"] == METADATA
    assert len({content["transient"]["display_id"] for content in drawn}) == 1
    printed = "".join(content["text"] for kind, content in messages if kind == "stream")
    assert printed.split() == ["前", "1", "2", "3", "后"]


def test_captured_cells_hold_no_bar():
    cell = "%%capture caught\n" + CODE
    messages = execute(cell, allow_stdin=True)
    assert [kind for kind, _ in messages if "display" in kind] == []


def test_quick_work_draws_nothing(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    start = time.monotonic()
    for _ in progress(range(10), label="快"):
        pass
    assert time.monotonic() - start < 2 and capsys.readouterr().err == ""


def test_bar_may_be_closed_twice_and_without_a_total():
    bar = Bar(0, "不知道总量", delay=0)
    bar.update(5)
    bar.close()
    bar.close()
