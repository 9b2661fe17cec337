"""Rust."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, COMMENTS, FOOTPRINT
from evalrun_registry.languages.language import Compilation, Driver, FusionNames, Language, Syntax

RUST: Final = Language(
    name="rust",
    title="Rust",
    aliases=("rs",),
    tags="(?:rust|rs)",
    driver=Driver.EXECUTABLE,
    compilation=Compilation(
        compiler="rustc",
        source="main.rs",
        # Linked statically, for such a program starts in half the time.
        commands=(
            ("{compiler}", "--edition=2021", "-O", "-Ctarget-feature=+crt-static", "-o", "{output}", "{source}"),
        ),
    ),
    footprint=FOOTPRINT,
    packages=("rustc", "gcc", "libc6-dev"),
    comment=COMMENT,
    line_starts=r"use std::|fn \w",
    syntax=Syntax(
        keywords="as async await bool break char const continue crate dyn else enum extern f64 false fn for i32 i64 if "
        "impl in let loop match mod move mut pub ref return self Self static str struct super trait true type u64 "
        "unsafe use usize where while",
        comment=COMMENTS,
        string=r'"(?s:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\\n])\'',
    ),
    fusion=FusionNames(name="rust", tags=frozenset({"rust", "Rust", "rs"}), is_stock=False),
)
