"""The same answers as readelf, pyelftools and LIEF, on the libraries of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.trees.archive import OpenFile

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/bin", "/usr/lib64")


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def system_files() -> list[Path]:
    found = {
        path.resolve()
        for folder in FOLDERS
        if Path(folder).is_dir()
        for path in sorted(Path(folder).iterdir())
        if path.is_file() and path.stat().st_size < 8 << 20
    }
    files = [Path(sys.executable).resolve(), *(path for path in sorted(found) if is_elf(path))]
    return files[:: max(1, len(files) // 80)]


def read(path: Path) -> Elf:
    fd = os.open(path, os.O_RDONLY)
    try:
        source = OpenFile(fd)
        elf = read_elf(source, source.size)
    finally:
        os.close(fd)
    assert elf is not None
    return elf


def test_pyelftools_reads_the_same(subtests: pytest.Subtests) -> None:
    for path in system_files():
        with subtests.test(path=path):
            compare_with_pyelftools(path)


def compare_with_pyelftools(path: Path) -> None:
    elf = read(path)
    assert elf.unread == ()
    with path.open("rb") as stream:
        other = ELFFile(stream)
        assert (elf.bits, elf.little_endian) == (other.elfclass, other.little_endian)
        sections = [
            (section.name, section["sh_offset"], section["sh_size"])
            for section in other.iter_sections()
            if section.name
        ]
        assert [(s.name, s.offset, s.size) for s in elf.sections] == sections
        tags = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath"}
        seen: dict[str, list[str]] = {tag: [] for tag in (*tags, "DT_RUNPATH")}
        build_id = None
        for section in other.iter_sections():
            if isinstance(section, DynamicSection):
                for tag in section.iter_tags():
                    if tag.entry.d_tag in seen:
                        seen[tag.entry.d_tag].append(
                            getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower())
                        )
            if isinstance(section, NoteSection) and section.name == ".note.gnu.build-id":
                build_id = next(note["n_desc"] for note in section.iter_notes())
        assert list(elf.needed) == seen["DT_NEEDED"]
        assert [elf.soname] * len(seen["DT_SONAME"]) == seen["DT_SONAME"]
        assert ":".join(elf.rpath) == "".join(seen["DT_RPATH"])
        assert ":".join(elf.runpath) == "".join(seen["DT_RUNPATH"])
        assert elf.build_id == build_id


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is missing")
def test_readelf_prints_the_same(subtests: pytest.Subtests) -> None:
    for path in system_files():
        with subtests.test(path=path):
            compare_with_readelf(path)


def compare_with_readelf(path: Path) -> None:
    elf = read(path)
    text = subprocess.run(
        ["readelf", "-dlW", str(path)], capture_output=True, text=True, check=True,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
    ).stdout  # fmt: skip
    assert list(elf.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert [elf.soname] if elf.soname else re.findall(r"\(SONAME\).*\[(.*)\]", text) == []
    assert ([":".join(elf.runpath)] if elf.runpath else []) == [
        value for value in re.findall(r"\(RUNPATH\).*\[(.*)\]", text) if value
    ]
    interpreter = re.search(r"Requesting program interpreter: (.*)\]", text)
    assert elf.interpreter == (interpreter[1] if interpreter else None)
    assert bool(elf.flags_1) == ("(FLAGS_1)" in text)


def test_lief_reads_the_same(subtests: pytest.Subtests) -> None:
    import lief

    for path in system_files()[::8]:
        with subtests.test(path=path):
            elf = read(path)
            other = lief.ELF.parse(str(path))
            assert other is not None
            assert list(elf.needed) == list(other.libraries)
            assert [s.name for s in elf.sections] == [s.name for s in other.sections if s.name]
            assert (elf.interpreter or "") == (other.interpreter if other.has_interpreter else "")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
@pytest.mark.parametrize("stripped", [False, True], ids=["sections", "no sections"])
def test_a_library_from_the_compiler_says_what_the_compiler_was_told(
    tmp_path: Path, stripped: bool
) -> None:
    source = tmp_path / "plugin.c"
    source.write_text(
        "#include <dlfcn.h>\n"
        'const char *where(void) { return "/opt/vendor/lib/libcudart.so.12"; }\n'
        'void *get(void) { return dlopen("libnvidia-management-library.so.1", 1); }\n'
    )
    library = tmp_path / "libplugin.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O0", "-o", library, source, "-Wl,--no-as-needed", "-lm",
         "-Wl,-soname,libplugin.so.3", "-Wl,-rpath,$ORIGIN/../lib:/opt/x",
         "-Wl,--enable-new-dtags", "-Wl,-z,nodefaultlib", "-Wl,--build-id=sha1"],
        check=True,
    )  # fmt: skip
    if stripped:
        data = bytearray(library.read_bytes())
        data[40:48] = bytes(8)
        data[60:64] = bytes(4)
        library.write_bytes(data)
    elf = read(library)
    assert elf.soname == "libplugin.so.3"
    assert elf.runpath == ("$ORIGIN/../lib", "/opt/x")
    assert "libm.so.6" in elf.needed
    assert elf.flags_1 & 0x800
    assert elf.build_id is not None
    assert len(elf.build_id) == 40
    assert {"libcudart.so.12", "libnvidia-management-library.so.1"} <= {
        literal.text for literal in elf.literals if literal.exact
    }
    assert "libm.so.6" not in {literal.text for literal in elf.literals}
    assert bool(elf.sections) is not stripped
    assert elf.unread == ()
