"""Calls of C++ functions."""

import re
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm, write_reads
from evalrun_registry.call_forms.signature import Signature

_HEAD: Final = "#include <bits/stdc++.h>\nusing namespace std;\n"
# It stands before the program, because a macro of the program (`#define int long long`) would change it.
_READER: Final = """\
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>
struct EvalrunCall {
    static std::string evalrun_word() { std::string word; std::cin >> word; return word; }
    template <class Number> static void evalrun_read(Number& value) {
        std::string word = evalrun_word();
        if (std::is_floating_point<Number>::value) value = static_cast<Number>(std::strtod(word.c_str(), nullptr));
        else value = static_cast<Number>(std::stoll(word));
    }
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
    template <char Kind, class Number> static void evalrun_write(std::string& out, const Number& value) {
        static_assert(
            Kind == 'd' ? std::is_arithmetic<Number>::value : Kind != 's' && std::is_integral<Number>::value,
            "the function returns another type than its signature says");
        char text[40];
        if (std::is_floating_point<Number>::value)
            std::snprintf(text, sizeof text, " %.17g", static_cast<double>(value));
        else
            std::snprintf(text, sizeof text, " %lld", Kind == 'b' ? value != 0 : static_cast<long long>(value));
        out += text;
    }
    template <char Kind> static void evalrun_write(std::string& out, const std::string& value) {
        static_assert(Kind == 's', "the function returns a string, and its signature says another type");
        out += " s";
        for (unsigned char each : value) { out += "0123456789abcdef"[each >> 4]; out += "0123456789abcdef"[each & 15]; }
    }
    template <char Kind> static void evalrun_write(std::string& out, const char* value) {
        evalrun_write<Kind>(out, std::string(value));
    }
    template <char Kind, class Item> static void evalrun_write(std::string& out, const std::vector<Item>& value) {
        out += " " + std::to_string(value.size());
        for (std::size_t i = 0; i < value.size(); i++) evalrun_write<Kind>(out, static_cast<Item>(value[i]));
    }
    template <char Kind, class Value> static void evalrun_print(const Value& value) {
        std::string out = "\\n%(returned)s";
        evalrun_write<Kind>(out, value);
        std::cout << out << std::endl;
    }
};
""".replace("%(returned)s", RETURNED)


def _add_driver(program: str, signature: Signature) -> str:
    head = "" if re.search(r"^[ \t]*#[ \t]*include\b", program, re.MULTILINE) else _HEAD
    reads, names = write_reads(
        signature,
        "evalrun_a",
        lambda name, kind: f"    {CPP.write_type(kind)} {name}; EvalrunCall::evalrun_read({name});\n",
    )
    owner = "Solution()." if re.search(r"^[ \t]*(?:class|struct)\s+Solution\b", program, re.MULTILINE) else ""
    return (
        f"{_READER}{head}#define main evalrun_own_main\n{program}\n#undef main\nsigned main() {{\n{reads}"
        f"    auto&& evalrun_value = {owner}{signature.name}({names});\n"
        f"    EvalrunCall::evalrun_print<'{signature.returned.scalar[0]}'>(evalrun_value);\n    return 0;\n}}\n"
    )


CPP: Final = CallForm(
    language="cpp",
    scalars={"int": "int", "long": "long long", "double": "double", "bool": "bool", "string": "std::string"},
    listed="std::vector<{item}>",
    stub="{returned} {name}({parameters}) {\n}",
    parameter="{type} {name}",
    add_driver=_add_driver,
    reserved=(
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl "
        "const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export "
        "extern false float for friend goto if inline int long main mutable namespace new noexcept not not_eq nullptr "
        "operator or or_eq private protected public register reinterpret_cast return short signed sizeof static "
        "static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename "
        "union unsigned using virtual void volatile wchar_t while xor xor_eq Solution"
    ),
)
