"""Values of Arrow's arrays as NumPy's: `Array.to_numpy` imports pandas where it is installed, which takes seconds."""

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


def to_numbers(array: pa.Array, kind: type[T]) -> NDArray[T]:
    """Return the values of an array of fixed width without nulls.

    Args:
        array: its values have the width of `kind`.
        kind: a scalar type of NumPy.

    Raises:
        ValueError: the array has nulls, or another width.
    """
    if array.null_count or array.type.bit_width != 8 * np.dtype(kind).itemsize:
        raise ValueError(f"{array.type} with {array.null_count} nulls is no {np.dtype(kind)}")
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, len(array) + array.offset)[array.offset :]
