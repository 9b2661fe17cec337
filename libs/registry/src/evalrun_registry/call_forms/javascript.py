"""Calls of JavaScript and TypeScript functions."""

from dataclasses import replace
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.signature import Signature

# In a block of its own, for the program may have any of these names, and the function too. A value of
# another type than the signature's is printed as `?`, which no expected value is.
_DRIVER: Final = """
{
    const evalrunCall = %(name)s;
    const evalrunWords = require('fs').readFileSync(0, 'latin1').split(/\\s+/).filter(Boolean).values();
    const evalrunNext = () => evalrunWords.next().value;
    const evalrunRead = (scalar, depth) => {
        if (depth) return Array.from({length: Number(evalrunNext())}, () => evalrunRead(scalar, depth - 1));
        const word = evalrunNext();
        if (scalar === 'string') return globalThis.Buffer.from(word.slice(1), 'hex').toString('utf8');
        return scalar === 'bool' ? word === '1' : Number(word);
    };
    const evalrunWrite = (scalar, depth, value) => {
        if (depth) {
            if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return '?';
            return [value.length, ...Array.from(value, (each) => evalrunWrite(scalar, depth - 1, each))].join(' ');
        }
        const is = typeof value;
        if (scalar === 'string') {
            return is === 'string' ? 's' + globalThis.Buffer.from(value, 'utf8').toString('hex') : '?';
        }
        if (scalar === 'bool') return is === 'boolean' ? String(Number(value)) : '?';
        return is === 'bigint' || is === 'number' ? String(value) : '?';
    };
    const evalrunGiven = [%(kinds)s].map(([scalar, depth]) => evalrunRead(scalar, depth));
    const evalrunSaid = evalrunWrite('%(scalar)s', %(depth)d, evalrunCall(...evalrunGiven));
    globalThis.process.stdout.write('\\n%(returned)s ' + evalrunSaid + '\\n');
}
"""


def _add_driver(program: str, signature: Signature) -> str:
    method = f"(...given) => new Solution().{signature.name}(...given)"
    return f"{program}\n" + _DRIVER % {
        "name": f"typeof {signature.name} === 'function' ? {signature.name} : {method}",
        "kinds": ", ".join(f"['{kind.scalar}', {kind.depth}]" for _, kind in signature.parameters),
        "returned": RETURNED,
        "scalar": signature.returned.scalar,
        "depth": signature.returned.depth,
    }


JAVASCRIPT: Final = CallForm(
    language="javascript",
    scalars={"int": "number", "long": "number", "double": "number", "bool": "boolean", "string": "string"},
    listed="{item}[]",
    stub="/** ({parameters}) => {returned} */\nfunction {name}({names}) {\n}",
    parameter="{name}: {type}",
    add_driver=_add_driver,
    exact_bits=54,
    # With words that the driver writes, and the class of an answer with methods.
    reserved=(
        "arguments await break case catch class const continue debugger default delete do else enum eval export "
        "extends false finally for function if implements import in instanceof interface let new null package private "
        "protected public return static super switch this throw true try typeof var void while with yield Array "
        "ArrayBuffer Boolean Number Solution String require"
    ),
)
TYPESCRIPT: Final = replace(JAVASCRIPT, language="typescript", stub="function {name}({parameters}): {returned} {\n}")
