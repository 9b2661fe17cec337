from evalrun_executor.contained.limits import INTERPRETER_MIB
from evalrun_executor.toolchain import Toolchain, static_is_missing
from evalrun_registry.languages import LANGUAGES


def test_without_compilers_there_is_no_language() -> None:
    assert Toolchain({}).languages == []


def test_only_the_linker_makes_static_linking_impossible() -> None:
    assert static_is_missing(b"/usr/bin/ld: cannot find -lc: No such file or directory\ncollect2: error")
    assert not static_is_missing(b"main.c:1:1: error: expected ';'")


def test_registry_and_runner_agree_on_the_memory_that_python_maps() -> None:
    assert LANGUAGES["python"].footprint.mapped_mib == INTERPRETER_MIB


def test_compile_command_that_worked_is_tried_first_next_time() -> None:
    toolchain = Toolchain({"c": "/usr/bin/gcc"})
    static, dynamic = toolchain.commands("c")
    assert "-static" in static
    toolchain.learn("c", dynamic)
    assert toolchain.commands("c") == [dynamic]
