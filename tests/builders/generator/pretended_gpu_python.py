"""An interpreter that pretends to have Ray, verl and vLLM, for tests of what surrounds them: `--gpu-python`.

Its Ray starts an orphan that ignores SIGTERM and holds a segment of shared memory, as an engine does. Its rollout plays
back the demo's recorded answers through our own generator. What real ones do is tested by `make test-rollout`.
"""

import hashlib
import os
import sys
from pathlib import Path

ORPHAN = """
import mmap, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.ftruncate(descriptor, 4096)
held = mmap.mmap(descriptor, 4096)
open(sys.argv[2], "w").close()
time.sleep(600)
"""

PROGRAM = """#!{python}
import json, os, re, signal, subprocess, sys, time
arguments = sys.argv[1:]
if arguments[0] == "-c":
    packages = {{name: "99" for name in arguments[2:]}} | {{"verl": {verl!r}}}
    print(json.dumps({{"python": [3, 11, 9], "packages": packages}}))
elif arguments[1] == "ray.scripts.scripts":
    flags = dict(argument.lstrip("-").split("=", 1) for argument in arguments if "=" in argument)
    held = os.path.join(flags["temp-dir"], "held")
    subprocess.run([{python!r}, "-c", {orphan!r}, {segment!r} + str(os.getpid()), held, flags["temp-dir"]])
    while not os.path.exists(held):
        time.sleep(0.01)
    print("Local node IP: 127.0.0.2 Ray runtime started. --address='127.0.0.2:" + flags["port"] + "'", flush=True)
    while True:
        signal.pause()
elif arguments[1] == "evalrun_generator.rollout":
    dropped = re.compile("--(work-order|ray-address|end-rep|model-f|engine-env)")
    kept = [each for each in arguments[2:] if not dropped.match(each)]
    environment = {{**os.environ, "PYTHONPATH": {code!r}}}
    recorded = [{python!r}, "-m", "evalrun_generator.recorded", "--problems", "builtin:demo"]
    recorded += ["--responses", "builtin:demo", "--model", {model!r}, "--exit-with-parent"]
    server = subprocess.Popen(recorded, stdout=subprocess.PIPE, env=environment, text=True)
    address = server.stdout.readline().split()[-1]
    command = [{python!r}, "-m", "evalrun_generator", "--endpoint", address, "--model", {model!r}, *kept]
    os.execve({python!r}, command, environment)
"""


def make_pretended_gpu_python(path: Path, model: str, verl: str = "0.9.1") -> Path:
    """Write the interpreter; its segments of shared memory have the name that `segments_of` finds."""
    path.write_text(
        PROGRAM.format(
            python=sys.executable, orphan=ORPHAN, segment=f"/dev/shm/{segment_name(path)}-", model=model, verl=verl,
            code=os.pathsep.join(sys.path),
        )
    )  # fmt: skip
    path.chmod(0o755)
    return path


def segment_name(path: Path) -> str:
    """Return how the names of an interpreter's segments begin."""
    return f"evalrun-test-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def segments_of(path: Path) -> list[Path]:
    """Return the segments that an interpreter's engines have left."""
    return [*Path("/dev/shm").glob(f"{segment_name(path)}-*")]
