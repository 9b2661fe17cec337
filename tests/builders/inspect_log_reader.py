"""Reads an exported `.eval` file with the real package, in its own interpreter, and prints what it found as JSON.

argv: the file; site-packages whose pandas the dataframes use, which the package's lock lacks; a JSON file to write.
"""

import json
import sys

from inspect_ai.log import (
    headline_metric,
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample_summaries,
    read_eval_log_samples,
    write_eval_log,
)

from evalrun_data.records import CheckTest, Problem
from evalrun_data.responses import load_responses

path, packages, converted = sys.argv[1:]
log = read_eval_log(path)
one_by_one = list(read_eval_log_samples(path, all_samples_required=log.status == "success"))
found = {
    "status": log.status,
    "model": log.eval.model,
    "samples": {
        f"{sample.id}#{sample.epoch}": {
            "answer": sample.output.completion,
            "stop": sample.output.stop_reason,
            "accepted": None if not sample.scores else sample.scores["accepted"].value,
            "error": sample.error and sample.error.message,
            "input": sample.input if isinstance(sample.input, str) else [each.text for each in sample.input],
        }
        for sample in log.samples
    },
    "one_by_one": [f"{sample.id}#{sample.epoch}" for sample in one_by_one],
    "is_same": sorted(each.model_dump_json() for each in log.samples)
    == sorted(each.model_dump_json() for each in one_by_one),
    "summaries": [f"{each.id}#{each.epoch}" for each in read_eval_log_sample_summaries(path)],
    "listed": [(each.task, each.task_id == log.eval.task_id) for each in list_eval_logs(path.rpartition("/")[0])],
}
if log.results is not None:
    headline = headline_metric(log)
    found["headline"] = [headline.metric.name, headline.metric.value]
    found["metrics"] = {name: each.value for score in log.results.scores for name, each in score.metrics.items()}
if not any(sample.error for sample in log.samples):
    names = dict.fromkeys(str(sample.id) for sample in log.samples)
    problems = [Problem(log.eval.task, name, "", CheckTest("", "t", "f")) for name in names]
    found["read_by_evalrun"] = {
        f"{each.problem_id}#{each.sample + 1}": each.text for each in load_responses([path], problems)
    }
write_eval_log(log, converted)

sys.path.append(packages)
from inspect_ai.analysis import evals_df, samples_df  # noqa: E402 - with the packages that it asks for

samples, evals = samples_df(path, quiet=True), evals_df(path, quiet=True)
found["frame"] = {
    f"{row.id}#{row.epoch}": str(row.score_accepted) for row in samples.itertuples() if "score_accepted" in samples
}
found["eval_columns"] = {name: str(evals[name][0]) for name in evals.columns if name.startswith("score_")}
print("FOUND", json.dumps(found))
