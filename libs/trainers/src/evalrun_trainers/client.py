"""Sends samples to the reward service in batches, from threads of its own, until each has its result.

RewardError
 +- NotJudgedError      the sample was not judged, or no replica answered in time: there is no reward
 +- InvalidSampleError  the sample itself is invalid; a retry would fail again
 +- RefusedError        the service refuses the caller or the request: a wrong token, a wrong address
"""

import http.client
import json
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from evalrun_trainers.options import RAISE, Options

Sample = Mapping[str, Any]
"""A sample as the service's API defines it: response, ground_truth, data_source, ..."""
Result = Mapping[str, Any]
"""The service's result for one sample."""

JUDGED = "judged"
NOT_JUDGED = "not_judged"
INVALID = "invalid"

FIRST_DELAY_SECONDS = 0.2
MAX_DELAY_SECONDS = 10.0
SOONER_SECONDS = 0.5
"""The service is asked to reply this much before the client gives up, so that it can name the samples it did not judge.
"""
AGAIN = (429, 500, 502, 503, 504)
TOO_LARGE = 413


class RewardError(Exception):
    """There is no reward for a sample."""


class NotJudgedError(RewardError):
    """The sample was not judged."""


class InvalidSampleError(RewardError):
    """The sample cannot be judged as it is written."""


class RefusedError(RewardError):
    """The service refuses the caller or the request."""


class _Waiting:
    """A sample on its way."""

    __slots__ = ("body", "deadline", "future")

    def __init__(self, body: bytes, deadline: float) -> None:
        self.body = body
        self.deadline = deadline
        self.future: Future[Result] = Future()


class RewardClient:
    """Thread-safe; one client per process and set of options is enough.

    Args:
        options: where to, how many at once.
        clock: seconds, monotonic.
        sleep: waits.
        chance: jitter of delays, and which replica comes first.
    """

    def __init__(
        self,
        options: Options,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        """Samples by outcome, since the start."""
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self._retries = Retries(options, clock, sleep, self._chance)
        self._waiting: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._collecting = threading.Lock()
        """The lock of the one thread that fills a request: many threads at once would each send a few samples."""
        self._threads = 0
        self._free = 0
        """Threads that send nothing now."""

    def submit(self, sample: Sample) -> "Future[Result]":
        """Send a sample. Return at once. The future raises RefusedError; other outcomes are results."""
        try:
            body = _encode_sample(sample)
        except (TypeError, ValueError, RecursionError) as error:
            return self._refuse(error)
        waiting = _Waiting(body, self._clock() + self.options.timeout_seconds)
        self._waiting.put(waiting)
        self._ensure_collector()
        return waiting.future

    def results(self, samples: Iterable[Sample]) -> list[Result]:
        """Return the results of samples in their order. Raises RefusedError."""
        futures = [self.submit(sample) for sample in samples]
        return [future.result() for future in futures]

    def _refuse(self, error: Exception) -> "Future[Result]":
        """Return the result of a sample that JSON cannot hold: raising here would cost its whole batch the rewards."""
        with self._lock:
            self.counts[INVALID] += 1
        future: Future[Result] = Future()
        future.set_result(_invalid(f"the sample cannot be written as JSON: {error}"))
        return future

    def _ensure_collector(self) -> None:
        """Start a thread if samples wait, all threads are sending, and there may be more."""
        with self._lock:
            if self._free or self._threads >= self.options.connections or self._waiting.empty():
                return
            self._threads += 1
            self._free += 1
        threading.Thread(target=self._work, name="evalrun-reward", daemon=True).start()

    def _work(self) -> None:
        connections = Connections(self.options, self._chance)
        while True:
            with self._collecting:
                batch = self._batch(self._waiting.get())
            with self._lock:
                self._free -= 1
            self._ensure_collector()
            self._send(batch, connections)
            with self._lock:
                self._free += 1

    def _batch(self, first: _Waiting) -> list[_Waiting]:
        """Return a sample with those that arrive within the linger time, at most `max_batch` together."""
        batch, end = [first], self._clock() + self.options.linger_seconds
        while len(batch) < self.options.max_batch:
            try:
                batch.append(self._waiting.get(timeout=max(0.0, end - self._clock())))
            except queue.Empty:
                break
        return batch

    def _send(self, batch: Sequence[_Waiting], connections: "Connections") -> None:
        try:
            results = self._fetch_results(batch, connections)
        except RewardError as error:
            for waiting in batch:
                waiting.future.set_exception(error)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, and the thread must live
            for waiting in batch:
                waiting.future.set_exception(RewardError(f"a fault of the client: {error!r}"))
        else:
            for waiting, result in zip(batch, results, strict=True):
                with self._lock:
                    self.counts[str(result.get("outcome"))] += 1
                waiting.future.set_result(result)

    def _fetch_results(self, batch: Sequence[_Waiting], connections: "Connections") -> Sequence[Result]:
        deadline = min(waiting.deadline for waiting in batch)
        head = json.dumps({"run": self.options.run, "shape": self.options.shape})[:-1].encode()
        body = b"".join((head, b', "samples": [', b",".join(waiting.body for waiting in batch), b"]}"))
        try:
            status, answer, why = self._retries.answer(connections, "/v1/rewards", body, deadline)
        except NotJudgedError as error:
            return [{"outcome": NOT_JUDGED, "reward": None, "reason": str(error)} for _ in batch]
        if status == 200:
            results: Sequence[Result] = answer.get("results") or ()
            if len(results) != len(batch):
                raise RefusedError(
                    f"{connections.url}: {len(results)} results for {len(batch)} samples: no reward service"
                )
            return results
        # Another refusal, such as a proxy's 400, says nothing about the samples.
        if status != TOO_LARGE and answer.get("unreadable") is not True:
            raise RefusedError(why)
        if len(batch) == 1:
            return [_invalid(why)]
        half = len(batch) // 2
        return [*self._fetch_results(batch[:half], connections), *self._fetch_results(batch[half:], connections)]


class Retries:
    """Asks again, at the next replica, until there is an answer that asking again does not change.

    Args:
        options: `timeout_seconds` stands in the message of a call without an answer.
        clock: seconds, monotonic.
        sleep: waits.
        chance: jitter of delays.
    """

    def __init__(
        self, options: Options, clock: Callable[[], float], sleep: Callable[[float], None], chance: random.Random
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    def answer(
        self, connections: "Connections", path: str, body: bytes, deadline: float
    ) -> tuple[int, Mapping[str, Any], str]:
        """Return the final status (none of AGAIN), the JSON reply, and a text with both. Raises NotJudgedError."""
        tries, why = 0, "it was never reached"
        while (left := deadline - self._clock()) > 0:
            try:
                status, answer, wait = connections.post(path, body, left)
            except (OSError, http.client.HTTPException) as error:
                status, answer, wait = 0, {}, 0.0
                why = f"{connections.url}: {error or type(error).__name__}"
            if status:
                why = f"{connections.url}: {status}: {answer.get('message') or answer.get('detail') or ''}"
            if status and status not in AGAIN:
                return status, answer, why
            if status != 429:
                connections.next()
            tries += 1
            # A backoff of its own: what runs inside a trainer has the standard library alone, not `evalrun_runtime`.
            delay = max(wait, min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(tries - 1, 20)))
            self._sleep(min(delay * self._chance.uniform(0.5, 1.0), max(0.0, deadline - self._clock())))
        raise NotJudgedError(f"no answer within {self._options.timeout_seconds:g} s: {why}")


class Connections:
    """A thread's connections, one per replica."""

    def __init__(self, options: Options, chance: random.Random) -> None:
        self._urls = options.urls
        self._token = options.token
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._current = chance.randrange(len(self._urls))

    @property
    def url(self) -> str:
        """The replica that is asked now."""
        return self._urls[self._current]

    def next(self) -> None:
        """Ask another replica from now on."""
        self._current = (self._current + 1) % len(self._urls)

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._open:
            self._open.popitem()[1].close()

    def post(self, path: str, body: bytes, seconds: float) -> tuple[int, Mapping[str, Any], float]:
        """Post to a path. Return status, the JSON answer and the seconds to wait. Raises OSError, HTTPException."""
        kept = self._open.pop(self.url, None)
        if kept is not None:
            try:
                return self._exchange(kept, path, body, seconds)
            # The server had closed the connection; judging is idempotent, so the request may be sent again.
            except (ConnectionError, http.client.BadStatusLine):
                kept.close()
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return self._exchange(kind(parts.hostname or "", parts.port), path, body, seconds)

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, body: bytes, seconds: float
    ) -> tuple[int, Mapping[str, Any], float]:
        headers = {"Content-Type": "application/json", "evalrun-timeout-ms": str(_compute_announced_ms(seconds))}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.timeout = seconds
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            connection.request("POST", f"{urlsplit(self.url).path}{path}", body, headers)
            answer = connection.getresponse()
            data, wait = answer.read(), answer.headers.get("Retry-After", "")
        except BaseException:
            connection.close()
            raise
        self._open[self.url] = connection
        if (decoded := _decode_answer(data)) is None:
            if answer.status == 200:
                raise http.client.HTTPException(f"an answer that is no JSON: {data[:60]!r}")
            decoded = {"message": data[:200].decode(errors="replace")}
        return answer.status, decoded, float(wait) if wait.isdigit() else 0.0


def choose_reward(result: Result, options: Options) -> float:
    """Return the reward of a result, or the number that the options name for a sample without a reward.

    Raises:
        NotJudgedError: the sample was not judged, and `on_not_judged` is "raise".
        InvalidSampleError: the sample cannot be judged as it is written, and `on_invalid` is "raise".
    """
    is_invalid = result.get("outcome") == INVALID
    reward = None if is_invalid else result.get("reward")
    if reward is not None:
        return float(reward)
    instead = options.on_invalid if is_invalid else options.on_not_judged
    if instead == RAISE:
        raise (InvalidSampleError if is_invalid else NotJudgedError)(str(result.get("reason")))
    return float(instead)


_clients: dict[tuple[int, Options], RewardClient] = {}
_clients_lock = threading.Lock()


def client_for(options: Options) -> RewardClient:
    """Return this process's client for these options; a forked process gets a new client with its own threads."""
    key = os.getpid(), options
    with _clients_lock:
        if key not in _clients:
            _clients[key] = RewardClient(options)
        return _clients[key]


def _compute_announced_ms(seconds: float) -> int:
    return int(max(seconds / 2, seconds - SOONER_SECONDS) * 1000)


def _invalid(reason: str) -> Result:
    return {"outcome": INVALID, "reward": None, "reason": reason}


def _encode_sample(sample: Sample) -> bytes:
    given = {name: value for name, value in sample.items() if value is not None}
    return json.dumps(given, default=_plain).encode()


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a trainer's row holds
    """Convert a mapping, or a value of numpy or of another library with `tolist`, to JSON values. Raises TypeError."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a sample holds {type(value).__name__}, which JSON cannot hold")


def _decode_answer(data: bytes) -> Mapping[str, Any] | None:
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else {"message": str(answer)[:200]}
