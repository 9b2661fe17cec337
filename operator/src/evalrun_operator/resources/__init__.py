"""Manifests of a run's objects, as pure functions of (run, spec, settings, token), one module per part.

No clock, no I/O, no decision about when: `lifecycle.reconcile` decides which objects a run needs now.
"""

from evalrun_operator.resources.aggregator import aggregator_service, aggregator_stateful_set, ledger_claim
from evalrun_operator.resources.autoscaling import autoscaler
from evalrun_operator.resources.generator import generator_job, generator_ray_job, kept_generator_job
from evalrun_operator.resources.judge import judge_deployment, judge_disruption_budget, judge_service
from evalrun_operator.resources.network import network_policies
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.ray_cluster import ray_cluster
from evalrun_operator.resources.run_config import judge_tls_secret, order_config_map, token_secret
from evalrun_operator.resources.sandbox import count_slots, sandbox_deployment, sandbox_service

__all__ = [
    "RunPlan",
    "aggregator_service",
    "aggregator_stateful_set",
    "autoscaler",
    "count_slots",
    "generator_job",
    "generator_ray_job",
    "judge_deployment",
    "judge_disruption_budget",
    "judge_service",
    "judge_tls_secret",
    "kept_generator_job",
    "ledger_claim",
    "network_policies",
    "order_config_map",
    "ray_cluster",
    "sandbox_deployment",
    "sandbox_service",
    "token_secret",
]
