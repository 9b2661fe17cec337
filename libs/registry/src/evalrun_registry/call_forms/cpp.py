"""Calls of C++ functions."""

import re
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.signature import Signature

_HEAD: Final = "#include <bits/stdc++.h>\nusing namespace std;\n"
# Before the program, whose macros (`#define int long long`) would change it.
_READER: Final = """\
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>
struct EvalrunCall {
    static std::string evalrun_word() { std::string word; std::cin >> word; return word; }
    static void evalrun_read(int& value) { value = std::stoi(evalrun_word()); }
    static void evalrun_read(long long& value) { value = std::stoll(evalrun_word()); }
    static void evalrun_read(double& value) { value = std::strtod(evalrun_word().c_str(), nullptr); }
    static void evalrun_read(bool& value) { value = evalrun_word() == "1"; }
    static void evalrun_read(std::string& value) {
        std::string word = evalrun_word();
        value.clear();
        for (std::size_t i = 1; i + 1 < word.size(); i += 2) value += char(std::stoi(word.substr(i, 2), nullptr, 16));
    }
    template <class Item> static void evalrun_read(std::vector<Item>& value) {
        std::size_t count = std::stoull(evalrun_word());
        value.clear();
        for (std::size_t i = 0; i < count; i++) { Item item; evalrun_read(item); value.push_back(item); }
    }
    static void evalrun_write(std::string& out, int value) { out += " " + std::to_string(value); }
    static void evalrun_write(std::string& out, long long value) { out += " " + std::to_string(value); }
    static void evalrun_write(std::string& out, bool value) { out += value ? " 1" : " 0"; }
    static void evalrun_write(std::string& out, double value) {
        char text[40];
        std::snprintf(text, sizeof text, " %.17g", value);
        out += text;
    }
    static void evalrun_write(std::string& out, const std::string& value) {
        out += " s";
        for (unsigned char each : value) { out += "0123456789abcdef"[each >> 4]; out += "0123456789abcdef"[each & 15]; }
    }
    template <class Item> static void evalrun_write(std::string& out, const std::vector<Item>& value) {
        out += " " + std::to_string(value.size());
        for (std::size_t i = 0; i < value.size(); i++) evalrun_write(out, static_cast<Item>(value[i]));
    }
};
"""


def _add_driver(program: str, signature: Signature) -> str:
    head = "" if re.search(r"^[ \t]*#[ \t]*include\b", program, re.MULTILINE) else _HEAD
    names = [f"evalrun_a{number}" for number in range(len(signature.parameters))]
    reads = "".join(
        f"    {CPP.write_type(kind)} {name}; EvalrunCall::evalrun_read({name});\n"
        for name, (_, kind) in zip(names, signature.parameters, strict=True)
    )
    owner = "Solution()." if re.search(r"^[ \t]*(?:class|struct)\s+Solution\b", program, re.MULTILINE) else ""
    return (
        f"{_READER}{head}#define main evalrun_own_main\n{program}\n#undef main\nsigned main() {{\n{reads}"
        f"    {CPP.write_type(signature.returned)} evalrun_value = {owner}{signature.name}({', '.join(names)});\n"
        f'    std::string evalrun_out = "\\n{RETURNED}";\n'
        "    EvalrunCall::evalrun_write(evalrun_out, evalrun_value);\n"
        "    std::cout << evalrun_out << std::endl;\n    return 0;\n}\n"
    )


CPP: Final = CallForm(
    language="cpp",
    scalars={"int": "int", "long": "long long", "double": "double", "bool": "bool", "string": "std::string"},
    listed="std::vector<{item}>",
    stub="{returned} {name}({parameters}) {\n}",
    parameter="{type} {name}",
    add_driver=_add_driver,
)
