"""The run's judge: its own, or a shared one."""

from typing import Annotated, Literal

from pydantic import Field

from evalrun_api.api_model import (
    ApiModel,
    DnsName,
    ImageName,
    LocalObjectReference,
    Resources,
    Rule,
    SecretKeyReference,
    list_type,
)

MIN_MAX_RULE = Rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas is above maxReplicas: write minReplicas up to maxReplicas",
    ".minReplicas",
)


class Gateway(ApiModel):
    """The judge gateway's Deployment."""

    min_replicas: int = Field(1, ge=0, le=100, description="Minimum number of pods; 0 needs KEDA.")
    max_replicas: int = Field(4, ge=1, le=100, description="Maximum number of pods.")
    image: ImageName | None = Field(None, description="Unset: the chart's.")
    resources: Resources | None = Field(
        None,
        description="Resources of the gateway's container, e.g. for a quota that requires limits; unset: the chart's.",
    )

    RULES = (MIN_MAX_RULE,)


class Sandbox(ApiModel):
    """The sandbox pods, in which programs run."""

    backend: Literal["Evalrun", "SandboxFusion"] = Field(
        "Evalrun", description="Evalrun: our executor. SandboxFusion: the stock server behind our slot proxy."
    )
    image: ImageName | None = Field(None, description="Unset: the chart's, by backend.")
    min_replicas: int = Field(1, ge=0, le=1000, description="Minimum number of pods; 0 needs KEDA.")
    max_replicas: int = Field(8, ge=1, le=1000, description="Maximum number of pods.")
    slots: int | None = Field(
        None, ge=1, le=1024, description="Programs that run at once in a pod; unset: the pod's CPUs."
    )
    resources: Resources | None = Field(
        None,
        description="Resources of the container that runs programs; unset: one CPU and the chart's memory for each "
        "slot. With less memory than slots x a test's limit, programs are killed that would have passed.",
    )
    runtime_class_name: DnsName | None = Field(
        None, description="A RuntimeClass with stronger isolation, e.g. gvisor or kata."
    )
    packages: list[Annotated[str, Field(max_length=256, pattern=r"^/[^:]+$")]] = Field(
        [],
        max_length=8,
        description="Directories of Python packages that answers and tests may import, e.g. /opt/packages, in the "
        "images of"
        " sandbox and gateway. Unset: what the sandbox's image was built with.",
        json_schema_extra=list_type("atomic"),
    )

    RULES = (
        MIN_MAX_RULE,
        Rule(
            "self.backend == 'Evalrun' || size(self.packages) == 0",
            "a SandboxFusion server has packages of its own: remove packages, or write backend: Evalrun",
            ".packages",
        ),
    )

    @property
    def package_flags(self) -> list[str]:
        """The flags of sandbox and gateway for the packages."""
        return [f"--package-dirs={directory}" for directory in self.packages]


class Judge(ApiModel):
    """The run's own judge: created and deleted with the run."""

    gateway: Gateway = Field(
        Gateway(), description="The gateway: plans sandbox calls, compares outputs, caches verdicts."
    )
    sandbox: Sandbox = Field(Sandbox(), description="The sandboxes: run programs, never see expected outputs.")


class JudgeReference(ApiModel):
    """A judge that several runs share, e.g. the chart's."""

    name: DnsName = Field(description="Name of the gateway's headless Service.")
    namespace: DnsName | None = Field(None, description="Its namespace; unset: the run's.")
    token_secret_ref: SecretKeyReference | None = Field(
        None, description="The token that it requires, in a Secret of the run's namespace."
    )
    tls_secret_ref: LocalObjectReference | None = Field(
        None,
        description="A Secret of the run's namespace with tls.crt, tls.key and ca.crt, by which run and judge know "
        "each other. Unset: for the judge of the operator's own chart the operator issues one, unless "
        "sharedJudge.tls.mode is disabled there; for any other, plain text.",
    )
