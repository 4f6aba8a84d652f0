"""网络上的嵌入服务：智谱 embedding-3、一切 OpenAI 兼容的服务，以及别的库里的本地模型。

重试和解读报错在 service.py，与对话共用。这里另做两件事：

* 分批，一批算完就交出去（外面的缓存随即存下），失败时已付过钱的不会丢；
* 核对返回值：条数、``index``、维数、NaN、零向量，有一样不对就抛出 EmbeddingServiceError，从不用零凑数。

限制的出处（智谱开放平台文档“文本嵌入”页）：embedding-3 每条最多 3,072 token，
一次最多 64 条，维数 256/512/1024/2048。
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from rag_lessons.embedding.base import BaseEmbedder, FloatArray, Role, check_vectors
from rag_lessons.progress import progress
from rag_lessons.service import Retry, Service, ServiceError
from rag_lessons.settings import get_setting
from rag_lessons.types import RagLessonsError, is_blank


class EmbeddingServiceError(ServiceError):
    """嵌入服务没有给出可用的向量。属性见 ServiceError。"""


# --- 长度 ---------------------------------------------------------------------------------------------

# 汉字与假名在常用词表里至多约一个 token；拉丁字母、数字、空格按三个一 token 算（英文实际约四个）
ASCII_PER_TOKEN = 3


def estimate_tokens(text: str) -> int:
    """不用对方的分词器，估一段文字至多多少 token。宁可多估：少估了，服务可能悄悄截断。

    字节级的分词器不会给出比 UTF-8 字节更多的 token，所以估计值不超过字节数：
    3,072 字节以内的文字一定放得下 embedding-3。

    >>> estimate_tokens("安全阀"), estimate_tokens("safety valve")
    (3, 4)
    """
    ascii_count = len(text.encode("ascii", "ignore"))
    wide = [c for c in text if not c.isascii()]
    # 常用汉字、假名、标点一个算一个；其余（生僻字、表情）按它们的字节算
    tokens = sum(1 if "\u3000" <= c <= "\u30ff" or "\u4e00" <= c <= "\u9fff" or "\uff00" <= c <= "\uffef"
                 else len(c.encode("utf-8", "surrogatepass")) for c in wide)
    return tokens + -(-ascii_count // ASCII_PER_TOKEN)


# --- 公共部分 -----------------------------------------------------------------------------------------

class _BatchEmbedder(BaseEmbedder):
    """分批、加前缀、核对。子类实现 ``_session``。"""

    batch_size: int
    query_prefix = ""
    document_prefix = ""

    def _session(self) -> AbstractContextManager[Callable[[list[str]], object]]:
        """一次嵌入期间用的函数：一批文字 → 向量；结束时收拾干净。"""
        raise NotImplementedError

    def _prefixed(self, texts: Sequence[str], role: Role) -> list[str]:
        prefix = self.query_prefix if role == "query" else self.document_prefix
        return [prefix + text for text in texts]

    def _encode_batches(self, texts: list[str], role: Role) -> Iterator[tuple[Sequence[int], FloatArray]]:
        starts = range(0, len(texts), self.batch_size)
        with self._session() as call:
            for number, start in enumerate(progress(starts, label="计算向量"), 1):
                batch = self._prefixed(texts[start:start + self.batch_size], role)
                failure = None
                try:
                    vectors = self._check(call(batch), len(batch))
                except RagLessonsError as error:
                    failure = error
                if failure is not None:         # 出了 except 再抛：异常链里不留 SDK 的异常，那里可能有密钥
                    raise _named(failure, f"第 {number} 批（共 {len(starts)} 批，这批 {len(batch)} 条）失败：")
                if not self.dim:
                    self.dim = vectors.shape[1]
                yield range(start, start + len(batch)), vectors

    def _check(self, vectors: object, count: int) -> FloatArray:
        try:
            array = np.asarray(vectors, dtype=np.float64)
        except (TypeError, ValueError):
            raise EmbeddingServiceError(f"{self.space} 返回的不是一排排等长的数字；结果不可信，已丢弃。") from None
        dim = self.dim or (array.shape[1] if array.ndim == 2 else 0)
        return check_vectors(array, count, dim, self.space)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.space!r})"


def _named(error: RagLessonsError, prefix: str) -> EmbeddingServiceError:
    """同一个错误，前面加上是哪一批。"""
    if isinstance(error, EmbeddingServiceError):
        return EmbeddingServiceError(prefix + str(error), error.status, error.code, error.retryable)
    return EmbeddingServiceError(prefix + str(error))


def _prefix_name(query_prefix: str, document_prefix: str) -> str:
    """空间名里表示前缀的一段：没有前缀是 none，有就是两个前缀的摘要。"""
    if not query_prefix and not document_prefix:
        return "none"
    both = json.dumps([query_prefix, document_prefix]).encode("ascii")
    return "prefix-" + hashlib.sha256(both).hexdigest()[:8]


def _check_prefixes(*prefixes: object) -> None:
    if not all(isinstance(prefix, str) for prefix in prefixes):
        raise RagLessonsError("query_prefix 和 document_prefix 要是字符串；不加前缀就不写。")


class _ServiceEmbedder(Service, _BatchEmbedder):
    """两家网络服务共有的：长度检查、一批的来回。"""

    error_type = EmbeddingServiceError

    def __init__(
        self,
        model: str,
        base_url: str | None,
        dim: int,
        requested_dim: int | None,
        api_key: str | None,
        batch_size: int,
        timeout: float,
        retry: Retry | None,
        max_tokens: int | None,
        count_tokens: Callable[[str], int] | None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise RagLessonsError(f"batch_size 要是至少为 1 的整数，收到 {batch_size!r}。")
        self._connect(model, base_url, api_key, timeout, retry)
        self.dim = dim
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.count_tokens = count_tokens
        self._requested_dim = requested_dim

    # 输入 -----------------------------------------------------------------------------------------

    def check_input(self, texts: Sequence[str], role: Role) -> list[str]:
        """任何一条太长或不能编码，就在发送之前抛出 RagLessonsError，写明是第几条。"""
        texts = super().check_input(texts, role)
        for i, text in enumerate(self._prefixed(texts, role)):
            if is_blank(texts[i]):
                continue
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:
                raise RagLessonsError(
                    f"第 {i} 条含有不成对的代理字符（多半是读文件时编码不对），发不出去；请用正确的编码重新读。"
                ) from None
            if self.max_tokens is None or (self.count_tokens is None and size <= self.max_tokens):
                continue
            tokens = (self.count_tokens or estimate_tokens)(text)
            if tokens > self.max_tokens:
                how = "" if self.count_tokens else "（没有对方的分词器，这是偏高的估计）"
                raise RagLessonsError(
                    f"第 {i} 条有 {len(text)} 个字符，约 {tokens} token{how}，"
                    f"超过 {self.model} 每条 {self.max_tokens} token 的上限；还没有发送任何内容，请先把它切小。"
                )
        return texts

    # 调用 -----------------------------------------------------------------------------------------

    def _request(self, client: Any, texts: list[str]) -> Any:
        """SDK 的一次调用；返回 SDK 的回复对象。"""
        raise NotImplementedError

    @contextmanager
    def _session(self) -> Iterator[Callable[[list[str]], object]]:
        with self._client() as client:
            yield partial(self._send, client)

    def _send(self, client: Any, texts: list[str]) -> list[Any]:
        """发一批，按规矩重试，返回按 index 排好的向量。"""
        return self._call(
            lambda: _in_order(self._request(client, texts), len(texts), self.space),
            advice=lambda said: _batch_hint(said, len(texts)),
        )


def _batch_hint(said: str, count: int) -> str:
    """参数错误时的建议；原话里有条数上限就直接写出来。"""
    limit = re.search(r"(?i)(?:larger than|more than|at most|up to|exceeds?|maximum(?: of)?|max|最多|不超过|超过|大于)\D{0,12}(\d+)", said)
    about_batch = re.search(r"(?i)batch|input|array|items|texts|条|数组", said)
    if count > 1 and limit and about_batch and 0 < int(limit[1]) < count:
        return f"它限制每次的条数（这批 {count} 条），请设 batch_size={limit[1]}。"
    if count > 1:
        return f"请检查模型名和维数；如果它限制每次的条数（这批 {count} 条），请设小一点的 batch_size，例如 batch_size=10。"
    return "请检查模型名、维数和这条文字的长度。"


def _in_order(reply: Any, count: int, space: str) -> list[Any]:
    """按 ``index`` 排好。条数不对、编号重复或有缺，都说明对不上号，抛出 EmbeddingServiceError。"""
    data = getattr(reply, "data", None)
    if not isinstance(data, list):
        raise EmbeddingServiceError(f"{space} 的回复里没有 data 列表；请检查 base_url 是不是嵌入服务的地址。")
    if len(data) != count:
        raise EmbeddingServiceError(f"{space} 送去 {count} 条文字，返回了 {len(data)} 条向量；结果不可信，已丢弃。")
    by_index = {getattr(item, "index", None): getattr(item, "embedding", None) for item in data}
    if set(by_index) != set(range(count)):
        raise EmbeddingServiceError(f"{space} 返回的编号（index）有重复或缺漏，对不上送去的 {count} 条；结果不可信，已丢弃。")
    return [by_index[i] for i in range(count)]


# --- 智谱 ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Limits:
    dims: tuple[int, ...]
    default: int
    tokens: int
    batch: int


# embedding-2 一次总共 8K token，每条最多 512，所以一批 16 条一定放得下
ZHIPU_MODELS = {
    "embedding-3": _Limits((256, 512, 1024, 2048), 2048, 3072, 64),
    "embedding-2": _Limits((1024,), 1024, 512, 16),
}


class ZhipuEmbedder(_ServiceEmbedder):
    """智谱的嵌入服务，走官方 SDK ``zhipuai``。

    参数
    ----
    model : 模型名，默认 ``"embedding-3"``。
    dimensions : 维数，embedding-3 可选 256、512、1024、2048（默认）。
    api_key : 密钥；不写就取 ZHIPUAI_API_KEY（环境变量或 ``.env``）。
    base_url : 服务地址；不写就取 ZHIPUAI_BASE_URL，再没有就是官方地址。转发同一服务的地址算同一个空间。
    batch_size : 一次送几条，embedding-3 最多 64。
    timeout : 一次请求最多等几秒。
    retry : 重试的规矩，见 Retry。
    count_tokens : 文字 → token 数的函数；不写就用 estimate_tokens 估。

    没有密钥、维数或批大小不合规定时抛出 RagLessonsError；服务出错时抛出 EmbeddingServiceError。
    """

    provider = "智谱"
    sdk = "zhipuai", "ZhipuAI"
    key_name = "ZHIPUAI_API_KEY"

    def __init__(
        self,
        model: str = "embedding-3",
        dimensions: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        batch_size: int | None = None,
        timeout: float = 30.0,
        retry: Retry | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        limits = ZHIPU_MODELS.get(model) if isinstance(model, str) else None
        if limits is None:
            raise RagLessonsError(
                f"不认识智谱的嵌入模型 {model!r}；可选 {'、'.join(ZHIPU_MODELS)}。别的模型请用 OpenAIEmbedder，它们的接口兼容。"
            )
        dim = limits.default if dimensions is None else dimensions
        if isinstance(dim, bool) or not isinstance(dim, int) or dim not in limits.dims:
            raise RagLessonsError(f"{model} 的维数只能是 {'、'.join(map(str, limits.dims))}，收到 {dimensions!r}。")
        batch_size = limits.batch if batch_size is None else batch_size
        base_url = base_url or get_setting("ZHIPUAI_BASE_URL")
        super().__init__(model, base_url, dim, dim, api_key, batch_size, timeout, retry, limits.tokens, count_tokens)
        if batch_size > limits.batch:
            raise RagLessonsError(f"{model} 一次最多 {limits.batch} 条，收到 batch_size={batch_size}。")
        self.space = f"zhipu/{model}/{dim}/none/v1"

    def _request(self, client: Any, texts: list[str]) -> Any:
        # embedding-2 不接受 dimensions
        extra = {"dimensions": self._requested_dim} if len(ZHIPU_MODELS[self.model].dims) > 1 else {}
        return client.embeddings.create(model=self.model, input=texts, **extra)


# --- OpenAI 兼容 --------------------------------------------------------------------------------------

class OpenAIEmbedder(_ServiceEmbedder):
    """OpenAI 兼容的嵌入服务：OpenAI、Ollama、vLLM、LM Studio、各家云。

    空间的名字里有服务地址：同名的模型在两处可能是不同的权重或量化，不能默认通用。
    换了端口或域名、而你确定是同一个模型时，两次都写同一个 ``service=`` 名字，缓存和索引就能接着用。

    参数
    ----
    model : 模型名，例如 ``"bge-m3"``。
    base_url : 服务地址，例如 ``"http://127.0.0.1:11434/v1"``；不写就取 OPENAI_BASE_URL，再没有就是 OpenAI。
    api_key : 密钥；不写就取 OPENAI_API_KEY。给了 base_url 时可以没有（本机的服务多半不要）。
    dim : 向服务要的维数；不写就用模型自己的，收到第一批才知道，在那之前 ``.dim`` 是 0。
    query_prefix, document_prefix : 加在问题、文档前面的话，例如 e5 要 ``"query: "`` 与 ``"passage: "``。
    batch_size : 一次送几条，默认 64；有的服务只收 10 条。
    timeout, retry : 同 ZhipuEmbedder。
    max_tokens : 每条的上限；不写就不检查（各家模型不同）。
    count_tokens : 文字 → token 数的函数；不写就用 estimate_tokens 估。
    service : 在空间名里代替服务地址的名字。

    没有装 ``openai``、没有密钥时抛出 RagLessonsError；服务出错时抛出 EmbeddingServiceError。
    """

    provider = "OpenAI 兼容服务"
    sdk = "openai", "OpenAI"
    key_name = "OPENAI_API_KEY"

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        dim: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        batch_size: int = 64,
        timeout: float = 60.0,
        retry: Retry | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
        service: str | None = None,
    ) -> None:
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
            raise RagLessonsError(f"dim 要是正整数，收到 {dim!r}；不确定就不写。")
        if not isinstance(model, str) or is_blank(model):
            raise RagLessonsError(f"model 要是模型名，收到 {model!r}；例如 \"bge-m3\"。")
        _check_prefixes(query_prefix, document_prefix)
        base_url = base_url or get_setting("OPENAI_BASE_URL")
        self.key_optional = base_url is not None
        self.query_prefix = query_prefix
        self.document_prefix = document_prefix
        super().__init__(model, base_url, dim or 0, dim, api_key, batch_size, timeout, retry, max_tokens, count_tokens)
        where = quote(service or _place(self.base_url), safe=":")
        prefix = _prefix_name(query_prefix, document_prefix)
        self.space = f"openai/{where}/{quote(model, safe=':')}/{dim or 'default'}/{prefix}/v1"
        self._load_sdk()

    def _request(self, client: Any, texts: list[str]) -> Any:
        extra = {"dimensions": self._requested_dim} if self._requested_dim else {}
        # 明说要 float：SDK 默认要 base64，有些兼容服务不会
        return client.embeddings.create(model=self.model, input=texts, encoding_format="float", **extra)


def _place(base_url: str | None) -> str:
    """服务地址 → 空间名里的一段：去掉协议、用户名密码、参数和末尾的斜杠。

    >>> _place("http://me:secret@LOCALHOST:11434/v1/"), _place(None)
    ('localhost:11434/v1', 'api.openai.com/v1')
    """
    parts = urlsplit(base_url or "https://api.openai.com/v1")
    port = f":{parts.port}" if parts.port and parts.port != {"http": 80, "https": 443}.get(parts.scheme) else ""
    return f"{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


# --- 别的库里的模型 -----------------------------------------------------------------------------------

class EncoderEmbedder(_BatchEmbedder):
    """任何有 ``.encode(list[str])`` 的模型：sentence-transformers、FlagEmbedding 的 bge-m3 等。

    它返回 numpy、torch 张量或列表都可以；没有归一的会归一。

    参数
    ----
    model : 有 ``.encode`` 的对象。
    space : 空间的名字，由你来起，写明提供者、模型和版本，例如 ``"st/bge-m3/1024/none/v1"``。
        有前缀时会在后面接上前缀的摘要，换了前缀就是另一个空间。
    query_prefix, document_prefix : 加在问题、文档前面的话。
    batch_size : 一次交给模型几条，默认 256；算好一批存一批。

    ``.dim`` 在模型自己不说时先是 0，算出第一批才知道。

    >>> class Model:
    ...     def encode(self, texts):
    ...         return [[len(t), 3.0] for t in texts]
    >>> EncoderEmbedder(Model(), "demo/length/2/none/v1").embed_query("四个字啊")
    array([0.8, 0.6], dtype=float32)
    """

    def __init__(
        self,
        model: Any,
        space: str,
        query_prefix: str = "",
        document_prefix: str = "",
        batch_size: int = 256,
    ) -> None:
        if not callable(getattr(model, "encode", None)):
            raise RagLessonsError(f"{type(model).__name__} 没有 encode 方法；请传入 sentence-transformers 一类的模型。")
        if not isinstance(space, str) or not space.strip():
            raise RagLessonsError("space 要是非空的字符串，例如 \"st/bge-m3/1024/none/v1\"。")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise RagLessonsError(f"batch_size 要是至少为 1 的整数，收到 {batch_size!r}。")
        _check_prefixes(query_prefix, document_prefix)
        self.model = model
        prefix = _prefix_name(query_prefix, document_prefix)
        self.space = space if prefix == "none" else f"{space}/{prefix}"
        self.query_prefix = query_prefix
        self.document_prefix = document_prefix
        self.batch_size = batch_size
        self.dim = self._known_dim()

    def _known_dim(self) -> int:
        for name in ("get_embedding_dimension", "get_sentence_embedding_dimension"):
            method = getattr(self.model, name, None)
            if callable(method):
                dim = method()
                return dim if isinstance(dim, int) else 0
        return 0

    @contextmanager
    def _session(self) -> Iterator[Callable[[list[str]], object]]:
        yield lambda texts: _to_numpy(self.model.encode(texts))


def _to_numpy(value: Any) -> Any:
    """张量（在显卡上、带梯度、bfloat16）、张量的列表、bge-m3 的字典 → numpy 能接的东西。"""
    if isinstance(value, dict) and "dense_vecs" in value:
        value = value["dense_vecs"]
    if hasattr(value, "detach"):
        return value.detach().cpu().float().numpy()
    if isinstance(value, list | tuple):
        return [_to_numpy(item) for item in value]
    return value
