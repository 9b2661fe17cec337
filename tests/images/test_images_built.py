"""Every stage of Dockerfile.judge, really built, and run as restricted as a pod: what is in it, and that it works."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import generate_sbom
import pytest
from builders.cluster.images import USER, BuildFailedError, Image, Images, files_of
from cyclonedx.model.component import Component
from image_packages import python_components
from packaging.utils import canonicalize_name

from evalrun_client.grader import render_grader_input, verls_grader
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PYTHON = "/opt/evalrun/bin/python"
COMPILERS = {"gcc", "g++", "cc", "c++", "as", "ld"}
MAX_MB = {"aggregator": 750, "judge": 270, "operator": 280, "reward": 600, "sandbox": 520, "viewer": 600}
"""What each image may hold over debootstrap's base of 170 MB (python:3.11-slim-bookworm is smaller)."""
TELLS_ITS_VERSION = "from importlib.metadata import version; print(version('kube-evalrun'))"

# Starts the sandbox, asks it over HTTP as the gateway does, prints what it answered as JSON. Its arguments are programs
# by language and their inputs.
ASKS_A_SANDBOX = """
import json, subprocess, sys, urllib.request
import msgspec
from evalrun_runtime.ready_line import parse_ready_line
from evalrun_executor.api import CONTENT_TYPE, Limits, RunReply, RunRequest

sandbox = subprocess.Popen([sys.executable, "-m", "evalrun_sandbox", "--slots", "2"], stdout=subprocess.PIPE, text=True)
address = parse_ready_line(sandbox.stdout.readline())
if address is None:
    sys.exit("it did not start")

def ask(path, body=None):
    request = urllib.request.Request(address + path, data=body, headers={"Content-Type": CONTENT_TYPE})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()

info = json.loads(ask("/v1/info"))
outputs, inputs = {}, [one.encode() for one in json.loads(sys.argv[2])]
for language, source in json.loads(sys.argv[1]).items():
    wanted = RunRequest(language, source, inputs, Limits(30.0, 1024, 64))
    reply = msgspec.msgpack.decode(ask("/v1/run", msgspec.msgpack.encode(wanted)), type=RunReply)
    outputs[language] = [run.stdout.decode() for run in reply.runs] or reply.compile.stderr.decode()
sandbox.terminate()
print(json.dumps({"info": info, "outputs": outputs, "code": sandbox.wait(30)}))
"""
PROGRAMS = {
    "python": "print(sum(map(int, input().split())))",
    "c": '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }',
    "cpp": "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }",
}
MORE_PROGRAMS = {
    "go": 'package main\nimport "fmt"\nfunc main() { var a, b int; fmt.Scan(&a, &b); fmt.Println(a + b) }\n',
    "java": "public class Sum { public static void main(String[] args) { var in = new java.util.Scanner(System.in);\n"
    "System.out.println(in.nextInt() + in.nextInt()); } }",
    "javascript": "console.log(require('fs').readFileSync(0, 'utf8').split(' ').reduce((sum, each) => sum + +each, 0))",
    "lua": "local a, b = io.read('n', 'n') print(a + b)",
    "php": "<?php fscanf(STDIN, '%d %d', $a, $b); echo gmp_strval(gmp_add($a, $b)), PHP_EOL;",
    "ruby": "puts gets.split.sum(&:to_i)",
    "rust": "use std::io::*;\nfn main() { let mut text = String::new(); stdin().read_to_string(&mut text).unwrap();\n"
    'println!("{}", text.split_whitespace().map(|each| each.parse::<i64>().unwrap()).sum::<i64>()); }',
    "typescript": "import {readFileSync} from 'fs';\nconst all: string = readFileSync(0, 'utf8');\n"
    "console.log(all.split(' ').reduce((sum: number, each) => sum + +each, 0));",
}
"""Of the languages that sandbox-all adds."""

SUMS = json.dumps(["20 22\n", "1 2\n"])

Built = tuple[str, Image]


def program_of(stage: str) -> list[str]:
    return ["evalrun_cli", "view"] if stage == "viewer" else [f"evalrun_{stage}"]


def test_an_image_runs_its_program_as_an_ordinary_user(image: Built) -> None:
    stage, built = image
    config = built.config()
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == [PYTHON, "-m", *program_of(stage)]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    assert {f"{name}={value}" for name, value in SERVICE_ENVIRONMENT.items()} <= set(config["Env"])


def test_help_answers_on_a_read_only_root(image: Built) -> None:
    stage, built = image
    done = built.run([*built.config()["Entrypoint"], "--help"])
    assert done.code == 0, done.stderr
    usages = {"operator": "Usage: evalrun-operator", "viewer": "Usage: python -m evalrun_cli view"}
    assert done.stdout.startswith(usages.get(stage, f"Usage: evalrun serve {stage}"))


def test_python_on_the_path_imports_the_installed_service(image: Built) -> None:
    """The operator's manifests say `python -m evalrun_...`."""
    _, built = image
    done = built.run(["python", "-c", TELLS_ITS_VERSION])
    assert (done.code, done.stdout.strip()) == (0, VERSION), done.stderr


def test_bad_settings_end_with_code_2_and_no_traceback(image: Built) -> None:
    stage, built = image
    done = built.run([PYTHON, "-m", *program_of(stage), "--port=high"])
    assert done.code == 2
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_image_has_no_installer_and_no_setuid_file(image: Built) -> None:
    stage, built = image
    with built.mounted() as root:
        files = list(files_of(root))
        programs = {file.name for file in files if file.parent.name in ("bin", "sbin") and os.access(file, os.X_OK)}
        packages = {path.name for path in root.glob("**/*-packages/*") if path.is_dir()}
        raising = [file for file in files if not file.is_symlink() and file.stat().st_mode & 0o6000]
        lists = list((root / "var" / "lib" / "apt" / "lists").glob("*Packages*"))
    assert not packages & {"pip", "setuptools", "wheel", "uv", "hatchling", "pytest"}
    assert not programs & {"pip", "pip3", "uv"}
    assert bool(programs & COMPILERS) is (stage == "sandbox")
    assert not raising
    assert not lists


def test_bill_of_materials_names_image_contents(image: Built) -> None:
    stage, built = image
    with built.mounted() as root:
        check_bill_of_materials(stage, root, root / "opt" / "evalrun")


def check_bill_of_materials(stage: str, root: Path, *directories: Path) -> None:
    """Compare the bill of materials with the packages in an image's files, and in these of its directories."""
    listed = generate_sbom.make_bill_of_materials(stage, root).components
    installed = {canonicalize_name(one.name) for directory in directories for one in python_components(directory)}
    debian = {one.name: one for one in listed if is_debian(one)}
    assert {"libc6", "ca-certificates"} <= debian.keys()
    assert ("g++" in debian) is stage.startswith("sandbox")
    assert [name for name, one in debian.items() if not one.licenses or not one.version] == []
    locked = {canonicalize_name(one.name) for one in listed if not is_debian(one)}  # tzdata is both kinds' name
    assert installed == locked | {"kube-evalrun"}


def is_debian(component: Component) -> bool:
    return component.purl is not None and component.purl.type == "deb"


def test_byte_code_comes_with_the_image(image: Built) -> None:
    """Nothing is compiled at the start of a container whose root is read-only."""
    stage, built = image
    with built.mounted() as root:
        (site,) = root.glob("opt/evalrun/lib/python3*/site-packages")
        package = {"viewer": "cli"}.get(stage, stage)
        sources = list(site.glob(f"evalrun_{package}/**/*.py"))
        assert sources
        for source in sources:
            (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
            assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00"  # by hash, unchecked: it holds no time


def test_image_is_smaller_than_its_limit(image: Built, record_property: Callable[[str, object], None]) -> None:
    stage, built = image
    megabytes = built.megabytes()
    print(f"{stage}: {megabytes:.0f} MB")
    record_property(f"{stage}_mb", round(megabytes))
    assert megabytes < MAX_MB[stage]


def test_the_sandbox_reaches_full_containment_and_runs_its_languages(images: Images) -> None:
    done = images.build("sandbox").run([PYTHON, "-c", ASKS_A_SANDBOX, json.dumps(PROGRAMS), SUMS])
    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["info"]["level"] == "full", done.stderr
    assert answer["info"]["version"] == VERSION
    assert sorted(answer["info"]["languages"]) == ["c", "cpp", "python"]
    assert answer["outputs"] == {language: ["42\n", "3\n"] for language in PROGRAMS}
    assert answer["code"] == 0


def test_the_gateway_starts_contained(images: Images) -> None:
    """Its assertion child needs no right that a restricted pod lacks."""
    starts = (
        "import subprocess, sys\n"
        "judge = subprocess.Popen([sys.executable, '-m', 'evalrun_judge', '--sandbox', 'http://127.0.0.1:9'],"
        " stdout=subprocess.PIPE, text=True)\n"
        "print(judge.stdout.readline(), end='')\n"
        "judge.terminate()\n"
        "sys.exit(judge.wait(60))\n"
    )
    done = images.build("judge").run([PYTHON, "-c", starts])
    assert done.stdout.startswith("evalrun judge ready on grpc://127.0.0.1:"), done.stderr
    assert done.code == 0, done.stderr


def test_aggregator_image_also_runs_the_generator_and_the_recorded_endpoint(images: Images) -> None:
    built = images.build("aggregator")
    for module in ("evalrun_generator", "evalrun_generator.recorded"):
        done = built.run([PYTHON, "-m", module, "--help"])
        assert done.code == 0, done.stderr


def test_the_aggregators_image_prepares_data_as_the_charts_job_does(images: Images) -> None:
    """Also what fetches its sources is there: buckets, the hub, a SandboxFusion server."""
    row = {"problem_id": "sum", "prompt": "Add.", "ground_truth": {"inputs": ["1 2"], "outputs": ["3"]}}
    plan = {"datasets": [{"name": "contest", "source": "rows.jsonl", "role": "dev"}]}
    prepares = (
        "import gcsfs, huggingface_hub, json, pathlib, s3fs, sandbox_fusion, subprocess, sys\n"
        "rows, plan = map(pathlib.Path, ('/tmp/rows.jsonl', '/tmp/plan.yaml'))\n"
        "rows.write_text(sys.argv[1])\n"
        "plan.write_text(sys.argv[2])\n"
        "command = ['python', '-m', 'evalrun_data.governance', 'prepare', plan, '--output=/tmp/data']\n"
        "code = subprocess.run(command).returncode\n"
        "print(pathlib.Path('/tmp/data/data_manifests/contest.jsonl').read_text())\n"
        "sys.exit(code)\n"
    )
    done = images.build("aggregator").run([PYTHON, "-c", prepares, json.dumps(row), json.dumps(plan)])
    assert done.code == 0, done.stderr
    assert "contest: 1 records, 0 duplicates removed, role dev, audit passed" in done.stdout
    assert '"problem_id": "sum"' in done.stdout


def test_programs_can_import_the_requested_candidate_packages(images: Images) -> None:
    built = images.build("sandbox", CANDIDATE_PACKAGES="numpy")
    program = {"python": "import numpy\nprint(int(numpy.array(input().split(), dtype=int).sum()))"}
    done = built.run([PYTHON, "-c", ASKS_A_SANDBOX, json.dumps(program), SUMS])
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"python": ["42\n", "3\n"]}


def test_the_graders_flavour_scores_every_kind_of_row_that_verl_routes(
    images: Images, record_property: Callable[[str, object], None]
) -> None:
    """verl 0.9.1's scorers as published, each with an answer that is right and one that is not."""
    rows = [
        ("openai/gsm8k", "18", "#### 18", "#### 17", 1.0, 0.0),
        ("lighteval/MATH", "\\frac{1}{2}", "\\boxed{\\frac12}", "\\boxed{2}", 1.0, 0.0),
        ("aime2024", "204", "Answer: 204", "Answer: 3", 1.0, -1.0),
        ("numina_olympiads", "x^2+2x+1", "\\boxed{(x+1)^2}", "\\boxed{x^2}", 1.0, 0.0),
        ("hiyouga/geometry3k", "2", "<think>so</think> \\boxed{2}", "\\boxed{3}", 1.0, 0.0),
        ("searchR1_nq", {"target": ["Paris"]}, "<answer>Paris</answer>", "<answer>Rome</answer>", 1.0, 0.0),
    ]
    inputs = [
        render_grader_input(source, answer, truth, {}) for source, truth, *answers, _, _ in rows for answer in answers
    ]
    built = images.build("sandbox-graders")
    program = {"python": verls_grader("rows").program}
    done = built.run([PYTHON, "-c", ASKS_A_SANDBOX, json.dumps(program), json.dumps(inputs)])
    assert done.code == 0, done.stderr
    told = [json.loads(output) for output in json.loads(done.stdout)["outputs"]["python"]]
    wanted = [score for *_, right, wrong in rows for score in (right, wrong)]
    assert [one.get("score", one) for one in told] == pytest.approx(wanted)
    megabytes = built.megabytes()
    record_property("sandbox_graders_mb", round(megabytes))
    assert megabytes < MAX_MB["sandbox"] + 130
    with built.mounted() as root:
        packages = {path.name for path in (root / "opt" / "graders").iterdir()}
        check_bill_of_materials("sandbox-graders", root, root / "opt" / "evalrun", root / "opt" / "graders")
    assert {"verl", "sympy", "mathruler"} <= packages
    assert not packages & {"torch", "ray", "antlr4"}


def test_sandbox_of_all_languages_runs_each_fully_contained(
    images: Images, record_property: Callable[[str, object], None]
) -> None:
    built = images.build("sandbox-all")
    assert built.config()["User"] == f"{USER}:{USER}"
    done = built.run([PYTHON, "-c", ASKS_A_SANDBOX, json.dumps(PROGRAMS | MORE_PROGRAMS), SUMS])
    assert done.code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["info"]["level"] == "full"
    assert told["outputs"] == {language: ["42\n", "3\n"] for language in PROGRAMS | MORE_PROGRAMS}
    megabytes = built.megabytes()
    record_property("sandbox_all_mb", round(megabytes))
    assert megabytes < MAX_MB["sandbox"] + 1400
    alone = images.build("sandbox-all", MORE_LANGUAGES="nodejs")
    done = alone.run([PYTHON, "-c", ASKS_A_SANDBOX, json.dumps({"javascript": MORE_PROGRAMS["javascript"]}), SUMS])
    assert sorted(json.loads(done.stdout)["info"]["languages"]) == ["c", "cpp", "javascript", "python"]
    record_property("sandbox_javascript_mb", round(alone.megabytes()))


def test_a_package_that_no_lock_names_is_refused(images: Images) -> None:
    with pytest.raises(BuildFailedError, match="does not lock left-pad"):
        images.build("sandbox", CANDIDATE_PACKAGES="left-pad")


def test_two_builds_from_scratch_give_the_same_image(images: Images) -> None:
    kept, again = images.build("judge"), images.build("judge", cached=False)  # what is kept was built from nothing too
    assert kept.digest == again.digest


def test_the_wheel_of_the_gpu_image_builds(images: Images) -> None:
    """The rest of Dockerfile.gen needs a base of tens of GB and is not built here."""
    with images.build("wheel", dockerfile="Dockerfile.gen").mounted() as root:
        (wheel,) = root.glob("wheels/*.whl")
    assert wheel.name == f"kube_evalrun-{VERSION}-py3-none-any.whl"
