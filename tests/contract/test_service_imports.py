"""What services and commands import, in a fresh interpreter: a run on one machine waits for all of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders.results.stored_runs import verdicts_of, write_run

NEVER = {"click", "kopf", "lightkube", "mlflow", "ray", "redis", "rich", "torch", "transformers", "vllm", "wandb"}
NOT_AT_START = {
    "evalrun_aggregator": {"aiohttp", "google.protobuf.descriptor_pb2", "grpc_reflection.v1alpha.reflection", "yaml"},
    "evalrun_generator": {"evalrun_api", "fsspec", "numpy", "pyarrow", "yaml"},
    "evalrun_generator.recorded": {"fsspec", "grpc", "numpy", "pyarrow", "yaml"},
    "evalrun_judge": {
        "aiohttp",
        "fsspec",
        "google.protobuf.descriptor_pb2",
        "grpc_reflection.v1alpha.reflection",
        "numpy",
        "yaml",
    },
    "evalrun_reward": {"fsspec", "numpy", "pyarrow", "yaml"},
    "evalrun_sandbox": {"evalrun_proto", "google.protobuf", "grpc", "numpy", "yaml"},
}
"""By service: modules that only some options, requests or the end of a run need. Import them where they are used."""


@pytest.mark.parametrize("service", NOT_AT_START)
def test_start_does_not_import_rarely_needed_modules(service: str) -> None:
    code = f"import json, sys, {service}.__main__; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stdout))
    assert f"{service}.__main__" in imported
    assert imported & (NEVER | NOT_AT_START[service]) == set()


NOT_FOR_A_COMMAND = {
    "--help": {"asyncio", "evalrun_api", "evalrun_results", "importlib.metadata", "numpy", "pydantic", "rich", "yaml"},
    "compare": {"aiohttp", "evalrun_aggregator", "evalrun_results.outputs.writer", "grpc", "lightkube"},
    "show": {"aiohttp", "evalrun_aggregator", "evalrun_api.v1alpha1", "evalrun_results.outputs.writer", "grpc"},
}
"""By command: modules whose import would take longer than what it does."""


def test_every_module_of_the_lists_can_be_imported() -> None:
    """A package that was renamed would be imported unnoticed. `NEVER` holds optional ones, which are not checked."""
    names = sorted(set().union(*NOT_AT_START.values(), *NOT_FOR_A_COMMAND.values()))
    subprocess.run([sys.executable, "-c", "import " + ", ".join(names)], check=True)


@pytest.mark.parametrize("command", NOT_FOR_A_COMMAND)
def test_command_does_not_import_modules_that_it_does_not_need(command: str, tmp_path: Path) -> None:
    runs = [str(write_run(tmp_path / name, verdicts_of([True, False]), run=name)) for name in ("a", "b")]
    arguments = {"--help": [], "compare": runs, "show": runs[:1]}[command]
    code = (
        "import json, sys\nfrom evalrun_cli.__main__ import main\ntry:\n    main(sys.argv[1:])\n"
        "finally:\n    print(json.dumps([*sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, command, *arguments], capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stderr.splitlines()[-1]))
    assert "evalrun_cli.__main__" in imported
    assert imported & NOT_FOR_A_COMMAND[command] == set()
