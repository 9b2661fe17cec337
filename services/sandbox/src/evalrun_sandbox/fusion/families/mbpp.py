"""MBPPDataset: a function and assertions, which stand in its prompt. The program's exit status is the verdict."""

from evalrun_sandbox.fusion.extraction import first_of_any
from evalrun_sandbox.fusion.families.program_plan import ProgramPlan
from evalrun_sandbox.fusion.families.row_fields import id_of, list_of, mapping_of, text_of
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import Prompt, Row, SubmitRequest, TestConfig

_TASK = "You are an expert Python programmer, and here is your task: "
_TESTS = " Your code should pass these tests:\n\n"
_GUARD = "if __name__ =="


class Mbpp:
    """The family's rules."""

    def prompt(self, row: Row, dataset: str, config: TestConfig) -> Prompt:
        """Return the task with its assertions. Raises BadRequest for the few-shot prompt, whose
        three shots are data."""
        del dataset
        if config.is_fewshot:
            raise BadRequest("config.is_fewshot: this server does not hold MBPP's three shots; prepend them yourself")
        tests = "\n".join(_assertions(row))
        return Prompt(
            id=id_of(row, "id"),
            prompt=f"{_TASK}{text_of(row, 'content')}{_TESTS}{tests}",
            labels=mapping_of(row, "labels"),
        )

    def plan(self, row: Row, request: SubmitRequest) -> ProgramPlan:
        """Plan setup code, program and assertions as one program; a few-shot prompt shows all but the last one."""
        completion = first_of_any(_before(request.completion, "[DONE]"))
        completion = _before(_before(completion, "\nassert"), '\n"""')
        setup = mapping_of(row, "labels").get("test_setup_code", "")
        code = _before(f"{setup}\n{completion}", _GUARD)
        assertions = _assertions(row)
        judged = assertions[-1:] if request.config.is_fewshot else assertions
        program = code + "".join(f"\n{assertion}\n" for assertion in judged)
        return ProgramPlan(
            language="python",
            program=program,
            extracted_code=code,
            compile_timeout=10,
            run_timeout=request.config.run_timeout or 20,
            full_code=program,
        )


def _assertions(row: Row) -> list[str]:
    assertions = list_of(row, "test_list")
    if not all(isinstance(assertion, str) for assertion in assertions):
        raise BadRequest("row: test_list must hold texts")
    return assertions


def _before(text: str, end: str) -> str:
    """Return the text before the first `end`, or all of it if there is none."""
    return text.partition(end)[0]
