"""The workflows of .github/: pinned, without rights that they need not have, and made of steps that work."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import release
import yaml
from builders.data import PROJECT_ROOT

WORKFLOWS = sorted((PROJECT_ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (PROJECT_ROOT / "Makefile").read_text(), re.MULTILINE))
NAMES = [path.stem for path in WORKFLOWS]


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=NAMES)
def test_every_action_is_pinned_by_commit_and_names_its_version(workflow: Path) -> None:
    uses = [line.strip().removeprefix("- ") for line in workflow.read_text().splitlines() if "uses:" in line]
    assert uses
    assert [line for line in uses if not PINNED.match(line)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=NAMES)
def test_workflow_permissions_are_read_only(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] > 0 for job in content["jobs"].values())
    assert "pull_request_target" not in workflow.read_text()
    checkouts = [step for step in steps_of(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=NAMES)
def test_no_shell_step_holds_an_expression(workflow: Path) -> None:
    """An expression is put into the script as text, so a branch's name could run as code; `env` holds it safely."""
    assert [step["run"] for step in steps_of(workflow) if "${{" in step.get("run", "")] == []


def test_make_steps_name_targets_of_the_makefile() -> None:
    steps = [step["run"] for workflow in WORKFLOWS for step in steps_of(workflow) if "run" in step]
    made = {word for step in steps if step.startswith("make ") for word in step.split()[1:]}
    assert made
    assert made - TARGETS == set()


@pytest.mark.parametrize(("tag", "code"), [("v0.1.0", 0), ("v0.1.1", 1), ("v0.1", 1)])
def test_release_with_a_tag_other_than_the_version_fails(tag: str, code: int) -> None:
    (step,) = [
        step for step in steps_of(PROJECT_ROOT / ".github/workflows/release.yml") if "TAG" in step.get("env", {})
    ]
    assert 'version = "0.1.0"' in (PROJECT_ROOT / "pyproject.toml").read_text(), "change the cases above with it"
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=PROJECT_ROOT, env={"TAG": tag, "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == code


@pytest.mark.parametrize(("content", "code"), [("wheel", 0), ("changed", 1)])
def test_release_with_wrong_checksums_fails(tmp_path: Path, content: str, code: int) -> None:
    (step,) = [
        step["run"]
        for step in steps_of(PROJECT_ROOT / ".github/workflows/release.yml")
        if "sha256sum" in step.get("run", "")
    ]
    directory = tmp_path / "dist" / "release"
    directory.mkdir(parents=True)
    (directory / "x.whl").write_text("wheel")
    (directory / "SHA256SUMS").write_text(release.checksums(directory))
    (directory / "x.whl").write_text(content)
    done = subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, capture_output=True)
    assert done.returncode == code


def test_shell_steps_are_make_targets_or_run_by_a_test() -> None:
    steps = [step["run"] for workflow in WORKFLOWS for step in steps_of(workflow) if "run" in step]
    others = sorted(step.split()[0] for step in steps if not step.startswith("make "))
    assert others == ["cd", "grep"], "run a further step by a test like the two above"


def test_hooks_before_a_commit_use_the_environments_tools() -> None:
    hooks = yaml.safe_load((PROJECT_ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert all(hook["language"] == "system" for hook in hooks)
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
