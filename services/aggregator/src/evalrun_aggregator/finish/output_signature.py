"""Signs a run's outputs once they are written."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems
from evalrun_client.grader import MAX_BYTES
from evalrun_data.formats.record import make_problem_record
from evalrun_data.sources import BUILTIN_SCHEME, read_bytes

if TYPE_CHECKING:
    from evalrun_attest.bundle import JudgedProblems
    from evalrun_attest.keys import SigningKey

BUNDLE: Final = "bundle.tar"
"""Name of the file beside the outputs with everything that a stranger needs to check them."""


def parse_attest_key(pem: SecretStr) -> "SigningKey":
    """Return the key that signs the outputs. Raises BadInputError without the key's text."""
    # The package is an extra on one machine, where most runs have no key.
    from evalrun_attest.keys import SigningKey

    return SigningKey.parse(pem.get_secret_value(), "EVALRUN_AGGREGATOR_ATTEST_KEY")


@dataclass(frozen=True)
class OutputSignature:
    """Signs the outputs of a run."""

    key: "SigningKey"
    problems: RunProblems
    base_dir: Path

    @property
    def key_id(self) -> str:
        """Id of the key."""
        return self.key.public.id

    def write(self, directory: Path) -> None:
        """Write attestation.json and the bundle into a directory of outputs. Raises OSError."""
        from evalrun_attest.bundle import write_bundle

        write_bundle(
            directory,
            collect_attested_problems(self.problems.datasets, self.base_dir),
            self.key,
            directory / BUNDLE,
            hide_tests=False,
            make_salt=secrets.token_bytes,
        )


def collect_attested_problems(datasets: Sequence[RunDataset], base_dir: Path) -> "dict[str, JudgedProblems]":
    """Return the tests and graders that judged a run. Raises BadInputError if a grader can no longer be read."""
    from evalrun_attest.bundle import JudgedProblems

    return {
        each.spec.name: JudgedProblems(
            [make_problem_record(problem) for problem in each.problems],
            each.records_sha256,
            _grader_text(each, base_dir),
        )
        for each in datasets
    }


def _grader_text(dataset: RunDataset, base_dir: Path) -> str | None:
    grader = dataset.spec.grader
    if grader is None or grader.path.startswith(BUILTIN_SCHEME):
        return None
    return read_bytes(grader.path, base_dir, max_bytes=MAX_BYTES).decode()
