"""Maps datasets to the family that judges them, and refuses unsupported datasets."""

from collections.abc import Mapping

from evalrun_sandbox.fusion.families.common_oj import CommonOJ
from evalrun_sandbox.fusion.families.humaneval import HumanEval
from evalrun_sandbox.fusion.families.mbpp import Mbpp
from evalrun_sandbox.fusion.families.program_plan import Family
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import DatasetRequest

FAMILIES: Mapping[str, Family] = {
    "CommonOJDataset": CommonOJ(), "HumanEvalDataset": HumanEval(), "MBPPDataset": Mbpp(),
}  # fmt: skip
"""Families by the stock server's class names, which `config.dataset_type` takes."""

REGISTERED: Mapping[str, str] = {
    "code_contests": "CommonOJDataset",
    "humaneval_python": "HumanEvalDataset",
    "mbpp": "MBPPDataset",
    "shadow_humaneval_python": "HumanEvalDataset",
}
"""Datasets whose family follows from their name, as in the stock server."""


def find_family(request: DatasetRequest) -> Family:
    """Return the family for a request.

    Raises:
        BadRequest: no family serves the dataset, or the request contains code for the server's own process.
    """
    config = request.config
    if config.custom_extract_logic is not None:
        raise BadRequest("config.custom_extract_logic is refused: it is code for the server's own process")
    name = REGISTERED.get(request.dataset)
    if name is not None:
        return FAMILIES[name]
    if config.dataset_type is None:
        raise BadRequest(f"no eval class found for dataset {request.dataset[:200]}: {_list_known()}")
    if config.dataset_type == "HumanEvalDataset":
        raise BadRequest(
            "HumanEvalDataset is served as humaneval_python and shadow_humaneval_python only: under another name its "
            "tests would never be called"
        )
    if config.dataset_type not in FAMILIES:
        raise BadRequest(f"eval class {config.dataset_type[:200]} not found: {_list_known()}")
    return FAMILIES[config.dataset_type]


def _list_known() -> str:
    return f"this server judges {', '.join(REGISTERED)}, and rows of CommonOJDataset or MBPPDataset"
