"""BM25Index 对 bm25s 和 rank-bm25：10,000 块、每块 400 字中文，建索引和检索；词相同，与 bm25s 的分数须一致。"""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path

import bm25s
import numpy as np
from rank_bm25 import BM25Okapi
from timing import best

from rag_lessons import BM25Index, Chunk, load_folder
from rag_lessons.evaluation import load_golden
from rag_lessons.keyword import tokenize
from rag_lessons.paths import data_path

COUNT, LENGTH, K, QUERIES, ROUNDS = 10_000, 400, 10, 100, 3
CMRC = Path(__file__).parents[3] / "shared" / "data" / "cmrc2018_trial.squad.json"


def corpus() -> list[str]:
    """data/ 里的中文（有 CMRC 试用集时也加上）切成句子，固定种子抽句，拼成 400 字一块。"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = [d.text for folder in ("handbook", "product") for d in load_folder(data_path(folder))]
    if CMRC.exists():
        articles = json.loads(CMRC.read_text(encoding="utf-8"))["data"]
        texts += [p["context"] for a in articles for p in a["paragraphs"]]
    sentences = [s for text in texts for s in re.split(r"(?<=[。！？])|\n", text) if len(s) > 5]
    rng = random.Random(0)
    blocks = []
    for _ in range(COUNT):
        block = ""
        while len(block) < LENGTH:
            block += rng.choice(sentences)
        blocks.append(block[:LENGTH])
    return blocks


def main() -> None:
    texts = corpus()
    chunks = [Chunk(text, f"{i:05d}", 0, LENGTH) for i, text in enumerate(texts)]
    tokens = [tokenize(text) for text in texts]
    given = dict(zip(texts, tokens, strict=True))
    questions = [q.question for q in load_golden("handbook")][:QUERIES]

    def their_build(tokens: list[list[str]]) -> bm25s.BM25:
        model = bm25s.BM25(k1=1.5, b=0.75)
        model.index(tokens, show_progress=False)
        return model

    ours, theirs, other = BM25Index.build(chunks), their_build(tokens), BM25Okapi(tokens)
    for question in questions[:10]:
        hits = ours.search(question, K)
        scores = np.sort(theirs.get_scores(tokenize(question)))[::-1][:K] * 2.5      # bm25s 默认的写法不乘 k1 + 1
        assert np.allclose([hit.score for hit in hits], scores, rtol=1e-4), question

    times: dict[str, list[float]] = {}

    def measure(name: str, function: object, rounds: int = 1) -> None:
        times.setdefault(name, []).append(best(function, rounds))

    for _ in range(ROUNDS):                 # 轮流量，谁也不独占安静的时候
        measure("建 我们", lambda: BM25Index.build(chunks))
        measure("建 bm25s", lambda: their_build([tokenize(text) for text in texts]))
        measure("建 rank-bm25", lambda: BM25Okapi([tokenize(text) for text in texts]))
        measure("词 我们", lambda: BM25Index.build(chunks, tokenize=given.__getitem__))
        measure("词 bm25s", lambda: their_build(tokens))
        measure("词 rank-bm25", lambda: BM25Okapi(tokens))
        measure("查 我们", lambda: [ours.search(q, K) for q in questions], 3)
        measure("查 bm25s", lambda: [theirs.retrieve([tokenize(q)], k=K, show_progress=False) for q in questions], 3)
        measure("查 rank-bm25", lambda: [np.argsort(other.get_scores(tokenize(q)))[-K:] for q in questions[:5]])
    least = {name: min(seconds) for name, seconds in times.items()}
    least = {name: s / (5 if name == "查 rank-bm25" else QUERIES if name[0] == "查" else 1) for name, s in least.items()}

    count = sum(map(len, tokens))
    print(f"BM25：{COUNT:,} 块 x {LENGTH} 字，{count:,} 个词（单字和相邻两字都算）；{QUERIES} 个问题，k={K}；取最快一次")
    rows = [("建", "建索引，连切词（三家都用我们的 tokenize）", 1, "秒", {"bm25s": "目标：不慢于它"}),
            ("词", "建索引，词已切好", 1, "秒", {"bm25s": "目标：不慢于它"}),
            ("查", "检索一次，连切词", 1000, "毫秒", {"bm25s": "目标：至少 0.5", "rank-bm25": "目标：快 20 倍以上"})]
    for kind, title, scale, unit, bars in rows:
        print(f"  {title}")
        for who in ("我们", "bm25s", "rank-bm25"):
            seconds = least[f"{kind} {who}"]
            print(f"    {who:<12}{seconds * scale:9.3f} {unit}   它 / 我们 = {seconds / least[f'{kind} 我们']:7.2f}   {bars.get(who, '')}")
    print(f"  我们连切词，bm25s 词已切好：它 / 我们 = {least['词 bm25s'] / least['建 我们']:.2f}")


if __name__ == "__main__":
    main()
