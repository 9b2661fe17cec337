"""Chooses the images of a run's parts: from the operator's settings, unless the spec names others."""

from evalrun_api import names
from evalrun_api.v1alpha1 import Judge, Rollout
from evalrun_operator.resources.plan import RunPlan


def images(plan: RunPlan) -> dict[str, str]:
    """Return the images of a run by component, for its audit. The images of a foreign judge are unknown.

    The images are named as requested: only a digest in place of a tag identifies the content.
    """
    settings, judge, rollout = plan.settings, plan.spec.own_judge, plan.spec.rollout
    generator = settings.generator_image if rollout is None else ray_image(plan, rollout)
    found = {names.AGGREGATOR: settings.aggregator_image, names.GENERATOR: generator}
    if judge is not None:
        found |= {names.JUDGE: gateway_image(plan, judge), names.SANDBOX: sandbox_image(plan, judge)}
    return found


def gateway_image(plan: RunPlan, judge: Judge) -> str:
    """Return the image of the judge's gateways."""
    return judge.gateway.image or plan.settings.judge_image


def sandbox_image(plan: RunPlan, judge: Judge) -> str:
    """Return the image in which programs run. Cached verdicts of the gateway are valid for this image only."""
    settings = plan.settings
    if judge.sandbox.image:
        return judge.sandbox.image
    if judge.sandbox.backend == "SandboxFusion":
        return settings.sandbox_fusion_image
    with_verl = any(dataset.grader is not None and dataset.grader.is_verls for dataset in plan.spec.datasets)
    return (settings.sandbox_graders_image if with_verl else "") or settings.sandbox_image


def ray_image(plan: RunPlan, rollout: Rollout) -> str:
    """Return the image of Ray's head and workers."""
    settings = plan.settings
    of_engine = settings.ray_sglang_image if rollout.engine == "sglang" else ""
    return rollout.image or of_engine or settings.ray_image
