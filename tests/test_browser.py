"""在真的浏览器里走一遍：start.py 打开 JupyterLab，运行 00 课的全部格子，看到带出处的答案。

浏览器是系统里的 Chromium。本机没有时跳过并说明；在 CI（环境变量 CI）里没有就是失败。
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import Installed, must_run
from test_start import free_port, running

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
FINISH_SECONDS = 420  # 缓存是空的，资料库要在这里读一遍

# 页面里用到的每个非 ASCII 字符，各按所在元素的字体画一次；和「没有字形」画得一样的就是方框。
FIND_BOXES = """
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 48;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const draw = (font, char) => {
    pen.clearRect(0, 0, 48, 48);
    pen.font = "32px " + font;
    pen.textBaseline = "top";
    pen.fillText(char, 4, 4);
    return pen.getImageData(0, 0, 48, 48).data.join(",");
  };
  const seen = {}, boxes = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!element || element.closest("script, style, noscript, .jp-icon-hidden")) continue;
    const font = getComputedStyle(element).fontFamily;
    seen[font] = seen[font] || new Set();
    for (const char of walker.currentNode.textContent)
      if (char > "\\u00a0" && char.trim() && !/\\p{Cf}|\\p{Co}/u.test(char)) seen[font].add(char);
  }
  let count = 0, control = 0;
  for (const font in seen) {
    const missing = new Set([draw(font, "\\u0378"), draw(font, "\\u{2fe0}")]);
    control += missing.has(draw(font, "\\u0379"));
    for (const char of seen[font]) {
      count += 1;
      if (missing.has(draw(font, char))) boxes.add(char);
    }
  }
  return {count, control, fonts: Object.keys(seen).length, boxes: [...boxes].join("")};
}
"""


@pytest.fixture(scope="module")
def page(installed: Installed) -> Iterator:
    """打开了 00 课的页面；顺带保存 Jupyter 的输出。"""
    if CHROMIUM is None:
        must_run("没有找到 Chromium；Debian、Ubuntu 上运行 apt install chromium fonts-noto-cjk")
    if not (installed.root / "my" / "00_quickstart.ipynb").exists():
        must_run("还没有 00 课")
    from playwright.sync_api import sync_playwright

    with (
        running(installed, "--no-browser", "--port", str(free_port()), "--expose-app-in-browser") as (_, address, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, locale="en-US")
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
        yield page
        browser.close()


def test_opens_the_quickstart_in_chinese_without_news_prompt(page) -> None:
    page.wait_for_selector("text=文件", timeout=30_000)
    menus = page.locator(".lm-MenuBar-itemLabel").all_inner_texts()
    assert {"文件", "编辑", "查看", "运行", "内核"} <= {m.strip() for m in menus}, menus
    assert page.locator(".jp-mod-current .lm-TabBar-tabLabel, .lm-mod-current .lm-TabBar-tabLabel").filter(
        has_text="00_quickstart.ipynb"
    ).count()
    page.wait_for_timeout(4_000)  # 新闻询问在启动几秒后才弹出
    assert page.locator(".Toastify__toast").count() == 0, page.locator(".Toastify__toast").all_inner_texts()
    assert "Jupyter news" not in page.inner_text("body")


def run_all_cells(page, path: Path) -> nbformat.NotebookNode:
    """从菜单「运行 → 运行所有单元格」，等到跑完，保存，读回文件。"""
    page.locator(".lm-MenuBar-itemLabel", has_text="运行").first.click()
    page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
    deadline = time.monotonic() + FINISH_SECONDS
    while time.monotonic() < deadline:
        page.wait_for_timeout(1_000)
        status = page.evaluate(
            """() => {
                const panel = window.jupyterapp.shell.currentWidget;
                const cells = [...panel.content.widgets].filter(c => c.model.type === "code");
                return {kernel: panel.sessionContext.session?.kernel?.status,
                        waiting: cells.filter(c => c.model.executionCount === null
                                              || c.model.executionState === "running").length};
            }"""
        )
        if status == {"kernel": "idle", "waiting": 0}:
            break
    else:
        pytest.fail(f"{FINISH_SECONDS} 秒没有跑完：{status}")
    before = path.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    for _ in range(100):
        page.wait_for_timeout(100)
        if path.stat().st_mtime_ns != before and page.locator(".jp-mod-dirty").count() == 0:
            break
    return nbformat.read(path, as_version=4)


def test_run_all_finds_the_answer_with_its_source(page, installed: Installed) -> None:
    path = installed.root / "my" / "00_quickstart.ipynb"
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:  # 从没有输出的一份开始：看到的答案是这次算出来的
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(nb, path)
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
        timeout=90_000,
    )
    nb = run_all_cells(page, path)
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    errors = [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert not errors, errors
    text = "\n".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs)
    assert "安全阀" in text and "safety.py" in text and "来源：" in text
    assert any("image/png" in o.get("data", {}) for o in outputs), "至少一张图"


def test_answer_is_visible_and_nothing_is_a_box(page) -> None:
    """一格一格滚过整本：答案看得见，没有出错的输出，没有显示成方框的字。"""
    boxes, seen, chars = set(), "", 0
    total = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")
    for number in range(0, total, 3):
        page.evaluate("n => window.jupyterapp.shell.currentWidget.content.scrollToItem(n, 'start')", number)
        page.wait_for_timeout(150)
        found = page.evaluate(FIND_BOXES)
        assert found["control"] == found["fonts"], "对照：两个没有字形的字符应画得一样"
        boxes |= set(found["boxes"])
        chars = max(chars, found["count"])
        seen += page.locator(".jp-Notebook").first.inner_text()
        assert page.locator('.jp-RenderedText[data-mime-type="application/vnd.jupyter.error"]').count() == 0
        assert page.locator('.jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    assert chars > 100 and not boxes, f"显示成方框：{boxes}"
    assert "safety.py:" in seen and "来源：" in seen
    broken = page.evaluate("() => [...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert broken == 0


def test_the_box_detector_can_fail(page) -> None:
    page.evaluate("() => document.querySelector('.jp-Notebook').append('\\u0378 好')")
    assert page.evaluate(FIND_BOXES)["boxes"] == "\u0378"
    page.evaluate("() => document.querySelector('.jp-Notebook').lastChild.remove()")
    assert page.evaluate(FIND_BOXES)["boxes"] == ""

