"""How a generation ends other than by having everything: the errors, by what the caller should do.

BadInputError (evalrun_runtime)   the user must change something; exit code 2
GenerationStoppedError            something else must get well or be looked at; run again to resume; exit code 1
"""


class GenerationStoppedError(Exception):
    """The run cannot go on by itself. What was answered is stored; starting again resumes it."""
