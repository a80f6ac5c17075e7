"""`doctor --process`: what a real process has mapped, and what generated ones show."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import write

from buildmatrix.catalogue.load import load
from buildmatrix.commands import doctor
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.reports.doctor import ProcessLibraries

LOADER = (
    "import ctypes, sys; [ctypes.CDLL(p) for p in sys.argv[1:]]; print('up', flush=True); input()"
)


@contextmanager
def loaded(*libraries: Path) -> Iterator[int]:
    """A process that has these libraries mapped, until the test is through with it."""
    with subprocess.Popen(
        [sys.executable, "-c", LOADER, *libraries],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "up\n"
            yield running.pid
        finally:
            running.kill()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "x.c").write_text("int x(void) { return 1; }\n")
    library = folder / "libcudart.so.12"
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcudart.so.12"]
    subprocess.run([*command, "-o", library, folder / "x.c"], check=True)
    return library


def said(seen: ProcessLibraries) -> list[str]:
    return [f"{line.state} {line.subject}: {line.text}" for line in doctor.format_process(seen)]


def test_two_copies_of_one_library_in_a_live_process_are_named(tmp_path, built):
    packages = tmp_path / "lib/python3.12/site-packages"
    record = packages / "nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("a.py,,\nnvidia/cuda_runtime/lib/libcudart.so.12,,\n")
    wheel = packages / "nvidia/cuda_runtime/lib/libcudart.so.12"
    other = tmp_path / "cuda/lib64/libcudart.so.12.4.127"
    for copy in (wheel, other):
        copy.parent.mkdir(parents=True)
        shutil.copy(built, copy)
    with loaded(wheel, other) as pid:
        seen = doctor.examine_process(pid, load())
    assert seen.unread == ""
    by_path = {item.path: item for item in seen.libraries}
    assert set(by_path) == {str(wheel), str(other)}
    assert by_path[str(wheel)].distribution == "nvidia_cuda_runtime_cu12 12.8.90"
    assert by_path[str(other)].version == "12.4.127"
    assert {(item.vendor, item.role, item.deleted) for item in seen.libraries} == {
        ("nvidia", "runtime", False)
    }
    (line,) = [line for line in doctor.format_process(seen) if line.subject == "library libcudart"]
    assert line.state == "partly"
    assert line.text.startswith("2 copies: ")
    assert str(wheel) in line.text and str(other) in line.text


def test_a_library_that_was_replaced_since_a_live_process_mapped_it(tmp_path, built):
    library = tmp_path / "libcudart.so.12"
    shutil.copy(built, library)
    with loaded(library) as pid:
        library.unlink()
        seen = doctor.examine_process(pid, load())
    assert [(item.path, item.deleted) for item in seen.libraries] == [(str(library), True)]
    assert "start the process again" in said(seen)[-1]


def test_a_process_without_such_libraries_and_one_that_is_not_there():
    with loaded() as pid:
        (line,) = said(doctor.examine_process(pid, load()))
    assert line.startswith(f"none process {pid}: no library of an accelerator is mapped (")
    assert said(doctor.examine_process(2**30, load())) == [
        f"unknown process {2**30}: there is no such process"
    ]


# Generated processes

MAPS = (
    "7f00-7f01 r-xp 00000000 00:2a 11 /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10\n"
    "7f01-7f02 r--p 00000000 00:2a 11 /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10\n"
    "7f02-7f03 r-xp 00000000 00:2b 12 /opt/a\\040b/libcublas.so.12\n"
    "7f03-7f04 rw-s 00000000 00:06 13 /dev/nvidia0\n"
    "7f04-7f05 rw-p 00000000 00:00 0 \n"
    "7f05-7f06 rw-p 00000000 00:00 0 [heap]\n"
)
MOUNTS = (
    "1 0 0:2b / / rw - overlay overlay rw,lowerdir=/x\n"
    "2 1 8:1 /usr/lib/libcuda.so.570.86.10 "
    "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10 ro - ext4 /dev/sda1 ro\n"
)


def generated(
    tmp_path: Path, maps: str, *, mounts: str = MOUNTS, other: bool = True
) -> MachineFiles:
    return write(
        tmp_path,
        {
            "/proc/7/comm": "python\n",
            "/proc/7/maps": maps,
            "/proc/7/mountinfo": mounts,
            "/proc/7/ns/mnt": f"->mnt:[{2 if other else 1}]",
            "/proc/self/ns/mnt": "->mnt:[1]",
        },
    )


def origins(seen: ProcessLibraries) -> dict[str, str]:
    return {item.path.rpartition("/")[2]: item.origin for item in seen.libraries}


@pytest.mark.parametrize("other", [True, False])
def test_what_a_container_runtime_brought_is_told_from_the_image(tmp_path, other):
    seen = doctor.examine_process(7, load(), generated(tmp_path, MAPS, other=other))
    assert origins(seen) == {"libcuda.so.570.86.10": "mounted", "libcublas.so.12": "image"}
    assert seen.devices == ("/dev/nvidia0",)
    assert [item.path for item in seen.libraries][1] == "/opt/a b/libcublas.so.12"
    assert said(seen)[0] == "ok process 7: 2 libraries of nvidia (python); devices /dev/nvidia0"


def test_a_process_that_sees_our_files_has_those_of_this_machine(tmp_path):
    mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    machine = generated(tmp_path, MAPS, mounts=mounts, other=False)
    assert set(origins(doctor.examine_process(7, load(), machine)).values()) == {"machine"}


@pytest.mark.parametrize(
    "maps", ["x", "\0\n\n\n", "a b c d e\n", "a b c d e /" + "x" * 9000, "a b c d e /\\999\xff\n"]
)
def test_mappings_that_make_no_sense_are_no_libraries(tmp_path, maps):
    assert doctor.examine_process(7, load(), generated(tmp_path, maps)).libraries == ()


def test_more_mappings_than_are_read_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "LARGEST", 300)
    seen = doctor.examine_process(7, load(), generated(tmp_path, MAPS))
    assert seen.unread == "more than 300 bytes of mappings"
    assert said(seen)[0].startswith("unknown")


def test_a_part_of_the_kernel_has_no_mappings(tmp_path):
    (line,) = said(doctor.examine_process(7, load(), generated(tmp_path, "")))
    assert line.startswith("unknown process 7: it has no memory of its own")


def test_a_process_that_may_not_be_read_is_one_sentence(tmp_path, monkeypatch):
    machine = generated(tmp_path, MAPS)
    real = doctor.os.open

    def closed(path, *arguments, **named):
        if str(path).endswith("/7/maps"):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)

    monkeypatch.setattr(doctor.os, "open", closed)
    assert said(doctor.examine_process(7, load(), machine)) == [
        "unknown process 7: its mappings may not be read: run as its user, or as root with "
        "CAP_SYS_PTRACE"
    ]
