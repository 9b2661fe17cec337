"""Results of a run: samples, metrics with intervals, output files, QA logs, comparison, gates, report, exports.

Works offline on what a run left behind: needs no service. `samples` is one answer with its verdict, `stored_run`
reads a finished run back.
"""
