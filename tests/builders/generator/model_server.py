"""A server with the OpenAI API that answers as a test says, right or wrong, in a thread of this process."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "served"


@dataclass
class Reply:
    """What a request gets."""

    status: int = 200
    body: str | Mapping[str, Any] = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


def completion(content: str | None, finish_reason: str = "stop") -> Reply:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    return Reply(body={"model": MODEL, "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})


@dataclass
class ModelServer:
    """Its replies may be changed while it serves."""

    reply: Reply
    models: Reply = field(default_factory=lambda: Reply(body={"data": [{"id": MODEL}]}))
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def model_server(reply: Reply, models: Reply | None = None) -> Iterator[ModelServer]:
    served = ModelServer(reply) if models is None else ModelServer(reply, models)

    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(served.models)

        def do_POST(self) -> None:
            served.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send(served.reply)

        def _send(self, reply: Reply) -> None:
            closing.wait(reply.delay_seconds)
            body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
