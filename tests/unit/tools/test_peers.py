"""`make test-peers` sets every variable that the tests it runs wait for."""

import re

import peers


def test_variables_read_by_comparing_tests_are_all_set() -> None:
    found = {
        variable
        for test in peers.TESTS
        for variable in re.findall(r'environ\.get\("(EVALRUN_TEST_\w+)"\)', (peers.ROOT / test).read_text())
    }
    assert found == {*peers.LOCKED, *peers.CHECKOUTS, *peers.DIRECTORIES, peers.TRAINERS}


def test_each_environment_has_its_lock() -> None:
    for name in (*peers.LOCKED.values(), *peers.DIRECTORIES.values()):
        lock = (peers.ROOT / "requirements" / f"{name}.txt").read_text()
        assert lock.count("--hash=sha256:") > lock.count("==") > 0, name


def test_an_environment_is_made_once_for_each_version() -> None:
    assert peers.directory("evalplus", b"1") == peers.directory("evalplus", b"1") != peers.directory("evalplus", b"2")
