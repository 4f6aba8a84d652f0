"""读文件：编码不猜、次序固定、坏文件不拖累别的。"""

import codecs
import os
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import docx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pdf_writer import Pdf

from rag_lessons import Document, RagLessonsError, RagLessonsWarning, load_document, load_folder
from rag_lessons.loading import decode


def link(place, target, **options):
    try:
        place.symlink_to(target, **options)
    except OSError as error:
        pytest.skip(f"这台机器不许建符号链接：{error}")


@pytest.mark.parametrize("text", ["你好", "标题：缓存", "联通", "朱镕基与喆", "€ 与 々", "说明\n\n第二段"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_short_files_in_every_usual_encoding(tmp_path, text, encoding):
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode(encoding))
    assert load_document(file).text == text


def test_gbk_only(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("你好".encode("gbk"))
    assert load_document(file) == Document("a.txt", "你好")


def test_big5_asks_for_encoding(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xff\xff\x80abc")
    with pytest.raises(RagLessonsError, match="encoding="):
        load_document(file)
    file.write_bytes("繁體".encode("big5"))
    assert load_document(file, encoding="big5").text == "繁體"
    with pytest.raises(RagLessonsError, match="没有叫"):
        load_document(file, encoding="latin-99")
    with pytest.raises(RagLessonsError, match="utf-8"):
        load_document(file, encoding="utf-8")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=60))
def test_utf8_round_trip(text):
    assert Document("a", decode(text.encode("utf-8"))).text == text
    assert Document("a", decode(codecs.BOM_UTF8 + text.encode("utf-8"))).text == text
    assert Document("a", decode(codecs.BOM_UTF16_BE + text.encode("utf-16-be"))).text == text


def test_newlines_give_the_same_document(tmp_path):
    documents = []
    for name, newline in [("lf", b"\n"), ("crlf", b"\r\n"), ("cr", b"\r")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_bytes(newline.join([b"# \xe7\x94\xb2", b"", b"\xe4\xb9\x99", b""]))
        documents.append(load_folder(tmp_path / name))
    assert documents[0] == documents[1] == documents[2]
    assert documents[0][0].text == "# 甲\n\n乙\n"


def test_folder_is_sorted_and_skips_junk(tmp_path, monkeypatch):
    for name in ["乙.md", "a.md", "sub/b.md", "sub/A.md", ".DS_Store", "~$手册.docx", "Thumbs.db", "x.pyc",
                 ".ipynb_checkpoints/a-checkpoint.md", "__pycache__/a.pyc", ".git/config"]:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("甲", encoding="utf-8")
    expected = ["a.md", "sub/A.md", "sub/b.md", "乙.md"]
    assert [d.source for d in load_folder(tmp_path)] == expected
    walk = os.walk

    def shuffled(*args, **kwargs):
        for place, folders, files in walk(*args, **kwargs):
            folders.reverse()
            yield place, folders, files[::-1]

    monkeypatch.setattr(os, "walk", shuffled)
    assert [d.source for d in load_folder(tmp_path)] == expected


def test_source_is_posix_and_nfc(tmp_path):
    name = unicodedata.normalize("NFD", "é.md")
    (tmp_path / "子").mkdir()
    (tmp_path / "子" / name).write_text("甲", encoding="utf-8")
    assert [d.source for d in load_folder(tmp_path)] == ["子/é.md"]
    assert Document("a\\b.md", "").source == "a/b.md"


def test_one_warning_for_each_unreadable_file(tmp_path):
    (tmp_path / "好.md").write_text("甲", encoding="utf-8")
    (tmp_path / "图.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xff")
    (tmp_path / "坏.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "说明.pdf").write_bytes(b"%PDF-1.4")
    link(tmp_path / "断.md", tmp_path / "没有")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        documents = load_folder(tmp_path)
    assert [d.source for d in documents] == ["好.md"]
    messages = [str(w.message) for w in caught]
    assert all(issubclass(w.category, RagLessonsWarning) for w in caught)
    assert len(messages) == 4
    for name in ("图.png", "坏.txt", "说明.pdf", "断.md"):
        assert sum(name in message for message in messages) == 1


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a.md").write_text("甲", encoding="utf-8")
    link(tmp_path / "again", tmp_path, target_is_directory=True)
    assert [d.source for d in load_folder(tmp_path)] == ["a.md"]


def test_patterns(tmp_path):
    for name in ["a.md", "b.py", "docs/c.md"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("甲", encoding="utf-8")
    assert [d.source for d in load_folder(tmp_path, patterns="*.md")] == ["a.md", "docs/c.md"]
    assert [d.source for d in load_folder(tmp_path, patterns=["docs/*", "*.py"])] == ["b.py", "docs/c.md"]


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="找不到文件"):
        load_document(tmp_path / "没有.md")
    with pytest.raises(FileNotFoundError, match="找不到文件夹"):
        load_folder(tmp_path / "没有")
    (tmp_path / "a.md").write_text("甲", encoding="utf-8")
    with pytest.raises(RagLessonsError, match="load_document"):
        load_folder(tmp_path / "a.md")
    with pytest.raises(RagLessonsError, match="load_folder"):
        load_document(tmp_path)


@pytest.mark.parametrize("name", ["big.txt", "big.pdf", "big.docx", "big.html"])
def test_a_huge_file_is_refused_without_reading(tmp_path, name):
    file = tmp_path / name
    with file.open("wb") as out:
        out.truncate(1 << 30)
    with pytest.raises(RagLessonsError, match="1024 MB"):
        load_document(file)


@pytest.mark.parametrize("name", ["a.xlsx", "a.PPTX", "a.doc", "a.rtf", "a.wps"])
def test_formats_we_do_not_read_say_what_to_do(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(RagLessonsError, match="请先"):
        load_document(tmp_path / name)


def test_the_suffix_decides_in_any_case(tmp_path):
    (tmp_path / "A.HTML").write_text("<title>题</title><p>甲</p>", encoding="utf-8")
    (tmp_path / "b.htm").write_text("<p>乙</p>", encoding="utf-8")
    Pdf().page().text(72, 700, "丙").save(tmp_path / "c.PDF")
    document = docx.Document()
    document.add_paragraph("丁")
    document.save(str(tmp_path / "d.DOCX"))
    assert [(d.source, d.text) for d in load_folder(tmp_path)] == [("A.HTML", "甲"), ("b.htm", "乙"), ("c.PDF", "丙"), ("d.DOCX", "丁")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="这个系统没有命名管道")
def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "管道.txt")
    (tmp_path / "好.md").write_text("甲", encoding="utf-8")
    with pytest.warns(RagLessonsWarning, match="管道.txt：不是普通文件"):
        assert [d.source for d in load_folder(tmp_path)] == ["好.md"]


def test_odd_names(tmp_path):
    names = ["空 格.md", "emoji😀.md", "#[1] (副本).md", "'引号'.md", "100%.md", "a" * 120 + ".md"]
    for name in names:
        (tmp_path / name).write_text("甲", encoding="utf-8")
    assert [d.source for d in load_folder(tmp_path)] == sorted(names)


@pytest.mark.skipif(sys.platform != "linux", reason="只有 Linux 的文件名是任意字节")
def test_names_in_gbk_bytes_are_readable(tmp_path):
    for raw in ("测试.md".encode("gbk"), b"\xff\xfe\xfd.md"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + raw)).write_text("甲", encoding="utf-8")
    sources = [d.source for d in load_folder(tmp_path)]
    assert "测试.md" in sources and len(sources) == 2
    assert all(source.encode("utf-8") for source in sources)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".txt", ".html", ".pdf", ".docx", ".png", ""]))
def test_any_bytes_give_a_document_or_one_sentence(tmp_path, data, suffix):
    (tmp_path / f"x{suffix}").write_bytes(data)
    try:
        document = load_document(tmp_path / f"x{suffix}")
    except RagLessonsError as error:
        assert str(error).startswith(f"x{suffix}：") and "\n" not in str(error)
    else:
        assert "\0" not in document.text and "\r" not in document.text


def test_reading_needs_no_heavy_import():
    code = ("import sys; from rag_lessons import load_document; import rag_lessons.loading;"
            "print([m for m in ('pypdf', 'docx', 'bs4', 'lxml', 'numpy') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", [None, 5, b"x", [], "\ud800", "长" * 5000, "a\0b"])
@pytest.mark.parametrize("load", [load_document, load_folder])
def test_what_is_no_path_is_one_sentence(load, path):
    with pytest.raises(RagLessonsError):
        load(path)
