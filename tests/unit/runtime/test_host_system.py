"""Which systems programs can be judged on, by what `uname` says."""

import pytest

from evalrun_runtime.host_system import explain_unfit_system


@pytest.mark.parametrize("release", ["6.12.0-amd64", "5.4.0-generic", "5.15.167.4-microsoft-standard-WSL2"])
def test_explain_unfit_system_of_a_linux_kernel_is_empty(release: str) -> None:
    assert explain_unfit_system("Linux", release) == ""


@pytest.mark.parametrize(
    ("system", "release", "says"),
    [
        ("Darwin", "24.6.0", "this is macOS: use a Linux machine"),
        ("FreeBSD", "14.2-RELEASE", "this is FreeBSD: use a Linux machine"),
        ("Linux", "4.4.0-19041-Microsoft", "wsl --set-version DISTRIBUTION 2"),
    ],
)
def test_explain_unfit_system_of_another_system_names_the_remedy(system: str, release: str, says: str) -> None:
    assert says in explain_unfit_system(system, release)
