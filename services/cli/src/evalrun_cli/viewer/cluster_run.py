"""A run of a cluster as the page reads it: over a port-forward to its aggregator, and from its outputs after its end.

Every request to the cluster runs in the server's event loop. The page's requests are answered in threads, which wait
for that loop.
"""

import asyncio
import json
import logging
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

import aiohttp

from evalrun_aggregator.ledger.entries import Recorded
from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.cluster.commands import bring_to, find_run, ready_aggregator
from evalrun_cli.cluster.run_view import get_status, is_complete, reason_line
from evalrun_cli.viewer.live_index import TEXTS, LiveIndex
from evalrun_cli.viewer.prompt_file import PROMPT_INDEX, PROMPTS, write_prompt_lines
from evalrun_cli.viewer.run_catalog import open_inside
from evalrun_cli.viewer.run_view import SEGMENT_FILE, RunView, collect_shared_facts
from evalrun_cluster.errors import UnreachableError
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cluster.port_forward import PortForward
    from evalrun_cluster.runs import ClusterRuns

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

REQUEST_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 2.0
"""Minimum seconds between two requests for the EvalRun itself; its samples are requested more often."""
FETCH_AGAIN_SECONDS: Final = 15.0
"""Minimum seconds between two attempts to fetch outputs or prompts."""
ROWS_AT_ONCE: Final = 256
MAX_ANSWER_BYTES: Final = 64 << 20
FORBIDDEN: Final = 403


class AggregatorLink:
    """Connections to the port of a run's aggregator that shows samples. Used only in the server's event loop."""

    def __init__(self, runs: "ClusterRuns", name: str, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._runs = runs
        self._max_answer_bytes = max_answer_bytes
        self._name = name
        self._opened = AsyncExitStack()
        self._pod = ""
        self._forward: PortForward | None = None
        self._session: aiohttp.ClientSession | None = None

    async def get(self, run: EvalRun, path: str) -> bytes:
        """Return the reply of the run's aggregator.

        Raises:
            UnreachableError: there is no aggregator now, it shows no samples, or the connection is lost.
            BadInputError: the user may not connect to the aggregator.
        """
        session, forward = await self._connect(run)
        try:
            async with session.get(f"http://aggregator/{path}") as response:
                content = await self._read_bounded(response)
                if response.status != 200:
                    raise UnreachableError(f"pod {self._pod} answers {response.status}: {content[:500].decode()}")
                return content
        except (aiohttp.ClientError, TimeoutError) as error:
            refusal = forward.refused
            if refusal is not None and refusal.code == FORBIDDEN:
                raise BadInputError(
                    f"pod {self._pod}: you may not connect to it: you need the right `create` on pods/portforward in "
                    f"namespace {self._runs.namespace}"
                ) from error
            if refusal is not None and refusal.code == 0:
                raise UnreachableError(
                    f"pod {self._pod} shows no samples on port {names.SAMPLES_PORT}: its image is older than this "
                    f"command: use evalrun results {self._name} once it has ended"
                ) from error
            raise UnreachableError(f"the connection to pod {self._pod} is lost") from error

    async def _read_bounded(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > self._max_answer_bytes:
                raise UnreachableError(f"pod {self._pod} answers with more than {self._max_answer_bytes} bytes")
        return bytes(content)

    async def _connect(self, run: EvalRun) -> tuple[aiohttp.ClientSession, "PortForward"]:
        pod = await ready_aggregator(self._runs, run)
        if pod is None:
            phase = get_status(run).phase or "Pending"
            raise UnreachableError(f"EvalRun {self._name} has no aggregator now: it is {phase}: {reason_line(run)}")
        if self._session is None or self._forward is None or pod.name != self._pod:
            await self.close()
            self._forward = self._runs.forward(pod, names.SAMPLES_PORT)
            path = await self._opened.enter_async_context(self._forward.open_socket())
            timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
            connector = aiohttp.UnixConnector(str(path), limit=1)
            self._session = await self._opened.enter_async_context(
                aiohttp.ClientSession(connector=connector, timeout=timeout)
            )
            self._pod = pod.name
        return self._session, self._forward

    async def close(self) -> None:
        """Close the connections."""
        await self._opened.aclose()
        self._opened, self._session, self._forward = AsyncExitStack(), None, None


class ClusterRunView:
    """An EvalRun of a cluster. It may end while it is shown.

    Args:
        runs: the runs of its namespace.
        run: the run as it was found.
        loop: event loop of the requests to the cluster.
        scratch: directory for data fetched from the run.
        builder: executor that fetches outputs and builds indexes, one at a time.
        clock: seconds, monotonic.
        follows: whether the view requests the run itself, and fetches its outputs once the run has ended. False: the
            run is shown as `take` last received it.
    """

    def __init__(
        self,
        runs: "ClusterRuns",
        run: EvalRun,
        loop: asyncio.AbstractEventLoop,
        scratch: Path,
        builder: Executor,
        clock: Callable[[], float],
        *,
        follows: bool = True,
    ) -> None:
        self.run_id = run.metadata.name
        self._name = run.metadata.name
        self.place = f"EvalRun {runs.namespace}/{run.metadata.name}"
        self._runs = runs
        self._run = run
        self._loop = loop
        self._scratch = scratch / run.metadata.name
        self._builder = builder
        self._clock = clock
        self._follows = follows
        self._link = AggregatorLink(runs, run.metadata.name)
        self._index = LiveIndex(self, self._scratch / "live", clock)
        self._lock = threading.Lock()
        self._looked_at = clock()
        self._asked: set[Future[Any]] = set()
        """Requests to the cluster for which a thread waits."""
        self._is_closed = False
        self._prompts = scratch / run.metadata.name / "prompts"
        self._prompts_of: str | None = None
        """Uid of the run whose prompts were requested."""
        self._reading_prompts: Future[None] | None = None
        self._prompts_at = clock()
        """Time before which the prompts are not requested."""
        self._fetching: Future[Path] | None = None
        self._fetch_at = 0.0
        """Time before which a failed fetch is not tried again."""
        self._failure: UnreachableError | BadInputError | None = None
        """Error of the last attempt to fetch the outputs."""
        self._ended: RunView | None = None

    def take(self, run: EvalRun) -> None:
        """Show the run in this state, which the caller has read from the cluster."""
        self._run = run

    @property
    def is_live(self) -> bool:
        """Whether the outputs of the run have not been fetched yet."""
        return self._ended is None

    def headline(self) -> JsonObject:
        """Return the run's entry in a list of runs."""
        shown = {"id": self.run_id, "place": self.place}
        if self._ended is not None:
            return {**self._ended.headline(), **shown}
        # A list of runs does not wait for a run whose samples another request is reading.
        if self._follows and self._lock.acquire(blocking=False):
            try:
                self._look()
            except (UnreachableError, BadInputError) as error:
                return {**shown, "live": False, "error": str(error)}
            finally:
                self._lock.release()
        return {**shown, "live": True, "state": get_status(self._run).phase or "Pending"}

    def description(self) -> JsonObject:
        """Return the content of `run.json`, and why it may be outdated. Raises BadInputError."""
        with self._lock:
            lost = ""
            try:
                self._look()
                if self._ended is None and not self._is_fetching:
                    self._index.refresh()
                    self._ask_prompts()
            except (UnreachableError, BadInputError) as error:
                lost = str(error)
            if self._ended is not None:
                found = self._ended.description()
                has_prompts = bool(found["prompts"]) or self._has_prompts
                return {**found, "id": self.run_id, "place": self.place, "prompts": has_prompts}
            segments, superseded = self._index.known()
            return {
                **collect_shared_facts(self.run_id, self.place, is_live=True, has_prompts=self._has_prompts),
                "state": get_status(self._run).phase or "Pending", "complete": False, "lost": lost,
                "segments": cast(Any, segments), "superseded": cast(Any, superseded),
            }  # fmt: skip

    def open_file(self, name: str) -> BinaryIO | None:
        """Open a file that the description names; None for any other file."""
        if self._ended is not None and (found := self._ended.open_file(name)) is not None:
            return found
        if name == TEXTS or SEGMENT_FILE.fullmatch(name):
            return open_inside(self._scratch / "live" / name, self._scratch.resolve())
        if name in (PROMPTS, PROMPT_INDEX) and self._has_prompts:
            return open_inside(self._prompts / name, self._scratch.resolve())
        return None

    def identity(self) -> str | None:
        """Return the run's uid."""
        return self._run.metadata.uid

    def list_recorded(self, moment: float) -> Sequence[Recorded]:
        """Return the verdicts that the aggregator stored at or after a moment."""
        return [Recorded(*each) for each in json.loads(self._get(f"recorded?since={moment!r}"))]

    def result_rows(self, rows: Sequence[int]) -> list[JsonObject]:
        """Return the results of these rows."""
        found: list[JsonObject] = []
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            numbers = ",".join(map(str, rows[begin : begin + ROWS_AT_ONCE]))
            found += [json.loads(line) for line in self._get(f"results?rows={numbers}").splitlines()]
        return found

    def close(self) -> None:
        """Cancel the requests to the cluster, and stop building the index of an ended run.

        No lock is taken, because the caller may be the event loop that a thread with the lock waits for.
        """
        self._is_closed = True
        for asked in tuple(self._asked):
            asked.cancel()
        if self._ended is not None:
            self._ended.close()

    async def disconnect(self) -> None:
        """Close the connections to the aggregator."""
        await self._link.close()

    @property
    def _is_fetching(self) -> bool:
        return self._fetching is not None

    def _look(self) -> None:
        """Request the run if that is due, and fetch its outputs once it has ended."""
        if not self._follows:
            return
        if self._ended is None and self._clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._clock()
            self._run = self._wait_for(find_run(self._runs, self._name))
        if self._ended is not None or not is_complete(self._run):
            return
        if not get_status(self._run).output_url:
            raise BadInputError(f"EvalRun {self._name} has no results: it ended: {reason_line(self._run)}")
        if self._fetching is None:
            if self._failure is not None and self._clock() < self._fetch_at:
                raise self._failure
            self._fetching = self._builder.submit(self._fetch)
        if self._fetching.done():
            fetching, self._fetching = self._fetching, None
            try:
                self._ended = RunView(self.run_id, str(fetching.result()), self._scratch, self._builder, self._clock)
            except (UnreachableError, BadInputError) as error:
                self._failure, self._fetch_at = error, self._clock() + FETCH_AGAIN_SECONDS
                raise

    @property
    def _has_prompts(self) -> bool:
        return self._prompts_of == self.identity() and (self._prompts / PROMPT_INDEX).is_file()

    def _ask_prompts(self) -> None:
        """Read the run's prompts once, in the background. A failed attempt is repeated after `FETCH_AGAIN_SECONDS`."""
        if self._reading_prompts is not None and self._reading_prompts.done():
            reading, self._reading_prompts = self._reading_prompts, None
            if not reading.cancelled() and (failure := reading.exception()) is not None:
                if not isinstance(failure, UnreachableError | BadInputError | OSError):
                    raise failure
                logger.warning("%s: the page shows no prompts: %s", self.place, failure)
                self._prompts_of, self._prompts_at = None, self._clock() + FETCH_AGAIN_SECONDS
        is_due = self._prompts_of != self.identity() and self._clock() >= self._prompts_at
        if is_due and self._reading_prompts is None:
            self._prompts_of = self.identity()
            # The file may belong to an earlier run of this name.
            (self._prompts / PROMPT_INDEX).unlink(missing_ok=True)
            self._reading_prompts = self._builder.submit(self._read_prompts)

    def _read_prompts(self) -> None:
        self._prompts.mkdir(parents=True, exist_ok=True)
        write_prompt_lines(self._iter_prompts(), self._prompts)

    def _iter_prompts(self) -> Iterator[JsonObject]:
        first = 0
        while lines := self._get(f"prompts?first={first}").splitlines():
            yield from map(json.loads, lines)
            first += len(lines)

    def _fetch(self) -> Path:
        """Copy the outputs to a directory of their own. Raises UnreachableError, BadInputError."""
        directory = self._scratch / f"outputs-{self._clock():.3f}"
        try:
            directory.mkdir(parents=True)
            self._wait_for(bring_to(self._runs, self._run, directory, [], logger.info))
        except (OSError, UnreachableError, BadInputError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise BadInputError(
                    f"{directory}: {error.strerror}: make room there, or name another TMPDIR"
                ) from error
            raise
        return directory

    def _get(self, path: str) -> bytes:
        return self._wait_for(self._link.get(self._run, path))

    def _wait_for(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._asked.add(asked)
        try:
            if self._is_closed:
                asked.cancel()
            return asked.result()
        except CancelledError as error:
            raise UnreachableError("the page is being closed") from error
        finally:
            self._asked.discard(asked)
