"""How long the parts of an engine's start took, by what vLLM 0.24.0 logged on an H100."""

import sys
from pathlib import Path
from subprocess import run

from evalrun_generator.rollout.vllm_start_times import start_times

LOG = """
(EngineCore pid=2823) INFO 11-25 22:29:40 [default_loader.py:431] Loading weights took 1.60 seconds
(Worker_TP0 pid=9) INFO 11-25 22:29:41 [model_runner.py:303] Model loading took 12.27 GiB memory and 1.712345 seconds
(Worker_TP1 pid=10) INFO 11-25 22:29:41 [gpu_model_runner.py:5256] Model loading took 12.27 GiB memory and 1.81 seconds
(EngineCore pid=2823) INFO 11-25 22:30:01 [monitor.py:53] torch.compile took 20.30 s in total
(EngineCore pid=2823) INFO 11-25 22:30:06 [gpu_model_runner.py:6657] Graph capturing finished in 3 secs, took 0.52 GiB
"""


def test_start_times_are_those_of_the_slowest_process() -> None:
    assert start_times(LOG) == {"weights_seconds": "1.8", "compile_seconds": "20.3", "graphs_seconds": "3.0"}


def test_start_times_without_engine_messages_are_empty() -> None:
    assert start_times("INFO: Started server process") == {}


def test_start_times_are_read_from_the_file_behind_stdout(tmp_path: Path) -> None:
    log = tmp_path / "worker.out"
    code = "import sys; from evalrun_generator.rollout.vllm_start_times import read_own_start_times as t; "
    code += "sys.stdout.write('Graph capturing finished in 4 secs'); sys.stdout.flush(); sys.stderr.write(str(t()))"
    with log.open("wb") as file:
        done = run([sys.executable, "-c", code], stdout=file, capture_output=False, stderr=-1, check=True)
    assert done.stderr.decode() == "{'graphs_seconds': '4.0'}"
