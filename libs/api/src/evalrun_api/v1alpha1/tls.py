"""Secrets with the certificates of a run's parts, where the operator does not issue them."""

from pydantic import Field

from evalrun_api.api_model import ApiModel, LocalObjectReference


class TlsSecretReferences(ApiModel):
    """By part, a Secret of the run's namespace with tls.crt, tls.key and ca.crt, as cert-manager writes it."""

    aggregator: LocalObjectReference = Field(description="Must name RUN-aggregator.NAMESPACE.svc.")
    gateway: LocalObjectReference | None = Field(
        None, description="Must name RUN-judge.NAMESPACE.svc, and allow client authentication."
    )
    sandbox: LocalObjectReference | None = Field(
        None, description="Must name RUN-sandbox.NAMESPACE.svc, and should not allow client authentication."
    )
    generator: LocalObjectReference = Field(description="Must allow client authentication.")
    operator: LocalObjectReference = Field(description="What the operator shows to the ledger.")
