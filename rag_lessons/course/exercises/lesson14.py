"""第 14 课的练习：同步的账、哪些问法算同一个问题。"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from rag_lessons.course.checks import Exercise, Wrong, case

# ---------------------------------------------------------------- 14.1 同步的账

Pairs = list[tuple[str, str]]
Plan = tuple[list, list]


def _to_send(old: Pairs, new: Pairs) -> list[str]:
    known = {text for _, text in old}
    return list(dict.fromkeys(text for _, text in new if text not in known))


def _to_drop(old: Pairs, new: Pairs) -> Pairs:
    return [pair for pair in old if pair not in set(new)]


def plan(old: Pairs, new: Pairs) -> Plan:
    """要不要算只看文字；要不要去掉看（来源，文字）这一对。"""
    return _to_send(old, new), _to_drop(old, new)


def _drop_by_text(old: Pairs, new: Pairs) -> Pairs:
    here = {text for _, text in new}
    return [pair for pair in old if pair[1] not in here]


def _drop_by_source(old: Pairs, new: Pairs) -> Pairs:
    here = {source for source, _ in new}
    return [pair for pair in old if pair[0] not in here]


def _by_place(old: Pairs, new: Pairs) -> Plan:
    send = [pair[1] for i, pair in enumerate(new) if i >= len(old) or old[i] != pair]
    drop = [pair for i, pair in enumerate(old) if i >= len(new) or new[i] != pair]
    return send, drop


_LICENCE = "违者按制度处理。"

_PLAN = Exercise(
    id="14.1",
    title="同步的账",
    reference=plan,
    cases=[
        case("什么也没变", [("甲.md", "一"), ("甲.md", "二")], [("甲.md", "一"), ("甲.md", "二")]),
        case("改了一段", [("甲.md", "一"), ("甲.md", "二")], [("甲.md", "一"), ("甲.md", "贰")]),
        case("最前面插一段", [("甲.md", "一"), ("甲.md", "二")], [("甲.md", "零"), ("甲.md", "一"), ("甲.md", "二")]),
        case("文件变短了", [("甲.md", "一"), ("甲.md", "二"), ("甲.md", "三")], [("甲.md", "一")]),
        case("文件改了名", [("旧名.md", "一"), ("旧名.md", "二")], [("新名.md", "一"), ("新名.md", "二")]),
        case("两份新文件有同一段", [("甲.md", "一")], [("甲.md", "一"), ("乙.md", _LICENCE), ("丙.md", _LICENCE)]),
        case("同一段，删掉其中一份", [("乙.md", _LICENCE), ("丙.md", _LICENCE)], [("丙.md", _LICENCE)]),
        case("空库", [], [("甲.md", "二"), ("甲.md", "一")]),
        case("全删了", [("甲.md", "一")], []),
    ],
    wrong=[
        Wrong("全部重算", lambda old, new: ([text for _, text in new], _to_drop(old, new)), "见过的也送去算了：旧库里有这段文字，就不必再送。"),
        Wrong("按这一对看要不要算", lambda old, new: (list(dict.fromkeys(text for pair in new if pair not in old for text in pair[1:])), _to_drop(old, new)), "改了名的文件又算了一遍：要不要算只看文字，不看来源。"),
        Wrong("按这一对看，也没去重", lambda old, new: ([text for source, text in new if (source, text) not in old], _to_drop(old, new)), "两处不对：改了名的文件又算了一遍，要不要算只看文字；相同的一段也送了两次，用 dict.fromkeys 去重。"),
        Wrong("拿文字和一对比", lambda old, new: (list(dict.fromkeys(text for _, text in new if text not in old)), _to_drop(old, new)), "old 里装的是（来源，文字），拿文字去找永远找不到：先取出旧库里全部的文字。"),
        Wrong("相同的送了两次", lambda old, new: ([text for _, text in new if text not in {t for _, t in old}], _to_drop(old, new)), "两份新文件里相同的一段送了两次：相同的文字只送一次，用 dict.fromkeys 去重。"),
        Wrong("按文字去掉", lambda old, new: (_to_send(old, new), _drop_by_text(old, new)), "旧的来源留在了库里：文字在别处还有，可是这份文件已经没有这一段，照样要去掉。"),
        Wrong("按来源去掉", lambda old, new: (_to_send(old, new), _drop_by_source(old, new)), "文件还在、段落没了的，没有去掉：要看（来源，文字）这一对还在不在，不能只看文件在不在。"),
        Wrong("只会覆盖", lambda old, new: (_to_send(old, new), []), "什么也没有去掉，这正是只会覆盖的库：不在 new 里的，要放进第二个列表。"),
        Wrong("按位置比", _by_place, "你在比同一个位置：插一段，后面就全错位了；要看文字在不在旧库里，不管在第几个。"),
        Wrong("次序反了", lambda old, new: plan(old, new)[::-1], "两样的次序反了：先是要送去算的文字，再是要去掉的。"),
        Wrong("排了序", lambda old, new: (sorted(_to_send(old, new)), _to_drop(old, new)), "要送的文字按出现的先后，不要排序；集合也会打乱次序。"),
        Wrong("去掉的排了序", lambda old, new: (_to_send(old, new), sorted(_to_drop(old, new))), "要去掉的按旧库里的次序，不要排序。"),
        Wrong("送的是一对", lambda old, new: ([pair for pair in new if pair[1] not in {t for _, t in old}], _to_drop(old, new)), "第一个列表里只要文字，不要来源。"),
        Wrong("去掉的只写了文字", lambda old, new: (_to_send(old, new), [text for _, text in _to_drop(old, new)]), "第二个列表里要（来源，文字）：只写文字，就不知道去掉哪一份。"),
        Wrong("旧的新的弄反了", lambda old, new: plan(new, old), "old 和 new 弄反了：送的应是 new 里才有的，去掉的应是 old 里才有的。"),
    ],
    follow_up="index.sync 记的就是这本账：added、removed、kept。",
)  # fmt: skip


# ---------------------------------------------------------------- 14.2 几个不同的问题


def _counter(key: Callable[[str], str]) -> Callable[[list[str]], int]:
    return lambda questions: len({key(question) for question in questions})


def _key(question: str) -> str:
    text = unicodedata.normalize("NFKC", question).casefold()
    return "".join(text.split()).rstrip("?。.")


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


distinct = _counter(_key)

_DISTINCT = Exercise(
    id="14.2",
    title="几个不同的问题",
    reference=distinct,
    cases=[
        case("一字不差", ["食堂几点开门", "食堂几点开门"]),
        case("全角的编号", ["DB-2024-117 第七条", "ＤＢ－２０２４－１１７ 第七条"]),
        case("大小写", ["vpn 报 691", "VPN 报 691"]),
        case("中间的空格", ["E-17 怎么处理", "E-17怎么处理", "E-17　怎么处理"]),
        case("末尾半角的问号", ["食堂几点开门", "食堂几点开门?"]),
        case("末尾全角的问号", ["食堂几点开门", "食堂几点开门？"]),
        case("问号后面还有空格", ["食堂几点开门？ ", "食堂几点开门"]),
        case("末尾全角的点", ["一线城市住几元．", "一线城市住几元"]),
        case("小数点", ["请 3.5 天假谁批", "请 35 天假谁批"]),
        case("差一个编号", ["DB-2024-117 第六条", "DB-2024-171 第六条"]),
        case("「不」字", ["可以远程办公吗", "不可以远程办公吗"]),
        case("开头的点", [".NET 能装吗", "NET 能装吗"]),
        case("末尾的「吗」", ["能报销", "能报销吗"]),
        case("一个也没有", []),
    ],
    diagnoses=[
        (lambda outputs, wanted: any(isinstance(o, float) for o in outputs), "要返回有几个不同的，不是省下几成：个数是整数。"),
        (lambda outputs, wanted: any(isinstance(o, (set, list, tuple, dict)) for o in outputs), "要返回个数，不是那些键本身：外面套一个 len。"),
    ],
    wrong=[
        Wrong("原样比", _counter(lambda q: q), "一样也没有合并：先写一个函数，把问题变成键。"),
        Wrong("没有换全角", _counter(lambda q: "".join(q.casefold().split()).rstrip("?？。.．")), "全角的编号没有认出来：先 unicodedata.normalize(\"NFKC\", text)。"),
        Wrong("没有换全角，空格只去半角的", _counter(lambda q: q.lower().replace(" ", "").rstrip("？?。.")), "全角的编号、全角的空格都没有认出来：第一步先 unicodedata.normalize(\"NFKC\", text)，半角的规矩才管用。"),
        Wrong("只去了问号", _counter(lambda q: "".join(_fold(q).split()).rstrip("?")), "末尾的句号还在：rstrip 的括号里写全 \"?。.\"，全角的点换过以后就是「.」。"),
        Wrong("省下几成", lambda questions: 1 - distinct(questions) / len(questions) if questions else 0.0, "要返回有几个不同的，不是省下几成：个数是整数。"),
        Wrong("没管大小写", _counter(lambda q: "".join(unicodedata.normalize("NFKC", q).split()).rstrip("?。.")), "VPN 和 vpn 还算两个：加上 casefold()。"),
        Wrong("只去两头的空白", _counter(lambda q: _fold(q).strip().rstrip("?。.")), "中间的空白还在：\"\".join(text.split()) 去掉全部空白，全角的也在内。"),
        Wrong("没去末尾的标点", _counter(lambda q: "".join(_fold(q).split())), "末尾的问号还在：最后 rstrip(\"?。.\")。"),
        Wrong("标点全删了", _counter(lambda q: re.sub(r"[^\w]", "", _fold(q))), "3.5 天和 35 天成了一个：标点只去末尾的，中间的一个也不能动。"),
        Wrong("两头的标点都去", _counter(lambda q: "".join(_fold(q).split()).strip("?。.")), ".NET 开头的点被去掉了：只去末尾，用 rstrip。"),
        Wrong("先去标点再换全角", _counter(lambda q: "".join(_fold(q.rstrip("?。.")).split())), "去标点去早了，那时问号还是全角的：先 NFKC，再 rstrip。"),
        Wrong("先去标点再去空白", _counter(lambda q: "".join(_fold(q).rstrip("?。.").split())), "问号后面还有空格，rstrip 够不到它：先去空白，再去末尾的标点。"),
        Wrong("数字也抹了", _counter(lambda q: re.sub(r"\d+", "#", _key(q))), "117 和 171 成了一个：数字不许动。"),
        Wrong("删了「不」", _counter(lambda q: _key(q).replace("不", "")), "可以和不可以成了一个：「不」字不许删。"),
        Wrong("「吗」也去了", _counter(lambda q: _key(q).rstrip("吗呢")), "规矩之外的别动：末尾的「吗」要留着。"),
        Wrong("返回了键", lambda questions: {_key(q) for q in questions}, "要返回个数，不是那些键本身：外面套一个 len。"),
        Wrong("数的是省了几次", lambda questions: len(questions) - distinct(questions), "你数的是能省下几次；这里要不同的有几个。"),
    ],
    follow_up="命中几成，就是 1 减去「不同的个数除以总数」。",
)  # fmt: skip

EXERCISES = [_PLAN, _DISTINCT]
