"""evalrun.dev/v1alpha1: the EvalRun. Import its types from here."""

from evalrun_operator.api.v1alpha1.judging import Gateway, Judge, JudgeReference, Sandbox
from evalrun_operator.api.v1alpha1.results import (
    Aggregator,
    Cost,
    Exports,
    Gate,
    Mlflow,
    Output,
    Storage,
    Wandb,
)
from evalrun_operator.api.v1alpha1.serving import Endpoint, Rollout, Toleration
from evalrun_operator.api.v1alpha1.spec import MUTABLE_FIELDS, EvalRunSpec
from evalrun_operator.api.v1alpha1.task import (
    Budget,
    Comparator,
    Dataset,
    Model,
    Protocol,
    TestGroup,
    TestLimits,
)

GROUP = "evalrun.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "EvalRun"

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "MUTABLE_FIELDS",
    "VERSION",
    "Aggregator",
    "Budget",
    "Comparator",
    "Cost",
    "Dataset",
    "Endpoint",
    "EvalRunSpec",
    "Exports",
    "Gate",
    "Gateway",
    "Judge",
    "JudgeReference",
    "Mlflow",
    "Model",
    "Output",
    "Protocol",
    "Rollout",
    "Sandbox",
    "Storage",
    "TestGroup",
    "TestLimits",
    "Toleration",
    "Wandb",
]
