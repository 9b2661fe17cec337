"""Salted commitments to hidden problems, and their openings. Pure.

A commitment is SHA-256 over a salt and the record of a problem. Without the salt nobody can verify a guess of the
tests. With the salt the holder proves later which tests were used.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from evalrun_attest.merkle import MerkleTree
from evalrun_attest.statement import RowSet
from evalrun_runtime.exits import BadInputError

SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class HiddenProblem:
    """A problem that a bundle commits to."""

    problem_id: str
    salt: str
    """Hexadecimal."""
    commitment: str
    """Hexadecimal."""
    record: Mapping[str, object]

    @property
    def public_row(self) -> dict[str, object]:
        """Return the row that the bundle shows of the hidden problem."""
        return {"problem_id": self.problem_id, "commitment": self.commitment}


@dataclass(frozen=True, slots=True)
class Opening:
    """A hidden problem as its holder discloses it."""

    salt: str
    record: Mapping[str, object]


def render_opening_line(dataset: str, problem: HiddenProblem) -> str:
    """Return a line of a file of openings."""
    row = {"dataset": dataset, "problem_id": problem.problem_id, "salt": problem.salt, "record": problem.record}
    return json.dumps(row, sort_keys=True) + "\n"


def parse_openings(lines: Iterable[str], where: str) -> dict[tuple[str, str], Opening]:
    """Return the openings of a file by dataset and problem.

    Raises:
        BadInputError: a line is no opening; the message names the line.
    """
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            bytes.fromhex(row["salt"])
            found[str(row["dataset"]), str(row["problem_id"])] = Opening(row["salt"], {**row["record"]})
        except (ValueError, LookupError, TypeError) as error:
            raise BadInputError(
                f"{where}:{number}: no opening: dataset, problem_id, salt or record is missing"
            ) from error
    return found


def commit(record: Mapping[str, object], salt: str) -> str:
    """Return the commitment to a problem's record, in hexadecimal."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(bytes.fromhex(salt) + text.encode()).hexdigest()


def hide_problems(records: Iterable[Mapping[str, object]], make_salt: Callable[[int], bytes]) -> list[HiddenProblem]:
    """Return a commitment to each record, with a salt of its own from `make_salt(bytes)`."""
    hidden = []
    for record in records:
        salt = make_salt(SALT_BYTES).hex()
        hidden.append(HiddenProblem(str(record["problem_id"]), salt, commit(record, salt), record))
    return hidden


def compute_root(rows: Iterable[Mapping[str, object]]) -> RowSet:
    """Return the Merkle root over the public rows of commitments."""
    tree = MerkleTree()
    for row in rows:
        tree.add(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
    return RowSet(tree.count, tree.root())
