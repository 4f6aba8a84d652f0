"""setup()、第一格、embedder()、compare()。"""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rag_lessons import Chunk, ToyEmbedder, VectorIndex, course
from rag_lessons.course.comparison import matcher
from rag_lessons.course.kernel import cap_threads
from rag_lessons.evaluation import Gold, Question
from rag_lessons.types import Hit, RagLessonsError

ROOT = Path(__file__).resolve().parents[1]
OFFLINE_LINE = "嵌入：multilingual-e5-small（4-bit，本机 numpy）　回答：抽取式（不调用模型）"


def run(code, *options, cwd=None, **environment):
    """在新进程里运行一段代码，返回 CompletedProcess。"""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RAG_LESSONS", "ZHIPUAI", "OPENBLAS", "OMP"))}
    return subprocess.run(
        [sys.executable, "-X", "utf8", *options, "-c", code], capture_output=True, encoding="utf-8", cwd=cwd,
        env={**env, **environment},
    )  # fmt: skip


SETUP = "from rag_lessons import course\ncourse.setup('05')"


# ---------- setup ----------


@pytest.mark.parametrize("key", [{}, {"ZHIPUAI_API_KEY": "abc.def"}])
def test_offline_setup_prints_one_line_whatever_the_keys(key):
    done = run(SETUP, RAG_LESSONS_OFFLINE="1", **key)
    assert done.stdout == OFFLINE_LINE + "\n" and done.stderr == ""


@pytest.mark.parametrize(("name", "says"), [
    ("ZHIPUAI_API_KEY", "回答：智谱 "), ("OPENAI_API_KEY", "回答：OpenAI 兼容服务 "), ("ANTHROPIC_API_KEY", "回答：Anthropic "),
])  # fmt: skip
def test_the_answering_service_is_the_one_whose_key_is_set(name, says):
    code = "from rag_lessons import course; course.setup('00'); print(type(course.generator()).__name__)"
    secret = "0123abcd.SecretPart9876"
    done = run(code, RAG_LESSONS_OFFLINE="", **{name: secret})
    assert says in done.stdout and done.stdout.split()[-1] == "ChatGenerator"
    assert secret not in done.stdout + done.stderr
    offline = run(code, RAG_LESSONS_OFFLINE="1", **{name: secret})
    assert "回答：抽取式" in offline.stdout and offline.stdout.split()[-1] == "ExtractiveGenerator"


def test_setup_with_a_key_names_the_service_and_not_the_key():
    done = run(SETUP, ZHIPUAI_API_KEY="secret-value-1")
    assert done.stdout.count("\n") == 1 and "zhipuai embedding-3" in done.stdout
    assert "secret" not in done.stdout + done.stderr


def test_setup_does_not_load_the_model_or_the_network():
    code = SETUP + "\nimport sys\nprint([m for m in ('rag_lessons.embedding.e5', 'zhipuai', 'openai', 'sklearn', 'zhplot') if m in sys.modules])"
    assert run(code, RAG_LESSONS_OFFLINE="1").stdout.splitlines()[1] == "[]"


def test_setup_rejects_a_number():
    with pytest.raises(RagLessonsError, match="字符串"):
        course.setup(5)


def test_importing_course_loads_nothing_heavy():
    code = "import rag_lessons.course, sys; print([m for m in ('numpy', 'matplotlib') if m in sys.modules])"
    assert run(code).stdout == "[]\n"


def test_every_public_name_exists():
    assert all(getattr(course, name) is not None for name in course.__all__)
    assert callable(course.compare) and course.plotting.COLORS and course.doctor.main
    with pytest.raises(AttributeError, match="没有 nothing"):
        course.nothing  # noqa: B018


@pytest.mark.parametrize("first", ["comparison", "checks", "kernel", "plotting"])
def test_names_do_not_depend_on_the_import_order(first):
    code = f"import rag_lessons.course.{first}\nfrom rag_lessons.course import compare, check, setup\nprint(callable(compare))"
    assert run(code).stdout == "True\n"


def test_threads_are_capped_and_never_raised():
    code = (
        "from rag_lessons.course.kernel import cap_threads\nfrom threadpoolctl import threadpool_info\n"
        "n = cap_threads()\nprint(n, max(p['num_threads'] for p in threadpool_info() if p['user_api'] == 'blas'))"
    )
    assert run(code, OPENBLAS_NUM_THREADS="1").stdout == "1 1\n"
    many, now = map(int, run(code, OPENBLAS_NUM_THREADS="16").stdout.split())
    assert many == now <= 4
    assert cap_threads(1) == 1


# ---------- 第一格 ----------


def test_first_cell_is_short_and_runs():
    cell = course.first_cell("05")
    assert len(cell.splitlines()) <= 6
    assert run(cell, RAG_LESSONS_OFFLINE="1").stdout == OFFLINE_LINE + "\n"


def test_first_cell_in_the_wrong_kernel_names_the_fix(tmp_path):
    done = run(course.first_cell("05"), "-I", "-S", cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: 当前内核里没有 rag_lessons。") and "右上角" in last and "start.py" in last
    assert "During handling" not in done.stderr


def test_first_cell_of_every_notebook():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        first = next("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")
        assert first == course.first_cell(path.name.split("_")[0]), path.name


# ---------- embedder、data_path ----------


def test_embedder_is_shared_and_cached(tmp_path):
    code = (
        "from rag_lessons import course\na = course.embedder('toy')\n"
        "print(type(a).__name__, a is course.embedder('toy'), a.embed_documents(['甲乙', '甲乙']).shape, a.misses)"
    )
    assert run(code, RAG_LESSONS_CACHE=str(tmp_path)).stdout == "CachedEmbedder True (2, 1024) 1\n"
    assert run(code, RAG_LESSONS_CACHE=str(tmp_path)).stdout == "CachedEmbedder True (2, 1024) 0\n"
    assert (tmp_path / "vectors.sqlite").is_file()


def test_auto_follows_the_settings(tmp_path):
    code = "from rag_lessons import course\nprint(course.embedder().space.split('/')[0])"
    assert run(code, RAG_LESSONS_CACHE=str(tmp_path), RAG_LESSONS_OFFLINE="1", ZHIPUAI_API_KEY="a").stdout == "e5\n"
    assert run(code, RAG_LESSONS_CACHE=str(tmp_path), ZHIPUAI_API_KEY="a").stdout == "zhipu\n"


def test_data_path_does_not_depend_on_the_working_folder(tmp_path):
    code = "from rag_lessons import course\nprint(course.data_path('agent').is_dir())"
    for folder in (ROOT, ROOT / "notebooks", tmp_path):
        assert run(code, cwd=folder).stdout == "True\n"


# ---------- compare ----------

TEXTS = [
    "安全阀在步数用完时停下来",
    '日志</td><script>x</script> & "引号"',
    "重试的次数\n\n    上限\t是三次\u202e反\u202c",
    "缓存" + "放在用户的缓存文件夹里，" * 20 + "金句在这里，" + "后面还有很多字" * 20,
]
CHUNKS = [Chunk(text, f"<f{i}>&.py", 0, len(text)) for i, text in enumerate(TEXTS)]
INDEX = VectorIndex.build(CHUNKS, ToyEmbedder(256))


class Reader(HTMLParser):
    """读 HTML：配对的标签、文字、属性。"""

    def __init__(self, text):
        super().__init__()
        self.stack, self.text, self.tags, self.styles, self.names = [], "", [], "", set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.names |= {name for name, _ in attributes}
        self.styles += ";".join(value for name, value in attributes if name == "style") + ";"
        if tag != "br":
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_compare_html_is_escaped_and_well_formed():
    result = course.compare('<i>日志</i> "问"', {"玩<具>": INDEX, "e5": INDEX}, k=4)
    read = Reader(result._repr_html_())
    assert read.stack == [] and "script" not in read.tags and "i" not in read.tags
    assert '日志</td><script>x</script> & "引号"' in read.text and "<f1>&.py:1" in read.text
    assert "\u202e" not in read.text + repr(result)
    assert read.names <= {"style", "scope", "colspan"}  # 没有随机的 id


def test_compare_is_legible_on_dark_and_light():
    read = Reader(course.compare("日志", {"玩具": INDEX}, gold="日志")._repr_html_())
    declared = [part.split(":") for part in read.styles.split(";") if part]
    assert ["color", "inherit"] in declared and ["background", "transparent"] in declared
    assert {value for name, value in declared if name in ("color", "background")} == {"inherit", "transparent"}
    assert "✓" in read.text  # 正确段落不只靠颜色


def test_compare_marks_gold_and_tells_its_rank():
    result = course.compare("安全阀在哪里", {"甲": INDEX, "乙": INDEX}, k=2, gold="金句在这里")
    assert set(result.gold_ranks) == {"甲", "乙"}
    rank = result.gold_ranks["甲"]
    hits = INDEX.search("安全阀在哪里", k=4)
    assert hits[rank - 1].chunk.source == "<f3>&.py"
    assert f"正确段落：第 {rank} 名" in repr(result) and f"正确段落：第 {rank} 名" in result._repr_html_()
    assert len(result.columns["甲"]) == 2
    nothing = course.compare("安全阀在哪里", {"甲": INDEX}, gold="没有这句")
    assert nothing.gold_ranks == {"甲": None} and "前 50 名里没有" in repr(nothing)
    assert course.compare("安全阀", {"甲": INDEX}).gold_ranks == {}


def test_quote_deep_in_a_chunk_is_shown():
    result = course.compare("缓存放在哪里", {"甲": INDEX}, k=1, gold="金句在这里")
    row = result.columns["甲"][0]
    assert row.gold and "金句在这里" in row.snippet and row.snippet.startswith("…")
    assert "<b>金句在这里</b>" in result._repr_html_()
    plain = course.compare("缓存放在哪里", {"甲": INDEX}, k=1).columns["甲"][0]
    assert len(plain.snippet) == 41 and plain.snippet.endswith("…")


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("步数用完", [0]),
        ("<f1>&.py", [1]),
        ({"source": "<f2>&.py", "quote": "重试"}, [2]),
        ({"source": "<f0>&.py", "quote": "重试"}, []),
        (Gold("<f2>&.py", "重试"), [2]),
        (Question("q", "？", "literal", (Gold("<f0>&.py", "安全阀"), Gold("<f2>&.py", "上限"))), [0, 2]),
        (lambda chunk: "日志" in chunk.text, [1]),
        (["步数", lambda chunk: chunk.source == "<f3>&.py"], [0, 3]),
        (None, []),
    ],
)
def test_gold_forms(gold, expected):
    match = matcher(gold)
    assert [i for i, chunk in enumerate(CHUNKS) if match(chunk) is not None] == expected


def test_blank_gold_and_bad_arguments():
    for call in (
        lambda: course.compare("问", {"a": INDEX}, gold="  "),
        lambda: course.compare("问", {}),
        lambda: course.compare("问", [INDEX]),
        lambda: course.compare("问", {"a": INDEX}, k=0),
    ):
        with pytest.raises(RagLessonsError):
            call()


class Fixed:
    """给什么返回什么的检索器。"""

    def __init__(self, hits):
        self.hits = hits

    def search(self, query, k=3):
        return self.hits[:k]


def test_compare_with_unequal_and_empty_columns():
    hits = [Hit(CHUNKS[0], -0.0001, 1), Hit(CHUNKS[1], np.float32(-0.5), 2)]
    result = course.compare("问", {"有": Fixed(hits), "空": Fixed([])}, gold="日志")
    assert "没有结果" in repr(result) and " 0.000 " in repr(result) and "-0.000" not in result._repr_html_()
    assert Reader(result._repr_html_()).stack == []
    assert "没有结果" in course.compare("问", {"空": Fixed([])})._repr_html_()


def test_colour_follows_the_method():
    html = course.compare("问", {"玩具": INDEX, "e5": INDEX, "真嵌入": INDEX, "别的": Fixed([])})._repr_html_()
    first, second, third, fourth = (html.split("border-bottom:3px solid ")[i].split('"')[0] for i in (1, 2, 3, 4))
    assert (first, second, fourth) == ("#E69F00", "#0072B2", "rgba(128,128,128,.8)")
    assert third == "#E69F00"  # 名字看不出来时，看嵌入空间


def test_compare_is_the_same_in_every_process():
    code = (
        "from rag_lessons import Chunk, ToyEmbedder, VectorIndex, course\n"
        "c = [Chunk(t, f'{i}.md', 0, len(t)) for i, t in enumerate(['安全阀停下来', '日志写哪', '重试三次'])]\n"
        "r = course.compare('安全阀', {'玩具': VectorIndex.build(c, ToyEmbedder(256))}, gold={'source': '0.md', 'quote': '停'})\n"
        "print(r)\nprint(r._repr_html_())"
    )
    outputs = {run(code, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "77")}
    assert len(outputs) == 1
    assert outputs.pop().startswith("问：安全阀\n【玩具】正确段落：第 1 名\n✓ 1  ")
