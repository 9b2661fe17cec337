"""EVAL@turns on real pods: recorded answers of each turn, the aggregator killed once turns have opened.

The run's certificates are the user's own, Secrets as cert-manager writes them. They are renewed in mid-run, at
first with keys that are not theirs.
"""

import json
import secrets
from pathlib import Path

from builders.cluster.certificates import Issuer, tls_secrets
from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.runs import kill, small
from builders.cluster.tasks import Tasks
from builders.recorded_turns import ANSWERS, BY_HAND, DATASET, HIDDEN, PROTOCOL, ROWS, write_recorded_turns

from evalrun_operator.certificates.issuing import Usage

SECRET_OF = {
    "aggregator": "evals-tls", "gateway": "evals-tls", "sandbox": "evals-sandbox-tls", "generator": "evals-client-tls",
    "operator": "evals-client-tls",
}  # fmt: skip
REFERENCES = {part: {"name": name} for part, name in SECRET_OF.items()}


ASKS_WHAT_IS_SHOWN = """
import ssl
print(ssl.get_server_certificate((HOST, 50051), timeout=20), end="")
"""
KEPT = "the last that could be used stay in use"
"""In the log of a service whose new files cannot be used."""


def issuer(install: Installed) -> Issuer:
    every = [f"*.{install.runs}.svc"]
    usages = {"evals-tls": Usage(every), "evals-sandbox-tls": Usage(every, calls=False), "evals-client-tls": Usage()}
    return Issuer(usages)


def conditions(install: Installed, run: str) -> str:
    return json.dumps(install.cluster.get(install.runs, "evalrun", run)["status"]["conditions"])


def shown_and_logged(install: Installed, run: str, gateway: str) -> tuple[str, str]:
    """Return the certificate that the gateway shows now, and its log; a handshake makes it look at its files.

    The gateway's own pod asks: no policy lets others in.
    """
    host = f"{run}-judge.{install.runs}.svc"
    shown = install.cluster.python(install.runs, gateway, ASKS_WHAT_IS_SHOWN.replace("HOST", repr(host)))
    return shown, install.cluster.kubectl("logs", "--namespace", install.runs, gateway)


def touch_pods(install: Installed, run: str) -> None:
    """Change an annotation of a run's pods, which spares the kubelet's minute until they see a changed Secret."""
    where = ("--namespace", install.runs, "--selector", f"evalrun.dev/run={run}")
    install.cluster.kubectl("annotate", "pods", *where, "--overwrite", f"example.org/touched={secrets.token_hex(4)}")


def test_turns_recover_as_computed_by_hand_though_the_aggregator_is_killed(install: Installed, tmp_path: Path) -> None:
    problems, answers = write_recorded_turns(tmp_path)
    files = {path.name: path for path in (problems, answers)}
    dataset = {"name": DATASET, "source": problems.name}
    tasks = Tasks([dataset], files, [problems.name], [answers.name], len(ANSWERS))
    install.upload(*files.values())
    install.serve_answers("turn-answers", tasks, "--latency-seconds=2", "--max-concurrency=2")
    authority = issuer(install)
    first = authority.issue()
    install.cluster.apply(install.runs, *tls_secrets(first))
    spec = small(protocol=PROTOCOL, tlsSecretRefs=REFERENCES)
    name = install.start(
        tasks.manifest("turns", f"pvc://{PROBLEMS}", install.endpoint("turn-answers"), **spec), tmp_path
    )

    def some_judged() -> bool:
        datasets = install.cluster.get(install.runs, "evalrun", name).get("status", {}).get("datasets", [])
        return any(each.get("judged", 0) for each in datasets)

    until(some_judged, "the first verdicts", limit=120)
    unfit, renewed = authority.issue(), authority.issue()
    for one, other in zip(unfit.values(), renewed.values(), strict=True):
        one["tls.key"] = other["tls.key"]
    install.cluster.apply(install.runs, *tls_secrets(unfit))
    touch_pods(install, name)
    (pod,) = install.cluster.pods(install.runs, name, "aggregator")
    kill(install, install.runs, pod)  # the next one cannot start
    until(lambda: "no certificate and its key" in conditions(install, name), "the cause in the conditions", limit=120)
    (gateway,) = install.cluster.pods(install.runs, name, "judge")
    until(lambda: KEPT in shown_and_logged(install, name, gateway)[1], "the gateway to keep its files", limit=150)
    assert shown_and_logged(install, name, gateway)[0] == first["evals-tls"]["tls.crt"]
    install.cluster.apply(install.runs, *tls_secrets(renewed))
    touch_pods(install, name)
    until(
        lambda: shown_and_logged(install, name, gateway)[0] == renewed["evals-tls"]["tls.crt"],
        "the gateway to show its renewed certificate",
        limit=150,
    )
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
