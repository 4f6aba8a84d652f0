"""金标里的 short 标记：读得进来，只在该有的题上。"""

import json

from rag_lessons import load_golden
from rag_lessons.evaluation import Question
from rag_lessons.paths import data_path


def test_short_flag_is_read_and_absent_means_false():
    lines = data_path("golden", "handbook.jsonl").read_text(encoding="utf-8").splitlines()
    marked = {record["id"] for record in map(json.loads, lines) if record.get("short")}
    assert marked and {q.id for q in load_golden("handbook") if q.short} == marked
    assert not any(q.short for name in ("agent", "product") for q in load_golden(name))
    assert Question("q", "？", "literal").short is False
