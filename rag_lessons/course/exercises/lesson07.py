"""第 07 课的练习：核对引文、问题里没见过的编号。"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- 7.1 核对引文


def verdict(quote: str, text: str) -> str:
    """"verbatim"、"number"、"absent" 或 "none"。"""
    a, b = _words(quote), _words(text)
    if not a:
        return "none"
    if _inside(a, b):
        return "verbatim"
    return "number" if _inside(_mask(a), _mask(b)) else "absent"


def _words(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?|\S", text)


def _inside(a: list[str], b: list[str]) -> bool:
    return any(b[i : i + len(a)] == a for i in range(len(b) - len(a) + 1))


def _mask(words: list[str]) -> list[str]:
    return ["#" if word[0].isdigit() else word for word in words]


def _judge(same: Callable[[str, str], bool], alike: Callable[[str, str], bool]) -> Callable[[str, str], str]:
    """空引文是 none；same 是 verbatim；alike 是 number；其余 absent。"""

    def attempt(quote: str, text: str) -> str:
        if not quote.strip():
            return "none"
        return "verbatim" if same(quote, text) else "number" if alike(quote, text) else "absent"

    return attempt


def _right_same(quote: str, text: str) -> bool:
    return _inside(_words(quote), _words(text))


def _right_alike(quote: str, text: str) -> bool:
    return _inside(_mask(_words(quote)), _mask(_words(text)))


def _bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def _no_none(quote: str, text: str) -> str:
    return "verbatim" if not _words(quote) else verdict(quote, text)


def _number_first(quote: str, text: str) -> str:
    if not _words(quote):
        return "none"
    return "number" if _right_alike(quote, text) else "absent"


def _plain_in(quote: str, text: str) -> str:
    return "verbatim" if quote in text else "absent"


def _two_kinds(quote: str, text: str) -> str:
    return _plain_in(quote, text) if quote.strip() else "none"


def _two_kinds_bare(quote: str, text: str) -> str:
    return _two_kinds(_bare(quote), _bare(text))


def _bag(quote: str, text: str) -> bool:
    return set(_words(quote)) <= set(_words(text))


def _bag_alike(quote: str, text: str) -> bool:
    return set(_mask(_words(quote))) <= set(_mask(_words(text)))


_ROW = "| 乌鲁木齐 | 三线 | 280 | 90 | 6—9 月 | 380 | 1 |"
_VERDICT = Exercise(
    id="7.1",
    title="核对引文",
    reference=verdict,
    cases=[
        case("一字不差", "午餐 11:30 至 13:00", "总部食堂供应午餐和晚餐，午餐 11:30 至 13:00，晚餐 17:00 至 18:30。"),
        case("少了空格", "晚餐17:00至18:30", "午餐 11:30 至 13:00，晚餐 17:00 至 18:30。"),
        case("原文折成两行", "先等 1 秒，之后每次翻倍", "先等 1 秒，\n    之后每次翻倍。"),
        case("改了一个数", "乌鲁木齐 | 三线 | 280 | 90 | 6—9 月 | 480", _ROW),
        case("把 400 引成 40", "上限 40", "步数上限 400 步"),
        case("把 4.5 引成 4", "系数 4", "系数 4.5 倍"),
        case("位数不同", "上限 40 步", "步数上限 4000 步"),
        case("两个数对调了", "提前 2 天，至多 5 人", "提前 5 天，至多 2 人。"),
        case("编的", "乌鲁木齐据实报销，不设上限", _ROW),
        case("改了一个字", "午餐 11:30 以前", "午餐 11:30 以后"),
        case("数都在，话不在", "280 比 380 少", _ROW),
        case("少引了一个数", "三线 | | 90", _ROW),
        case("没有引", " ", _ROW),
    ],
    wrong=[
        Wrong("只用 in", _judge(lambda q, t: q in t, _right_alike), "空格和换行不该计较，40 也不该算在 400 里：不要直接用 in，先切成一列词再比。"),
        Wrong("去掉空白再用 in", _judge(lambda q, t: _bare(q) in _bare(t), _right_alike), "「上限 40」不在「上限 400」里：in 会把一个数切断。数要当作一个整体来比。"),
        Wrong("先看换掉数的", _number_first, "一字不差的你也说成数字不同：先比原样的，再比换掉数字的。"),
        Wrong("没有 number", _judge(_right_same, lambda q, t: False), "只有数不同的，要说 \"number\"：把两边的数都换成同一个记号再比一次。"),
        Wrong("一位一位换", _judge(_right_same, lambda q, t: re.sub(r"\d", "#", _bare(q)) in re.sub(r"\d", "#", _bare(t))), "一个数换成一个记号，不是一位换一个：40 和 4000 都换成 #。"),
        Wrong("把数删掉", _judge(_right_same, lambda q, t: re.sub(r"[\d.]", "", _bare(q)) in re.sub(r"[\d.]", "", _bare(t))), "数要换成记号，不能删掉：删了，少引一个数的就对上了。"),
        Wrong("只比数", _judge(lambda q, t: set(re.findall(r"\d+", q)) <= set(re.findall(r"\d+", t)), _right_alike), "数都在原文里，不等于这句话在原文里；数的先后也要紧。连着的一串词都要一样。"),
        Wrong("空引文算对", _no_none, "没有引原句的，返回 \"none\"：空的一串在哪里都找得到，可它什么也没证明。"),
        Wrong("只有 in", _plain_in, "in 只分得出在和不在：空格一变就不认，只有数不同的、没有引的，也分不出来。先把两边各切成一列词。"),
        Wrong("in，加上空引文", _two_kinds, "in 计较空格，也分不出只有数不同的：先切成一列词比一次，再把数换成记号比一次。"),
        Wrong("去掉空白再 in，分三种", _two_kinds_bare, "空白不计较了，还差两件：「上限 40」不该在「上限 400」里；只有数不同的，要说 \"number\"。"),
        Wrong("一个词一个词地找", _judge(_bag, _bag_alike), "词都在，不等于连着在：两个数对调了，你也说一字不差。要找的是连着的一串。"),
        Wrong("返回真假", _right_same, "要返回 \"verbatim\" 这样的结论，不是真假：为假时，说不出是数不同，还是整句没有。"),
        Wrong("小数切开了", _judge(lambda q, t: _inside(re.findall(r"\d+|\S", q), re.findall(r"\d+|\S", t)), _right_alike), "4.5 是一个数，不是 4 和 .5：小数要当作整体。"),
    ],
    follow_up="包里的还认全半角、千分号、连写的汉字数字；引文里除了数只剩一个字时，它不说「数字不同」。",
)


# ---------------------------------------------------------------- 7.2 没见过的编号

CODE = re.compile(r"[A-Za-z]+-?\d+(?:-\d+)*")


def unknown_codes(question: str, texts: Sequence[str]) -> list[str]:
    """问题里的编号，哪些在全部资料里一次也没有出现。"""
    known = {code.upper() for text in texts for code in CODE.findall(text)}
    return [code for code in dict.fromkeys(CODE.findall(question)) if code.upper() not in known]


def _substring(question: str, texts: Sequence[str]) -> list[str]:
    body = "\n".join(texts).upper()
    return [code for code in dict.fromkeys(CODE.findall(question)) if code.upper() not in body]


def _with_case(question: str, texts: Sequence[str]) -> list[str]:
    known = {code for text in texts for code in CODE.findall(text)}
    return [code for code in dict.fromkeys(CODE.findall(question)) if code not in known]


def _known_ones(question: str, texts: Sequence[str]) -> list[str]:
    missing = unknown_codes(question, texts)
    return [code for code in dict.fromkeys(CODE.findall(question)) if code not in missing]


def _every_text(question: str, texts: Sequence[str]) -> list[str]:
    return [code for code in dict.fromkeys(CODE.findall(question)) if any(unknown_codes(code, [text]) for text in texts)]


def _first_text(question: str, texts: Sequence[str]) -> list[str]:
    return unknown_codes(question, texts[:1])


def _yes_or_no(question: str, texts: Sequence[str]) -> bool:
    return bool(unknown_codes(question, texts))


def _twice(question: str, texts: Sequence[str]) -> list[str]:
    known = {code.upper() for text in texts for code in CODE.findall(text)}
    return [code for code in CODE.findall(question) if code.upper() not in known]


def _tail(question: str, texts: Sequence[str]) -> list[str]:
    known = {re.split("-", code)[-1] for text in texts for code in CODE.findall(text)}
    return [code for code in dict.fromkeys(CODE.findall(question)) if re.split("-", code)[-1] not in known]


def _uppercase(question: str, texts: Sequence[str]) -> list[str]:
    return [code.upper() for code in unknown_codes(question, texts)]


def _substring_twice(question: str, texts: Sequence[str]) -> list[str]:
    return [code for code in CODE.findall(question) if code.upper() not in "\n".join(texts).upper()]


def _bare_substring(question: str, texts: Sequence[str]) -> list[str]:
    return [code for code in CODE.findall(question) if code not in "\n".join(texts)]


def _sorted(question: str, texts: Sequence[str]) -> list[str]:
    return sorted(unknown_codes(question, texts))


def _as_set(question: str, texts: Sequence[str]) -> set[str]:
    return set(unknown_codes(question, texts))


_TEXTS = ["文号：DB-2024-171。DB-2023-117 同时废止。", "| E-71 | 阀门卡死 | 2 |\n| E-17 | 电量低 | 1 |", "DS-20 的电池保六年；手册 v2.4。"]
_CODES = Exercise(
    id="7.2",
    title="问题里没见过的编号",
    reference=unknown_codes,
    cases=[
        case("真有的", "DB-2024-171 从哪天起执行？", _TEXTS),
        case("差一位", "DB-2024-172 号文件第三条是什么？", _TEXTS),
        case("是别的编号的一截", "E-7 是什么意思？", _TEXTS),
        case("尾号相同", "DB-2022-117 说了什么？", _TEXTS),
        case("写成小写", "db-2024-171 第九条？", _TEXTS),
        case("一真一假，各问两遍", "E-17 和 e-35 哪个急？E-17 先修，还是 e-35 先修？", _TEXTS),
        case("四个都没有", "T-9、E-44、DB-2025-3 和 e-35 各是什么？", _TEXTS),
        case("没有编号", "总部食堂晚餐几点？", _TEXTS),
        case("一份资料也没有", "E-17 是什么意思？", []),
    ],
    wrong=[
        Wrong("用 in 找", _substring, "E-7 不在资料里，它只是 E-71 的前一截：先把资料里的编号整个找出来，再比。"),
        Wrong("分大小写", _with_case, "db-2024-171 和 DB-2024-171 是同一个文号：比之前统一大小写。"),
        Wrong("返回了见过的", _known_ones, "反了：要的是资料里没有的那些。"),
        Wrong("每份都要有", _every_text, "一份资料里有就算有，不必每份都有：把各份里的编号收进同一个集合。"),
        Wrong("只看第一份", _first_text, "你只看了第一份资料；全部都要看。"),
        Wrong("返回真假", _yes_or_no, "要返回一列编号，拒答时才说得出缺的是哪个；没有就是空列表。"),
        Wrong("没去重", _twice, "同一个编号问了两遍，只列一次。"),
        Wrong("只比尾号", _tail, "DB-2022-117 和 DB-2023-117 尾号相同，不是一个文件：要整个一样。"),
        Wrong("用 in 找，没去重", _substring_twice, "两件事：E-7 只是 E-71 的前一截，要拿整个编号去比；同一个编号问了两遍，只列一次。"),
        Wrong("直接用 in", _bare_substring, "三件事：拿整个编号去比，E-7 不算在 E-71 里；大小写先统一；同一个编号只列一次。"),
        Wrong("排了序", _sorted, "次序照问题里的，不要排序。"),
        Wrong("返回集合", _as_set, "集合没有次序，要返回列表，次序照问题；dict.fromkeys 去重，又不乱次序。"),
        Wrong("改了写法", _uppercase, "返回的编号照问题里的写法，不要改大小写：要写进拒答的理由给人看。"),
    ],
    follow_up="接着试：把它做成 ask 的 refuse，问一问 DB-2024-172。",
)  # fmt: skip

EXERCISES = [_VERDICT, _CODES]
