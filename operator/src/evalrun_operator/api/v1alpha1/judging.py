"""Who judges: a judge of the run's own, or a shared one."""

from typing import Literal

from pydantic import Field

from evalrun_operator.api.modelling import ApiModel, DnsName, ImageName, Rule, SecretKeyReference

MIN_MAX_RULE = Rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas is above maxReplicas: write minReplicas up to maxReplicas",
    ".minReplicas",
)


class Gateway(ApiModel):
    """The judge gateway's Deployment."""

    min_replicas: int = Field(1, ge=0, le=100, description="Fewest pods; 0 needs KEDA.")
    max_replicas: int = Field(4, ge=1, le=100, description="Most pods.")
    image: ImageName | None = Field(None, description="Unset: the chart's.")

    RULES = (MIN_MAX_RULE,)


class Sandbox(ApiModel):
    """The sandbox pods, in which programs run."""

    backend: Literal["Evalrun", "SandboxFusion"] = Field(
        "Evalrun", description="Evalrun: our executor. SandboxFusion: the stock server behind our slot proxy."
    )
    image: ImageName | None = Field(None, description="Unset: the chart's, by backend.")
    min_replicas: int = Field(1, ge=0, le=1000, description="Fewest pods; 0 needs KEDA.")
    max_replicas: int = Field(8, ge=1, le=1000, description="Most pods.")
    slots: int | None = Field(
        None, ge=1, le=1024, description="Programs that run at once in a pod; unset: the pod's CPUs."
    )
    runtime_class_name: DnsName | None = Field(
        None, description="A RuntimeClass of stronger isolation, e.g. gvisor or kata."
    )

    RULES = (MIN_MAX_RULE,)


class Judge(ApiModel):
    """The run's own judge: it is made with the run and ends with it."""

    gateway: Gateway = Field(Gateway(), description="The gateway: plans sandbox calls, compares, caches.")
    sandbox: Sandbox = Field(Sandbox(), description="The sandboxes: run programs, know no expected output.")


class JudgeReference(ApiModel):
    """A judge that several runs share, e.g. the chart's."""

    name: DnsName = Field(description="Name of the gateway's headless Service.")
    namespace: DnsName | None = Field(None, description="Its namespace; unset: the run's.")
    token_secret_ref: SecretKeyReference | None = Field(
        None, description="The token that it asks for, in a Secret of the run's namespace."
    )
