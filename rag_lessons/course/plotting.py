"""图的样式和几课共用的画法。

先调用 ``use_style()``（``course.setup()`` 已经替你调用），此后所有图都有中文字体、可读的字号、
浅色网格。颜色取自 Okabe-Ito 色板，色觉异常和黑白打印都分得开；同一种方法在所有课里同色：

>>> COLORS["toy"], COLORS["e5"]
('#E69F00', '#0072B2')

画法都收一个 ``ax``，画完返回它；不给 ``ax`` 时自己建图。每种方法除了颜色还有自己的记号，
不靠颜色也能分辨。
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_lessons.paths import FONT, font_path
from rag_lessons.types import RagLessonsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    "toy": "#E69F00",
    "e5": "#0072B2",
    "zhipu": "#009E73",
    "bm25": "#D55E00",
    "hybrid": "#CC79A7",
    "rerank": "#56B4E9",
    "query": "#000000",
    "gold": "#009E73",
    "other": "#8C8C8C",
}
MARKERS = {"toy": "o", "e5": "s", "zhipu": "^", "bm25": "D", "hybrid": "v", "rerank": "P", "query": "*"}
HATCHES = {"toy": "//", "e5": "", "zhipu": "..", "bm25": "xx", "hybrid": "--", "rerank": "++"}
NAMES = {
    "toy": "玩具", "e5": "e5", "zhipu": "embedding-3", "bm25": "BM25", "hybrid": "混合", "rerank": "重排",
}  # fmt: skip

RANK_BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 50), (51, None))


# ---------------------------------------------------------------- 样式


def use_style() -> None:
    """登记中文字体并设好 matplotlib 的默认样式。重复调用没有副作用。"""
    # 新机器上头一次导入会在 stderr 说「正在建字体缓存」「换了临时文件夹」，不该留在 notebook 的输出里；
    # matplotlib 自己读写字体缓存时没写 encoding，把 EncodingWarning 当错误时会卡在那里
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EncodingWarning)
            import matplotlib as mpl
            from cycler import cycler
            from matplotlib import font_manager
            from matplotlib.ft2font import FT2Font
    finally:
        logger.setLevel(level)

    path = str(font_path())
    manager = font_manager.fontManager
    if not (manager.ttflist and manager.ttflist[0].fname == path):
        manager.addfont(path)
        manager.ttflist.insert(0, manager.ttflist.pop())  # 系统里若有同名字体，也先用这一个
    has_minus = 0x2212 in FT2Font(path).get_charmap()
    order = ("e5", "toy", "zhipu", "bm25", "hybrid", "rerank")
    mpl.rcParams.update(
        {
            "font.family": [FONT, "DejaVu Sans"],  # 这个字体没有的符号逐个退到 DejaVu
            "axes.unicode_minus": has_minus,
            "mathtext.fontset": "dejavusans",  # 对数轴的指数由数学字体画
            "font.size": 11,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "legend.fontsize": 10,
            "legend.frameon": False,
            "figure.figsize": (7.0, 4.2),
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",  # 深色主题下也是白底黑字
            "savefig.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#E6E6E6",
            "grid.linewidth": 0.8,
            "lines.linewidth": 1.8,
            "axes.prop_cycle": cycler(color=[COLORS[name] for name in order]),
            "svg.hashsalt": "rag_lessons",
        }
    )


def color_of(method: str) -> str:
    """方法的颜色；没有登记的方法是灰色。"""
    return COLORS.get(method, COLORS["other"])


def name_of(method: str) -> str:
    """方法在图里的名字；没有登记的原样返回。"""
    return NAMES.get(method, method)


def _axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize)[1]


# ---------------------------------------------------------------- 数据


def pca_2d(vectors: Any, fit_on: Any = None) -> np.ndarray:
    """把高维向量投到方差最大的两个方向上（主成分分析，PCA）。

    参数
    ----
    vectors : (n, dim)，要投影的向量。
    fit_on : (m, dim)，用哪些向量定方向；默认就用 vectors 自己。

    返回 (n, 2) 的 float64。方向的正负号是固定的（载荷绝对值最大的一维取正），
    所以换一台机器、SVD 的符号翻了，图也不变。只有一个点、两个点、全部相同的点时，多出来的坐标是 0。

    >>> pca_2d([[0, 0, 0], [0, 2, 0]]).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    points = np.asarray(vectors, dtype=np.float64)
    basis = points if fit_on is None else np.asarray(fit_on, dtype=np.float64)
    if points.ndim != 2 or basis.ndim != 2 or (len(points) and points.shape[1] != basis.shape[1]):
        raise RagLessonsError("pca_2d 要的是 (n, dim) 的二维数组，fit_on 的 dim 要相同。")
    if not (np.isfinite(points).all() and np.isfinite(basis).all()):
        raise RagLessonsError("向量里有 NaN 或无穷大，不能投影；请检查向量是怎么来的。")
    if len(basis) == 0 or len(points) == 0:
        return np.zeros((len(points), 2))
    center = basis.mean(axis=0)
    _, values, rows = np.linalg.svd(basis - center, full_matrices=False)
    return (points - center) @ _fixed_axes(values, rows).T


def _fixed_axes(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """SVD 的前两个方向，符号固定；方差为 0 的方向换成零向量。"""
    axes = np.zeros((2, rows.shape[1]))
    floor = max(values[0] if len(values) else 0.0, 1.0) * 1e-9  # 相同的点相减后只剩舍入误差
    for i, (value, row) in enumerate(zip(values[:2], rows[:2], strict=True)):
        if value > floor:
            # 并列的最大载荷取第一个，免得最后一位的舍入决定符号
            pivot = int(np.argmax(np.round(np.abs(row), 6)))
            axes[i] = row if row[pivot] > 0 else -row
    return axes


def rank_counts(ranks: Sequence[int | None]) -> list[int]:
    """名次落在每一档（1、2、3、4-5、6-10、11-20、21-50、51+）的个数；None（没找到）算 51+。

    >>> rank_counts([1, 1, 4, 60, None])
    [2, 0, 0, 1, 0, 0, 0, 2]
    """
    counts = [0] * len(RANK_BINS)
    for rank in ranks:
        value = math.inf if rank is None else rank
        counts[next(i for i, (low, high) in enumerate(RANK_BINS) if high is None or low <= value <= high)] += 1
    return counts


def shorten(text: str, limit: int = 12) -> str:
    """压成一行并截断，给图里的标签用。

    >>> shorten("步数用完就停下来，不再调用工具", 8)
    '步数用完就停下…'
    """
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


# ---------------------------------------------------------------- 标签


def label_points(
    ax: Axes,
    xy: Any,
    texts: Sequence[str],
    *,
    colors: Sequence[str] | str = "#222222",
    size: float = 10,
    avoid: Any = (),
    bold: Sequence[int] = (),
) -> list[Any]:
    """给点写上文字，彼此不重叠、不压住点、不出坐标框；离点远的画一条细引线。

    参数
    ----
    ax : 坐标轴；先画好所有的点（以及同一张图里别的坐标轴），再调用这里：版面后来再变，点会挪动。
    xy : (n, 2)，点的位置（数据坐标）。
    texts : n 个标签；空串表示不写。
    colors : 一个颜色，或每个标签一个。
    size : 字号（磅）。
    avoid : (m, 2)，别的点的位置；标签也躲开它们。
    bold : 哪些标签加底框，例如问题和正确段落。

    返回放好的 Annotation 列表（空标签没有）。摆法是确定的：从重要的、拥挤的点开始，
    在由近到远的候选位置里取代价最小的一个。
    """
    points = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
    others = np.asarray(avoid, dtype=np.float64).reshape(-1, 2)
    palette = [colors] * len(points) if isinstance(colors, str) else list(colors)
    if not len(points) == len(texts) == len(palette):
        raise RagLessonsError(f"点、标签、颜色的个数要相同，现在是 {len(points)}、{len(texts)}、{len(palette)}。")
    figure = ax.figure
    figure.draw_without_rendering()  # 版面先定下来，后面按像素摆才准
    renderer = figure.canvas.get_renderer()
    scale = figure.dpi / 72
    room = _Room(
        scale,
        ax.get_window_extent(renderer),
        ax.transData.transform(points) if len(points) else points,
        ax.transData.transform(others) if len(others) else others,
    )
    gaps = np.linalg.norm(room.points[:, None] - room.points[None], axis=2)
    crowd = (gaps < 60 * scale).sum(axis=1)
    order = sorted((i for i in range(len(points)) if texts[i]), key=lambda i: (-int(crowd[i]), i))
    halves = {i: _text_size(ax, texts[i], size) / 2 + 4 * scale for i in order}
    places = room.arrange(order, halves, bold)
    notes = []
    for i in order:
        center, edge, gap = places[i]
        # 引线由 annotate 自己画：以后版面再动，它仍连着标签和点
        where = (edge - center + halves[i]) / (2 * halves[i])
        line = {"arrowstyle": "-", "color": palette[i], "lw": 0.8, "alpha": 0.8, "shrinkA": 0, "shrinkB": 0}
        note = ax.annotate(
            texts[i],
            points[i],
            tuple((center - room.points[i]) / scale),
            textcoords="offset points",
            fontsize=size,
            color=palette[i],
            ha="center",
            va="center",
            zorder=6,
            annotation_clip=False,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "alpha": 0.85, "lw": 1.0,
                  "ec": palette[i] if i in bold else "none"},
            arrowprops={**line, "relpos": tuple(where)} if gap > NEAR else None,
        )  # fmt: skip
        note.set_in_layout(False)
        notes.append(note)
    return notes


def _text_size(ax: Axes, text: str, size: float) -> np.ndarray:
    """一段文字的宽和高（像素）。"""
    probe = ax.text(0, 0, text, fontsize=size, transform=None)
    extent = probe.get_window_extent(ax.figure.canvas.get_renderer())
    probe.remove()
    return np.array([extent.width, extent.height])


NEAR = 10  # 标签离点超过这么多磅，就画引线
GAPS = np.array([6, 10, 16, 24, 34, 46, 60, 76, 94, 114, 136, 160, 190], dtype=np.float64)
ANGLES = np.deg2rad([0, 180, 45, 135, 315, 225, 90, 270, 22, 158, 338, 202, 68, 112, 292, 248])


class _Room:
    """摆标签的地方：坐标框、要写字的点、背景点，单位都是像素；GAPS 是磅，乘 scale 得像素。"""

    def __init__(self, scale: float, frame: Any, points: np.ndarray, others: np.ndarray) -> None:
        self.scale, self.points, self.others = scale, points, others
        self.frame = np.array([frame.x0, frame.y0, frame.x1, frame.y1])
        ways = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
        self.gaps = np.repeat(GAPS, len(ANGLES))
        self.ways = np.tile(ways, (len(GAPS), 1))
        self.base = self.gaps + np.tile(0.3 * np.arange(len(ANGLES)), len(GAPS))

    def arrange(self, order: list[int], halves: dict[int, np.ndarray], bold: Sequence[int]) -> dict[int, Any]:
        """摆好全部标签：{行号: (中心, 引线在标签上的端点, 离点多远)}。

        先后不同，结果不同，所以按固定的若干种先后各摆一次；每次摆完再让每个标签重新挑几遍，
        留下总代价最小的一次。已经没有碰撞时提前结束。
        """
        shuffled = np.random.default_rng(0)
        orders = [order, *(list(shuffled.permutation(order)) for _ in range(19))]
        best_cost, best = math.inf, {}
        for each in orders:
            places: dict[int, Any] = {}
            for _ in range(4):
                before = {i: tuple(place[0]) for i, place in places.items()}
                costs = []
                for i in each:
                    places.pop(i, None)
                    cost, places[i] = self._choose(i, halves, places, 10 if i in bold else 6)
                    costs.append(cost)
                if before == {i: tuple(place[0]) for i, place in places.items()}:
                    break
            if sum(costs) < best_cost - 1e-6:
                best_cost, best = sum(costs), places
            if best_cost < 60 * len(order):  # 每个标签只剩一点距离的代价
                break
        return best

    def _choose(
        self, i: int, halves: dict[int, np.ndarray], places: dict[int, Any], nearest: float
    ) -> tuple[float, tuple[np.ndarray, np.ndarray, float]]:
        """第 i 个标签的最好位置。代价：压住别的标签最贵，其次出框，再次压点、引线交叉，最后是远和背景点。"""
        point, half, pad = self.points[i], halves[i], 5 * self.scale
        # 标签朝着点的那条边（或那个角）离点 gap 磅
        centers = point + self.ways * self.gaps[:, None] * self.scale + half * np.clip(1.5 * self.ways, -1, 1)
        low, high = centers - half, centers + half
        edges = np.clip(point, low, high)
        led = self.gaps > NEAR
        cost = self.base + np.where(self.gaps < nearest, 1e6, 0.0)
        outside = (low < self.frame[:2]).any(axis=1) | (high > self.frame[2:]).any(axis=1)
        cost += 5_000 * outside
        for j, other in enumerate(self.points):
            if j != i:
                away = np.linalg.norm(other - np.clip(other, low, high), axis=1)
                cost += 400 * (away < pad)
                cost += 150 * (away < 1.5 * self.gaps * self.scale) * ~led  # 没有引线时别离另一个点更近
                cost += 120 * led * _through(point, edges, other - pad, other + pad)
        covered = (self.others > low[:, None]) & (self.others < high[:, None])
        cost += 14 * covered.all(axis=2).sum(axis=1)
        for j, (center, edge, gap) in places.items():
            box_low, box_high = center - halves[j], center + halves[j]
            overlap = np.minimum(high, box_high) - np.maximum(low, box_low)
            cost += (overlap > 0).all(axis=1) * (10_000 + np.prod(np.maximum(overlap, 0), axis=1))
            cost += 600 * led * _through(point, edges, box_low, box_high)
            if gap > NEAR:
                cost += 600 * _through(self.points[j], np.broadcast_to(edge, edges.shape), low, high)
                cost += 500 * led * _cross(point, edges, self.points[j], edge)
        k = int(np.argmin(np.round(cost, 3)))
        return float(cost[k]), (centers[k], edges[k], float(self.gaps[k]))


def _through(start: np.ndarray, ends: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """从 start 到每个 ends 的线段是否穿过矩形（low、high 可以各不相同）：沿线取 32 个点看。"""
    steps = start + np.linspace(0, 1, 32)[:, None, None] * (ends - start)
    return ((steps > low) & (steps < high)).all(axis=2).any(axis=0)


def _cross(start: np.ndarray, ends: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """线段 start→ends（多条）是否与线段 c→d 相交。"""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        u, v = q - p, r - p
        return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]

    apart = side(start, ends, c) * side(start, ends, d) < 0
    return apart & (side(c, d, start) * side(c, d, ends) < 0)


# ---------------------------------------------------------------- 几课共用的图


def heatmap(
    matrix: Any,
    labels: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str = "",
    vmin: float = 0.0,
    vmax: float = 1.0,
    decimals: int = 2,
) -> Axes:
    """相似度热力图，格子里写数值。

    参数
    ----
    matrix : (行, 列) 的数值。
    labels, columns : 行和列的名字；columns 不给时与 labels 相同。
    vmin, vmax : 颜色的两端，默认 0 到 1。超出的仍写真实数值。
    decimals : 保留几位小数。
    """
    values = np.asarray(matrix, dtype=np.float64)
    columns = labels if columns is None else columns
    if values.shape != (len(labels), len(columns)):
        raise RagLessonsError(f"矩阵的形状是 {values.shape}，与 {len(labels)} 行 {len(columns)} 列的名字对不上。")
    ax = _axes(ax, (1.6 + 0.85 * len(columns), 1.2 + 0.62 * len(labels)))
    top = vmin + 1.25 * (vmax - vmin)  # 最深的蓝太暗，只用色带的前五分之四
    image = ax.imshow(values, cmap="Blues", vmin=vmin, vmax=top, aspect="auto")
    ax.set_xticks(range(len(columns)), columns, rotation=30 if max(map(len, columns), default=0) > 4 else 0,
                  ha="right" if max(map(len, columns), default=0) > 4 else "center")  # fmt: skip
    ax.set_yticks(range(len(labels)), labels)
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        text = f"{round(value, decimals) + 0.0:.{decimals}f}"
        ax.text(j, i, text, ha="center", va="center", color=_ink(image.cmap(image.norm(value))))
    if title:
        ax.set_title(title)
    return ax


def _ink(background: Sequence[float]) -> str:
    """写在这个底色上的字用黑还是白：取对比度（WCAG）大的。"""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in background[:3]]
    light = 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]
    return "black" if (light + 0.05) ** 2 > 0.05 * 1.05 else "white"


def similarity_map(
    xy: Any,
    *,
    query: int,
    gold: Sequence[int] = (),
    neighbours: Sequence[int] = (),
    texts: Mapping[int, str] | None = None,
    method: str = "e5",
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """语义地图：问题（星）、正确段落（带环）、最近的几个邻居（数字是名次）、其余的点（灰）。

    参数
    ----
    xy : (n, 2)，例如 ``pca_2d`` 的结果。
    query : 问题是第几行。
    gold : 正确段落是哪几行。
    neighbours : 由近到远的邻居是哪几行；标签前会写上名次。
    texts : {行号: 标签}；没给的点不写字。
    method : 用哪种方法的颜色与记号。
    """
    points = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
    ax = _axes(ax, (6.0, 5.0))
    texts = dict(texts or {})
    ranks = {row: rank for rank, row in enumerate(neighbours, 1)}
    color, marker = color_of(method), MARKERS.get(method, "o")
    shown = {query, *gold, *ranks}
    rest = [i for i in range(len(points)) if i not in shown]
    near = [i for i in ranks if i != query]
    ax.scatter(*points[rest].T, s=16, color="#C8C8C8", zorder=2)
    ax.scatter(*points[near].T, s=46, color=color, marker=marker, zorder=3)
    if gold:
        alone = [i for i in gold if i not in ranks]
        ax.scatter(*points[alone].T, s=46, color=color, marker=marker, zorder=3)
        ax.scatter(*points[list(gold)].T, s=170, facecolors="none", edgecolors=COLORS["gold"], lw=2.2, zorder=4)
    ax.scatter(*points[[query]].T, s=190, color=COLORS["query"], marker="*", zorder=5)
    ax.margins(0.16)
    labels, colors, rows = [], [], sorted(shown)
    for i in rows:
        words = [f"{ranks[i]}." if i in ranks else "", texts.get(i, "")]
        labels.append(" ".join(w for w in words if w))
        colors.append("#000000" if i == query else "#00684B" if i in gold else "#222222")
    important = [n for n, i in enumerate(rows) if i == query or i in gold]
    ax.set_xlabel("第一主成分")
    ax.set_ylabel("第二主成分")
    ax.set_xticks([])
    ax.set_yticks([])
    if title:
        ax.set_title(title)
    label_points(ax, points[rows], labels, colors=colors, avoid=points[rest], bold=important)
    return ax


def rank_strip(
    scores: Any,
    labels: Sequence[str],
    *,
    gold: Sequence[int] = (),
    k: int = 5,
    method: str = "e5",
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """一个问题对全部块的余弦：前 k 名各占一行，正确段落带环（不在前 k 名时另加一行），其余的画成一排短线。

    参数
    ----
    scores : (n,)，问题与每一块的余弦。
    labels : n 个名字，写在左边，前面加名次。
    gold : 正确段落是哪几行；有几处时看排得最前的那一处。
    k : 列出前几名。
    method : 用哪种方法的颜色与记号。

    名次与 ``VectorIndex`` 一致：余弦四舍五入到 6 位再比，并列的按行号。
    """
    values = np.asarray(scores, dtype=np.float64).round(6) + 0.0
    if values.shape != (len(labels),) or not len(labels):
        raise RagLessonsError(f"分数的形状是 {values.shape}，与 {len(labels)} 个名字对不上。")
    order = [int(i) for i in np.lexsort((np.arange(len(values)), -values))]
    rank = {i: place for place, i in enumerate(order, 1)}
    rows = order[:k]
    rows += [i for i in sorted(gold, key=rank.__getitem__)[:1] if i not in rows]
    rest = [i for i in order if i not in rows]
    ax = _axes(ax, (6.0, 2.4))
    ax.scatter(values[rest], np.full(len(rest), len(rows)), marker="|", s=90, color="#B0B0B0", lw=1.0)
    for y, i in enumerate(rows):
        color = "#00684B" if i in gold else "#222222"
        ax.scatter(values[i], y, s=46, color=color_of(method), marker=MARKERS.get(method, "o"), zorder=3)
        if i in gold:
            ax.scatter(values[i], y, s=170, facecolors="none", edgecolors=COLORS["gold"], lw=2.2, zorder=4)
        ax.annotate(f"{values[i]:.3f}", (values[i], y), (12, 0), textcoords="offset points", color=color, va="center")
    ax.set_yticks(range(len(rows) + 1), [*(f"{rank[i]}. {labels[i]}" for i in rows), f"其余 {len(rest)} 块"])
    for tick, i in zip(ax.get_yticklabels(), rows, strict=False):
        tick.set_color("#00684B" if i in gold else "#222222")
    span = max(float(np.ptp(values)), 1e-6)
    ax.set_xlim(values.min() - 0.05 * span, values.max() + 0.2 * span)
    ax.set_ylim(len(rows) + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.set_xlabel("余弦")
    if title:
        ax.set_title(title)
    return ax


def rank_histogram(
    ranks: Mapping[str, Sequence[int | None]], *, ax: Axes | None = None, title: str = ""
) -> Axes:
    """几种方法把正确段落排在第几名：每档一组柱子，柱顶写个数。

    参数
    ----
    ranks : {方法: 每个问题的名次（从 1 起；没找到写 None）}。
    """
    ax = _axes(ax)
    width = 0.8 / max(len(ranks), 1)
    places = np.arange(len(RANK_BINS))
    for n, (method, values) in enumerate(ranks.items()):
        left = places + (n - (len(ranks) - 1) / 2) * width
        bars = ax.bar(left, rank_counts(values), width * 0.92, color=color_of(method), label=name_of(method),
                      hatch=HATCHES.get(method, ""), edgecolor="white", linewidth=0)  # fmt: skip
        ax.bar_label(bars, [str(int(b.get_height())) if b.get_height() else "" for b in bars], fontsize=9, padding=2)
    names = [str(a) if a == b else f"{a}+" if b is None else f"{a}–{b}" for a, b in RANK_BINS]
    ax.set_xticks(places, names)
    ax.set_xlabel("正确段落的名次")
    ax.set_ylabel("问题数")
    ax.grid(False, axis="x")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.legend()
    if title:
        ax.set_title(title)
    return ax


def distributions(
    groups: Mapping[str, Any],
    *,
    method: str,
    bins: Any = None,
    threshold: float | None = None,
    unit: str = "对",
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """同一种方法的几组余弦，重叠着画。第一组填色，其余只画线，黑白打印也分得开。

    参数
    ----
    groups : {组名: 余弦值}，例如 {"无关": ..., "相关": ...}。
    bins : 直方图的格；默认 -0.2 到 1，每格 0.02。
    threshold : 在这里画一条竖线。
    unit : 图例里个数后面的量词。
    """
    ax = _axes(ax)
    edges = np.arange(-0.2, 1.0001, 0.02) if bins is None else bins
    styles = (
        {"histtype": "stepfilled", "color": "#BDBDBD"},
        {"histtype": "step", "color": color_of(method), "lw": 2.2},
        {"histtype": "step", "color": "#000000", "lw": 1.4, "ls": "--"},
    )
    for style, (name, values) in zip(styles * 2, groups.items(), strict=False):
        data = np.asarray(values, dtype=np.float64)
        weights = np.full(len(data), 100 / max(len(data), 1))
        ax.hist(data, edges, weights=weights, label=f"{name}（{len(data)} {unit}）", **style)
    if threshold is not None:
        ax.axvline(threshold, color="#000000", lw=1.2, ls=":")
        ax.text(threshold, 0.97, f" {threshold:.2f}", transform=ax.get_xaxis_transform(), va="top")
    ax.set_xlabel("余弦")
    ax.set_ylabel("占该组的百分比")
    ax.legend(loc="best")
    if title:
        ax.set_title(title)
    return ax


def loglog(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    extrapolate: float | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """两轴都取对数的曲线，名字写在线尾；给了 extrapolate 就按最后两点的斜率用虚线延长到那里。

    参数
    ----
    x : 横坐标，都大于 0。
    series : {名字或方法: 纵坐标}，都大于 0。
    extrapolate : 虚线延长到的横坐标；实线是量出来的，虚线是推出来的。
    """
    ax = _axes(ax)
    across = np.asarray(x, dtype=np.float64)
    cycle = ("e5", "toy", "zhipu", "bm25", "hybrid", "rerank")
    ends = []
    for n, (name, values) in enumerate(series.items()):
        up = np.asarray(values, dtype=np.float64)
        if (across <= 0).any() or (up <= 0).any():
            raise RagLessonsError(f"对数轴上画不了 0 和负数，「{name}」里有；请先去掉它们。")
        method = name if name in COLORS else cycle[n % len(cycle)]
        color = color_of(method)
        ax.plot(across, up, color=color, marker=MARKERS.get(method, "o"), ms=5)
        end = (across[-1], up[-1])
        if extrapolate is not None and len(up) > 1:
            slope = math.log(up[-1] / up[-2]) / math.log(across[-1] / across[-2])
            end = (extrapolate, up[-1] * (extrapolate / across[-1]) ** slope)
            ax.plot([across[-1], end[0]], [up[-1], end[1]], color=color, ls="--", lw=1.3)
        ends.append((end, name_of(name), color))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    for end, name, color in ends:
        note = ax.annotate(name, end, (8, 0), textcoords="offset points", color=color, va="center")
        note.set_annotation_clip(False)
    if title:
        ax.set_title(title)
    return ax
