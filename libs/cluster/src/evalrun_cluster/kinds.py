"""The kinds of objects that the operator creates and watches, with their API paths."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of object."""

    kind: str
    group: str
    version: str
    plural: str
    optional: bool = False
    """Its CRD may be missing."""
    made: bool = True
    """The operator makes it; otherwise it only watches it."""

    @property
    def api_version(self) -> str:
        """Group and version as a manifest holds them."""
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS: dict[str, Kind] = {
    kind.kind: kind
    for kind in (
        Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
        Kind("ConfigMap", "", "v1", "configmaps"),
        Kind("Service", "", "v1", "services"),
        Kind("Pod", "", "v1", "pods", made=False),
        Kind("StatefulSet", "apps", "v1", "statefulsets"),
        Kind("Deployment", "apps", "v1", "deployments"),
        Kind("Job", "batch", "v1", "jobs"),
        Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
        Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
        Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
        Kind("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects", optional=True),
        Kind("RayCluster", "ray.io", "v1", "rayclusters", optional=True),
        Kind("RayJob", "ray.io", "v1", "rayjobs", optional=True),
    )
}
"""The kinds by name. The Secret is not among them: it is read by name only, so that the operator need not list Secrets.
"""

SECRET = Kind("Secret", "", "v1", "secrets")
EVENT = Kind("Event", "", "v1", "events")
EVAL_RUN = Kind("EvalRun", "evalrun.dev", "v1alpha1", "evalruns", made=False)
EVAL_SCHEDULE = Kind("EvalSchedule", "evalrun.dev", "v1alpha1", "evalschedules", optional=True, made=False)
"""Optional: an operator may be newer than the CRDs, which Helm does not upgrade by itself."""
WORKLOAD = Kind("Workload", "kueue.x-k8s.io", "v1beta1", "workloads", optional=True, made=False)
"""Kueue's record of what it queues; read only of what it holds back."""
LEASE = Kind("Lease", "coordination.k8s.io", "v1", "leases", made=False)
