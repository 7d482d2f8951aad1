"""A stand-in for an OpenAI-compatible server: real sockets, and replies as bad as a test wants them."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny-model"


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    fault: str = ""  # hang, drip, cut, reset


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def user(self) -> str:
        return self.body["messages"][1]["content"]

    @property
    def data_line(self) -> str:
        return self.user.split("\n")[1]


def answer(content: Any, finish: str = "stop", **message: Any) -> Reply:
    """A chat completion whose text is `content`, dumped where it is no text."""
    text = content if isinstance(content, str | None) else json.dumps(content)
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text} | message}
    completion = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
    return Reply(body=json.dumps(completion).encode())


def error(status: int, message: str = "no", headers: dict[str, str] | None = None, **more: Any) -> Reply:
    return Reply(status, json.dumps({"error": {"message": message} | more}).encode(), headers or {})


Script = Callable[[Request], Reply]


class JudgeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script: Script, port: int = 0, models: tuple[str, ...] = (MODEL,)) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script, self.models = script, models
        self.requests: list[Request] = []  # chat completions only
        self.model_requests = 0
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.under_way = self.most_under_way = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that give up are part of the tests


class Handler(BaseHTTPRequestHandler):
    server: JudgeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.model_requests += 1
        data = [{"id": name, "object": "model"} for name in self.server.models]
        self.reply(Reply(body=json.dumps({"object": "list", "data": data}).encode()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        with self.server.lock:
            self.server.requests.append(request)
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
        try:
            reply = self.server.script(request)
        finally:
            with self.server.lock:
                self.server.under_way -= 1
        self.reply(reply)

    def reply(self, reply: Reply) -> None:
        if reply.fault == "hang":
            self.server.over.wait(30)
        if reply.fault in ("hang", "reset"):
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in ({"Content-Type": "application/json"} | reply.headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.fault == "cut":
            self.wfile.write(reply.body[: len(reply.body) // 2])
            self.close_connection = True
        elif reply.fault == "drip":
            for byte in reply.body:
                if self.server.over.is_set():
                    break
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.wfile.write(reply.body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serve(script: Script | list[Reply] | Reply, **options: Any) -> Iterator[JudgeServer]:
    """A running server. A list of replies is given in order, the last one from then on."""
    if isinstance(script, Reply):
        script = [script]
    if isinstance(script, list):
        replies, taken = list(script), threading.Lock()

        def script(request: Request) -> Reply:
            with taken:
                return replies.pop(0) if len(replies) > 1 else replies[0]

    server = JudgeServer(script, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
