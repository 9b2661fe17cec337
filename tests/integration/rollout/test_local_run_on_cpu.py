"""`evalrun run FILE --local` with real Ray, verl and vLLM on a CPU: killed, stopped, resumed, leftovers counted."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from builders.command_line import DEMO, answers_stored, evalrun, evalrun_started, processes_with, summary, verdicts
from builders.generator.rollout import make_tiny_model

from evalrun_generator.gpu_host.processes import find_descendants
from evalrun_generator.gpu_host.session_directory import PLACE, PREFIX

pytestmark = [
    pytest.mark.timeout(2700),
    pytest.mark.skipif(os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="takes minutes: make test-rollout"),
]
"""Three loads of verl and vLLM."""

LOAD_SECONDS = 900.0
SHARED_MEMORY = Path("/dev/shm")


def write_run(directory: Path, model: Path) -> Path:
    manifest = yaml.safe_load(DEMO.read_text())
    spec = manifest["spec"]
    spec.pop("endpoints", None)
    spec["model"] = {"path": str(model)}
    spec["protocol"] = {"name": "EVAL@k", "samples": 8, "k": [1], "temperature": "1.0", "maxNewTokens": 96}
    spec["rollout"] = {
        "tensorParallel": 1, "gpusPerNode": 1, "dtype": "float32", "maxNumSeqs": 4, "promptLength": 2048,
        "enforceEager": True,
    }  # fmt: skip
    file = directory / "run.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


@pytest.fixture
def places() -> Iterator[Callable[[], set[Path]]]:
    """What appeared in the places that Ray and engines write to; nothing may be there at the end."""

    def there() -> set[Path]:
        segments = {path for path in SHARED_MEMORY.iterdir() if not path.name.startswith("evalrun-")}  # other tests'
        return {*PLACE.glob(f"{PREFIX}*"), *segments}

    before = there()

    def appeared() -> set[Path]:
        return there() - before

    yield appeared
    assert appeared() == set()


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


async def test_local_run_killed_twice_is_resumed_to_the_end_and_leaves_nothing(
    gen_cpu: Path, tmp_path: Path, places: Callable[[], set[Path]]
) -> None:
    model, output = await make_tiny_model(gen_cpu, tmp_path / "model"), tmp_path / "out"
    file = write_run(tmp_path, model)
    with evalrun_started("run", file, "--local", "--gpus", "cpu", "--gpu-python", gen_cpu, "--output", output) as first:
        until(lambda: answers_stored(output) or first.poll() is not None, LOAD_SECONDS)
        assert first.poll() is None, first.communicate()
        assert places()
        engines = find_descendants([first.pid])
        first.kill()
        first.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in engines), 10)
        until(lambda: not places() and not processes_with(str(tmp_path)), 10)
    before = answers_stored(output)
    assert 0 < before < 256

    with evalrun_started("resume", output) as second:
        until(lambda: answers_stored(output) > before or second.poll() is not None, LOAD_SECONDS)
        assert second.poll() is None, second.communicate()
        second.send_signal(signal.SIGINT)
        printed, _ = second.communicate(timeout=120)
    assert second.returncode == 130, printed
    assert places() == set()
    assert processes_with(str(tmp_path)) == []

    done = evalrun("resume", output, timeout=2 * LOAD_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times: Ray" in done.stderr
    assert len(verdicts(output)) == 256
    assert summary(output)["state"] == "Succeeded"
    assert processes_with(str(tmp_path)) == []
