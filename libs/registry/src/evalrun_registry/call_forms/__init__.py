"""Calls of functions by plain values, per language: the text in the prompt, and the code that makes the call.

Arguments come on stdin and the returned value is printed, so a program and the expected values never share a process.
To add a language, describe it in a module here and name it in `CALL_FORMS`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.cpp import CPP
from evalrun_registry.call_forms.go import GO
from evalrun_registry.call_forms.java import JAVA
from evalrun_registry.call_forms.javascript import JAVASCRIPT, TYPESCRIPT
from evalrun_registry.call_forms.python import PYTHON
from evalrun_registry.call_forms.rust import RUST
from evalrun_registry.call_forms.signature import (
    Signature,
    SignatureError,
    encode_arguments,
    encode_result,
    is_result,
    parse_signature,
)

__all__ = [
    "CALL_FORMS",
    "RETURNED",
    "CallForm",
    "Signature",
    "SignatureError",
    "encode_arguments",
    "encode_result",
    "encode_tests",
    "explain_refusal",
    "explain_signature",
    "is_result",
    "parse_signature",
]

CALL_FORMS: Final[Mapping[str, CallForm]] = MappingProxyType(
    {form.language: form for form in (PYTHON, CPP, GO, JAVA, JAVASCRIPT, RUST, TYPESCRIPT)}
)
"""The call forms by language."""


def explain_signature(language: str, signature: str) -> str:
    """Return why programs of a language cannot have a function of this signature; empty: they can. Pure."""
    form = CALL_FORMS.get(language)
    if form is None:
        return f"functions are called by values in {', '.join(CALL_FORMS)}, not in {language}"
    try:
        parsed = parse_signature(signature)
    except SignatureError as error:
        return str(error)
    if parsed.name in form.reserved.split():
        return f"no function of {language} can be called '{parsed.name}': write another name"
    return ""


def encode_tests(
    language: str, signature: str, calls: Sequence[str], results: Sequence[str]
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the words of calls and results for a language and a signature that `explain_signature` accepts. Pure.

    Raises:
        SignatureError: a value is of another type, or the language does not keep it exactly.
    """
    form, parsed = CALL_FORMS[language], parse_signature(signature)
    arguments = tuple(encode_arguments(parsed, call) for call in calls)
    expected = tuple(encode_result(parsed, result) for result in results)
    if "long" in {kind.scalar for kind in parsed.kinds} and (big := form.find_inexact((*arguments, *expected))):
        raise SignatureError(f"{big} has more digits than a number of {language} keeps")
    return arguments, expected


def explain_refusal(language: str, signature: str, calls: Sequence[str], results: Sequence[str]) -> str:
    """Return why programs of a language cannot be called so; empty: they can. Pure.

    Args:
        language: of the program.
        signature: of the function.
        calls: the arguments of each call, a JSON list.
        results: what each call should return, a JSON value.
    """
    if reason := explain_signature(language, signature):
        return reason
    try:
        encode_tests(language, signature, calls, results)
    except SignatureError as error:
        return str(error)
    return ""
