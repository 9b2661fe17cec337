"""Merkle trees over rows, as RFC 6962 section 2.1 defines them: SHA-256, with different prefixes for leaves and inner
nodes. Pure."""

import hashlib
from dataclasses import dataclass, field

EMPTY_ROOT = hashlib.sha256(b"").hexdigest()


def hash_leaf(row: bytes) -> bytes:
    """Return the hash of a row."""
    return hashlib.sha256(b"\x00" + row).digest()


def hash_pair(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(slots=True)
class MerkleTree:
    """Computes the root over a stream of rows; keeps at most one hash per level of the tree."""

    count: int = 0
    _whole: list[bytes] = field(default_factory=list)
    """Roots of the complete subtrees so far, the largest first."""

    def add(self, row: bytes) -> None:
        """Append a row."""
        node, position = hash_leaf(row), self.count
        while position & 1:
            node = hash_pair(self._whole.pop(), node)
            position >>= 1
        self._whole.append(node)
        self.count += 1

    def root(self) -> str:
        """Return the root in hexadecimal."""
        if not self._whole:
            return EMPTY_ROOT
        node = self._whole[-1]
        for left in reversed(self._whole[:-1]):
            node = hash_pair(left, node)
        return node.hex()
