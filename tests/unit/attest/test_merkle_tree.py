"""Merkle roots against RFC 6962's definition, written down recursively."""

import hashlib
from collections.abc import Sequence

import pytest

from evalrun_attest.merkle import EMPTY_ROOT, MerkleTree


def root_by_definition(rows: Sequence[bytes]) -> bytes:
    """Return the hash that section 2.1 of the RFC defines."""
    if not rows:
        return hashlib.sha256(b"").digest()
    if len(rows) == 1:
        return hashlib.sha256(b"\x00" + rows[0]).digest()
    split = 1
    while split * 2 < len(rows):
        split *= 2
    left, right = root_by_definition(rows[:split]), root_by_definition(rows[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("count", [*range(20), 63, 64, 65, 1000])
def test_root_of_rows_matches_the_definition_of_the_rfc(count: int) -> None:
    rows = [f"row {number}".encode() for number in range(count)]
    tree = MerkleTree()
    for row in rows:
        tree.add(row)
    assert tree.root() == root_by_definition(rows).hex()
    assert tree.count == count


def test_root_of_no_rows_is_the_empty_root() -> None:
    assert MerkleTree().root() == EMPTY_ROOT


def test_inner_node_given_as_row_changes_the_root() -> None:
    """Without the prefixes a tree of two rows would have the root of one row that is their hashes."""
    pair, single = MerkleTree(), MerkleTree()
    pair.add(b"a")
    pair.add(b"b")
    single.add(hashlib.sha256(b"\x00a").digest() + hashlib.sha256(b"\x00b").digest())
    assert pair.root() != single.root()
