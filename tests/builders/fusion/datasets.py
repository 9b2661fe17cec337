"""A double of the dataset side of the stock SandboxFusion server: what its `/get_prompts` answers."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Prompts = Mapping[str, Sequence[Mapping[str, Any]]]
"""By the server's name of the dataset, or by that name and a split: `code_contests/valid`."""


@contextmanager
def dataset_server(held: Prompts, asked_for: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """Serve prompts until the end of the block; 500 for a dataset that is not held, as the real one answers.

    Args:
        held: what it serves.
        asked_for: takes the requests.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if asked_for is not None:
                asked_for.append(asked)
            split = asked["config"].get("extra", {}).get("split", "")
            prompts = held.get(f"{asked['dataset']}/{split}", held.get(asked["dataset"]))
            known = self.path == "/get_prompts" and prompts is not None
            body = json.dumps(prompts if known else {"detail": "no such table"}).encode()
            self.send_response(200 if known else 500)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
