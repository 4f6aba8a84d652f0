"""语料与金标问题：数目、金标原句、换说法的问法确实没有共同的字、先后次序。"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from rag_lessons.chunking import chunk_by_lines
from rag_lessons.embedding.toy import ToyEmbedder
from rag_lessons.evaluation import load_golden
from rag_lessons.index import VectorIndex
from rag_lessons.loading import load_folder
from rag_lessons.paths import data_path, repo_root
from rag_lessons.types import Chunk, Document

AGENT = data_path("agent")
PARAPHRASES = "data/golden/paraphrases.jsonl"
TYPES = {"literal", "paraphrase", "exact_number", "table", "multi_passage", "contradiction", "unanswerable"}


def read_jsonl(name: str) -> list[dict]:
    text = data_path("golden", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def bigrams(text: str) -> set[str]:
    """相邻两个字或字母；夹着空白或标点的不算。"""
    return {a + b for a, b in pairwise(text) if a.isalnum() and b.isalnum()}


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return load_folder(AGENT)


@pytest.fixture(scope="module")
def texts(documents: list[Document]) -> dict[str, str]:
    return {d.source: d.text for d in documents}


@pytest.fixture(scope="module")
def chunks(documents: list[Document]) -> list[Chunk]:
    return [c for d in documents for c in chunk_by_lines(d)]


@pytest.fixture(scope="module")
def pairs() -> list[dict]:
    return read_jsonl("paraphrases.jsonl")


@pytest.fixture(scope="module")
def golden() -> list[dict]:
    return read_jsonl("agent.jsonl")


def passages(golden: list[dict], kind: str) -> dict[str, dict]:
    return {q["pair"]: q for q in golden if q["type"] == kind}


# ---- 语料 ----


def test_corpus_size(documents: list[Document], chunks: list[Chunk]) -> None:
    assert 28 <= len(documents) <= 36
    assert 110 <= len(chunks) <= 130
    assert {Path(d.source).suffix for d in documents} == {".py", ".md", ".toml", ".txt"}
    lengths = [d.text.count("\n") for d in documents]
    assert max(lengths) > 200 and min(lengths) <= 5


def test_readme_states_the_real_counts(
    documents: list[Document], chunks: list[Chunk], golden: list[dict], pairs: list[dict]
) -> None:
    readme = data_path("README.md").read_text(encoding="utf-8")
    assert f"{len(documents)} 份文件" in readme
    assert f"{len(chunks)} 块" in readme
    assert f"{len(golden)} 题" in readme
    assert f"{len(pairs)} 对" in readme
    for kind, count in Counter(q["type"] for q in golden).items():
        assert f"| `{kind}` | {count} |" in readme


def test_config_is_five_lines(texts: dict[str, str]) -> None:
    assert len(texts["config.py"].splitlines()) == 5
    assert "安全阀" in texts["config.py"]


def test_definition_opens_a_chunk(chunks: list[Chunk]) -> None:
    chunk = next(c for c in chunks if c.label == "safety.py:41")
    assert chunk.text.startswith("class SafetyValve:\n    \"\"\"安全阀")


def test_nobody_says_the_paraphrase(texts: dict[str, str]) -> None:
    for source, text in texts.items():
        assert not {"失控", "控保", "保护"} & bigrams(text), source
    assert not bigrams("失控保护怎么触发") & bigrams(texts["safety.py"])


@pytest.mark.parametrize("path", sorted(AGENT.rglob("*.py")), ids=lambda p: p.name)
def test_python_compiles(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def test_toml_is_valid(texts: dict[str, str]) -> None:
    assert tomllib.loads(texts["agent.toml"])["loop"]["max_steps"] == 12


def run_python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("XIAOMAN_")}
    env |= {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(AGENT)}
    return subprocess.run(
        [sys.executable, "-W", "error", *args],
        cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=60, check=False,
    )


def test_demo_runs_offline(tmp_path: Path) -> None:
    done = run_python(str(AGENT / "main.py"), "--demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "全年 4380 杯" in done.stdout
    assert "停在第 3 步：[E401]" in done.stdout
    assert not done.stderr
    assert not list(tmp_path.iterdir()), "演示不该在当前目录留下东西"


def test_corpus_doctests(tmp_path: Path) -> None:
    script = (
        "import doctest, importlib\n"
        "names = 'budget events log notes prompts retry utils tools.calc'.split()\n"
        "results = [doctest.testmod(importlib.import_module(n)) for n in names]\n"
        "print(sum(r.failed for r in results), sum(r.attempted for r in results))\n"
    )
    done = run_python("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed, attempted = map(int, done.stdout.split())
    assert failed == 0, done.stdout
    assert attempted >= 15


RESUME = """
import sys, tempfile
from pathlib import Path
import main
from errors import ModelUnavailable
from events import EventBus
from model import Reply, ScriptedModel, ToolCall
from permissions import Gate
from session import SessionStore
from settings import Settings

def broken(messages):
    raise ModelUnavailable("断了")

store = SessionStore(Path(sys.argv[1]))
session = store.create()
first = ScriptedModel([Reply("写", (ToolCall("1", "write_file", {"path": "a.md", "content": "甲"}),)), broken])
try:
    main.build_agent(Settings(), session, first, Gate("auto"), EventBus()).run("写一份文件")
except ModelUnavailable as exc:
    print(exc.code)
calls = (ToolCall("2", "calc", {"expression": "1 + 1"}), ToolCall("3", "read_file", {"path": "../../x"}))
second = ScriptedModel([Reply("接着", calls), Reply("好了")])
agent = main.build_agent(Settings(), store.open("s1"), second, Gate("auto"), EventBus())
texts = []
agent.bus.subscribe(lambda e: texts.append(e.data["text"]), "tool.result")
result = agent.resume()
print(result.text, result.steps, result.finished, agent.checkpoints.latest(), texts)
"""


def test_agent_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    """断在第 2 步，恢复后从第 2 步以后数起；越界的读取被拒绝；收尾后存档清空。"""
    done = run_python("-c", RESUME, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code, line = done.stdout.splitlines()
    assert code == "E301"
    assert line.startswith("好了 3 True None")
    assert "'2'" in line and "[E205]" in line


def test_log_sample_adds_up(texts: dict[str, str]) -> None:
    """日志样本里，每个任务收尾的 token 数等于各次花费之和；被预算刹停的那次，压垮它的一笔没来得及打日志。"""
    total, checked = 0, 0
    for line in texts["samples/run_log.txt"].splitlines():
        spent = re.search(r"(?:回复，.*，|回来，.*用了 )(\d+) token", line)
        final = re.search(r"收尾，\d+ 步，(\d+) token", line)
        if spent:
            total += int(spent[1])
        if final:
            assert total == int(final[1]) or (total < 60_000 < int(final[1])), line
            total, checked = 0, checked + 1
    assert checked == 4


# ---- 同义改写 ----


def test_pairs_are_complete(pairs: list[dict], texts: dict[str, str]) -> None:
    assert len(pairs) == 24
    assert [p["id"] for p in pairs] == [f"p{i:02d}" for i in range(1, 25)]
    assert (pairs[0]["literal"], pairs[0]["paraphrase"]) == ("安全阀在哪个文件定义", "失控保护怎么触发")
    for pair in pairs:
        assert set(pair) == {"id", "literal", "paraphrase", "term", "source", "about"}
        assert pair["source"] in texts


def test_paraphrase_shares_nothing_with_its_passage(pairs: list[dict], golden: list[dict]) -> None:
    literal, paraphrase = passages(golden, "literal"), passages(golden, "paraphrase")
    assert set(literal) == set(paraphrase) == {p["id"] for p in pairs}
    for pair in pairs:
        one, two = literal[pair["id"]], paraphrase[pair["id"]]
        assert (one["question"], two["question"]) == (pair["literal"], pair["paraphrase"])
        assert one["gold"] == two["gold"] and one["split"] == two["split"]
        (gold,) = one["gold"]
        assert gold["source"] == pair["source"]
        assert gold["quote"].count("\n") < 6
        assert pair["term"] in gold["quote"]
        assert bigrams(gold["quote"]) & bigrams(pair["literal"]), pair["id"]
        shared = bigrams(gold["quote"]) & bigrams(pair["paraphrase"])
        assert not shared, (pair["id"], shared)


def git(*args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=repo_root(), capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return done.stdout.strip()


def test_pairs_were_committed_before_the_corpus() -> None:
    try:
        if git("rev-parse", "--is-shallow-repository") == "true":
            pytest.skip("浅克隆，看不到先后次序")
        if Path(git("rev-parse", "--show-toplevel")).resolve() != repo_root().resolve():
            pytest.skip("本目录不是 git 仓库的根，看不到先后次序")
        versions = git("log", "--format=%H", "--", PARAPHRASES).split()
        corpus = git("log", "--format=%H", "--reverse", "--", "data/agent").split()
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("没有 git 或没有历史，看不到先后次序")
    if not versions or not corpus:
        pytest.skip("历史里没有这两样，看不到先后次序")
    assert len(versions) == 1, "同义改写写好之后不该再改"
    assert corpus[0] != versions[0]
    subprocess.run(
        ["git", "merge-base", "--is-ancestor", versions[0], corpus[0]], cwd=repo_root(), timeout=60, check=True
    )
    assert not git("ls-tree", "-r", "--name-only", versions[0], "--", "data/agent")
    now = data_path("golden", "paraphrases.jsonl").read_text(encoding="utf-8").strip()
    assert git("show", f"{versions[0]}:{PARAPHRASES}") == now


# ---- 金标 ----


def test_golden_fields(golden: list[dict]) -> None:
    assert len(golden) >= 60
    assert len({q["id"] for q in golden}) == len(golden)
    assert len({q["question"] for q in golden}) == len(golden)
    counts = Counter(q["type"] for q in golden)
    assert set(counts) == TYPES
    assert counts["unanswerable"] >= 10
    for q in golden:
        assert set(q) - {"pair"} == {"id", "question", "type", "gold", "answer", "split"}
        assert ("pair" in q) == (q["type"] in ("literal", "paraphrase"))
        if q["type"] == "unanswerable":
            assert q["gold"] == [] and q["answer"] == ""
        else:
            assert q["gold"] and q["answer"]
        if q["type"] in ("multi_passage", "contradiction"):
            assert len(q["gold"]) >= 2, q["id"]


def test_every_quote_occurs_once(golden: list[dict], texts: dict[str, str]) -> None:
    for q in golden:
        for gold in q["gold"]:
            assert texts[gold["source"]].count(gold["quote"]) == 1, (q["id"], gold)


def test_pair_quotes_occur_once_in_the_corpus(golden: list[dict], texts: dict[str, str]) -> None:
    for q in passages(golden, "paraphrase").values():
        assert sum(text.count(q["gold"][0]["quote"]) for text in texts.values()) == 1, q["id"]


def test_table_questions_point_at_table_rows(golden: list[dict]) -> None:
    for q in golden:
        if q["type"] == "table":
            assert all(g["quote"].startswith("| ") and g["quote"].endswith(" |") for g in q["gold"]), q["id"]


def test_contradictions_come_from_two_files(golden: list[dict]) -> None:
    for q in golden:
        if q["type"] == "contradiction":
            assert len({g["source"] for g in q["gold"]}) == 2, q["id"]


def test_splits_are_balanced_by_type(golden: list[dict]) -> None:
    counts = Counter((q["type"], q["split"]) for q in golden)
    assert {split for _, split in counts} == {"tune", "report"}
    for kind in TYPES:
        assert abs(counts[kind, "tune"] - counts[kind, "report"]) <= 1, kind


def test_load_golden_reads_it(golden: list[dict]) -> None:
    questions = load_golden("agent")
    assert [q.id for q in questions] == [q["id"] for q in golden]


# ---- 展品：文章里的那两问 ----


def test_toy_vector_finds_the_word_and_not_the_meaning(chunks: list[Chunk]) -> None:
    index = VectorIndex.build(chunks, ToyEmbedder(dim=1024))
    literal = [h.chunk.label for h in index.search("安全阀在哪个文件定义", k=3)]
    assert literal[0] == "config.py:1"
    assert "safety.py:41" in literal
    paraphrase = [h.chunk.label for h in index.search("失控保护怎么触发", k=10)]
    assert "safety.py:41" not in paraphrase
