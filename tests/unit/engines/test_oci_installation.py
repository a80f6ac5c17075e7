from __future__ import annotations

import csv
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import uv
from wheel_cases import ODD, ODD_FOLDERS, digest, make_wheel, sha256

from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci.installation import ENVIRONMENT, InstalledWheel
from buildmatrix.facts.trees import wheel
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.layers import sort_key

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Path → kind and mode, and the bytes of a file.
Contents = dict[str, tuple[str, bytes]]


def ours(wheel: Path, python: str = PYTHON) -> Contents:
    name, version, *_ = wheel.name.split("-")
    contents: Contents = {}
    with WheelTree(wheel, located=str) as tree:
        files = InstalledWheel(tree, name, version, python).files
        assert [file.entry.path for file in files] == sorted(
            (file.entry.path for file in files), key=sort_key
        )
        for file in files:
            entry = file.entry
            path = entry.path.removeprefix(f"{ENVIRONMENT}/")
            assert path != entry.path
            data = b"".join(file.content())
            assert len(data) == entry.size
            contents[path] = (f"{entry.kind} {entry.mode:o}", data)
            while path := path.rpartition("/")[0]:
                contents.setdefault(path, ("folder 755", b""))
    return contents


def theirs(tmp_path: Path, *wheels: Path) -> Contents:
    """What uv makes of wheels in a new environment, as the Dockerfile of our templates lets it."""
    environment = tmp_path / "venv"
    lock = tmp_path / "pylock.toml"
    packages = [
        f'[[packages]]\nname = "{wheel.name.split("-")[0]}"\nversion = "1.0"\n'
        f'wheels = [{{ path = "{wheel}", hashes = {{ sha256 = "{sha256(wheel)}" }} }}]\n'
        for wheel in wheels
    ]
    lock.write_text('lock-version = "1.0"\ncreated-by = "tests"\n' + "".join(packages))
    settings = {
        **os.environ,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "VIRTUAL_ENV": str(environment),
        "UV_NO_CONFIG": "1",
    }
    run = [uv.find_uv_bin(), "-q", "--offline"]
    subprocess.run(
        [*run, "venv", "--python", sys.executable, environment], env=settings, check=True
    )
    before = set(environment.rglob("*"))
    install = (
        "pip sync --preview-features pylock --require-hashes --link-mode copy --compile-bytecode"
    )
    outcome = subprocess.run(
        [*run, *install.split(), lock], env=settings, umask=0o022, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stderr
    contents: Contents = {}
    own = f".cpython-{PYTHON.replace('.', '')}.pyc"
    for path in environment.rglob("*"):
        if path in before or path.name == ".lock" or path.parent.name == "lib64":
            continue
        if path.name.endswith(own) and path.stat().st_size > 2:
            continue  # compiled by uv
        name = path.relative_to(environment).as_posix()
        mode = stat.S_IMODE(path.lstat().st_mode)
        kind = "folder" if path.is_dir() else "file"
        data = path.read_bytes() if kind == "file" else b""
        contents[name] = (f"{kind} {mode:o}", data.replace(str(environment).encode(), b"/opt/venv"))
    return contents


def comparable(contents: Contents) -> Contents:
    """Without what differs for a reason that is documented, or because of where a test installs.

    uv notes when a file that is of no index changed; hashes of scripts, whose first line names the
    environment; folders that every environment has, and those of bytecode.
    """
    structure = ("bin", "lib", f"lib/python{PYTHON}", f"lib/python{PYTHON}/site-packages")
    kept: Contents = {}
    for path, (kind, data) in contents.items():
        if path in structure or path.endswith(("/uv_cache.json", "/__pycache__")):
            continue
        if path.endswith(".dist-info/RECORD"):
            lines = [line for line in data.splitlines() if b"/uv_cache.json," not in line]
            data = b"\n".join(map(_without_sums_of_scripts, lines))
        kept[path] = (kind, data)
    return kept


def _without_sums_of_scripts(line: bytes) -> bytes:
    return line.partition(b",")[0] if line.startswith(b"../../../bin/") else line


def test_a_wheel_with_everything_is_installed_as_uv_installs_it(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "odd", ODD, folders=ODD_FOLDERS, record_mode=0o755)
    mine = ours(wheel)
    assert comparable(mine) == comparable(theirs(tmp_path, wheel))
    # The comparison itself: what makes this wheel odd is in it.
    assert mine["bin/tool"] == ("file 755", b"#!/opt/venv/bin/python\nprint(1)\n")
    assert mine[f"lib/python{PYTHON}/site-packages/odd/empty"] == ("folder 755", b"")
    assert mine["lib/odd.so"] == ("file 644", b"so")
    assert mine[f"include/site/python{PYTHON}/odd/odd.h"] == ("file 644", b"h")


def test_sums_of_what_is_made_here_are_those_of_its_bytes(tmp_path: Path) -> None:
    contents = ours(make_wheel(tmp_path, "odd", ODD))
    site = f"lib/python{PYTHON}/site-packages"
    rows = list(csv.reader(contents[f"{site}/odd-1.0.dist-info/RECORD"][1].decode().splitlines()))
    assert rows == sorted(rows)
    seen = set()
    for path, claim, size in rows:
        place = os.path.normpath(f"{site}/{path}").replace("lib64/", "lib/")
        if place.endswith(("/RECORD", "/INSTALLER")):
            continue
        seen.add(place)
        data = contents[place][1]
        assert (claim, size) == (f"sha256={digest(data)}", str(len(data))), path
    files = {path for path, (kind, _) in contents.items() if kind.startswith("file")}
    assert files - seen == {
        f"{site}/odd-1.0.dist-info/RECORD",
        f"{site}/odd-1.0.dist-info/INSTALLER",
    }


def test_a_record_that_lies_is_kept_as_uv_keeps_it(tmp_path: Path) -> None:
    lies = (
        "lies/__init__.py,sha256=AAAA,99\nlies/missing.py,sha256=BBBB,1\n"
        "lies-1.0.dist-info/RECORD,,\n\nlies-1.0.dist-info/WHEEL,,\n../../../../etc/passwd,,\n"
    )
    members = {"lies/__init__.py": b"a", "lies/extra.py": b"b"}
    wheel = make_wheel(tmp_path, "lies", members, record=lies)
    assert comparable(ours(wheel)) == comparable(theirs(tmp_path, wheel))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"../evil": b""}, "not a plain path below its root"),
        ({"/etc/evil": b""}, "an absolute name"),
        ({"a/./b": b""}, "not a plain path below its root"),
        ({"bad-1.0.data/scripts/../../evil": b""}, "not a plain path below its root"),
        ({"bad-1.0.data/data/pyvenv.cfg": b""}, "would replace pyvenv.cfg"),
        ({"bad-1.0.data/scripts/python": b""}, "would replace bin/python"),
        ({"bad-1.0.data/scripts/activate": b""}, "would replace bin/activate"),
        ({"bad-1.0.data/data/lib64": b""}, "would replace lib64"),
        ({"bad-1.0.data/scripts/a/b": b""}, "is in no scheme"),
        ({"bad-1.0.data/elsewhere/a": b""}, "is in no scheme"),
        ({"bad-1.0.data/file": b""}, "is in no scheme"),
        ({"a": b"", "a/b": b""}, "lies in a file"),
        ({"a" * 256: b""}, "longer than Linux takes"),
        ({"/".join(["abc"] * 1100): b""}, "longer than Linux takes"),
        ({"other-2.0.dist-info/METADATA": b""}, "has 2 folders"),
        (
            {"bad-1.0.dist-info/entry_points.txt": b"[console_scripts]\n../x = a:b\n"},
            "'../x' cannot be made of",
        ),
        (
            {"bad-1.0.dist-info/entry_points.txt": b"[console_scripts]\nx = a:b; import os\n"},
            "cannot be made of 'a:b; import os'",
        ),
        (
            {"bad-1.0.dist-info/entry_points.txt": b"[console_scripts]\npython3 = a:b\n"},
            "would replace bin/python3",
        ),
        ({"bad-1.0.dist-info/entry_points.txt": b"\xff"}, "entry points cannot be read"),
        *(
            ({name: b""}, "deletes files in an image")
            for name in (
                ".wh.other",
                ".wh..wh..opq",
                "bad/.wh.x",
                ".wh.bad/x",
                "bad-1.0.data/data/.wh.bin",
                "bad-1.0.data/scripts/.wh.python",
                "bad-1.0.data/headers/.wh..wh..opq",
            )
        ),
        (
            {"bad-1.0.dist-info/entry_points.txt": b"[console_scripts]\n.wh.python = a:b\n"},
            "'bin/.wh.python' would delete files",
        ),
        ({"bad-1.0.data/purelib/a.py": b"1", "a.py": b"2"}, "installed as one file"),
        ({"bad-1.0.data/data/lib64/a": b"1", "bad-1.0.data/data/lib/a": b"2"}, "as one file"),
    ],
)
def test_what_a_wheel_must_not_hold(tmp_path: Path, members: dict[str, bytes], why: str) -> None:
    with pytest.raises(UndecidedError) as error:
        ours(make_wheel(tmp_path, "bad", members))
    assert why in error.value.message


@pytest.mark.parametrize(
    "folder",
    [
        "../evil",
        "/evil",
        "a/../../b",
        "bad-1.0.data/scripts/x",
        ".wh.a",
        "bad-1.0.data/data/.wh.bin",
    ],
)
def test_folders_of_a_wheel_stay_inside(tmp_path: Path, folder: str) -> None:
    with pytest.raises(UndecidedError):
        ours(make_wheel(tmp_path, "bad", {"a": b""}, folders=[folder]))


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="as a file and as a folder"):
        ours(make_wheel(tmp_path, "bad", {"a": b""}, folders=["a"]))


def test_folders_below_a_link_of_the_environment_go_where_it_leads(tmp_path: Path) -> None:
    folders = ["bad-1.0.data/data/lib64", "bad-1.0.data/data/lib64/empty"]
    contents = ours(make_wheel(tmp_path, "bad", {"a": b""}, folders=folders))
    assert not [path for path in contents if "lib64" in path]
    assert [path for path in contents if path.endswith("lib/empty")]


def test_names_of_a_small_wheel_do_not_become_gigabytes_of_folders(tmp_path: Path) -> None:
    members = {f"{number}/" + "a/" * 1900 + "x": b"" for number in range(40)}
    with pytest.raises(UndecidedError, match="too many folders"):
        ours(make_wheel(tmp_path, "bad", members))


def test_a_wheel_of_another_distribution_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", {"a": b""})
    for name, version in (("other", "1.0"), ("bad", "1.1"), ("bad", "no version")):
        with WheelTree(wheel, located=str) as tree, pytest.raises(UndecidedError) as error:
            InstalledWheel(tree, name, version, PYTHON)
        assert "bad-1.0.dist-info" in error.value.message


def test_wheels_of_a_later_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError) as error:
        ours(make_wheel(tmp_path, "bad", {"a": b""}, wheel="Wheel-Version: 2.0\n"))
    assert "not version 1 of wheels" in error.value.message


def test_a_bomb_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "INFLATION_ALLOWANCE", 1 << 20)
    path = make_wheel(tmp_path, "bad", {"a": bytes(32 << 20)})
    with pytest.raises(Exception, match="ZIP bomb"):
        ours(path)
