"""Finds Python code in a text that does not compile whole, because of prose, a cut end or marks that are no fences.

Pure. The module looks at lines only, and compiles nothing (see `extraction`).
"""

import re

CODE_LINE = re.compile(
    r"(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]|class[ \t]+\w+[ \t]*[:(\[]|import[ \t]+[\w., \t]+$"
    r"|from[ \t]+[\w.]+[ \t]+import[ \t]|@\w[\w.]*(?:\(.*)?$|[A-Za-z_]\w*[ \t]*(?::[^=]+)?=[^=]"
)
"""Matches a line that begins a definition, an import or an assignment at the top level."""

CONTINUED = ("elif ", "else:", "except", "finally:", ")", "]", "}")
"""Beginnings of lines at the top level that continue the statement before them."""

BRANCHES = ("if", "elif", "else", "try", "except", "finally", "with", "for", "while")
"""Statements whose body belongs to the top level."""

WHOLE_STRINGS = re.compile(r"#[^\n]*|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''"
                           r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)  # fmt: skip


def defines(code: str, name: str) -> bool:
    """Return whether a text defines a name at its top level or within statements of `BRANCHES` there.

    Only the form of the lines is examined.
    """
    own = re.escape(name)
    pattern = rf"^(?:(?:async[ \t]+)?def[ \t]+{own}[ \t]*[(\[]|class[ \t]+{own}\b|{own}[ \t]*(?::[^=\n]*)?=(?!=))"
    if re.search(pattern, code, re.MULTILINE) is not None:
        return True
    indented = re.compile(rf"[ \t]+(?:(?:async[ \t]+)?def[ \t]+{own}[ \t]*[(\[]|class[ \t]+{own}\b)")
    if name not in code:
        return False
    lines = code.split("\n")
    found = next((number for number, line in enumerate(lines) if indented.match(line)), None)
    return found is not None and _is_in_branches(lines, found)


def _is_in_branches(lines: list[str], number: int) -> bool:
    """Return whether a line is at the top level, or nested in nothing but `if`, `else` and the like."""
    width = _indent(lines[number])
    for line in reversed(lines[:number]):
        if not line.strip() or _indent(line) >= width:
            continue
        width = _indent(line)
        if not re.match(rf"[ \t]*(?:{'|'.join(BRANCHES)})\b", line):
            return False
        if width == 0:
            return True
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def looks_whole(code: str) -> bool:
    """Return whether a text does not break off: its brackets and strings are closed, and its last line ends."""
    plain = WHOLE_STRINGS.sub("''", code)
    if '"""' in plain or "'''" in plain or any(plain.count(a) != plain.count(b) for a, b in ("()", "[]", "{}")):
        return False
    last = plain.rstrip().rpartition("\n")[2]
    return not last.endswith(
        (":", ",", "=", "+", "-", "*", "/", "\\", "(", ".", " and", " or", " not", " in", "return")
    )


def extract_definitions(text: str, name: str) -> str:
    """Return the imports, definitions and assignments of a text, if one of them defines `name`; else an empty text.

    An incomplete end is left out, unless it defines the name.
    """
    if not defines(text, name):
        return ""
    parts: list[list[str]] = []
    inside = decorated = False
    for raw in text.split("\n"):
        line = raw.rstrip("\r")
        if CODE_LINE.match(line):
            if not decorated:
                parts.append([])
            parts[-1].append(line)
            inside, decorated = True, line.startswith("@")
        elif inside and (not line.strip() or line[0] in " \t" or line.startswith(CONTINUED) or line.startswith("#")):
            parts[-1].append(line)
        else:
            inside = decorated = False
    whole = ["\n".join(part) for part in parts]
    if whole and not looks_whole(whole[-1]) and not defines(whole[-1], name):
        whole.pop()
    found = "\n".join(whole).rstrip()
    return f"{found}\n" if defines(found, name) else ""
