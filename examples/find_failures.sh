#!/bin/sh
# Run the demo, list the answers that failed, and look at one with its tests: sh examples/find_failures.sh
set -e
evalrun run --endpoint builtin:demo --output out/demo --quiet
evalrun samples out/demo --where status=wrong_answer
first=$(evalrun samples out/demo --where status=wrong_answer --limit 1 --json | python -c 'import json; print(json.loads(input())["problem_id"])')
evalrun show out/demo "$first"
