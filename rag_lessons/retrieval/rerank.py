"""重排：先用便宜的办法取二十条候选，再用贵的办法细看这二十条。"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from rag_lessons.embedding.base import FloatArray, check_vectors
from rag_lessons.index import Where, check_k, check_question
from rag_lessons.retrieval.base import (
    Asked,
    Searcher,
    all_chunks,
    check_search,
    check_searcher,
    in_rank_order,
    renumbered,
)
from rag_lessons.retrieval.fusion import min_max
from rag_lessons.types import Chunk, Hit, RagLessonsError, check_hits, check_number, check_whole

CACHE_TOKENS = 65_536       # 记住的片段向量的个数；384 维时约 100 MB


class Reranker(Protocol):
    """给候选重新打分、排名的东西。"""

    def rerank(self, query: str, hits: Sequence[Hit], k: int = 3) -> list[Hit]: ...


def max_sim(query: FloatArray, document: FloatArray) -> float:
    """迟交互（late interaction）：问题的每个片段，在文档里找最像的一个片段，取这些余弦的平均。

    query 是 (m, dim)，document 是 (n, dim)，行是单位长度。整段只用一个向量时，一段里的几件事会搅在一起；
    这里每个片段各找各的。ColBERT 用的是总和，除以片段数只是换了尺子，一个问题之内次序不变。
    Khattab & Zaharia, ColBERT, SIGIR 2020。

    >>> document = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> round(max_sim(np.array([[1.0, 0.0], [0.0, 1.0]]), document), 6)
    0.9
    """
    return float((query @ document.T).max(axis=1).mean())


class MaxSimReranker:
    """用片段向量重排：比整段的向量看得细，又不需要别的模型。

    参数
    ----
    embedder : 有 ``token_vectors(texts, role)`` 的嵌入器，即 E5Embedder，或包着它的 CachedEmbedder。
    cache_tokens : 内存里最多记住多少个片段的向量，默认 65,536（约 100 MB）；满了先忘最久没用的。0 是不记。

    它对有的资料有帮助，对有的有害：整段向量本身就弱的地方，片段向量也弱。用之前在自己的金标上量一量。
    """

    def __init__(self, embedder: Any, cache_tokens: int = CACHE_TOKENS) -> None:
        if not callable(getattr(embedder, "token_vectors", None)):
            raise RagLessonsError(
                f"MaxSim 要每个片段的向量，{type(embedder).__name__} 没有 token_vectors；请用 E5Embedder()。"
            )
        self.embedder = embedder
        self.cache_tokens = check_whole(cache_tokens, "cache_tokens ", least=0)
        self._known: OrderedDict[str, FloatArray] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def rerank(self, query: str, hits: Sequence[Hit], k: int = 3) -> list[Hit]:
        """候选 → MaxSim 最高的 k 条；score 和 ``details["maxsim"]`` 是那个平均余弦。"""
        check_question(query)
        k = check_k(k)
        hits = check_hits(hits)
        if not hits:
            return []
        (asked,) = self._vectors([query], "query")
        scored = []
        for hit, vectors in zip(hits, self._documents([hit.chunk.embedding_text for hit in hits]), strict=True):
            score = round(max_sim(asked, vectors), 6) if len(vectors) and len(asked) else 0.0
            scored.append(replace(hit, score=score, details={**hit.details, "maxsim": score}))
        return in_rank_order(scored)[:k]

    def _documents(self, texts: list[str]) -> list[FloatArray]:
        """几段文字的片段向量；见过的从内存里取。"""
        with self._lock:                        # 几个线程可以共用一个重排器
            known = {text: self._known[text] for text in texts if text in self._known}
        fresh = list(dict.fromkeys(text for text in texts if text not in known))
        known |= zip(fresh, self._vectors(fresh, "document") if fresh else (), strict=True)
        with self._lock:
            for text in texts:
                if text not in self._known:
                    self._held += len(known[text])
                    self._known[text] = known[text]
                self._known.move_to_end(text)
            while self._held > self.cache_tokens and self._known:
                self._held -= len(self._known.popitem(last=False)[1])
        return [known[text] for text in texts]

    def _vectors(self, texts: list[str], role: str) -> list[FloatArray]:
        """每段文字的片段向量，查验过：一段一个 (片段数, dim)，单位长度。"""
        name = f"{type(self.embedder).__name__}.token_vectors"
        made = self.embedder.token_vectors(texts, role)
        if not isinstance(made, list | tuple) or len(made) != len(texts):
            raise RagLessonsError(f"送去 {len(texts)} 段文字，{name} 要返回同样多个数组的列表；结果不可信，已丢弃。")
        try:
            shapes = [np.shape(rows) for rows in made]
        except ValueError:
            shapes = [()]
        if any(len(shape) != 2 for shape in shapes) or len({shape[1] for shape in shapes if shape[0]}) > 1:
            raise RagLessonsError(f"{name} 给每段文字的要是 (片段数, 维数) 的数组，维数都一样；结果不可信，已丢弃。")
        return [check_vectors(rows, shape[0], shape[1], name) for rows, shape in zip(made, shapes, strict=True)]


class PairReranker:
    """用交叉编码器（cross-encoder）重排：把问题和一块放在一起读，直接给出相关的程度。

    参数
    ----
    score_pairs : 函数，[(问题, 文字), …] → 每对一个分数；sentence-transformers 的 ``CrossEncoder(...).predict``
        就是，FlagEmbedding 的 ``compute_score`` 也是。
    logits : 分数是不是没有换算过的（可正可负）。True 是，每个各自过一次 sigmoid，变成 0 到 1；
        False 表示已经是 0 到 1。默认 None：全在 0 到 1 之间就当作已经换算过。

    每对的分数只由这一对决定，可以设门槛；所以不做 min-max：那会把一组都不相关的候选，也拉出一个满分来。
    """

    calibrated = True       # RerankSearch 混合时，不再拉伸

    def __init__(self, score_pairs: Callable[[list[tuple[str, str]]], Any], logits: bool | None = None) -> None:
        if not callable(score_pairs):
            name = type(score_pairs).__name__
            raise RagLessonsError(f"score_pairs 要是函数，收到的是 {name}；交叉编码器传它的 predict，例如 model.predict。")
        if logits is not None and not isinstance(logits, bool):
            raise RagLessonsError(f"logits 要是 True、False，或不写，收到 {logits!r}。")
        self.score_pairs, self.logits = score_pairs, logits

    def rerank(self, query: str, hits: Sequence[Hit], k: int = 3) -> list[Hit]:
        """候选 → 最相关的 k 条；score 是 0 到 1 的程度，``details["pair"]`` 是函数给的原始分数。"""
        check_question(query)
        k = check_k(k)
        hits = check_hits(hits)
        if not hits:
            return []
        raw = self._checked(self.score_pairs([(query, hit.chunk.embedding_text) for hit in hits]), len(hits))
        logits = any(not 0 <= score <= 1 for score in raw) if self.logits is None else self.logits
        # 按原始分数排：sigmoid 到了头就分不出高下
        ordered = in_rank_order(
            replace(hit, score=score, details={**hit.details, "pair": round(score, 6)})
            for hit, score in zip(hits, raw, strict=True)
        )[:k]
        return [replace(h, score=round(_sigmoid(h.score), 6) if logits else h.score) for h in ordered]

    def _checked(self, scores: Any, count: int) -> list[float]:
        try:
            array = np.asarray(scores.tolist() if hasattr(scores, "tolist") else scores, dtype=np.float64)
        except (TypeError, ValueError, OverflowError, RuntimeError):        # RuntimeError：还在显卡上的张量
            raise RagLessonsError("score_pairs 没有返回一列数；请检查它对每一对给的是不是一个分数。") from None
        if array.size == count and array.shape in ((), (count, 1)):        # 只有一对时，有的函数直接返回一个数
            array = array.reshape(count)
        if array.shape != (count,):
            raise RagLessonsError(f"送去 {count} 对，score_pairs 应返回 {count} 个分数，收到的形状是 {array.shape}；结果不可信，已丢弃。")
        if not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array))[0])
            raise RagLessonsError(f"score_pairs 给第 {row} 对的分数是 {array[row]}；结果不可信，已丢弃。")
        if self.logits is False and ((array < 0) | (array > 1)).any():
            raise RagLessonsError("score_pairs 的分数不全在 0 到 1 之间；没有换算过的分数，请写 logits=True。")
        return array.tolist()


def _sigmoid(x: float) -> float:
    """1 / (1 + e^-x)，x 再大再小也不溢出。"""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _unit_scores(hits: Sequence[Hit]) -> list[float]:
    """各条的分数，0 到 1。HybridSearch 加权的 0 在全部块里最低的那块，比候选里最低的可靠，所以不再拉一次。"""
    scores = [hit.score for hit in hits]
    return scores if all(hit.details.get("weighted") == hit.score for hit in hits) else min_max(scores)


class RerankSearch:
    """检索器加重排器，仍是检索器：先取 candidates 条，重排，给出前 k 条。

    参数
    ----
    searcher : 取候选的检索器。
    reranker : 有 ``.rerank(query, hits, k)`` 的重排器。
    candidates : 候选多少条，默认 20；k 比它大时取 k 条。不在候选里的，重排救不回来。
    weight : 重排分数的份量，0 到 1。默认 1：只看重排。0.3 就是 0.7 × 原来的分数 + 0.3 × 重排的分数，
        两边各自先拉到 0 到 1（HybridSearch 加权的分数、PairReranker 的分数本来就是，不再拉），
        混合后的分数记在 ``details["mixed"]``。
    """

    def __init__(self, searcher: Searcher, reranker: Reranker, candidates: int = 20, weight: float = 1.0) -> None:
        check_searcher(searcher)
        if isinstance(reranker, type) or not callable(getattr(reranker, "rerank", None)):
            raise RagLessonsError(f"reranker 要有 .rerank(query, hits, k)，收到 {reranker!r}；例如 MaxSimReranker(E5Embedder())。")
        self.searcher, self.reranker = searcher, reranker
        self.candidates = check_whole(candidates, "candidates ", least=1)
        self.weight = check_number(weight, "weight")
        if not 0 <= self.weight <= 1:
            raise RagLessonsError(f"weight 要在 0 到 1 之间，收到 {weight!r}；它是重排分数的份量。")

    @property
    def chunks(self) -> list[Chunk]:
        """里面那层的全部块。"""
        return all_chunks(self.searcher)

    def search(self, query: str, k: int = 3, where: Where | None = None) -> list[Hit]:
        """问题 → 重排后的前 k 块。where 在取候选之前起作用。"""
        k = check_search(query, k, where)
        hits = Asked(self.searcher, query)(max(k, self.candidates), where)
        if not hits or self.weight == 0:
            return hits[:k]
        if self.weight == 1:
            return self._reranked(query, hits, k)
        second = self._reranked(query, hits, len(hits))
        first = dict(zip((hit.chunk.id for hit in hits), _unit_scores(hits), strict=True))
        scores = [hit.score for hit in second]
        if not getattr(self.reranker, "calibrated", False):
            scores = min_max(scores)
        mixed = [
            (1 - self.weight) * first[hit.chunk.id] + self.weight * score
            for hit, score in zip(second, scores, strict=True)
        ]
        return in_rank_order(
            replace(hit, score=score, details={**hit.details, "mixed": round(score, 6)})
            for hit, score in zip(second, mixed, strict=True)
        )[:k]

    def _reranked(self, query: str, hits: list[Hit], k: int) -> list[Hit]:
        """重排器交回来的，最多 k 条；里面有候选以外的块时抛出 RagLessonsError。"""
        second = renumbered(self.reranker.rerank(query, hits, k))[:k]
        known = {hit.chunk.id for hit in hits}
        odd = next((hit.chunk.label for hit in second if hit.chunk.id not in known), None)
        if odd is not None:
            raise RagLessonsError(f"{type(self.reranker).__name__} 交回了候选里没有的块（{odd}）；重排器只能给收到的候选排次序。")
        return second
