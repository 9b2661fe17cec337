"""Build the documentation as a static site into `dist/docs`, without a network. Any warning is an error.

The site has the pages of the repository, and pages that are generated here: the reference of the command line from
click, that of the Python API from its docstrings, and an index of each directory that pages link to.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGING = ROOT / "dist" / "docs-source"
SITE = ROOT / "dist" / "docs"
HOME = "README.md"
PAGES = (HOME, "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md")
"""Pages outside of docs/."""
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
CONFIGURATION = """\
project = "evalrun"
extensions = ["myst_parser", "sphinx_click", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "evalrun"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints_format = "short"
highlight_language = "none"
nitpicky = False
"""
COMMANDS = """\
# Every command

`evalrun COMMAND --help` prints the same.

```{click} evalrun_cli.commands:evalrun
:prog: evalrun
:nested: full
```
"""
PYTHON = """\
# The Python API

[From Python](../tutorial/python.md) begins with examples.

```{eval-rst}
.. automodule:: evalrun
   :members:
   :member-order: bysource
```
"""
GENERATED = {"docs/reference/commands.md": COMMANDS, "docs/reference/python.md": PYTHON}


def stage_pages() -> list[str]:
    """Copy the pages, and the files that they link to, under the same paths. Return the copied and generated pages."""
    shutil.rmtree(STAGING, ignore_errors=True)
    pages = [*PAGES, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    for page in pages:
        source, target = ROOT / page, STAGING / ("index.md" if page == HOME else page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(LINK.sub(functools.partial(stage_link, source), source.read_text()))
    for page, text in GENERATED.items():
        (STAGING / page).write_text(text)
    return [*pages, *GENERATED]


def stage_link(page: Path, link: re.Match[str]) -> str:
    """Return a link of a page in the form that the site needs. Copy a linked file that is no page beside the pages."""
    path, anchor = link[1], link[2] or ""
    if "://" in path or path.startswith("mailto:"):
        return link[0]
    linked = (page.parent / path).resolve()
    copied = STAGING / linked.relative_to(ROOT)
    if linked.is_dir():
        index = next((name for name in ("README.md", "index.md") if (linked / name).exists()), "index.md")
        if index == "index.md":
            stage_index(linked, copied)
        return f"]({path.rstrip('/')}/{index})"
    if linked == ROOT / HOME:
        return f"]({path.removesuffix(HOME)}index.md{anchor})"
    if linked.suffix != ".md":
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(linked, copied)
    return f"]({path}{anchor})"


def stage_index(directory: Path, copied: Path) -> None:
    """Write the page that stands for a directory: its pages as a table of contents, or else its files."""
    copied.mkdir(parents=True, exist_ok=True)
    title = f"# {directory.name.capitalize()}\n\n"
    if any(directory.glob("*.md")):
        text = f"{title}```{{toctree}}\n:glob:\n:maxdepth: 1\n\n*\n```\n"
    else:
        files = sorted(path for path in directory.iterdir() if path.is_file())
        for file in files:
            shutil.copy(file, copied / file.name)
        text = "---\norphan: true\n---\n" + title + "".join(f"- [{file.name}]({file.name})\n" for file in files)
    (copied / "index.md").write_text(text)


def contents(pages: Iterable[str]) -> str:
    """Return the site's tables of contents: those of docs/README.md, then the pages that it does not name."""
    written = (STAGING / "docs" / "README.md").read_text()
    named: set[str] = set()
    tables = []
    for title, rows in re.findall(r"^\| (\w[\w ]*) \| \|\n\|---\|---\|\n((?:\|.*\n)+)", written, re.MULTILINE):
        entries = []
        for label, path in re.findall(r"^\| \[([^]]+)\]\(([^)#\s]+)", rows, re.MULTILINE):
            page = os.path.normpath(f"docs/{path}").removesuffix(".md")
            named.add(f"{page}.md")
            entries.append(f"{label} <{page}>")
        tables.append((title, entries))
    rest = [page.removesuffix(".md") for page in pages if page not in named and not page.startswith("docs/decisions/")]
    reference = [page for page in rest if page.startswith("docs/reference/")]
    others = [page for page in rest if page not in reference and page != HOME.removesuffix(".md")]
    tables = [(title, entries + (reference if title == "Look up" else [])) for title, entries in tables]
    tables.append(("Project", others))
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *entries, "```", ""])
        for title, entries in tables
    )


def main() -> int:
    """Build the site; return the exit code of Sphinx."""
    pages = stage_pages()
    (STAGING / "conf.py").write_text(CONFIGURATION)
    home = STAGING / "index.md"
    home.write_text(home.read_text() + contents(pages))
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder", "dirhtml"]
    command += ["--doctree-dir", str(ROOT / "dist" / "docs-doctrees")]
    return subprocess.run([*command, str(STAGING), str(SITE)]).returncode


if __name__ == "__main__":
    sys.exit(main())
