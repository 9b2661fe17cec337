"""verl's configuration files as input.

Pure: document, generation, key_reasons, overrides. I/O: commands, evaluation.
"""
