"""The objects of the replicas that a schedule keeps: a RayCluster, and the NetworkPolicy of its pods. Pure."""

from evalrun_api.v1alpha1 import EvalRunSpec, EvalSchedule, Rollout
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator.resources.images import ray_image
from evalrun_operator.resources.network import kept_replicas_policy
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.ray_cluster import kept_ray_cluster
from evalrun_operator.settings import OperatorSettings


def kept_cluster(schedule: EvalSchedule, settings: OperatorSettings, number: int) -> Object | None:
    """Return the RayCluster that the schedule would keep now; None if it keeps none."""
    rollout = kept_rollout(schedule)
    if rollout is None:
        return None
    spec = schedule.spec
    claims = [spec.checkpoints.url, *([] if spec.merge is None else [spec.merge.cache])]
    return kept_ray_cluster(_plan(schedule, settings), rollout, number, claims)


def as_made(cluster: Object) -> dict[str, str]:
    """Return the status fields that describe the existing RayCluster, whatever would be created by now."""
    spec = cluster["spec"]
    mode = (spec.get("authOptions") or {}).get("mode")
    return {
        "cluster_uid": str(cluster["metadata"]["uid"]),
        "image": str(spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]),
        "auth": "token" if mode == "token" else "disabled",
    }


def kept_policy(schedule: EvalSchedule, settings: OperatorSettings) -> Object:
    """Return the NetworkPolicy of the replicas."""
    return kept_replicas_policy(_plan(schedule, settings))


def kept_image(schedule: EvalSchedule, settings: OperatorSettings) -> str:
    """Return the image of the replicas."""
    rollout = kept_rollout(schedule)
    return "" if rollout is None else ray_image(_plan(schedule, settings), rollout)


def kept_rollout(schedule: EvalSchedule) -> Rollout | None:
    """Return the replicas that the schedule keeps; None if it keeps none."""
    return None if schedule.spec.replicas is None else schedule.spec.template.rollout


def _plan(schedule: EvalSchedule, settings: OperatorSettings) -> RunPlan:
    """Return the inputs of the objects: those of a run of the template, owned by the schedule and without a token."""
    metadata, spec = schedule.metadata, schedule.spec.template.to_wire()
    # The gates of a template may name LastGood, which only a run's own spec resolves.
    spec.pop("gates", None)
    spec["model"] = {"path": schedule.spec.checkpoints.url}
    if schedule.spec.template.model.token_secret_ref is not None:
        spec["model"]["tokenSecretRef"] = schedule.spec.template.model.token_secret_ref.to_wire()
    created = metadata.creation_timestamp
    if metadata.namespace is None or metadata.uid is None or created is None:
        raise ValueError(f"EvalSchedule {metadata.name} does not come from an API server")
    identity = RunIdentity(metadata.name, metadata.namespace, metadata.uid, created)
    return RunPlan(identity, EvalRunSpec.model_validate(spec), settings, token="", of_schedule=True)
