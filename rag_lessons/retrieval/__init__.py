"""检索之后的加工：融合、重排、去近似、父块、改写问题、按块长修正、拒答的依据。"""

from rag_lessons.retrieval.length import length_factor, normalize_length
from rag_lessons.retrieval.refusal import Refuse, below

__all__ = ["Refuse", "below", "length_factor", "normalize_length"]
