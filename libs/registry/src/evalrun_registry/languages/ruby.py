"""Ruby, by its reference interpreter."""

from typing import Final

from evalrun_registry.languages.c_family import QUOTED
from evalrun_registry.languages.language import Driver, Footprint, FusionNames, Interpreter, Language, Syntax

RUBY: Final = Language(
    name="ruby",
    title="Ruby",
    aliases=("rb",),
    tags=r"(?:ruby|rb)",
    driver=Driver.INTERPRETER,
    # What only words its errors better would take half of the start.
    interpreter=Interpreter(
        program="ruby",
        source="main.rb",
        arguments=("--disable=did_you_mean,error_highlight", "{source}"),
        # Contest programs recurse deeply; Ruby's own stack ends after 10,000 calls. Each thread has one.
        environment=("RUBY_THREAD_VM_STACK_SIZE=16777216",),
    ),
    footprint=Footprint(resident_mib=16, mapped_mib=128, reserved_mib=1024),
    packages=("ruby",),
    comment=("=begin", "=end"),
    line_starts=r"require '|puts |gets\b|def \w+[?!]?$|module \w",
    syntax=Syntax(
        keywords="BEGIN END alias and begin break case class def do else elsif end ensure false for if in module next "
        "nil not or redo rescue retry return self super then true undef unless until when while yield",
        comment=r"\#[^\n]*|^=begin\b(?s:.*?)(?:^=end\b|\Z)",
        string=QUOTED,
    ),
    fusion=FusionNames(name="ruby", tags=frozenset({"ruby"}), is_stock=False),
)
