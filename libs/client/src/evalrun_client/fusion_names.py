"""Recognizes names of datasets and rows that a SandboxFusion server takes for nothing else, such as SQL or a path.

Pure, imports nothing of ours.
"""

import re

_DATASET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ROW_ID = re.compile(r"[^\x00-\x1f\x7f'\"`\\\ud800-\udfff]{1,512}")
"""Stock SandboxFusion puts the id between quotes into its SQL (measured: `x' OR id=12 --` returns row 12)."""


def is_dataset_name(name: str) -> bool:
    """Return whether the server's /list_datasets may contain a name."""
    return _DATASET.fullmatch(name) is not None and ".." not in name


def is_row_id(row: str) -> bool:
    """Return whether the server's /list_ids may contain an id."""
    return _ROW_ID.fullmatch(row) is not None and ".." not in row and bool(row.strip())
