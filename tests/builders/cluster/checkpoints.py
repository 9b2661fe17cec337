"""A training's volume on a cluster, the EvalSchedule that evaluates its checkpoints, and what that comes to."""

import json
from pathlib import Path

from builders.cluster.cluster import Object
from builders.cluster.install import Installed
from builders.cluster.rollout import rollout_manifest

TRAINING, CACHE = "training", "merged"
"""Claims with the checkpoints and with the models that are merged from them."""
TRAINER = "trainer"
"""A pod that holds both."""
DIRECTORY = "grpo"
TRACKER = "latest_checkpointed_iteration.txt"
SCHEDULE = "grpo"


def bring_checkpoints(install: Installed, directory: Path) -> None:
    """Make both claims, and put the directory of the checkpoints on the training's."""
    claims = [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        for name in (TRAINING, CACHE)
    ]  # fmt: skip
    install.cluster.apply(install.runs, *claims)
    install.mount(TRAINER, TRAINING, CACHE)
    where = ("--namespace", install.runs)
    install.cluster.kubectl("cp", *where, str(directory), f"{TRAINER}:/{TRAINING}/{DIRECTORY}")


def finish_step(install: Installed, step: int) -> None:
    """Write the trainer's file that says up to which step checkpoints are complete."""
    program = f"open('/{TRAINING}/{DIRECTORY}/{TRACKER}', 'w').write('{step}')"
    install.cluster.python(install.runs, TRAINER, program)


def cached_models(install: Installed) -> dict[str, list[str]]:
    """Return the files of each model in the cache, by the model's directory."""
    program = (
        "import json, os; "
        f"print(json.dumps({{directory: sorted(files) for directory, _, files in os.walk('/{CACHE}') if files}}))"
    )
    found: dict[str, list[str]] = json.loads(install.cluster.python(install.runs, TRAINER, program))
    return found


def schedule_manifest(problems: Path, image: str) -> Object:
    """Return an EvalSchedule that starts when it is asked to; its runs are those of `rollout_manifest`."""
    template = rollout_manifest(SCHEDULE, problems, image)["spec"]
    del template["model"]
    template |= {
        "gates": [{"baseline": "LastGood", "dataset": "slow", "maxRegression": "0.02"}],
        "exports": {"wandb": {"project": "checkpoints", "mode": "offline"}},
    }
    merger = {"requests": {"cpu": "200m"}, "limits": {"memory": "4Gi"}}
    return {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalSchedule",
        "metadata": {"name": SCHEDULE},
        "spec": {
            "schedule": "0 3 1 1 *",
            "checkpoints": {"url": f"pvc://{TRAINING}/{DIRECTORY}", "pattern": "global_step_*", "policy": "EveryNew"},
            "merge": {"cache": f"pvc://{CACHE}/models", "resources": merger},
            "template": template,
        },
    }


def await_run(install: Installed, step: int) -> str:
    """Return the name of a step's run once the schedule has made it; prints what the schedule says meanwhile.

    Raises:
        ValueError: the schedule says that something failed.
    """
    said: dict[str, str] = {}
    chosen = f"evalrun.dev/schedule={SCHEDULE},evalrun.dev/step={step}"
    follows = install.cluster.following(install.runs, "evalschedule", SCHEDULE, template="{.status.conditions}")
    with follows as lines:
        for line in lines:
            for condition in json.loads(line or "[]"):
                text = f"{condition['type']}: {condition['status']} {condition['reason']} {condition['message']}"
                if said.get(condition["type"]) != text:
                    print(f"            {text}"[:300], flush=True)
                    said[condition["type"]] = text
                if condition["reason"] in ("ListingFailed", "MergeFailed", "Refused", "Broken"):
                    raise ValueError(text)
            found = install.cluster.get(install.runs, "evalruns", "--selector", chosen)["items"]
            if found:
                return str(found[0]["metadata"]["name"])
    raise ValueError(f"the watch of {SCHEDULE} ended before step {step} had a run")
