"""全部课程的一张表：编号、文件、题目、用时、在流水线中的位置、一句话。

notebook 首尾的导航、开头的流水线图、README 的目录都从这张表来；测试证明它们与表一致。
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rag_lessons.paths import repo_root

PIPELINE = ("文档", "切块", "向量化", "检索", "提示词", "答案", "评测")
WHOLE = PIPELINE[:-1]


@dataclass(frozen=True)
class Lesson:
    """一课。

    参数
    ----
    number : 编号，两个字符：``"05"``、``"A1"``。
    name : 文件名里编号之后的部分。
    title : 中文题目。
    minutes : 预计用时，分钟。
    stages : 在流水线中的位置，取自 ``PIPELINE``。
    summary : 一句话说这一课做什么。
    """

    number: str
    name: str
    title: str
    minutes: int
    stages: tuple[str, ...]
    summary: str

    @property
    def stem(self) -> str:
        """文件名，不含扩展名。

        >>> find("5").stem
        '05_semantic_gap'
        """
        return f"{self.number}_{self.name}"

    @property
    def path(self) -> Path:
        """notebook 应在的位置；不保证已经存在。"""
        return repo_root() / "notebooks" / f"{self.stem}.ipynb"

    @property
    def label(self) -> str:
        """给人看的名字。

        >>> find("04").label
        '第 04 课 检索'
        >>> find("a2").label
        '附录 A2 打开 e5'
        """
        kind = f"附录 {self.number}" if self.number[0] == "A" else f"第 {self.number} 课"
        return f"{kind} {self.title}"

    @property
    def map(self) -> str:
        """流水线图，一行 Markdown，本课所在的一级加粗并加方头括号。

        >>> find("05").map
        '文档 → 切块 → **【向量化】** → 检索 → 提示词 → 答案 → 评测'
        """
        return " → ".join(f"**【{stage}】**" if stage in self.stages else stage for stage in PIPELINE)


LESSONS = (
    Lesson("00", "quickstart", "一屏跑完", 25, WHOLE,
           "三十五份文件，一个问题，一个带出处的答案；玩具向量和真嵌入并排比较。"),
    Lesson("01", "why_rag", "为什么要检索", 55, WHOLE,
           "不给资料、全给资料、检索后再给：量一量各要多少 token。"),
    Lesson("02", "chunking", "切块", 60, ("切块",),
           "按行、按字符、按段落、按中文标点递归；四个切块程序的错误。"),
    Lesson("03", "toy_embedding", "玩具向量", 45, ("向量化",),
           "字对哈希成向量，量冲突，量相似，看内置 hash() 为什么不能用。"),
    Lesson("04", "search", "检索", 45, ("检索",),
           "从循环到矩阵到部分排序；阈值；十行的命中率。"),
    Lesson("05", "semantic_gap", "语义鸿沟", 60, ("向量化",),
           "玩具向量对真嵌入：失控保护为什么找不到安全阀。"),
    Lesson("06", "short_chunk_bias", "短块偏好", 60, ("检索",),
           "短块为什么占便宜，哪些补救有用，哪些方向反了。"),
    Lesson("07", "prompt_and_answer", "提示词与答案", 60, ("提示词", "答案"),
           "带编号的资料、能核对的引用、该拒答时拒答。"),
    Lesson("08", "evaluation", "评测", 60, ("评测",),
           "召回率、命中率、MRR、nDCG 手算一遍，再给出误差范围。"),
    Lesson("09", "structure", "按结构切块", 45, ("切块",),
           "标题路径、表格、函数、问答条目各自怎么切。"),
    Lesson("10", "hybrid", "混合检索", 45, ("检索",),
           "BM25 与向量合起来：加权与 RRF。"),
    Lesson("11", "rerank", "重排", 45, ("检索",),
           "先取二十个候选，再精选四个。"),
    Lesson("12", "context", "上下文与过滤", 55, ("检索", "提示词"),
           "小块找、大块答；权限过滤；改写问题。"),
    Lesson("13", "documents", "读懂各种文件", 45, ("文档",),
           "编码、网页、PDF、Word，以及清洗前后的差别。"),
    Lesson("14", "cache_and_sync", "缓存与增量更新", 45, ("向量化", "检索"),
           "算过的不再算，改一个文件只算一个文件。"),
    Lesson("15", "agentic_rag", "让模型自己决定何时检索", 55, WHOLE,
           "检索成为工具，循环有自己的安全阀。"),
    Lesson("16", "capstone", "用你自己的文件夹", 60, PIPELINE,
           "载入、建索引、标十个问题、出一份成绩单。"),
    Lesson("A1", "vector_stores", "向量数据库", 60, ("检索",),
           "同一次检索在 numpy、FAISS、Chroma、Milvus、Qdrant、pgvector 上各做一遍。"),
    Lesson("A2", "inside_e5", "打开 e5", 70, ("向量化",),
           "分词、嵌入、注意力、池化，用 numpy 走一遍。"),
)  # fmt: skip


def find(number: str) -> Lesson:
    """按编号、文件名或文件名的前半找一课；找不到抛出 ValueError。

    >>> find("5") == find("05") == find("05_semantic_gap") == find("05_semantic_gap.ipynb")
    True
    """
    wanted = str(number).lower().removesuffix(".ipynb")
    wanted = wanted.zfill(2) if wanted.isdigit() else wanted
    for lesson in LESSONS:
        if wanted in (lesson.number.lower(), lesson.stem):
            return lesson
    raise ValueError(f"没有「{number}」这一课；编号从 00 到 16，附录是 A1 和 A2。")


def existing() -> list[Lesson]:
    """已经写好的课，按表里的次序。"""
    return [lesson for lesson in LESSONS if lesson.path.is_file()]


def neighbours(lesson: Lesson) -> tuple[Lesson | None, Lesson | None]:
    """已有课程里的上一课和下一课；没有就是 None。"""
    before = LESSONS[: LESSONS.index(lesson)]
    after = LESSONS[LESSONS.index(lesson) + 1 :]
    have = set(existing())
    previous = next((x for x in reversed(before) if x in have), None)
    following = next((x for x in after if x in have), None)
    return previous, following


def toc() -> str:
    """README 用的课程表，Markdown；没写好的课不带链接，用时一栏写「待写」。"""
    have = set(existing())
    rows = ["| 课 | 题目 | 分钟 | 做什么 |", "|---|---|---|---|"]
    for lesson in LESSONS:
        title = f"[{lesson.title}](notebooks/{lesson.stem}.ipynb)" if lesson in have else lesson.title
        minutes = lesson.minutes if lesson in have else "待写"
        rows.append(f"| {lesson.number} | {title} | {minutes} | {lesson.summary} |")
    return "\n".join(rows)
