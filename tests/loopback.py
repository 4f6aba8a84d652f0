"""回环地址上的嵌入与对话服务：说智谱、OpenAI、Anthropic 的线上格式，记下每个请求，按吩咐出各种差错。

真的 HTTP 服务器，真的 SDK 来连；只是不出这台机器。

    with Loopback() as server:
        ZhipuEmbedder(api_key=KEY, base_url=server.zhipu)
        server.next("429:1302", "429:1302")     # 接下来两次限流，之后正常
        server.always("500")                    # 从此一直出错
        server.say("安全阀在 config.py [1]")     # 对话服务接下来答什么；不吩咐就复述最后一条消息
        server.call(("search", {"query": "安全阀"}))     # 接下来要用工具
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
ANTHROPIC_PATH = "/v1/messages"
ZHIPU_DIMS = {256, 512, 1024, 2048}
# 对话的三个地址，和各家对停下的原因的说法
DIALECTS = {
    ZHIPU_PATH + "/chat/completions": {"tools": "tool_calls"},
    OPENAI_PATH + "/chat/completions": {"tools": "tool_calls", "sensitive": "content_filter"},
    ANTHROPIC_PATH: {"tools": "tool_use", "stop": "end_turn", "length": "max_tokens", "sensitive": "refusal"},
}

# 智谱文档里的原话（有删节）
MESSAGES = {
    "1000": "身份验证失败",
    "1002": "Authentication Token非法，请确认Authentication Token正确传递",
    "1113": "您的账户已欠费，请充值后重试",
    "1211": "模型不存在，请检查模型代码",
    "1214": "input 参数非法。请检查文档",
    "1261": "Prompt 超长",
    "1301": "系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语",
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
        self.answers = []
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
    def anthropic(self):
        return f"http://127.0.0.1:{self.port}"

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

    def say(self, *texts):
        """对话服务接下来的几次各答什么。"""
        self.answers += [(text, ()) for text in texts]

    def call(self, *calls, text=""):
        """接下来的一次用这几个工具；参数写成字符串就原样送出（可以是坏的 JSON）。"""
        self.answers.append((text, calls))

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
        known = [ZHIPU_PATH + "/embeddings", OPENAI_PATH + "/embeddings", *DIALECTS]
        if self.path not in known:
            return self.error(404, None, "Not Found")
        if server.key is not None and self.shown_key() != server.key:
            return self.error(401, "1002", f"{MESSAGES['1002']} {self.shown_key()}")
        return self.behave(behaviour, body)

    def shown_key(self):
        """客户端出示的密钥。"""
        return self.headers.get("X-Api-Key") or (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def behave(self, behaviour, body):
        """behaviour 的写法："ok"、一种差错的名字、"状态码" 或 "状态码:业务码"，或 (状态码, 头, 正文)。"""
        if isinstance(behaviour, tuple):
            status, headers, text = behaviour
            return self.send(status, text.encode("utf-8"), **headers)
        if behaviour[0].isdigit():
            status, _, code = behaviour.partition(":")
            # 坏服务会把收到的密钥写进报错里
            said = f"{MESSAGES.get(code, 'error')} (Authorization: Bearer {self.shown_key()})"
            return self.error(int(status), code or None, said)
        if behaviour.startswith("slow"):
            self.loopback.closing.wait(float(behaviour.partition(":")[2] or 5))
            behaviour = "ok"
        if behaviour == "cut":                  # 一个字节都不回，直接断开（RST）
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return self.connection.close()
        refusal = self.refuse_chat(body) if self.path in DIALECTS else self.refuse(body)
        if refusal:
            return self.error(400, "1214" if self.path.startswith(ZHIPU_PATH) else None, refusal)
        if self.path in DIALECTS and body.get("stream"):
            return self.talk(behaviour, body)
        text = json.dumps(self.answer(behaviour, body) if self.path in DIALECTS else self.reply(behaviour, body))
        if behaviour == "html":
            return self.send(200, b"<html>502 Bad Gateway</html>", content_type="text/html")
        if behaviour == "bad_json":
            text = text[: len(text) // 2]
        if behaviour == "cut_body":             # 说好的长度没有发完
            self.send(200, text.encode("utf-8")[:100], length=len(text))
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self.send(200, text.encode("utf-8"))

    def refuse(self, body):
        texts = body["input"]
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t.strip() for t in texts):
            return "input 不能为空"
        limit = self.loopback.limit
        if limit is not None and len(texts) > limit:
            return f"Value error, batch size is invalid, it should not be larger than {limit}.: input.contents"
        if body["model"] == "embedding-3" and body.get("dimensions", 2048) not in ZHIPU_DIMS:
            return "dimensions 参数非法。请检查文档"
        return None

    def reply(self, behaviour, body):
        texts, dim = body["input"], body.get("dimensions") or self.loopback.dim
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

    # 对话 -----------------------------------------------------------------------------------------

    def refuse_chat(self, body):
        """各家在文档里写明不收的写法。"""
        messages, model = body["messages"], body["model"]
        if self.path == ANTHROPIC_PATH:
            if "max_tokens" not in body:
                return "max_tokens: Field required"
            if any(m["role"] not in ("user", "assistant") for m in messages) or messages[0]["role"] != "user":
                return "messages: roles must be user or assistant, starting with user"
            if "haiku-5-5" in model and "temperature" in body:
                return "temperature is not supported for this model"
            return None
        if model.startswith("gpt-6") and body.get("tools") and body.get("reasoning_effort") != "none":
            return "Function tools with reasoning_effort are not supported; set reasoning_effort to 'none'."
        if model.startswith("gpt-6") and "max_tokens" in body:
            return "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        asked = [call["id"] for m in messages for call in m.get("tool_calls", [])]
        if asked != [m["tool_call_id"] for m in messages if m["role"] == "tool"]:
            return "messages: every tool_call needs one tool message"
        return None

    def spoken(self, behaviour, body):
        """（文字, 工具调用, 停下的原因, 输入 token 数, 输出 token 数）；token 按字符数算。"""
        server, dialect = self.loopback, DIALECTS[self.path]
        last = body["messages"][-1]["content"]
        last = last if isinstance(last, str) else "".join(b.get("text") or b.get("content") or "" for b in last)
        with server._lock:
            text, calls = server.answers.pop(0) if server.answers else (f"收到：{last}", ())
        reason = "tools" if calls else "stop"
        if behaviour == "empty":
            text, calls = "", ()
        elif behaviour in ("length", "sensitive", "network_error"):
            reason = behaviour
        prompt = len(json.dumps(body["messages"], ensure_ascii=False)) + len(body.get("system") or "")
        return text, calls, dialect.get(reason, reason), prompt, len(text)

    def answer(self, behaviour, body):
        """一次说完的回答。"""
        text, calls, reason, prompt, completion = self.spoken(behaviour, body)
        raws = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False) for _, raw in calls]
        if self.path == ANTHROPIC_PATH:
            content = [{"type": "thinking", "thinking": "", "signature": "x"}]
            content += [{"type": "text", "text": text}] if text else []
            content += [{"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": raw} for i, (name, raw) in enumerate(calls)]
            reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
                     "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": prompt, "output_tokens": completion}}
            if behaviour in ("no_choices", "no_message"):
                del reply["content"]
            return reply
        message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": f"call_{i}", "type": "function", "index": i, "function": {"name": name, "arguments": raw}}
                for i, ((name, _), raw) in enumerate(zip(calls, raws, strict=True))]
        reply = {"id": "chat_1", "object": "chat.completion", "created": 1, "model": body["model"],
                 "choices": [{"index": 0, "finish_reason": reason, "message": message}],
                 "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}
        if behaviour == "no_choices":
            reply["choices"] = []
        elif behaviour == "no_message":
            reply = {"error": {"message": "upstream is down"}}
        elif behaviour == "no_usage":
            del reply["usage"]
        return reply

    def talk(self, behaviour, body):
        """分段的回答（SSE）：两个字一段。"""
        if behaviour in ("html", "bad_json"):
            return self.send(200, b"<html>502 Bad Gateway</html>", content_type="text/html")
        text, _, reason, prompt, completion = self.spoken(behaviour, body)
        pieces = [text[i:i + 2] for i in range(0, len(text), 2)]
        kind, _, seconds = behaviour.partition(":")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding" if kind != "end_early" else "Connection", "chunked" if kind != "end_early" else "close")
        self.end_headers()
        self.close_connection = kind in ("end_early", "cut_stream", "error_stream", "bad_stream")
        self.raw = kind == "end_early"
        anthropic = self.path == ANTHROPIC_PATH
        if anthropic:
            message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
                       "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": prompt, "output_tokens": 1}}
            self.event({"type": "message_start", "message": message})
            self.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for number, piece in enumerate(pieces):
            if number == 2:                     # 差错都出在两段之后
                if kind == "cut_stream":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return self.connection.close()
                if kind == "end_early":
                    return None
                if kind == "stall":
                    self.loopback.closing.wait(float(seconds))
                if kind == "error_stream":
                    error = {"code": "1305", "type": "overloaded_error", "message": f"busy {self.shown_key()}"}
                    return self.event({"type": "error", "error": {k: v for k, v in error.items() if not anthropic or k != "code"}})
                if kind == "bad_stream":
                    return self.event(None)
            if kind == "drip":
                self.loopback.closing.wait(float(seconds))
            if anthropic:
                self.event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
            else:
                self.event(self.chunk(body, {"role": "assistant", "content": piece}, None))
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        if anthropic:
            self.event({"type": "content_block_stop", "index": 0})
            self.event({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": completion}})
            self.event({"type": "message_stop"})
        elif self.path.startswith(ZHIPU_PATH):  # 智谱的用量在最后一段里，OpenAI 的另起一段，要了才有
            self.event({**self.chunk(body, {"role": "assistant", "content": ""}, reason), "usage": usage})
            self.write(b"data: [DONE]\n\n")
        else:
            self.event(self.chunk(body, {}, reason))
            if (body.get("stream_options") or {}).get("include_usage"):
                self.event({**self.chunk(body, {}, None), "choices": [], "usage": usage})
            self.write(b"data: [DONE]\n\n")
        return None if self.raw else self.wfile.write(b"0\r\n\r\n")

    def chunk(self, body, delta, reason):
        return {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    def event(self, data):
        name = f"event: {data['type']}\n" if data and self.path == ANTHROPIC_PATH else ""
        name = name or ("event: message_delta\n" if self.path == ANTHROPIC_PATH else "")
        self.write(f"{name}data: {'{oops' if data is None else json.dumps(data, ensure_ascii=False)}\n\n".encode())

    def write(self, data):
        self.wfile.write(data if self.raw else b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    # 收发 -----------------------------------------------------------------------------------------

    def error(self, status, code, message):
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
        if self.path == ANTHROPIC_PATH:
            body = {"type": "error", "error": {"type": code or kinds.get(status, "invalid_request_error"), "message": message}}
        else:
            body = {"error": {"code": code, "message": message}}
        self.send(status, json.dumps(body).encode("utf-8"))

    def send(self, status, body, content_type="application/json", length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
