"""The bills of materials name what the images hold, each Python package with a licence that goes with Apache-2.0."""

import json
import re
from pathlib import Path

import generate_sbom
import pytest
from image_packages import debian_licences

ROOT = Path(__file__).parents[3]
COPYLEFT = re.compile(r"\b(A?GPL|GNU (Affero )?General Public)", re.IGNORECASE)


@pytest.mark.parametrize("image", generate_sbom.IMAGES)
def test_every_package_has_its_version_hashes_and_a_licence(image: str) -> None:
    components = generate_sbom.make_bill_of_materials(image).components
    assert components
    for component in components:
        words = [
            str(getattr(one, "value", None) or getattr(one, "id", None) or getattr(one, "name", ""))
            for one in component.licenses
        ]
        assert words, f"{component.name} {component.version}: no licence is declared, or another version is installed"
        assert not any(COPYLEFT.search(word) for word in words), (component.name, words)
        assert component.version
        assert component.hashes


def test_the_images_install_the_locks_that_are_read() -> None:
    dockerfile = (ROOT / "Dockerfile.judge").read_text(encoding="utf-8")
    copied = set(re.findall(r"requirements/(\w+)\.txt", " ".join(re.findall(r"^COPY .*", dockerfile, re.MULTILINE))))
    assert copied - {"base"} == {lock for locks in generate_sbom.IMAGES.values() for lock in locks}


def test_pins_of_other_platforms_are_left_out() -> None:
    lock = (
        "a==1 ; sys_platform == 'win32' \\\n    --hash=sha256:"
        + "0" * 64
        + "\nb==2.0 \\\n    --hash=sha256:"
        + "1" * 64
    )
    (only,) = generate_sbom.list_components(lock, generate_sbom.PYTHON)
    assert (only.name, only.version, [one.content for one in only.hashes]) == ("b", "2.0", ["1" * 64])


@pytest.mark.slow
def test_the_files_are_cyclonedx(tmp_path: Path) -> None:
    assert generate_sbom.main([str(tmp_path)]) == 0
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.iterdir()}
    assert files.keys() == {f"evalrun-{image}.cdx.json" for image in generate_sbom.IMAGES}
    assert {(one["bomFormat"], one["specVersion"]) for one in files.values()} == {("CycloneDX", "1.6")}


STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Version: of nothing

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
"""
"""Of dpkg, with a package of which only settings are left."""


def write_image(root: Path) -> None:
    """Write the files of a small image like Dockerfile.gen's: Debian, and Python packages that no lock pins."""
    files = {
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        "var/lib/dpkg/status": STATUS,
        "usr/share/doc/libc6/copyright": "The text is in `/usr/share/common-licenses/LGPL-2.1'.",
        "usr/share/doc/adduser/copyright": "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Files: *\nLicense: GPL-2+\n text\nFiles: x\nLicense: Expat\n",
        "usr/lib/python3/dist-packages/torch-2.11.0.dist-info/METADATA": "Name: torch\nVersion: 2.11.0\n"
        "License-Expression: BSD-3-Clause\n\nLicense: of nothing\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.slow
def test_an_image_without_locks_is_described_by_its_files(tmp_path: Path) -> None:
    write_image(tmp_path / "root")
    assert generate_sbom.main([str(tmp_path / "out"), f"--root=gen={tmp_path}/root"]) == 0
    bom = json.loads((tmp_path / "out" / "evalrun-gen.cdx.json").read_text())
    found = {
        one["purl"]: [licence["license"].get("id") or licence["license"]["name"] for licence in one["licenses"]]
        for one in bom["components"]
    }
    assert found == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12": ["LGPL-2.1"],
        "pkg:deb/debian/adduser@3.134?arch=all&distro=debian-12": ["Expat", "GPL-2+"],
        "pkg:pypi/torch@2.11.0": ["BSD-3-Clause"],
    }
    assert len(list((tmp_path / "out").iterdir())) == len(generate_sbom.IMAGES) + 1


def test_image_with_locks_lists_locked_and_debian_packages(tmp_path: Path) -> None:
    write_image(tmp_path)
    names = {component.name for component in generate_sbom.make_bill_of_materials("judge", tmp_path).components}
    locked = {component.name for component in generate_sbom.make_bill_of_materials("judge").components}
    assert names == locked | {"libc6", "adduser"}
    # Pins depend on the Python that the image has.
    (tmp_path / "opt" / "evalrun").mkdir(parents=True)
    (tmp_path / "opt" / "evalrun" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    names = {component.name for component in generate_sbom.make_bill_of_materials("judge", tmp_path).components}
    assert names == locked | {"libc6", "adduser", "async-timeout"}


def test_files_that_are_no_image_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate_sbom.main([str(tmp_path / "out"), f"--root=gen={tmp_path}"])
    assert "no files of a Debian image are there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "licences"),
    [
        ("", []),
        ("You may do what you like.", ["see usr/share/doc/x/copyright"]),
        ("see /usr/share/common-licenses/GPL-3 and /usr/share/common-licenses/Artistic.", ["Artistic", "GPL-3"]),
    ],
)
def test_debian_licences_names_common_licences_else_the_file(text: str, licences: list[str]) -> None:
    assert debian_licences(text, "usr/share/doc/x/copyright") == licences


def test_a_link_out_of_the_image_is_not_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "root")
    (tmp_path / "secret").write_text("GPL, of the host: /usr/share/common-licenses/GPL-3")
    file = tmp_path / "root" / "usr/share/doc/libc6/copyright"
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    (libc,) = [
        one for one in generate_sbom.make_bill_of_materials("gen", tmp_path / "root").components if one.name == "libc6"
    ]
    assert not libc.licenses
