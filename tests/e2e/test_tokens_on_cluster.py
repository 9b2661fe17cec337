"""Tokens and certificates on real pods: strangers and neighbours try every port of a run and of the shared judge; all
tokens of the run, its certificates and their authority are exchanged while it goes on."""

import base64
import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from builders.cluster.cluster import CommandFailedError
from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.runs import Verdicts, outcome, progress, small
from builders.cluster.tasks import Tasks

from evalrun_api import names
from evalrun_cluster.objects import RunIdentity
from evalrun_operator.certificates.run_certificates import new_certificates

RUN = "rotated"
HOLDERS = {
    names.LEDGER_TOKEN: (names.AGGREGATOR, names.GENERATOR),
    names.OPERATOR_TOKEN: (names.AGGREGATOR,),
    names.GATEWAY_TOKEN: (names.AGGREGATOR, names.JUDGE),
    names.SANDBOX_TOKEN: (names.JUDGE, names.SANDBOX),
}
"""By key, the components whose pods hold it as a file."""
PORTS = {"work": names.LEDGER_TOKEN, "state": names.OPERATOR_TOKEN, "judge": names.GATEWAY_TOKEN,
         "sandbox": names.SANDBOX_TOKEN}  # fmt: skip
"""By what is asked for, the key of the token that opens it."""
GUESSES = {"none": "", "other": "guessed"}
Shown = tuple[str, str, str]
"""Certificate, key, and the authorities that its holder knows."""
SETTLED_SECONDS = 3.0
"""Processes look at their files each second."""
KNOCKS = """
import http.client, json, os, ssl, urllib.error, urllib.request
import grpc
from evalrun_proto.judge.v1 import judge_pb2 as j, judge_pb2_grpc as jg
from evalrun_proto.ledger.v1 import ledger_pb2 as l, ledger_pb2_grpc as lg

def called(method, request, token):
    metadata = [("authorization", "Bearer " + token)] if token else []
    try:
        method(request, metadata=metadata, timeout=20)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return "unreachable"
        return "refused" if error.code() is grpc.StatusCode.UNAUTHENTICATED else "opened"
    return "opened"

def fetched(url, token, context):
    headers = {"Authorization": "Bearer " + token} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20, context=context):
            return "opened"
    except urllib.error.HTTPError as error:
        return "refused" if error.code == 401 else "opened"
    except (OSError, http.client.HTTPException):
        return "unreachable"

def knocked(place, ports, tokens, shown):
    scheme, context = "http", None
    if shown:
        certificate, key, authority = shown
        scheme, context = "https", ssl.create_default_context(cadata=authority)
        memory = os.memfd_create("tls")  # the pod has no directory that can be written
        os.write(memory, (certificate + key).encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")

    def channel(part):
        target = place % part + ":50051"
        if not shown:
            return grpc.insecure_channel(target)
        credentials = grpc.ssl_channel_credentials(authority.encode(), key.encode(), certificate.encode())
        return grpc.secure_channel(target, credentials)

    ledger, judge = lg.LedgerServiceStub(channel("aggregator")), jg.JudgeServiceStub(channel("judge"))
    knock = {
        "work": lambda token: called(ledger.SubmitCompletions, l.SubmitCompletionsRequest(worker_id="knocks"), token),
        "state": lambda token: called(ledger.GetStatus, l.GetStatusRequest(), token),
        "judge": lambda token: called(judge.Describe, j.DescribeRequest(), token),
        "sandbox": lambda token: fetched(scheme + "://" + place % "sandbox" + ":8080/v1/info", token, context),
    }
    return {name: {port: knock[port](token) for port in ports} for name, token in tokens.items()}

print(json.dumps([[knocked(*given, shown) for shown in certificates] for *given, certificates in DOORS]))
"""
HOLDS = """
import os, time
file = FILE
settled = time.time() - os.stat(file).st_mtime > SECONDS
print(settled and open(file).read().split() == TOKENS)
"""


def test_every_port_is_closed_without_its_token_and_a_certificate_and_rotation_changes_no_verdict(
    install: Installed, paced_tasks: tuple[Tasks, Verdicts], directory: Path
) -> None:
    tasks, wanted = paced_tasks
    judge = {"gateway": {"maxReplicas": 1}, "sandbox": {"maxReplicas": 1, "slots": 1}}
    spec = small(judge=judge)
    install.start(tasks.manifest(RUN, f"pvc://{PROBLEMS}", install.endpoint("paced-answers"), **spec), directory)
    for judged, _ in progress(install, RUN):
        if judged:
            break
    first, before = tokens_of(install), pods(install)
    old, replaced = certificates_of(install), other_certificates(install)
    assert len(set(first.values())) == len(first) == 4
    strangers = None, shown(old, names.SANDBOX), (*shown(replaced)[:2], old[names.AUTHORITY_KEY])
    own = Doors(host_of_run(install), list(PORTS), {**first, **GUESSES}, [shown(old), *strangers])
    shared = doors_of_shared_judge(install, {**first, **GUESSES}, shown(old))
    with (
        install.another_namespace("strangers") as there,
        install.open_to_all(install.runs),
        install.open_to_all(install.system),
    ):
        there.mount("stranger")
        for namespace, pod in ((there.runs, "stranger"), (install.runs, "files")):
            for known, *unknown in knock(install, namespace, pod, own, shared):
                check(known)
                assert_nothing_opens(unknown)

    new = {key: secrets.token_hex(32) for key in HOLDERS}
    write(install, {key: [first[key], new[key]] for key in HOLDERS}, trusting(old, old, replaced))
    write(install, {key: [new[key], first[key]] for key in HOLDERS}, trusting(replaced, replaced, old))
    write(install, {key: [new[key]] for key in HOLDERS}, replaced)
    judged, total = map(int, install.cluster.get(install.runs, "evalrun", RUN)["status"]["progress"].split("/"))
    assert judged < total, "the run was over before the tokens were exchanged"
    tokens = {**{f"old {key}": first[key] for key in HOLDERS}, **new}
    stale = *shown(old)[:2], replaced[names.AUTHORITY_KEY]
    doors = Doors(host_of_run(install), list(PORTS), tokens, [shown(replaced), stale])
    with install.open_to_all(install.runs):
        ((found, *unknown),) = knock(install, install.runs, "files", doors)
    check(found)
    assert_nothing_opens(unknown)

    run = outcome(install, RUN)
    assert run.verdicts == wanted
    assert run.status["notJudged"] == "0"
    assert run.status["attempts"] == 1
    assert {uid: restarts for uid, restarts in pods(install).items() if uid in before and restarts} == {}
    print(f"{judged} of {total} judged when all tokens were new; {json.dumps(found)}")


def check(found: dict[str, dict[str, str]]) -> None:
    """Where an enforcer of NetworkPolicies is at work, ports may be out of reach: that is closed as well."""
    for key, ports in found.items():
        for port, answer in ports.items():
            assert answer in ({"opened", "unreachable"} if PORTS[port] == key else {"refused", "unreachable"}), (
                key, port, answer,
            )  # fmt: skip


def assert_nothing_opens(found: list[dict[str, dict[str, str]]]) -> None:
    """Without a certificate that the parts take, no call gets as far as a token."""
    assert {answer for ports in found for answers in ports.values() for answer in answers.values()} == {"unreachable"}


@dataclass(frozen=True)
class Doors:
    """Ports of one judge or run, and what they are tried with."""

    host: str
    """With %s for the part's name."""
    ports: list[str]
    tokens: dict[str, str]
    certificates: list[Shown | None]


def host_of_run(install: Installed) -> str:
    return f"{RUN}-%s.{install.runs}.svc"


def doors_of_shared_judge(install: Installed, tokens: dict[str, str], of_run: Shown) -> Doors:
    """Return the shared judge's ports, to be tried with its own tokens and a run's.

    The first certificate is that of its callers; the others are none, its sandboxes', and one that a run issued.
    """
    caller, sandbox = (
        secret_of(install, f"evalrun-{part}-tls", install.system) for part in ("judge-caller", "sandbox")
    )
    callers, sandboxes = ((one["tls.crt"], one["tls.key"], one["ca.crt"]) for one in (caller, sandbox))
    opens = {
        names.GATEWAY_TOKEN: secret_of(install, "evalrun-judge-token", install.system)["token"],
        names.SANDBOX_TOKEN: secret_of(install, "evalrun-sandbox-token", install.system)["token"],
    }
    tried = {f"of a run: {key}" if key in HOLDERS else key: token for key, token in tokens.items()}
    certificates = [callers, None, sandboxes, (*of_run[:2], caller["ca.crt"])]
    return Doors(f"evalrun-%s.{install.system}.svc", ["judge", "sandbox"], {**opens, **tried}, certificates)


def knock(install: Installed, namespace: str, pod: str, *doors: Doors) -> list[list[dict[str, dict[str, str]]]]:
    """Return by doors, for each certificate, what every port answers to every token."""
    given = [(one.host, one.ports, one.tokens, one.certificates) for one in doors]
    answers: list[list[dict[str, dict[str, str]]]] = json.loads(
        install.cluster.python(namespace, pod, KNOCKS.replace("DOORS", repr(given)))
    )
    return answers


def secret_of(install: Installed, name: str = names.token_secret(RUN), namespace: str = "") -> dict[str, str]:
    data: dict[str, str] = install.cluster.get(namespace or install.runs, "secret", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def tokens_of(install: Installed) -> dict[str, str]:
    held = secret_of(install)
    return {key: held[key].split()[0] for key in HOLDERS}


def certificates_of(install: Installed) -> dict[str, str]:
    return {key: text for key, text in secret_of(install).items() if key.endswith((".crt", ".key"))}


def other_certificates(install: Installed) -> dict[str, str]:
    metadata = install.cluster.get(install.runs, "evalrun", RUN)["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    run = RunIdentity(RUN, install.runs, metadata["uid"], created)
    return new_certificates(run, secrets.token_hex(32))


def shown(certificates: dict[str, str], part: str = names.GENERATOR) -> Shown:
    """Return what a client shows with a part's certificate, and the authorities that it knows."""
    certificate, key = names.certificate_keys(part)
    return certificates[certificate], certificates[key], certificates[names.AUTHORITY_KEY]


def trusting(certificates: dict[str, str], *authorities: dict[str, str]) -> dict[str, str]:
    return {**certificates, names.AUTHORITY_KEY: "".join(one[names.AUTHORITY_KEY] for one in authorities)}


def pods(install: Installed) -> dict[str, int]:
    """Return by uid how often a pod's containers were started again."""
    found: list[Any] = install.cluster.get(install.runs, "pods", "--selector", f"evalrun.dev/run={RUN}")["items"]
    return {
        pod["metadata"]["uid"]: sum(state["restartCount"] for state in pod["status"].get("containerStatuses", ()))
        for pod in found
    }


def write(install: Installed, tokens: dict[str, list[str]], certificates: dict[str, str]) -> None:
    """Change the run's Secret, and wait until each pod holds it: an annotation spares the kubelet's minute."""
    cluster, where = install.cluster, ("--namespace", install.runs)
    patch = {"stringData": {**certificates, **{key: "\n".join(lines) for key, lines in tokens.items()}}}
    cluster.kubectl("patch", "secret", names.token_secret(RUN), *where, "--patch", json.dumps(patch))
    note = f"example.org/touched={secrets.token_hex(4)}"
    cluster.kubectl("annotate", "pods", "--selector", f"evalrun.dev/run={RUN}", *where, "--overwrite", note)
    for key, components in HOLDERS.items():
        program = HOLDS.replace("FILE", repr(f"{names.IDENTITY_DIRECTORY}/{key}"))
        program = program.replace("SECONDS", str(SETTLED_SECONDS)).replace("TOKENS", repr(tokens[key]))
        for component in components:
            for pod in cluster.pods(install.runs, RUN, component):
                until(partial(holds_or_ended, install, component, pod, program), f"{pod} to hold {key}", 150.0)


def holds_or_ended(install: Installed, component: str, pod: str, program: str) -> bool:
    """Return whether a pod holds what it should; the generator's ends as soon as every answer is stored."""
    try:
        return install.cluster.python(install.runs, pod, program).strip() == "True"
    except CommandFailedError:
        return pod not in install.cluster.pods(install.runs, RUN, component)
