"""Signed statements about a run's outputs, which anybody can verify without a network.

Everything here but `archive`, `run_files` and `keyless` is pure. Judging drawn answers again is the command's part
(`evalrun_cli.attestation`), since it starts services.
"""
