"""第 13 课的练习：按严格的次序认编码、去页眉页脚、接断行。"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from rag_lessons.course.checks import Exercise, Wrong, case

BOMS = (b"\xff\xfe", b"\xfe\xff")


# ---------------------------------------------------------------- 13.1 认编码


def _opens(data: bytes, name: str) -> bool:
    try:
        data.decode(name)
    except UnicodeError:
        return False
    return True


def _first_of(data: bytes, names: Sequence[str]) -> str | None:
    return next((name for name in names if _opens(data, name)), None)


def which_encoding(data: bytes) -> str | None:
    """有 UTF-16 的 BOM 就只试 utf-16；否则先 utf-8，再 gb18030；都解不开是 None。"""
    return _first_of(data, ["utf-16"] if data.startswith(BOMS) else ["utf-8", "gb18030"])


_ENCODING = Exercise(
    id="13.1",
    title="按严格的次序认编码",
    reference=which_encoding,
    cases=[
        case("UTF-8 的短句", "报销二十天内".encode()),
        case("GBK 的短句", "报销二十天内".encode("gbk")),
        case("GB18030 才有的字", "员工𠮷某".encode("gb18030")),
        case("带 BOM 的 UTF-16", "报销单".encode("utf-16")),
        case("只有英文", b"DB-2024-117 "),
        case("哪一种都不是", b"\xff\xff\xff"),
        case("哪一种都不是，字节数是偶数", b"\xff\x80\xff\x80"),
        case("有 BOM，却缺了半个字", b"\xff\xfe\xa5"),
    ],
    diagnoses=[
        (lambda outputs, wanted: any(isinstance(o, str) and not o.isascii() for o in outputs), "你返回的是解出来的文字；这里要编码的名字。"),
        (lambda outputs, wanted: "gbk" in outputs, "gbk 少收了一批字；用它的超集 gb18030。"),
    ],
    wrong=[
        Wrong("先试 GB18030", lambda data: _first_of(data, ["utf-16"] if data.startswith(BOMS) else ["gb18030", "utf-8"]), "次序反了：不少 UTF-8 的字节碰巧也是合法的 GB18030，先试它会得到乱码。"),
        Wrong("拿 latin-1 兜底", lambda data: which_encoding(data) or "latin-1", "latin-1 对任何字节都不报错，成功不算证据；都解不开时返回 None。"),
        Wrong("没看 BOM", lambda data: _first_of(data, ["utf-8", "gb18030"]), "带 BOM 的 UTF-16 被漏掉了：开头是 FF FE 或 FE FF 时只试 utf-16。"),
        Wrong("没有 BOM 也试 UTF-16", lambda data: _first_of(data, ["utf-16", "utf-8", "gb18030"]), "没有 BOM 就试 utf-16，字节数是偶数的文件常常也解得开；先看 BOM。"),
        Wrong("用 gbk", lambda data: _first_of(data, ["utf-16"] if data.startswith(BOMS) else ["utf-8", "gbk"]), "gbk 少收了一批字；用它的超集 gb18030。"),
        Wrong("先试 GB18030，也没看 BOM", lambda data: _first_of(data, ["gb18030", "utf-8"]), "次序反了：不少 UTF-8 的字节碰巧也是合法的 GB18030，先试它会得到乱码。BOM 也还没有看。"),
        Wrong("最后才试 UTF-16", lambda data: _first_of(data, ["utf-8", "gb18030", "utf-16"]), "没有 BOM 的也试了 utf-16，偶数个字节几乎都解得开：只有开头是 BOM 才试它，而且只试它。"),
        Wrong("看到 BOM 就算数", lambda data: "utf-16" if data.startswith(BOMS) else _first_of(data, ["utf-8", "gb18030"]), "有 BOM 也可能解不开：照样要试，解不开就返回 None。"),
        Wrong("返回了文字", lambda data: data.decode(name) if (name := which_encoding(data)) else None, "你返回的是解出来的文字；这里要编码的名字。"),
        Wrong("总是 utf-8", lambda data: "utf-8", "你没有真的去解码：一步步严格地试，解不开才换下一种。"),
    ],
    follow_up="次序不是习惯：越严格的越先试。",
)  # fmt: skip


# ---------------------------------------------------------------- 13.2 去页眉页脚

Pages = list[list[str]]


def _mask(line: str) -> str:
    return re.sub(r"\d+", "#", line)


def _dropper(mask: Callable[[str], str], ends: Sequence[int], share: float) -> Callable[[Pages], Pages]:
    """两端的行里，样子在超过 share 的页上同样出现的，去掉。"""

    def drop(pages: Pages) -> Pages:
        gone: list[set[int]] = [set() for _ in pages]
        for end in ends:
            seen = Counter(mask(page[end]) for page in pages)
            for page, places in zip(pages, gone, strict=True):
                if seen[mask(page[end])] > share * len(pages):
                    places.add(end % len(page))
        return [[line for i, line in enumerate(page) if i not in places] for page, places in zip(pages, gone, strict=True)]

    return drop


drop_running = _dropper(_mask, (0, -1), 0.5)


def _anywhere(pages: Pages) -> Pages:
    seen = Counter(key for page in pages for key in {_mask(line) for line in page})
    return [[line for line in page if seen[_mask(line)] <= len(pages) / 2] for page in pages]


def _mixed(pages: Pages) -> Pages:
    seen = Counter(_mask(page[end]) for page in pages for end in (0, -1))
    often = {line for line, n in seen.items() if n > len(pages) / 2}
    return [[line for i, line in enumerate(page) if i not in (0, len(page) - 1) or _mask(line) not in often] for page in pages]


_RUNNING = Exercise(
    id="13.2",
    title="去掉页眉页脚",
    reference=drop_running,
    cases=[
        case("页眉和带页码的页脚", [["手册", "甲", "第 1 页"], ["手册", "乙", "第 2 页"], ["手册", "丙", "第 3 页"]]),
        case("第一页没有页眉", [["封面", "甲", "第 1 页"], ["手册", "乙", "第 2 页"], ["手册", "丙", "第 3 页"]]),
        case("页脚没有页码", [["手册", "甲", "内部资料"], ["手册", "乙", "内部资料"], ["手册", "丙", "内部资料"]]),
        case("没有页眉页脚", [["甲", "乙"], ["丙", "丁"], ["戊", "己"]]),
        case("正文里每页都有同一句", [["手册", "注意安全", "甲", "- 1 -"], ["手册", "乙", "注意安全", "- 2 -"], ["手册", "丙", "注意安全", "丁", "- 3 -"]]),
        case("翻到两位数的页码", [["手册", "甲", "第 9 页"], ["手册", "乙", "第 10 页"], ["手册", "丙", "第 11 页"], ["附录", "丁", "x"], ["手册", "戊", "y"]]),
        case("页眉和页脚是同一句", [["内部资料", "甲"], ["内部资料", "乙"], ["丙", "内部资料"], ["丁", "戊"]]),
        case("正文里有数字", [["手册", "满 20 天", "1"], ["手册", "满 30 天", "2"], ["3.1 总则", "满 40 天", "3"]]),
        case("只有两页相同，共四页", [["甲", "子", "x"], ["甲", "丑", "y"], ["乙", "寅", "z"], ["丙", "卯", "w"]]),
    ],
    wrong=[
        Wrong("没管页码", _dropper(lambda line: line, (0, -1), 0.5), "页脚的页码每页不同，逐字比永远不相等：先把数字换成 #。"),
        Wrong("只去了页眉", _dropper(_mask, (0,), 0.5), "页脚还在：最后一行也要查。"),
        Wrong("只去了页脚", _dropper(_mask, (-1,), 0.5), "页眉还在：第一行也要查。"),
        Wrong("一律去掉首末行", lambda pages: [page[1:-1] for page in pages], "不看内容就去首末行，会删掉正文：要在过半的页上出现才算。"),
        Wrong("正文里的也去了", _anywhere, "你把正文里重复的句子也删了：只查每页的第一行和最后一行。"),
        Wrong("一个数字换一个 #", _dropper(lambda line: re.sub(r"\d", "#", line), (0, -1), 0.5), "第 9 页和第 10 页换出来一个 # 两个 #，不相等：一串数字换成一个 #，用 \\d+。"),
        Wrong("首行末行混着数", _mixed, "首行和末行混在一起数了：首行只和首行比，末行只和末行比。"),
        Wrong("把换过的写回去了", lambda pages: [[_mask(line) for line in page] for page in drop_running(pages)], "# 只用来比较；留下的行要照原样返回。"),
        Wrong("一半也算", _dropper(_mask, (0, -1), 0.49), "恰好一半不算：要超过一半的页。"),
    ],
    follow_up="接着试：单双页页眉不同时，过半这条线还合适吗。",
)  # fmt: skip


# ---------------------------------------------------------------- 13.3 接断行


def _joiner(ends: str, glue: Callable[[str, str], str]) -> Callable[[list[str]], str]:
    def join(lines: list[str]) -> str:
        out = ""
        for line in lines:
            out += ("" if not out else "\n" if out[-1] in ends else glue(out[-1], line[0])) + line
        return out

    return join


def _glue(left: str, right: str) -> str:
    return " " if left.isascii() and right.isascii() else ""


join_lines = _joiner("。！？：", _glue)

_JOIN = Exercise(
    id="13.3",
    title="接上断行",
    reference=join_lines,
    cases=[
        case("词被断开", ["单人手工搬运，男性不超过", "25 公斤，超过的用推", "车。"]),
        case("两句话", ["锁屏。", "清桌。"]),
        case("冒号之后另起", ["材料如下：", "发票", "和行程单。"]),
        case("英文词之间", ["use the vector", "index 检索", "资料。"]),
        case("问号之后另起", ["能补吗？", "两次。"]),
        case("逗号在行末", ["离开座位，", "锁屏。"]),
        case("只有一行", ["锁屏"]),
    ],
    wrong=[
        Wrong("什么也不放", _joiner("", lambda a, b: ""), "句子说完了还接在一起：上一行以 。！？： 结尾时，保留换行。"),
        Wrong("全部保留换行", "\n".join, "一行也没有接上：不是句末的换行要去掉，词才会完整。"),
        Wrong("一律放空格", _joiner("。！？：", lambda a, b: " "), "汉字之间多了空格，词仍是断的：只有两边都是英文或数字才放空格。"),
        Wrong("处处放空格", " ".join, "句末的换行没有保留，汉字之间也多了空格：先看上一行的最后一个字，再看接缝两边。"),
        Wrong("一边是英文就放空格", _joiner("。！？：", lambda a, b: " " if a.isascii() or b.isascii() else ""), "接缝只有一边是 ASCII，你也放了空格：两边都是才放。"),
        Wrong("用了 isalpha", _joiner("。！？：", lambda a, b: " " if a.isalpha() and b.isalpha() else ""), "isalpha 把汉字也算作字母，又漏了数字；用 isascii。"),
        Wrong("末尾多了换行", lambda lines: "".join(line + ("\n" if line[-1] in "。！？：" else "") for line in lines), "换行要放在两行之间：最后一行后面没有东西，不放。英文之间的空格也别忘了。"),
        Wrong("漏了冒号", _joiner("。！？", _glue), "冒号之后也要保留换行。"),
        Wrong("英文粘在一起", _joiner("。！？：", lambda a, b: ""), "两个英文词粘成了一个：两边都是 ASCII 字符时放一个空格。"),
        Wrong("只认句号", _joiner("。", _glue), "问号、叹号、冒号之后也要保留换行，不只是句号。"),
        Wrong("逗号也换行", _joiner("。！？：，", _glue), "逗号不是句末，不要在那里保留换行。"),
    ],
    follow_up="真的读取器还要看行宽、缩进和编号，原理一样。",
)  # fmt: skip

EXERCISES = [_ENCODING, _RUNNING, _JOIN]
