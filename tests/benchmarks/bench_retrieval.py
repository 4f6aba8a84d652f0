"""检索的各种办法：e5、BM25、融合、MaxSim 重排、去近似、相关反馈、父块，在我们的三套金标上，和一套别人出的题上。

    python tests/benchmarks/bench_retrieval.py [SQuAD 格式的文件]

文件也可以写在环境变量 RAG_LESSONS_SQUAD 里；默认值是照 CMRC 2018 的 trial 集（256 段、1,002 题，CC BY-SA 4.0）
和三套金标的 tune 那一半定的，所以看 report 那一半。SQuAD 一段一块，文章编号是双数的算 tune。
两半各印一行数：recall@1、recall@5、MRR；再印 report 一半里 recall@1 与较好的单独一路（e5 或 BM25）逐题相减的 95% 区间，
和每问的毫秒数（问题的 e5 向量取自缓存，不在内；MaxSim 的片段向量在内，文档的已经算好）。
给了文件的话，再印一种没有用来定默认值的切法：同样的段落切成长短不一的块，碰到答案那几个字的块才算数。
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from rag_lessons import (
    CachedEmbedder,
    Chunk,
    Document,
    E5Embedder,
    FeedbackSearch,
    HybridSearch,
    MaxSimReranker,
    MMRReranker,
    ParentSearch,
    RerankSearch,
    VectorIndex,
    chunk_by_heading,
    chunk_by_lines,
    chunk_recursive,
    compare_reports,
    evaluate,
    load_folder,
    load_golden,
)
from rag_lessons.evaluation import Gold, Question, Report
from rag_lessons.keyword import BM25Index
from rag_lessons.paths import data_path

KS = (1, 5)
CHILD = 120                 # 父块一行：小块的字数
COPIES = 0.98               # 余弦到这么高，算近似的副本
CACHE_TOKENS = 300_000
LEAST, MOST = 40, 300       # 不规则的块：最短、最长多少字
SEED = 0


def squad(path: Path, whole_paragraph: bool = True) -> tuple[list[Document], list[Question]]:
    """一段一份文档；金标是整段，或者只是答案那几个字。答案的位置对不上、问题是空白的不要。"""
    documents, questions = [], []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        split = "report" if int("0" + "".join(c for c in article["id"] if c.isdigit())) % 2 else "tune"
        for number, paragraph in enumerate(article["paragraphs"]):
            document = Document(f"{article['id']}-{number}.txt", paragraph["context"])
            documents.append(document)
            for qa in paragraph["qas"]:
                answer = qa["answers"][0]
                if qa["question"].strip() and document.text[answer["answer_start"]:].startswith(answer["text"]):
                    quote = document.text if whole_paragraph else only_here(document.text, answer["answer_start"], answer["text"])
                    gold = (Gold(document.source, quote),)
                    questions.append(Question(qa["id"], qa["question"], "literal", gold, answer["text"], split))
    return documents, questions


def only_here(text: str, start: int, answer: str) -> str:
    """答案；同样的字在这段里不止一处时，两边各加字，直到只有一处。"""
    end = start + len(answer)
    while text.find(text[start:end]) != text.rfind(text[start:end]):
        start, end = max(0, start - 1), min(len(text), end + 1)
    return text[start:end]


def ours(name: str) -> tuple[list[Document], list[Question]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_folder(data_path(name)), load_golden(name)


def whole(document: Document) -> list[Chunk]:
    return [Chunk(document.text, document.source, 0, len(document.text))]


def irregular(document: Document) -> list[Chunk]:
    """切成长短不一的块，不管标点；种子加上来源，块就不随文档的次序变。"""
    lengths, chunks, at = random.Random(f"{SEED} {document.source}"), [], 0
    while at < len(document.text):
        end = at + lengths.randint(LEAST, MOST)
        if len(document.text) - end < LEAST:
            end = len(document.text)
        chunks.append(Chunk(document.text[at:end], document.source, at, min(end, len(document.text))))
        at = end
    return chunks


def searchers(chunks: Sequence[Chunk], children: Sequence[Chunk], embedder: CachedEmbedder) -> dict[str, object]:
    dense, keyword = VectorIndex.build(chunks, embedder), BM25Index.build(chunks)
    hybrid = HybridSearch(dense, keyword)
    maxsim = MaxSimReranker(embedder, CACHE_TOKENS)
    found = {
        "e5": dense,
        "BM25": keyword,
        "融合 0.6": hybrid,
        "融合 0.7": HybridSearch(dense, keyword, alpha=0.7),
        "融合 RRF": HybridSearch(dense, keyword, method="rrf"),
        "MaxSim 重排": RerankSearch(hybrid, maxsim),
        "0.7 融合 + 0.3 MaxSim": RerankSearch(hybrid, maxsim, weight=0.3),
        "MMR 0.5": RerankSearch(hybrid, MMRReranker(dense)),
        "MMR 0.8": RerankSearch(hybrid, MMRReranker(dense, 0.8)),
        "e5 + 相关反馈": FeedbackSearch(dense),
    }
    if children:
        small = HybridSearch(VectorIndex.build(children, embedder), BM25Index.build(children))
        found[f"{CHILD} 字小块 → 这里的块"] = ParentSearch(small, chunks)
    return found


def copies(report: Report, index: VectorIndex) -> float:
    """前 5 名里，与排在前面的某一块近似的，平均有几块。"""
    total, known = 0, {chunk.id for chunk in index.chunks}
    for row in report.rows:
        vectors = index.vectors_of([hit for hit in row.hits if hit.chunk.id in known])
        cosine = vectors @ vectors.T
        total += sum(bool((cosine[i, :i] >= COPIES).any()) for i in range(1, len(cosine)))
    return total / len(report)


def line(report: Report) -> str:
    return " ".join(f"{report.metrics[name]:.3f}" for name in ("recall@1", "recall@5", "mrr"))


def show(title: str, documents: Sequence[Document], questions: Sequence[Question], chunker: Callable[[Document], list[Chunk]],
         embedder: CachedEmbedder, children: bool) -> None:
    chunks = [chunk for document in documents for chunk in chunker(document)]
    small = [chunk for document in documents for chunk in chunk_recursive(document, CHILD, 0)] if children else []
    made = searchers(chunks, small, embedder)
    index = made["e5"]
    reports, costs = {}, {}
    for name, searcher in made.items():
        if name == "MaxSim 重排":
            searcher.reranker._documents([chunk.embedding_text for chunk in chunks])     # 文档的片段向量先算好
        start = time.perf_counter()
        reports[name] = evaluate(searcher, questions, KS, documents=documents)
        costs[name] = 1000 * (time.perf_counter() - start) / len(reports[name])
    halves = {name: (report.of(split="tune"), report.of(split="report")) for name, report in reports.items()}
    best = max(("e5", "BM25"), key=lambda name: halves[name][1].metrics["recall@1"])
    count = [len(half) for half in halves["e5"]]
    print(f"\n{title}：{len(chunks)} 块，tune {count[0]} 题，report {count[1]} 题；较好的单独一路是 {best}")
    print(f"  {'':<24}{'tune R@1 R@5 MRR':<20}{'report R@1 R@5 MRR':<20}report R@1 减 {best}（95% 区间）、高/低题数；毫秒；前 5 名里的副本")
    for name, (tune, report) in halves.items():
        gap = compare_reports(halves[best][1], report, "recall@1")
        width = 24 - sum(ord(c) > 127 for c in name)
        print(f"  {name:<{width}}{line(tune):<20}{line(report):<20}{100 * gap.mean:+6.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
              f"  {gap.wins}/{gap.losses}  {costs[name]:.1f}  {copies(reports[name], index):.2f}", flush=True)
    gaps = []
    for metric in ("recall@1", "recall@5", "mrr"):
        part = max(("e5", "BM25"), key=lambda name, metric=metric: reports[name].metrics[metric])
        gaps.append((compare_reports(reports[part], reports["融合 0.6"], metric), metric, part))
    gap, metric, part = min(gaps, key=lambda item: item[0].mean)
    print(f"  默认的融合在全部 {gap.n} 题上，三项里离较好的一路最远的：{metric} 减 {part} {100 * gap.mean:+.1f} 点"
          f" [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]，{gap.wins} 题高、{gap.losses} 题低   目标：不低于 -0.5")


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("RAG_LESSONS_SQUAD")
    embedder = CachedEmbedder(E5Embedder())
    if path is None:
        print("没有给 SQuAD 格式的文件（参数或 RAG_LESSONS_SQUAD，例如 CMRC 2018 的 trial 集），只看我们自己的三套。")
    else:
        documents, questions = squad(Path(path))
        show(Path(path).name, documents, questions, whole, embedder, children=False)
        documents, questions = squad(Path(path), whole_paragraph=False)
        show(f"{Path(path).name}，切成 {LEAST} 到 {MOST} 字", documents, questions, irregular, embedder, children=False)
    for name, chunker in (("agent", chunk_by_lines), ("handbook", chunk_by_heading), ("product", chunk_by_heading)):
        documents, questions = ours(name)
        show(f"data/{name}", documents, questions, chunker, embedder, children=True)


if __name__ == "__main__":
    main()
