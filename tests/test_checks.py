"""练习检查本身的测试，以及对每一道登记在册的练习的测试。"""

import collections
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from rag_lessons.course.checks import Exercise, Wrong, call_limited, case, check, grade, grade_exercise
from rag_lessons.course.checks import _TimeUp as TimeUp
from rag_lessons.course.differ import find_difference, show
from rag_lessons.course.exercises import all_exercises, find, lesson_modules
from rag_lessons.types import Chunk, RagLessonsError


def saturate(score, length, c):
    return score * length / (length + c)


SATURATE = Exercise(
    id="0.1",
    title="长度的饱和因子",
    reference=saturate,
    cases=[case("普通", 0.5, 100, 20), case("很短", 0.5, 5, c=20), case("零长", 0.5, 0, 20)],
    wrong=[
        Wrong("忘了乘 length", lambda score, length, c: score / (length + c), "分子少了 length。"),
        Wrong("用了减号", lambda score, length, c: score * length / (length - c), "分母是加，不是减。"),
        Wrong("只乘不除", lambda score, length, c: score * length, "还没有除以 (length + c)。"),
        Wrong("没有动", lambda score, length, c: score, "返回的还是原来的 score。"),
        Wrong("上下颠倒", lambda score, length, c: score * (length + c) / max(length, 1), "分子分母颠倒了。"),
    ],
    follow_up="length 很大时因子趋近 1。",
    seconds=0.3,
)
PAIRS = Exercise(
    id="0.2",
    title="字符对",
    reference=lambda text: [text[i : i + 2] for i in range(len(text) - 1)],
    cases=[case("四个字", "失控保护"), case("一个字", "失"), case("空串", "")],
)
ANSWER = Exercise(
    id="0.3", title="一个数", kind="value", reference=0.62, tolerance=0.01,
    wrong=[Wrong("忘了开方", 0.3844, "分母要开方。")],
)  # fmt: skip


def message(exercise, attempt):
    return grade_exercise(exercise, attempt).message


# ---------- 没写完 ----------


def saturating(score, length, c): ...


def with_docstring(score, length, c):
    """只有说明。"""


def keeps_dots(score, length, c):
    factor = ...
    return factor * score


def returns_dots(score, length, c):
    return ...


def not_implemented(score, length, c):
    raise NotImplementedError


def forgot_return(score, length, c):
    result = score * length / (length + c)  # noqa: F841


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (saturating, "还没写完：saturating 返回了 None。写好后再运行这一格。"),
        (with_docstring, "还没写完：with_docstring 返回了 None。写好后再运行这一格。"),
        (returns_dots, "还没写完：returns_dots 返回了 ...。写好后再运行这一格。"),
        (keeps_dots, "还没写完：keeps_dots 里还有 ... 没有填。写好后再运行这一格。"),
        (not_implemented, "还没写完：not_implemented 抛出了 NotImplementedError。写好后再运行这一格。"),
        (lambda *args, **kwargs: None, "还没写完：你的函数 返回了 None。写好后再运行这一格。"),
        (None, "还没写完：你交上来的是 None。写好后再运行这一格。"),
        (..., "还没写完：你交上来的是 ...。写好后再运行这一格。"),
    ],
)
def test_unfinished_function(attempt, expected):
    result = grade_exercise(SATURATE, attempt)
    assert not result.passed
    assert result.message == expected


def test_body_without_return_gets_the_reason():
    result = grade_exercise(SATURATE, forgot_return)
    assert result.message.startswith("还没写完：forgot_return 返回了 None。写好后再运行这一格。")
    assert "return" in result.hint
    assert grade_exercise(SATURATE, saturating).hint == ""


@pytest.mark.parametrize("value", [None, ..., [1, ...], {"a": ...}, np.array([1, ...], dtype=object)])
def test_unfinished_value(value):
    result = grade_exercise(ANSWER, value)
    assert not result.passed and result.message.startswith("还没写完：")


def test_none_in_one_branch_is_not_unfinished():
    text = message(SATURATE, lambda score, length, c: saturate(score, length, c) if length > 5 else None)
    assert text.startswith("还不对：3 组输入里有 2 组不对，先看「很短」。") and "return" in text


# ---------- 通过 ----------


def test_passing_message():
    result = grade_exercise(SATURATE, saturate)
    assert result.passed
    assert result.message == "通过：3 组输入全部一致（最大误差 0）。\nlength 很大时因子趋近 1。"
    assert message(PAIRS, PAIRS.reference) == "通过：3 组输入全部一致。"


def test_close_is_enough_and_is_reported():
    result = grade_exercise(SATURATE, lambda score, length, c: saturate(score, length, c) + 2e-7)
    assert result.passed and "最大误差 2e-07" in result.message
    assert not grade_exercise(SATURATE, lambda score, length, c: saturate(score, length, c) + 1e-3).passed


def test_float32_passes_against_float64():
    exercise = Exercise("0.9", "归一", reference=lambda v: v / np.linalg.norm(v), cases=[case("a", np.arange(1.0, 9))])
    assert grade_exercise(exercise, lambda v: (v / np.linalg.norm(v)).astype(np.float32)).passed


def test_numpy_scalars_and_tuples_are_fine():
    assert grade_exercise(SATURATE, lambda *a, **k: np.float64(saturate(*a, **k))).passed
    assert grade_exercise(PAIRS, lambda text: tuple(PAIRS.reference(text))).passed


# ---------- 不对：说出哪里不同 ----------


def test_first_failing_case_is_shown_with_input_and_values():
    text = message(SATURATE, lambda score, length, c: saturate(score, length, c) if length > 5 else 7)
    assert text.splitlines() == [
        "还不对：3 组输入里有 2 组不对，先看「很短」。",
        "  输入：score=0.5, length=5, c=20",
        "  结果应是 0.1，你得到 7。",
    ]


@pytest.mark.parametrize("wrong", SATURATE.wrong, ids=lambda w: w.name)
def test_known_mistake_gets_its_sentence(wrong):
    result = grade_exercise(SATURATE, wrong.attempt)
    assert not result.passed and result.hint == wrong.because and wrong.because in result.message


def test_relation_over_all_cases_is_recognised():
    assert "2.0 倍" in message(SATURATE, lambda s, length, c: 2 * saturate(s, length, c))
    assert "正负号反了" in message(SATURATE, lambda s, length, c: -saturate(s, length, c))


def test_diagnosis_sees_outputs_and_expected():
    exercise = Exercise(
        "0.4", "前 k 个", reference=lambda v, k: sorted(v)[-k:], cases=[case("三个", [3, 1, 2], 2)],
        diagnoses=[
            (lambda outputs, expected: 1 / 0, "不会出现"),
            (lambda outputs, expected: len(outputs[0]) == 1, "你只取了一个。"),
        ],
    )  # fmt: skip
    assert grade_exercise(exercise, lambda v, k: [max(v)]).hint == "你只取了一个。"


def test_wrong_that_loops_does_not_stall():
    def endless(text):
        while True:
            pass

    exercise = Exercise("0.5", "长度", reference=len, cases=[case("a", "甲乙")], wrong=[Wrong("停不下来", endless, "x")])
    start = time.perf_counter()
    assert not grade_exercise(exercise, lambda text: 5).passed
    assert time.perf_counter() - start < 4


# ---------- 各种类型 ----------


@dataclass
class Point:
    x: float
    name: str = ""


@pytest.mark.parametrize(
    ("expected", "actual", "problem", "hint"),
    [
        (0.5, 0.7, "结果应是 0.5，你得到 0.7。", ""),
        (0.5, float("nan"), "你得到 nan", "NaN"),
        (0.5, float("inf"), "你得到 inf", "无穷大"),
        (0.5, "0.5", "类型应是 小数 float；你得到的是 字符串 str", "去掉引号"),
        (1, True, "类型应是 整数 int；你得到的是 布尔 bool", ""),
        (True, 1, "类型应是 布尔 bool；你得到的是 整数 int", ""),
        (True, np.False_, "应是 True，你得到 False", ""),
        (0.5, 50.0, "应是 0.5", "100 倍"),
        (0.3, 0.7, "应是 0.3", "1 减去"),
        (0.3, 0.09, "应是 0.3", "平方"),
        ("abc", "abd", "从第 2 个字符（0 起）开始不同：应是 'c'，你得到 'd'", ""),
        ("abc", "ab", "应是 'c'，你得到 到此结束", "一部分"),
        ("a b", "a  b", "从第 2 个字符", "空格"),
        ("Abc", "abc", "从第 0 个字符", "大小写"),
        ("（甲）", "(甲)", "从第 0 个字符", "全角"),
        ("abc", b"abc", "你得到的是 字节串 bytes", ""),
        ([1, 2, 3], [1, 2], "应有 3 项，你有 2 项；前 2 项一致", "末尾少了"),
        ([1, 2, 3], [2, 3], "应有 3 项，你有 2 项", "开头少了"),
        ([1, 2], [1, 2, 3], "应有 2 项，你有 3 项", "末尾多了"),
        (["甲", "乙"], ["乙", "甲"], "结果[0] 从第 0 个字符", "顺序正好反了"),
        (["甲", "乙", "丙"], ["乙", "甲", "丙"], "3 项里有 2 项不同", "只是顺序不同"),
        ([1.0, 2.0, 4.0], [1.0, 2.5, 4.0], "结果[1] 应是 2.0，你得到 2.5；3 项里有 1 项不同，最大差 0.5", ""),
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], "结果[1][1] 应是 4，你得到 5", ""),
        ([1, 2], (x for x in [1, 2]), "你得到的是 generator", "list(...)"),
        ([1, 2], np.array([1, 2]), "应是 列表 list；你得到的是 numpy 数组，形状 (2,)", "tolist"),
        ({"a": 1, "b": 2}, {"a": 1}, "缺 'b'", ""),
        ({"a": 1}, {"a": 1, "c": 3}, "多了 'c'", ""),
        ({"a": [1, 2]}, {"a": [1, 3]}, "结果['a'][1] 应是 2，你得到 3", ""),
        ({"甲", "乙"}, {"甲", "丙"}, "缺 '乙'；多了 '丙'", ""),
        ({1}, [1], "应是 集合 set；你得到的是 列表 list", ""),
        (np.eye(2), np.ones((2, 3)), "形状应是 (2, 2)；你得到的是 (2, 3)", ""),
        (np.ones((2, 3)), np.ones((3, 2)), "形状应是 (2, 3)", "行和列颠倒"),
        (np.ones(3), np.ones((1, 3)), "形状应是 (3,)；你得到的是 (1, 3)", "形状不对"),
        (np.eye(3), np.eye(3)[::-1], "9 项里有 4 项不同，最大差 1.0", "顺序正好反了"),
        (np.arange(4.0), [0, 1, 2, 3], "你得到的是 列表 list", "np.array"),
        (np.arange(3), np.arange(3.0), "dtype 应是 int64；你得到的是 float64", "astype"),
        (np.array([True, False]), np.array([True, True]), "结果[1] 应是 False，你得到 True", ""),
        (np.array([0.6, 0.8]), np.array([3.0, 4.0]), "结果[0] 应是 0.6，你得到 3.0", "长度不是 1"),
        (np.array([1.0, 2.0]), np.array([3.0, 4.0]), "应是 1.0", "多了 2.0"),
        (np.array([1.0, 2.0]), np.array([3.0, 6.0]), "应是 1.0", "3.0 倍"),
        (np.array([1.0, np.nan]), np.array([np.nan, np.nan]), "结果[0] 应是 1.0，你得到 nan", ""),
        (Point(1, "甲"), Point(2, "甲"), "结果.x 应是 1，你得到 2", ""),
        (Point(1), [1], "应是 Point；你得到的是 列表 list", ""),
        ([Chunk("甲", "a.md", 0, 1)], [Chunk("甲", "a.md", 1, 2)], "结果[0].start 应是 0，你得到 1", ""),
        ("甲", None, "应是 字符串 str；你得到的是 None", ""),
        (None, 0, "应是 None，你得到 0", ""),
        (1.0, 1.0000001 + 1e-4, "应是 1.0，你得到 1.0001", ""),
    ],
)
def test_differences(expected, actual, problem, hint):
    found = find_difference(expected, actual)
    assert problem in found.problem
    assert hint in found.hint if hint else not found.hint
    assert found.problem.endswith("。")


@pytest.mark.parametrize(
    "value",
    [0.0, float("nan"), float("inf"), "甲", "", [], {}, set(), (1, "a"), {"a": {"b": [1]}}, None, True, np.eye(2),
     np.array([]), np.zeros((0, 3)), np.array([np.nan, np.inf]), np.array(["甲"]), Point(1), Chunk("甲", "a", 0, 1)],
    ids=str,
)  # fmt: skip
def test_equal_to_itself(value):
    assert find_difference(value, value).problem == ""


def test_show_is_short_and_stable():
    assert show(1 / 3) == "0.333333" and show(2.0) == "2.0" and show(np.float32(0.5)) == "0.5"
    assert show({"乙", "甲"}) == "{'乙', '甲'}"
    assert show(list(range(100))) == "[0, 1, 2, 3, 4, 5, 6, 7, …共 100 项]"
    assert show(np.zeros((100, 3))) == "形状 (100, 3) 的数组"
    assert len(show("字" * 500)) <= 72
    assert show(object()) == "<object>" and " at 0x" not in show([print, len, object()])
    assert show(Chunk("甲", "a.md", 0, 1)) == "Chunk(a.md:1)"


# ---------- 学习者的代码做什么都不抛 ----------


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("不给比")

    def __repr__(self):
        raise RuntimeError("不给看")

    def __len__(self):
        return -1

    __hash__ = None


class BadError(Exception):
    def __str__(self):
        raise RuntimeError("连错误也坏了")


def _raise(error):
    def attempt(score, length, c):
        raise error

    return attempt


def _recurse(score, length, c):
    return _recurse(score, length, c)


async def _async(score, length, c):
    return 1.0


class NotAFunction:
    def __init__(self, score, length, c):
        pass


@pytest.mark.parametrize(
    "attempt",
    [
        _raise(ValueError("x")), _raise(SystemExit(3)), _raise(KeyboardInterrupt()), _raise(BadError()),
        _raise(BaseException()), _raise(GeneratorExit()), _raise(StopIteration()), _raise(MemoryError()),
        _recurse, _async, NotAFunction, Hostile, Hostile(), lambda *a, **k: Hostile(), lambda *a, **k: [Hostile()],
        lambda: 1, lambda score: 1, 3, "字", [], np.eye(2), int, print, object(),
        lambda score, length, c: score / length, lambda score, length, c: iter([]), lambda score, length, c: object(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("exercise", [SATURATE, PAIRS, ANSWER], ids=lambda e: e.title)
def test_never_raises(exercise, attempt, capsys):
    result = grade_exercise(exercise, attempt)
    assert not result.passed
    assert result.message.startswith(("还不对：", "出错了：", "还没写完："))
    assert " at 0x" not in result.message and "Traceback" not in result.message


def test_error_names_type_line_and_input():
    def attempt(score, length, c):
        share = 1
        return share // length

    line = attempt.__code__.co_firstlineno + 2
    assert message(SATURATE, attempt).startswith("还不对：3 组输入里有 3 组不对，先看「普通」。")
    attempt_zero = grade_exercise(
        Exercise("0.6", "零", reference=saturate, cases=[case("零长", 0.5, 0, 20)]), attempt
    ).message.splitlines()
    assert attempt_zero == [
        "出错了：输入「零长」。",
        "  输入：score=0.5, length=0, c=20",
        f"  抛出 ZeroDivisionError: integer division or modulo by zero，在第 {line} 行：return share // length",
        "  分母会是 0：先处理这种输入。",
    ]


def test_error_inside_numpy_points_to_the_learners_line():
    def attempt(text):
        return np.zeros(3).reshape(2, 2)

    text = message(PAIRS, attempt)
    assert f"在第 {attempt.__code__.co_firstlineno + 1} 行：return np.zeros(3).reshape(2, 2)" in text


def test_wrong_parameters_are_named():
    assert "saturating(score, length, c)" in message(SATURATE, _named("saturating", lambda score: 1))
    later = Exercise("0.9", "后一组多一个参数", reference=lambda a, b=0: a, cases=[case("一个", 1), case("两个", 1, b=2)])
    assert "only(a, b)" in message(later, _named("only", lambda a: a))


def _named(name, function):
    function.__name__ = name
    return function


def test_calling_instead_of_passing_the_function():
    text = message(SATURATE, saturate(0.5, 100, 20))
    assert 'check("0.1", 函数名)' in text
    assert "值" in message(ANSWER, saturate)


# ---------- 停不下来 ----------


def _spin(*args, **kwargs):
    while True:
        pass


def _spin_and_swallow(*args, **kwargs):
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


def _spin_with_bare_except(*args, **kwargs):
    while True:
        try:  # noqa: SIM105
            sum(range(10))
        except:  # noqa: E722
            pass


def _spin_in_a_helper(*args, **kwargs):
    def work():
        try:
            _spin()
        except:  # noqa: E722
            return None

    while True:
        work()


@pytest.mark.parametrize("attempt", [_spin, _spin_and_swallow, _spin_with_bare_except, _spin_in_a_helper])
def test_endless_loop_is_stopped(attempt):
    before = threading.active_count()
    start = time.perf_counter()
    text = message(SATURATE, attempt)
    assert time.perf_counter() - start < 3
    assert text.splitlines() == [
        "没有算完：输入「普通」。",
        "  输入：score=0.5, length=100, c=20",
        "  超过 0.3 秒还没有结果，已停下。",
        "  多半是循环停不下来：看看每一轮里决定是否结束的那个变量有没有变。",
    ]
    deadline = time.perf_counter() + 2
    while threading.active_count() > before and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before  # 没有线程留在后台转


def test_nothing_is_left_behind():
    tracer = sys.gettrace()

    def work(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return "完"

    for _ in range(200):  # 时限恰好在结束前后到：不能有一次漏到外面来
        with contextlib.suppress(TimeUp):
            assert call_limited(work, [0.001], {}, 0.001) == "完"
    work(0.2)
    assert sys.gettrace() is tracer


def test_the_debuggers_trace_function_is_kept():
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with contextlib.suppress(TimeUp):
            call_limited(_spin_with_bare_except, [], {}, 0.05)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_time_limit_works_in_another_thread():
    seen = []

    def work():
        try:
            call_limited(_spin, [], {}, 0.1)
        except TimeUp:
            seen.append("停")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert seen == ["停"]


# ---------- 输入是副本 ----------


def test_inputs_are_copies_and_mutation_is_mentioned():
    scores = np.array([3.0, 1.0, 2.0])
    words = ["乙", "甲"]
    exercise = Exercise(
        "0.7", "排序", reference=lambda scores, words: (np.sort(scores), sorted(words)),
        cases=[case("三个", scores, words), case("同样的输入", scores, words)],
    )  # fmt: skip

    def in_place(scores, words):
        scores.sort()
        words.sort()
        return scores, words

    result = grade_exercise(exercise, in_place)
    assert result.passed and "in_place 改动了传进来的 scores" in result.message
    assert scores.tolist() == [3.0, 1.0, 2.0] and words == ["乙", "甲"]
    assert "改动" not in message(exercise, exercise.reference)


def test_random_generators_start_equal_for_everyone():
    exercise = Exercise(
        "0.8", "抽样", reference=lambda rng, r: [int(rng.integers(100)), r.random()],
        cases=[case("种子 0", np.random.default_rng(0), random.Random(0))] * 2,
    )  # fmt: skip
    assert message(exercise, lambda rng, r: [int(rng.integers(100)), r.random()]).startswith("通过")


def test_other_containers_are_copied_too():
    for value in (collections.deque([1]), bytearray(b"a"), collections.Counter("ab"), {1: [2]}, {1}, ([1],)):
        exercise = Exercise("0.8", "原样", reference=lambda v: repr(v), cases=[case("a", value)])
        kept = repr(value)

        def spoil(v):
            text = repr(v)
            (v[0] if isinstance(v, tuple) else v).clear()
            return text

        assert grade_exercise(exercise, spoil).passed and repr(value) == kept


def test_warnings_in_the_attempt_stay_silent(recwarn):
    exercise = Exercise("0.8", "比", reference=lambda a, b: 0.0, cases=[case("零", np.float64(0), np.float64(0))])
    assert "NaN" in message(exercise, lambda a, b: a / b)
    assert not recwarn.list


# ---------- 应当抛异常的输入；自定义的判断 ----------


def _checked(size, overlap):
    if overlap >= size:
        raise ValueError("overlap 要小于 size")
    return size - overlap


def test_expected_exception():
    exercise = Exercise("0.8", "步长", reference=_checked, cases=[case("合法", 5, 2), case("重叠太大", 5, 5)])
    assert grade_exercise(exercise, _checked).passed

    def own_error(size, overlap):
        if overlap >= size:
            raise RagLessonsError("不行")  # ValueError 的子类也可以
        return size - overlap

    assert grade_exercise(exercise, own_error).passed
    assert "应当抛出 ValueError；你返回了 0" in message(exercise, lambda size, overlap: size - overlap)
    assert "你抛出的是 KeyError" in message(exercise, lambda s, o: s - o if s > o else {}[0])


def test_judge_replaces_the_comparison():
    def judge(chunks, text, size):
        if "".join(chunks) != text:
            return "拼回去不等于原文。"
        return next((f"第 {i} 块有 {len(c)} 个字。" for i, c in enumerate(chunks) if len(c) > size), "")

    exercise = Exercise(
        "0.8", "切块", reference=lambda text, size: [text[i : i + size] for i in range(0, len(text), size)],
        cases=[case("五个字", "甲乙丙丁戊", 2)], judge=judge,
    )  # fmt: skip
    assert message(exercise, lambda text, size: list(text)) == "通过：1 组输入全部符合要求。"
    assert "第 0 块有 5 个字" in message(exercise, lambda text, size: [text])
    assert grade_exercise(exercise, lambda text, size: [text]).hint == "第 0 块有 5 个字。"
    assert "拼回去不等于原文" in message(exercise, lambda text, size: [text[:2]])


# ---------- 值类练习 ----------


def test_value_answers():
    assert message(ANSWER, 0.62) == "通过：0.62。"
    assert grade_exercise(ANSWER, np.float64(0.625)).passed
    assert not grade_exercise(ANSWER, 0.7).passed
    assert "偏大" in message(ANSWER, 0.7) and "偏小" in message(ANSWER, 0.1)
    assert "0.62" not in message(ANSWER, 0.7), "值类答案不能把答案说出来"
    assert grade_exercise(ANSWER, 0.3844).hint == "分母要开方。"
    assert "100 倍" in message(ANSWER, 62)
    assert "去掉引号" in message(ANSWER, "0.62")
    assert not grade_exercise(ANSWER, True).passed


def test_value_range_and_lazy_reference():
    exercise = Exercise("0.8", "范围", kind="value", reference=lambda: 0.81, accept=(0.80, 0.85))
    for value, passed in [(0.80, True), (0.85, True), (0.799, False), (0.86, False), (float("nan"), False)]:
        assert grade_exercise(exercise, value).passed is passed
    assert "偏小" in message(exercise, 0.35)
    assert "0.8" not in message(exercise, 0.35).replace("0.35", "")


@pytest.mark.parametrize("reference", ["safety.py", [3, 1, 2], {"a", "b"}, {"k": 3}, True, (1, 2)])
def test_value_kinds_do_not_leak(reference):
    exercise = Exercise("0.8", "值", kind="value", reference=reference)
    assert grade_exercise(exercise, reference).passed
    for other in ("config.py", [9, 1, 2], {"zz"}, {"j": 9}, False, 7):
        if other != reference:
            result = grade_exercise(exercise, other)
            assert not result.passed
            assert "safety" not in result.message and "应是 3" not in result.message


def test_value_diagnosis():
    exercise = Exercise("0.8", "比例", kind="value", reference=0.2, diagnoses=[(lambda v: v > 1, "比例不会大于 1。")])
    assert grade_exercise(exercise, 3.0).hint == "比例不会大于 1。"


# ---------- 编号与打印 ----------


def test_unknown_id_says_so():
    for call in (check, grade):
        with pytest.raises(RagLessonsError, match="没有编号为"):
            call("99.1", 1)


def test_messages_do_not_depend_on_the_hash_seed():
    code = (
        "from rag_lessons.course.checks import Exercise, case, grade_exercise as g\n"
        "e = Exercise('0.1', 't', reference=lambda t: set(t), cases=[case('a', '甲乙丙丁戊己庚')])\n"
        "print(g(e, lambda t: set('子丑寅卯')).message, g(e, lambda t: object()).message)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, encoding="utf-8", check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(outputs) == 1 and "还不对" in outputs.pop()


# ---------- 登记在册的每一道练习 ----------


def complaints(exercise):
    """一道练习有哪些毛病；没有就是空列表。"""
    found = []
    answer = exercise.reference
    if exercise.kind == "value":
        answer = answer() if callable(answer) else answer
    right = grade_exercise(exercise, answer)
    if not right.passed:
        found.append(f"参考答案没有通过：{right.message}")
    if len(exercise.wrong) < 5:
        found.append(f"错误答案只有 {len(exercise.wrong)} 个，要 5 个")
    seen = {}
    for wrong in exercise.wrong:
        result = grade_exercise(exercise, wrong.attempt)
        if result.passed:
            found.append(f"错误答案「{wrong.name}」通过了")
        elif len(result.hint) < 5:
            found.append(f"错误答案「{wrong.name}」没有得到有用的提示：{result.message}")
        elif wrong.because and result.hint != wrong.because:
            found.append(f"错误答案「{wrong.name}」得到的是别人的提示：{result.hint}")
        if result.message in seen:
            found.append(f"「{wrong.name}」与「{seen[result.message]}」的话一模一样")
        seen[result.message] = wrong.name
        if result.message != grade_exercise(exercise, wrong.attempt).message:
            found.append(f"「{wrong.name}」两次的话不同")
    for stub in (lambda *a, **k: None, lambda *a, **k: ..., None, ...):
        if exercise.kind == "value" and callable(stub):
            continue
        result = grade_exercise(exercise, stub)
        if result.passed or not result.message.startswith("还没写完："):
            found.append(f"没写完时说的是：{result.message}")
    if not exercise.title or exercise.title.endswith("。"):
        found.append("题目要有，且不以句号结尾")
    return found


def test_complaints_catches_bad_exercises():
    assert complaints(SATURATE) == []
    assert any("没有通过" in c for c in complaints(Exercise("0.1", "t", "value", kind="value", accept=None, judge=lambda v: "不")))
    lenient = Exercise("0.1", "t", reference=len, cases=[case("a", "甲")], wrong=[Wrong("总是 1", lambda t: 1, "x" * 9)])
    assert any("通过了" in c for c in complaints(lenient)) and any("要 5 个" in c for c in complaints(lenient))
    vague = Exercise("0.1", "t", reference=len, cases=[case("a", "甲")], wrong=[Wrong("7", lambda t: 7), Wrong("七", lambda t: 7)])
    assert any("没有得到有用的提示" in c for c in complaints(vague)) and any("一模一样" in c for c in complaints(vague))


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda e: e.id)
def test_registered_exercise(exercise):
    assert complaints(exercise) == []
    assert find(exercise.id) is exercise or find(exercise.id) == exercise


def test_every_lesson_module_has_two_exercises():
    counts = collections.Counter(e.id.split(".")[0] for e in all_exercises())
    assert all(n >= 2 for n in counts.values()), counts
    assert len(counts) == len(lesson_modules())
