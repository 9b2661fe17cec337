"""An in-memory Ray cluster whose replicas start, die and hang on command, for tests of the replica manager."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from evalrun_generator.endpoints.endpoint import Endpoint
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint
from evalrun_generator.rollout.starts import ClusterView, NodeCapacity, Start, StartPhase


class FakeReplica:
    """A replica's server. It is healthy until the test changes it."""

    def __init__(self, endpoint: FakeEndpoint) -> None:
        self.fake_endpoint = endpoint
        self.error: str | None = None
        self.generated: float | None = 0.0

    @property
    def endpoint(self) -> Endpoint:
        return self.fake_endpoint

    async def health(self) -> str | None:
        """Return the error that was set."""
        return self.error

    async def tokens(self) -> float | None:
        """Return the count that was set."""
        return self.generated


class FakeCluster:
    """Nodes with GPUs; each start is a `FakeReplica` made by `make`."""

    def __init__(
        self, gpus: Sequence[int], make: Callable[[Start], FakeReplica], *, now: Callable[[], float], gpus_each: int = 1
    ) -> None:
        """Create the cluster; `gpus` holds the GPUs of each node, which has enough CPUs for them."""
        self.nodes = list(gpus)
        self.servers: dict[str, FakeReplica] = {}
        self.all: dict[str, Start] = {}
        self.failing: list[str] = []
        """Errors of the next starts, one each."""
        self.held_back = False
        """While set, starts stay in phase STARTING."""
        self.changed = asyncio.Event()
        """Set by every call; the observer clears it."""
        self.ended_all = False
        self.load_format = "auto"
        self.engine: dict[str, str] = {}
        """Engine facts reported by the next replicas."""
        self._make = make
        self._now = now
        self._gpus_each = gpus_each

    @property
    def api_key(self) -> str:
        """Empty: no key is needed."""
        return ""

    @property
    def living(self) -> list[Start]:
        """Starts that hold GPUs."""
        return [start for start in self.all.values() if start.living]

    async def observe(self) -> ClusterView:
        """Return the current state; starting replicas become serving."""
        view = ClusterView(tuple(self.all.values()), self._rooms())
        for start in self.living:
            if start.phase is StartPhase.STARTING and not self.held_back:
                self._serve(start)
        self.changed.set()
        return view

    async def start(self, slot: int) -> None:
        start = Start(slot, f"start{len(self.all)}", self._gpus_each, self._now(), placed=True)
        if self.failing:
            start = replace(start, phase=StartPhase.FAILED, error=self.failing.pop(0))
        self.all[start.suffix] = start
        self.changed.set()

    async def end(self, suffix: str) -> None:
        self.all[suffix] = replace(self.all[suffix], phase=StartPhase.ENDED, released_at=self._now())
        self.changed.set()

    async def end_all(self) -> Sequence[Start]:
        for start in self.living:
            await self.end(start.suffix)
        self.ended_all = True
        return tuple(self.all.values())

    def connect(self, address: str) -> FakeReplica:
        """Return the server at an address."""
        return self.servers[address]

    def _serve(self, start: Start) -> None:
        self.servers[start.suffix] = self._make(start)
        self.all[start.suffix] = replace(
            start,
            phase=StartPhase.SERVING,
            address=start.suffix,
            load_format=self.load_format,
            engine=dict(self.engine),
        )

    def _rooms(self) -> tuple[NodeCapacity, ...]:
        taken = sum(start.gpus for start in self.living)
        rooms = []
        for number, gpus in enumerate(self.nodes):
            used = min(taken, gpus)
            taken -= used
            rooms.append(NodeCapacity(f"node{number}", gpus - used, 2 * gpus + 2))
        return tuple(rooms)
