"""Who of several operators works: the policy by tables, the election against a Lease that is a dictionary."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from builders.operator.world import START

from evalrun_cluster.errors import ConflictError, RefusedError, UnreachableError
from evalrun_operator.leader_election import LeaderElection
from evalrun_operator.policies.leadership import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    REQUEST_SECONDS,
    RETRY_SECONDS,
    Lease,
    ObservedLease,
    may_lead,
    must_stop,
    observe_lease,
)

OTHERS = Lease("other", 4.0, "7")


@pytest.mark.parametrize(
    ("lease", "age", "may"),
    [
        (None, 0.0, True),
        (Lease("", 4.0, "7"), 0.0, True),  # released
        (Lease("me", 4.0, "7"), 0.0, True),
        (OTHERS, 3.9, False),
        (OTHERS, 4.0, True),
        (Lease("other", 15.0, "7"), 14.0, False),  # what the holder says counts, not what we would
    ],
)
def test_lease_may_be_taken_once_its_holder_is_silent_for_the_lease_duration(
    lease: Lease | None, age: float, may: bool
) -> None:
    assert may_lead(ObservedLease(lease, 100.0), "me", 100.0 + age) is may


def test_a_lease_counts_from_when_this_state_of_it_was_first_seen() -> None:
    first = observe_lease(None, OTHERS, 100.0)
    assert observe_lease(first, OTHERS, 103.0).since == 100.0
    assert observe_lease(first, Lease("other", 4.0, "8"), 103.0).since == 103.0  # renewed
    assert observe_lease(first, None, 103.0) == ObservedLease(None, 103.0)


def test_a_leader_stops_before_another_may_begin() -> None:
    assert not must_stop(100.0, 100.0 + DEADLINE_SECONDS - 0.1)
    assert must_stop(100.0, 100.0 + DEADLINE_SECONDS)
    assert DEADLINE_SECONDS + RETRY_SECONDS < LEASE_SECONDS
    assert RENEW_SECONDS + REQUEST_SECONDS + RETRY_SECONDS < DEADLINE_SECONDS  # one attempt may hang
    assert LEASE_SECONDS + RETRY_SECONDS < 15.0


@dataclass
class Server:
    """Keeps one Lease as the API server does."""

    lease: dict[str, Any] | None = None
    version: int = 0
    error: Callable[[], Exception] | None = None
    hangs: bool = False

    async def read_lease(self, name: str, namespace: str) -> dict[str, Any] | None:
        assert (name, namespace) == ("op", "sys")
        await self._trouble()
        return self.lease

    async def write_lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        await self._trouble()
        known = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
        if lease["metadata"].get("resourceVersion") != known:
            raise ConflictError("it has changed")
        self.version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    async def _trouble(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error()

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])


@dataclass
class Operators:
    """Some operators that share a Lease and a clock."""

    server: Server = field(default_factory=Server)
    time: float = 100.0
    working: set[str] = field(default_factory=set)
    history: list[str] = field(default_factory=list)

    def add(self, name: str) -> LeaderElection:
        def lead() -> None:
            self.working.add(name)
            self.history.append(name)
            assert len(self.working) == 1, "two at once"

        async def follow() -> None:
            self.working.discard(name)

        return LeaderElection(self.server, ("sys", "op"), name, lead, follow, lambda: START, lambda: self.time)

    async def turns(self, seconds: float, *elections: LeaderElection) -> None:
        """Let time go by, with a turn of each whenever it is due."""
        end = self.time + seconds
        due = dict.fromkeys(elections, self.time)
        while (next_one := min(due, key=lambda one: due[one])) and due[next_one] <= end:
            self.time = max(self.time, due[next_one])
            due[next_one] = self.time + await next_one.turn()
        self.time = end


async def test_second_operator_takes_over_after_a_crash_of_the_leader() -> None:
    operators = Operators()
    first, second = operators.add("first"), operators.add("second")
    await operators.turns(30.0, first, second)
    assert operators.working == {"first"}
    lease = operators.server.lease or {}
    assert lease["spec"]["renewTime"] == "2026-01-31T12:00:00.000000Z"
    assert lease["spec"]["leaseDurationSeconds"] == LEASE_SECONDS
    operators.working.clear()  # killed: it says nothing any more
    await operators.turns(LEASE_SECONDS + RETRY_SECONDS, second)
    assert operators.working == {"second"}
    assert (operators.server.lease or {})["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_is_given_back_is_taken_at_the_next_look() -> None:
    operators = Operators()
    first, second = operators.add("first"), operators.add("second")
    await operators.turns(5.0, first, second)
    await first.release()
    assert operators.working == set()
    assert operators.server.holder == ""
    await operators.turns(RETRY_SECONDS, second)
    assert operators.working == {"second"}


@pytest.mark.parametrize("error", [UnreachableError("away"), RefusedError("forbidden")])
async def test_a_leader_that_cannot_renew_stops_before_the_other_begins(error: Exception) -> None:
    operators = Operators()
    first, second = operators.add("first"), operators.add("second")
    await operators.turns(5.0, first, second)
    operators.server.error = lambda: error
    await operators.turns(DEADLINE_SECONDS + RETRY_SECONDS, first, second)
    assert operators.working == set()
    operators.server.error = None
    await operators.turns(10.0, first, second)
    assert len(operators.working) == 1
    assert operators.working == {operators.server.holder}


async def test_short_failure_of_the_api_server_keeps_the_leader() -> None:
    operators = Operators()
    first, second = operators.add("first"), operators.add("second")
    await operators.turns(5.0, first, second)
    operators.server.error = lambda: UnreachableError("away")
    await operators.turns(1.5, first, second)
    operators.server.error = None
    await operators.turns(10.0, first, second)
    assert operators.history == ["first"]


async def test_a_request_that_hangs_does_not_keep_a_leader_working() -> None:
    operators = Operators()
    first = operators.add("first")
    await operators.turns(1.0, first)
    operators.server.hangs = True
    operators.time += DEADLINE_SECONDS - 0.05
    await first.turn()  # it waits no longer than it may lead
    operators.time += 0.05
    await first.turn()
    assert operators.working == set()


async def test_a_lease_that_was_taken_ends_the_work_at_once() -> None:
    operators = Operators()
    first = operators.add("first")
    await operators.turns(1.0, first)
    lease = operators.server.lease or {}
    operators.server.lease = {**lease, "spec": {**lease["spec"], "holderIdentity": "second"}}
    await first.turn()
    assert operators.working == set()
    assert not first.leading


async def test_work_that_ends_slowly_is_ended_although_the_request_took_long() -> None:
    """A leader that was frozen has little time left for its request: that had cut the end of its work off as well."""
    operators, ended = Operators(), asyncio.Event()

    async def follow() -> None:
        await asyncio.sleep(0.2)  # longer than the request may take
        ended.set()

    election = LeaderElection(
        operators.server, ("sys", "op"), "first", lambda: None, follow, lambda: START, lambda: operators.time
    )
    await election.turn()
    lease = operators.server.lease or {}
    operators.server.lease = {**lease, "spec": {**lease["spec"], "holderIdentity": "second"}}
    operators.time += 2 * LEASE_SECONDS
    await election.turn()
    assert not election.leading
    assert ended.is_set()
