"""Calls of JavaScript and TypeScript functions."""

from dataclasses import replace
from typing import Final

from evalrun_registry.call_forms.call_form import RETURNED, CallForm
from evalrun_registry.call_forms.signature import Signature

# In a block of its own, for the program may have any of these names. A value of another type than the signature's is
# printed as `?`, which no expected value is.
_DRIVER: Final = """
{
    const evalrunCall = %(name)s;
    const words = require('fs').readFileSync(0, 'latin1').split(/\\s+/).filter(Boolean).values();
    const next = () => words.next().value;
    const read = (scalar, depth) => {
        if (depth) return Array.from({length: Number(next())}, () => read(scalar, depth - 1));
        const word = next();
        if (scalar === 'string') return Buffer.from(word.slice(1), 'hex').toString('utf8');
        return scalar === 'bool' ? word === '1' : Number(word);
    };
    const write = (scalar, depth, value) => {
        if (depth) {
            if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return '?';
            return [value.length, ...Array.from(value, (each) => write(scalar, depth - 1, each))].join(' ');
        }
        const is = typeof value;
        if (scalar === 'string') return is === 'string' ? 's' + Buffer.from(value, 'utf8').toString('hex') : '?';
        if (scalar === 'bool') return is === 'boolean' ? String(Number(value)) : '?';
        return is === 'bigint' || is === 'number' ? String(value) : '?';
    };
    const given = [%(kinds)s].map(([scalar, depth]) => read(scalar, depth));
    process.stdout.write('\\n%(returned)s ' + write('%(scalar)s', %(depth)d, evalrunCall(...given)) + '\\n');
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
)
TYPESCRIPT: Final = replace(JAVASCRIPT, language="typescript", stub="function {name}({parameters}): {returned} {\n}")
