"""包的样子：导入要快、依赖只朝上、编码处处写明。"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rag_lessons

PACKAGE = Path(rag_lessons.__file__).parent
ROOT = PACKAGE.parent

# 数据流过的次序；每个模块只能用排在自己前面的
ORDER = [
    "tracing", "types", "paths", "settings", "progress", "service",
    "loading.text", "loading.clean", "loading.markdown", "loading.html", "loading.word", "loading.layout", "loading.pdf", "loading",
    "embedding.base", "embedding.toy", "embedding.fetch", "embedding.e5", "embedding.api", "embedding.cache", "embedding",
    "chunking.base", "chunking.simple", "chunking.recursive", "chunking.structure", "chunking.meaning", "chunking", "index", "keyword", "retrieval.base", "retrieval.refusal", "retrieval.length", "retrieval.fusion", "retrieval.diversity", "retrieval.rerank", "retrieval.parents", "retrieval.feedback", "retrieval.rewriting", "retrieval", "prompting", "messages", "chat", "generation", "evaluation.golden", "evaluation.metrics", "evaluation.intervals", "evaluation.report", "evaluation.refusal", "evaluation.answers", "evaluation", "pipeline", "folder", "agent", "stores.base", "stores.faiss", "stores.chroma", "stores.qdrant", "stores.milvus", "stores.postgres", "stores.pgvector", "stores",
]


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rag_lessons":
            base = node.module.removeprefix("rag_lessons").lstrip(".")
            children = {f"{base}.{a.name}".lstrip(".") for a in node.names}
            names |= {c for c in children if c in ALL} or {base}
        elif isinstance(node, ast.Import):
            names |= {a.name.removeprefix("rag_lessons.") for a in node.names if a.name.startswith("rag_lessons.")}
    return names


ALL = modules()


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("__init__", "__main__") and not n.startswith("course")])
def test_dependencies_point_one_way(name):
    assert name in ORDER, f"{name} 还没有排进次序"
    for other in imported(ALL[name]) - {""}:
        assert not other.startswith("course"), f"{name} 不能用 course"
        assert ORDER.index(other) < ORDER.index(name), f"{name} 用了排在后面的 {other}"


def test_import_is_quick_and_light():
    code = ("import time; t = time.perf_counter(); import rag_lessons; s = time.perf_counter() - t;"
            "import sys; print(s, *[m for m in ('numpy', 'matplotlib', 'sklearn', 'zhipuai', 'openai', 'anthropic', 'httpx', 'tenacity') if m in sys.modules])")
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    assert all(len(run) == 1 for run in runs), runs
    assert min(float(run[0]) for run in runs) < 0.25


def test_every_public_name_exists():
    for name in rag_lessons.__all__:
        assert getattr(rag_lessons, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = rag_lessons.nothing


def test_every_text_file_names_its_encoding():
    """ruff 的 PLW1514：open、read_text、write_text 一律写明 encoding。"""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--preview", "--select", "PLW1514", "--output-format", "concise",
         "rag_lessons", "tests", "notebooks", "start.py", "data"],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout


def test_pipeline_runs_with_encoding_warnings_as_errors(tmp_path):
    code = """
from rag_lessons import ToyEmbedder, CachedEmbedder, VectorIndex, ask, chunk_by_lines, load_folder, load_golden
from rag_lessons.paths import data_path
from rag_lessons.settings import get_key
chunks = [c for d in load_folder(data_path("agent")) for c in chunk_by_lines(d)]
index = VectorIndex.build(chunks, CachedEmbedder(ToyEmbedder(), {cache!r}))
index.save({file!r}); VectorIndex.load({file!r}, ToyEmbedder())
get_key("NO_SUCH_KEY"); load_golden("agent")
print(ask("安全阀在哪个文件定义", index).citations[0].chunk.source)
""".format(cache=str(tmp_path / "v.sqlite"), file=str(tmp_path / "i.rag"))
    env = {**os.environ, "PYTHONWARNDEFAULTENCODING": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-W", "error::EncodingWarning", "-c", code], env=env, cwd=tmp_path,
                          capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stdout.strip()) == (0, "config.py"), done.stderr
