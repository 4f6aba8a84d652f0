"""图：没有方块、没有警告，标签不重叠，PCA 不受符号影响。pyproject 里警告即错误，所以缺字会直接失败。"""

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from rag_lessons.course import plotting
from rag_lessons.types import RagLessonsError

plotting.use_style()  # 先于 pyplot：它挡住 matplotlib 自己的 EncodingWarning

import matplotlib as mpl  # noqa: E402

mpl.use("agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import font_manager  # noqa: E402


@pytest.fixture(autouse=True)
def style():
    plotting.use_style()
    yield
    plt.close("all")


def save(figure):
    """像 notebook 那样存成 PNG（bbox_inches="tight"），返回字节。"""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


# ---------- 字体与样式 ----------


def test_chinese_and_symbols_have_glyphs():
    figure, ax = plt.subplots()
    ax.set_title("安全阀 失控保护「」，。：；（）—…·①→≥≤×≈√✓✗₁²½α −1")
    ax.set_xlabel("繁體 龘 㐂", fontweight="bold", style="italic")
    ax.text(0.5, 0.5, r"$10^{-3}$ 与 $\sqrt{n}$")
    assert save(figure)


def test_a_missing_glyph_would_be_noticed():
    figure, ax = plt.subplots()
    ax.set_title("\ue000")
    with pytest.warns(UserWarning, match="Glyph"):
        save(figure)


def test_the_font_is_the_packaged_file_whatever_the_system_has():
    assert font_manager.findfont(plotting.FONT) == str(plotting.font_path())
    other = font_manager.FontEntry(fname="/nowhere/a.ttf", name=plotting.FONT, weight=400)
    font_manager.fontManager.ttflist.insert(0, other)
    try:
        plotting.use_style()
        assert font_manager.findfont(plotting.FONT) == str(plotting.font_path())
    finally:
        font_manager.fontManager.ttflist.remove(other)


def test_style_twice_is_style_once():
    before, fonts = dict(mpl.rcParams), len(font_manager.fontManager.ttflist)
    plotting.use_style()
    assert dict(mpl.rcParams) == before and len(font_manager.fontManager.ttflist) == fonts


def test_zhplot_itself_is_not_imported():
    code = "from rag_lessons.course import plotting; plotting.use_style(); import sys; print('zhplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8").stdout == "False\n"


def test_a_fresh_machine_leaves_nothing_on_stderr(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    code = "from rag_lessons.course import plotting; plotting.use_style(); import logging; print(logging.getLogger('matplotlib').level)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8",
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path / "file" / "nowhere")},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_negative_ticks():
    figure, ax = plt.subplots()
    ax.plot([-3, 3], [-2e-3, 2e-3])
    save(figure)
    labels = [t.get_text() for t in ax.get_xticklabels()]
    assert any(text.startswith("\u2212") for text in labels), labels  # 字体里有真正的负号


@pytest.mark.parametrize("low", [1e-6, 1e-1, 0.2])
def test_log_ticks(low):
    figure, ax = plt.subplots()
    ax.plot([low, 1e3], [low, 1e2])
    ax.set_xscale("log")
    ax.set_yscale("log")
    assert save(figure)
    figure, ax = plt.subplots()
    ax.plot([-100, 100], [-low, low])
    ax.set_xscale("symlog")
    assert save(figure)


def test_colours_are_the_agreed_ones_and_differ_in_gray():
    assert plotting.COLORS["toy"] == "#E69F00" and plotting.COLORS["e5"] == "#0072B2"
    assert plotting.COLORS["gold"] == plotting.COLORS["zhipu"] == "#009E73"
    methods = [m for m in plotting.MARKERS if m != "query"]
    assert len({plotting.MARKERS[m] for m in methods}) == len({plotting.HATCHES[m] for m in methods}) == len(methods)

    def gray(method):
        r, g, b = mpl.colors.to_rgb(plotting.COLORS[method])
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    assert abs(gray("toy") - gray("e5")) > 0.25  # 两种最常并列的方法，黑白打印也分得开


# ---------- PCA ----------

RNG = np.random.default_rng(3)
CLOUD = RNG.standard_normal((40, 16)) * np.linspace(3, 0.2, 16)


def test_pca_matches_a_reference():
    from sklearn.decomposition import PCA

    theirs = PCA(2, svd_solver="full").fit_transform(CLOUD)
    ours = plotting.pca_2d(CLOUD)
    signs = np.sign((theirs * ours).sum(axis=0))
    assert np.allclose(ours, theirs * signs, atol=1e-9)


@pytest.mark.parametrize("flip", [(-1, 1), (1, -1), (-1, -1)])
def test_pca_is_the_same_when_the_svd_flips_signs(flip, monkeypatch):
    expected = plotting.pca_2d(CLOUD)
    svd = np.linalg.svd

    def flipped(a, *args, **kwargs):
        u, s, vt = svd(a, *args, **kwargs)
        sign = np.ones(len(s))
        sign[:2] = flip
        return u * sign, s, vt * sign[:, None]

    monkeypatch.setattr(np.linalg, "svd", flipped)
    assert np.array_equal(plotting.pca_2d(CLOUD), expected)


def test_pca_sign_survives_rounding():
    noisy = CLOUD + 1e-12 * RNG.standard_normal(CLOUD.shape)
    assert np.allclose(plotting.pca_2d(noisy), plotting.pca_2d(CLOUD), atol=1e-9)
    tied = np.array([[1.0, -1.0], [-1.0, 1.0], [2.0, -2.0]])  # 两个载荷一样大，符号相反
    assert np.allclose(plotting.pca_2d(tied * (1 + 1e-12)), plotting.pca_2d(tied), atol=1e-9)


@pytest.mark.parametrize(
    "points",
    [np.zeros((0, 5)), np.ones((1, 5)), np.ones((2, 5)), np.ones((7, 5)) * 0.1, np.eye(5)[:2], np.eye(2), [[3.0], [1.0]],
     np.repeat(np.random.default_rng(0).standard_normal((1, 300)), 9, axis=0)],
)  # fmt: skip
def test_pca_of_few_or_equal_points(points):
    xy = plotting.pca_2d(points)
    assert xy.shape == (len(points), 2) and np.isfinite(xy).all()
    if len(points) and np.ptp(np.asarray(points), axis=0).max() == 0:
        assert np.abs(xy).max() < 1e-9  # 全部相同：都在原点，不把舍入误差放大
    if len(points) < 3:
        assert (xy[:, 1] == 0).all()


def test_pca_fit_on_other_points():
    base, extra = CLOUD[:30], CLOUD[30:]
    both = plotting.pca_2d(np.vstack([base, extra]), fit_on=base)
    assert np.allclose(both[:30], plotting.pca_2d(base))
    assert np.allclose(both[30:], plotting.pca_2d(extra, fit_on=base))


@pytest.mark.parametrize("bad", [np.ones(5), np.full((3, 4), np.nan), np.ones((2, 2, 2))])
def test_pca_refuses_what_it_cannot_project(bad):
    with pytest.raises(RagLessonsError):
        plotting.pca_2d(bad)
    with pytest.raises(RagLessonsError):
        plotting.pca_2d(CLOUD, fit_on=CLOUD[:, :3])


# ---------- 标签 ----------


def boxes(ax, notes):
    """画完以后每个标签文字的外框（像素）。"""
    ax.figure.canvas.draw()
    renderer = ax.figure.canvas.get_renderer()
    return [mpl.text.Text.get_window_extent(note, renderer) for note in notes]


def overlaps(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


SCENES = {
    "散开": RNG.standard_normal((8, 2)),
    "挤成一团": RNG.standard_normal((8, 2)) * 0.03,
    "全在一点": np.zeros((6, 2)),
    "一条竖线": np.stack([np.zeros(8), np.linspace(0, 0.1, 8)], axis=1),
    "贴着角": np.array([[0, 0], [1, 1], [0, 1], [1, 0], [0.99, 0.99]]),
    "一个点": np.zeros((1, 2)),
    "没有点": np.zeros((0, 2)),
}


@pytest.mark.parametrize("scene", SCENES)
def test_labels_do_not_overlap(scene):
    xy = SCENES[scene]
    figure, ax = plt.subplots(figsize=(6, 5))
    background = np.random.default_rng(1).standard_normal((60, 2))
    ax.scatter(*background.T, s=10)
    ax.scatter(*xy.T)
    ax.set(xlabel="第一主成分", ylabel="第二主成分", title=scene)
    texts = [f"{i + 1}. 步数用完就停 safety.py:{40 * i}" for i in range(len(xy))]
    notes = plotting.label_points(ax, xy, texts, avoid=background, bold=[0])
    found = boxes(ax, notes)
    assert len(found) == len(xy)
    for i, a in enumerate(found):
        assert not any(overlaps(a, b) for b in found[i + 1 :])
    frame = ax.get_window_extent()
    for box in found:
        assert box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1
    dots = ax.transData.transform(xy)
    for box in found:
        assert not any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in dots)
    save(figure)


def test_labels_are_placed_the_same_every_time():
    def positions():
        _, ax = plt.subplots(figsize=(6, 5))
        xy = SCENES["挤成一团"]
        ax.scatter(*xy.T)
        return [note.get_position() for note in plotting.label_points(ax, xy, [f"标签 {i}" for i in range(8)])]

    assert positions() == positions()


def test_far_labels_get_a_leader_and_empty_ones_nothing():
    _, ax = plt.subplots()
    xy = np.zeros((5, 2))
    ax.scatter(*xy.T)
    notes = plotting.label_points(ax, xy, ["甲甲甲甲", "乙乙乙乙", "", "丙丙丙丙", "丁丁丁丁"])
    assert len(notes) == 4 and any(note.arrow_patch is not None for note in notes)
    with pytest.raises(RagLessonsError, match="个数要相同"):
        plotting.label_points(ax, xy, ["甲"])


# ---------- 几课共用的图 ----------


def test_similarity_map_labels_query_gold_and_neighbours():
    xy = plotting.pca_2d(CLOUD)
    ax = plotting.similarity_map(
        xy, query=39, gold=[3], neighbours=[5, 3, 7], texts={39: "问：失控保护", 3: "安全阀", 5: "重试", 7: "日志"}, method="toy"
    )
    notes = [t for t in ax.texts if t.get_text()]
    assert sorted(t.get_text() for t in notes) == ["1. 重试", "2. 安全阀", "3. 日志", "问：失控保护"]
    found = boxes(ax, notes)
    assert not any(overlaps(a, b) for i, a in enumerate(found) for b in found[i + 1 :])
    rings = [c for c in ax.collections if len(c.get_edgecolors()) and not len(c.get_facecolors())]
    assert len(rings) == 1 and mpl.colors.to_hex(rings[0].get_edgecolors()[0]).upper() == plotting.COLORS["gold"]
    assert np.allclose(rings[0].get_offsets(), xy[[3]])
    save(ax.figure)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_similarity_map_of_few_equal_points(n):
    ax = plotting.similarity_map(np.zeros((n, 2)), query=0, texts={0: "问"}, title="很少的点")
    save(ax.figure)


def test_heatmap_writes_values_and_refuses_wrong_shapes():
    ax = plotting.heatmap([[1, 0.456], [-0.001, 2]], ["甲", "乙"])
    assert [t.get_text() for t in ax.texts] == ["1.00", "0.46", "0.00", "2.00"]
    save(ax.figure)
    ax = plotting.heatmap(np.zeros((1, 3)), ["问题"], ["一二三四五", "乙", "丙"], decimals=1)
    assert len(ax.texts) == 3
    save(ax.figure)
    with pytest.raises(RagLessonsError, match="对不上"):
        plotting.heatmap(np.zeros((2, 3)), ["甲", "乙"])


def test_heatmap_numbers_stand_out_from_their_cells():
    values = np.linspace(0, 1, 25).reshape(5, 5)
    ax = plotting.heatmap(values, list("甲乙丙丁戊"))
    image = ax.get_images()[0]

    def light(color):
        channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(color)]
        return np.dot(channels, [0.2126, 0.7152, 0.0722])

    for text, value in zip(ax.texts, values.ravel(), strict=True):
        a, b = light(image.cmap(image.norm(value))), light(text.get_color())
        assert (max(a, b) + 0.05) / (min(a, b) + 0.05) > 4.5, value  # WCAG AA


def test_rank_histogram_counts():
    ranks = {"toy": [1, 1, 2, 3, 4, 5, 6, 10, 11, 20, 21, 50, 51, None], "e5": [1]}
    assert plotting.rank_counts(ranks["toy"]) == [2, 1, 1, 2, 2, 2, 2, 2]
    ax = plotting.rank_histogram(ranks, title="改写题")
    heights = [[int(bar.get_height()) for bar in group] for group in ax.containers if hasattr(group, "patches")]
    assert heights == [plotting.rank_counts(ranks["toy"]), plotting.rank_counts(ranks["e5"])]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "4–5", "6–10", "11–20", "21–50", "51+"]
    save(ax.figure)
    save(plotting.rank_histogram({"e5": []}).figure)


def test_rank_strip_ranks_like_the_index():
    ax = plotting.rank_strip([0.5, 0.9, 0.5000000001, 0.1, 0.3], list("abcde"), gold=[3], k=3)
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["1. b", "2. a", "3. c", "5. d", "其余 1 块"]
    save(ax.figure)


def test_distributions_are_percentages():
    ax = plotting.distributions({"无关": [0.1] * 30, "相关": [0.5, 0.7]}, method="toy", threshold=0.35)
    assert ax.get_ylim()[1] >= 100
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["无关（30 对）", "相关（2 对）"]
    save(ax.figure)


def test_loglog_extrapolates_along_the_last_slope():
    ax = plotting.loglog([100, 1000], {"e5": [1, 10]}, xlabel="块数", ylabel="毫秒", extrapolate=1e6)
    solid, dashed = ax.lines
    assert dashed.get_linestyle() == "--" and np.allclose(dashed.get_ydata(), [10, 1e4])
    assert np.allclose(solid.get_xdata(), [100, 1000])
    save(ax.figure)
    with pytest.raises(RagLessonsError, match="对数轴"):
        plotting.loglog([1, 2], {"a": [0, 1]}, xlabel="x", ylabel="y")


def test_several_axes_share_a_figure():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
        for ax, method in zip(axes, ("toy", "e5"), strict=True):
            xy = plotting.pca_2d(CLOUD)
            plotting.similarity_map(xy, query=0, gold=[1], neighbours=[2, 1], texts={0: "问", 1: "甲", 2: "乙"}, method=method, ax=ax)
        save(figure)
