"""练习检查：``check("4.3", my_function)``。

检查要教人，不只是判对错：它说出哪一组输入不对、应得什么、你得到什么、差多少，
认得出的错法再补一句。没写完的练习、抛异常的练习、停不下来的练习都只打印一句话，从不中断 notebook。

课的作者在 ``exercises/lessonNN.py`` 里登记练习::

    EXERCISES = [
        Exercise(
            id="3.1", title="两段文字的字对", reference=bigrams,
            cases=[case("四个字", "失控保护"), case("一个字", "失"), case("空串", "")],
            wrong=[
                Wrong("按单字切", list, "你切的是单字；每次要取相邻的两个字。"),
                Wrong("步长为 2", lambda t: [t[i:i + 2] for i in range(0, len(t), 2)],
                      "步长是 2，中间的字对漏了；步长应是 1。"),
            ],
            follow_up="n 个字有 n-1 个字对。",
        ),
        Exercise(id="3.2", title="余弦", kind="value", reference=0.5, tolerance=0.01,
                 wrong=[Wrong("忘了开方", 0.25, "分母要开平方。")]),
    ]

``wrong`` 既是测试用的错误答案，也是诊断：学习者的输出与某个错误答案处处相同，就给出它的那句话。
"""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import inspect
import linecache
import math
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rag_lessons.course.differ import (
    TOLERANCE,
    find_difference,
    is_number,
    scrub,
    show,
    show_error,
    type_name,
)

SECONDS = 5.0  # 每组输入的时限
WRONG_SECONDS = 1.0  # 拿错误答案对照时的时限


# ---------------------------------------------------------------- 练习的写法


@dataclass(frozen=True)
class Case:
    """一组输入：一个短名字，加上要传的参数。"""

    label: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def case(label: str, *args: Any, **kwargs: Any) -> Case:
    """``case("空列表", [], k=3)``：名字在前，其余原样传给函数（每次传的都是副本）。"""
    return Case(label, args, kwargs)


@dataclass(frozen=True)
class Wrong:
    """一个想得到的错误答案，和它对应的一句话。

    name : 测试里用的名字。
    attempt : 错的函数或错的值。
    because : 错在哪里、往哪里改；留空时只靠通用的比较。
    """

    name: str
    attempt: Any
    because: str = ""


@dataclass(frozen=True)
class Exercise:
    """一道练习。

    参数
    ----
    id : 编号，"课号.序号"，例如 "4.3"、"A1.2"。
    title : 题目，一句话。
    reference : 参考答案：函数；值类练习是值，或不带参数、算出值的函数。
    kind : "function"（默认）或 "value"。
    cases : 若干组输入，或返回它们的函数（需要读文件、算向量时用，检查时才执行）。
        参考答案在某组输入上抛异常，就要求学习者也抛同类异常。
    tolerance : 数值误差，默认 1e-5，相对于 max(1, |应得|)。
    accept : 值类练习的可接受范围 (低, 高)，含两端；给了它就不看 tolerance。
    judge : 结果不唯一时用：``judge(output, *args, **kwargs)`` 返回 "" 表示可以，否则返回一句话。
        有 judge 就不再与参考答案逐项比较。值类练习是 ``judge(value)``。
    diagnoses : [(条件, 一句话)]。函数类的条件收 (outputs, expected) 两个列表；值类收 (value,)。
    wrong : 至少五个想得到的错误答案，见 Wrong。
    follow_up : 通过后补的一句话。
    seconds : 每组输入的时限（秒）。
    """

    id: str
    title: str
    reference: Any
    kind: Literal["function", "value"] = "function"
    cases: Sequence[Case] | Callable[[], Sequence[Case]] = ()
    tolerance: float = TOLERANCE
    accept: tuple[float, float] | None = None
    judge: Callable[..., str] | None = None
    diagnoses: Sequence[tuple[Callable[..., bool], str]] = ()
    wrong: Sequence[Wrong] = ()
    follow_up: str = ""
    seconds: float = SECONDS

    def get_cases(self) -> list[Case]:
        """全部输入。"""
        return list(self.cases() if callable(self.cases) else self.cases)


@dataclass(frozen=True)
class Result:
    """检查的结果。passed 是否通过；message 是打印的文字；hint 是其中的提示（没有时为空串）。"""

    passed: bool
    message: str
    hint: str = ""


# ---------------------------------------------------------------- 安全地运行别人的函数


class _TimeUp(BaseException):
    """时限到了。不是 Exception，学习者的 ``except Exception`` 拦不住它。"""


@dataclass(frozen=True)
class Outcome:
    """运行一次的结果：值、异常或超时。"""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    changed: str = ""  # 被改动的参数名

    @property
    def ok(self) -> bool:
        return self.error is None and not self.timed_out


def call_limited(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], seconds: float
) -> Any:
    """调用函数；超过 ``seconds`` 秒就在当前线程里抛出 _TimeUp。

    函数留在当前线程里跑（打印、数据库连接都照常），另起一个看表的线程，到点用 CPython 的
    PyThreadState_SetAsyncExc 打断它。Windows 上也能用（signal.alarm 不行），也不像 sys.settrace
    那样拖慢每一行。打断发生在两条字节码之间，所以一次很长的 C 调用要等它自己返回。
    """
    raise_in = getattr(getattr(ctypes, "pythonapi", None), "PyThreadState_SetAsyncExc", None)
    if raise_in is None:  # 不是 CPython：没有时限，其余照常
        return function(*args, **kwargs)
    home, tracer = sys._getframe(), sys.gettrace()
    thread = threading.get_ident()
    gate = threading.Lock()  # 放开就是「不用看了」；不用 Event：它的内部锁被打断时会一直锁着
    gate.acquire()
    watching = [False]

    class Again(_TimeUp):
        """第一次被裸的 ``except:`` 吞掉之后用的。

        异常对象是在被打断的线程里造出来的，所以可以在 __init__ 里给学习者的每一层栈帧装上跟踪函数：
        下一行（多半就在那个 except 里）再抛一次，逃出循环。
        """

        def __init__(self) -> None:
            super().__init__()
            sys.settrace(lambda frame, event, arg: None)
            frame = sys._getframe(1)
            while frame is not None and frame is not home:
                frame.f_trace = again
                frame = frame.f_back

    def again(frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            raise _TimeUp
        return again

    def watch() -> None:
        watching[0] = True
        wait, error = seconds, _TimeUp
        while not gate.acquire(timeout=wait):
            top = sys._current_frames().get(thread)
            if top is not None and top is not home and top.f_code is not stop.__code__:  # 正在收尾时不打断
                raise_in(ctypes.c_ulong(thread), ctypes.py_object(error))
            wait, error = 0.05, Again
        watching[0] = False

    def stop() -> None:
        if gate.locked():
            gate.release()
        while watching[0]:  # 等看表的线程走开，此后不会再有新的打断
            time.sleep(0.0002)
        # 已发出、还没送到的那一次，在这个循环里送到。不能用 SetAsyncExc(NULL) 撤回：
        # 那会留下一个永远不清的中断标志，3.11 在跟踪时会因此死循环。
        for _ in range(8):
            pass
        if sys.gettrace() is not tracer:
            sys.settrace(tracer)

    try:
        try:
            threading.Thread(target=watch, daemon=True, name="check-time-limit").start()
            return function(*args, **kwargs)
        finally:
            stop()
    except _TimeUp:
        while True:  # 收尾本身也可能被打断一次，收完为止
            try:
                stop()
                break
            except _TimeUp:
                continue
        raise


def copy_input(value: Any) -> Any:
    """给学习者的副本：容器、数组、随机数发生器都复制；模型、索引这类大对象原样传过去。"""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(copy_input(v) for v in value)
    if type(value) is dict:
        return {copy_input(k): copy_input(v) for k, v in value.items()}
    kinds = (bytearray, collections.deque, dict, list, np.random.Generator, random.Random)
    return copy.deepcopy(value) if isinstance(value, kinds) else value


def _parameter_names(function: Any, case_: Case) -> list[str]:
    """每个位置参数叫什么；取不到就叫 第 1 个参数。"""
    with contextlib.suppress(TypeError, ValueError):
        parameters = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if len(parameters) >= len(case_.args):
            return parameters[: len(case_.args)]
    return [f"第 {i + 1} 个参数" for i in range(len(case_.args))]


def run_case(function: Callable[..., Any], case_: Case, seconds: float = SECONDS) -> Outcome:
    """拿一组输入的副本运行函数，接住它做的任何事：异常、退出、停不下来。"""
    args, kwargs = copy_input(case_.args), copy_input(case_.kwargs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = call_limited(function, args, kwargs, seconds)
            if inspect.iscoroutine(value):
                value.close()
    except _TimeUp:
        return Outcome(timed_out=True)
    except BaseException as error:
        return Outcome(error=error)
    names = _parameter_names(function, case_)
    pairs = [*zip(names, case_.args, args, strict=True), *((k, v, kwargs[k]) for k, v in case_.kwargs.items())]
    changed = next((name for name, before, after in pairs if _was_changed(before, after)), "")
    return Outcome(value=value, changed=changed)


def _was_changed(before: Any, after: Any) -> bool:
    if before is after or isinstance(before, np.random.Generator | random.Random):
        return False
    try:
        return bool(find_difference(before, after, tolerance=0.0).problem)
    except Exception:
        return False


# ---------------------------------------------------------------- 打分


def check(exercise_id: str, attempt: Any) -> None:
    """检查一道练习并打印结果。无论 ``attempt`` 做什么都不抛异常；编号写错时抛 RagLessonsError。"""
    print(grade(exercise_id, attempt).message)


def grade(exercise_id: str, attempt: Any) -> Result:
    """同 ``check``，但返回 Result，不打印。"""
    from rag_lessons.course.exercises import find

    return grade_exercise(find(exercise_id), attempt)


def grade_exercise(exercise: Exercise, attempt: Any) -> Result:
    """检查一道练习。

    参数
    ----
    exercise : 练习。
    attempt : 学习者写的函数；值类练习是一个值。

    返回 Result；从不因 ``attempt`` 抛异常。
    """
    try:
        return _grade_value(exercise, attempt) if exercise.kind == "value" else _grade_function(exercise, attempt)
    except Exception as error:  # 例如返回的对象连比较都会抛异常
        problem = scrub(f"{type(error).__name__}: {error}")
        return Result(False, f"还不对：你的结果没法与参考答案比较（{problem}）。请换成普通的数、字符串、列表或数组。")


def is_unfinished(value: Any) -> bool:
    """None、``...``，或里面还留着 ``...`` 的列表、字典、数组。"""
    if value is None or value is ...:
        return True
    if isinstance(value, list | tuple | set | frozenset):
        return any(v is ... for v in value)
    if isinstance(value, dict):
        return any(v is ... for v in value.values())
    return isinstance(value, np.ndarray) and value.dtype == object and any(v is ... for v in value.ravel())


def _unfinished(what: str, hint: str = "") -> Result:
    message = f"还没写完：{what}。写好后再运行这一格。"
    return Result(False, message + (f"\n  {hint}" if hint else ""), hint)


def _grade_value(exercise: Exercise, value: Any) -> Result:
    if is_unfinished(value):
        return _unfinished(f"答案还是 {show(value)}")
    if callable(value):
        return Result(False, f"还不对：这里要交一个值，你交的是{type_name(value)}。先调用它，把结果交上来。")
    expected = exercise.reference() if callable(exercise.reference) else exercise.reference
    found = find_difference(expected, value, exercise.tolerance, "你的答案", reveal=False)
    problem = found.problem
    if exercise.judge is not None:
        problem = exercise.judge(value)
    elif exercise.accept is not None and isinstance(value, int | float | np.number) and value is not True:
        low, high = exercise.accept
        number = float(value)
        if low <= number <= high:
            problem = ""
        elif math.isnan(number):
            problem = "你的答案 是 NaN，不是一个数。"
        else:
            problem = f"你的答案 {show(value)} {'偏小' if number < low else '偏大'}了。"
    if not problem:
        return Result(True, "\n".join(filter(None, [f"通过：{show(value)}。", exercise.follow_up])))
    hint = _value_hint(exercise, value) or ("" if exercise.judge else found.hint)
    message = "\n".join(filter(None, [f"还不对：{problem}", hint and f"  {hint}"]))
    return Result(False, message, hint or (problem if exercise.judge else ""))


def _value_hint(exercise: Exercise, value: Any) -> str:
    for predicate, sentence in exercise.diagnoses:
        with contextlib.suppress(Exception):
            if predicate(value):
                return sentence
    for wrong in exercise.wrong:
        if wrong.because and not find_difference(wrong.attempt, value, exercise.tolerance).problem:
            return wrong.because
    return ""


def _grade_function(exercise: Exercise, attempt: Any) -> Result:
    if is_unfinished(attempt):
        return _unfinished(f"你交上来的是 {show(attempt)}")
    if not callable(attempt):
        return Result(
            False,
            f"还不对：这里要交函数本身，你交的是{type_name(attempt)}。"
            f'写 check("{exercise.id}", 函数名)，函数名后面不要加括号。',
        )
    cases = exercise.get_cases()
    name = _name_of(attempt)
    refused = next((one for one in cases if not _can_call(attempt, one)), None)
    if refused is not None:
        want = ", ".join(_parameter_names(exercise.reference, refused) + list(refused.kwargs))
        return Result(False, f"还不对：要能这样调用：{name}({want})。请核对参数的个数和名字。")
    expected, outcomes = [], []
    for one in cases:
        expected.append(run_case(exercise.reference, one, seconds=60.0))
        outcomes.append(run_case(attempt, one, exercise.seconds))
        if outcomes[-1].timed_out:
            break
    stub = _stub_result(name, attempt, outcomes, expected)
    if stub is not None:
        return stub
    verdicts = [_judge(exercise, c, e, o) for c, e, o in zip(cases, expected, outcomes, strict=False)]
    bad = [i for i, v in enumerate(verdicts) if v.problem]
    if not bad:
        return _passed(exercise, name, verdicts, outcomes)
    i = bad[0]
    if outcomes[i].timed_out:
        hint = "多半是循环停不下来：看看每一轮里决定是否结束的那个变量有没有变。"
    else:
        hint = _function_hint(exercise, cases, outcomes, expected) or verdicts[i].hint
    head = {"error": "出错了", "time": "没有算完"}.get(verdicts[i].kind, "还不对")
    if len(cases) == 1 or outcomes[i].timed_out:
        head += f"：输入「{cases[i].label}」。"
    else:
        head += f"：{len(cases)} 组输入里有 {len(bad)} 组不对，先看「{cases[i].label}」。"
    lines = [head, f"  输入：{_show_input(exercise, cases[i])}", f"  {verdicts[i].problem}", hint and f"  {hint}"]
    judged = exercise.judge is not None and verdicts[i].kind == "value"  # judge 的那句话本身就是提示
    return Result(False, "\n".join(filter(None, lines)), hint or (verdicts[i].problem if judged else ""))


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name != "<lambda>" else "你的函数"


def _can_call(function: Any, case_: Case) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # 取不到签名的（C 函数）就直接试
    try:
        signature.bind(*case_.args, **case_.kwargs)
    except TypeError:
        return False
    return True


def _show_input(exercise: Exercise, case_: Case) -> str:
    names = _parameter_names(exercise.reference, case_)
    pairs = [*zip(names, case_.args, strict=True), *case_.kwargs.items()]
    return ", ".join(f"{n}={show(v, 60)}" for n, v in pairs) or "没有参数"


def _stub_result(name: str, attempt: Any, outcomes: list[Outcome], expected: list[Outcome]) -> Result | None:
    """还没动笔的练习：返回 None 或 ...，抛 NotImplementedError，或用到了还没填的 ...。"""
    first = outcomes[0]
    if isinstance(first.error, NotImplementedError):
        return _unfinished(f"{name} 抛出了 NotImplementedError")
    if first.error is not None and "ellipsis" in str(first.error).lower():
        return _unfinished(f"{name} 里还有 ... 没有填")
    wanted = [o for o, e in zip(outcomes, expected, strict=False) if not (e.ok and is_unfinished(e.value))]
    if wanted and all(o.ok and is_unfinished(o.value) for o in wanted):
        hint = "" if _is_empty(attempt) or wanted[0].value is not None else f"{name} 里写了东西，是不是忘了 return。"
        return _unfinished(f"{name} 返回了 {show(wanted[0].value)}", hint)
    return None


def _is_empty(function: Any) -> bool:
    """函数体只有 ``...``、``pass`` 或文档字符串。"""
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    parameters = code.co_argcount + code.co_kwonlyargcount
    parameters += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return not code.co_names and code.co_nlocals == parameters


@dataclass(frozen=True)
class _Verdict:
    problem: str = ""
    hint: str = ""
    kind: str = "value"
    largest: float | None = None


def _judge(exercise: Exercise, case_: Case, expected: Outcome, outcome: Outcome) -> _Verdict:
    if outcome.timed_out:
        return _Verdict(f"超过 {exercise.seconds:g} 秒还没有结果，已停下。", kind="time")
    if expected.error is not None:
        if isinstance(outcome.error, type(expected.error)):
            return _Verdict()
        want = type(expected.error).__name__
        if outcome.error is None:
            return _Verdict(f"这组输入不合法，应当抛出 {want}；你返回了 {show(outcome.value)}。")
        return _Verdict(f"这组输入不合法，应当抛出 {want}；你抛出的是 {type(outcome.error).__name__}。")
    if outcome.error is not None:
        return _Verdict(_describe_error(outcome.error), _error_hint(outcome.error), kind="error")
    if outcome.value is None and expected.value is not None:
        return _Verdict("返回了 None。", "是不是有一条分支没有 return。")
    if inspect.iscoroutine(outcome.value):
        return _Verdict("返回的是 coroutine，函数没有真的执行。", "去掉 async。")
    if exercise.judge is not None:
        return _Verdict(exercise.judge(outcome.value, *copy_input(case_.args), **copy_input(case_.kwargs)))
    found = find_difference(expected.value, outcome.value, exercise.tolerance)
    return _Verdict(found.problem, found.hint, largest=found.largest)


def _passed(exercise: Exercise, name: str, verdicts: list[_Verdict], outcomes: list[Outcome]) -> Result:
    errors = [v.largest for v in verdicts if v.largest is not None]
    detail = f"（最大误差 {show_error(max(errors))}）" if errors else ""
    lines = [f"通过：{len(verdicts)} 组输入全部{'符合要求' if exercise.judge else '一致'}{detail}。"]
    changed = next((o.changed for o in outcomes if o.changed), "")
    if changed:
        lines.append(f"另外：{name} 改动了传进来的 {changed}，调用者的数据会跟着变；先复制一份再改更稳妥。")
    return Result(True, "\n".join([*lines, *filter(None, [exercise.follow_up])]))


# ---------------------------------------------------------------- 诊断


def _signature(outcomes: list[Outcome]) -> list[Any]:
    return [("value", o.value) if o.ok else ("error", type(o.error).__name__) for o in outcomes]


def _function_hint(
    exercise: Exercise, cases: list[Case], outcomes: list[Outcome], expected: list[Outcome]
) -> str:
    values = [o.value for o in outcomes]
    wanted = [e.value for e in expected]
    for predicate, sentence in exercise.diagnoses:
        with contextlib.suppress(Exception):
            if predicate(values, wanted):
                return sentence
    mine = _signature(outcomes)
    for wrong in exercise.wrong:
        if not wrong.because:
            continue
        with contextlib.suppress(Exception):
            same = True
            for one, got in zip(cases, mine, strict=False):
                theirs = run_case(wrong.attempt, one, WRONG_SECONDS)
                same = not theirs.timed_out and not find_difference(
                    _signature([theirs])[0], got, exercise.tolerance
                ).problem
                if not same:
                    break
            if same:
                return wrong.because
    pairs = [(e, v) for e, v in zip(wanted, values, strict=True) if is_number(e) and is_number(v)]
    if 1 < len(pairs) == len(wanted) and exercise.judge is None:  # 单看一个数认不出的关系，几组合起来看
        whole = np.array(pairs, dtype=np.float64)
        return find_difference(whole[:, 0], whole[:, 1], exercise.tolerance).hint
    return ""


_ERROR_HINTS: dict[type[BaseException], str] = {
    ZeroDivisionError: "分母会是 0：先处理这种输入。",
    IndexError: "下标超出了范围：空的输入、最后一项最容易碰到。",
    KeyError: "字典里没有这个键：用 .get(键, 默认值)，或先判断。",
    NameError: "这个名字还没有定义：上面的格子都运行过吗，拼写对吗。",
    RecursionError: "函数不停地调用自己：缺一个停下来的条件。",
    StopIteration: "next() 没有东西可取了：给它一个默认值。",
    UnboundLocalError: "这个变量只在某条分支里赋过值。",
    SystemExit: "函数里不要调用 exit() 或 quit()，用 return。",
    KeyboardInterrupt: "运行被中断了。",
    MemoryError: "内存不够：是不是建了一个很大的数组。",
}


def _error_hint(error: BaseException) -> str:
    return next((_ERROR_HINTS[kind] for kind in type(error).__mro__ if kind in _ERROR_HINTS), "")


def _describe_error(error: BaseException) -> str:
    """异常的类型、内容，以及学习者代码里出错的那一行。"""
    message = " ".join(scrub(str(error)).split())
    text = f"抛出 {type(error).__name__}" + (f": {message[:160]}" if message else "")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in frames if frames and f.filename == frames[0].filename]
    if not own:
        return text + "。"
    last = own[-1]
    source = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"{text}，在第 {last.lineno} 行" + (f"：{source[:80]}" if source else "。")
