"""`evalrun view`: the samples of runs as a page, served on this machine or written as static files (docs/view.md).

`web/` is the page. It reads `runs.json`, and for each run `run.json` and, by range, the files that `run.json` names.
This package serves or exports these files; `evalrun_results.sample_index` defines their format.
"""
