"""Java."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS, QUOTED
from evalrun_registry.languages.language import (
    Compilation,
    Driver,
    Footprint,
    FusionNames,
    Interpreter,
    Language,
    Syntax,
)

_SMALL: Final = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:CompressedClassSpaceSize=64m",
    "-XX:ReservedCodeCacheSize=64m",
    "-Xms16m",
)
"""Options for one short program: no threads of a collector, no files for tools, few reserved addresses."""

_TOOL: Final = " ".join(f"-J{flag}" for flag in (*_SMALL, "-Xmx512m", "-XX:TieredStopAtLevel=1"))
_NAMES: Final = (
    # Prints the file's name, which is the public class's, and the class whose main is first, with its package.
    '/^package / { sub(/;.*/, "", $2); package = $2 "." } '
    "match($0, /^((public|final|abstract|strictfp) +)*(class|interface|enum|record) +[A-Za-z_$][A-Za-z_$0-9]*/) "
    '{ count = split(substr($0, 1, RLENGTH), words, " "); name = words[count]; if (/^public /) file = name } '
    "/static +void +main *[(]/ { if (!main) main = name } "
    'END { print (file ? file : "Main"), package (main ? main : "Main") }'
)
_BUILD: Final = (
    f'set -- "$0" "$1" "$2" $(awk \'{_NAMES}\' "$1"); '
    '[ "$2" = "$4.java" ] || mv "$2" "$4.java"; '
    # No annotation processors: they would be code of the program's that runs in the compiler.
    f'"$1" {_TOOL} -proc:none -encoding UTF-8 -nowarn -d classes "$4.java" && '
    f'"${{1%javac}}jar" {_TOOL} --create --file "$3" --main-class "$5" -C classes .'
)

JAVA: Final = Language(
    name="java",
    title="Java",
    tags=r"java\d*",
    driver=Driver.INTERPRETER,
    compilation=Compilation(
        compiler="javac",
        source="Main.java",
        commands=(("/bin/sh", "-c", _BUILD, "{compiler}", "{source}", "{output}"),),
    ),
    interpreter=Interpreter(
        program="java",
        source="main.jar",
        # The first of the two stacks is the main thread's, as large as Python's; the second is any other thread's.
        # Where the heap is full, the process aborts, and its resident memory then tells a memory limit from a crash.
        # Nearly all of the heap is for old objects: a large array has to fit there.
        arguments=(
            *_SMALL,
            "-Xss64m",
            "-XX:ThreadStackSize=1024",
            "-Xmx{memory_mib}m",
            "-XX:NewRatio=8",
            "-XX:+CrashOnOutOfMemoryError",
            "-jar",
            "{source}",
        ),
    ),
    # OpenJDK 17: 39 MiB resident and more for what it compiles, 130 MiB mapped, 1.5 GiB of addresses with a heap of
    # 256 MiB. The heap is bounded by the limit itself.
    footprint=Footprint(resident_mib=128, mapped_mib=384, reserved_mib=1536),
    packages=("default-jdk-headless",),
    comment=COMMENT,
    line_starts=r"import java|public class |class \w",
    syntax=Syntax(
        keywords="abstract assert boolean break byte case catch char class continue default do double else enum "
        "extends final finally float for if implements import instanceof int interface long native new null package "
        "private protected public record return short static super switch synchronized this throw throws true false "
        "try var void volatile while",
        comment=COMMENTS,
        string=QUOTED,
    ),
    fusion=FusionNames(name="java", tags=frozenset({"java", "Java"}), is_stock=False),
)
