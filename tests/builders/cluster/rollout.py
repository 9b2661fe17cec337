"""A cluster that can run `spec.rollout`: KubeRay's operator in it, an image with verl and vLLM, a tiny model, problems.

The model's layers add nothing, and it draws one token over and over, up to `maxNewTokens`. With `##` an answer is a
Python comment, so the function that stands in the prompt is the program, the verdicts are known, and judging takes as
long as the functions do. A checkpoint that has unlearnt its task draws a division by zero.
"""

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from builders.cluster.cluster import CONTAINER_SECURITY, POD_SECURITY, RESTRICTED, Cluster, Object
from builders.cluster.controllers import kuberay_crds
from builders.cluster.controlplane import find_binaries, run_builder
from builders.cluster.images import Image, Images
from builders.cluster.install import PROBLEMS, VALUES, Installed
from builders.cluster.runs import small
from builders.data import write_jsonl

ROOT = Path(__file__).parents[3]
DOCKERFILE = "tests/e2e/rollout/Dockerfile"
KUBERAY = "kuberay-operator"
"""KubeRay's name for its account and its role; the test's namespace for it too."""
MODEL = "model"
"""A claim with the model."""
REPLICAS = 1
PROBLEM_COUNT = 36
WRONG_EVERY = 3
TURNS = 80_000_000
"""Of a loop, seconds: 24 of them one after the other take longer than Ray's pods take to go."""
UNLEARNT = "\n1/0"
"""What a program ends with after which no test passes."""
DRAWS_ONE_TOKEN = """
import json, sys
from pathlib import Path
from safetensors.torch import load_file, save_file
directory, says = Path(sys.argv[1]), json.loads(sys.argv[2])
file = directory / "tokenizer.json"
tokenizer = json.loads(file.read_text())
said = next(token for token in tokenizer["added_tokens"] if not token["special"])
said["content"] = says
file.write_text(json.dumps(tokenizer))
weights = load_file(directory / "model.safetensors")
for name, values in weights.items():
    if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight", "lm_head.weight")):
        values.zero_()
weights["model.embed_tokens.weight"][:, 0] = weights["lm_head.weight"][said["id"], 0] = 1
save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
"""
RAY_VALUES: Object = {
    **VALUES,
    "runDefaults": {**VALUES["runDefaults"], "headCpu": "1", "headMemory": "3Gi"},
}


def gen_image(builder: Images, environment: Path) -> Image:
    """Build Dockerfile.gen on a base that holds an environment of `make setup-gen-cpu`.

    The base, 7 GB, is kept beside the other bases. Raises BuildFailedError.
    """
    recipe = (ROOT / DOCKERFILE).read_bytes()
    base = f"localhost/evalrun-gen-cpu:{environment.name}-{hashlib.sha256(recipe).hexdigest()[:8]}"
    if base not in builder.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        builder.buildah(
            "bud", "--quiet", "--isolation", "chroot", "--file", DOCKERFILE,
            f"--build-arg=BASE={builder.bases().build}", "--tag", base, str(environment), seconds=1800,
        )  # fmt: skip
    return builder.build("gen", dockerfile="Dockerfile.gen", BASE=base)


def kuberay_image(builder: Images) -> Image:
    """Put KubeRay's operator, one static program, into an image of its own. Raises MissingBinariesError."""
    program = find_binaries(("ray-operator",))["ray-operator"]
    container = builder.buildah("from", "scratch").strip()
    builder.buildah("add", "--quiet", container, str(program), "/ray-operator")
    builder.buildah("config", "--entrypoint", '["/ray-operator"]', container)
    return Image(builder, builder.buildah("commit", "--quiet", "--timestamp", "0", "--rm", container).split()[-1])


@contextmanager
def kuberay(cluster: Cluster, image: str) -> Iterator[None]:
    """Run KubeRay's operator as its own manifests do; take it away at the end, its CRDs too.

    As a pod: it asks heads by the names of their Services.
    """
    (source,) = run_builder("--source", "kuberay", wanted="KubeRay's role")
    crds = [f"--filename={file}" for file in kuberay_crds()]
    roles = [f"--filename={source / 'config' / 'rbac' / name}" for name in ("role.yaml", "service_account.yaml")]
    binding = yaml.safe_load((source / "config" / "rbac" / "role_binding.yaml").read_text())
    binding["subjects"][0]["namespace"] = KUBERAY
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUBERAY, "labels": RESTRICTED}}
    cluster.apply("default", space)
    try:
        cluster.kubectl("apply", "--server-side", *crds)
        cluster.kubectl("wait", *crds, "--for=condition=Established", "--timeout=100s")
        cluster.kubectl("apply", "--namespace", KUBERAY, *roles)
        cluster.apply(KUBERAY, binding, _kuberay_deployment(image))
        cluster.kubectl("rollout", "status", "--namespace", KUBERAY, f"deployment/{KUBERAY}", "--timeout=100s")
        yield
    finally:
        cluster.kubectl("delete", *crds, "--ignore-not-found", "--timeout=100s")
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", KUBERAY, "--ignore-not-found")
        cluster.kubectl("delete", "namespace", KUBERAY, "--wait=false")


def _kuberay_deployment(image: str) -> Object:
    labels = {"app": KUBERAY}
    container = {
        "name": "main", "image": image, "args": ["--enable-leader-election=false"],
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8082}, "periodSeconds": 1},
    }  # fmt: skip
    pod = {"serviceAccountName": KUBERAY, "containers": [container], "securityContext": POD_SECURITY}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": KUBERAY},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }  # fmt: skip


def known_model(python: Path, directory: Path, says: str = "##") -> Path:
    """Make the tiny model in a directory.

    Args:
        python: with torch and transformers.
        directory: is made.
        says: what it draws over and over.
    """
    make = [str(ROOT / "benchmarks" / "random_model.py"), "--tiny", str(directory)]
    for arguments in (make, ["-c", DRAWS_ONE_TOKEN, str(directory), json.dumps(says)]):
        subprocess.run([str(python), *arguments], check=True, stdout=subprocess.DEVNULL, timeout=300)
    return readable(directory)


def readable(directory: Path) -> Path:
    """Let every user read a directory: who reads it on a volume is not who wrote it."""
    for made in (directory, *directory.rglob("*")):
        made.chmod(0o755 if made.is_dir() else 0o644)
    return directory


def slow_problems(directory: Path) -> tuple[Path, dict[str, str]]:
    """Write problems in HumanEval's form whose prompt is the program; give their file and verdicts by problem."""
    rows, verdicts = [], {}
    for number in range(PROBLEM_COUNT):
        wrong = number % WRONG_EVERY == 0
        body = f"    for turn in range({TURNS}):\n        pass\n    return number + {number + wrong}\n"
        task = f"HumanEval/{number}"
        rows.append(
            {
                "task_id": task, "entry_point": "shifted", "prompt": f"def shifted(number):\n{body}",
                "canonical_solution": "", "test": f"def check(candidate):\n    assert candidate(1) == {number + 1}\n",
            }
        )  # fmt: skip
        verdicts[task] = "wrong_answer" if wrong else "success"
    return write_jsonl(directory / "slow.jsonl", rows), verdicts


def rollout_manifest(name: str, problems: Path, image: str) -> Object:
    """Return an EvalRun with replicas of its own: one GPU and one worker pod each."""
    return {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalRun",
        "metadata": {"name": name},
        "spec": small(
            model={"path": f"pvc://{MODEL}/tiny"},
            datasets=[
                {"name": "slow", "source": f"pvc://{PROBLEMS}/{problems.name}", "limits": {"timeSeconds": 60}},
            ],
            protocol={"maxNewTokens": 16},
            judge={"gateway": {"maxReplicas": 1}, "sandbox": {"maxReplicas": 1, "slots": 1}},
            rollout={
                "image": image, "replicas": REPLICAS, "tensorParallel": 1, "gpusPerNode": 1, "dtype": "float32",
                "enforceEager": True, "maxNumSeqs": 16, "maxNumBatchedTokens": 2048, "promptLength": 512,
                "resources": {
                    "requests": {"cpu": "200m", "ephemeral-storage": "1Gi"},
                    "limits": {"cpu": "2", "memory": "7Gi", "ephemeral-storage": "4Gi"},
                },
            },
        ),
    }  # fmt: skip


def bring_model(install: Installed, directory: Path) -> None:
    """Put the model on a claim of its own, as `tiny`."""
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": MODEL},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    install.cluster.apply(install.runs, claim)
    install.mount("model-files", MODEL)
    install.cluster.kubectl("cp", "--namespace", install.runs, str(directory), f"model-files:/{MODEL}/tiny")


@dataclass
class Course:
    """What became of a run, and when."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By what was first seen then; since the run was applied."""
    judged_when_gone: tuple[int, int] = (0, 0)
    """Answers judged, of how many, when the RayCluster and its pods were seen to be gone."""
    status: Mapping[str, Any] = field(default_factory=dict)


GENERATED, CLUSTER_GONE, PODS_GONE = "Generated", "RayCluster gone", "its pods gone"


def follow(install: Installed, run: str, applied: float) -> Course:
    """Follow a run to its end: whenever its status changes, note what is new.

    Args:
        install: where it runs.
        run: its name.
        applied: `time.monotonic` when it was applied.
    """
    course = Course()

    def saw(what: str) -> None:
        if what not in course.seconds:
            course.seconds[what] = time.monotonic() - applied
            print(f"{course.seconds[what]:7.1f} s  {what}", flush=True)

    with install.cluster.watching(install.runs, run, "{.status}") as lines:
        for line in lines:
            course.status = status = json.loads(line or "{}")
            for condition in status.get("conditions", ()):
                if condition["status"] == "True":
                    saw(condition["type"])
                elif condition["type"] in ("ClusterReady", GENERATED):
                    saw(f"{condition['type']}: {condition['reason']}: {condition['message']}"[:200])
            judged, _, total = str(status.get("progress", "")).partition("/")
            if judged.isdecimal() and int(judged) > 0:
                saw("first answer judged")
            if GENERATED in course.seconds and PODS_GONE not in course.seconds:
                left = _ray_objects(install, run)
                if "RayCluster" not in left:
                    saw(CLUSTER_GONE)
                if not left:
                    saw(PODS_GONE)
                    course.judged_when_gone = int(judged), int(total)
            if "completionTime" in status:
                saw("ended")
                return course
    raise ValueError(f"the watch of {run} ended before the run did")


def _ray_objects(install: Installed, run: str) -> list[str]:
    labels = f"evalrun.dev/run={run},app.kubernetes.io/component=ray"
    return [
        item["kind"] for item in install.cluster.get(install.runs, "rayclusters,pods", "--selector", labels)["items"]
    ]
