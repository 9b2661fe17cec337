"""The test families that this gateway judges."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalrun_judge import families
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.submission import InvalidRequestError, Tests
from evalrun_judge.suites import Suites
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.discovery import classes_in

FAMILIES: Final = classes_in(families, Family)  # type: ignore[type-abstract]  # what is found is not abstract
"""Every family in the modules of this package."""

_FORMS: Mapping[str, FormReader] = {form: reader for family in FAMILIES for form, reader in family.FORMS.items()}


def read_tests(message: judge_pb2.JudgeRequest, suites: Suites) -> Tests:
    """Read the tests of a message; those named only by digest come from `suites`.

    Raises:
        InvalidRequestError: there are none, or they contradict their digest.
        UnknownSuiteError: no suite is cached under the digest.
    """
    form = message.WhichOneof("tests")
    if form is None and message.suite_digest:
        return suites.find(message.suite_digest)
    reader = _FORMS.get(form or "")
    if reader is None:
        raise InvalidRequestError(f"tests: there are none; send one of {', '.join(_FORMS)}")
    return reader(message, suites)


class Families:
    """The families, each ready to judge."""

    def __init__(self, families: Sequence[Family[Any]]) -> None:
        self._by_tests: dict[type, Family[Any]] = {tests: family for family in families for tests in family.TESTS}

    def find_family(self, tests: Tests) -> Family[Any]:
        """Return the family of these tests."""
        return self._by_tests[type(tests)]


def build_families(runners: Runners) -> Families:
    """Create every family; each runs its programs with `runners`."""
    return Families([family(runners) for family in FAMILIES])
