"""Results of a run: samples, metrics with intervals, output files, QA logs, comparison, gates, report, exports.

The package works offline on the files of a run and needs no service. `samples` is a completion with its verdict,
`stored_run` reads a finished run back.
"""
