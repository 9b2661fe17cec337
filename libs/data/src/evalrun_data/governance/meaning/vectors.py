"""From a model's output to unit vectors, and the nearest references of each row, exactly. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evalrun_data.governance.meaning.embedder_files import Pooling

Vectors = NDArray[np.float32]
"""One vector per row, of length 1."""

BLOCK: Final = 4096
"""References that a block of rows is compared with at once: 256 rows take 4 MiB of cosines."""


class UnusableOutputError(Exception):
    """A model's output has no vector for each text; the message describes the output."""


def pool_tokens(output: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling) -> NDArray[np.float32]:
    """Return a vector for each text.

    Args:
        output: (texts, tokens, dimensions), or (texts, dimensions) of a graph that pools by itself.
        mask: (texts, tokens), 1 for tokens of the text.
        pooling: of the tokens' vectors.

    Raises:
        UnusableOutputError: the output has another shape.
    """
    if output.ndim == 2 and output.shape[0] == mask.shape[0]:
        return output
    if output.ndim != 3 or output.shape[:2] != mask.shape:
        raise UnusableOutputError(
            f"gives an output of shape {output.shape} for {mask.shape[0]} texts of {mask.shape[1]} tokens, where "
            "(texts, tokens, dimensions) or (texts, dimensions) was expected"
        )
    if pooling == "cls":
        first: NDArray[np.float32] = output[:, 0]
        return first
    weights = mask[..., None].astype(np.float32)
    mean: NDArray[np.float32] = (output * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def unit_vectors(vectors: NDArray[np.float32]) -> Vectors:
    """Return the vectors with length 1. Raises UnusableOutputError if one is not finite, or zero."""
    if vectors.shape[-1] == 0:
        raise UnusableOutputError("gives vectors of no dimensions")
    if not np.isfinite(vectors).all():
        raise UnusableOutputError("gives vectors that hold NaN or infinity")
    # A component of 1e-30 would vanish when squared in 32 bits.
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not lengths.all():
        raise UnusableOutputError("gives a vector of zeros, which has no direction")
    units: Vectors = (vectors / lengths).astype(np.float32)
    return units


def nearest(rows: Vectors, references: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the position and the cosine of each row's nearest reference; of equals the first."""
    best = np.full(len(rows), -1, dtype=np.int64)
    cosines = np.full(len(rows), -np.inf, dtype=np.float32)
    for begin in range(0, len(references), BLOCK):
        block = rows @ references[begin : begin + BLOCK].T
        at = block.argmax(axis=1)
        found = block[np.arange(len(rows)), at]
        better = found > cosines
        best[better], cosines[better] = at[better] + begin, found[better]
    return best, cosines


def batches(lengths: Sequence[int], max_texts: int, max_tokens: int) -> Iterator[list[int]]:
    """Yield positions of texts that are embedded at once: of like length, since all are padded to the longest.

    Args:
        lengths: tokens of each text.
        max_texts: of a batch.
        max_tokens: of a batch with its padding; a single longer text is a batch by itself.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) >= max_texts or (len(batch) + 1) * lengths[position] > max_tokens):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch
