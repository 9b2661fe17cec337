"""Lua 5.4."""

from typing import Final

from evalrun_registry.languages.c_family import QUOTED
from evalrun_registry.languages.language import Driver, Footprint, FusionNames, Interpreter, Language, Syntax

LUA: Final = Language(
    name="lua",
    title="Lua 5.4",
    tags=r"lua",
    driver=Driver.INTERPRETER,
    interpreter=Interpreter(program="lua5.4", source="main.lua", arguments=("{source}",)),
    footprint=Footprint(resident_mib=4, mapped_mib=32),
    packages=("lua5.4", "lua-unit"),
    comment=("--[[", "]]"),
    line_starts=r"local \w|io\.(?:read|write|lines)",
    syntax=Syntax(
        keywords="and break do else elseif end false for function goto if in local nil not or repeat return then true "
        "until while",
        comment=r"--\[\[(?s:.*?)(?:\]\]|\Z)|--[^\n]*",
        string=QUOTED + r"|\[\[(?s:.*?)(?:\]\]|\Z)",
    ),
    fusion=FusionNames(name="lua", tags=frozenset({"lua"}), is_stock=False),
)
