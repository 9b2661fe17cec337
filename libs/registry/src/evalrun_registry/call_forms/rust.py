"""Calls of Rust functions."""

import re
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm, write_reads
from evalrun_registry.call_forms.signature import Signature

_MAIN: Final = re.compile(r"\bfn\s+main\s*\(")
_OWNER: Final = re.compile(r"^[ \t]*impl\s+Solution\b", re.MULTILINE)
_STRUCT: Final = re.compile(r"^[ \t]*(?:pub\s+)?struct\s+Solution\b", re.MULTILINE)
_NUMBERS: Final = "".join(
    f"impl EvalrunValue for {name} {{\n"
    "    fn evalrun_read(words: &mut EvalrunWords) -> Self { words.next().unwrap().parse().unwrap() }\n"
    f"    fn evalrun_write(&self, out: &mut ::std::string::String) {{ out.push_str(&::std::format!({form}, self)); }}\n"
    "}\n"
    for name, form in (("i32", '" {}"'), ("i64", '" {}"'), ("f64", '" {:?}"'))
)
_READER: Final = (
    """
type EvalrunWords<'a> = ::std::str::SplitAsciiWhitespace<'a>;
trait EvalrunValue: Sized {
    fn evalrun_read(words: &mut EvalrunWords) -> Self;
    fn evalrun_write(&self, out: &mut ::std::string::String);
}
impl EvalrunValue for bool {
    fn evalrun_read(words: &mut EvalrunWords) -> Self { words.next().unwrap() == "1" }
    fn evalrun_write(&self, out: &mut ::std::string::String) { out.push_str(if *self { " 1" } else { " 0" }); }
}
impl EvalrunValue for ::std::string::String {
    fn evalrun_read(words: &mut EvalrunWords) -> Self {
        let word = words.next().unwrap();
        let text = (1..word.len()).step_by(2).map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap());
        ::std::string::String::from_utf8(text.collect()).unwrap()
    }
    fn evalrun_write(&self, out: &mut ::std::string::String) {
        out.push_str(" s");
        for each in self.bytes() { out.push_str(&::std::format!("{:02x}", each)); }
    }
}
impl<T: EvalrunValue> EvalrunValue for ::std::vec::Vec<T> {
    fn evalrun_read(words: &mut EvalrunWords) -> Self {
        let count: usize = words.next().unwrap().parse().unwrap();
        (0..count).map(|_| T::evalrun_read(words)).collect()
    }
    fn evalrun_write(&self, out: &mut ::std::string::String) {
        out.push_str(&::std::format!(" {}", self.len()));
        for each in self { each.evalrun_write(out); }
    }
}
"""
    + _NUMBERS
)


def _add_driver(program: str, signature: Signature) -> str:
    reads, names = write_reads(
        signature,
        "evalrun_a",
        lambda name, kind: (
            f"    let {name} = <{RUST.write_type(kind)} as EvalrunValue>::evalrun_read(&mut evalrun_words);\n"
        ),
    )
    owner = "Solution::" if _OWNER.search(program) else ""
    struct = "struct Solution;\n" if owner and not _STRUCT.search(program) else ""
    returned = RUST.write_type(signature.returned)
    return (
        f"{_MAIN.sub('fn evalrun_own_main(', program)}\n{struct}{_READER}fn main() {{\n"
        "    let mut evalrun_text = ::std::string::String::new();\n"
        "    ::std::io::Read::read_to_string(&mut ::std::io::stdin(), &mut evalrun_text).unwrap();\n"
        f"    let mut evalrun_words = evalrun_text.split_ascii_whitespace();\n{reads}"
        f"    let evalrun_value: {returned} = {owner}{signature.name}({names});\n"
        "    let mut evalrun_out = ::std::string::String::new();\n"
        "    evalrun_value.evalrun_write(&mut evalrun_out);\n"
        f'    ::std::println!("\\n{RETURNED}{{}}", evalrun_out);\n'
        "    let _ = evalrun_words.next();\n}\n"
    )


RUST: Final = CallForm(
    language="rust",
    scalars={"int": "i32", "long": "i64", "double": "f64", "bool": "bool", "string": "String"},
    listed="Vec<{item}>",
    stub="fn {name}({parameters}) -> {returned} {\n}",
    parameter="{name}: {type}",
    add_driver=_add_driver,
    reserved=(
        "_ abstract as async await become box break const continue crate do dyn else enum extern false final fn for "
        "gen if impl in let loop macro main match mod move mut override priv pub ref return self Self static struct "
        "super trait true try type typeof unsafe unsized use virtual where while yield"
    ),
)
