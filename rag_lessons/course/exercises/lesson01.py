"""第 01 课的练习。"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

from rag_lessons.course.checks import Case, Exercise, Wrong, case


def estimate(text: str, han: float = 0.6, other: float = 0.3) -> float:
    """按两个比例估计词元数：汉字（U+4E00 到 U+9FFF）每个 ``han``，其余字符每个 ``other``。"""
    count = sum("\u4e00" <= char <= "\u9fff" for char in text)
    return han * count + other * (len(text) - count)


def _texts() -> list[Case]:
    return [
        case("全是汉字", "安全阀跳闸"),
        case("汉字加标点", "步数用完，就停下。"),
        case("一行代码，前面有缩进", "    max_steps = 12"),
        case("中英混排", "用 grep 找 3 处"),
        case("空串", ""),
        case("换一组比例", "安全阀 valve", han=0.625, other=0.25),
    ]


def break_even(
    everything: int, retrieved: int, index: int, price: float = 1.0, embed_price: float = 1.0
) -> int | None:
    """问到第几个问题，检索的总账第一次严格低于全给；永远不会时返回 None。"""
    saved = (everything - retrieved) * price
    if saved <= 0:
        return None
    return int(index * embed_price // saved) + 1


def _bills() -> list[Case]:
    return [
        case("课文里的样子，两种价钱都是 1", everything=43_000, retrieved=2_500, index=42_000),
        case("嵌入便宜得多", everything=43_000, retrieved=2_500, index=42_000, price=8.0, embed_price=0.5),
        case("语料小，一问省不了多少", everything=3_000, retrieved=2_500, index=2_900),
        case("恰好打平", everything=1_500, retrieved=1_000, index=1_000),
        case("检索反而更长", everything=1_000, retrieved=1_200, index=900),
        case("两种一样长", everything=1_000, retrieved=1_000, index=900),
        case("嵌入比模型还贵", everything=10_000, retrieved=4_000, index=9_000, price=0.5, embed_price=4.0),
    ]


ASK, LOOK_UP, ALL, SEARCH, PROGRAM = "直接问", "查表", "全给", "检索", "写程序"
ROOM = 0.8                              # 窗口里留两成给问题和答案


def choose(kind: str, corpus: int, questions: int, window: int = 200_000, budget: int = 10_000_000) -> str:
    """该用哪种办法：直接问、查表、全给、检索、写程序。"""
    if kind == "常识":
        return ASK
    if kind == "查键":
        return LOOK_UP
    fits = corpus <= ROOM * window
    if kind == "全局":
        return ALL if fits else PROGRAM
    return ALL if fits and corpus * questions <= budget else SEARCH


def _situations() -> list[Case]:
    return [
        case("问一处，三十五份文件，问一千次", "一处", 43_000, 1_000),
        case("问一处，三十五份文件，只问二十次", "一处", 43_000, 20),
        case("问一处，放不下", "一处", 2_000_000, 3),
        case("问一处，挤满窗口", "一处", 190_000, 5),
        case("问一处，账单恰好到顶", "一处", 100_000, 100),
        case("问一处，恰好占窗口的八成", "一处", 160_000, 10),
        case("数全部，放得下，问得很多", "全局", 43_000, 1_000),
        case("数全部，放得下，只问二十次", "全局", 43_000, 20),
        case("数全部，放不下", "全局", 2_000_000, 3),
        case("常识", "常识", 43_000, 20),
        case("按名字查配置", "查键", 43_000, 20),
        case("窗口有一百万", "一处", 700_000, 2, window=1_000_000),
    ]


def _choose(
    kind: str,
    corpus: int,
    questions: int,
    window: int = 200_000,
    budget: int = 10_000_000,
    *,
    room: float = ROOM,
    money: bool = True,
    whole: Callable[[bool, bool], str] = lambda fits, cheap: ALL if fits else PROGRAM,
) -> str:
    """几种写错的 choose 共用的骨架。"""
    if kind in ("常识", "查键"):
        return ASK if kind == "常识" else LOOK_UP
    fits, cheap = corpus <= room * window, corpus * questions <= budget
    if kind == "全局":
        return whole(fits, cheap)
    return ALL if fits and (cheap or not money) else SEARCH


EXERCISES = [
    Exercise(
        id="1.1",
        title="不用分词器，按厂商给的比例估计词元数",
        reference=estimate,
        cases=_texts,
        wrong=[
            Wrong("每个字符都当汉字", lambda text, han=0.6, other=0.3: han * len(text),
                  "你把每个字符都按汉字算了；字母、数字、标点、空格按 other 算。"),
            Wrong("只数汉字", lambda text, han=0.6, other=0.3: han * sum("\u4e00" <= c <= "\u9fff" for c in text),
                  "你只数了汉字；其余的字符也要钱，每个 other。"),
            Wrong("用 isalpha 认汉字", lambda text, han=0.6, other=0.3: sum(han if c.isalpha() else other for c in text),
                  "isalpha() 对英文字母也是真；认汉字要看字符在不在 U+4E00 到 U+9FFF 之间。"),
            Wrong("中文标点当成汉字", lambda text, han=0.6, other=0.3: sum(han if ord(c) > 127 else other for c in text),
                  "中文标点被你当成了汉字：不在 ASCII 里的字符不都是汉字。"),
            Wrong("空白不要钱", lambda text, han=0.6, other=0.3: sum(
                han if "\u4e00" <= c <= "\u9fff" else other for c in text if not c.isspace()),
                "你把空格略去了；这里按题目，空格和换行也算其余的字符。"),
            Wrong("两个比例写反", lambda text, han=0.6, other=0.3: estimate(text, han=other, other=han),
                  "han 和 other 用反了：汉字每个 han，其余每个 other。"),
            Wrong("其余没有减去汉字", lambda text, han=0.6, other=0.3: (
                han * sum("\u4e00" <= c <= "\u9fff" for c in text) + other * len(text)),
                "汉字算了两次：other 乘的是其余的字符，要从 len(text) 里减去汉字的个数。"),
            Wrong("去尾", lambda text, han=0.6, other=0.3: int(estimate(text, han, other)),
                  "int() 把小数扔掉了；不取整，估计值留着小数。"),
            Wrong("取了整", lambda text, han=0.6, other=0.3: round(estimate(text, han, other)),
                  "不要取整：它是估计，留着小数，加起来以后再取。"),
            Wrong("比例写死", lambda text, han=0.6, other=0.3: estimate(text),
                  "比例写死成 0.6 和 0.3 了；要用传进来的 han 和 other。"),
        ],
        follow_up="换一家，就换两个比例；要准数，还是用那一家的分词器，或看它返回的用量。",
    ),
    Exercise(
        id="1.2",
        title="问到第几个问题，建索引的钱就回来了",
        reference=break_even,
        cases=_bills,
        wrong=[
            Wrong("向上取整", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else max(1, ceil(index * embed_price / ((everything - retrieved) * price)))),
                "恰好打平的那一问还不算便宜，要再问一个；用整除再加 1，不用向上取整。"),
            Wrong("忘了加一", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else int(index * embed_price // ((everything - retrieved) * price))),
                "差一个：整除得到的是还没回本的最后一问，加 1 才是回本的那一问。"),
            Wrong("没有取整", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else index * embed_price / ((everything - retrieved) * price)),
                "第几问是整数：省到这么多问的时候刚好打平，超过它的第一个整数才是答案，用整除再加 1。"),
            Wrong("不回本时返回 0", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                break_even(everything, retrieved, index, price, embed_price) or 0),
                "永远不回本时返回 None；0 会被读成一问都不用就回本了。"),
            Wrong("只拦住一样长", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything == retrieved else int(index * embed_price // ((everything - retrieved) * price)) + 1),
                "每一问省下的是负数时，越问越亏，也永远回不了本：小于 0 和等于 0 都返回 None。"),
            Wrong("没有看单价", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else index // (everything - retrieved) + 1),
                "你只比了词元数；建索引按 embed_price 算，提示词按 price 算，两个单价不同。"),
            Wrong("单价用反", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else int(index * price // ((everything - retrieved) * embed_price)) + 1),
                "两个单价用反了：index 乘 embed_price，每一问省下的词元乘 price。"),
            Wrong("没有减去检索那一份", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything <= retrieved else int(index * embed_price // (everything * price)) + 1),
                "每一问省下的是 everything - retrieved，检索的提示词也要付钱。"),
            Wrong("没有想到不回本", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                int(index * embed_price // ((everything - retrieved) * price)) + 1),
                "everything 不大于 retrieved 时，每一问都不省，永远回不了本，返回 None。"),
            Wrong("打平也当成省", lambda everything, retrieved, index, price=1.0, embed_price=1.0: (
                None if everything < retrieved else int(index * embed_price // max((everything - retrieved) * price, 1)) + 1),
                "两种提示词一样长时，每一问省 0，也回不了本，返回 None。"),
        ],
        follow_up="语料稍大一点，答案就是 1 或 2：建索引的钱几乎不用考虑。",
    ),
    Exercise(
        id="1.3",
        title="给一种情形，选一种办法",
        reference=choose,
        cases=_situations,
        wrong=[
            Wrong("窗口用满", partial(_choose, room=1.0),
                "窗口要留两成给问题和答案：语料不超过 0.8 × window 才算放得下。"),
            Wrong("恰好八成算放不下", partial(_choose, room=ROOM - 1e-6),
                "恰好占窗口的八成还算放得下，题目说的是不超过。"),
            Wrong("两样只要一样", lambda kind, corpus, questions, window=200_000, budget=10_000_000: (
                ALL if kind == "一处" and corpus * questions <= budget
                else _choose(kind, corpus, questions, window, budget, money=False)),
                "问一处的，要放得下、又问得少，才全给：两个条件都要满足，用 and。"),
            Wrong("全局的当成一处", lambda kind, corpus, questions, window=200_000, budget=10_000_000: choose(
                "一处" if kind == "全局" else kind, corpus, questions, window, budget),
                "「全局」要单独写一支：只看放不放得下，放不下就写程序。"),
            Wrong("不看账单", partial(_choose, money=False),
                "放得下还不够：corpus × questions 超过 budget 时，一次次重复交同样的资料，该检索。"),
            Wrong("不看窗口", partial(_choose, room=float("inf")),
                "没有看窗口：账单再小，放不进一个提示词就没法全给。"),
            Wrong("全局的问题也检索", partial(_choose, whole=lambda fits, cheap: SEARCH),
                "要看遍全部才答得了的问题，取几块一定不够：放得下就全给，放不下就写程序。"),
            Wrong("全局的问题放不下时检索", partial(_choose, whole=lambda fits, cheap: ALL if fits else SEARCH),
                "全局的问题放不下时，检索也只看得到几块；写程序去数。"),
            Wrong("全局的问题先看账单", partial(_choose, whole=lambda fits, cheap: ALL if fits and cheap else PROGRAM),
                "全局的问题这里只看放不放得下，不看 budget。"),
            Wrong("到顶就算超", lambda kind, corpus, questions, window=200_000, budget=10_000_000: _choose(
                kind, corpus, questions, window, budget - 1),
                "账单恰好等于 budget 还在预算之内；超过才换检索。"),
            Wrong("查键也检索", lambda kind, corpus, questions, window=200_000, budget=10_000_000: (
                SEARCH if kind == "查键" else choose(kind, corpus, questions, window, budget)),
                "按名字查一个值，用字典或 SQL 一查就准；1.7 节量过检索漏多少。"),
            Wrong("常识也检索", lambda kind, corpus, questions, window=200_000, budget=10_000_000: (
                SEARCH if kind == "常识" else choose(kind, corpus, questions, window, budget)),
                "常识不在资料里，检索只会拿回几块无关的；直接问。"),
            Wrong("window 写死", lambda kind, corpus, questions, window=200_000, budget=10_000_000: choose(
                kind, corpus, questions, 200_000, budget),
                "窗口写死成 20 万了；要用传进来的 window。"),
        ],
        follow_up="界线是你定的：换了模型，改 window 和 budget，不用改做法。",
    ),
]
