"""EVAL@turns on real pods: recorded answers of each turn, the aggregator killed once turns have opened.

The run's certificates are the user's own: Secrets as cert-manager writes them.
"""

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path

from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.runs import kill, small
from builders.cluster.tasks import Tasks
from builders.recorded_turns import ANSWERS, BY_HAND, DATASET, HIDDEN, PROTOCOL, ROWS, write_recorded_turns

from evalrun_operator.resources.certificates import Usage, issue

SECRET_OF = {
    "aggregator": "evals-tls", "gateway": "evals-tls", "sandbox": "evals-sandbox-tls", "generator": "evals-client-tls",
    "operator": "evals-client-tls",
}  # fmt: skip


def bring_certificates(install: Installed) -> dict[str, dict[str, str]]:
    """Make Secrets with certificates of one authority for all runs of the namespace; gives `spec.tlsSecretRefs`."""
    every = [f"*.{install.runs}.svc"]
    parts = {"evals-tls": Usage(every), "evals-sandbox-tls": Usage(every, calls=False), "evals-client-tls": Usage()}
    issued = issue("evals", parts, datetime.now(UTC), secrets.token_hex(32))
    for name, one in issued.by_part.items():
        files = {"tls.crt": one.chain, "tls.key": one.key, "ca.crt": issued.authority}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls"}
        install.cluster.apply(install.runs, {**secret, "stringData": files})
    return {part: {"name": name} for part, name in SECRET_OF.items()}


def test_turns_recover_as_computed_by_hand_though_the_aggregator_is_killed(install: Installed, tmp_path: Path) -> None:
    problems, answers = write_recorded_turns(tmp_path)
    files = {path.name: path for path in (problems, answers)}
    dataset = {"name": DATASET, "source": problems.name}
    tasks = Tasks([dataset], files, [problems.name], [answers.name], len(ANSWERS))
    install.upload(*files.values())
    install.serve_answers("turn-answers", tasks, "--latency-seconds=2", "--max-concurrency=2")
    spec = small(protocol=PROTOCOL, tlsSecretRefs=bring_certificates(install))
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
    made = install.cluster.get(install.runs, "secret", f"{name}-token")["data"]
    assert not [key for key in made if key.endswith((".crt", ".key"))]
    outputs = "/" + status["outputURL"].removeprefix("pvc://")
    rows = [json.loads(line) for line in install.read(f"{outputs}/results.jsonl").splitlines()]
    assert [(row["problem_id"], row["turn"]) for row in rows] == ROWS
    metrics = json.loads(install.read(f"{outputs}/summary.json"))["datasets"][DATASET]["metrics"]
    assert {figure: metrics[figure]["value"] for figure in BY_HAND} == BY_HAND
    chats = [
        json.loads(line)["messages"] for line in install.read(f"{outputs}/qa_logs/{DATASET}_qa.jsonl").splitlines()
    ]
    assert not [number for number in HIDDEN if number in json.dumps(chats)]
