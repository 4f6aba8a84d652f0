"""从零手写 RAG：课程里一步步写出来的东西，整理成一个小包。

名字按数据流过的次序排：读文件、切块、算向量、建索引、检索、写提示、作答。
"""

from __future__ import annotations

import importlib
from typing import Any

# 公开的名字 → 它所在的模块；用到才导入，所以 import rag_lessons 不会等
_HOMES = {
    "Document": "types",
    "Chunk": "types",
    "Hit": "types",
    "Citation": "types",
    "Answer": "types",
    "RagLessonsError": "types",
    "RagLessonsWarning": "types",
    "load_document": "loading",
    "load_folder": "loading",
    "chunk_by_lines": "chunking",
    "chunk_by_chars": "chunking",
    "chunk_by_paragraph": "chunking",
    "chunk_recursive": "chunking",
    "chunk_by_heading": "chunking",
    "chunk_by_definition": "chunking",
    "chunk_by_meaning": "chunking",
    "ToyEmbedder": "embedding",
    "E5Embedder": "embedding",
    "ZhipuEmbedder": "embedding",
    "OpenAIEmbedder": "embedding",
    "EncoderEmbedder": "embedding",
    "CachedEmbedder": "embedding",
    "get_embedder": "embedding",
    "VectorIndex": "index",
    "BM25Index": "keyword",
    "below": "retrieval",
    "normalize_length": "retrieval",
    "HybridSearch": "retrieval",
    "mmr": "retrieval",
    "MMRReranker": "retrieval",
    "MaxSimReranker": "retrieval",
    "PairReranker": "retrieval",
    "RerankSearch": "retrieval",
    "ParentSearch": "retrieval",
    "FeedbackSearch": "retrieval",
    "RewriteSearch": "retrieval",
    "HydeSearch": "retrieval",
    "build_prompt": "prompting",
    "build_structured_prompt": "prompting",
    "parse_citations": "prompting",
    "parse_structured": "prompting",
    "check_quotes": "prompting",
    "ZhipuChat": "chat",
    "OpenAIChat": "chat",
    "AnthropicChat": "chat",
    "get_chat": "chat",
    "ExtractiveGenerator": "generation",
    "ChatGenerator": "generation",
    "ask": "pipeline",
    "open_folder": "folder",
    "load_golden": "evaluation",
    "evaluate": "evaluation",
    "compare_reports": "evaluation",
    "evaluate_answers": "evaluation",
    "calibrate_refusal": "evaluation",
    "sweep": "evaluation",
}
__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"rag_lessons 里没有 {name}")
    value = getattr(importlib.import_module(f"rag_lessons.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
