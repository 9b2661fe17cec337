"""A double of Google Cloud Storage, for the real gcsfs: what it asks of the JSON API when it uploads small files.

Nobody but Google serves the real thing. The paths, fields and errors are those of
https://cloud.google.com/storage/docs/json_api/v1, as gcsfs 2026.10 uses them. Resumable uploads, which gcsfs begins at
5 MiB, and versions are left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

TOKEN = "first-token"


@dataclass(frozen=True)
class Refusal:
    """An answer instead of what was asked for, as Google words it."""

    status: int
    message: str


EXPIRED = Refusal(401, "Request had invalid authentication credentials. Expected OAuth 2 access token.")
OVER_QUOTA = Refusal(403, "The project exceeded its quota for total storage.")
NO_BILLING = Refusal(403, "The billing account for the owning project is disabled in state absent")
TOO_MANY = Refusal(429, "The object exceeded the rate limit for object mutation operations.")
NO_BUCKET = Refusal(404, "The specified bucket does not exist.")
NO_OBJECT = Refusal(404, "No such object")


@dataclass
class GcsDouble:
    """The service on loopback, with one bucket."""

    bucket: str = "results"
    objects: dict[str, bytes] = field(default_factory=dict)
    """By name, in the order in which they were written last."""
    refusal: Refusal | None = None
    """Of every upload."""
    busy: int = 0
    """Uploads that are still to be refused as too many."""
    cuts: int = 0
    """Uploads whose connection is still to be cut while they come in."""
    _url: str = ""
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_post("/token", self._token)
        application.router.add_post("/upload/storage/v1/b/{bucket}/o", self._upload)
        application.router.add_get("/storage/v1/b/{bucket}/o", self._list)
        application.router.add_get("/storage/v1/b/{bucket}/o/{name:.+}", self._describe)
        application.router.add_delete("/storage/v1/b/{bucket}/o/{name:.+}", self._delete)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def environment(self, directory: Path) -> dict[str, str]:
        """Return what a client needs: as a Secret of `output.credentialsSecretRef` holds it, and the double's address.

        Args:
            directory: where the key of a service account is written.
        """
        key = rsa.generate_private_key(65537, 2048)
        account = {
            "type": "service_account", "client_email": "evals@example.test", "project_id": "evals",
            "token_uri": f"{self._url}/token",
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        }  # fmt: skip
        file = directory / "account.json"
        file.write_text(json.dumps(account))
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(file),
            "STORAGE_EMULATOR_HOST": self._url,
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks for the bucket's kind by gRPC first
            "NO_GCE_CHECK": "true",
        }

    async def _token(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    async def _upload(self, request: web.Request) -> web.Response:
        if self.cuts and request.transport is not None:
            self.cuts -= 1
            await request.content.readany()
            request.transport.abort()
            return web.Response()
        body = await request.read()
        refusal = self._refused(request) or self.refusal
        if self.busy and refusal is None:
            self.busy -= 1
            refusal = TOO_MANY
        if refusal is not None:
            return _error(refusal)
        # The parts are divided by single line feeds, as gcsfs writes them.
        boundary = request.headers["Content-Type"].partition("boundary=")[2].strip('"').encode()
        described, _, data = body.split(b"\n\n", 1)[1].partition(b"\n--" + boundary + b"\n")
        name = json.loads(described)["name"]
        self.objects.pop(name, None)
        self.objects[name] = data.split(b"\n\n", 1)[1].removesuffix(b"\n--" + boundary + b"--")
        return web.json_response(self._described(name))

    async def _list(self, request: web.Request) -> web.Response:
        if refusal := self._refused(request):
            return _error(refusal)
        prefix = request.query.get("prefix", "")
        return web.json_response({"items": [self._described(name) for name in self.objects if name.startswith(prefix)]})

    async def _describe(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        refusal = self._refused(request) or (None if name in self.objects else NO_OBJECT)
        return web.json_response(self._described(name)) if refusal is None else _error(refusal)

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        refusal = self._refused(request) or (None if name in self.objects else NO_OBJECT)
        if refusal is not None:
            return _error(refusal)
        del self.objects[name]
        return web.Response(status=204)

    def _refused(self, request: web.Request) -> Refusal | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return EXPIRED
        return None if request.match_info["bucket"] == self.bucket else NO_BUCKET

    def _described(self, name: str) -> Mapping[str, Any]:
        return {"kind": "storage#object", "bucket": self.bucket, "name": name, "size": str(len(self.objects[name]))}


def _error(refusal: Refusal) -> web.Response:
    error = {"code": refusal.status, "message": refusal.message}
    return web.json_response({"error": error}, status=refusal.status)
