"""Time, memory and size of `evalrun attest` and `evalrun verify` by rows, without judging again.

Beside each stands what it cannot do without, in the same process and over the same bytes: for attest, compressing every
file that goes into the bundle and its SHA-256; for verify, decompressing them, their SHA-256, and parsing every row.

    .venv/bin/python benchmarks/attestation.py [--rows 164 10000] [--tests 3]
"""

import argparse
import gzip
import hashlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import BinaryIO

from outputs_growth import results

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.attested_runs import SPEC, new_key

from evalrun_attest.archive import CHUNK, read_members
from evalrun_attest.bundle import JudgedProblems, write_bundle
from evalrun_attest.checks import Outcome, check_figures, check_problems, check_rows, open_bundle
from evalrun_attest.keys import SigningKey
from evalrun_attest.run_files import DERIVED, output_names
from evalrun_data.digest import digest_problems
from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.rows import Row
from evalrun_results.metrics.run_options import metric_options
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, write_outputs

PROBLEMS = 164


def make_problems(rows: int, tests: int) -> JudgedProblems:
    """Return the problems of a run."""
    found = [
        parse_record(
            Row(
                {
                    "dataset": "synthetic",
                    "problem_id": f"problem-{place}",
                    "prompt": "Sort the numbers.\n" * 20,
                    "ground_truth": {"inputs": ["3 1 2\n"] * tests, "outputs": ["1 2 3\n"] * tests},
                },
                "synthetic",
                place,
            ),
            None,
        )
        for place in range(min(rows, PROBLEMS))
    ]
    return JudgedProblems([make_problem_record(each) for each in found], digest_problems(found))


def make_run(directory: Path, rows: int, tests: int) -> None:
    """Write the outputs of a run."""
    problems = make_problems(rows, tests)
    spec = {**SPEC, "datasets": [{"name": "synthetic", "source": "synthetic.jsonl"}]}
    info = {"spec": spec, "gpu_seconds": 0.0, "datasets": {"synthetic": {"records_sha256": problems.records_sha256}}}
    plan = OutputPlan(info, metric_options(info), QaOptions(0.8, 2048))
    write_outputs(results(rows, min(rows, PROBLEMS), tests), str(directory), plan)


def compress_and_hash(content: BinaryIO) -> None:
    """Compress a file, and hash the file and the compressed result, one chunk at a time."""
    compressor = zlib.compressobj(6, wbits=zlib.MAX_WBITS | 16)
    plain, packed = hashlib.sha256(), hashlib.sha256()
    while chunk := content.read(CHUNK):
        plain.update(chunk)
        packed.update(compressor.compress(chunk))
    packed.update(compressor.flush())


def decompress_and_hash(packed: bytes, *, parse_rows: bool) -> None:
    """Decompress a member and hash it, a line at a time; parse the lines if they are rows."""
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as lines:
        for line in lines:
            digest.update(line)
            if parse_rows:
                json.loads(line)


def timed(step: str, work: Path, rows: int, tests: int) -> dict[str, float]:
    """Run one step in this process, and return its CPU seconds and peak memory."""
    run, bundle = work / "run", work / "bundle.tar"
    before = time.process_time()
    if step == "make":
        make_run(run, rows, tests)
    elif step == "attest":
        problems = {"synthetic": make_problems(rows, tests)}
        write_bundle(run, problems, SigningKey.read(work / "key.pem"), bundle, hide_tests=False, make_salt=bytes)
    elif step == "pack":
        for name in set(output_names(run)) - DERIVED:
            with (run / name).open("rb") as content:
                compress_and_hash(content)
    elif step == "verify":
        scratch = work / "scratch"
        scratch.mkdir()
        opened, findings = open_bundle(bundle, scratch)
        if opened is None:
            raise SystemExit(findings)
        checked = check_rows(opened, 50, 1)
        findings += [*checked.findings, *check_figures(opened, checked), *check_problems(opened, {})]
        if any(each.outcome is Outcome.DIFFERS for each in findings):
            raise SystemExit(findings)
    elif step == "read":
        with bundle.open("rb") as archive:
            for member in list(read_members(archive)):
                archive.seek(member.start)
                packed = archive.read(member.size)
                if member.name.endswith(".gz"):
                    decompress_and_hash(packed, parse_rows=member.name == "results.jsonl.gz")
                else:
                    hashlib.sha256(packed).hexdigest()
    return {
        "cpu_seconds": time.process_time() - before,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[164, 10_000])
    parser.add_argument("--tests", type=int, default=3, help="tests per row")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, work, rows = given.step
        print(json.dumps(timed(step, Path(work), int(rows), given.tests)))
        return
    print(
        f"{'rows':>9} {'rows MiB':>9} {'bundle MiB':>11} {'attest s':>9} {'/ limit':>8} {'verify s':>9} {'/ limit':>8}"
    )
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as directory:
            work = Path(directory)
            new_key(work)
            seconds = {}
            for step in ("make", "attest", "pack", "verify", "read"):
                command = [sys.executable, __file__, "--tests", str(given.tests), "--step", step, directory, str(rows)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds[step] = json.loads(done.stdout)
            size = (work / "run" / "results.jsonl").stat().st_size / CHUNK
            bundle = (work / "bundle.tar").stat().st_size / CHUNK
            attest, pack, verify, read = (seconds[each]["cpu_seconds"] for each in ("attest", "pack", "verify", "read"))
            print(
                f"{rows:>9,} {size:>9.1f} {bundle:>11.2f} {attest:>9.2f} {attest / pack:>8.1f} {verify:>9.2f} "
                f"{verify / read:>8.1f}",
                flush=True,
            )
            peaks = [f"{seconds[each]['peak_mib']:.0f} MiB" for each in ("attest", "verify")]
            print(f"{'':>9} peak memory: attest {peaks[0]}, verify {peaks[1]}", flush=True)


if __name__ == "__main__":
    main()
