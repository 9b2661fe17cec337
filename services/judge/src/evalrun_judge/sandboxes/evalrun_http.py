"""Calls an `evalrun-sandbox` over HTTP: persistent connections, MessagePack both ways."""

from types import TracebackType
from typing import Self

import msgspec

from evalrun_executor.api import (
    CONTENT_TYPE,
    VERSION_REFUSED,
    WIRE_VERSION,
    Busy,
    Refused,
    RunReply,
    RunRequest,
    SandboxInfo,
    list_spoken_versions,
)
from evalrun_executor.batch import MAX_OUTPUT_BYTES
from evalrun_executor.contained.supervision import KEPT_STDERR
from evalrun_executor.timeouts import max_reply_seconds
from evalrun_judge.sandboxes import (
    Backend,
    RunRefusedError,
    SandboxBusyError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnreachableError,
    SandboxVersionError,
)
from evalrun_judge.sandboxes.http_answer import BadAnswerError
from evalrun_judge.sandboxes.http_calls import HttpCalls
from evalrun_judge.sandboxes.remote_inputs import SandboxInputs
from evalrun_runtime.connections.bearer_tokens import BearerTokens, authorization
from evalrun_runtime.connections.tls_files import TlsSource
from evalrun_runtime.connections.tls_remedies import add_remedy
from evalrun_runtime.deadlines import deadline_headers
from evalrun_runtime.tracing import trace_headers

CONNECT_SECONDS = 5.0

DESCRIBE_SECONDS = 5.0

SPARE_BYTES = 4 << 20
"""Maximum size of a reply without the programs' output: a compiler's messages (1 MiB at most), numbers, a proxy's page.
"""

RUN_BYTES = 2048
"""Maximum size of a run in a reply, without its output."""

COMPILE_SECONDS = 70.0
"""Maximum wall seconds of compiling: twice the compiler's 30 CPU seconds, and a margin."""

WAIT_SECONDS = 60.0
"""Seconds that a sandbox may take beyond its programs' own limits: queueing, a repeated run, the reply's transfer."""


class EvalrunSandbox:
    """Calls an `evalrun-sandbox`.

    A request whose caller is cancelled closes its connection, which is how the sandbox learns to stop the program.
    """

    def __init__(
        self,
        url: str,
        tokens: BearerTokens | None = None,
        *,
        tls: TlsSource | None = None,
        server_name: str | None = None,
        spare_seconds: float = WAIT_SECONDS,
        wire_version: int = WIRE_VERSION,
    ) -> None:
        """Create the client; connections open with the first call, inside the running loop.

        Args:
            url: `http://host:port`.
            tokens: the first is sent as a bearer token.
            tls: client certificate and authorities for an https sandbox.
            server_name: name that the sandbox's certificate must have; None: the URL's host.
            spare_seconds: seconds beyond the programs' own limits after which the sandbox counts as hung.
            wire_version: newest version of the batch API that this gateway speaks.
        """
        self.address = url.rstrip("/")
        self._tokens = tokens
        self._calls = HttpCalls(
            self.address,
            {"Content-Type": CONTENT_TYPE},
            connect_seconds=CONNECT_SECONDS,
            tls=tls,
            server_name=server_name,
        )
        self._spare_seconds = spare_seconds
        self._wire_version = wire_version
        self._common_version = list_spoken_versions(wire_version)[0]
        """Version in which requests are sent: the newest that both speak, once the sandbox has described itself."""
        self._kept = SandboxInputs()
        self._encoder = msgspec.msgpack.Encoder()
        self._reply = msgspec.msgpack.Decoder(RunReply)
        self._busy = msgspec.msgpack.Decoder(Busy)
        self._refused = msgspec.msgpack.Decoder(Refused)
        self._info = msgspec.json.Decoder(SandboxInfo)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, request: RunRequest) -> RunReply:
        """Run a program on its inputs; see `Sandbox.run`."""
        status, body = await self._sent(request)
        try:
            match status:
                case 200:
                    return self._check_reply(self._reply.decode(body), request)
                case 429:
                    busy = self._busy.decode(body)
                    raise SandboxBusyError(
                        f"{self.address}: every slot is taken", busy.retry_after_ms / 1000, busy.free
                    )
                case _ if status == VERSION_REFUSED:
                    raise SandboxVersionError(self._describe_difference(self._refused.decode(body).message))
                case 400:
                    raise RunRefusedError(self._refused.decode(body).message)
        # DecodeError also covers valid MessagePack of another type.
        except msgspec.DecodeError as error:
            raise SandboxFailedError(f"{self.address}: status {status}, and no answer: {error}") from error
        raise SandboxFailedError(f"{self.address}: status {status}: {body[:200].decode('utf-8', 'replace')}")

    async def describe(self) -> Backend:
        """Return the capabilities of the sandbox; see `Sandbox.describe`."""
        status, body = await self._call("GET", "/v1/info", b"", max_seconds=DESCRIBE_SECONDS, max_bytes=SPARE_BYTES)
        if status != 200:
            raise SandboxFailedError(f"{self.address}: /v1/info gave status {status}")
        try:
            info = self._info.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SandboxFailedError(f"{self.address}: no evalrun-sandbox answers /v1/info: {error}") from error
        version = info.common_version(self._wire_version)
        if version is None:
            spoken = " and ".join(map(str, info.wire_versions or [info.calls_version]))
            raise SandboxVersionError(
                self._describe_difference(f"evalrun-sandbox {info.version} speaks wire versions {spoken}")
            )
        self._common_version = version
        self._kept.record_description(info)
        return Backend("evalrun", info)

    def _describe_difference(self, sandbox: str) -> str:
        spoken = " and ".join(map(str, list_spoken_versions(self._wire_version)))
        return (
            f"{self.address}: {sandbox}, this gateway {spoken}: run both from images of one release, or of two that "
            "share a version, and upgrade through every release between"
        )

    async def close(self) -> None:
        await self._calls.close()

    async def _sent(self, request: RunRequest) -> tuple[int, bytes]:
        """Send a request. Inputs go by digest first, and in full if the sandbox does not have them."""
        max_seconds, max_bytes = timeout_seconds(request) + self._spare_seconds, max_answer_bytes(request)
        form, path = self._kept.form(request), f"/v{self._common_version}/run"
        while True:
            status, body = await self._call(
                "POST", path, self._encoder.encode(form), max_seconds=max_seconds, max_bytes=max_bytes
            )
            again = self._kept.record_answer(form, request, status)
            if again is None:
                return status, body
            form = again

    async def _call(
        self, method: str, path: str, body: bytes, *, max_seconds: float, max_bytes: int
    ) -> tuple[int, bytes]:
        try:
            return await self._calls.call(
                method,
                path,
                body,
                max_seconds=max_seconds,
                max_bytes=max_bytes,
                headers=authorization(self._tokens) | trace_headers() | deadline_headers(),
            )
        except TimeoutError as error:
            raise SandboxTimeoutError(f"{self.address}: no answer in {max_seconds:.1f} s") from error
        except OSError as error:
            cause = str(error) or type(error).__name__
            said = add_remedy(cause) if self.address.startswith("https:") else cause
            raise SandboxUnreachableError(f"{self.address}: {said}") from error
        except BadAnswerError as error:
            raise SandboxFailedError(f"{self.address}: no answer: {error}") from error

    def _check_reply(self, reply: RunReply, request: RunRequest) -> RunReply:
        if len(reply.runs) != len(request.inputs):
            raise SandboxFailedError(
                f"{self.address}: {len(reply.runs)} runs for {len(request.inputs)} inputs: no answer to this request"
            )
        return reply


def timeout_seconds(request: RunRequest) -> float:
    """Return the wall seconds that a program may take by its own limits.

    A run that ends near the limit is repeated alone, with a longer limit on a slow machine.
    """
    return COMPILE_SECONDS + max_reply_seconds(request.limits.time_seconds, len(request.inputs))


def max_answer_bytes(request: RunRequest) -> int:
    """Return the maximum bytes of the reply to this request: a sandbox runs hostile programs.

    Each run has stdout within the output limit, the end of stderr, and a margin.
    """
    printed = min(len(request.inputs) * 1024 * request.limits.output_kib, MAX_OUTPUT_BYTES)
    told = KEPT_STDERR if request.mode == "stdio" else 1024 * request.limits.output_kib
    return SPARE_BYTES + printed + len(request.inputs) * (told + RUN_BYTES)
