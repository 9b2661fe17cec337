"""`python -m evalrun_generator.recorded`: serve recorded completions until SIGTERM."""

import sys
from collections.abc import Sequence

from evalrun_generator.recorded.recorded_completions import EchoCompletions, RecordedCompletions
from evalrun_generator.recorded.server import RecordedServer
from evalrun_generator.recorded.settings import RecordedSettings
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import complete
from evalrun_runtime.process import run_service
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with


def main(argv: Sequence[str]) -> int:
    """Run the server and return its exit code."""
    try:
        settings = load_settings(RecordedSettings, argv, program="evalrun serve recorded")
        source = load_source(settings)
        return run_service("recorded", settings, lambda: RecordedServer(settings, source))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)


def load_source(settings: RecordedSettings) -> RecordedCompletions | EchoCompletions:
    """Return the source of completions. Raises BadInputError."""
    if settings.echo_tokens is not None:
        return EchoCompletions(settings.echo_tokens)
    # The import is made only here, because the generator's image contains no reader of problem files.
    from evalrun_generator.recorded.completion_files import load_recorded_completions

    return load_recorded_completions(settings.problems, settings.responses, settings.base_seed)


if __name__ == "__main__":
    sys.exit(main(complete(sys.argv[1:])))
