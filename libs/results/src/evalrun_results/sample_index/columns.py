"""The small columns of a segment in one file: each is gzip-compressed by itself, and read by its range. Pure."""

import gzip
import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evalrun_results.sample_index.arrow_values import to_numbers
from evalrun_results.sample_rows.fields import FIELDS, FieldKind, SampleField
from evalrun_results.samples import JsonObject

SMALL_FIELDS: Final = tuple(field for field in FIELDS if field.is_small)
MAX_TEXT: Final = 200
"""Characters kept of a text in a column; the whole stands with the row's texts."""
_ABSENT_FLAG: Final = 2
_LEVEL: Final = 5


def encode_columns(batch: pa.RecordBatch) -> tuple[bytes, JsonObject]:
    """Return the file's bytes, and for each field where in it its values lie.

    Numbers are little-endian float32, NaN where absent. Flags are bytes: 0, 1, or 2 where absent. Texts are codes into
    a list of texts, which lies before them; the empty text stands for an absent one.
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
        case FieldKind.TEXT:
            texts = pc.utf8_slice_codeunits(pc.fill_null(column, ""), 0, MAX_TEXT).dictionary_encode()
            known = json.dumps(texts.dictionary.to_pylist()).encode()
            width = _width_for(len(texts.dictionary))
            codes = to_numbers(texts.indices, np.int32)
            return {"type": "text", "width": width}, {
                "texts": known, "values": codes.astype(f"<u{width}").tobytes()
            }  # fmt: skip


def _width_for(count: int) -> int:
    return 1 if count <= 1 << 8 else 2 if count <= 1 << 16 else 4
