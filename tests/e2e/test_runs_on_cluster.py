"""EvalRuns on real pods: the images of Dockerfile.judge, the chart, and kubectl, as a user would."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.cluster.cluster import CommandFailedError
from builders.cluster.controlplane import until
from builders.cluster.install import Installed
from builders.cluster.pages import count_rows, read_page, run_viewed
from builders.cluster.pools import noting_ends
from builders.cluster.runs import FinishedRun, PodObservations, kill, outcome, progress, read_outcome
from builders.cluster.tasks import CHEATS, GRADED, GRADER, GUESSES, Tasks, verdicts_of
from builders.cluster.tasks import cheats as cheats_by_name
from builders.command_line import evalrun, summary, verdicts

ANSWERS = {"results.jsonl", "results.parquet", "summary.json", "metrics.json", "run_info.json", "report.html"}


def test_unrestricted_pods_are_refused_in_the_system_and_run_namespaces(install: Installed) -> None:
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"},
        "spec": {"containers": [{"name": "main", "image": install.images["judge"]}]},
    }  # fmt: skip
    for namespace in (install.system, install.runs):
        with pytest.raises(CommandFailedError, match="violates PodSecurity"):
            install.cluster.apply(namespace, pod)


def test_cluster_run_gives_the_same_verdicts_as_one_machine(
    plain: tuple[FinishedRun, PodObservations],
    on_one_machine: Path,
    tasks: Tasks,
    record_property: Callable[[str, object], None],
) -> None:
    run, seen = plain
    here = verdicts_of((on_one_machine / "results.jsonl").read_text())
    assert len(here) == tasks.total
    assert run.verdicts == here
    metrics = {name: dataset["metrics"] for name, dataset in summary(on_one_machine)["datasets"].items()}
    accepted = {name: f"{measured['accepted_at_1']['value']:.4f}" for name, measured in metrics.items()}
    assert {dataset["name"]: dataset["acceptedAt1"] for dataset in run.status["datasets"]} == accepted
    assert 0 < sum(status == "success" for status in here.values()) < len(here)
    figures = {part: f"{peak / 2**20:.0f} MiB" for part, peak in seen.peak_bytes.items()}
    print(f"from start to end: {run.status['startTime']} to {run.status['completionTime']}; memory at most {figures}")
    record_property("memory", figures)


def test_a_datasets_grader_scores_its_answers(install: Installed, plain: tuple[FinishedRun, PodObservations]) -> None:
    run, _ = plain
    rows = [json.loads(line) for line in install.read(f"{run.outputs}/results.jsonl").splitlines()]
    assert {row["problem_id"]: row["score"] for row in rows if row["dataset"] == GRADED} == GUESSES
    assert {row["problem_id"] for row in rows if row["dataset"] == GRADED and row["accepted"]} == {"4"}
    assert run.info["datasets"][GRADED]["grader_sha256"] == hashlib.sha256(GRADER.encode()).hexdigest()
    metrics = json.loads(install.read(f"{run.outputs}/summary.json"))["datasets"][GRADED]["metrics"]
    assert metrics["score_mean"]["value"] == pytest.approx(sum(GUESSES.values()) / len(GUESSES))


def test_programs_are_fully_contained_and_run_info_reports_level_and_images(
    plain: tuple[FinishedRun, PodObservations],
) -> None:
    run, seen = plain
    assert (seen.sandbox["level"], seen.sandbox["missing"]) == ("full", [])
    assert run.info["containment_levels"] == ["full"]
    assert run.info["images"].keys() == {"aggregator", "generator", "judge", "sandbox"}


def test_outputs_are_written_to_the_volume_of_the_user(
    install: Installed, plain: tuple[FinishedRun, PodObservations], tasks: Tasks
) -> None:
    run, _ = plain
    listed = install.cluster.python(
        install.runs, "files", f"import json, os; print(json.dumps(os.listdir({run.outputs!r})))"
    )
    assert set(json.loads(listed)) >= ANSWERS
    summed = json.loads(install.read(f"{run.outputs}/summary.json"))
    assert summed["counts"]["problems"] == summed["counts"]["judged"] == tasks.total


def test_kubectl_get_shows_a_run_with_its_figures(
    install: Installed, plain: tuple[FinishedRun, PodObservations], tasks: Tasks
) -> None:
    run, _ = plain
    shown = install.cluster.kubectl("get", "er", run.name, "--namespace", install.runs, "--output", "wide")
    header, line = shown.splitlines()
    assert header.split()[:6] == ["NAME", "PHASE", "REASON", "MODEL", "PROGRESS", "PASS@1"]
    assert line.split()[:5] == [run.name, "Succeeded", "Finished", "recorded", f"{tasks.total}/{tasks.total}"]


def test_command_shows_cluster_run_and_fetches_outputs(
    install: Installed, plain: tuple[FinishedRun, PodObservations], tmp_path: Path
) -> None:
    run, where = plain[0], ("--namespace", install.runs)
    brought = evalrun("results", run.name, *where, "--output", tmp_path / "out")
    assert brought.returncode == 0, brought.stdout + brought.stderr
    assert "pass@1" in brought.stdout
    assert verdicts(tmp_path / "out") == run.verdicts
    assert {path.name for path in (tmp_path / "out").iterdir()} >= ANSWERS
    shown = evalrun("status", run.name, *where)
    assert (shown.returncode, "Succeeded" in shown.stdout) == (0, True), shown.stdout + shown.stderr
    told = evalrun("logs", run.name, *where, "--part", "aggregator")
    assert (told.returncode, bool(told.stdout.strip())) == (0, True), told.stderr


def test_run_is_paused_and_its_samples_are_shown_through_its_pod(install: Installed, disturbed_run: str) -> None:
    act = ("ctl", f"er/{disturbed_run}", "--namespace", install.runs)
    next(judged for judged, _ in progress(install, disturbed_run) if judged)
    # A run that is paused does not end meanwhile: what follows needs it.
    paused = evalrun(*act, "pause")
    assert paused.returncode == 0, paused.stderr
    with run_viewed(disturbed_run, install.runs) as data:
        until(lambda: read_page(f"{data}/run.json")["prompts"], "prompts of the run")
        shown = read_page(f"{data}/run.json")
        assert (shown["live"], shown["lost"], count_rows(shown) > 0) == (True, "", True)
        assert len(read_page(f"{data}/prompts.json")) > 0
    resumed = evalrun(*act, "resume")
    assert resumed.returncode == 0, resumed.stderr


def test_pods_killed_during_a_run_change_no_verdict(
    install: Installed, disturbed_run: str, plain: tuple[FinishedRun, PodObservations]
) -> None:
    victims = ["sandbox", "judge", "operator", "aggregator"]
    for judged, total in progress(install, disturbed_run):
        if not victims or judged == 0:
            continue
        assert judged < total, f"the run was over before the {victims[0]} was killed"
        victim = victims.pop(0)
        if victim == "operator":
            kill(install, install.system, install.leading_operator())
        else:
            (pod,) = install.cluster.pods(install.runs, disturbed_run, victim)
            kill(install, install.runs, pod)
    assert not victims
    status = install.wait(disturbed_run)["status"]
    assert status["phase"] == "Succeeded", status["conditions"]
    claim, _, path = status["outputURL"].removeprefix("pvc://").partition("/")
    install.mount("reader", claim)
    run = read_outcome(install, disturbed_run, status, f"/{claim}/{path}", "reader")
    assert run.verdicts == plain[0].verdicts
    assert [item["acceptedAt1"] for item in status["datasets"]] == [
        item["acceptedAt1"] for item in plain[0].status["datasets"]
    ]
    assert run.info["containment_levels"] == ["full"]


def test_no_cheat_gets_a_verdict_that_it_does_not_deserve(install: Installed, cheating_run: str, cheats: Tasks) -> None:
    found = outcome(install, cheating_run).verdicts
    assert len(found) == cheats.total
    wanted = {(CHEATS, name, 0): cheat.verdict for name, cheat in cheats_by_name("x86_64").items()}
    assert {key: (status, wanted[key]) for key, status in found.items() if status != wanted[key]} == {}


def test_deletion_leaves_nothing_but_the_outputs(
    install: Installed, plain: tuple[FinishedRun, PodObservations], disturbed_run: str
) -> None:
    cluster, names = install.cluster, (plain[0].name, disturbed_run)
    install.wait(disturbed_run)
    ours = f"evalrun.dev/run in ({','.join(names)})"
    with noting_ends(cluster, install.runs, ours) as ends:
        cluster.kubectl(
            "delete", "evalrun", *names, "--namespace", install.runs, "--timeout=60s", "--cascade=foreground"
        )
        until(lambda: len(ends) >= 2 * len(names), "aggregators and generators to have ended")
    assert set(ends.values()) == {0}, ends
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--namespaced", "--output", "name").split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))

    def kept() -> list[tuple[str, str]]:
        # Endpoint slices go a moment after their Service, by a controller of their own.
        left = cluster.get(install.runs, listed, "--selector", ours)["items"]
        named = [(item["kind"], item["metadata"]["labels"]["evalrun.dev/run"]) for item in left]
        return [one for one in named if one[0] not in ("EndpointSlice", "Endpoints")]

    until(lambda: len(kept()) <= 1, "pods to be gone, which on a busy node takes a moment after their end")
    assert kept() == [("PersistentVolumeClaim", disturbed_run)]  # what retain keeps
    assert verdicts_of(install.read(f"{plain[0].outputs}/results.jsonl")) == plain[0].verdicts
