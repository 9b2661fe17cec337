# What a person types. `make help` lists it.
PYTHON ?= python3
# The tests on another interpreter: make PYTHON=python3.13 VENV=.venv-3.13 unit
VENV := .venv
BIN := $(VENV)/bin
UV := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/python -m uv
DEMO_OUTPUT ?=
FAST_LEVELS := tests/unit tests/contract
# Divided so that no part of `make test` works alone at its end, which would leave a core idle.
PROCESS_LEVELS := $(sort $(dir $(wildcard tests/integration/*/test_*.py)))
COMMAND_LEVELS := tests/integration/cli/
JUDGE_LEVELS := $(addprefix tests/integration/,cheats/ fusion/ judge/ sandbox/)
REPLICA_LEVELS := tests/integration/rollout/
SERVICE_LEVELS := $(filter-out $(COMMAND_LEVELS) $(JUDGE_LEVELS) $(REPLICA_LEVELS),$(PROCESS_LEVELS))

# What the type checker has found out of the same packages, and of modules that may be the same: a clone without it takes
# 63 s of CPU. One file, replaced as a whole, so that checkouts may share it; each works on a copy of its own.
TYPES = $(or $(EVALRUN_CACHE),$(HOME)/.cache/evalrun)/mypy/$(shell cat requirements/base.txt requirements/dev.txt | sha256sum | cut -c 1-16).tar

.DEFAULT_GOAL := help
.PHONY: help setup demo generate lock setup-gen-cpu test-rollout test-peers test-all-data test-busy test-liars test-e2e-rollout test-e2e-faults test-e2e-nodes check docs unit fast-tests test-fast test test-e2e test-images test-services test-replicas test-judge test-commands test-cluster test-chart bench bench-embedder bench-gates bench-schedules test-autoscaling kill-gates kill-runs kill-catalogue fuzz-operator edit-bundles sbom release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.base ## install evalrun into .venv; the command is .venv/bin/evalrun

demo: setup ## evaluate the demo set end to end on this machine: no cluster, GPU, Docker or network
	$(BIN)/evalrun run k8s/samples/demo.yaml --local --endpoint builtin:demo $(if $(DEMO_OUTPUT),--output $(DEMO_OUTPUT))

generate: $(VENV)/.dev ## regenerate everything that is generated: stubs, CRDs, field reference, dashboards, alerts, the chart's rules, the plain manifests
	$(BIN)/python tools/generate_stubs.py
	$(BIN)/python tools/generate_crd.py
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python tools/generate_monitoring.py
	$(BIN)/python tools/generate_manifests.py
	$(BIN)/python tools/generate_reachability.py

lock: $(VENV)/.dev ## update requirements/*.txt from pyproject.toml
	$(BIN)/python tools/lock.py
	PYTHONPATH=services/cli/src $(BIN)/python tools/gen_cpu.py lock

setup-gen-cpu: $(VENV)/.build ## install Ray, verl and vLLM for a CPU (6 GB) beside .venv, once for each lock
	PYTHONPATH=services/cli/src $(BIN)/python tools/gen_cpu.py install

test-rollout: $(VENV)/.dev setup-gen-cpu ## real verl replicas on a real Ray cluster, an adapter on one, and verl's merger, on a CPU
	EVALRUN_TEST_ROLLOUT=all $(BIN)/pytest tests/integration/rollout

test-peers: $(VENV)/.dev ## ours beside the published EvalPlus, LiveCodeBench, Inspect and MLflow, and called by TRL, OpenRLHF, OpenEnv and verifiers; it installs them (1.8 GB)
	$(BIN)/python tools/peers.py

test-all-data: $(VENV)/.dev ## judge all that other tests sample: contest programs, cheats and HumanEval of each language, all of MBPP
	EVALRUN_TEST_ALL_DATA=1 $(BIN)/pytest -k 'contest_programs or mbpp or recorded_verdict or every_program_gets or cheat_of_a_language or solutions_of_humaneval' \
	  tests/unit/function_tests/test_function_real_data.py tests/integration/judge/test_judge_real_data.py \
	  tests/integration/judge/test_contest_languages.py tests/integration/judge/test_humaneval_languages.py \
	  tests/integration/cheats/test_judged_cheats.py \
	  tests/integration/cli/test_shared_verdicts.py

test-busy: $(VENV)/.dev ## 64 right programs of each language at once beside 12 processes that never rest: no false timeout
	EVALRUN_TEST_BUSY=12 $(BIN)/pytest -s tests/integration/judge/test_language_load.py

test-liars: $(VENV)/.dev ## objects that lie about themselves, 30 on every problem of HumanEval and MBPP, more on other shapes: none may pass
	EVALRUN_TEST_ALL_DATA=1 $(BIN)/pytest tests/unit/function_tests/test_liars.py

test-e2e-rollout: $(VENV)/.dev setup-gen-cpu ## run spec.rollout on the real pods of KUBECONFIG's cluster, on a CPU
	EVALRUN_TEST_E2E_ROLLOUT=required CI=true $(BIN)/pytest tests/e2e/rollout -s

check: $(VENV)/.dev ## lint, types, layers, and that what is generated is up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@[ -e .mypy_cache ] || [ ! -e $(TYPES) ] || tar -xf $(TYPES) || rm -rf .mypy_cache
	$(BIN)/mypy
	@mkdir -p $(dir $(TYPES)) && tar -cf $(TYPES).$$$$ .mypy_cache && mv $(TYPES).$$$$ $(TYPES) || rm -f $(TYPES).$$$$
	$(BIN)/python tools/check_generated.py

docs: dist/docs-env/.made ## build the documentation into dist/docs, for any web server; a broken link is an error
	dist/docs-env/bin/python tools/build_docs.py

unit: $(VENV)/.dev ## the tests that need nothing but this checkout
	$(BIN)/pytest $(FAST_LEVELS)

test-fast: $(VENV)/.dev ## what a change most likely breaks: check, contracts and the quick unit tests; four minutes on two cores
	$(MAKE) --no-print-directory --jobs=2 check fast-tests

fast-tests: $(VENV)/.dev
	$(BIN)/pytest --numprocesses=auto -m "not slow" --quiet $(FAST_LEVELS)

test-e2e-faults: $(VENV)/.dev ## upgrades, refusals, strangers, thirty runs at once on the real pods of KUBECONFIG's cluster
	EVALRUN_TEST_E2E_FAULTS=required CI=true $(BIN)/pytest tests/e2e/faults -s

test-e2e-nodes: $(VENV)/.dev ## lose a node at 20 moments of a run by each kind of fault, where EVALRUN_NODE_FAULTS can do that to KUBECONFIG's cluster
	EVALRUN_NODE_MOMENTS=$${EVALRUN_NODE_MOMENTS:-20} CI=true $(BIN)/pytest tests/e2e/nodes -s

# Byte code is kept even where the environment says otherwise (PYTHONDONTWRITEBYTECODE): tests start many hundred processes,
# and one that compiles all that it imports takes, on a busy machine, 2.1 s of CPU to start an aggregator instead of 1.2.
unit fast-tests test test-e2e test-images test-services test-replicas test-judge test-commands test-cluster test-chart: export PYTHONDONTWRITEBYTECODE :=
test-rollout test-peers test-all-data test-busy test-liars: export PYTHONDONTWRITEBYTECODE :=

# Four at a time, since tests mostly wait for processes and pods, and fewer left two cores idle. What fails soon comes
# first, then what is longest: `cluster` alone at the end took eight minutes of nearly idle cores.
test: $(VENV)/.dev ## set up, check, and pass every test that this machine can run
	$(MAKE) --no-print-directory --jobs=4 --output-sync=target check docs unit test-e2e test-commands test-judge test-services test-cluster test-replicas test-images test-chart

test-e2e: $(VENV)/.dev ## the tests of real pods, where KUBECONFIG names a cluster
	$(BIN)/pytest tests/e2e

test-images: $(VENV)/.dev ## the tests of the images
	$(BIN)/pytest tests/images

test-chart: $(VENV)/.dev ## the tests of the chart
	$(BIN)/pytest tests/chart

test-services: $(VENV)/.dev ## the tests of the services' processes on loopback: aggregator, generator, rewards, stores
	$(BIN)/pytest $(SERVICE_LEVELS)

test-replicas: $(VENV)/.dev ## the tests of replicas: real verl and vLLM on a CPU, where `make setup-gen-cpu` has installed them
	$(BIN)/pytest $(REPLICA_LEVELS)

test-judge: $(VENV)/.dev ## the tests of the judge's processes on loopback: sandbox, gateway, cheats, SandboxFusion
	$(BIN)/pytest $(JUDGE_LEVELS)

test-commands: $(VENV)/.dev ## the tests of the command line
	$(BIN)/pytest $(COMMAND_LEVELS)

test-cluster: $(VENV)/.dev ## the tests of the operator and the chart on a real API server
	$(BIN)/pytest tests/cluster

bench: $(VENV)/.dev ## run the benchmarks; benchmarks/README.md says what each one measures
	$(BIN)/python benchmarks/run_all.py

bench-gates: $(VENV)/.dev ## how often every kind of gate and interval errs and decides, in every setting: the table of docs/gates.md; 3 h of CPU
	$(BIN)/python benchmarks/gate_characteristics.py

bench-embedder: $(VENV)/.dev ## how many rewritten problems an embedding model finds: make bench-embedder DIR=MODEL, a directory with model.onnx and tokenizer.json
	@[ -n "$(DIR)" ] || { echo 'DIR=MODEL: name the directory of an embedding model (model.onnx, tokenizer.json)' >&2; exit 2; }
	$(BIN)/python benchmarks/embedder.py $(DIR)

bench-schedules: $(VENV)/.dev ## 60 nights and 1,000 checkpoints of a schedule on a real API server, the operator killed 50 times
	$(BIN)/python benchmarks/schedule_nights.py

test-autoscaling: $(VENV)/.dev ## autoscalers by CPU, by our own series and by KEDA follow 1, 64, 0 and 64 in flight: 40 minutes
	$(BIN)/python benchmarks/autoscaling.py
	EVALRUN_TEST_KEDA=required $(BIN)/pytest tests/cluster/test_keda.py

sbom: $(VENV)/.dev ## write a CycloneDX bill of materials for each image of Dockerfile.judge into dist/sbom
	$(BIN)/python tools/generate_sbom.py

release: $(VENV)/.dev ## build wheel, sdist, chart, manifests, bills of materials and checksums into dist/release; KEY=FILE or SIGSTORE=1 signs them
	$(BIN)/python tools/release.py $(if $(KEY),--key $(KEY)) $(if $(SIGSTORE),--sigstore)

kill-gates: $(VENV)/.dev ## kill a run with a sequential gate at 20 random moments: its decision must stay the same
	EVALRUN_GATE_KILL_MOMENTS=20 $(BIN)/pytest -q tests/integration/cli/test_sequential_run_killed.py

kill-runs: $(VENV)/.dev ## kill parts of a run at 20 random moments: every verdict must stay the same
	EVALRUN_KILL_MOMENTS=20 $(BIN)/pytest -q tests/integration/cli/test_kill_and_resume.py

kill-catalogue: $(VENV)/.dev ## kill two writers of one catalogue 50 times: every run must be in it once
	EVALRUN_CATALOGUE_KILLS=50 $(BIN)/pytest -q --timeout=1800 tests/integration/cli/test_catalogue_killed.py

edit-bundles: $(VENV)/.dev ## 10,000 single edits of a signed bundle: every one must be found
	EVALRUN_BUNDLE_EDITS=10000 $(BIN)/pytest -q --timeout=7200 tests/unit/attest/test_edited_bundles.py

fuzz-operator: $(VENV)/.dev ## 10,000 mutated objects of one tenant on a real API server: the operator must serve another tenant within 5 s
	EVALRUN_FUZZ_OBJECTS=10000 CI=true $(BIN)/pytest -q -s tests/cluster/test_operator_fuzzed.py

clean: ## remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "evalrun needs Python 3.11 or newer: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.build: $(BIN)/python requirements/build.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.base: $(VENV)/.build requirements/base.txt pyproject.toml
	$(UV) pip install --quiet --require-hashes -r requirements/base.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	$(UV) pip install --quiet --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

dist/docs-env/.made: $(VENV)/.build requirements/docs.txt pyproject.toml
	$(BIN)/python -m venv dist/docs-env
	$(UV) pip install --quiet --python dist/docs-env/bin/python --require-hashes -r requirements/docs.txt
	$(UV) pip install --quiet --python dist/docs-env/bin/python --no-deps --no-build-isolation --editable .
	@touch $@
