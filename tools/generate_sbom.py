"""Writes a software bill of materials (CycloneDX 1.6) for each image of Dockerfile.judge, from its lock files.

Usage: `python tools/generate_sbom.py [FOLDER]`, by default dist/sbom. Names, versions and hashes are the locks',
for the images' Python on Linux. A licence is what the installed distribution of that very version declares,
or what was read from its wheel (NOT_INSTALLED).
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from generated_files import ROOT
from packageurl import PackageURL
from packaging.requirements import Requirement

IMAGES = {
    "operator": ("operator",),
    "aggregator": ("aggregator", "data", "generator"),
    "judge": ("judge",),
    "sandbox": ("sandbox",),
    "sandbox-graders": ("sandbox", "graders"),
    "reward": ("reward",),
}
"""By image, the locks that Dockerfile.judge installs into it."""
NOT_INSTALLED = {
    "mathruler==0.1.0": "Apache-2.0",
    "mpmath==1.3.0": "BSD-3-Clause",
    "pylatexenc==2.11": "MIT",
    "sympy==1.14.0": "BSD-3-Clause",
    "verl==0.9.1": "Apache-2.0",
}
"""Licences of graders' packages, read from the files in their wheels: the development environment does not have them,
and mathruler's metadata declares none. By version, so that another one is looked at again."""
PYTHON = {
    "python_version": "3.11", "python_full_version": "3.11.14", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "sys_platform": "linux", "platform_system": "Linux",
    "os_name": "posix", "platform_machine": "x86_64",
}  # fmt: skip
"""Of the images, for the locks' environment markers."""
PIN = re.compile(r"^[A-Za-z0-9][^\\\n]*", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bom_of(image: str) -> Bom:
    """Return the bill of materials of one image."""
    components: dict[str, Component] = {}
    for lock in IMAGES[image]:
        text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        components |= {str(component.purl): component for component in components_of(text)}
    bom, whole = Bom(components=components.values()), Component(name=f"evalrun-{image}", type=ComponentType.CONTAINER)
    bom.metadata.component = whole
    bom.register_dependency(whole, components.values())
    return bom


def components_of(lock: str) -> list[Component]:
    """Return the packages that a lock file pins for the images' Python."""
    found = list(PIN.finditer(lock))
    ends = [match.start() for match in found[1:]] + [len(lock)]
    components = []
    for match, end in zip(found, ends, strict=True):
        pin = Requirement(match.group())
        if pin.marker is None or pin.marker.evaluate(PYTHON):
            version = str(pin.specifier).removeprefix("==")
            components.append(component(pin.name, version, HASH.findall(lock[match.end() : end])))
    return components


def component(name: str, version: str, hashes: list[str]) -> Component:
    """Return one package; its hashes are those of all its files, of which the image installs one."""
    purl = PackageURL("pypi", None, name, version)
    declared = licence_of(name, version)
    return Component(
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in hashes],
        licenses=[] if declared is None else [declared],
    )


def licence_of(name: str, version: str) -> License | None:
    """Return the licence that the installed distribution declares: an SPDX id, else its own words."""
    read = NOT_INSTALLED.get(f"{name}=={version}")
    if read is not None:
        return LicenseFactory().make_from_string(read)
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return None
    if metadata["Version"] != version:
        return None
    classified = [entry.rpartition(" :: ")[2] for entry in metadata.get_all("Classifier", []) if "License ::" in entry]
    words = metadata["License-Expression"] or " / ".join(classified) or (metadata["License"] or "").strip()
    return LicenseFactory().make_from_string(words.splitlines()[0]) if words else None


def main(arguments: list[str]) -> int:
    """Write the files."""
    folder = Path(arguments[0]) if arguments else ROOT / "dist" / "sbom"
    folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        file = folder / f"evalrun-{image}.cdx.json"
        file.write_text(JsonV1Dot6(bom_of(image)).output_as_string(indent=1), encoding="utf-8")
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
