"""multilingual-e5-small：一个真正的多语言嵌入模型，只用 numpy 跑。

一段文字变成一个 384 维的向量，分五步：

1. 分词：字符归一，切成词表里的片段（piece），取总分最高的切法；
2. 查表：每个片段一行词向量，加上位置向量；
3. 十二层 Transformer：每层先让片段互相看（注意力），再各自加工（前馈）；
4. 求平均：所有片段最后的向量相加，除以个数；
5. 归一：除以长度。

全程一个约定：**一列是一个片段**，数组形状是 (特征数, 片段数)，权重是 (输出, 输入)，
所以每一步都写成 ``权重 @ x``。几段文字的片段首尾相接排成一个大矩阵一起算，
只有注意力分开算：一段文字看不到另一段，也就不需要补齐和遮罩。

模型要求输入带角色：问题前面加 ``query: ``，文档前面加 ``passage: ``，这里自动加，恰好一次。
文字自己以 ``query: `` 开头时照样再加：那是正文。权重是 4 位量化的版本，
它的作者报告与全精度的余弦是 0.98 到 0.99。

来源：Wang 等，Multilingual E5 Text Embeddings，2024（MIT 许可）。
"""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from rag_lessons.embedding import fetch
from rag_lessons.embedding.base import BaseEmbedder, FloatArray, Role, check_texts
from rag_lessons.paths import as_path
from rag_lessons.progress import progress
from rag_lessons.types import RagLessonsError, is_blank

PREFIX = {"query": "query: ", "document": "passage: "}
SPACE_MARK = "\u2581"  # ▁，SentencePiece 用它代表空格
WINDOW = 510  # 模型有 512 个位置，首尾两个留给 <s> 和 </s>
BATCH_TOKENS = 512  # 一次前向计算的片段数：再大矩阵乘法也不会更快，内存却成倍增加
SAVE_TOKENS = 16 * BATCH_TOKENS  # 每算这么多就交出一批
BLOCK = 32  # 量化时每 32 个权重共用一个缩放系数
BLOCK_BYTES = 18  # 2 字节 fp16 系数 + 16 字节（32 个 4 位整数）
UNKNOWN_PENALTY = 10.0  # 词表外的字符：比最低分再低 10
EXP_SAFE = 1e30  # exp 之和在 (1/EXP_SAFE, EXP_SAFE) 之内，就没有溢出，也没有全部变成 0
ATTENTION_FLOATS = 1 << 18  # 一次算的注意力分数的个数上限（1 MB），留在处理器缓存里
GELU_FLOATS = 1 << 16  # 一次激活的个数（256 KB），理由同上
MAX_WORKERS = 4
ALIGN = 16  # 列数补到它的倍数
ONE_THREAD_TOKENS = 64  # 片段不超过这么多（一个问题）就只用一个线程：几个线程互相等的工夫比算的还长


# ---------------------------------------------------------------- 分词


def normalize(text: str, table: dict[int, str]) -> str:
    """字符归一：逐字换成标准写法（全角变半角，换行变空格），连续空格并成一个，空格写成 ▁。

    >>> normalize("安全  阀\\n", {10: " "})
    '▁安全▁阀▁'
    """
    text = re.sub("  +", " ", text.translate(table))
    return (text if text.startswith(" ") else " " + text).replace(" ", SPACE_MARK)


def viterbi(word: str, ids: dict[str, int], scores: Sequence[float], longest: dict[str, int]) -> list[int]:
    """把 word 切成词表里的片段，使分数之和最大，返回各片段的编号；-1 是词表里没有的字符。

    ``best[j]`` 是前 j 个字的最高分，``step[j]`` 记下最后一个片段从哪里开始、是几号。
    ``longest`` 是以某个字开头的最长片段有几个字：不必试更长的。``scores[-1]`` 是未知字符的分数。

    >>> viterbi("安全阀", {"安": 0, "安全": 1, "全": 2}, [-3.0, -4.0, -3.0, -20.0], {"安": 2})
    [1, -1]
    """
    best, step = [0.0] + [-np.inf] * len(word), [(0, -1)] * (len(word) + 1)
    for i, char in enumerate(word):
        for j in range(i + 1, min(i + longest.get(char, 1), len(word)) + 1):
            piece = ids.get(word[i:j])
            if piece is not None and best[i] + scores[piece] > best[j]:
                best[j], step[j] = best[i] + scores[piece], (i, piece)
        if best[i] + scores[-1] > best[i + 1]:
            best[i + 1], step[i + 1] = best[i] + scores[-1], (i, -1)
    pieces, end = [], len(word)
    while end > 0:
        end, piece = step[end]
        pieces.append(piece)
    return pieces[::-1]


class Tokenizer:
    """词表和归一表。没有一个片段在中间含 ▁，所以可以按 ▁ 切开，一个词一个词地求最优切法。

    分数都是 2⁻²² 的整倍数，float64 相加没有舍入：总分真的相等时，取最后一段最长的切法，
    与这个词在文中的位置无关。
    """

    def __init__(
        self, pieces: list[str], scores: list[float], longest: dict[str, int], table: dict[int, str], unknown: int
    ) -> None:
        self.pieces, self.longest, self.table, self.unknown = pieces, longest, table, unknown
        self.scores = [*scores, min(scores) - UNKNOWN_PENALTY]
        self.ids = dict(zip(pieces, range(len(pieces)), strict=True))
        del self.ids[pieces[unknown]]
        self._short_word = lru_cache(maxsize=50_000)(self._word)

    def _word(self, word: str) -> list[int]:
        found = viterbi(word, self.ids, self.scores, self.longest)
        return [self.unknown if piece < 0 else piece for piece in found]

    def encode(self, text: str) -> list[int]:
        """文字 → 片段编号，不含 <s>、</s>。花的时间与字数成正比，没有空格的长中文也一样。"""
        result: list[int] = []
        for word in re.findall(f"{SPACE_MARK}[^{SPACE_MARK}]*", normalize(text, self.table)):
            result += self._short_word(word) if len(word) <= 16 else self._word(word)
        return result


# ---------------------------------------------------------------- 权重文件


def dequantize(blocks: np.ndarray, out: FloatArray | None = None) -> FloatArray:
    """4 位整数 → float32：(..., 块数, 18) 的字节 → (..., 块数 × 32)。

    每块先是一个 fp16 系数，再是 16 个字节：低 4 位是第 0-15 个权重，高 4 位是第 16-31 个。
    权重 = (4 位整数 - 8) × 系数。

    >>> one = np.array([[0x00, 0x3C] + [0x98] * 16], dtype=np.uint8)   # 系数 1.0，低位 8，高位 9
    >>> dequantize(one)[[0, 15, 16, 31]].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    shape = (*blocks.shape[:-1], BLOCK)
    values = np.empty(shape, np.float32) if out is None else out.reshape(shape)
    nibbles = np.ascontiguousarray(blocks[..., 2:])
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    np.subtract(nibbles & 15, np.float32(8), out=values[..., :16])
    np.subtract(nibbles >> 4, np.float32(8), out=values[..., 16:])
    values *= scale
    return values.reshape(*blocks.shape[:-2], -1)


@dataclass(frozen=True, eq=False)
class Layer:
    """一层的权重。``qkv`` 是三个矩阵叠在一起，注意力要除的 √32 已经乘进 q 里。偏置都是一列。"""

    qkv: FloatArray
    qkv_bias: FloatArray
    out: FloatArray
    out_bias: FloatArray
    norm1: tuple[FloatArray, FloatArray]
    up: FloatArray
    up_bias: FloatArray
    down: FloatArray
    down_bias: FloatArray
    norm2: tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Model:
    """整个模型。``word`` 是没有展开的词向量（25 万行，展开要 384 MB），用到哪行展开哪行。"""

    tokenizer: Tokenizer
    bos: int
    eos: int
    hidden: int
    heads: int
    epsilon: float
    word: np.ndarray
    position: FloatArray
    norm: tuple[FloatArray, FloatArray]
    layers: tuple[Layer, ...]


class _Reader:
    """从字节数组里按顺序取数。"""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.at = data, 0

    def values(self, layout: str) -> tuple:
        size = struct.calcsize("<" + layout)
        self.at += size
        return struct.unpack("<" + layout, self.data[self.at - size : self.at].tobytes())

    def array(self, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        self.at += size
        return np.frombuffer(self.data[self.at - size : self.at].tobytes(), dtype, count)


def _read_tokenizer(reader: _Reader) -> tuple[Tokenizer, int, int]:
    count, bos, eos, _, unknown, size = reader.values("5iQ")
    offsets, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    blob = reader.array("u1", size)
    text, characters = blob.tobytes().decode("utf-8"), np.cumsum((blob & 0xC0) != 0x80)
    starts = np.concatenate([[0], characters[offsets[1:] - 1]])  # 字节位置 → 字符位置
    pieces = [text[a:b] for a, b in pairwise(starts.tolist())]
    lengths = np.diff(starts)
    order = np.argsort(lengths, kind="stable")  # 从短到长放，同一个首字最后留下的是最长的
    firsts = np.frombuffer(text.encode("utf-32-le"), "<u4")[starts[order]]
    longest = np.zeros(sys.maxunicode + 1, np.uint8)
    longest[firsts] = lengths[order]
    used = np.flatnonzero(longest)
    longest = dict(zip(map(chr, used.tolist()), longest[used].tolist(), strict=True))
    entries, size = reader.values("iI")
    table, raw, at = {0: ""}, reader.array("u1", size).tobytes(), 0
    for _ in range(entries):
        code, number = struct.unpack_from("<IB", raw, at)
        table[code] = raw[at + 5 : at + 5 + 4 * number].decode("utf-32-le")
        at += 5 + 4 * number
    return Tokenizer(pieces, scores.tolist(), longest, table, unknown), bos, eos


def read_model(path: Path) -> Model:
    """读权重文件。文件映射进内存，词向量留在盘上；其余矩阵展开成 float32（约 85 MB）。"""
    data = np.memmap(path, np.uint8, mode="r")
    reader = _Reader(data)
    magic, _ = reader.values("4sI")
    hidden, depth, heads, inner, vocabulary, _, _, epsilon, _ = reader.values("7ifi")
    if magic != b"E5S1" or hidden % heads or hidden % BLOCK:
        raise ValueError("header")
    tokenizer, bos, eos = _read_tokenizer(reader)
    places = {}
    for _ in range(reader.values("i")[0]):
        name = reader.array("u1", reader.values("H")[0]).tobytes().decode("ascii")
        _, _, start, size = reader.values("BIQQ")
        places[name] = data[start : start + size]

    def vector(name: str) -> FloatArray:
        return np.array(places[name].view("<f4"), dtype=np.float32).reshape(-1, 1)

    def matrix(rows: int, columns: int, *names: str) -> FloatArray:
        result = np.empty((rows, columns), np.float32)
        for name, part in zip(names, np.split(result, len(names)), strict=True):
            dequantize(places[name].reshape(-1, columns // BLOCK, BLOCK_BYTES), out=part)
        return result

    def layer(n: str) -> Layer:
        qkv = matrix(3 * hidden, hidden, f"{n}.q.w", f"{n}.k.w", f"{n}.v.w")
        qkv_bias = np.concatenate([vector(f"{n}.{x}.b") for x in "qkv"])
        for q in (qkv[:hidden], qkv_bias[:hidden]):
            q /= np.sqrt(hidden / heads)
        return Layer(
            qkv, qkv_bias, matrix(hidden, hidden, f"{n}.ao.w"), vector(f"{n}.ao.b"),
            (vector(f"{n}.aln.w"), vector(f"{n}.aln.b")),
            matrix(inner, hidden, f"{n}.fi.w"), vector(f"{n}.fi.b"),
            matrix(hidden, inner, f"{n}.fo.w"), vector(f"{n}.fo.b"),
            (vector(f"{n}.oln.w"), vector(f"{n}.oln.b")),
        )  # fmt: skip

    position = vector("emb.pos").reshape(-1, hidden) + vector("emb.type").reshape(-1, hidden)[0]
    return Model(
        tokenizer, bos, eos, hidden, heads, epsilon,
        word=places["emb.word"].reshape(vocabulary, hidden // BLOCK, BLOCK_BYTES),
        position=np.ascontiguousarray(position.T),
        norm=(vector("emb.ln.w"), vector("emb.ln.b")),
        layers=tuple(layer(f"l{i}") for i in range(depth)),
    )  # fmt: skip


_loading = threading.Lock()


def load_model(path: Path) -> Model:
    """读权重并记住：同一个文件在一个进程里只读一次，几个 E5Embedder 共用。"""
    path = Path(path)
    fetch.check_header(path)
    with _loading:
        status = path.stat()
        return _load(path.resolve(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _load(path: Path, modified: int, size: int) -> Model:
    try:
        return read_model(path)
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise RagLessonsError(fetch.broken(path)) from error


# ---------------------------------------------------------------- 前向计算


def layer_norm(x: FloatArray, weight: FloatArray, bias: FloatArray, epsilon: float) -> FloatArray:
    """层归一：每一列减去自己的平均，除以自己的标准差，再乘 weight、加 bias。就地修改 x。"""
    x -= np.add.reduce(x, axis=0) / len(x)
    variance = np.einsum("ij,ij->j", x, x) / len(x)
    x *= 1 / np.sqrt(variance + np.float32(epsilon))
    x *= weight
    x += bias
    return x


def gelu(x: FloatArray) -> FloatArray:
    """GELU 激活的 tanh 写法：x/2 × (1 + tanh(√(2/π) (x + 0.044715 x³)))。就地修改 x。

    与精确的 erf 写法最多差 0.0005；换来的是 numpy 里有快的 tanh，没有 erf。

    >>> gelu(np.array([[-1.0, 0.0, 1.0]])).round(4).tolist()
    [[-0.1588, 0.0, 0.8412]]
    """
    inner = x * x
    inner *= 0.044715 * 0.7978845608  # √(2/π)
    inner += 0.7978845608
    inner *= x
    np.tanh(inner, out=inner)
    inner += 1
    inner *= 0.5
    x *= inner
    return x


def attention(q: FloatArray, k: FloatArray, v: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """注意力：每一列按自己的 q 与各列的 k 的相似程度，取各列 v 的加权平均。

    q, k, v 的形状是 (..., 32, 片段数)，q 已除以 √32；返回同样形状。softmax 的通常写法先减去
    最大值，免得 exp 溢出；这里的分数不大，省掉这一步，算完看一眼总和，真的溢出了再补做。
    """
    weights = np.matmul(k.swapaxes(-1, -2), q)
    with np.errstate(over="ignore"):
        np.exp(weights, out=weights)
        total = np.add.reduce(weights, axis=-2, keepdims=True)
    if not (total.min() > 1 / EXP_SAFE and total.max() < EXP_SAFE):
        weights = np.matmul(k.swapaxes(-1, -2), q)
        weights = np.exp(weights - weights.max(axis=-2, keepdims=True))
        total = weights.sum(axis=-2, keepdims=True)
    out = np.matmul(v, weights, out=out)
    out /= total
    return out


def embed_pieces(model: Model, pieces: np.ndarray, positions: np.ndarray) -> FloatArray:
    """查表：词向量加位置向量，再做层归一。返回 (384, 片段数)。"""
    x = dequantize(model.word[pieces]).T + model.position[:, positions]
    return layer_norm(x, *model.norm, model.epsilon)


def mean_pool(x: FloatArray) -> FloatArray:
    """所有列的平均：(特征数, 片段数) → (特征数,)。"""
    return x.mean(axis=1)


def forward(model: Model, windows: Sequence[Sequence[int]]) -> FloatArray:
    """几个窗口一起走完十二层，返回 (384, 片段总数)：各窗口的列首尾相接。

    每个窗口是已带 <s>、</s> 的片段编号。长度相同的窗口应当相邻，它们的注意力会一次算完。
    """
    lengths = [len(window) for window in windows]
    total = sum(lengths)
    x = _columns(model.hidden, total)
    x[:, :total] = embed_pieces(model, np.concatenate(windows), np.concatenate([*map(np.arange, lengths)]))
    change, mixed, qkv = _columns(len(x), total), _columns(len(x), total), _columns(3 * len(x), total)
    inner = _columns(len(model.layers[0].up), total)
    views = _attention_views(qkv, mixed, lengths, model.heads)
    rows = max(1, GELU_FLOATS // inner.shape[1])
    for layer in model.layers:
        np.matmul(layer.qkv, x, out=qkv)
        qkv += layer.qkv_bias
        for q, k, v, out in views:
            attention(q, k, v, out)
        x += np.matmul(layer.out, mixed, out=change)
        x += layer.out_bias
        layer_norm(x, *layer.norm1, model.epsilon)
        np.matmul(layer.up, x, out=inner)
        for start in range(0, len(inner), rows):
            part = inner[start : start + rows]
            part += layer.up_bias[start : start + rows]
            gelu(part)
        x += np.matmul(layer.down, inner, out=change)
        x += layer.down_bias
        layer_norm(x, *layer.norm2, model.epsilon)
    return x[:, :total]


def _columns(rows: int, columns: int) -> FloatArray:
    """全零的 (rows, columns)，列数补到 16 的倍数：矩阵乘法对整齐的形状快得多。补的列不参与注意力。"""
    return np.zeros((rows, -(-columns // ALIGN) * ALIGN), np.float32)


def _attention_views(
    qkv: FloatArray, out: FloatArray, lengths: list[int], heads: int
) -> list[tuple[FloatArray, ...]]:
    """把 q、k、v 和结果切成一份份视图，每份各算各的注意力：一段文字只看自己。

    一样长的窗口排成一组一起算，再按分数的个数分块，使一块的分数留在处理器缓存里。
    """
    views, start = [], 0
    for length, group in groupby(lengths):
        count = len(list(group))
        parts = [
            part[:, start : start + count * length].reshape(heads, -1, count, length).transpose(2, 0, 1, 3)
            for part in (*np.split(qkv, 3), out)
        ]
        texts = max(1, ATTENTION_FLOATS // (heads * length * length))
        some = max(1, ATTENTION_FLOATS // (length * length))
        for i in range(0, count, texts):
            for head in range(0, heads, some):
                views.append(tuple(part[i : i + texts, head : head + some] for part in parts))
        start += count * length
    return views


# ---------------------------------------------------------------- 多线程

T = TypeVar("T")
R = TypeVar("R")
_blas_lock, _blas_users, _blas_saved = threading.Lock(), 0, []


@lru_cache(maxsize=1)
def _blas() -> list[Any]:
    """numpy 用的矩阵运算库（OpenBLAS、MKL）；认不出来就是空的。

    OpenMP 版的 OpenBLAS（例如 faiss 带的那份）线程数各线程自己记，在这里设没有用，不算在内。
    """
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in found if getattr(library, "threading_layer", None) != "openmp"]


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """这期间矩阵运算库每次调用只用一个线程；几处同时进来，最后出去的恢复原样。"""
    global _blas_users
    with _blas_lock:
        if _blas_users == 0:
            _blas_saved[:] = [library.num_threads for library in _blas()]
            for library in _blas():
                library.set_num_threads(1)
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                for library, number in zip(_blas(), _blas_saved, strict=True):
                    library.set_num_threads(number)


def _workers() -> int:
    """用几个线程：不超过处理器的个数、给矩阵运算库定的上限和 MAX_WORKERS。"""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([MAX_WORKERS, cores, *(library.num_threads for library in _blas())])


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """按次序给出 function(每一项)，几项同时算；最多提前算出一轮，内存不会越积越多。

    一项一个线程，比让矩阵运算库把每次乘法拆给几个线程好：不必每次乘完都互相等，
    机器忙的时候差得更多；激活、归一这些逐个元素的步骤也分摊了。
    """
    workers = min(_workers(), len(items)) if len(items) > 1 else 1
    if workers == 1:
        yield from map(function, items)
        return
    with _one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)      # 中途停下：还没开始的不算了


# ---------------------------------------------------------------- 嵌入器


class E5Embedder(BaseEmbedder):
    """multilingual-e5-small，384 维，离线可用。

    参数
    ----
    path : 权重文件；不给就用环境变量 ``RAG_LESSONS_E5``、缓存文件夹里的，都没有时第一次使用会下载。

    权重在第一次使用时才读（约 0.2 秒）。超过 510 个片段的文字切成 510 个一窗，各窗的平均
    按窗长加权再归一，没有文字被截掉。结果与同批的其他文字、先后次序无关（差别在 1e-6 以内）。
    余弦集中在 0.75 到 0.95：阈值不能照搬别的模型。
    """

    space = "e5/multilingual-e5-small/q4/384/prefix/v1"
    dim = 384

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else as_path(path)
        if self._path is not None and not os.path.isfile(self._path):  # noqa: PTH113 没有权限时是 False，不抛异常
            raise FileNotFoundError(f"没有权重文件 {self._path}；不给 path 就会自动寻找或下载。")

    @property
    def model(self) -> Model:
        """读好的模型；第一次访问时读文件，没有文件就先下载。"""
        if self._path is None:
            self._path = fetch.model_path() or fetch.fetch_model(steps=False)
        return load_model(self._path)

    def tokenize(self, text: str) -> list[int]:
        """文字 → 片段编号；不含 <s>、</s> 和角色前缀。空字符串得到一个 ▁。"""
        return self.model.tokenizer.encode(*check_texts([text]))

    def pieces(self, text: str) -> list[str]:
        """文字 → 片段本身，与 ``tokenize`` 一一对应；▁ 表示前面有空格，词表里没有的是 <unk>。"""
        return [self.model.tokenizer.pieces[i] for i in self.tokenize(text)]

    def _windows(self, text: str, role: Role) -> list[list[int]]:
        """前缀和正文切成 510 个一窗，各加上 <s>、</s>。"""
        model = self.model
        content = model.tokenizer.encode(PREFIX[role].strip()) + model.tokenizer.encode(text)
        return [[model.bos, *content[i : i + WINDOW], model.eos] for i in range(0, len(content), WINDOW)]

    def _run(self, texts: list[str], role: Role) -> Iterator[tuple[int, bool, FloatArray]]:
        """从短到长，逐窗给出 (第几条文字, 是不是它的最后一窗, 最后一层的各列)。"""
        windows = [self._windows(text, role) for text in texts]
        order = sorted(range(len(texts)), key=lambda n: sum(map(len, windows[n])))
        jobs = [(n, w is windows[n][-1], w) for n in order for w in windows[n]]
        batches: list[list[tuple[int, bool, list[int]]]] = []
        room = 0
        for job in jobs:
            if room < len(job[2]):
                batches.append([])
                room = BATCH_TOKENS
            batches[-1].append(job)
            room -= len(job[2])

        sizes = [sum(len(window) for _, _, window in batch) for batch in batches]
        model, contents = self.model, [[window for _, _, window in batch] for batch in batches]
        alone = sizes == [sum(sizes)] and sizes[0] <= ONE_THREAD_TOKENS

        def compute(content: list[list[int]]) -> FloatArray:
            with _one_blas_thread() if alone else nullcontext():
                return forward(model, content)

        results = zip(batches, sizes, in_threads(compute, contents), strict=True)
        for batch, _, columns in progress(results, sum(sizes), "e5 计算向量", size=lambda result: result[1]):
            start = 0
            for n, last, window in batch:
                yield n, last, columns[:, start : start + len(window)]
                start += len(window)

    def _encode_batches(self, texts: list[str], role: Role) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """攒够 SAVE_TOKENS 个片段就交出一批，缓存好存下来：中途停下，前面的不白算，按 Ctrl-C 时连没攒够的也交出。"""
        sums, ready, tokens = np.zeros((len(texts), self.dim)), [], 0
        try:
            for n, last, columns in self._run(texts, role):
                sums[n] += mean_pool(columns) * (columns.shape[1] - 2)  # 按窗里的片段数加权
                ready += [n] * last
                tokens += columns.shape[1]
                if ready and tokens >= SAVE_TOKENS:
                    yield ready, sums[ready]
                    ready, tokens = [], 0
        except KeyboardInterrupt:
            if ready:
                yield ready, sums[ready]
            raise
        if ready:
            yield ready, sums[ready]

    def token_vectors(self, texts: Sequence[str], role: Role) -> list[FloatArray]:
        """每条文字的每个片段一个向量：列表里每项是 (片段数, 384) 的 float32，行是单位长度。

        行与 ``tokenize(text)`` 一一对应：前缀、<s>、</s> 参与计算，但不在结果里，
        它们不是文字的内容。空白文字得到 (0, 384)。
        """
        texts = check_texts(texts)
        wanted = [n for n, text in enumerate(texts) if not is_blank(text)]
        prefix = len(self.model.tokenizer.encode(PREFIX[role].strip()))
        parts: list[list[FloatArray]] = [[] for _ in texts]
        for n, _, columns in self._run([texts[n] for n in wanted], role):
            part = parts[wanted[n]]
            rows = columns[:, 1 if part else 1 + prefix : -1].T
            part.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        return [np.concatenate(part) if part else np.zeros((0, self.dim), np.float32) for part in parts]
