"""在真的浏览器里点答案的编号：没有信任过的 notebook（JupyterLab）和导出的网页，都要点得开。"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest
from conftest import must_run
from nbformat.v4 import new_code_cell, new_notebook, new_output

from rag_lessons import Chunk
from rag_lessons.prompting import read_answer
from rag_lessons.types import Hit

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server", "--disable-background-networking"]


def answer():
    filler = "别的条款。\n" * 80
    old = f"{filler}一线城市每人每晚 450 元。<b onclick=alert(1)>粗</b>\n{filler}"
    new = "一线城市每人每晚由 450 元调整为 500 元。"
    hits = [
        Hit(Chunk(old, "通知/旧.md", 0, len(old), headings=("差旅", "住宿")), 0.9, 1, {"dense": 0.9}),
        Hit(Chunk(new, "通知/新.md", 0, len(new)), 0.88, 2, {"dense": 0.88}),
    ]
    said = "旧的「一线城市每人每晚 450 元」[1]，新的「由 450 元调整为 500 元」[2]。\n编的「每人每晚 480 元」[1]，[7]。"
    return read_answer(said + "<script>window.hacked = 1</script><img src=x onerror='window.hacked=2'>", hits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    data = {"text/html": answer()._repr_html_(), "text/plain": "…"}
    cell = new_code_cell("answer", execution_count=1, outputs=[new_output("execute_result", data=data, execution_count=1)])
    nb = new_notebook(cells=[cell], metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})
    nbformat.write(nb, folder / "a.ipynb")
    export = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "html", "a.ipynb"]
    subprocess.run(export, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def lab(folder):
    """JupyterLab 的地址；系统挑一个空着的端口，写在运行文件里。"""
    runtime = folder / "runtime"
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.port=0", "--IdentityProvider.token=", "--allow-root",
               f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None", "--ServerApp.log_level=ERROR"]  # fmt: skip
    with (folder / "log.txt").open("wb") as log:
        env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(folder / "config")}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
    try:
        yield _address(process, runtime, folder / "log.txt")
    finally:
        process.terminate()
        process.wait(timeout=30)


def _address(process, runtime, log):
    for _ in range(240):
        for file in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError, OSError):      # 文件写到一半，或者已经写好、还没开始听
                url = json.loads(file.read_text(encoding="utf-8"))["url"]
                with urllib.request.urlopen(url + "api", timeout=10):
                    return url + "lab/tree/a.ipynb"
        if process.poll() is not None:
            break
        time.sleep(0.25)
    return pytest.fail("JupyterLab 没有起来：\n" + log.read_text(encoding="utf-8", errors="replace")[-2000:])


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        must_run("没有找到 Chromium；Debian、Ubuntu 上运行 apt install chromium fonts-noto-cjk")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.mark.parametrize("where", ["lab", "export"])
def test_numbers_open_the_passage_by_click(browser, folder, where, request):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(request.getfixturevalue("lab") if where == "lab" else (folder / "a.html").as_uri())
    shown = page.locator(".jp-RenderedHTML").first
    shown.wait_for(timeout=90_000)
    marks, numbers = shown.locator("mark"), shown.locator("summary")
    assert numbers.all_inner_texts() == ["[1]", "[2]", "[1]", "检索到的 2 段资料"]
    assert not any(mark.is_visible() for mark in marks.all()), "先是合着的"
    lines = {round(numbers.nth(n).bounding_box()["y"]) for n in (0, 1)}
    assert len(lines) == 1, "合着的时候，编号不另起一行"
    for n, quote in enumerate(["一线城市每人每晚 450 元", "由 450 元调整为 500 元", "每人每晚 450 元"]):
        numbers.nth(n).click()
        marks.nth(n).wait_for(state="visible")
        assert marks.nth(n).inner_text() == quote
    text = shown.inner_text()
    assert "数字和原文对不上" in text and "没有资料 7" in text and "通知/旧.md:1（差旅 > 住宿），第 81 行" in text
    assert "<b onclick=alert(1)>粗</b>" in text and "<script>" in text, "原文的标签当作文字显示"
    assert page.evaluate("window.hacked") is None and shown.locator("script, img").count() == 0
    numbers.nth(0).press("Enter")       # 键盘也能开合
    marks.nth(0).wait_for(state="hidden")
    numbers.nth(3).click()
    assert "[2] 通知/新.md:1" in shown.inner_text()
    page.close()
