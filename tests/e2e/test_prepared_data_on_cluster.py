"""The chart's Job prepares data on a volume; phase 0's dataset list runs on it as it stands, or is refused."""

import json
from pathlib import Path

import pytest
from builders.cluster.chart import Chart
from builders.cluster.install import RESULTS, Installed
from builders.cluster.runs import outcome, small
from builders.cluster.tasks import Tasks
from builders.data import write_jsonl
from builders.governance import PHASE0_DATASETS, leaked_row, phase0_sources, phase0_spec

CLAIM = "eval-data"
"""As phase 0's sample names it."""
SECONDS = 300


def prepare(install: Installed, claim: str, sources: dict[str, Path]) -> str:
    """Bring the sources to a claim of their own and begin the chart's Job there, beside the runs; give its name."""
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": storage}
    install.cluster.apply(install.runs, volume)
    # Beside the results: a run mounts both, and volumes that stay on their node must lie on the same.
    install.mount(f"brings-{claim}", claim, RESULTS)
    for file in sources.values():
        install.cluster.kubectl("cp", "--namespace", install.runs, str(file), f"brings-{claim}:/{claim}/{file.name}")
    plan = {"datasets": [{"name": name, "source": f"/data/{file.name}"} for name, file in sources.items()]}
    registry, _, image = install.images["aggregator"].rpartition("/")
    given = {
        "images": {"registry": registry, "aggregator": {"tag": image.rpartition(":")[2]}},
        "prepareData": {
            "enabled": True, "claim": claim, "plan": plan, "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}
        },
    }  # fmt: skip
    rendered = Chart(install.cluster.helm_binary).render(given, release=claim, namespace=install.runs)
    objects = [item for item in rendered if "prepare-data" in item["metadata"]["name"]]
    install.cluster.apply(install.runs, *objects)
    return next(str(item["metadata"]["name"]) for item in objects if item["kind"] == "Job")


def ended(install: Installed, job: str, condition: str) -> str:
    """Wait for a Job's end and return what its pod logged. Raises CommandFailedError if it ends otherwise."""
    where = ("--namespace", install.runs, f"job/{job}")
    install.cluster.kubectl(
        "wait", *where, f"--for=condition={condition}", f"--timeout={SECONDS}s", seconds=SECONDS + 9
    )
    return install.cluster.kubectl("logs", *where)


@pytest.fixture(scope="module")
def answered(install: Installed, tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    """Phase 0's dataset list, and a server that answers its problems.

    The sources have names of their own on the shared claim, where a published file of the same name lies already.
    """
    directory = tmp_path_factory.mktemp("phase0")
    sources = phase0_sources(directory)
    sources = {name: path.rename(directory / f"phase0-{path.name}") for name, path in sources.items()}
    names = [sources[name].name for name in PHASE0_DATASETS]
    problems = ("HumanEval/0", "MBPP/11", "p0", "p1", "p7", "p8")
    answers = write_jsonl(
        directory / "phase0-answers.jsonl", [{"problem_id": p, "response": "print(1)"} for p in problems]
    )
    files = {path.name: path for path in (*sources.values(), answers)}
    install.upload(*(files[name] for name in (*names, answers.name)))
    tasks = Tasks(phase0_spec()["datasets"], files, names, [answers.name], len(problems))
    install.serve_answers("phase0-answers", tasks)
    return tasks


def test_phase_0_list_runs_on_data_prepared_by_job(install: Installed, answered: Tasks, tmp_path: Path) -> None:
    job = prepare(install, CLAIM, phase0_sources(tmp_path))
    assert "codecontests_train: 2 records, 0 duplicates removed, role train, audit passed" in ended(
        install, job, "Complete"
    )
    manifest = answered.manifest("phase0", "", install.endpoint("phase0-answers"), **small())
    manifest["spec"]["datasets"] = phase0_spec()["datasets"]
    run = outcome(install, install.start(manifest, tmp_path))
    assert len(run.verdicts) == answered.total
    for name in PHASE0_DATASETS:
        assert run.info["datasets"][name]["audit"]["state"] == "passed"
        manifest_sha256 = run.info["datasets"][name]["audit"]["manifest_sha256"]
        audit = json.loads(install.read(f"{run.outputs}/audit/{name}/audit.json"))
        assert audit["datasets"][name]["manifest_sha256"] == manifest_sha256


def test_a_failed_audit_ends_the_job_and_refuses_the_run(install: Installed, answered: Tasks, tmp_path: Path) -> None:
    job = prepare(install, "leaky-data", phase0_sources(tmp_path, leaked_row()))
    assert "codecontests_train/p30 and codecontests_valid/p0" in ended(install, job, "Failed")
    manifest = answered.manifest("leaky", "", install.endpoint("phase0-answers"), **small())
    listed = json.dumps(phase0_spec()["datasets"]).replace(f"pvc://{CLAIM}/", "pvc://leaky-data/")
    manifest["spec"]["datasets"] = json.loads(listed)
    status = install.wait(install.start(manifest, tmp_path))["status"]
    assert status["phase"] == "Failed"
    (complete,) = [each for each in status["conditions"] if each["type"] == "Complete"]
    assert complete["reason"] == "AuditFailed"
    assert complete["message"].startswith("AuditFailed: dataset 'codecontests_valid': its audit failed: see ")
