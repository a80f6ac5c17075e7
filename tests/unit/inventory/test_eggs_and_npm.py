"""Owners of files that no wheel installed: setuptools' eggs, and npm packages."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from test_collect import ELF, Image, record_hash

from buildmatrix.facts.inventory.model import Distribution, Inventory

SITE = "opt/venv/lib/python3.10/site-packages"
#: As setuptools 65 named and filled the egg of a project with an extension.
EGG = "Demo_Vision-0.19.0a0+48b1edf-py3.10-linux-x86_64.egg"
EGG_INFO = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: Demo-Vision\nVersion: 0.19.0a0+48b1edf\n",
    "SOURCES.txt": "setup.py\n",
    "entry_points.txt": "[console_scripts]\ndemo = demo:main\n",
    "requires.txt": 'torch>=2\n\n[:python_version < "3"]\nsix\n\n[gpu]\nnvidia-ml-py\n',
    "top_level.txt": "demo\n",
}
EGG_REQUIRES = ("torch>=2", 'six ; (python_version < "3")', 'nvidia-ml-py ; extra == "gpu"')


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return buffer.getvalue()


def owners(inventory: Inventory) -> dict[str, str | None]:
    return {item.path: item.owner for item in inventory.binaries}


def one(inventory: Inventory, name: str) -> Distribution:
    (found,) = [item for item in inventory.distributions if item.name == name]
    return found


@pytest.mark.parametrize("is_zipped", [False, True])
def test_an_egg_is_a_distribution_that_owns_what_is_in_it(image: Image, is_zipped: bool) -> None:
    library = f"demo/libcudart.so.12{'' if is_zipped else '.4'}"
    files: dict[str, str | bytes] = {f"EGG-INFO/{name}": text for name, text in EGG_INFO.items()}
    files |= {library: ELF + bytes(400), "demo/__init__.py": "x = 1\n"}
    if is_zipped:
        image.file(f"{SITE}/{EGG}", zipped(files))
    else:
        for path, data in files.items():
            image.file(f"{SITE}/{EGG}/{path}", data)
    image.file(f"{SITE}/easy-install.pth", f"./{EGG}\n")
    image.file("opt/venv/pyvenv.cfg", "version = 3.10.12\n")
    inventory = image.inventory()
    found = one(inventory, "demo-vision")
    assert (found.version, found.requires) == ("0.19.0a0+48b1edf", EGG_REQUIRES)
    assert [point.value for point in found.entry_points] == ["demo:main"]
    assert (found.has_record, found.files) == (True, 1 if is_zipped else len(files))
    separator = "!/" if is_zipped else "/"
    owner = "demo-vision==0.19.0a0+48b1edf"
    assert owners(inventory) == {f"{SITE}/{EGG}{separator}{library}": owner}
    assert inventory.unread == ()


def test_an_egg_made_of_a_wheel_keeps_the_hashes_of_its_record(image: Image) -> None:
    """easy_install unpacks a wheel as an egg, and its RECORD with it."""
    folder = f"{SITE}/demo-1.0-py3.10.egg"
    image.file(f"{folder}/EGG-INFO/PKG-INFO", "Name: demo\nVersion: 1.0\nRequires-Dist: six\n")
    image.file(f"{folder}/EGG-INFO/RECORD", f"demo/x.so,{record_hash(ELF)},{len(ELF)}\n")
    for name in ("demo/x.so", "demo/smuggled.so"):
        image.file(f"{folder}/{name}", ELF)
    # Setuptools has such folders inside of its own egg.
    image.file(f"{folder}/demo/_vendor/six-1.dist-info/METADATA", "Name: six\nVersion: 1\n")
    inventory = image.inventory()
    found = one(inventory, "demo")
    assert [item.name for item in inventory.distributions] == ["demo"]
    assert (found.files, found.requires, found.record is None) == (5, ("six",), False)
    assert set(owners(inventory).values()) == {"demo==1.0"}


def test_pip_before_wheels_left_a_list_of_files(image: Image) -> None:
    folder = f"{SITE}/old-1.0-py3.10.egg-info"
    image.file(f"{folder}/PKG-INFO", "Name: old\nVersion: 1.0\n")
    image.file(
        f"{folder}/installed-files.txt", "../old/x.so\n../../../../../../../etc/passwd\nPKG-INFO\n"
    )
    image.file(f"{SITE}/old/x.so", ELF)
    image.file(f"{SITE}/old/y.so", ELF)
    inventory = image.inventory()
    assert owners(inventory) == {f"{SITE}/old/x.so": "old==1.0", f"{SITE}/old/y.so": None}
    assert (one(inventory, "old").files, inventory.unread) == (2, ())


@pytest.mark.parametrize(
    ("path", "data", "version", "why"),
    [
        (f"{SITE}/{EGG}", zipped({"demo/x.py": "x"}), "0.19.0a0+48b1edf", ""),
        (f"{SITE}/{EGG}", b"PK\3\4 no archive", "0.19.0a0+48b1edf", "no readable ZIP archive"),
        (
            f"{SITE}/{EGG}",
            zipped({"EGG-INFO/PKG-INFO": bytes(5 << 20)}),
            "0.19.0a0+48b1edf",
            "larger",
        ),
        # Not on any sys.path: a package file.
        (f"srv/dist/{EGG}", zipped({"EGG-INFO/PKG-INFO": "Name: x"}), "", ""),
        (f"{SITE}/chicken.egg", b"an egg of another kind", "", ""),
    ],
)
def test_any_file_may_be_called_an_egg(
    image: Image, path: str, data: bytes, version: str, why: str
) -> None:
    image.file(path, data)
    inventory = image.inventory()
    assert [item.version for item in inventory.distributions] == ([version] if version else [])
    assert [entry.path for entry in inventory.unread] == ([path] if why else [])
    assert all(why in entry.why for entry in inventory.unread)
