"""Signed statements about runs: what a run's outputs are, in a form that a stranger can check without a network.

Everything here but `archive`, `run_files` and `keyless` is pure. Judging drawn answers again is the command's part
(`evalrun_cli.attestation`), since it starts services.
"""
