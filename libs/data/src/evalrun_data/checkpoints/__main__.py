"""`python -m evalrun_data.checkpoints REQUEST --answer FILE`: the Job that lists a schedule's checkpoints, and answers.

REQUEST is a `ListingRequest` as JSON. The answer goes to FILE, which is the container's termination message; without it
to stdout. What went wrong is the last line on stderr, which Kubernetes takes as the message of a container that failed.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from evalrun_api.checkpoint_listing import ListingRequest, encode_answer
from evalrun_data.checkpoints.choice import list_checkpoints
from evalrun_data.checkpoints.store import CheckpointStore, StoreError
from evalrun_runtime.exits import ExitCode
from evalrun_runtime.termination import end_with


def main(argv: Sequence[str]) -> int:
    """List, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evalrun_data.checkpoints")
    parser.add_argument("request", help="a ListingRequest as JSON")
    parser.add_argument("--answer", type=Path, help="file of the answer; stdout if there is none")
    arguments = parser.parse_args(argv)
    try:
        request = ListingRequest.model_validate_json(arguments.request)
    except ValidationError as error:
        text = f"the request cannot be read: {error.errors()[0]['msg']}"
        return end_with(error, ExitCode.BAD_INPUT, text=text)
    try:
        answer = encode_answer(list_checkpoints(request, CheckpointStore(request.url), datetime.now(UTC)))
    except StoreError as error:
        return end_with(error, ExitCode.FAILED)
    if arguments.answer is None:
        sys.stdout.write(answer + "\n")
    else:
        arguments.answer.write_text(answer, encoding="utf-8")
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
