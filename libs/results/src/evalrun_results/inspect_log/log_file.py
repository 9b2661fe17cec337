"""Writes a `.eval` file: a zip with one JSON document per sample, one with their summaries, and one header.

One sample is in memory at a time. What grows with their number is the zip's directory (about 1 KB each), which
Python's `zipfile` holds until the end; summaries wait in a temporary file.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from typing import BinaryIO, Final

from evalrun_results.inspect_log.header import LoggedRun, LogTotals, make_header, make_start
from evalrun_results.inspect_log.samples import make_summary
from evalrun_results.json_text import json_line
from evalrun_results.samples import JsonObject

_MADE: Final = (1980, 1, 1, 0, 0, 0)
"""Time of every member, so that the same run gives the same bytes."""


def write_log(file: BinaryIO, run: LoggedRun, samples: Iterable[JsonObject]) -> LogTotals:
    """Write a log and return its totals.

    Args:
        file: gets the log.
        run: for the header.
        samples: no two have the same id and epoch.
    """
    totals = LogTotals()
    with zipfile.ZipFile(file, "w") as log, tempfile.TemporaryFile() as summaries:
        for sample in samples:
            # Readers look for this very name.
            log.writestr(_member(f"samples/{sample['id']}_epoch_{sample['epoch']}.json"), json_line(sample))
            summaries.write(b"," if totals.samples else b"[")
            summaries.write(json_line(make_summary(sample)))
            totals.add(sample)
        summaries.write(b"]" if totals.samples else b"[]")
        member = _member("summaries.json")
        # The size decides whether the member needs 64-bit sizes.
        member.file_size = summaries.tell()
        summaries.seek(0)
        with log.open(member, "w") as target:
            shutil.copyfileobj(summaries, target)
        log.writestr(_member("_journal/start.json"), json_line(make_start(run, totals)))
        log.writestr(_member("header.json"), json_line(make_header(run, totals)))
    return totals


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _MADE)
    member.compress_type = zipfile.ZIP_DEFLATED
    return member
