"""Go."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS, QUOTED, TELL_KILL
from evalrun_registry.languages.language import Compilation, Driver, Footprint, FusionNames, Language, Syntax

_BUILD: Final = (
    # No flag that changes the standard library's code: Debian's compiled library could not be used, and a program would
    # take 8 s to compile instead of 0.2.
    'GOCACHE="$PWD/cache" GOPATH="$PWD/path" GOPROXY=off GOTOOLCHAIN=local GOTELEMETRY=off '
    'exec "$0" build -toolexec "/bin/sh -c \'$3\'" -ldflags=-s -o "$2" "$1"'
)

GO: Final = Language(
    name="go",
    title="Go",
    aliases=("golang",),
    tags="go(?:lang)?",
    driver=Driver.EXECUTABLE,
    compilation=Compilation(
        compiler="go",
        source="main.go",
        commands=(("/bin/sh", "-c", _BUILD, "{compiler}", "{source}", "{output}", TELL_KILL),),
    ),
    # Go 1.19: 45 MiB mapped, in pieces of 64 MiB, and 711 MiB of addresses.
    footprint=Footprint(resident_mib=8, mapped_mib=192, reserved_mib=1024),
    packages=("golang-go",),
    comment=COMMENT,
    line_starts=r"package \w|func \w",
    syntax=Syntax(
        keywords="any bool break byte case chan const continue default defer else error fallthrough false float64 for "
        "func go goto if import int int64 interface map nil package range return rune select string struct switch true "
        "type uint64 var",
        comment=COMMENTS,
        string=QUOTED + "|`[^`]*`?",
    ),
    fusion=FusionNames(name="go", tags=frozenset({"go", "Go", "golang"}), is_stock=False),
)
