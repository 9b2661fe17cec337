"""A stand-in of WandB's API, as much of it as one run with a table needs: GraphQL, the file stream, uploads."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WandbServer:
    """What it was sent, by run id."""

    address: str = ""
    keys: set[str] = field(default_factory=set)
    """Authorization headers."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The variables of each run's first upsert, the later ones merged in."""
    opened: list[bool] = field(default_factory=list)
    """For each process that asked whether a run is there: whether it was."""
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    """By the path's last part."""
    tables: list[str] = field(default_factory=list)
    """Digest of each table that was sent."""
    finished: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    """Operations that it has no answer for."""

    def graphql(self, operation: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        run = variables.get("name") or variables.get("run") or ""
        match operation:
            case "RunResumeStatus":
                known = self.runs.get(run)
                self.opened.append(known is not None)
                return {
                    "model": {
                        "id": "P",
                        "name": "evals",
                        "entity": self._entity(),
                        "bucket": known and self._bucket(run),
                    }
                }
            case "UpsertBucket":
                inserted = run not in self.runs
                given = {key: value for key, value in variables.items() if value is not None}
                self.runs[run] = {**self.runs.get(run, {}), **given}
                bucket = {**self._bucket(run), "project": {"id": "P", "name": "evals", "entity": self._entity()}}
                return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
            case "Viewer":
                return {"viewer": {"id": "V", "entity": "team", "username": "u", "email": "", "flags": "{}",
                                   "teams": {"edges": []}}}  # fmt: skip
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.address}/upload/{name}"} for name in variables["files"]]
                return {"createRunFiles": {"runID": "B", "uploadHeaders": [], "files": files}}
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
            case "CreateArtifact":  # the table as it is known already: nothing to upload
                self.tables.append(variables["input"]["digest"])
                return {"createArtifact": {"artifact": {"id": "A", "state": "COMMITTED",
                                                        "artifactSequence": {"latestArtifact": None}}}}  # fmt: skip
            case "ArtifactType":
                return {"project": {"artifact": None}}
        self.unknown.append(f"{operation} {' '.join(query.split())} {variables}")
        return {}

    def stream(self, run: str, body: dict[str, Any]) -> None:
        for name, part in body.get("files", {}).items():
            if name == "wandb-history.jsonl":
                self.history.setdefault(run, []).extend(json.loads(line) for line in part["content"])
        if body.get("complete"):
            self.finished.add(run)

    def _entity(self) -> dict[str, str]:
        return {"id": "E", "name": "team"}

    def _bucket(self, run: str) -> dict[str, Any]:
        rows = self.history.get(run, [])
        last = json.dumps(rows[-1]) if rows else "{}"  # a resumed run goes on after its step
        return {
            "id": "B", "name": run, "displayName": self.runs[run].get("displayName"), "description": "",
            "config": self.runs[run].get("config", "{}"), "sweepName": None, "tags": [], "notes": None,
            "summaryMetrics": last, "logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]",
            "historyTail": json.dumps([last] if rows else []), "historyLineCount": len(rows),
            "wandbConfig": json.dumps({"t": 1}),
        }  # fmt: skip


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    kept = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            del format, args

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            reply: dict[str, Any] = {}
            if key := self.headers.get("Authorization"):
                kept.keys.add(key)
            if self.path == "/graphql":
                asked = json.loads(body)
                name = asked.get("operationName") or asked["query"].split("(")[0].split()[-1]
                reply = {"data": kept.graphql(name, asked["query"], asked.get("variables") or {})}
            elif self.path.endswith("/file_stream"):
                kept.stream(self.path.split("/")[-2], json.loads(body))
            else:
                kept.uploads[self.path.rpartition("/")[2]] = body
            content = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the base's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
