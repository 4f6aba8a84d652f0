"""第 02 课的练习：四段有毛病的切块程序，各修一处。"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from rag_lessons.chunking.simple import window_spans
from rag_lessons.course.checks import Exercise, Wrong, case

Span = tuple[int, int]


# ---------------------------------------------------------------- 2.1 多出来的一块


def _starts(length: int, size: int, starts: Sequence[int]) -> list[Span]:
    return [(start, min(start + size, length)) for start in starts]


def _stepping(length: int, size: int, overlap: int) -> list[Span]:
    return _starts(length, size, range(0, length, size - overlap))


def _keep(condition: Callable[[int, int, int], bool]) -> Callable[[int, int, int], list[Span]]:
    """先多切，再按条件扔掉太短的块。"""

    def windows(length: int, size: int, overlap: int) -> list[Span]:
        return [(a, b) for a, b in _stepping(length, size, overlap) if condition(b - a, size, overlap)]

    return windows


def _pushed_back(length: int, size: int, overlap: int) -> list[Span]:
    spans = window_spans(length, size, overlap)
    return [*spans[:-1], (max(0, length - size), length)] if spans else []


def _glued(length: int, size: int, overlap: int) -> list[Span]:
    spans = window_spans(length, size, overlap)
    if len(spans) > 1 and spans[-1][1] - spans[-1][0] < size:
        spans[-2:] = [(spans[-2][0], length)]
    return spans


def _walking(touches: Callable[[int, int], bool], hold: bool = True) -> Callable[[int, int, int], list[Span]]:
    """一块一块往下走的变种：怎样算碰到结尾、终点托不托住。"""

    def windows(length: int, size: int, overlap: int) -> list[Span]:
        spans: list[Span] = []
        for start in range(0, length, size - overlap):
            end = start + size
            spans.append((start, min(end, length) if hold else end))
            if touches(end, length):
                break
        return spans

    return windows


_WINDOWS = Exercise(
    id="2.1",
    title="定长的窗口，尾巴上不多出一块",
    reference=window_spans,
    cases=[
        case("1400 个字，800/150", 1400, 800, 150),
        case("1600 个字，800/150", 1600, 800, 150),
        case("正好切完：1450 个字，800/150", 1450, 800, 150),
        case("多一个字：1451 个字，800/150", 1451, 800, 150),
        case("一块就够：500 个字，800/150", 500, 800, 150),
        case("比重叠还短：100 个字，800/150", 100, 800, 150),
        case("不重叠：10 个字，4/0", 10, 4, 0),
        case("一个字也没有", 0, 800, 150),
    ],
    wrong=[
        Wrong("没有改", _stepping, "最后一块还在前一块里面：前一块已经碰到结尾，就不该再往下走。"),
        Wrong(
            "总是去掉最后一块",
            lambda length, size, overlap: _stepping(length, size, overlap)[:-1],
            "最后一块总被你去掉：它不在前一块里面的时候，去掉就丢了字。",
        ),
        Wrong(
            "起点只走到 length - overlap",
            lambda length, size, overlap: _starts(length, size, range(0, length - overlap, size - overlap)),
            "比重叠还短的文字，一块也没有得到：第一块总是要的。",
        ),
        Wrong(
            "扔掉比重叠短的块",
            _keep(lambda n, size, overlap: n >= overlap or n <= 0),
            "漏了两处：剩下的字恰好等于重叠时，最后一块仍在前一块里面；整份文字比重叠还短时，又一块都不剩。",
        ),
        Wrong(
            "扔掉不满的块",
            _keep(lambda n, size, overlap: n == size),
            "不满 size 的块全被扔掉了，结尾的字跟着丢：短不是毛病，整个落在前一块里才是。",
        ),
        Wrong(
            "最后一块往回挪成整块",
            _pushed_back,
            "你把最后一块往回挪成了整块，它和前一块共有的字就多于 overlap；这里要恰好 overlap 个。",
        ),
        Wrong("并进前一块", _glued, "你把最后一块并进前一块，那一块就比 size 长了。"),
        Wrong(
            "忘了重叠",
            lambda length, size, overlap: _starts(length, size, range(0, length, size)),
            "相邻两块没有共有的字：每一步要走 size - overlap，不是 size。",
        ),
        Wrong(
            "起点到了就停",
            lambda length, size, overlap: _starts(length, size, [0, *range(size - overlap, length - size + 1, size - overlap)])
            if length else [],
            "停早了一步：再走一步放不下整块时，剩下的字也要成一块。",
        ),
        Wrong(
            "终点越过全长才停",
            _walking(lambda end, length: end > length),
            "正好切完时多出一块：终点等于全长，也算碰到结尾，比较时用 >=，不是 >。",
        ),
        Wrong(
            "终点没有托住",
            _walking(lambda end, length: end >= length, hold=False),
            "最后一块的终点超过了全长：用 min(start + size, length) 托住。",
        ),
        Wrong(
            "空的也切一块",
            lambda length, size, overlap: _starts(length, size, range(0, max(length - overlap, 1), size - overlap)),
            "一个字也没有的时候，你给出了一块空的；那时一块也不该有。",
        ),
    ],
    follow_up="条件只有一个：碰到结尾就停。往下走之前看终点，不看起点。",
)

# ---------------------------------------------------------------- 2.2 停不下来的一段


def by_period(text: str, size: int, overlap: int) -> list[Span]:
    """窗口里有句号就退到最后一个句号之后；下一块往回重叠 overlap 个字；碰到结尾就停。"""
    spans, start, end = [], 0, 0
    while end < len(text):
        mark = text.rfind("。", end, start + size)
        end = mark + 1 if mark >= 0 else min(start + size, len(text))
        spans.append((start, end))
        start = max(end - overlap, start + 1)
    return spans


def judge_by_period(spans: Any, text: str, size: int, overlap: int) -> str:
    """切得对不对；对就返回空串，否则说出第一处不对。"""
    problem = _pairs(spans, len(text))
    if problem:
        return problem
    if not text:
        return "" if not spans else "空的文字不该有块。"
    if not spans:
        return "一块也没有；文字不是空的，至少有一块。"
    before = (-1, 0)
    for n, (a, b) in enumerate(spans, 1):
        if a <= before[0]:
            return f"第 {n} 块从 {a} 开始，没有比前一块的 {before[0]} 更往前。"
        if b <= before[1]:
            return f"第 {n} 块 ({a}, {b}) 整个落在前一块 {before} 里。"
        if b - a > size:
            return f"第 {n} 块 ({a}, {b}) 有 {b - a} 个字，超过了 {size}。"
        if a > before[1]:
            return f"第 {before[1]} 到第 {a} 个字不在任何一块里。"
        shared = before[1] - a
        if n > 1 and before[1] - before[0] > overlap and shared != overlap:
            return f"第 {n} 块和前一块共有 {shared} 个字，应是 {overlap} 个。"
        mark = text.rfind("。", before[1], a + size)
        wanted = mark + 1 if mark >= 0 else min(a + size, len(text))
        if b != wanted:
            return f"第 {n} 块从 {a} 开始，应在 {wanted} 处结束，你在 {b} 处结束。"
        before = (a, b)
    return "" if before[1] == len(text) else f"最后一块到 {before[1]} 为止，全文有 {len(text)} 个字。"


def _pairs(spans: Any, length: int) -> str:
    """是不是一列合法的 (起点, 终点)。"""
    if not isinstance(spans, list | tuple):
        return "要返回一个列表，里面是 (起点, 终点)。"
    for n, span in enumerate(spans, 1):
        if not isinstance(span, list | tuple) or len(span) != 2 or not all(type(x) is int for x in span):
            return f"第 {n} 项是 {span!r:.40}，应是 (起点, 终点) 两个整数。"
        if not 0 <= span[0] < span[1] <= length:
            return f"第 {n} 块是 ({span[0]}, {span[1]})，应满足 0 ≤ 起点 < 终点 ≤ {length}。"
    return ""


def _periods(
    *, stop: str = "end", floor: bool = True, step: str = "end", cut: int = 1
) -> Callable[[str, int, int], list[Span]]:
    """by_period 的变种：停的条件、要不要托住、步长怎么算、句号归谁，各错一处。"""

    def attempt(text: str, size: int, overlap: int) -> list[Span]:
        spans: list[Span] = []
        start = end = 0
        while {"end": end, "start": start, "overlap": start + overlap}[stop] < len(text):
            mark = text.rfind("。", end, start + size) if cut >= 0 else -1
            end = mark + cut if mark >= 0 and mark + cut > start else min(start + size, len(text))
            spans.append((start, end))
            following = {"end": end - overlap, "size": start + size - overlap, "none": end}[step]
            start = max(following, start + 1) if floor else following
        return spans

    return attempt


def _gives_up(text: str, size: int, overlap: int) -> list[Span]:
    spans: list[Span] = []
    start = end = 0
    while start < len(text):
        mark = text.rfind("。", end, start + size)
        end = mark + 1 if mark >= 0 else min(start + size, len(text))
        spans.append((start, end))
        if end - start <= overlap:
            break
        start = end - overlap
    return spans


def _from_start(text: str, size: int, overlap: int) -> list[Span]:
    spans: list[Span] = []
    start = end = 0
    while end < len(text):
        mark = text.rfind("。", start, start + size)
        end = mark + 1 if mark >= 0 else min(start + size, len(text))
        spans.append((start, end))
        start = max(end - overlap, start + 1)
    return spans


_PERIOD = Exercise(
    id="2.2",
    title="退到句号的窗口，停得下来",
    reference=by_period,
    judge=judge_by_period,
    seconds=0.5,
    cases=[
        case("三句话", "问闸门，还能不能走。把历史发给模型。最后存一份档。", 16, 4),
        case("结尾没有句号", "问闸门。把历史发给模型。再存档", 10, 3),
        case("一个句号也没有", "甲乙丙丁戊己庚辛壬癸子丑", 5, 2),
        case("一句话比重叠还短", "好。把历史发给模型记一笔账再去用工具", 8, 5),
        case("句子都很短", "好。行。可以。不急。再等等。收尾。", 8, 6),
        case("比重叠还短的文字", "收尾。", 8, 5),
        case("不重叠", "问闸门。把历史发给模型。再存档。", 9, 0),
        case("空的文字", "", 8, 3),
    ],
    wrong=[
        Wrong("没有改", _periods(stop="start", floor=False)),
        Wrong(
            "只改了停的条件",
            _periods(floor=False),
            "停得下来了，但句子比重叠还短时，步长不是正数，起点会倒退：再托一下，至少往前走 1。",
        ),
        Wrong(
            "只托住步长",
            _periods(stop="start"),
            "到了结尾还在一个字一个字地往前挪，挪出一串套在前一块里的小块：终点碰到结尾就该停。",
        ),
        Wrong("不要重叠了", _periods(step="none"), "你让下一块紧接着上一块，停是停了，重叠也没了。"),
        Wrong(
            "步长不是正数就停",
            _gives_up,
            "等到步长不是正数才停，在结尾晚了一块，遇到短句又停得太早，后面的字全丢了。",
        ),
        Wrong(
            "步长按 size 算",
            _periods(step="size"),
            "步长按 size 算，可是退到句号的块比 size 短，中间的字就漏了：从终点往回数 overlap 个字。",
        ),
        Wrong("不退到句号", _periods(cut=-1), "块尾没有退到句号：那是这段程序的本意，要留着。"),
        Wrong("句号归下一块", _periods(cut=0), "句号被留给了下一块的开头：终点应是句号的位置加 1。"),
        Wrong(
            "起点离结尾不到 overlap 就停",
            _periods(stop="overlap"),
            "文字比重叠还短时，你一块也没有切：第一块总是要的。",
        ),
        Wrong(
            "从这一块的起点找句号",
            _from_start,
            "你从这一块的起点开始找句号，重叠的那几个字里若有句号，就会退到那里：要从上一块的终点往后找。",
        ),
    ],
    follow_up="两件事缺一不可：碰到结尾就停；每一步至少往前走一个字。",
)

# ---------------------------------------------------------------- 2.3 越滚越大的一段


def pack(paragraphs: Sequence[str], limit: int, overlap: int) -> list[str]:
    """用换行把段落攒成块，将超过 limit 就另起一块，新块带上旧块的最后 overlap 个字。"""
    chunks, held = [], ""
    for paragraph in paragraphs:
        joined = f"{held}\n{paragraph}" if held else paragraph
        if held and len(joined) > limit:
            chunks.append(held)
            joined = f"{held[-overlap:]}\n{paragraph}" if overlap else paragraph
        held = joined
    return [*chunks, held] if held else chunks


def _packing(
    tail: Callable[[str, int], str],
    *,
    glue: Callable[[str, str], str] = lambda tail, paragraph: f"{tail}\n{paragraph}" if tail else paragraph,
    full: Callable[[str, str, int], bool] = lambda held, paragraph, limit: len(held) + 1 + len(paragraph) > limit,
    last: bool = True,
    drop: bool = False,
) -> Callable[[Sequence[str], int, int], list[str]]:
    """pack 的变种：尾巴怎么取、怎么接上、何时算满、最后一块要不要、引起换块的那段丢不丢。"""

    def attempt(paragraphs: Sequence[str], limit: int, overlap: int) -> list[str]:
        chunks, held = [], ""
        for paragraph in paragraphs:
            if held and full(held, paragraph, limit):
                chunks.append(held)
                held = tail(held, overlap) if drop else glue(tail(held, overlap), paragraph)
            else:
                held = f"{held}\n{paragraph}" if held else paragraph
        return [*chunks, held] if held and last else chunks

    return attempt


def _tail(held: str, overlap: int) -> str:
    return held[-overlap:] if overlap else ""


_TEA = ["先问闸门", "再发历史", "去用工具", "接上答复", "存一份档"]

_PACK = Exercise(
    id="2.3",
    title="攒段落，不重叠时不带尾巴",
    reference=pack,
    cases=[
        case("五段各 200 字，上限 500，不重叠", [c * 200 for c in "甲乙丙丁戊"], 500, 0),
        case("五段，上限 9，不重叠", _TEA, 9, 0),
        case("五段，上限 9，重叠 2", _TEA, 9, 2),
        case("差一个字放不下：上限 8，不重叠", _TEA, 8, 0),
        case("只有一段", ["收尾"], 9, 0),
        case("一段也没有", [], 9, 0),
    ],
    wrong=[
        Wrong(
            "没有改",
            _packing(lambda held, overlap: held[-overlap:]),
            "不重叠时块还在越滚越大：overlap 是 0 时，held[-0:] 就是 held[0:]，整块都留了下来。",
        ),
        Wrong("从不带尾巴", _packing(lambda held, overlap: ""), "不重叠时对了，可是 overlap 大于 0 时，尾巴也没了。"),
        Wrong(
            "带了开头",
            _packing(lambda held, overlap: held[:overlap]),
            "你带上的是旧块的开头；重叠要的是最后 overlap 个字。",
        ),
        Wrong(
            "至少带一个字",
            _packing(lambda held, overlap: held[-max(overlap, 1):]),
            "overlap 是 0 时你仍带了一个字过去；不重叠就一个字也不带。",
        ),
        Wrong(
            "多一个换行",
            _packing(_tail, glue=lambda tail, paragraph: f"{tail}\n{paragraph}"),
            "没有尾巴时，新块的开头多了一个换行：尾巴是空的就直接放段落。",
        ),
        Wrong(
            "没有把换行算进去",
            _packing(_tail, full=lambda held, paragraph, limit: len(held) + len(paragraph) > limit),
            "拼接用的那个换行也占一个字：上限 8 放不下「四个字、换行、四个字」。",
        ),
        Wrong("忘了最后一块", _packing(_tail, last=False), "循环结束后，手里还攒着最后一块，别忘了交出来。"),
        Wrong("丢了一段", _packing(_tail, drop=True), "引起换块的那一段丢了：旧块交出去以后，它是新块的第一段。"),
    ],
    follow_up="负号加 0 还是 0。凡是写 text[-n:] 的地方，都要想一想 n 是 0 时怎样。",
)

# ---------------------------------------------------------------- 2.4 切不开的一段


def group(paragraphs: Sequence[Span], limit: int) -> list[Span]:
    """段落的位置攒成块的位置；一段自己就超过 limit 时，先切成不超过 limit 的几截。"""
    pieces = [(a, min(a + limit, end)) for start, end in paragraphs for a in range(start, end, limit)]
    return _merged(pieces, limit)


def _merged(pieces: Sequence[Span], limit: int) -> list[Span]:
    groups: list[Span] = []
    for start, end in pieces:
        if groups and end - groups[-1][0] <= limit:
            groups[-1] = (groups[-1][0], end)
        else:
            groups.append((start, end))
    return groups


def judge_group(groups: Any, paragraphs: Sequence[Span], limit: int) -> str:
    """切得对不对；对就返回空串，否则说出第一处不对。"""
    total = paragraphs[-1][1] if paragraphs else 0
    problem = _pairs(groups, total)
    if problem:
        return problem
    for n, (a, b) in enumerate(groups, 1):
        if b - a > limit:
            return f"第 {n} 块 ({a}, {b}) 有 {b - a} 个字，超过了 {limit}。"
    for n, ((a, b), (c, d)) in enumerate(pairwise(groups), 2):
        if c < b:
            return f"第 {n} 块从 {c} 开始，压在前一块的 ({a}, {b}) 上；这里不要重叠。"
        if d - a <= limit:
            return f"第 {n - 1}、{n} 块合起来才 {d - a} 个字，放得下，应并成一块。"
    for start, end in paragraphs:
        parts = [(max(a, start), min(b, end)) for a, b in groups if a < end and start < b]
        if sum(b - a for a, b in parts) < end - start:
            return f"({start}, {end}) 这一段有 {end - start} 个字，只有 {sum(b - a for a, b in parts)} 个在块里。"
        if len(parts) > 1 and end - start <= limit:
            return f"({start}, {end}) 这一段放得下，却被切成了 {len(parts)} 截。"
    return ""


def _pieces(split: Callable[[int, int, int], list[Span]], merge: bool = True) -> Callable[[Sequence[Span], int], list[Span]]:
    """group 的变种：太长的一段怎么切，小段并不并。"""

    def attempt(paragraphs: Sequence[Span], limit: int) -> list[Span]:
        pieces = [
            piece for start, end in paragraphs
            for piece in (split(start, end, limit) if end - start > limit else [(start, end)])
        ]
        return _merged(pieces, limit) if merge else pieces

    return attempt


def _even(start: int, end: int, limit: int) -> list[Span]:
    return [(a, min(a + limit, end)) for a in range(start, end, limit)]


def _halves(start: int, end: int, limit: int) -> list[Span]:
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def _gap_free(paragraphs: Sequence[Span], limit: int) -> list[Span]:
    groups: list[Span] = []
    for start, end in (piece for a, b in paragraphs for piece in _even(a, b, limit)):
        if groups and groups[-1][1] - groups[-1][0] + end - start <= limit:
            groups[-1] = (groups[-1][0], end)
        else:
            groups.append((start, end))
    return groups


def _blind(paragraphs: Sequence[Span], limit: int) -> list[Span]:
    return _even(0, paragraphs[-1][1], limit) if paragraphs else []


_GROUP = Exercise(
    id="2.4",
    title="攒段落的位置，太长的一段要切开",
    reference=group,
    judge=judge_group,
    cases=[
        case("一段 5000 个字，上限 1200", [(0, 5000)], 1200),
        case("都放得下", [(0, 200), (202, 402), (404, 604), (606, 806), (808, 1008)], 500),
        case("长段夹在中间", [(0, 100), (102, 2602), (2604, 2704)], 1200),
        case("恰好等于上限", [(0, 500), (502, 1002)], 500),
        case("只多一个字", [(0, 501), (503, 600)], 500),
        case("两段放得下，连中间的空行放不下", [(0, 249), (251, 500)], 499),
        case("一段也没有", [], 500),
    ],
    wrong=[
        Wrong("没有改", _pieces(lambda a, b, limit: [(a, b)]), "比上限还长的一段原样成了一块：放进来之前先把它切开。"),
        Wrong("截断", _pieces(lambda a, b, limit: [(a, a + limit)]), "太长的一段只留了开头，后面的字全丢了：剩下的也要成块。"),
        Wrong("整段不要", _pieces(lambda a, b, limit: []), "太长的一段被你整段扔掉了；长不是错，切开就好。"),
        Wrong("对半切", _pieces(_halves), "只对半切了一次，半段仍可能超过上限：要切到每一截都放得下。"),
        Wrong("不管段落", _blind, "你从头到尾按 limit 一刀刀切，不看段落，放得下的段也被切断了：只切太长的那一段。"),
        Wrong("不并小段", _pieces(_even, merge=False), "长段切好了，小段却各自成块：放得下的相邻几段要并起来。"),
        Wrong(
            "伸过段尾",
            _pieces(lambda a, b, limit: [(x, x + limit) for x in range(a, b, limit)]),
            "最后一截伸过了段尾：终点要用 min(…, end) 托住。",
        ),
        Wrong(
            "丢了零头",
            _pieces(lambda a, b, limit: [(x, x + limit) for x in range(a, b - limit + 1, limit)]),
            "切完整截以后剩下的零头丢了：不满一截的也要。",
        ),
        Wrong(
            "切得太碎",
            _pieces(lambda a, b, limit: [(x, min(x + limit // 4, b)) for x in range(a, b, max(limit // 4, 1))], merge=False),
            "太长的一段切得太碎：每一截可以长到 limit。",
        ),
        Wrong(
            "没有算中间的空行",
            _gap_free,
            "你把各段的字数加起来比，漏了中间的空行：并起来多长，要从第一段的起点量到最后一段的终点。",
        ),
    ],
    follow_up="硬切出来的截照样会切断句子。先挑段内的句号再切，就是 2.7 节的递归。",
)

EXERCISES = [_WINDOWS, _PERIOD, _PACK, _GROUP]
