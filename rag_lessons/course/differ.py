"""两个值哪里不同：找出第一处、最大的差，并认出几种常见的错法。

``find_difference(应得, 实得)`` 对数、字符串、列表、字典、集合、dataclass、numpy 数组都管用，
返回一句中文；一致时返回空串。它被练习检查使用，也可以单独用来比较两个实现。
"""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 1e-5  # 相对误差；float32 的舍入约为 1e-7，顺序不同的求和再放大几十倍
MAX_SHOWN = 72  # 一个值最多显示多少个字符
_NUMBER = (int, float, np.integer, np.floating)


@dataclass
class Difference:
    """比较的结果。

    属性
    ----
    problem : 哪里不同；一致时是空串。
    hint : 认出的错法；认不出时是空串。
    largest : 数值部分的最大绝对误差；没有数值时是 None。
    """

    problem: str = ""
    hint: str = ""
    largest: float | None = None

    def note(self, error: float) -> None:
        self.largest = error if self.largest is None else max(self.largest, error)


# ---------------------------------------------------------------- 显示


def type_name(value: object) -> str:
    """给人看的类型：``列表 list``、``numpy 数组，形状 (2, 3)``。"""
    if isinstance(value, np.ndarray):
        return f"numpy 数组，形状 {value.shape}，{value.dtype}"
    names = {
        type(None): "None", bool: "布尔 bool", np.bool_: "布尔 bool", int: "整数 int", float: "小数 float",
        str: "字符串 str", bytes: "字节串 bytes", list: "列表 list", tuple: "元组 tuple", dict: "字典 dict",
        set: "集合 set", frozenset: "集合 frozenset",
    }  # fmt: skip
    kind = type(value)
    if kind in names:
        return names[kind]
    if isinstance(value, np.integer):
        return "整数 int"
    if isinstance(value, np.floating):
        return "小数 float"
    if callable(value):
        return f"函数 {getattr(value, '__name__', '')}".strip()
    return kind.__name__


def show(value: object, limit: int = MAX_SHOWN) -> str:
    """一个值的简短写法：小数取 6 位有效数字，太长的截断；同样的值总是同样的文字。"""
    text = _show(value, 0)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _show(value: object, depth: int) -> str:
    if isinstance(value, np.ndarray):
        if value.size <= 8 and value.ndim <= 2 and value.dtype != object:
            return f"array({_show(value.tolist(), depth)})"
        return f"形状 {value.shape} 的数组"
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, np.integer | int):
        return str(int(value))
    if isinstance(value, np.floating | float):
        return _show_float(float(value))
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "…")
    if depth > 3:
        return "…"
    if isinstance(value, Mapping):
        items = [f"{_show(k, depth + 1)}: {_show(v, depth + 1)}" for k, v in list(value.items())[:8]]
        return "{" + _join(items, len(value)) + "}"
    if isinstance(value, set | frozenset):
        items = sorted(_show(v, depth + 1) for v in value)
        return "{" + _join(items[:8], len(items)) + "}" if items else "set()"
    if isinstance(value, list | tuple):
        body = _join([_show(v, depth + 1) for v in value[:8]], len(value))
        if isinstance(value, list):
            return f"[{body}]"
        return f"({body},)" if len(value) == 1 else f"({body})"
    label = getattr(value, "label", None)
    if dataclasses.is_dataclass(value) and isinstance(label, str):
        return f"{type(value).__name__}({label})"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [f"{f.name}={_show(getattr(value, f.name), depth + 1)}" for f in dataclasses.fields(value)]
        return f"{type(value).__name__}({_join(pairs[:4], len(pairs))})"
    if value is None or value is ...:
        return "None" if value is None else "..."
    if type(value).__repr__ is object.__repr__:
        return f"<{type(value).__name__}>"
    return scrub(repr(value))


def _join(items: list[str], total: int) -> str:
    return ", ".join(items) + (f", …共 {total} 项" if total > len(items) else "")


def _show_float(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return str(value)
    text = f"{value:.6g}"
    return text if any(c in text for c in ".e") else text + ".0"


def scrub(text: str) -> str:
    """去掉内存地址，同样的错误总是同样的文字。"""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def show_error(error: float) -> str:
    """最大误差的写法：0，或一位有效数字。"""
    return "0" if error == 0 else f"{error:.0e}"


# ---------------------------------------------------------------- 比较


def find_difference(
    expected: Any, actual: Any, tolerance: float = TOLERANCE, name: str = "结果", reveal: bool = True
) -> Difference:
    """比较两个值。

    参数
    ----
    expected, actual : 应得与实得。列表与元组视为同类；整数与小数按数值比。
    tolerance : 允许的误差，按 ``tolerance * max(1, |应得|)`` 计，默认 1e-5。
    name : 句子里怎么称呼这个值。
    reveal : False 时不说出应得的值（值类答案不能把答案说出来）。

    >>> find_difference([1, 2, 3], [1, 5, 3]).problem
    '结果[1] 应是 2，你得到 5；3 项里有 1 项不同，最大差 3.0。'
    >>> find_difference("甲乙丙", "甲乙丁").problem
    "结果从第 2 个字符（0 起）开始不同：应是 '丙'，你得到 '丁'。"
    >>> find_difference(0.5, 0.5000001).problem
    ''
    """
    found = Difference()
    found.problem = _differ(expected, actual, tolerance, name, reveal, found)
    if found.problem:
        found.hint = _recognise(expected, actual, tolerance, reveal)
    return found


def _wrong_type(expected: Any, actual: Any, where: str) -> str:
    return f"{_at(where)}的类型应是 {type_name(expected)}；你得到的是 {type_name(actual)}。"


def _unequal(expected: Any, actual: Any, where: str, reveal: bool) -> str:
    want, got = show(expected), show(actual)
    if want == got:
        want, got = repr(expected), repr(actual)
    return f"{_at(where)}应是 {want}，你得到 {got}。" if reveal else f"{_at(where)}不对，你得到 {got}。"


def _differ(e: Any, a: Any, tol: float, where: str, reveal: bool, found: Difference) -> str:
    if isinstance(a, np.ndarray) and a.ndim == 0 and not isinstance(e, np.ndarray):
        a = a.item()
    if e is None or e is ...:
        return "" if a is e else _unequal(e, a, where, reveal)
    if isinstance(e, bool | np.bool_):
        if not isinstance(a, bool | np.bool_):
            return _wrong_type(e, a, where)
        return "" if bool(e) == bool(a) else _unequal(e, a, where, reveal)
    if isinstance(e, _NUMBER):
        return _differ_number(e, a, tol, where, reveal, found)
    if isinstance(e, np.ndarray):
        return _differ_array(e, a, tol, where, reveal, found)
    if isinstance(e, str):
        return _differ_text(e, a, where, reveal)
    if isinstance(e, list | tuple):
        return _differ_sequence(e, a, tol, where, reveal, found)
    if isinstance(e, Mapping):
        return _differ_mapping(e, a, tol, where, reveal, found)
    if isinstance(e, set | frozenset):
        return _differ_set(e, a, where, reveal)
    if dataclasses.is_dataclass(e) and not isinstance(e, type):
        if type(e) is not type(a):
            return _wrong_type(e, a, where)
        for f in dataclasses.fields(e):
            if f.compare:
                problem = _differ(
                    getattr(e, f.name), getattr(a, f.name), tol, f"{where}.{f.name}", reveal, found
                )
                if problem:
                    return problem
        return ""
    if type(e) is not type(a):
        return _wrong_type(e, a, where)
    return "" if bool(e == a) else _unequal(e, a, where, reveal)


def _differ_number(e: Any, a: Any, tol: float, where: str, reveal: bool, found: Difference) -> str:
    if isinstance(a, bool | np.bool_) or not isinstance(a, _NUMBER):
        return _wrong_type(e, a, where)
    want, got = float(e), float(a)
    if math.isnan(want) or math.isnan(got) or math.isinf(want) or math.isinf(got):
        same = want == got or (math.isnan(want) and math.isnan(got))
        return "" if same else _unequal(e, a, where, reveal)
    error = abs(want - got)
    if error > tol * max(1.0, abs(want)):
        if not reveal:
            return f"{_at(where)}不对：你得到 {show(a)}，{'偏大' if got > want else '偏小'}。"
        return _unequal(e, a, where, reveal)
    found.note(error)
    return ""


def _differ_array(e: np.ndarray, a: Any, tol: float, where: str, reveal: bool, found: Difference) -> str:
    if not isinstance(a, np.ndarray):
        return _wrong_type(e, a, where)
    if e.shape != a.shape:
        return f"{_at(where)}的形状应是 {e.shape}；你得到的是 {a.shape}。"
    if e.dtype.kind not in "iufb" or a.dtype.kind not in "iufb":
        return _differ(e.tolist(), a.tolist(), tol, where, reveal, found)
    if (e.dtype.kind in "iu" and a.dtype.kind not in "iu") or (e.dtype.kind == "b") != (a.dtype.kind == "b"):
        return f"{_at(where)}的 dtype 应是 {e.dtype}；你得到的是 {a.dtype}。"
    if e.size == 0:
        return ""
    want, got = e.astype(np.float64), a.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(want - got)
        bad = ~((error <= tol * np.maximum(1.0, np.abs(want))) | (want == got) | (np.isnan(want) & np.isnan(got)))
    usable = error[np.isfinite(error)]
    if not bad.any():
        if e.dtype.kind != "b":
            found.note(float(usable.max()) if usable.size else 0.0)
        return ""
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{where}[{', '.join(map(str, first))}]"
    head = _unequal(e[first].item(), a[first].item(), place, reveal).rstrip("。")
    return head + _count(int(bad.sum()), e.size, error[bad] if e.dtype.kind != "b" else None)


def _count(bad: int, total: int, errors: np.ndarray | None = None) -> str:
    text = f"；{total} 项里有 {bad} 项不同"
    if errors is not None:
        finite = errors[np.isfinite(errors)]
        if finite.size:
            text += f"，最大差 {_show_float(float(finite.max()))}"
    return text + "。"


def _at(where: str) -> str:
    """接在汉字前面的位置：汉字结尾的不留空格，其余留一个。

    >>> _at("结果"), _at("结果[0]")
    ('结果', '结果[0] ')
    """
    return where if "\u4e00" <= where[-1:] <= "\u9fff" else where + " "


def _differ_text(e: str, a: Any, where: str, reveal: bool) -> str:
    if not isinstance(a, str):
        return _wrong_type(e, a, where)
    if e == a:
        return ""
    if not reveal:
        return f"{_at(where)}不对，你得到 {show(a)}。"
    i = next((i for i, (x, y) in enumerate(zip(e, a, strict=False)) if x != y), min(len(e), len(a)))
    want = repr(e[i : i + 12]) if i < len(e) else "到此结束"
    got = repr(a[i : i + 12]) if i < len(a) else "到此结束"
    return f"{_at(where)}从第 {i} 个字符（0 起）开始不同：应是 {want}，你得到 {got}。"


def _differ_sequence(e: Any, a: Any, tol: float, where: str, reveal: bool, found: Difference) -> str:
    if not isinstance(a, list | tuple):
        return _wrong_type(e, a, where)
    problems = [
        (i, p)
        for i, (x, y) in enumerate(zip(e, a, strict=False))
        if (p := _differ(x, y, tol, f"{where}[{i}]", reveal, found))
    ]
    if len(e) != len(a):
        n = min(len(e), len(a))
        tail = f"前 {n} 项一致。" if not problems else f"从 {where}[{problems[0][0]}] 开始不同：{problems[0][1]}"
        want = f"应有 {len(e)} 项，你有 {len(a)} 项" if reveal else f"你有 {len(a)} 项，项数不对"
        return f"{_at(where)}的长度不同：{want}" + (f"；{tail}" if reveal and n else "。")
    if not problems:
        return ""
    first = problems[0][1]
    if len(e) == 1:
        return first
    flat = [(x, y) for x, y in zip(e, a, strict=True) if is_number(x) and is_number(y)]
    errors = np.array([abs(float(x) - float(y)) for x, y in flat]) if len(flat) == len(e) and reveal else None
    return first.rstrip("。") + _count(len(problems), len(e), errors)


def is_number(value: Any) -> bool:
    """整数或小数；布尔不算。"""
    return isinstance(value, _NUMBER) and not isinstance(value, bool)


def _differ_mapping(e: Mapping, a: Any, tol: float, where: str, reveal: bool, found: Difference) -> str:
    if not isinstance(a, Mapping):
        return _wrong_type(e, a, where)
    missing = sorted(show(k) for k in e if k not in a)
    extra = sorted(show(k) for k in a if k not in e)
    if missing or extra:
        parts = [f"缺 {'、'.join(missing[:4])}" if reveal else f"缺 {len(missing)} 个"] if missing else []
        parts += [f"多了 {'、'.join(extra[:4])}"] if extra else []
        return f"{_at(where)}的键不同：{'；'.join(parts)}。"
    for key in e:
        problem = _differ(e[key], a[key], tol, f"{where}[{show(key)}]", reveal, found)
        if problem:
            return problem
    return ""


def _differ_set(e: Any, a: Any, where: str, reveal: bool) -> str:
    if not isinstance(a, set | frozenset):
        return _wrong_type(e, a, where)
    missing, extra = sorted(show(v) for v in e - a), sorted(show(v) for v in a - e)
    if not missing and not extra:
        return ""
    parts = [f"缺 {'、'.join(missing[:4])}" if reveal else f"缺 {len(missing)} 个"] if missing else []
    parts += [f"多了 {'、'.join(extra[:4])}"] if extra else []
    return f"{_at(where)}的内容不同（应有 {len(e)} 个，你有 {len(a)} 个）：{'；'.join(parts)}。"


# ---------------------------------------------------------------- 认出常见的错法


def _as_numbers(value: Any) -> np.ndarray | None:
    """数、数的列表、数组 → float64 数组；不是数值时返回 None。"""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return array.astype(np.float64) if array.dtype.kind in "iuf" and array.size else None


def _recognise(e: Any, a: Any, tol: float, reveal: bool) -> str:
    if isinstance(a, np.ndarray) and isinstance(e, list | tuple | int | float | str):
        return "要的不是数组：数组用 .tolist() 变成列表，单个数用 float(x) 或 x.item()。"
    if isinstance(e, np.ndarray) and isinstance(a, list | tuple):
        return "外面包一层 np.array(...)。"
    if type(a).__name__ == "generator" or isinstance(a, map | filter | zip | range):
        return "它还没有展开：外面包一层 list(...)。"
    if isinstance(e, _NUMBER) and isinstance(a, str):
        return "去掉引号，交一个数。"
    if isinstance(e, str) and isinstance(a, str):
        return _recognise_text(e, a)
    want, got = _as_numbers(e), _as_numbers(a)
    if want is not None and got is not None:
        return _recognise_numbers(want, got, tol, reveal)
    if isinstance(e, list | tuple) and isinstance(a, list | tuple):
        return _recognise_items([_identity(x) for x in e], [_identity(x) for x in a], reveal)
    return ""


def _identity(item: Any) -> str:
    """比较列表里的项是否相同用的文字；Chunk 之类要看全部字段，不只看 label。"""
    return scrub(repr(item)) if dataclasses.is_dataclass(item) else show(item, 10_000)


def _recognise_text(e: str, a: str) -> str:
    if "".join(e.split()) == "".join(a.split()):
        return "只差空格或换行。"
    if e.casefold() == a.casefold():
        return "只差大小写。"
    if unicodedata.normalize("NFKC", e) == unicodedata.normalize("NFKC", a):
        return "只差全角与半角。"
    if a and a in e:
        return "你的结果是应有内容的一部分：有东西漏了。"
    if e and e in a:
        return "应有的内容都在，还多了别的。"
    return ""


def _recognise_items(e: list[str], a: list[str], reveal: bool) -> str:
    if len(e) > 1 and e == a[::-1]:
        return "顺序正好反了。"
    if sorted(e) == sorted(a):
        return "内容都对，只是顺序不同。"
    if not reveal or not a:
        return ""
    if len(a) < len(e) and a == e[: len(a)]:
        return "开头对，末尾少了：看看循环或切片的终点。"
    if len(a) < len(e) and a == e[-len(a) :]:
        return "末尾对，开头少了：看看循环或切片的起点。"
    if len(a) > len(e) > 0 and a[: len(e)] == e:
        return "开头对，末尾多了：看看循环或切片的终点。"
    if len(a) > len(e) and sorted(set(e)) == sorted(set(a)):
        return "有重复的项。"
    return ""


def _recognise_numbers(want: np.ndarray, got: np.ndarray, tol: float, reveal: bool) -> str:
    def same(x: np.ndarray, y: np.ndarray) -> bool:
        return x.shape == y.shape and bool(np.allclose(x, y, rtol=tol, atol=tol, equal_nan=True))

    if np.isnan(got).any() and not np.isnan(want).any():
        return "出现了 NaN：多半是 0 除以 0，先想清楚分母为 0 时该返回什么。"
    if np.isinf(got).any() and not np.isinf(want).any():
        return "出现了无穷大：多半是除以了 0，或对 0 取了对数。"
    if want.shape != got.shape:
        if want.ndim == 2 and same(want, got.T):
            return "行和列颠倒了。"
        if want.size == got.size and same(want.ravel(), got.ravel()):
            return "数值都对，只是形状不对：看看 reshape、切片 [0] 或 keepdims。"
        if want.ndim == got.ndim == 1:
            return _recognise_items(_rounded(want), _rounded(got), reveal)
        return ""
    if same(want, got):
        return "数值都对，只是类型不对：用 .astype(...) 转一下。"
    if same(-want, got):
        return "正负号反了。"
    if same(want * 100, got) or same(want, got * 100):
        return "正好差 100 倍：要的是比例还是百分数。"
    if not reveal:
        return ""
    if want.ndim and want.shape[0] > 1 and same(want[::-1], got):
        return "顺序正好反了。"
    if want.ndim == 2 and want.shape[0] == want.shape[1] and same(want.T, got):
        return "行和列颠倒了。"
    if want.ndim and same(np.sort(want, axis=None), np.sort(got, axis=None)):
        return "数都在，只是顺序不同。"
    return _recognise_relation(want, got, same)


def _rounded(values: np.ndarray) -> list[str]:
    return [f"{v:.5g}" for v in values]


def _recognise_relation(want: np.ndarray, got: np.ndarray, same: Any) -> str:
    """两组数之间有没有一条简单的关系；两项以上才算数，一个数总能凑出关系。"""
    if same(want**2, got) and not same(want, np.ones_like(want)):
        return "你的结果是应有值的平方：少了一次开方。"
    if (want >= 0).all() and same(np.sqrt(want), got):
        return "你的结果是应有值的平方根：多了一次开方。"
    if same(1 - want, got):
        return "你的结果是 1 减去应有值：相似度和距离弄反了吗。"
    if want.size < 2 or not (np.isfinite(want).all() and np.isfinite(got).all()):
        return ""
    shift = got - want
    if same(shift, np.full_like(shift, shift.flat[0])):
        return f"每一项都{'多' if shift.flat[0] > 0 else '少'}了 {_show_float(abs(float(shift.flat[0])))}。"
    rows_w, rows_g = np.atleast_2d(want), np.atleast_2d(got)
    size_w = np.linalg.norm(rows_w, axis=1, keepdims=True)
    size_g = np.linalg.norm(rows_g, axis=1, keepdims=True)
    if rows_w.shape[1] > 1 and (size_w > 0).all() and (size_g > 0).all() and same(rows_w / size_w, rows_g / size_g):
        if np.allclose(size_w, 1, atol=1e-3):
            return "方向都对，长度不是 1：除以长度了吗。"
        ratio = size_g / size_w
        if np.allclose(ratio, ratio[0], rtol=1e-4):
            return f"每一项都是应有值的 {_show_float(float(ratio[0, 0]))} 倍。"
        return "每一行的方向都对，长度不对。"
    return ""
