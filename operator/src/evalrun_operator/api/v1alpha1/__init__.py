"""evalrun.dev/v1alpha1: the EvalRun. Import its types from here."""

from evalrun_operator.api.v1alpha1.conditions import REASONS, ConditionType, Reason
from evalrun_operator.api.v1alpha1.evalrun import API_VERSION, GROUP, KIND, VERSION, EvalRun, ObjectMeta
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
from evalrun_operator.api.v1alpha1.status import (
    Condition,
    DatasetStatus,
    EvalRunStatus,
    FigureInterval,
    Phase,
)
from evalrun_operator.api.v1alpha1.task import (
    Budget,
    Comparator,
    Dataset,
    Model,
    Protocol,
    TestGroup,
    TestLimits,
)

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "MUTABLE_FIELDS",
    "REASONS",
    "VERSION",
    "Aggregator",
    "Budget",
    "Comparator",
    "Condition",
    "ConditionType",
    "Cost",
    "Dataset",
    "DatasetStatus",
    "Endpoint",
    "EvalRun",
    "EvalRunSpec",
    "EvalRunStatus",
    "Exports",
    "FigureInterval",
    "Gate",
    "Gateway",
    "Judge",
    "JudgeReference",
    "Mlflow",
    "Model",
    "ObjectMeta",
    "Output",
    "Phase",
    "Protocol",
    "Reason",
    "Rollout",
    "Sandbox",
    "Storage",
    "TestGroup",
    "TestLimits",
    "Toleration",
    "Wandb",
]
