"""A judge of several pods on a cluster: what each of them did, and what becomes of them in the middle of a run."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from builders.cluster.cluster import Cluster, CommandFailedError
from builders.cluster.controlplane import until
from builders.cluster.install import Installed
from builders.cluster.runs import kill, progress

READS_METRICS = (
    "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9090/metrics', timeout=10).read().decode())"
)
"""Run in a pod: no policy lets the API server read metrics."""
RAN = re.compile(r"^(?:evalrun_sandbox_runs_total|evalrun_judge_tests_total)\{.*\} (\S+)$", re.MULTILINE)
"""Programs that a sandbox ran, tests that a gateway judged."""
SECONDS = 180.0
"""How long anything may take that is waited for. A machine of two CPUs starts a pod in about four; at a load of 13 it
took more than sixty."""


@dataclass(frozen=True)
class Pool:
    """Gateways and sandboxes that are there for a run: its own, or shared ones."""

    install: Installed
    namespace: str
    name: str
    """Its Deployments are `NAME-judge` and `NAME-sandbox`."""
    selector: str
    """Labels of its pods, but for the component's."""

    @property
    def cluster(self) -> Cluster:
        return self.install.cluster

    def pods(self, component: str) -> list[str]:
        labels = f"{self.selector},app.kubernetes.io/component={component}"
        found = self.cluster.get(self.namespace, "pods", "--selector", labels)["items"]
        return sorted(
            pod["metadata"]["name"]
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and {"type": "Ready", "status": "True"}
            in [
                {key: condition[key] for key in ("type", "status")}
                for condition in pod["status"].get("conditions", ())  # none yet before the scheduler has seen it
            ]
        )

    def ran(self, pod: str) -> int:
        """Return how many programs a sandbox ran, or how many tests a gateway judged; 0 where it does not answer."""
        try:
            shown = self.cluster.python(self.namespace, pod, READS_METRICS)
            return int(sum(float(number) for number in RAN.findall(shown)))
        except CommandFailedError:
            return 0

    def wait_until_used(self, component: str, count: int) -> None:
        """Wait until `count` pods of a component are there and each has done something. Raises TimeoutError."""

        def all_used() -> bool:
            pods = self.pods(component)
            return len(pods) == count and all(self.ran(pod) for pod in pods)

        until(all_used, f"each of {count} {component} pods of {self.name} to have done something", SECONDS)

    def scale(self, component: str, count: int) -> None:
        """Set how many pods a component has, as an autoscaler does."""
        where = ("--namespace", self.namespace, f"deployment/{self.name}-{component}")
        self.cluster.kubectl("scale", *where, f"--replicas={count}")

    def logs(self) -> str:
        """Return what its pods have logged, and with it all others that the selector names, each line with its pod."""
        which = ("--selector", self.selector, "--all-containers", "--ignore-errors", "--max-log-requests=20")
        return self.cluster.kubectl("logs", "--namespace", self.namespace, *which, "--tail=-1", "--prefix")

    def roll(self, component: str) -> None:
        """Replace every pod of a component, one after the other; wait until that is done. Raises CommandFailedError."""
        where = ("--namespace", self.namespace, f"deployment/{self.name}-{component}")
        self.cluster.kubectl("rollout", "restart", *where)
        self.cluster.kubectl("rollout", "status", *where, f"--timeout={SECONDS:.0f}s", seconds=SECONDS + 10)


@dataclass
class Course:
    """What was seen while the pods of a pool came and went."""

    added: dict[str, float] = field(default_factory=dict)
    """By what was added: seconds from when it was ready to its first answer."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By pod that is gone: the exit code of its container."""
    judged: int = 0
    """Answers that were judged when all this had happened."""
    tracebacks: list[str] = field(default_factory=list)
    """Lines of the pods' logs that hold one."""


def kill_and_add(pool: Pool, run: str, clock: Callable[[], float]) -> Course:
    """Add a sandbox while a run is judged; then kill one of the others, and a gateway that is at work.

    The gateway's work must go on elsewhere. One that gets ready a moment after the first has its share only when
    connections are renewed, after a minute: so which of them are at work is not known before.

    Raises:
        TimeoutError: a pod that is there gets no work.
    """
    course = Course()
    _begin(pool, run)
    there = pool.pods("sandbox")
    pool.scale("sandbox", 3)
    until(lambda: len(pool.pods("sandbox")) == 3, "another sandbox", SECONDS)
    course.added["sandbox"] = _seconds_to_work(pool, 3, clock)
    kill(pool.install, pool.namespace, there[0])
    gateways = pool.pods("judge")
    working = next(gateway for gateway in gateways if pool.ran(gateway))
    kill(pool.install, pool.namespace, working)
    until(
        lambda: any(pool.ran(gateway) for gateway in pool.pods("judge") if gateway != working),
        "another gateway to take over",
        SECONDS,
    )
    pool.wait_until_used("sandbox", 3)  # one of them in the killed one's place
    course.judged = judged_now(pool, run)
    course.tracebacks = [line for line in pool.logs().splitlines() if "traceback" in line.lower()]
    return course


def roll_and_drain(pool: Pool, run: str, clock: Callable[[], float]) -> Course:
    """Replace every sandbox while a run is judged, then take one away: nobody is killed. Raises TimeoutError."""
    course = Course()
    _begin(pool, run)
    pool.wait_until_used("judge", 2)
    with noting_ends(pool.cluster, pool.namespace, pool.selector) as course.ends:
        pool.roll("sandbox")
        course.added["rolled sandboxes"] = _seconds_to_work(pool, 2, clock)
        pool.scale("sandbox", 1)
        until(lambda: len(course.ends) == 3, "the sandboxes that left to have ended", SECONDS)
    course.judged = judged_now(pool, run)
    course.tracebacks = [line for line in pool.logs().splitlines() if "traceback" in line.lower()]
    return course


def judged_now(pool: Pool, run: str) -> int:
    return next(judged for judged, _ in progress(pool.install, run))


def _begin(pool: Pool, run: str) -> None:
    next(judged for judged, _ in progress(pool.install, run) if judged)
    pool.wait_until_used("sandbox", 2)


def _seconds_to_work(pool: Pool, sandboxes: int, clock: Callable[[], float]) -> float:
    ready = clock()
    pool.wait_until_used("sandbox", sandboxes)
    return clock() - ready


@contextmanager
def noting_ends(cluster: Cluster, namespace: str, selector: str) -> Iterator[Mapping[str, int]]:
    """Return the exit codes of the selected pods that are deleted meanwhile; one pod must be there already."""
    template = "{.metadata.name} {.metadata.deletionTimestamp} {.status.containerStatuses[0].state.terminated.exitCode}"
    ends: dict[str, int] = {}
    listed = threading.Event()

    def note(lines: Iterable[str]) -> None:
        for line in lines:
            listed.set()
            pod, *rest = line.split()
            if len(rest) == 2:
                ends[pod] = int(rest[1])

    with cluster.following(namespace, "pods", "--selector", selector, template=template) as lines:
        noting = threading.Thread(target=note, args=(lines,))
        noting.start()
        listed.wait(SECONDS)
        yield ends
    noting.join()
