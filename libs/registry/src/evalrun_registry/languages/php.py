"""PHP, by its command line."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS, QUOTED
from evalrun_registry.languages.language import Driver, Footprint, FusionNames, Interpreter, Language, Syntax

PHP: Final = Language(
    name="php",
    title="PHP",
    tags=r"(?:php|php[78])",
    driver=Driver.INTERPRETER,
    # Without the machine's settings: what a program prints must not depend on them. Its errors are no output.
    interpreter=Interpreter(
        program="php",
        source="main.php",
        arguments=(
            *("-n", "-d", "memory_limit=-1", "-d", "display_errors=stderr", "-d", "display_startup_errors=0"),
            # Without a buffer, each echo is a write of its own.
            *("-d", "output_buffering=65536"),
            *("-d", "extension=ctype", "-d", "extension=iconv", "-d", "extension=readline"),
            *("-d", "extension=mbstring", "-d", "extension=bcmath", "-d", "extension=gmp"),
            "{source}",
        ),
    ),
    footprint=Footprint(resident_mib=20, mapped_mib=64),
    packages=("php-cli", "php-mbstring", "php-bcmath", "php-gmp"),
    comment=COMMENT,
    line_starts=r"<\?php",
    opening="<?php",
    syntax=Syntax(
        keywords="abstract and array as break callable case catch class clone const continue declare default do echo "
        "else elseif enum extends final finally fn for foreach function global goto if implements include instanceof "
        "interface list match namespace new or print private protected public readonly require return static switch "
        "throw trait try unset use var while xor yield",
        comment=COMMENTS + r"|\#[^\n]*",
        string=QUOTED,
    ),
    fusion=FusionNames(name="php", tags=frozenset({"php"}), is_stock=False),
)
