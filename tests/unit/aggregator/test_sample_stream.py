"""What the ledger's samples become: the prompt of a result is the one that the model saw."""

from evalrun_aggregator.finish.sample_stream import encode_ground_truth, sample_results
from evalrun_aggregator.ledger.entries import StoredCompletion, StoredSample
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems
from evalrun_api.v1alpha1 import Dataset, Protocol
from evalrun_data.prompts import render
from evalrun_data.records import CheckTest, Message, Problem, StdioTests
from evalrun_results.outputs.qa_logs import QaOptions, qa_record
from evalrun_results.samples import JsonObject

STDIO = Problem("d", "p", "Print one.", StdioTests(("",), ("1\n",)))
OWN_CHAT = Problem("d", "p", "s\n\nu", STDIO.ground_truth, messages=(Message("system", "s"), Message("user", "u")))
CHECK = Problem("d", "p", "def f():\n", CheckTest("def f():\n", "def check(f): ...", "f"))


def make_problem_record(problem: Problem, *, prompt_format: str = "Chat", started_at: float = 1.0) -> JsonObject:
    dataset = Dataset.model_validate({"name": "d", "source": "d.jsonl", "promptFormat": prompt_format})
    problems = RunProblems("run", [RunDataset(dataset, [problem])], Protocol(), samples=1, repeats=0)
    completion = StoredCompletion(pack_row(0, 0, 0), "print(1)", "stop", 3, 5, 0.5, started_at, "r", "m", 1)
    (result,) = sample_results([StoredSample(completion, None)], problems, "asked")
    return qa_record(result, QaOptions(0.0, 10))


def test_a_prompt_is_shown_after_its_template() -> None:
    record = make_problem_record(STDIO)
    (message,) = render(STDIO)
    assert record["prompt"] == message.content
    assert "Solve the following problem with a Python 3 program" in str(record["prompt"])
    assert record["messages"] == [{"role": "user", "content": message.content}]


def test_a_chat_of_several_messages_is_shown_with_roles() -> None:
    record = make_problem_record(OWN_CHAT)
    assert record["prompt"] == "[system]\ns\n\n[user]\nu"
    assert record["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def test_a_completion_prompt_has_no_messages() -> None:
    record = make_problem_record(CHECK, prompt_format="Completion")
    assert (record["prompt"], record["messages"]) == ("def f():\n", [])


def test_answer_made_elsewhere_shows_the_problems_prompt_without_messages() -> None:
    record = make_problem_record(STDIO, started_at=0.0)
    assert (record["prompt"], record["messages"]) == ("Print one.", [])


def test_ground_truth_of_a_result_includes_the_prelude_of_its_tests() -> None:
    preceded = Problem("d", "p", "Print one.", StdioTests(("",), ("1\n",), prelude="import math\n"))
    assert encode_ground_truth(preceded) == {"inputs": [""], "outputs": ["1\n"], "prelude": "import math\n"}
    assert encode_ground_truth(STDIO) == {"inputs": [""], "outputs": ["1\n"]}


def test_a_worker_gets_the_sampling_and_the_system_prompt_of_the_spec() -> None:
    dataset = Dataset.model_validate({"name": "d", "source": "d.jsonl", "systemPrompt": "Be brief."})
    protocol = Protocol.model_validate(
        {
            "topK": 20,
            "minP": "0.05",
            "repetitionPenalty": "1.05",
            "stop": ["END"],
            "ignoreEos": True,
            "calculateLogProbs": True,
        }
    )
    item = RunProblems("run", [RunDataset(dataset, [STDIO])], protocol, samples=1, repeats=0).work_item(0)
    assert [message.role for message in item.messages] == ["system", "user"]
    sampling = item.sampling
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (20, 0.05, 1.05)
    assert (list(sampling.stop), sampling.ignore_eos, sampling.log_probs) == (["END"], True, True)
    plain = RunProblems("run", [RunDataset(dataset, [STDIO])], Protocol(), samples=1, repeats=0).work_item(0).sampling
    assert not any(plain.HasField(name) for name in ("top_k", "min_p", "repetition_penalty"))


def test_a_resumed_run_must_have_the_same_system_prompt() -> None:
    digests = {
        RunDataset(Dataset.model_validate({"name": "d", "source": "s", **own}), [STDIO]).prompts_sha256
        for own in ({}, {"systemPrompt": "a"}, {"systemPrompt": "b"})
    }
    assert len(digests) == 3


def test_work_item_uses_the_datasets_template_and_the_prompt_digest_depends_on_it() -> None:
    spec = Dataset.model_validate({"name": "d", "source": "d.jsonl", "promptTemplate": "mine.txt"})
    datasets = [RunDataset(spec, [STDIO], template=text) for text in ("Do: {prompt}", "Now: {prompt}")]
    items = [RunProblems("run", [each], Protocol(), samples=1, repeats=0).work_item(0) for each in datasets]
    assert [item.messages[0].content for item in items] == ["Do: Print one.", "Now: Print one."]
    assert len({each.prompts_sha256 for each in (*datasets, RunDataset(spec, [STDIO]))}) == 3
