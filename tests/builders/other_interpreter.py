"""Asks a script that runs in another interpreter, which has the packages that it needs: one JSON object in, one out."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from evalrun_runtime.process import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
PATHS = f"{ROOT / 'libs' / 'trainers' / 'src'}:{ROOT / 'tests'}"
ANSWER = "ANSWER"
"""The scripts print it before their answer: packages print much else."""


async def ask_script(python: str | Path, script: str, asked: object, **environment: str) -> Any:
    """Return the answer of a script of this directory, which imports `evalrun_trainers` and `builders`. No GPU is seen.

    Raises:
        AssertionError: it gave none; the end of its stderr is the message.
    """
    process = await asyncio.create_subprocess_exec(
        python, ROOT / "tests" / "builders" / script, stdin=-1, stdout=-1, stderr=-1, preexec_fn=die_with_parent,
        env={**os.environ, "PYTHONPATH": PATHS, "CUDA_VISIBLE_DEVICES": "", **environment},
    )  # fmt: skip
    try:
        out, err = await process.communicate(json.dumps(asked).encode())
    finally:
        if process.returncode is None:
            process.kill()
    _, told, answer = out.decode().rpartition(ANSWER)
    if not told:
        raise AssertionError(err.decode(errors="replace")[-4000:])
    return json.loads(answer)
