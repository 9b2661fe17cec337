"""A cluster with real pods for the tests of this directory, with evalrun installed once for all of them.

They are skipped with the reason where KUBECONFIG names no cluster, in CI too: not every machine can run one. What else
is missing, with a cluster at hand, fails in CI.
"""

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from builders.cluster.cluster import Cluster, MissingClusterError, find_cluster
from builders.cluster.controlplane import MissingBinariesError
from builders.cluster.images import MissingToolsError, find_images
from builders.cluster.install import (
    PROBLEMS,
    SHARED_JUDGE,
    VALUES,
    Installed,
    installed,
    load_images,
)
from builders.cluster.nodes import cordoned
from builders.cluster.runs import FinishedRun, PodObservations, Verdicts, look_at_pods, outcome, small
from builders.cluster.tasks import MODEL, Tasks, both_families, cheating, paced, with_grader
from builders.command_line import COMMAND, evalrun
from builders.tools import missing

from evalrun_runtime.ready_line import parse_ready_line

HERE = Path(__file__).parent
STAGES = ("aggregator", "judge", "operator", "sandbox")
PACKETS_PER_CONNECTION = 3
"""The first packet of a connection, and its repetitions within the two seconds that the test waits."""
LATE_PACKETS = 40
"""Dropped for a pod where an enforcer learns of a new neighbour a second late; 17 were seen. A missing rule drops 88 in
three minutes.
"""
PACED_COUNT = 90
"""Two or three slots take 30 to 45 s for as many; pods come and go in the meantime."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow the tests of this directory more time: the first waits for images, which two cores built in 960 s beside
    the other tests, and for the installation.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def provoked_drops() -> Counter[str]:
    """Connections that tests opened although a policy forbids them, by direction and pod: `egress NAMESPACE/POD`."""
    return Counter()


@pytest.fixture(scope="session", autouse=True)
def no_policy_drops_what_we_need(provoked_drops: Counter[str]) -> Iterator[None]:
    """NetworkPolicies dropped nothing but what tests provoked, where EVALRUN_POLICY_DROPS names a command that prints
    lines of `PACKETS NODE DIRECTION NAMESPACE/POD`.
    """
    yield
    command = os.environ.get("EVALRUN_POLICY_DROPS")
    if command is None:
        return
    printed = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True, timeout=30).stdout
    print(printed)
    unexpected = {}
    for line in printed.splitlines():
        packets, _, dropping = line.split(maxsplit=2)
        if int(packets) > LATE_PACKETS + PACKETS_PER_CONNECTION * provoked_drops[dropping]:
            unexpected[dropping] = int(packets)
    assert unexpected == {}


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    try:
        return find_cluster()
    except MissingClusterError as error:
        pytest.skip(str(error))
    except MissingBinariesError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def images(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The names of our images in the cluster's nodes, by stage of Dockerfile.judge."""
    try:
        builder = find_images()
    except MissingToolsError as error:
        missing(str(error))
    return load_images(cluster, {stage: builder.build(stage) for stage in STAGES}, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where problems, answers and manifests are."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def tasks(directory: Path) -> Tasks:
    """Problems of both families, and some that a grader scores."""
    return with_grader(both_families(directory), directory)


@pytest.fixture(scope="session")
def cheats(cluster: Cluster, directory: Path) -> Tasks:
    """The cheating programs, for the machine of the cluster's nodes."""
    nodes = cluster.kubectl("get", "nodes", "--output", "jsonpath={.items[0].status.nodeInfo.architecture}")
    return cheating(directory, "x86_64" if nodes == "amd64" else "aarch64")


@pytest.fixture(scope="session")
def paced_tasks(directory: Path) -> tuple[Tasks, Verdicts]:
    """Problems that take a second of waiting each, and their verdicts."""
    return paced(directory, PACED_COUNT)


@pytest.fixture(scope="session")
def install(
    cluster: Cluster,
    started_here: "subprocess.Popen[str]",
    images: dict[str, str],
    tasks: Tasks,
    cheats: Tasks,
    paced_tasks: tuple[Tasks, Verdicts],
) -> Iterator[Installed]:
    """Everything installed, problems on a volume, servers answering: `answers`, and `slow-answers` for 15 s a run."""
    del started_here  # goes on while images are loaded
    with ExitStack() as until_installed, installed_for_all(cluster, images, until_installed) as here:
        here.upload(*tasks.files.values(), *cheats.files.values(), *paced_tasks[0].files.values())
        here.serve_answers("answers", tasks)
        here.serve_answers("slow-answers", tasks, "--latency-seconds=1", "--max-concurrency=4")
        here.serve_answers("cheating-answers", cheats)
        here.serve_answers("paced-answers", paced_tasks[0])
        until_installed.close()
        yield here


@contextmanager
def installed_for_all(cluster: Cluster, images: dict[str, str], until_installed: ExitStack) -> Iterator[Installed]:
    """Install the chart; volumes keep off the node that tests will lose until `until_installed` is closed."""
    until_installed.enter_context(cordoned(cluster))
    with installed(cluster, images, {**VALUES, "sharedJudge": SHARED_JUDGE}) as here:
        yield here


@pytest.fixture(scope="session")
def started_here(tasks: Tasks, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """`evalrun run --local` of the same EvalRun, begun; only where the problems lie and who answers differ."""
    served = [sys.executable, "-m", "evalrun_generator.recorded", f"--model={MODEL}", *tasks.flags(str(directory))]
    with subprocess.Popen(served, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = parse_ready_line(server.stdout.readline() if server.stdout else "")
            file = directory / "local.yaml"
            file.write_text(yaml.safe_dump(tasks.manifest("local", ".", {"url": f"{address}/v1"}, **small())))
            command = [*COMMAND, "run", str(file), "--local", "--output", str(directory / "local")]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                try:
                    yield process
                finally:
                    process.kill()
        finally:
            server.kill()


@pytest.fixture(scope="session")
def on_one_machine(started_here: "subprocess.Popen[str]", directory: Path) -> Path:
    said, _ = started_here.communicate(timeout=300)
    assert started_here.returncode == 0, said
    return directory / "local"


@pytest.fixture(scope="session")
def plain(install: Installed, tasks: Tasks, directory: Path) -> tuple[FinishedRun, PodObservations]:
    """A run that nobody disturbs, and what was seen of its pods."""
    manifest = tasks.manifest("plain", f"pvc://{PROBLEMS}", install.endpoint("answers"), **small())
    name = install.start(manifest, directory)
    seen = look_at_pods(install, name)
    return outcome(install, name), seen


@pytest.fixture(scope="session")
def cheating_run(install: Installed, plain: tuple[FinishedRun, PodObservations], cheats: Tasks, directory: Path) -> str:
    """The name of a run of the cheating programs, begun by our own command: it goes on beside the disturbed one."""
    del plain  # is alone, so that its time can be told
    manifest = cheats.manifest("cheating", f"pvc://{PROBLEMS}", install.endpoint("cheating-answers"), **small())
    file = install.write(manifest, directory)
    done = evalrun("run", file, "--namespace", install.runs, "--no-follow")
    assert done.returncode == 0, done.stdout + done.stderr
    return "cheating"


@pytest.fixture(scope="session")
def disturbed_run(install: Installed, cheating_run: str, tasks: Tasks, directory: Path) -> str:
    """The name of a run of the same problems, begun; answers take 15 s, and its own volume keeps the outputs."""
    del cheating_run
    spec = small(output={"retain": True})
    return install.start(
        tasks.manifest("disturbed", f"pvc://{PROBLEMS}", install.endpoint("slow-answers"), **spec), directory
    )
