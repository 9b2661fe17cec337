"""`python -m evalrun_generator.recorded`: serve recorded completions until SIGTERM."""

import sys
from collections.abc import Sequence

from evalrun_generator.recorded.recording import Echo, Recording
from evalrun_generator.recorded.server import RecordedServer
from evalrun_generator.recorded.settings import RecordedSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings


def main(argv: Sequence[str]) -> int:
    """Run the server; gives the exit code."""
    try:
        settings = load_settings(RecordedSettings, argv, program="evalrun-recorded")
        source = source_of(settings)
        return run_service("recorded", settings, lambda: RecordedServer(settings, source))
    except BadInputError as error:
        print(f"evalrun: {error}", file=sys.stderr)  # noqa: T201 - the line that the user reads
        return ExitCode.BAD_INPUT


def source_of(settings: RecordedSettings) -> Recording | Echo:
    """Give what answers. Raises BadInputError."""
    if settings.echo_tokens is not None:
        return Echo(settings.echo_tokens)
    # Read only where it is needed: the generator's image holds no reader of problem files.
    from evalrun_generator.recorded.loading import load_recording

    return load_recording(settings.problems, settings.responses, settings.base_seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
