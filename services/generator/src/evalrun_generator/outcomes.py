"""Errors that end a generation early, by what the caller should do.

BadInputError (evalrun_runtime)   the user must change the input; exit code 2
GenerationStoppedError            an outage must end first; run again to resume; exit code 1
"""


class GenerationStoppedError(Exception):
    """The run cannot continue by itself. All completions are stored; running again resumes it."""
