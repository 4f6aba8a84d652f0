"""评测：金标问题、指标、区间、报告。

相关与否按“块和金标原句的位置有没有重叠”来算，所以同一份金标能给任何一种切块打分。
"""

from __future__ import annotations

from rag_lessons.evaluation.golden import Gold, Question, gold_spans, load_golden, read_jsonl
from rag_lessons.evaluation.metrics import first_rank, hit_at_k, overlaps

__all__ = ["Gold", "Question", "first_rank", "gold_spans", "hit_at_k", "load_golden", "overlaps", "read_jsonl"]
