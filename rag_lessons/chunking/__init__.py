"""Document → list[Chunk]。

所有切块函数都守同一组规矩：每块是原文的一段（``document.text[c.start:c.end] == c.text``），
起点严格递增，没有一块整个落在邻居里面，纯空白的块不要，非空白的字一个不丢。
"""

from rag_lessons.chunking.meaning import chunk_by_meaning
from rag_lessons.chunking.recursive import chunk_recursive
from rag_lessons.chunking.simple import chunk_by_chars, chunk_by_lines, chunk_by_paragraph
from rag_lessons.chunking.structure import chunk_by_definition, chunk_by_heading

__all__ = [
    "chunk_by_chars",
    "chunk_by_definition",
    "chunk_by_heading",
    "chunk_by_lines",
    "chunk_by_meaning",
    "chunk_by_paragraph",
    "chunk_recursive",
]
