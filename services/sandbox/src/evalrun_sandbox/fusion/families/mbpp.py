"""MBPPDataset: a function and assertions that are part of its prompt. The program's exit status is the verdict."""

from evalrun_sandbox.fusion.extraction import find_first_block
from evalrun_sandbox.fusion.families.program_plan import ProgramPlan
from evalrun_sandbox.fusion.families.row_fields import read_id, read_list, read_mapping, read_text
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
        tests = "\n".join(_read_assertions(row))
        return Prompt(
            id=read_id(row, "id"),
            prompt=f"{_TASK}{read_text(row, 'content')}{_TESTS}{tests}",
            labels=read_mapping(row, "labels"),
        )

    def plan(self, row: Row, request: SubmitRequest) -> ProgramPlan:
        """Plan setup code, program and assertions as a single program. A few-shot prompt shows all assertions but
        the last."""
        completion = find_first_block(_cut_before(request.completion, "[DONE]"))
        completion = _cut_before(_cut_before(completion, "\nassert"), '\n"""')
        setup = read_mapping(row, "labels").get("test_setup_code", "")
        code = _cut_before(f"{setup}\n{completion}", _GUARD)
        assertions = _read_assertions(row)
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


def _read_assertions(row: Row) -> list[str]:
    assertions = read_list(row, "test_list")
    if not all(isinstance(assertion, str) for assertion in assertions):
        raise BadRequest("row: test_list must hold texts")
    return assertions


def _cut_before(text: str, end: str) -> str:
    """Return the text before the first `end`, or the whole text if `end` does not occur."""
    return text.partition(end)[0]
