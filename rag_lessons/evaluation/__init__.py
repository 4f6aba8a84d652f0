"""评测：金标问题、指标、区间、成绩单。

相关与否按“块和金标原句的位置有没有重叠”来算，所以同一份金标能给任何一种切块打分。
"""

from __future__ import annotations

from rag_lessons.evaluation.answers import (
    AnswerReport,
    AnswerRow,
    cites_gold,
    evaluate_answers,
    is_right,
    says,
    ungrounded,
)
from rag_lessons.evaluation.golden import Gold, Question, gold_spans, load_golden, read_jsonl
from rag_lessons.evaluation.intervals import (
    bootstrap_interval,
    chance_to_see,
    paired_interval,
    questions_needed,
)
from rag_lessons.evaluation.metrics import (
    dcg,
    first_rank,
    found_ranks,
    hit_at_k,
    ndcg_at_k,
    overlaps,
    recall_at_k,
    reciprocal_rank,
)
from rag_lessons.evaluation.refusal import Calibration, balanced_accuracy, calibrate_refusal
from rag_lessons.evaluation.report import Difference, Report, Row, Sweep, compare_reports, evaluate, sweep

__all__ = [
    "AnswerReport", "AnswerRow", "Calibration", "Difference", "Gold", "Question", "Report", "Row", "Sweep", "balanced_accuracy",
    "bootstrap_interval", "calibrate_refusal", "chance_to_see", "cites_gold", "compare_reports", "dcg", "evaluate",
    "evaluate_answers", "first_rank", "found_ranks", "gold_spans", "hit_at_k", "is_right", "load_golden", "ndcg_at_k",
    "overlaps", "paired_interval", "questions_needed", "read_jsonl", "recall_at_k", "reciprocal_rank", "says", "sweep", "ungrounded",
]  # fmt: skip
