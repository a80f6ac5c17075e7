"""Owners of files that no wheel installed: setuptools' eggs, and npm packages."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from test_collect import ELF, Image, record_hash

from buildmatrix.facts.inventory import conda
from buildmatrix.facts.inventory.model import Distribution, Inventory, RequirementLine

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


MODULES = "srv/app/node_modules"
PROVIDER = "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime_providers_cuda.so"


def package(image: Image, folder: str, name: str, version: str = "1.0.0", **more: object) -> None:
    image.file(f"{folder}/package.json", json.dumps({"name": name, "version": version, **more}))


def application(image: Image) -> None:
    """As npm lays out a project that uses transformers.js, whose runtime brings CUDA libraries."""
    image.file(
        "srv/app/package.json",
        """{
  "name": "app",
  "scripts": {"left-pad": "x"},
  "dependencies": {
    "@huggingface/transformers": "^3.8.1"
  },
  "devDependencies": {"left-pad": "1.3.0"}
}
""",
    )
    package(
        image,
        f"{MODULES}/@huggingface/transformers",
        "@huggingface/transformers",
        "3.8.1",
        dependencies={"onnxruntime-node": "1.21.0", "absent": "1"},
    )
    needs = {"onnxruntime-common": "1.21.0", "socket.io": "4"}
    package(image, f"{MODULES}/onnxruntime-node", "onnxruntime-node", "1.21.0", dependencies=needs)
    inner = f"{MODULES}/onnxruntime-node/node_modules/onnxruntime-common"
    package(image, inner, "onnxruntime-common", "1.21.0", license="MIT")
    package(image, f"{MODULES}/onnxruntime-common", "onnxruntime-common", "1.22.0")
    package(image, f"{MODULES}/left-pad", "left-pad", "1.3.0")
    package(image, f"{MODULES}/socket.io", "socket.io", "4.8.1")
    image.file(f"{MODULES}/{PROVIDER}", ELF)
    image.file(f"{inner}/addon.node", ELF)
    image.file(f"{MODULES}/.cache/loose.node", ELF)


def test_packages_of_npm_own_the_files_below_them(image: Image) -> None:
    application(image)
    inventory = image.inventory()
    common = "onnxruntime-node/node_modules/onnxruntime-common"
    assert owners(inventory) == {
        f"{MODULES}/{PROVIDER}": "npm:onnxruntime-node==1.21.0",
        f"{MODULES}/{common}/addon.node": "npm:onnxruntime-common==1.21.0",
        f"{MODULES}/.cache/loose.node": None,
    }
    runtime = one(inventory, "npm:onnxruntime-node")
    assert runtime.requires == ("npm:onnxruntime-common", "npm:socket.io")
    assert (runtime.installer, runtime.requested, runtime.files) == ("npm", False, 2)
    top = one(inventory, "npm:@huggingface/transformers")
    line = RequirementLine("srv/app/package.json:5", "@huggingface/transformers ^3.8.1")
    assert (top.lines, top.requires) == ((line,), ("npm:onnxruntime-node",))
    pad = RequirementLine("srv/app/package.json:7", "left-pad 1.3.0")
    assert one(inventory, "npm:left-pad").lines == (pad,)
    assert inventory.unread == ()


def test_a_lock_says_what_the_project_asks_for_where_no_manifest_does(image: Image) -> None:
    package(image, f"{MODULES}/a", "a")
    packages = {"": {"dependencies": {"a": "1"}}, "node_modules/a": {"dependencies": {"b": "2"}}}
    image.file("srv/app/package-lock.json", json.dumps({"packages": packages}, indent=1))
    found = one(image.inventory(), "npm:a")
    assert found.lines == (RequirementLine("srv/app/package-lock.json:5", "a 1"),)


def test_pnpm_and_workspaces_link_their_packages(image: Image) -> None:
    store = f"{MODULES}/.pnpm"
    package(image, f"{store}/a@1/node_modules/a", "a", dependencies={"b": "1"})
    package(image, f"{store}/b@1/node_modules/b", "b")
    image.file(f"{store}/b@1/node_modules/b/x.node", ELF)
    image.link(f"{store}/a@1/node_modules/b", "../../b@1/node_modules/b")
    image.link(f"{MODULES}/work", "../packages/work")
    image.link(
        "srv/app/packages/work/node_modules/a", "../../../node_modules/.pnpm/a@1/node_modules/a"
    )
    package(image, "srv/app/packages/work", "work", dependencies={"a": "^1"})
    for number in range(3):
        image.link(f"{MODULES}/loop{number}", f"../node_modules/loop{(number + 1) % 3}")
    image.link(f"{MODULES}/up", "..")
    inventory = image.inventory()
    assert set(owners(inventory).values()) == {"npm:b==1.0.0"}
    found = one(inventory, "npm:a")
    assert [line.place for line in found.lines] == ["srv/app/packages/work/package.json:1"]
    assert (found.requires, inventory.unread) == (("npm:b",), ())


def test_packages_inside_of_a_python_distribution_are_a_part_of_it(image: Image) -> None:
    inside = "demo/static/node_modules/a"
    manifest = b'{"name": "a", "version": "1"}'
    image.distribution("demo", "1", {f"{inside}/package.json": manifest, f"{inside}/x.node": ELF})
    inventory = image.inventory()
    assert [item.name for item in inventory.distributions] == ["demo"]
    assert set(owners(inventory).values()) == {"demo==1"}
    assert inventory.shared_paths == ()


@pytest.mark.parametrize(
    ("text", "count", "owner", "why"),
    [
        ('{"name": "b", "version": "2"}', 1, "npm:b==2", ""),
        ('\ufeff{"name": "b", "version": "2"}', 1, "npm:b==2", ""),
        ('{"name": ["b"], "version": 2}', 1, "npm:a==2", ""),
        ('{"name": "torch==2.9\\u0000, x", "version": "2"}', 1, "npm:torch-2.9---x==2", ""),
        ('{"name": "a", "version": "1", "dependencies": ["a"]}', 1, "npm:a==1", ""),
        ("[]", 1, "npm:a==", ""),
        ("{", 1, "npm:a==", "no readable JSON"),
        ("[", 100_000, "npm:a==", "no readable JSON"),
        ("9", 1_000_000, "npm:a==", ""),
        (" ", conda.LARGEST_MANIFEST + 1, "npm:a==", "larger than"),
    ],
)
def test_a_manifest_may_say_anything(
    image: Image, text: str, count: int, owner: str, why: str
) -> None:
    image.file(f"{MODULES}/a/package.json", text * count)
    image.file(f"{MODULES}/a/x.node", ELF)
    inventory = image.inventory()
    assert list(owners(inventory).values()) == [owner]
    assert [entry.path for entry in inventory.unread] == (
        [f"{MODULES}/a/package.json"] if why else []
    )
    assert all(why in entry.why for entry in inventory.unread)


def test_more_packages_than_any_image_has_are_said(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conda, "MOST_PACKAGES", 5)
    for number in range(9):
        package(image, f"{MODULES}/p{number}", f"p{number}")
    inventory = image.inventory()
    assert len(inventory.distributions) == 5
    (unread,) = inventory.unread
    assert (unread.path, "have no owner" in unread.why) == (f"{MODULES}/p5/package.json", True)
