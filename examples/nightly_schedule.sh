#!/bin/sh
# Try a nightly schedule before it is applied: its file is checked, and its run is made once on this machine.
# sh examples/nightly_schedule.sh
set -e
schedule=$(dirname "$0")/nightly_schedule.yaml
evalrun validate "$schedule"
mkdir -p out
python - "$schedule" <<'PYTHON'
import sys
from pathlib import Path

import yaml

spec = yaml.safe_load(Path(sys.argv[1]).read_text())["spec"]["template"]
# In a cluster the operator names the checkpoint here, and leaves out a gate while there is no last good run.
spec |= {"model": {"path": "evalrun/recorded-demo"}, "gates": []}
run = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "nightly-first"}, "spec": spec}
Path("out/nightly-first.yaml").write_text(yaml.safe_dump(run))
PYTHON
# A server plays back recorded answers; yours is --endpoint URL, and without one the run takes this machine's GPUs.
evalrun run out/nightly-first.yaml --local --endpoint builtin:demo --output out/nightly-first --quiet
