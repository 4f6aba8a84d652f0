"""课程的网页：每一课都在，链接都通，断网能看，手机上不横着滚；别人的文件不动。"""

import re
import shutil
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from conftest import must_run

from rag_lessons.course import book
from rag_lessons.course.lessons import existing
from rag_lessons.types import RagLessonsError

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.ids, self.loads = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.ids.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        self.loads += [attrs[name] for name in ("src", "data") if attrs.get(name)]
        self.loads += [attrs["href"]] if tag == "link" else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("网 页") / "里面"
    book.make_book(folder)
    return folder


@pytest.fixture(scope="module")
def pages(folder):
    return {path.name: Page(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}


def test_every_lesson_has_a_page_in_the_contents(pages):
    linked = [link for link in pages["index.html"].links if link[:1].isdigit() or link[:1] == "A"]
    assert linked == [f"{lesson.stem}.html" for lesson in existing()]
    assert {*linked, "index.html", "classroom.html", "terms.html"} == set(pages)


def test_nothing_runs_and_nothing_is_fetched(pages):
    for name, page in pages.items():
        assert "script" not in page.tags and "iframe" not in page.tags, name
        assert all(load.startswith("data:") or load == "style.css" for load in page.loads), name


def test_every_link_leads_somewhere(pages):
    for name, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = pages[file or name]
            assert not anchor or anchor in target.ids or unquote(anchor) in target.ids, (name, link)


def test_figures_and_outputs_are_in_the_page(pages, folder):
    page = pages["05_semantic_gap.html"]
    assert page.tags.count("img") >= 3
    assert page.tags.count("details") >= 4
    text = (folder / "00_quickstart.html").read_text(encoding="utf-8")
    assert 'class="highlight' in text and "safety.py" in text
    assert 'class="inside"' in text


def test_a_second_run_replaces_its_own_pages_only(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "existing", lambda: existing()[:1])
    folder = tmp_path / "一"
    book.make_book(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(path.name for path in book.make_book(folder)) == sorted(before)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    tmp_path = tmp_path / "二"
    tmp_path.mkdir()
    mine = tmp_path / "index.html"
    mine.write_text("<html>我的主页</html>", encoding="utf-8")
    with pytest.raises(RagLessonsError, match="换一个文件夹"):
        book.make_book(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"] and "我的主页" in mine.read_text(encoding="utf-8")


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(book, "existing", lambda: existing()[:1])
    (tmp_path / "index.html").write_text("别人的", encoding="utf-8")
    assert book.main([str(tmp_path)]) == 1
    assert "换一个文件夹" in capsys.readouterr().err
    assert book.main([]) == book.main(["--help"]) == 2


def test_links_outside_the_book_keep_only_their_text():
    assert book.relinked('<a href="../data/README.md">语料</a>') == "语料"
    assert book.relinked('<a class="x" href="05_semantic_gap.ipynb#图">第 05 课</a>') == '<a href="05_semantic_gap.html#图">第 05 课</a>'
    assert book.relinked('<a href="../README.md">目录</a>') == '<a href="index.html">目录</a>'
    outside = '<a href="https://example.org/a.ipynb">别处</a>'
    assert book.relinked(outside) == outside


def test_reads_well_in_a_browser_without_network(folder):
    if CHROMIUM is None:
        must_run("没有找到 Chromium；Debian、Ubuntu 上运行 apt install chromium fonts-noto-cjk")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
        page = context.new_page()
        failed = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        page.goto((folder / "index.html").as_uri())
        page.get_by_role("link", name="00 一屏跑完").click()
        page.get_by_role("link", name="→").first.click()
        assert "为什么要检索" in page.inner_text("h1")
        for lesson in existing():
            page.goto((folder / f"{lesson.stem}.html").as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{lesson.stem} 在手机上宽出 {wide} 像素"
        page.locator("details summary").first.click()
        assert page.locator("details").first.get_attribute("open") is not None
        browser.close()
    assert not failed
