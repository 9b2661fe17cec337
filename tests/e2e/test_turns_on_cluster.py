"""EVAL@turns on real pods: recorded answers of each turn, the aggregator killed once turns have opened."""

import json
from pathlib import Path

from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.runs import kill, small
from builders.cluster.tasks import Tasks
from builders.recorded_turns import ANSWERS, BY_HAND, DATASET, HIDDEN, PROTOCOL, ROWS, write_recorded_turns


def test_turns_recover_as_computed_by_hand_though_the_aggregator_is_killed(install: Installed, tmp_path: Path) -> None:
    problems, answers = write_recorded_turns(tmp_path)
    files = {path.name: path for path in (problems, answers)}
    dataset = {"name": DATASET, "source": problems.name}
    tasks = Tasks([dataset], files, [problems.name], [answers.name], len(ANSWERS))
    install.upload(*files.values())
    install.serve_answers("turn-answers", tasks, "--latency-seconds=2", "--max-concurrency=2")
    spec = small(protocol=PROTOCOL)
    name = install.start(
        tasks.manifest("turns", f"pvc://{PROBLEMS}", install.endpoint("turn-answers"), **spec), tmp_path
    )

    def some_judged() -> bool:
        datasets = install.cluster.get(install.runs, "evalrun", name).get("status", {}).get("datasets", [])
        return any(each.get("judged", 0) for each in datasets)

    until(some_judged, "the first verdicts", limit=120)
    (pod,) = install.cluster.pods(install.runs, name, "aggregator")
    kill(install, install.runs, pod)
    status = install.wait(name)["status"]
    assert status["phase"] == "Succeeded", status["conditions"]
    outputs = "/" + status["outputURL"].removeprefix("pvc://")
    rows = [json.loads(line) for line in install.read(f"{outputs}/results.jsonl").splitlines()]
    assert [(row["problem_id"], row["turn"]) for row in rows] == ROWS
    metrics = json.loads(install.read(f"{outputs}/summary.json"))["datasets"][DATASET]["metrics"]
    assert {figure: metrics[figure]["value"] for figure in BY_HAND} == BY_HAND
    chats = [
        json.loads(line)["messages"] for line in install.read(f"{outputs}/qa_logs/{DATASET}_qa.jsonl").splitlines()
    ]
    assert not [number for number in HIDDEN if number in json.dumps(chats)]
