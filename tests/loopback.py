"""回环地址上的嵌入服务：说智谱与 OpenAI 的线上格式，记下每个请求，按吩咐出各种差错。

真的 HTTP 服务器，真的 SDK 来连；只是不出这台机器。

    with Loopback() as server:
        ZhipuEmbedder(api_key=KEY, base_url=server.zhipu)
        server.next("429:1302", "429:1302")     # 接下来两次限流，之后正常
        server.always("500")                    # 从此一直出错
"""

import contextlib
import hashlib
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

KEY = "0123456789abcdef0123456789abcdef.SecretPart9876"
ZHIPU_PATH, OPENAI_PATH = "/api/paas/v4", "/v1"
ZHIPU_DIMS = {256, 512, 1024, 2048}

# 智谱文档里的原话（有删节）
MESSAGES = {
    "1000": "身份验证失败",
    "1002": "Authentication Token非法，请确认Authentication Token正确传递",
    "1113": "您的账户已欠费，请充值后重试",
    "1211": "模型不存在，请检查模型代码",
    "1214": "input 参数非法。请检查文档",
    "1302": "您的账户已达到速率限制，请您控制请求频率",
    "1305": "该模型当前访问量过大，请您稍后再试",
}


def hashed_vectors(texts, dim):
    """每段文字一个确定的向量，长度不为 1：客户端要自己归一。"""
    rows = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "little")
        rows.append(np.random.default_rng(seed).standard_normal(dim).astype(np.float32))
    return np.array(rows)


def e5_vectors(texts, dim):
    """真的 e5 向量（384 维），后面补零到 dim：余弦不变。"""
    from rag_lessons.embedding.e5 import E5Embedder

    rows = E5Embedder().embed_documents(texts)
    return np.pad(rows, ((0, 0), (0, dim - rows.shape[1])))


def unit(vectors):
    """客户端应得到的东西。"""
    wide = np.asarray(vectors, dtype=np.float64)
    return (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Request:
    """收到的一个请求。"""

    path: str
    headers: dict
    body: dict
    at: float

    @property
    def texts(self):
        return self.body["input"]


class Loopback:
    """参数

    vectors : (文字列表, 维数) → 数组；默认 hashed_vectors。
    dim : 请求里没有写维数时用的。
    key : 只认这个密钥；None 表示不查。
    limit : 一次最多几条，超过就拒绝；None 表示按智谱的 64。
    """

    def __init__(self, vectors=hashed_vectors, dim=2048, key=KEY, limit=64):
        self.vectors, self.dim, self.key, self.limit = vectors, dim, key, limit
        self.requests = []
        self._queue = []
        self._forever = "ok"
        self._lock = threading.Lock()
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"loopback": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self):
        return self._server.server_address[1]

    @property
    def zhipu(self):
        return f"http://127.0.0.1:{self.port}{ZHIPU_PATH}"

    @property
    def openai(self):
        return f"http://127.0.0.1:{self.port}{OPENAI_PATH}"

    @property
    def sizes(self):
        """每个请求里的文字条数。"""
        return [len(r.texts) for r in self.requests]

    @property
    def waits(self):
        """相邻两个请求隔了几秒。"""
        return [b.at - a.at for a, b in zip(self.requests, self.requests[1:], strict=False)]

    def next(self, *behaviours):
        """接下来的几次各是什么表现；用完回到平常。"""
        self._queue += behaviours

    def always(self, behaviour):
        """平常的表现，"ok" 是正常。"""
        self._forever = behaviour

    def take(self, request):
        with self._lock:
            self.requests.append(request)
            return self._queue.pop(0) if self._queue else self._forever


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def log_message(self, *args):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):      # 客户端等不及，先走了
            super().handle()

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw)
        server = self.loopback
        behaviour = server.take(Request(self.path, dict(self.headers), body, time.monotonic()))
        if self.path not in (ZHIPU_PATH + "/embeddings", OPENAI_PATH + "/embeddings"):
            return self.error(404, None, "Not Found")
        if server.key is not None and self.headers.get("Authorization") != f"Bearer {server.key}":
            return self.error(401, "1002", f"{MESSAGES['1002']} {self.headers.get('Authorization')}")
        return self.behave(behaviour, body)

    def behave(self, behaviour, body):
        """behaviour 的写法："ok"、一种差错的名字、"状态码" 或 "状态码:业务码"，或 (状态码, 头, 正文)。"""
        if isinstance(behaviour, tuple):
            status, headers, text = behaviour
            return self.send(status, text.encode("utf-8"), **headers)
        if behaviour[0].isdigit():
            status, _, code = behaviour.partition(":")
            # 坏服务会把收到的密钥写进报错里
            said = f"{MESSAGES.get(code, 'error')} (Authorization: {self.headers.get('Authorization')})"
            return self.error(int(status), code or None, said)
        if behaviour.startswith("slow"):
            self.loopback.closing.wait(float(behaviour.partition(":")[2] or 5))
            behaviour = "ok"
        if behaviour == "cut":                  # 一个字节都不回，直接断开（RST）
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return self.connection.close()
        texts = body["input"]
        refusal = self.refuse(body, texts)
        if refusal:
            return self.error(400, "1214", refusal)
        dim = body.get("dimensions") or self.loopback.dim
        text = json.dumps(self.reply(behaviour, texts, dim, body))
        if behaviour == "html":
            return self.send(200, b"<html>502 Bad Gateway</html>", content_type="text/html")
        if behaviour == "bad_json":
            text = text[: len(text) // 2]
        if behaviour == "cut_body":             # 说好的长度没有发完
            self.send(200, text.encode("utf-8")[:100], length=len(text))
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self.send(200, text.encode("utf-8"))

    def refuse(self, body, texts):
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t.strip() for t in texts):
            return "input 不能为空"
        limit = self.loopback.limit
        if limit is not None and len(texts) > limit:
            return f"Value error, batch size is invalid, it should not be larger than {limit}.: input.contents"
        if body["model"] == "embedding-3" and body.get("dimensions", 2048) not in ZHIPU_DIMS:
            return "dimensions 参数非法。请检查文档"
        return None

    def reply(self, behaviour, texts, dim, body):
        if behaviour == "wrong_dim":
            dim += 1
        rows = np.asarray(self.loopback.vectors(texts, dim)).tolist()
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        last = data[-1]
        if behaviour == "short":
            data.pop()
        elif behaviour == "long":
            data.append({**last, "index": len(data)})
        elif behaviour == "reversed":
            data.reverse()
        elif behaviour == "duplicate_index":
            last["index"] = 0
        elif behaviour == "gap_index":
            last["index"] += 1
        elif behaviour == "no_index":
            del last["index"]
        elif behaviour == "nan":
            last["embedding"][0] = float("nan")
        elif behaviour == "infinite":
            last["embedding"][0] = float("inf")
        elif behaviour == "zero":
            last["embedding"] = [0.0] * dim
        elif behaviour == "ragged":
            last["embedding"].pop()
        elif behaviour == "null":
            last["embedding"] = None
        elif behaviour == "words":
            last["embedding"] = "not a vector"
        elif behaviour == "no_data":
            data = None
        size = sum(len(t) for t in texts)
        usage = {"prompt_tokens": size, "completion_tokens": 0, "total_tokens": size}
        return {"model": body["model"], "object": "list", "data": data, "usage": usage}

    def error(self, status, code, message):
        self.send(status, json.dumps({"error": {"code": code, "message": message}}).encode("utf-8"))

    def send(self, status, body, content_type="application/json", length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
