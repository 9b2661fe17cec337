"""What takes a run with `rollout` on real pods: KubeRay's operator, an image of 7 GB, a tiny model. Not part of CI.

`make test-e2e-rollout` asks for it, and then nothing may be missing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import gen_cpu
import pytest
from builders.cluster.checkpoints import bring_checkpoints
from builders.cluster.cluster import Cluster
from builders.cluster.images import Images, find_images
from builders.cluster.install import Installed, installed, load_images
from builders.cluster.rollout import (
    RAY_VALUES,
    UNLEARNT,
    bring_model,
    gen_image,
    known_model,
    kuberay,
    kuberay_image,
    readable,
    slow_problems,
)
from builders.cluster.rollout_workers import long_answers, with_long_context
from builders.generator.fsdp_checkpoint import write_checkpoint

STAGES = ("aggregator", "judge", "operator", "sandbox")
ASKED = "EVALRUN_TEST_E2E_ROLLOUT"


@pytest.fixture(scope="session")
def builder() -> Images:
    """What builds images; skips unless the target asked for these tests."""
    if os.environ.get(ASKED) != "required":
        pytest.skip("takes an image of 7 GB and minutes: make test-e2e-rollout")
    return find_images()


@pytest.fixture(scope="session")
def python(builder: Images) -> Path:
    """The interpreter of `make setup-gen-cpu`'s environment."""
    del builder  # asked for
    found = gen_cpu.interpreter()
    if found is None:
        pytest.fail("the gen-cpu environment is not installed: make setup-gen-cpu")
    return found


@pytest.fixture(scope="session")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_long_context(known_model(python, tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="session")
def ray_images(
    builder: Images, python: Path, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The names of all images in the cluster's nodes: our stages, `gen` and `kuberay`."""
    built = {stage: builder.build(stage) for stage in STAGES}
    built |= {"kuberay": kuberay_image(builder), "gen": gen_image(builder, python.parent.parent)}
    return load_images(cluster, built, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def problems(directory: Path) -> tuple[Path, dict[str, str]]:
    """The problems' file, and the verdict that each must get."""
    return slow_problems(directory)


@pytest.fixture(scope="session")
def long_problems(directory: Path) -> tuple[Path, dict[str, str]]:
    """The file of problems with long answers, and the verdict that each must get."""
    return long_answers(directory)


@pytest.fixture(scope="session")
def ray_install(
    cluster: Cluster,
    ray_images: dict[str, str],
    model: Path,
    problems: tuple[Path, dict[str, str]],
    long_problems: tuple[Path, dict[str, str]],
) -> Iterator[Installed]:
    """KubeRay and evalrun installed, model and problems on volumes."""
    ours = {stage: ray_images[stage] for stage in STAGES}
    with kuberay(cluster, ray_images["kuberay"]), installed(cluster, ours, RAY_VALUES) as here:
        bring_model(here, model)
        here.upload(problems[0], long_problems[0])
        yield here


@pytest.fixture(scope="session")
def training(ray_install: Installed, python: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A claim with the checkpoints of steps 10 and 20, of which the second has unlearnt everything."""
    made = tmp_path_factory.mktemp("training")
    models = {10: model, 20: known_model(python, made / "unlearnt", UNLEARNT)}
    for step, directory in models.items():
        write_checkpoint(python, directory, made / "grpo" / f"global_step_{step}")
    bring_checkpoints(ray_install, readable(made / "grpo"))
    return ray_install
