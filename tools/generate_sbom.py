"""Writes software bills of materials (CycloneDX 1.6) of the images.

    python tools/generate_sbom.py                                   # of Dockerfile.judge's images, from their locks
    python tools/generate_sbom.py --root gen=/mnt/gen dist/sbom     # and of an image, from its files

Names, versions and hashes of Python packages are the locks', for the images' Python on Linux. A licence is what the
installed distribution of that very version declares, or what was read from its wheel (NOT_INSTALLED).

With the files of an image (`docker export`, `buildah mount`) its Debian packages come too, with the licences of their
copyright files. An image without locks, such as Dockerfile.gen's, is described by its files alone.
"""

import argparse
import re
import sys
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import cast

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from generated_files import ROOT
from image_packages import debian_components, declared_licence, python_components
from packageurl import PackageURL
from packaging.requirements import Requirement

IMAGES = {
    "operator": ("operator",),
    "aggregator": ("aggregator", "data", "generator"),
    "judge": ("judge",),
    "sandbox": ("sandbox",),
    "sandbox-graders": ("sandbox", "graders"),
    "reward": ("reward",),
    "viewer": ("viewer",),
}
"""The locks that Dockerfile.judge installs, by image."""
NOT_INSTALLED = {
    "mathruler==0.1.0": "Apache-2.0",
    "mpmath==1.3.0": "BSD-3-Clause",
    "pylatexenc==2.11": "MIT",
    "sympy==1.14.0": "BSD-3-Clause",
    "verl==0.9.1": "Apache-2.0",
}
"""Licences of graders' packages, read from the files in their wheels: the development environment does not have them,
and mathruler's metadata declares none. The keys name the versions, so that another version is looked at again."""
PYTHON = {
    "python_version": "3.11", "python_full_version": "3.11.14", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "sys_platform": "linux", "platform_system": "Linux",
    "os_name": "posix", "platform_machine": "x86_64",
}  # fmt: skip
"""Python version and platform of the images, for the locks' environment markers."""
PIN = re.compile(r"^[A-Za-z0-9][^\\\n]*", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def make_bill_of_materials(image: str, root: Path | None = None) -> Bom:
    """Return the bill of materials of one image: from its locks, and from its files under `root`."""
    components: dict[str, Component] = {}
    for lock in IMAGES.get(image, ()):
        text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        components |= {
            str(component.purl): component for component in list_components(text, find_marker_environment(root))
        }
    if root is not None:
        read = [*debian_components(root), *([] if image in IMAGES else python_components(root))]
        components |= {str(component.bom_ref): component for component in read}
    bom, whole = Bom(components=components.values()), Component(name=f"evalrun-{image}", type=ComponentType.CONTAINER)
    bom.metadata.component = whole
    bom.register_dependency(whole, components.values())
    return bom


def find_marker_environment(root: Path | None) -> dict[str, str]:
    """Return the environment of the locks' markers: of the default base, or of the Python in an image's files."""
    file = None if root is None else root / "opt" / "evalrun" / "pyvenv.cfg"
    if file is None or not file.is_file():
        return PYTHON
    version = re.search(r"^version(?:_info)? *= *(\d+\.\d+)(\.\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if version is None:
        return PYTHON
    return {**PYTHON, "python_version": version[1], "python_full_version": version[1] + version[2]}


def list_components(lock: str, python: dict[str, str]) -> list[Component]:
    found = list(PIN.finditer(lock))
    ends = [match.start() for match in found[1:]] + [len(lock)]
    components = []
    for match, end in zip(found, ends, strict=True):
        pin = Requirement(match.group())
        if pin.marker is None or pin.marker.evaluate(python):
            version = str(pin.specifier).removeprefix("==")
            components.append(component(pin.name, version, HASH.findall(lock[match.end() : end])))
    return components


def component(name: str, version: str, hashes: list[str]) -> Component:
    """Return one package; its hashes are those of all its files, of which the image installs one."""
    purl = PackageURL("pypi", None, name, version)
    declared = find_licence(name, version)
    return Component(
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in hashes],
        licenses=[] if declared is None else [declared],
    )


def find_licence(name: str, version: str) -> License | None:
    """Return the licence that the installed distribution declares: an SPDX id, else the distribution's own text."""
    read = NOT_INSTALLED.get(f"{name}=={version}")
    if read is not None:
        return LicenseFactory().make_from_string(read)
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return None
    return declared_licence(cast("Message", metadata)) if metadata["Version"] == version else None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "dist" / "sbom")
    parser.add_argument("--root", action="append", default=[], metavar="IMAGE=DIRECTORY", help="an image's files")
    given = parser.parse_args(arguments)
    directory: Path = given.directory
    roots = {image: Path(root) for image, _, root in (one.partition("=") for one in given.root)}
    for image, root in roots.items():
        if not (root / "var/lib/dpkg/status").is_file() or not (root / "usr/share/doc").is_dir():
            parser.error(f"--root {image}={root}: no files of a Debian image are there")
    directory.mkdir(parents=True, exist_ok=True)
    for image in {**IMAGES, **roots}:
        file = directory / f"evalrun-{image}.cdx.json"
        file.write_text(
            JsonV1Dot6(make_bill_of_materials(image, roots.get(image))).output_as_string(indent=1), encoding="utf-8"
        )
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
