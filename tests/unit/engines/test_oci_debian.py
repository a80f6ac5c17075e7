from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from oci_world import SPEC, SYSTEM, LayerFile, file, files_of, link, make_base, make_world

from buildmatrix.engines.oci import apt, contents, debian
from buildmatrix.engines.oci.base_files import BaseFiles, notes_store, read_layer
from buildmatrix.engines.oci.debian import DebianPackages
from buildmatrix.engines.oci.refusals import refusals
from buildmatrix.errors import SpecError, UndecidedError
from buildmatrix.progress import Silent
from buildmatrix.store.cache import Cache
from buildmatrix.trees.archive import Slice

STATUS = (
    "Package: aa\nStatus: install ok installed\nVersion: 1\n\n"
    "Package: zz\nStatus: install ok installed\nVersion: 1\n\n"
)
DPKG = (
    *(item for item in SYSTEM if not item.entry.path.startswith("opt")),
    file("var/lib/dpkg/status", STATUS),
    file("etc/dpkg/dpkg.cfg.d/docker", "path-exclude /usr/share/doc/*\npath-include */copyright\n"),
    file(
        "etc/apt/sources.list", "deb [signed-by=/usr/share/keyrings/x.gpg] http://h/debian s main\n"
    ),
    file("usr/share/keyrings/x.gpg", "key"),
    file("usr/lib/x86_64-linux-gnu/libc.so.6", ""),
    link("lib", "usr/lib"),
)


@pytest.fixture(autouse=True)
def programs() -> None:
    """On Debian, where the tests run on CI, they are always there."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing")


def make_deb(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    control: Mapping[str, str] | None = None,
    fields: str = "",
) -> Path:
    root = folder / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 1:2.0-1\nArchitecture: amd64\n{fields}"
        "Maintainer: Tests <tests@example.com>\nHomepage: https://example.com\n"
        "Description: short\n longer\n .\n and longer\n"
    )
    for path, text in (control or {}).items():
        (root / "DEBIAN" / path).write_text(text)
        (root / "DEBIAN" / path).chmod(0o755 if path.endswith(("inst", "rm")) else 0o644)
    root.chmod(0o755)
    deb = folder / f"{name}.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", root, deb]
    subprocess.run(build, check=True, capture_output=True)
    return deb


def unpacked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    debs: Sequence[Path],
    names: Sequence[str] = ("tool",),
    base: Sequence[LayerFile] = DPKG,
) -> dict[str, tuple[str, bytes]]:
    image = make_base(tmp_path / "base", base)
    store = notes_store(Cache(None))
    files = BaseFiles([read_layer(image.layout, layer, store) for layer in image.manifest.layers])
    found = {deb.stem for deb in debs}, list(debs)
    monkeypatch.setattr(apt, "fetched", lambda *_: found)
    with ExitStack() as held:
        made = DebianPackages(files, "linux/amd64", held).files(names)
        return {
            path: (f"{item.entry.kind} {item.entry.mode:o}", b"".join(item.content()))
            for path, item in made.items()
        }


def test_files_and_database_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make_deb(
        tmp_path,
        "libtool2",
        {"lib/x86_64-linux-gnu/libtool.so.2": "so", "usr/share/doc/libtool2/changelog": "c",
         "usr/share/doc/libtool2/copyright": "c"},
        {"triggers": "# debhelper\nactivate-noawait ldconfig\n"},
        "Multi-Arch: same\n",
    )  # fmt: skip
    tool = make_deb(
        tmp_path,
        "tool",
        {"usr/bin/tool": "#!", "etc/tool.conf": "x = 1\n"},
        {"conffiles": "/etc/tool.conf\n", "postinst": "#!/bin/sh\nset -e\n\nexit 0\n"},
        "Depends: libtool2\nSection: misc\n",
    )
    files = unpacked(tmp_path, monkeypatch, [library, tool])
    assert files["usr/lib/x86_64-linux-gnu/libtool.so.2"] == ("file 644", b"so")
    assert "usr/lib" not in files and "lib" not in files  # the base has them
    assert "usr/share/doc/libtool2/changelog" not in files
    assert "usr/share/doc/libtool2/copyright" in files
    listed = files["var/lib/dpkg/info/libtool2:amd64.list"][1].decode().splitlines()
    assert listed[0] == "/." and "/lib/x86_64-linux-gnu/libtool.so.2" in listed
    assert files["var/lib/dpkg/info/tool.postinst"][0] == "file 755"
    status = files["var/lib/dpkg/status"][1].decode()
    assert re.findall("^Package: (.*)$", status, re.M) == ["aa", "libtool2", "tool", "zz"]
    stanza = status.split("\n\n")[2]
    assert stanza == (
        "Package: tool\nStatus: install ok installed\nSection: misc\n"
        "Maintainer: Tests <tests@example.com>\nArchitecture: amd64\nVersion: 1:2.0-1\n"
        "Depends: libtool2\nConffiles:\n /etc/tool.conf 3253b41059cac6e987c5a5e9233ea5d0\n"
        "Description: short\n longer\n .\n and longer\nHomepage: https://example.com"
    )
    automatic = files["var/lib/apt/extended_states"][1].decode()
    assert automatic == "Package: libtool2\nArchitecture: amd64\nAuto-Installed: 1\n\n"


def test_the_status_is_one_that_dpkg_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make_deb(tmp_path, "tool", {"usr/bin/tool": "#!"})
    files = unpacked(tmp_path, monkeypatch, [tool])
    admin = tmp_path / "admin"
    for path, (_, data) in files.items():
        if path.startswith("var/lib/dpkg/"):
            place = admin / path.removeprefix("var/lib/dpkg/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    query = ["dpkg-query", "--admindir", admin, "-W", "-f", "${Package} ${db:Status-Status}\\n"]
    shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert "tool installed\n" in shown
    query = ["dpkg-query", "--admindir", admin, "-L", "tool"]
    shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert "/usr/bin/tool\n" in shown


@pytest.mark.parametrize(
    ("files", "control", "why"),
    [
        ({"a": ""}, {"postinst": "#!/bin/sh\nupdate-alternatives --install\n"}, "runs a script"),
        ({"a": ""}, {"preinst": "#!/usr/bin/python3\n\nimport os\n"}, "runs a script"),
        ({"a": ""}, {"triggers": "interest-noawait /usr/share/icons\n"}, "has the trigger"),
        ({"etc/ld.so.conf.d/x.conf": "/x"}, {}, "changes where the loader looks"),
        ({"usr/bin/python3.11": ""}, {}, "which the base has"),
        ({"bin": ""}, {}, "which the base has"),
    ],
)
def test_what_would_have_to_run_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    control: dict[str, str],
    why: str,
) -> None:
    deb = make_deb(tmp_path, "tool", files, control)
    with pytest.raises(UndecidedError, match="tool") as error:
        unpacked(tmp_path, monkeypatch, [deb])
    assert why in error.value.message


def test_a_base_without_dpkg_has_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UndecidedError, match="has no dpkg"):
        unpacked(tmp_path, monkeypatch, [], base=SYSTEM)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("deb file:/etc x main", "no web address"),
        ("deb [trusted=yes] http://h/ x main", "without a signature"),
        ("Types: deb\nURIs: ssh://root@h/", "no web address"),
        ("Types: deb\nURIs: http://h/\nTrusted: yes", "without a signature"),
        ("deb [trusted=1] http://h/ x main", "without a signature"),
        ("deb [allow-weak=true] http://h/ x main", "without a signature"),
        ("deb cdrom:[x]/ x main", "no web address"),
        ("deb copy:/x x main", "no web address"),
        ("deb mirror+file:/x x main", "no web address"),
    ],
)
def test_sources_of_the_base_reach_nothing_of_this_machine(
    tmp_path: Path, line: str, why: str
) -> None:
    with pytest.raises(UndecidedError) as error:
        apt._checked_sources("etc/apt/sources.list", line.encode(), tmp_path)
    assert why in error.value.message


def test_keys_are_those_of_the_base(tmp_path: Path) -> None:
    text = "deb [signed-by=/usr/share/keyrings/x.gpg] http://h/debian s main\n"
    checked = apt._checked_sources("etc/apt/sources.list", text.encode(), tmp_path)
    assert f"signed-by={tmp_path}/usr/share/keyrings/x.gpg]" in checked


def test_settings_of_dpkg_count_in_its_order(tmp_path: Path) -> None:
    base = make_base(
        tmp_path / "base",
        [
            file("etc/dpkg/dpkg.cfg", "path-include=/a\n"),
            file("etc/dpkg/dpkg.cfg.d/docker", "path-exclude /a\n"),
            file("etc/dpkg/dpkg.cfg.d/docker.dpkg-old", "path-exclude=/b\n"),
        ],
    )
    store = notes_store(Cache(None))
    files = BaseFiles([read_layer(base.layout, layer, store) for layer in base.manifest.layers])
    assert list(debian._filters(files)) == [("/a", True), ("/a", False)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("diversions", "/usr/bin/tool\n/usr/bin/tool.real\nother\n"),
        ("statoverride", "root video 4755 /usr/bin/tool\n"),
    ],
)
def test_what_the_administrator_of_a_base_changed_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    deb = make_deb(tmp_path, "tool", {"usr/bin/tool": "x"})
    base = [*DPKG, file(f"var/lib/dpkg/{name}", text)]
    with pytest.raises(UndecidedError, match="dpkg-divert"):
        unpacked(tmp_path, monkeypatch, [deb], base=base)


@pytest.mark.parametrize("path", ["usr/share/x", "usr/share/x/below"])
def test_two_packages_with_one_path_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    debs = [
        make_deb(tmp_path, "tool", {"usr/share/x": "1"}),
        make_deb(tmp_path, "zool", {path: "2"}),
    ]
    with pytest.raises(UndecidedError, match=r"another package bring|of one package"):
        unpacked(tmp_path, monkeypatch, debs)


def test_a_package_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the base has: dpkg unpacks these files, and a layer takes them for whiteouts."""
    for number, path in enumerate(("usr/.wh.bin", "etc/.wh..wh..opq", "usr/.wh.lib/x")):
        deb = make_deb(tmp_path / str(number), "tool", {path: "1"})
        with pytest.raises(UndecidedError, match=r"tool holds .*\.wh\..* which no image can have"):
            unpacked(tmp_path / str(number), monkeypatch, [deb])


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([("a", tarfile.REGTYPE, ""), ("./a", tarfile.REGTYPE, "")], "brings /a twice"),
        ([("a", tarfile.SYMTYPE, "/etc"), ("a", tarfile.DIRTYPE, "")], "brings /a twice"),
        ([("a", tarfile.LNKTYPE, "etc/shadow")], "/a is a link to what no file before it is"),
        ([("a", tarfile.LNKTYPE, "../x")], "/a is a link to what no file before it is"),
        ([("a", tarfile.LNKTYPE, "a")], "/a is a link to what no file before it is"),
        ([("../a", tarfile.REGTYPE, "")], "'../a', which no image can have"),
        ([("a", tarfile.CHRTYPE, "")], "'a', which no image can have"),
    ],
)
def test_names_in_a_package_are_what_they_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: Sequence[tuple[str, bytes, str]],
    why: str,
) -> None:
    deb = make_deb(tmp_path, "tool", {"usr/share/tool": "1"})
    opened = DebianPackages._tar

    def data(packages: DebianPackages, folder: Path, command: Sequence[str], most: int) -> Slice:
        if "--fsys-tarfile" not in command:
            return opened(packages, folder, command, most)
        with tarfile.open(tmp_path / "data.tar", "w") as archive:
            for name, kind, target in entries:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                archive.addfile(info)
        return opened(packages, folder, ["cat", str(tmp_path / "data.tar")], most)

    monkeypatch.setattr(DebianPackages, "_tar", data)
    with pytest.raises(UndecidedError) as error:
        unpacked(tmp_path, monkeypatch, [deb])
    assert why in error.value.message


def test_a_machine_without_apt_says_so_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["libze1"]\n')
    (target,) = world.spec.targets
    assert refusals(world.spec, target, world.lock()) == []
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (problem,) = refusals(world.spec, target, world.lock())
    assert "libze1" in problem.message and "no apt-get" in problem.message and problem.line


def test_a_target_with_packages_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["tool"]\n')
    world.base = make_base(tmp_path / "debian", DPKG)
    asked: list[int] = []

    def fetched(*_: object) -> tuple[set[str], list[Path]]:
        asked.append(1)
        return {"tool"}, [make_deb(tmp_path, "tool", {"srv/tool/x": "x"})]

    monkeypatch.setattr(apt, "fetched", fetched)
    images = []
    for _ in range(2):
        with world.store() as store:
            image = contents.assemble(
                world.spec, world.spec.targets[0], world.lock(), world.base, store, Silent()
            )
            (layer,) = [layer for layer in image.layers if layer.kind == "system"]
            assert "srv/tool/x" in files_of(store.layout, layer.descriptor)
        images.append(image.descriptor)
    assert images[0] == images[1] and asked == [1]


def test_a_package_that_must_not_be_unpacked_fails_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["tool"]\n')
    world.base = make_base(tmp_path / "debian", DPKG)
    deb = make_deb(tmp_path, "tool", {"a": ""}, {"postinst": "#!/bin/sh\nldconfig\n"})
    monkeypatch.setattr(apt, "fetched", lambda *_: ({"tool"}, [deb]))
    with world.store() as store, pytest.raises(SpecError, match="the package tool runs a script"):
        contents.assemble(
            world.spec, world.spec.targets[0], world.lock(), world.base, store, Silent()
        )
