"""清理从 PDF、网页、Word 里取出的文字。

这里都是小的纯函数：文字进，文字出，不碰文件。读取器在造 Document 之前调用它们，
所以 ``Document.text`` 已经是清理过的，块的位置仍然对得上。
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

# ── 形近的异码字 ──────────────────────────────────────────────

# 从 U+2E81 起，部首补充区的每个字对应的普通汉字（Unicode 的 EquivalentUnifiedIdeograph 表）；· 处没有字。
# 康熙部首区和兼容汉字区不必列：NFKC 会换。部首补充区里 NFKC 只换两个。
_SUPPLEMENT = (
    "厂乛乚乙亻冂𠘨刀刂卜㔾小小兀尣尢𡯂巳幺彑彐忄心扌攵·旡日月歺母民氵氺灬爫爫丬牛犭王𤴔目示礻𥫗糹纟罓罒㓁"
    "冗𦉫羊𦍌𦍋耂肀聿肉𦥑艹艹艹虎衤覀西见角𧢲讠贝𧾷车辶辶辶邑钅長镸长门𨸏阝雨青韦页风飞食𩙿飠饣𩠐马骨鬼鱼鸟卤麦"
    "黄黾斉齐歯齿竜龙龜亀龟"
)
_LOOKALIKES = {0x2E81 + i: char for i, char in enumerate(_SUPPLEMENT) if char != "·"} | {
    code: unicodedata.normalize("NFKC", chr(code)) for block in (range(0x2F00, 0x2FD6), range(0xF900, 0xFAD9)) for code in block
}
_LOOKALIKE = re.compile("[\u2e80-\u2fd5\uf900-\ufad9]")


# 只在简体字里出现的常用字：有它们，就是简体的文字
_SIMPLIFIED = re.compile("[们这为对时过还应员业务说给现发长问]")


def is_simplified(text: str) -> bool:
    """是不是简体：看有没有只在简体里出现的常用字。

    >>> is_simplified("应当"), is_simplified("應當")
    (True, False)
    """
    return _SIMPLIFIED.search(text) is not None


def map_radicals(text: str, simplified: bool | None = None) -> str:
    """部首区的字换成普通汉字：看上去一样，编码不同，不换就搜不到。

    换的是康熙部首（U+2F00-2FD5）、部首补充（U+2E80-2EF3）和兼容汉字（U+F900-FAD9）三个区，
    一个字换一个字，长度和位置都不变；别的字一概不动。

    参数
    ----
    simplified : 是不是简体的文字；不写就看 text 自己。只影响一个字：⼾ 在简体字体里画成户，Unicode 却说它是戶。

    >>> map_radicals("⾏业⼈才，⻘年")
    '行业人才，青年'
    >>> map_radicals("⼤客⼾应当"), map_radicals("⼤客⼾")
    ('大客户应当', '大客戶')
    """
    if not _LOOKALIKE.search(text):
        return text
    if "⼾" in text and (is_simplified(text) if simplified is None else simplified):
        text = text.replace("⼾", "户")
    return text.translate(_LOOKALIKES)


_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
# 控制字符、软连字符、零宽字符：看不见，却会把词隔断。换行和制表符留着
_INVISIBLE = dict.fromkeys([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xAD, 0x200B, 0x2060, 0xFEFF])


def strip_invisible(text: str) -> str:
    """拆开西文连字（ﬁ → fi），去掉看不见的控制字符、软连字符和零宽字符。

    >>> strip_invisible("con\\u00adﬁg 中\\u200b国")
    'config 中国'
    """
    return text.translate(_INVISIBLE | _LIGATURES)


# ── 乱码 ──────────────────────────────────────────────────────

_CID = re.compile(r"\(cid:\d+\)")


def garbled_share(text: str) -> float:
    """乱码占多少，0 到 1：``(cid:12)``、U+FFFD、私用区的字、控制字符在非空白字符里的比例。

    >>> garbled_share("(cid:12)(cid:88)"), garbled_share("正常的字"), garbled_share("")
    (1.0, 0.0, 0.0)
    """
    rest, cids = _CID.subn("", text)
    visible = [c for c in rest if not c.isspace()]
    bad = cids + sum(c == "\ufffd" or unicodedata.category(c) in ("Cc", "Co", "Cn", "Cs") for c in visible)
    return bad / max(1, len(visible) + cids)


# ── 断行 ──────────────────────────────────────────────────────

HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"      # 汉字
CJK = HAN + "\u3001-\u3004\u3008-\u30ff\uff00-\uffef“”‘’…—"                              # 连同假名和中文标点
CLOSERS = "」』”’）》】〉)]}"
_IS_CJK = re.compile(f"[{CJK}]")
_IS_HAN = re.compile(f"[{HAN}]")
_SENTENCE_END = re.compile(rf"[。！？!?：:；;…][{re.escape(CLOSERS)}]*$")
_NUMERAL = "一二三四五六七八九十百零〇\\d"
# 一行若这样开头，它另起一项：列表符、编号、章节条款、图表题注、Markdown 的标题、表格和代码围栏
_ITEM = re.compile(
    rf"""(?:[-•·●○■□▪◆◇★※➢✓◦*]\s
    |[•●○■□▪◆◇★※➢✓◦]
    |[（(][{_NUMERAL}a-zA-Z]{{1,3}}[）)]
    |[一二三四五六七八九十百]{{1,3}}[、．.]
    |\d{{1,3}}(?:[、．）)]|\.(?!\d))
    |[a-zA-Z][.)]\s
    |第[{_NUMERAL}]{{1,4}}[章节编篇条款](?=[\s：:、]|$)
    |[①-⑳]
    |附[录件表]\s*[{_NUMERAL}A-Z]?(?=[\s：:]|$)
    |[图表]\s*\d+[-.\d]*\s
    |[\#|>]|```|~~~)""",
    re.VERBOSE,
)
_HEADING = re.compile(rf"第[{_NUMERAL}]{{1,4}}[章节编篇][\s：:][^。；，]{{0,30}}$|\#{{1,6}}\s")


def starts_item(line: str) -> bool:
    """这一行像是另起的一项：列表、编号、章节标题、表格行。

    >>> [starts_item(s) for s in ("第三章 考勤", "1. 打卡", "• 打卡", "1.5 倍工资", "第三章规定的")]
    [True, True, True, False, False]
    """
    return _ITEM.match(line.lstrip()) is not None


def is_heading(line: str) -> bool:
    """这一行是“第几章 名称”这样的标题，或 Markdown 标题。

    >>> [is_heading(s) for s in ("第三章 考勤", "第三章规定，迟到的", "# 考勤")]
    [True, False, True]
    """
    return _HEADING.match(line.strip()) is not None


def starts_clause(line: str) -> bool:
    """这一行以 2.5 这样的分级编号开头，可能是新的一条，也可能只是一个小数。

    >>> starts_clause("2.5 车间温度"), starts_clause("2.5兆欧"), starts_clause("2024.5 起")
    (True, False, False)
    """
    return re.match(r"\s*\d{1,2}(?:\.\d{1,2}){1,3}\s+\S", line) is not None


def ends_sentence(line: str) -> bool:
    """这一行以句末标点收尾（后面可以跟着引号、括号）。

    >>> [ends_sentence(s) for s in ("到此为止。”", "如下：", "向量数")]
    [True, True, False]
    """
    return _SENTENCE_END.search(line.rstrip()) is not None


def spaced_style(text: str) -> bool:
    """这份文字习惯在汉字和西文之间加空格吗？两种写法数一数，多的算。

    >>> spaced_style("支持 RAG 和 BM25"), spaced_style("支持RAG和BM25")
    (True, False)
    """
    spaced = len(re.findall(f"[{HAN}] [A-Za-z0-9]|[A-Za-z0-9] [{HAN}]", text))
    glued = len(re.findall(f"[{HAN}][A-Za-z0-9]|[A-Za-z0-9][{HAN}]", text))
    return spaced > glued


def breaks_word(left: str, right: str) -> bool:
    """西文词在行末被连字符断开：``infor-`` 和 ``mation``。"""
    return re.search(r"[A-Za-z]{2}[-‐]\s*$", left) is not None and re.match(r"\s*[a-z]{2}", right) is not None


def seam(left: str, right: str, spaced: bool = False) -> tuple[str, str]:
    """把断开的两行接上：返回（去掉断词连字符的 left，中间该放的字）。

    汉字之间什么也不放；西文词之间放空格；``infor-`` 接 ``mation`` 去掉连字符，编号里的连字符留着。
    汉字和西文之间看 ``spaced``。

    >>> seam("向量数", "据库"), seam("vector", "search"), seam("infor-", "mation"), seam("DB-2024-", "117")
    (('向量数', ''), ('vector', ' '), ('infor', ''), ('DB-2024-', ''))
    """
    left = left.rstrip()
    right = right.lstrip()
    if not left or not right:
        return left, ""
    if left[-1] in "-‐" and len(left) > 1 and left[-2].isalnum():
        return (left[:-1] if breaks_word(left, right) else left), ""
    first, last = bool(_IS_CJK.match(right)), bool(_IS_CJK.match(left[-1]))
    if first and last:
        return left, ""
    if first or last:
        both_words = all(_IS_HAN.match(c) or c.isalnum() or c in "%‰" for c in (left[-1], right[0]))
        return left, " " if both_words and spaced else ""
    return left, " "


MIN_LINES_FOR_WIDTH = 4     # 行数太少，看不出一行该有多宽
SHORT_LINE = 0.6            # 不到常见行宽的这个比例，是自己断的，不是排满了才断


def width(text: str) -> int:
    """显示宽度：汉字算 2，西文算 1。

    >>> width("向量 db")
    7
    """
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def join_broken_lines(text: str) -> str:
    """排版时断开的行接回成段：``向量数\\\\n据库`` → ``向量数据库``。

    只在看起来是硬生生断开的地方接：上一行没有句末标点、不是标题、不比别的行短很多，下一行不是新的一项。
    空行总是留着。

    >>> print(join_broken_lines("第一章 总则\\n本手册适用于向量数\\n据库 支持 RAG\\npipe-\\nline 的团队。\\n1. 打卡"))
    第一章 总则
    本手册适用于向量数据库 支持 RAG pipeline 的团队。
    1. 打卡
    """
    lines = text.split("\n")
    widths = sorted(width(line.strip()) for line in lines if line.strip())
    usual = widths[len(widths) * 3 // 4] if len(widths) >= MIN_LINES_FOR_WIDTH else 0
    spaced = spaced_style(text)
    out: list[str] = []
    previous = ""           # 上一行原来的样子
    for line in lines:
        stays = (
            not previous.strip() or not line.strip() or ends_sentence(previous) or starts_item(line)
            or is_heading(previous) or previous.lstrip().startswith("|")
            or (width(previous.strip()) < SHORT_LINE * usual and not breaks_word(previous, line))
        )  # fmt: skip
        if out and not stays:
            left, between = seam(out[-1], line, spaced)
            out[-1] = left + between + line.strip()
        else:
            out.append(line)
        previous = line
    return "\n".join(out)


# ── 页眉页脚 ──────────────────────────────────────────────────

EDGE_LINES = 3          # 页眉、页脚各不超过这么多行
RUNNING_SHARE = 0.4     # 至少出现在这么多比例的页上：单双页页眉不同时，一种只占一半
MIN_RUNNING_PAGES = 3   # 至少几页；总共两页的文件要两页都有
MAX_REPEATS = 1.5       # 页眉每页一次；平均每页出现得更多的，是正文
_N = rf"(?:\d{{1,4}}|[{_NUMERAL}]{{1,5}}|[ivxlc]{{1,7}})"
_PAGE_NUMBER = re.compile(
    rf"""(?:^|(?<=[\s/|·•,(—–-]))          # 前后要断开：“第3页的正文”不是页码
    (?:第\s*{_N}\s*页|共\s*{_N}\s*页|page\s*{_N}(?:\s*of\s*{_N})?|{_N}\s*/\s*{_N}|[-–—~]\s*{_N}\s*[-–—~])
    (?=$|[\s/|·•,)—–-])
    |(?:^|(?<=\s\s)|(?<=[|·•]\s)|(?<=[|·•])){_N}(?=$|\s\s|\s?[|·•])     # 光一个数，要离别的字远一些""",
    re.VERBOSE,
)


def running_key(line: str) -> str:
    """比较页眉页脚用的样子：页码换成 #，去掉空白。

    >>> [running_key(s) for s in ("员工手册 第 3 页", "员工手册  第十二页", "- 7 -", "7", "第3页的正文")]
    ['员工手册#', '员工手册#', '#', '#', '第3页的正文']
    """
    plain = unicodedata.normalize("NFKC", line).lower().strip()
    return re.sub(r"\s", "", _PAGE_NUMBER.sub("#", plain))


def running_lines(pages: Sequence[Sequence[str]], gaps: Sequence[tuple[list[int], list[int]]] | None = None) -> list[set[int]]:
    """每一页里哪几行是页眉页脚。

    参数
    ----
    pages : 每页的各行，从上到下。
    gaps : 看得到行距时用：每页从上往下、从下往上，数到第几行之后空得特别大。页眉页脚不会越过这些空隙。

    返回每页一个集合，里面是行号（从 0 数起）。一行算页眉页脚，要在大多数页的最上或最下几行里出现（页码不计较），
    而且正文里不常见。每页都一样的行多于三行时，那是正文在重复（同一张表格印了很多份），只去明显隔开的；
    看不到行距就一行也不去。

    >>> running_lines([["手册", "甲", "- 1 -"], ["手册", "乙", "- 2 -"], ["手册", "丙", "- 3 -"]])
    [{0, 2}, {0, 2}, {0, 2}]
    """
    keys = [[running_key(line) for line in lines] for lines in pages]
    orders = [[i for i, key in enumerate(page) if key] for page in keys]       # 空行不算
    filled = sum(map(bool, orders))
    needed = max(min(MIN_RUNNING_PAGES, filled), 2, RUNNING_SHARE * filled)
    total = Counter(key for page in keys for key in page)
    repeated = {key for key, n in Counter(key for page in keys for key in set(page)).items() if n >= needed}
    found: list[set[int]] = [set() for _ in pages]
    edges = [(order[:EDGE_LINES], order[::-1][:EDGE_LINES]) for order in orders]
    at_edge = Counter(page[i] for page, zones in zip(keys, edges, strict=True) for i in set(zones[0]) | set(zones[1]))
    for side in (0, 1):
        on_pages = Counter(key for page, zones in zip(keys, edges, strict=True) for key in {page[i] for i in zones[side]})
        times = Counter(page[i] for page, zones in zip(keys, edges, strict=True) for i in zones[side])
        running = {
            key for key, n in on_pages.items()
            if n >= needed and times[key] <= MAX_REPEATS * n and total[key] - at_edge[key] <= (MAX_REPEATS - 1) * n
        }  # fmt: skip
        for number, (page, order, lines) in enumerate(zip(keys, orders, found, strict=True)):
            inward = order[::-1] if side else order
            streak = next((k for k, i in enumerate(inward) if page[i] not in running), len(inward))
            goes_on = streak > EDGE_LINES or (streak == EDGE_LINES < len(inward) and page[inward[streak]] in repeated)
            known = gaps[number][side] if gaps is not None else []
            if goes_on or streak == len(inward):
                streak = min(known, default=0)
            elif filled < MIN_RUNNING_PAGES and not known:      # 只有两页，又没有空隙作证：带页码的才算
                streak = next((k for k, i in enumerate(inward[:streak]) if "#" not in page[i]), streak)
            lines.update(inward[: min([streak, *known[-1:]])])
    return found


def remove_running_lines(pages: Sequence[str]) -> list[str]:
    """去掉每一页的页眉页脚。

    >>> remove_running_lines(["手册\\n甲\\n第 1 页", "手册\\n乙\\n第 2 页", "手册\\n丙\\n第 3 页"])
    ['甲', '乙', '丙']
    """
    lines = [page.split("\n") for page in pages]
    return [
        "\n".join(line for i, line in enumerate(page) if i not in running)
        for page, running in zip(lines, running_lines(lines), strict=True)
    ]


def clean_pages(pages: Sequence[str]) -> list[str]:
    """PDF 各页的文字，依次去页眉页脚、换部首字、去看不见的字符、接断行。

    读取 PDF 时做的是同样的事，只是还看得到每行的位置，判断得更准。

    >>> clean_pages(["向量数\\n据库⾏业"])
    ['向量数据库行业']
    """
    return [join_broken_lines(strip_invisible(map_radicals(page))) for page in remove_running_lines(pages)]
