"""`evalrun view`: the samples of runs as a page, served on this machine or written as static files (docs/view.md).

`web/` is the page. It reads `runs.json`, and of each run `run.json` and the files that it names, by range. What
serves or exports them is here; the files' format is `evalrun_results.sample_index`.
"""
