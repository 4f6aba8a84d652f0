"""检索之后的加工：融合、重排、去近似、父块、改写问题、按块长修正、拒答的依据。"""

from rag_lessons.retrieval.base import Searcher
from rag_lessons.retrieval.diversity import MMRReranker, mmr, mmr_order
from rag_lessons.retrieval.feedback import FeedbackSearch, rocchio
from rag_lessons.retrieval.fusion import HybridSearch, min_max, rrf
from rag_lessons.retrieval.length import length_factor, normalize_length
from rag_lessons.retrieval.parents import ParentSearch
from rag_lessons.retrieval.refusal import Refuse, below
from rag_lessons.retrieval.rerank import MaxSimReranker, PairReranker, RerankSearch, max_sim
from rag_lessons.retrieval.rewriting import HydeSearch, RewriteSearch

__all__ = [
    "FeedbackSearch",
    "HybridSearch",
    "HydeSearch",
    "MMRReranker",
    "MaxSimReranker",
    "PairReranker",
    "ParentSearch",
    "Refuse",
    "RerankSearch",
    "RewriteSearch",
    "Searcher",
    "below",
    "length_factor",
    "max_sim",
    "min_max",
    "mmr",
    "mmr_order",
    "normalize_length",
    "rocchio",
    "rrf",
]
