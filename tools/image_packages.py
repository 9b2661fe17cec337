"""Reads the packages of an image from its files: Debian's from dpkg's status, Python's from their metadata."""

import re
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.component import Component
from cyclonedx.model.license import License
from packageurl import PackageURL

MACHINE_READABLE = "debian.org/doc/packaging-manuals/copyright-format"
LICENCE_FIELD = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9.]*[0-9])?)")


def debian_components(root: Path) -> Iterator[Component]:
    """Yield the installed Debian packages of an image, each with the licences of its copyright file."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _text(root, "etc/os-release"), re.MULTILINE))
    for stanza in _text(root, "var/lib/dpkg/status").split("\n\n"):
        fields = HeaderParser().parsestr(stanza)
        if fields.get("Status", "").endswith(" installed"):
            yield _debian_component(root, fields, release)


def _debian_component(root: Path, fields: Message, release: dict[str, str]) -> Component:
    name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
    qualifiers = {"arch": architecture, "distro": f"{release.get('ID', 'debian')}-{release.get('VERSION_ID', '')}"}
    purl = PackageURL("deb", release.get("ID", "debian"), name, version, qualifiers)
    file = f"usr/share/doc/{name}/copyright"
    licences = debian_licences(_text(root, file), file)
    return Component(
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        licenses=[LicenseFactory().make_with_name(licence) for licence in licences],
    )


def debian_licences(copyright_file: str, name: str) -> list[str]:
    """Return the licences that a Debian copyright file names; a reference to `name` if it has them in prose only."""
    if MACHINE_READABLE in copyright_file[:2000]:
        found = LICENCE_FIELD.findall(copyright_file)
    else:
        found = COMMON_LICENCE.findall(copyright_file)
    return sorted({licence.strip() for licence in found}) or ([f"see {name}"] if copyright_file else [])


def python_components(root: Path) -> Iterator[Component]:
    """Yield the Python packages of an image, by the metadata that their installation left."""
    for file in sorted(root.glob("**/*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
        purl = PackageURL("pypi", None, fields["Name"], fields["Version"])
        declared = declared_licence(fields)
        yield Component(
            name=fields["Name"],
            version=fields["Version"],
            purl=purl,
            bom_ref=f"{purl}#{file.parent.relative_to(root)}",
            licenses=[] if declared is None else [declared],
        )


def declared_licence(metadata: Message) -> License | None:
    """Return the licence that a distribution's metadata declares: an SPDX id, else the metadata's own text."""
    classifiers = metadata.get_all("Classifier", [])
    classified = [entry.rpartition(" :: ")[2] for entry in classifiers if "License ::" in entry]
    words = metadata["License-Expression"] or " / ".join(classified) or (metadata["License"] or "").strip()
    return LicenseFactory().make_from_string(words.splitlines()[0]) if words else None


def _text(root: Path, name: str) -> str:
    """Return a file of the image; empty if there is none. A link that leads out of the image counts as none."""
    file = (root / name).resolve()
    if not file.is_relative_to(root.resolve()) or not file.is_file():
        return ""
    return file.read_text(encoding="utf-8", errors="replace")
