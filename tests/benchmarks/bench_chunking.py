"""chunk_recursive 对 langchain-text-splitters（add_start_index=True）和 chonkie：340 万字中文，位置须全对。"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable

from timing import best

from rag_lessons import Document, chunk_recursive, load_folder
from rag_lessons.paths import data_path

LENGTH, SIZE, OVERLAP, ROUNDS = 3_400_000, 500, 60, 3
SEPARATORS = ["\n\n", "\n", "。", "！", "？", "；", "，", " ", ""]


def corpus() -> str:
    """data/ 里的中文接起来，重复到 340 万字。"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = [d.text for folder in ("handbook", "product", "agent") for d in load_folder(data_path(folder))]
    text = "\n\n".join(texts) + "\n\n"
    return (text * (LENGTH // len(text) + 1))[:LENGTH]


def measure(function: Callable[[], list]) -> tuple[float, float, list]:
    """（最快一次的秒数，内存峰值 MB，结果）。"""
    seconds = best(function, ROUNDS)
    tracemalloc.start()
    result = function()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak, result


def main() -> None:
    from chonkie import RecursiveChunker, RecursiveLevel, RecursiveRules
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    text = corpus()
    document = Document("a.md", text)
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=SIZE, chunk_overlap=OVERLAP, separators=SEPARATORS, keep_separator="end", add_start_index=True
    )
    rules = RecursiveRules(levels=[RecursiveLevel(delimiters=d, include_delim="prev") for d in (
        ["\n\n"], ["\n"], ["。", "！", "？"], ["；", "，"])] + [RecursiveLevel()])
    chonkie = RecursiveChunker(tokenizer="character", chunk_size=SIZE, rules=rules)

    ours, our_peak, chunks = measure(lambda: chunk_recursive(document, SIZE, OVERLAP))
    assert all(text[c.start:c.end] == c.text and len(c.text) <= SIZE for c in chunks)
    theirs, their_peak, pieces = measure(lambda: splitter.create_documents([text]))
    wrong = sum(text[p.metadata["start_index"]:][:len(p.page_content)] != p.page_content for p in pieces)
    other, other_peak, parts = measure(lambda: chonkie.chunk(text))
    off = sum(text[p.start_index:p.end_index] != p.text for p in parts)
    print(f"递归切块：{len(text):,} 字，每块至多 {SIZE} 字，重叠 {OVERLAP}（chonkie 不重叠）；取最快一次")
    rows = [("chunk_recursive", ours, our_peak, len(chunks), 0, ""),
            ("langchain-text-splitters", theirs, their_peak, len(pieces), wrong, "目标：不慢于它"),
            ("chonkie", other, other_peak, len(parts), off, "目标：快 2 倍以上")]
    for name, seconds, peak, count, bad, bar in rows:
        print(f"  {name:<26}{seconds:7.2f} 秒  峰值 {peak:6.1f} MB  {count:6,} 块  位置不符 {bad:4}  它 / 我们 = {seconds / ours:6.2f}  {bar}")


if __name__ == "__main__":
    main()
