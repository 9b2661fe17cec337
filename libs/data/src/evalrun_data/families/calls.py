"""Calls of a function with a typed signature: arguments and the expected value are plain values, in any language."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from evalrun_data.families.ground_truth import GroundTruth, PromptParts
from evalrun_data.rows import Row
from evalrun_registry.call_forms import (
    CALL_FORMS,
    SignatureError,
    encode_arguments,
    encode_result,
    explain_refusal,
    parse_signature,
)
from evalrun_registry.languages import LANGUAGES

_CHAT = """\
Solve the following problem in {language}.

{prompt}

Write this function, with these types:

```{tag}
{stub}
```

Answer with one {tag} code block that holds the complete code, with everything that it needs, and without a main \
program or tests.
"""


@dataclass(frozen=True, slots=True)
class CallTests(GroundTruth):
    """A test per call: the function gets `calls[i]`, a JSON list, and should return `results[i]`, a JSON value."""

    family: ClassVar[str] = "calls"
    form: ClassVar[str] = "calls"
    told_by: ClassVar[tuple[str, ...]] = ("signature",)
    wanted: ClassVar[str] = "signature, calls and results"

    signature: str
    """Signature such as `add(xs: list[int], k: int) -> list[int]`."""
    calls: tuple[str, ...]
    results: tuple[str, ...]

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Read the calls; see `GroundTruth.parse`."""
        text, calls, results = truth.name("signature"), truth.values.get("calls"), truth.values.get("results")
        for field, value in (("calls", calls), ("results", results)):
            if not isinstance(value, list) or not value:
                raise truth.wrong(field, "a list with a value for each test")
        if not isinstance(calls, list) or not isinstance(results, list) or len(calls) != len(results):
            raise truth.error(f"field '{truth.path.rstrip('.')}' has not as many calls as results")
        tests = cls(text, tuple(map(json.dumps, calls)), tuple(map(json.dumps, results)))
        place = "signature"
        try:
            signature = parse_signature(text)
            for number, (call, result) in enumerate(zip(tests.calls, tests.results, strict=True)):
                place = f"calls[{number}]"
                encode_arguments(signature, call)
                place = f"results[{number}]"
                encode_result(signature, result)
        except SignatureError as error:
            raise truth.error(f"field '{truth.path}{place}': {error}") from error
        return tests

    @property
    def count(self) -> int:
        """Number of tests: one per call."""
        return len(self.calls)

    def write_chat(self, parts: PromptParts) -> str:
        """Ask for the function; see `GroundTruth.write_chat`."""
        return _CHAT.format(
            prompt=parts.text, language=parts.language_name, tag=parts.language, stub=self.write_stub(parts.language)
        )

    def write_stub(self, language: str) -> str:
        """Return the function's head in a language; its signature where the language cannot have it."""
        form = CALL_FORMS.get(language)
        try:
            signature = parse_signature(self.signature)
        except SignatureError:
            return self.signature
        return self.signature if form is None else form.write_stub(signature)

    def write_completion(self, parts: PromptParts) -> str:
        """Put problem and function into a comment; see `GroundTruth.write_completion`."""
        start, end = LANGUAGES[parts.language].comment
        return f"{start}\n{parts.text}\n\nWrite this function:\n{self.write_stub(parts.language)}\n{end}\n"

    def explain_refusal(self, language: str) -> str:
        """Return why functions of a language cannot be called so; see `GroundTruth.explain_refusal`."""
        return explain_refusal(language, self.signature, self.calls, self.results)

    def template_words(self) -> Mapping[str, str]:
        """Return the function's name."""
        return {"entry_point": self.signature.partition("(")[0].strip()}

    def to_record(self) -> dict[str, Any]:
        """Return the values themselves; see `GroundTruth.to_record`."""
        return {
            "signature": self.signature,
            "calls": [json.loads(text) for text in self.calls],
            "results": [json.loads(text) for text in self.results],
        }
