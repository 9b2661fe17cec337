"""Field by field against the models of SandboxFusion's published client, which its users' code is written to."""

import pytest
import sandbox_fusion.models as published
from pydantic import BaseModel

from evalrun_sandbox.fusion import schemas

BEYOND_THE_CLIENT = {"RunCodeRequest": {"memory_limit_MB"}}
"""In the server's OpenAPI document, not in the client, which drops it silently."""
BEYOND_THE_SERVER = {"CommandRunResult": {"cpu_time"}}
"""Of the hosted server; absent from the public one's answers."""
MODELS = [
    schemas.RunCodeRequest, schemas.RunCodeResponse, schemas.CommandRunResult, schemas.Prompt, schemas.TestConfig,
    schemas.EvalResult, schemas.EvalTestCase, schemas.GetPromptsRequest, schemas.GetPromptByIdRequest,
    schemas.SubmitRequest, schemas.GetMetricsRequest,
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_fields_and_defaults_equal_those_of_the_client(model: type[BaseModel]) -> None:
    name = model.__name__
    theirs = getattr(published, name).__fields__
    ours = model.model_fields
    assert set(ours) - BEYOND_THE_CLIENT.get(name, set()) == set(theirs) - BEYOND_THE_SERVER.get(name, set())
    for field in ours.keys() & theirs.keys():
        if name == "RunCodeResponse" and field == "message":
            continue  # always sent
        assert ours[field].is_required() is bool(theirs[field].required), field
        if not ours[field].is_required():
            assert ours[field].get_default(call_default_factory=True) == theirs[field].get_default(), field


@pytest.mark.parametrize("name", ["RunStatus", "CommandRunStatus"])
def test_enum_values_equal_those_of_the_client(name: str) -> None:
    assert {item.value for item in getattr(schemas, name)} == {item.value for item in getattr(published, name)}


def test_verdict_read_by_the_client_is_unchanged() -> None:
    ran = schemas.CommandRunResult(
        status=schemas.CommandRunStatus.FINISHED, execution_time=0.1, return_code=-11, stdout="é"
    )
    answer = schemas.RunCodeResponse(status=schemas.RunStatus.FAILED, run_result=ran)
    result = schemas.EvalResult(
        id="p", accepted=False, extracted_code="x", tests=[schemas.EvalTestCase(passed=False, exec_info=answer)]
    )
    read = published.EvalResult.parse_raw(result.model_dump_json())
    assert read.dict(exclude_unset=True) == result.model_dump()
