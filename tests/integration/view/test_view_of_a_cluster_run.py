"""`evalrun view er/NAME`: the aggregator's feed over a port-forward as the kubelet speaks it, the API is a double."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.forwarding_api import ForwardingApi, api_served
from builders.operator.world import evalrun
from builders.results.samples import sample_result, verdict
from builders.results.stored_runs import write_run
from builders.results.view_server import cluster_runs_viewed, namespace_viewed

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.ledger.store import LedgerWriter
from evalrun_aggregator.sample_feed.feed_server import FeedServer, join_prompts
from evalrun_cli.viewer.cluster_run import AggregatorLink, ClusterRunView
from evalrun_cli.viewer.run_view import ShownRun
from evalrun_cli.viewer.server import Runs, encode_runs
from evalrun_cluster.errors import UnreachableError
from evalrun_cluster.runs import connect
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

pytestmark = pytest.mark.timeout(120)


class Pod:
    """An aggregator's ledger and feed."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.writer = LedgerWriter(ledger)
        self.writer.begin()
        self.writer.add_problems([("demo", f"set/{number}") for number in range(1000)])
        self.writer.commit()

    def iter_prompts(self, first: int) -> Iterator[JsonObject]:
        for number in range(first, 1000):
            messages: list[JsonObject] = [{"role": "user", "content": f"prompt {number}"}]
            yield {"dataset": "demo", "problem": f"set/{number}", "messages": [*messages]}

    def judge(self, numbers: range, moment: float = 9.0) -> None:
        made = verdict(["success"])
        self.writer.begin()
        for number in numbers:
            row = pack_row(number, 0, 0)
            self.writer.add_completions([StoredCompletion(row, f"answer {number}", started_at=1.0)])
            stored = StoredVerdict(
                row, made.SerializeToString(), made.final_status, judged=True, accepted=True, recorded_at=moment
            )
            self.writer.add_verdicts([stored])
        self.writer.commit()


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod(tmp_path / "ledger.sqlite")
    yield made
    made.writer.close()


@pytest.fixture
async def feed(pod: Pod) -> AsyncIterator[int]:
    server = FeedServer(pod.ledger, 0, pod.iter_prompts)
    yield await server.start()
    await server.stop()


def wire(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", **evalrun().to_wire(), "status": status}


def ended(outputs: Path) -> dict[str, Any]:
    complete = {
        "type": "Complete", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return wire(phase="Succeeded", outputURL=outputs.as_uri(), conditions=[complete])


def rows_of(description: dict[str, Any]) -> int:
    return sum(segment["rows"] for segment in description["segments"])


async def described(view: ClusterRunView, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the description once it is so, as the page asks for it again and again."""
    while True:
        found: dict[str, Any] = await asyncio.to_thread(view.description)
        if is_so(found):
            return found
        await asyncio.sleep(0.05)  # the pace of a poll


async def test_view_of_cluster_run_follows_growth_loss_and_recovery(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(600))
    api = ForwardingApi(wire(phase="Generating"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with cluster_runs_viewed("run") as views:
            view = views["run"]
            found = await described(view, lambda each: rows_of(each) == 600)
            assert (found["live"], found["state"], found["lost"]) == (True, "Generating", "")
            texts = view.open_file(found["segments"][0]["texts"]["file"])
            assert texts is not None
            with texts:
                assert json.loads(texts.readlines()[7])["response"] == "answer 7"

            await api.cut()
            api.is_away = True
            found = await described(view, lambda each: bool(each["lost"]))
            assert rows_of(found) == 600
            pod.judge(range(600, 700), moment=10.0)
            api.is_away = False
            found = await described(view, lambda each: rows_of(each) == 700)
            assert found["lost"] == ""


async def test_page_that_ends_leaves_no_connection_to_the_pod(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(5))
    async with api_served(ForwardingApi(wire(phase="Judging"), feed), tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with cluster_runs_viewed("run") as views:
            await described(views["run"], lambda each: rows_of(each) == 5)
        left = [task for task in asyncio.all_tasks() if "PortForward" in repr(task)]
    assert left == []


def test_connect_kubeconfig_that_is_no_yaml_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("users: [{name: a:")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(BadInputError, match=r"no cluster: .*: set KUBECONFIG"):
        connect(None)


async def test_run_that_ends_is_shown_from_its_outputs(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(5))
    api = ForwardingApi(wire(phase="Judging"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with cluster_runs_viewed("run") as views:
            await described(views["run"], lambda each: rows_of(each) == 5)
            outputs = write_run(tmp_path / "outputs", [sample_result(f"set/{number}") for number in range(20)])
            api.has_pod = False
            api.run = ended(outputs)
            found = await described(views["run"], lambda each: not each["live"] and each["complete"])
            assert rows_of(found) == 20
            assert found["place"] == "EvalRun evals/run"


def prompt_of(view: ClusterRunView, problem: str) -> str:
    index, texts = view.open_file("prompts.json"), view.open_file("prompts.jsonl")
    assert index is not None
    assert texts is not None
    with index, texts:
        (place,) = [each["place"] for each in json.load(index) if each["problem"] == problem]
        texts.seek(place[0])
        return str(json.loads(texts.read(place[1]))["messages"][0]["content"])


async def test_prompts_of_a_running_run_are_shown_and_stay_once_it_has_ended(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(5))
    api = ForwardingApi(wire(phase="Judging"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with cluster_runs_viewed("run") as views:
            await described(views["run"], lambda each: bool(each["prompts"]))
            assert prompt_of(views["run"], "set/999") == "prompt 999"
            outputs = write_run(tmp_path / "outputs", [sample_result(f"set/{number}") for number in range(20)])
            api.has_pod = False
            api.run = ended(outputs)
            found = await described(views["run"], lambda each: not each["live"] and each["complete"])
            assert found["prompts"]
            assert prompt_of(views["run"], "set/7") == "prompt 7"


@pytest.mark.parametrize(("length", "number"), [(10, 256), (400_000, 3), (3_000_000, 1)])
def test_join_prompts_stops_at_the_limits_of_one_answer(length: int, number: int) -> None:
    prompts: list[JsonObject] = [{"messages": "x" * length}] * 300
    assert join_prompts(iter(prompts)).count(b"\n") == number
    assert join_prompts(iter(())) == b""


async def test_page_that_ends_while_outputs_are_fetched_does_not_hang(
    feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch waits for the loop in which the page ends."""
    outputs = write_run(tmp_path / "outputs", [sample_result("set/1")])
    api = ForwardingApi(ended(outputs), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with cluster_runs_viewed("run") as views:
            await described(views["run"], lambda _: api.execs_held > 0)


async def test_view_of_unreachable_samples_shows_cause_and_remedy(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ForwardingApi(wire(phase="Preparing"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        with pytest.raises(BadInputError, match="there is no EvalRun nobody in namespace evals: name it, or its -n"):
            async with cluster_runs_viewed("nobody"):
                pass
        async with cluster_runs_viewed("run") as views:
            api.has_pod = False
            found = await described(views["run"], lambda each: bool(each["lost"]))
            assert found["lost"].startswith("EvalRun run has no aggregator now: it is Preparing: ")
            api.has_pod, api.is_forbidden = True, True
            found = await described(views["run"], lambda each: "right" in each["lost"])
            assert found["lost"].endswith("you need the right `create` on pods/portforward in namespace evals")
            api.is_forbidden, port = False, api.port
            api.port = 1
            found = await described(views["run"], lambda each: "image" in each["lost"])
            assert "shows no samples on port 9092" in found["lost"]
            api.port = port
            await described(views["run"], lambda each: not each["lost"])


async def shown(runs: Runs, is_so: Callable[[Mapping[str, ShownRun]], bool]) -> Mapping[str, ShownRun]:
    """Return the runs once they are so, as the page asks for them again and again."""
    while True:
        found = await asyncio.to_thread(runs)
        if is_so(found):
            return found
        await asyncio.sleep(0.05)  # the pace of a poll


async def test_runs_of_a_namespace_appear_and_leave_for_their_outputs_without_another_right(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(5))
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    api = ForwardingApi(ended(outputs / "run"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with namespace_viewed(outputs) as runs:
            await shown(runs, lambda each: not each)
            api.run = wire(phase="Judging")
            live = (await shown(runs, lambda each: "run" in each))["run"]
            assert isinstance(live, ClusterRunView)
            await described(live, lambda each: rows_of(each) == 5)

            write_run(outputs / "run", [sample_result(f"set/{number}") for number in range(20)])
            api.run = ended(outputs / "run")
            found = (await shown(runs, lambda each: not each["run"].is_live))["run"]
            assert found.place == str(outputs / "run")
            assert api.execs_held == 0


async def test_namespace_that_cannot_be_listed_is_shown_with_the_reason(
    feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ForwardingApi(wire(phase="Judging"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with namespace_viewed() as runs:
            await shown(runs, lambda each: set(each) == {"run"})
            api.may_list = False
            found = await shown(runs, lambda each: len(each) == 2)
            listed: Any = json.loads(encode_runs(found))["runs"]
            (error,) = [each["error"] for each in listed if "error" in each]
            assert "listing EvalRuns" in error
            api.may_list = True
            await shown(runs, lambda each: set(each) == {"run"})


async def test_evalrun_that_cannot_be_read_is_listed_with_the_reason(
    feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ForwardingApi(wire(phase="Judging"), feed)
    api.others.append({**api.run, "metadata": {**api.run["metadata"], "name": "newer"}, "spec": {"model": 1}})
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with namespace_viewed() as runs:
            found = await shown(runs, lambda each: set(each) == {"run", "newer"})
            listed: Any = json.loads(encode_runs(found))["runs"]
            (newer,) = [each for each in listed if "error" in each]
            assert (newer["id"], newer["place"]) == ("newer", "EvalRun evals/newer")
            assert newer["error"].startswith("EvalRun newer cannot be read: spec.")
            assert newer["error"].endswith(": use the evalrun of the release that wrote it")


async def test_namespace_that_does_not_answer_keeps_no_request_waiting(
    feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "outputs" / "stored", [sample_result("set/1")])
    api = ForwardingApi(wire(phase="Judging"), feed)
    api.answers.clear()
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with namespace_viewed(tmp_path / "outputs") as runs:
            assert set(await asyncio.to_thread(runs)) == {"stored"}  # and no reason: the first list is on its way
            api.answers.set()
            found = await shown(runs, lambda each: set(each) == {"stored", "run"})
            api.run = wire(phase="Generating")
            await shown(runs, lambda each: each["run"].headline()["state"] == "Generating")
            assert api.gets == 0

            api.answers.clear()
            describing = asyncio.create_task(asyncio.to_thread(found["run"].description))
            await asyncio.sleep(0.05)  # it asks for the pod, and waits
            await asyncio.to_thread(lambda: encode_runs(runs()))
            assert not describing.done()
            api.answers.set()
            await describing


async def test_answer_of_an_aggregator_that_is_too_long_is_not_read_to_its_end(
    pod: Pod, feed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.judge(range(600))
    api = ForwardingApi(wire(phase="Judging"), feed)
    async with api_served(api, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        cluster = connect(None)
        link = AggregatorLink(cluster, "run", max_answer_bytes=1000)
        try:
            run = await cluster.get("run")
            assert run is not None
            assert await link.get(run, "recorded?since=10") == b"[]"
            with pytest.raises(UnreachableError, match="answers with more than 1000 bytes"):
                await link.get(run, "recorded?since=0")
        finally:
            await link.close()
            await cluster.close()
