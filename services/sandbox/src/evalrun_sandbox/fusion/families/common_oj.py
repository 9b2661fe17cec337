"""CommonOJDataset, e.g. `code_contests`: programs that read stdin and write stdout."""

from typing import Any

from evalrun_registry.languages import LANGUAGES
from evalrun_sandbox.fusion.extraction import find_first_of_language
from evalrun_sandbox.fusion.families.program_plan import Case, ProgramPlan
from evalrun_sandbox.fusion.families.row_fields import read_id, read_list, read_mapping, read_text
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import Prompt, Row, SubmitRequest, TestConfig

# These are the stock server's own sentences (Apache-2.0): a model's completions depend on each word. Other languages
# get a general sentence.
_EN = {
    "python": "Please implement a complete Python script.",
    "cpp": "Please implement complete executable code including a main function in C++.",
    "java": (
        "Please implement a complete Java program with a public class named Main. Your class should include a public "
        "static void main(String[] args) method."
    ),
}
_EN_OTHER = "Please implement complete executable code with an entry point in {language}."
_EN_STREAMS = " Your program should read input from standard input and write output to standard output."
_EN_JAVA_STREAMS = " Your program should read input from System.in and write output to System.out."
_ZH = {
    "python": "请编写一个完整的 Python 脚本。你的程序应该从标准输入读取数据，并将结果输出到标准输出。",  # noqa: RUF001
    "cpp": (
        "请使用 C++ 实现一个完整的可执行程序，包含 main 函数。"  # noqa: RUF001
        "你的程序应该从标准输入读取数据，并将结果输出到标准输出。"  # noqa: RUF001
    ),
    "java": (
        "请实现一个完整的 Java 程序，包含一个名为 Main 的公共类。"  # noqa: RUF001
        "你的类中应包含 public static void main(String[] args) 方法。"
        "你的程序应该从 System.in 读取输入，并将结果输出到 System.out。"  # noqa: RUF001
    ),
}
_ZH_OTHER = (
    "请使用 {language} 实现一个完整的可执行程序，包含程序入口。"  # noqa: RUF001
    "你的程序应该从标准输入读取数据，并将结果输出到标准输出。"  # noqa: RUF001
)

_COMPILED = [each.fusion.name for each in LANGUAGES.values() if each.fusion is not None and each.is_compiled]
_KEPT = 498


class CommonOJ:
    """The family's rules."""

    def prompt(self, row: Row, dataset: str, config: TestConfig) -> Prompt:
        """Return the statement and a sentence on the language."""
        del dataset
        sentence = _choose_sentence(config.language, config.locale)
        return Prompt(
            id=read_id(row, "id"),
            prompt=f"{read_text(row, 'content')}\n\n{sentence}",
            labels=read_mapping(row, "labels"),
        )

    def plan(self, row: Row, request: SubmitRequest) -> ProgramPlan:
        """Plan one run per case. Raises BadRequest."""
        config = request.config
        if config.language is None:
            raise BadRequest("config.language field must exist for CommonOJDataset, got None")
        cases = [_parse_case(value, number) for number, value in enumerate(read_list(row, "test"))]
        code = find_first_of_language(request.completion, config.language)
        return ProgramPlan(
            language=config.language,
            program=code,
            extracted_code=code,
            compile_timeout=config.compile_timeout or 10,
            run_timeout=config.run_timeout or (10 if config.language in _COMPILED else 20),
            cases=cases,
            run_all_cases=bool(config.extra.get("run_all_cases", False)),
            full_cases=bool(config.extra.get("return_full_case", False)),
        )


def shorten_case(case: Case) -> Case:
    """Shorten each long text of a case in the middle, as the stock server does for passed cases."""
    return {
        side: {name: _cut_middle(text) if isinstance(text, str) else text for name, text in case[side].items()}
        for side in ("input", "output")
    }


def _cut_middle(text: str) -> str:
    return text if len(text) <= 2 * _KEPT + 4 else f"{text[:_KEPT]}...{text[-_KEPT:]}"


def _parse_case(value: Any, number: int) -> Case:  # noqa: ANN401 - the row's own JSON
    """Validate a case. Files besides stdin and stdout are kept and ignored, as in the stock server."""
    case = {}
    for side, stream in (("input", "stdin"), ("output", "stdout")):
        texts = value.get(side) if isinstance(value, dict) else None
        if not isinstance(texts, dict) or not isinstance(texts.get(stream), str):
            raise BadRequest(f"row: test[{number}].{side}.{stream} must be a text")
        case[side] = texts
    return case


def _choose_sentence(language: str | None, locale: str | None) -> str:
    if locale == "zh":
        return _ZH.get(language or "", _ZH_OTHER.format(language=language))
    first = _EN.get(language or "", _EN_OTHER.format(language=language))
    return first + (_EN_JAVA_STREAMS if language == "java" else _EN_STREAMS)
