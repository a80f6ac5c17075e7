"""What `inspect` tells of one binary or wheel, and that nothing of it is trusted."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path

import msgspec._core
import pytest
from click.testing import CliRunner

from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.cli import inspect as cli
from buildmatrix.cli.options import CommandSettings
from buildmatrix.commands.inspect import inspect
from buildmatrix.facts import symbols
from buildmatrix.facts.symbols import read_imports
from buildmatrix.reports import inspect as inspect_report
from buildmatrix.reports.inspect import Inspection, Inspections

#: A real extension module, with versioned and unversioned imports.
MODULE = Path(msgspec._core.__file__)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """The real module, made to need a vendor's runtime."""
    import lief

    binary = lief.ELF.parse(str(MODULE))
    assert binary is not None
    binary.add_library("libcudart.so.12")
    binary.add(lief.ELF.DynamicEntryRunPath("$ORIGIN/../libs"))
    path = tmp_path / "linked.so"
    binary.write(str(path))
    return path


@pytest.fixture
def wheel(tmp_path: Path, linked: Path) -> Path:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.write(linked, "acme/core.so")
        out.write(MODULE, "acme.libs/libcudart-9335f6a2.so.12.8.90")
        out.writestr("acme/kernel.ptx", ".version 8.0\n")
        out.writestr(
            "acme-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\nRequires-Dist: nvidia-nccl-cu12\n",
        )
        out.writestr("acme-1.0.dist-info/RECORD", "acme/core.so,,\n")
    return path


def shown(one: Inspection, width: int = 100) -> str:
    return inspect_report.render(Inspections((one,)), width=width, color=False)


def run(*arguments: str | Path) -> tuple[int, str]:
    settings = CommandSettings(Path("buildmatrix.toml"), False, False, False)
    result = CliRunner().invoke(
        cli.inspect_command, [str(part) for part in arguments], obj=settings, standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


# One binary


def test_the_symbols_of_a_library_stand_with_it() -> None:
    by_library = {one.library: one.symbols for one in read_imports(MODULE)[0]}
    assert "memcpy" in by_library["libc.so.6"]
    assert "memcpy" not in by_library[None]
    # Python's symbols have no version: ELF does not say which library they come from.
    assert "PyObject_GetAttr" in by_library[None]


def test_mangled_names_are_told_as_they_were_written(tmp_path: Path) -> None:
    old, new = b"\0PyObject_GetAttr\0", b"\0_ZN4abcd5rollsEi\0"
    data = MODULE.read_bytes()
    assert old in data
    path = tmp_path / "cxx.so"
    path.write_bytes(data.replace(old, new))
    assert any("abcd::rolls(int)" in one.symbols for one in read_imports(path)[0])


def test_a_binary_is_told_completely(linked: Path) -> None:
    text = shown(inspect(linked, load()))
    assert "ELF 64-bit little-endian x86_64 dyn" in text
    assert "RUNPATH: $ORIGIN/../libs" in text
    assert "libc.so.6" in text and "memcpy" in text
    assert "libc.so.6: GLIBC_" in text
    assert ".text  " in text
    assert "nvidia (cuda) runtime, needed: libcudart.so.12 [strong, confidence high]" in text


def test_a_binary_of_nobody_is_called_that() -> None:
    assert "nothing in it belongs to a vendor" in shown(inspect(MODULE, load()))


def test_a_library_is_found_through_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "link.so").symlink_to(MODULE)
    assert inspect(tmp_path / "link.so", load()).kind == "elf"


def test_a_file_of_device_code_is_told(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(".version 8.0\n.target sm_90\n")
    one = inspect(tmp_path / "k.ptx", load())
    assert (one.kind, [item.vendor for item in one.evidence]) == ("ptx", ["nvidia"])


def test_no_line_is_wider_than_the_terminal(linked: Path) -> None:
    lines = shown(inspect(linked, load()), width=60).splitlines()[1:]
    assert max(map(len, lines)) <= 60


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J.ptx"
    path.write_text(".version 8.0")
    assert "\x1b" not in shown(inspect(path, load()))


# What cannot be read


def broken(tmp_path: Path) -> Path:
    """An ELF header with nothing behind it that holds."""
    path = tmp_path / "broken.so"
    path.write_bytes(MODULE.read_bytes()[:64])
    return path


def stand_in(tmp_path: Path, body: str) -> str:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_a_broken_file_is_told_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    code, text = run(broken(tmp_path))
    assert code == 3
    assert "ELF 64-bit" in text and "not read" in text


def test_a_file_that_shrank_is_told_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "short.so"
    data = MODULE.read_bytes()
    path.write_bytes(data[: len(data) // 8])
    _, problems = read_imports(path)
    assert problems
    assert read_imports(tmp_path / "absent.so") == ((), ("no such file or directory",))
    assert read_imports(Path(__file__)) == ((), ("it is not an ELF file any more",))


@pytest.mark.parametrize(
    "body", ["kill -SEGV $$", "echo the reason >&2; exit 1", "echo '{\"names\": 3}'", "true"]
)
def test_names_stay_as_they_are_where_the_worker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(symbols.sys, "executable", stand_in(tmp_path, body))
    assert symbols.demangle_symbols(["_ZN4abcd5rollsEi", "plain"]) == ("_ZN4abcd5rollsEi", "plain")


# Wheels


def test_a_wheel_is_told_by_vendor_and_role_with_sizes(wheel: Path) -> None:
    one = inspect(wheel, load())
    shares = {(share.vendor, share.role): share for share in one.shares}
    assert shares["nvidia", "runtime"].size == MODULE.stat().st_size
    assert shares["nvidia", "runtime"].files == 1
    text = shown(one)
    assert "distribution: acme 1.0" in text
    assert "nvidia-nccl-cu12" in text
    assert "nvidia runtime (cuda): " in text
    assert "acme/core.so" in text and "libcudart.so.12" in text


def test_a_wheel_is_read_once_and_without_the_cache_again(wheel: Path, tmp_path: Path) -> None:
    first = run(wheel)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert run(wheel) == first == run("--no-cache", wheel)


def test_a_wheel_that_is_no_archive_is_undecided(tmp_path: Path) -> None:
    from buildmatrix.base.errors import UndecidedError

    (tmp_path / "x.whl").write_bytes(b"no zip")
    with pytest.raises(UndecidedError, match=r"x\.whl cannot be read"):
        inspect(tmp_path / "x.whl", load())


# The command


def test_json_has_everything_under_a_schema(linked: Path, wheel: Path) -> None:
    code, text = run("--format", "json", linked, wheel)
    document = json.loads(text)
    assert code == 0
    assert document["schema"] == "buildmatrix/inspect/1"
    binary, package = document["files"]
    assert "libcudart.so.12" in binary["binaries"][0]["elf"]["needed"]
    assert {"library", "symbols"} == set(binary["imports"][0])
    assert package["kind"] == "wheel" and package["shares"]


def test_a_name_that_is_no_text_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.ptx"))
    path.write_text(".version 8.0")
    code, text = run("--format", "json", path)
    assert code == 0
    assert json.loads(text)["files"][0]["path"].endswith("\\xff.ptx")


def test_the_same_file_gives_the_same_bytes(linked: Path) -> None:
    assert run("--format", "json", linked) == run("--format", "json", linked)


def test_the_output_goes_to_a_file(tmp_path: Path) -> None:
    assert run("-o", tmp_path / "out.txt", MODULE) == (0, "")
    assert "GLIBC" in (tmp_path / "out.txt").read_text()


def test_what_cannot_be_inspected_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    os.mkfifo(tmp_path / "pipe.so")
    for name, why in [
        ("missing.so", "there is no"),
        ("a.txt", "nothing to inspect"),
        (".", "buildmatrix scan"),
        ("pipe.so", "is not a file"),
    ]:
        with pytest.raises(UsageError, match=why):
            inspect(tmp_path / name, load())


def test_an_archive_is_told_by_what_it_holds(tmp_path: Path) -> None:
    """And not as if it were the first library in it."""
    path = tmp_path / "app.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(MODULE, "lib/core.so")
    one = inspect(path, load())
    assert (one.kind, one.imports) == ("archive", ())
    assert [binary.path.partition("!/")[2] for binary in one.binaries] == ["lib/core.so"]
    assert "lib/core.so" in inspect_report.render(Inspections((one,)), width=100, color=False)
