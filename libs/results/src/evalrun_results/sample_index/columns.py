"""The small columns of a segment in one file: each is gzip-compressed by itself, and read by its range. Pure."""

import gzip
import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evalrun_results.arrow_values import to_numbers
from evalrun_results.sample_rows.fields import FIELDS, FieldKind, SampleField
from evalrun_results.samples import JsonObject

SMALL_FIELDS: Final = tuple(field for field in FIELDS if field.is_small)
MAX_TEXT: Final = 200
"""Characters kept of a text in a column; the whole stands with the row's texts."""
MAX_TAGS: Final = 32
"""Tags kept of a row, and characters of each as of any text."""
TAG_END: Final = "\n"
_ABSENT_FLAG: Final = 2
_LEVEL: Final = 5


def encode_columns(batch: pa.RecordBatch) -> tuple[bytes, JsonObject]:
    """Return the file's bytes, and for each field where in it its values lie.

    Numbers are little-endian float32, NaN where absent. Flags are bytes: 0, 1, or 2 where absent. Texts are codes into
    a list of texts, which lies before them; the empty text stands for an absent one. A row's tags are one such text,
    with line ends between them.
    """
    written = bytearray()
    places: JsonObject = {}
    for field in SMALL_FIELDS:
        place, parts = _encode_column(field, batch.column(field.column))
        for name, part in parts.items():
            packed = gzip.compress(part, _LEVEL, mtime=0)
            place[name] = [len(written), len(packed)]
            written += packed
        places[field.name] = place
    return bytes(written), places


def _encode_column(field: SampleField, column: pa.Array) -> tuple[JsonObject, dict[str, bytes]]:
    match field.kind:
        case FieldKind.NUMBER:
            values = to_numbers(pc.fill_null(column.cast(pa.float32(), safe=False), float("nan")), np.float32)
            return {"type": "number"}, {"values": values.astype("<f4").tobytes()}
        case FieldKind.FLAG:
            flags = to_numbers(pc.fill_null(column.cast(pa.uint8()), _ABSENT_FLAG), np.uint8)
            return {"type": "flag"}, {"values": flags.tobytes()}
        case FieldKind.TEXT | FieldKind.TAGS:
            texts = (_join_tags(column) if field.kind is FieldKind.TAGS else _cut(column)).dictionary_encode()
            known = json.dumps(texts.dictionary.to_pylist()).encode()
            width = _width_for(len(texts.dictionary))
            codes = to_numbers(texts.indices, np.int32)
            return {"type": "text", "width": width}, {
                "texts": known, "values": codes.astype(f"<u{width}").tobytes()
            }  # fmt: skip


def _cut(texts: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(pc.fill_null(texts, ""), 0, MAX_TEXT)


def _join_tags(column: pa.Array) -> pa.Array:
    kept = pc.list_slice(column, 0, MAX_TAGS)
    lengths = to_numbers(pc.fill_null(pc.list_value_length(kept), 0), np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # A tag that holds a line's end would be read as two.
    tags = pc.replace_substring(_cut(pc.list_flatten(kept)), TAG_END, " ")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), tags), TAG_END)


def _width_for(count: int) -> int:
    return 1 if count <= 1 << 8 else 2 if count <= 1 << 16 else 4
