"""Reading locks: ours, other tools', and broken ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.model import Wheel
from buildmatrix.locks.pylock import Origin, document, inputs_digest, read_lock

HASH = "ab" * 32
PIP_STYLE = f"""\
lock-version = "1.0"
created-by = "pip"

[[packages]]
name = "torch"
version = "2.9.0+cu128"
index = "https://robot:s3cret@wheels.example.com/cu128/"

[[packages.wheels]]
name = "torch-2.9.0+cu128-cp312-cp312-linux_x86_64.whl"
url = "https://wheels.example.com/torch-2.9.0%2Bcu128-cp312-cp312-linux_x86_64.whl"
size = 1024
[packages.wheels.hashes]
sha256 = "{HASH}"

[[packages]]
name = "old"
version = "1.0"
[packages.sdist]
url = "https://wheels.example.com/old-1.0.tar.gz"
hashes = {{ sha256 = "{HASH}" }}

[[packages]]
name = "inferno"
[packages.directory]
path = "."
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "pylock.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(folder: Path, text: str | bytes) -> str:
    with pytest.raises(SpecError) as caught:
        read_lock(write(folder, text))
    return caught.value.message


def test_a_lock_of_another_tool_is_read(tmp_path: Path) -> None:
    lock = read_lock(write(tmp_path, PIP_STYLE))
    torch, old, inferno = lock.packages
    filename = "torch-2.9.0+cu128-cp312-cp312-linux_x86_64.whl"
    url = "https://wheels.example.com/torch-2.9.0%2Bcu128-cp312-cp312-linux_x86_64.whl"
    assert torch.wheels == (Wheel(filename, url, HASH, 1024),)
    assert torch.index == "https://wheels.example.com/cu128/"
    assert (old.source_only, torch.source_only) == (True, False)
    assert inferno.version == ""
    assert (lock.inputs, torch.via) == ("", ())
    assert lock.digest == "sha256:" + hashlib.sha256(PIP_STYLE.encode()).hexdigest()


def test_a_file_name_is_taken_from_the_url_where_it_is_not_given(tmp_path: Path) -> None:
    text = "\n".join(
        line for line in PIP_STYLE.splitlines() if not line.startswith('name = "torch-')
    )
    wheel = read_lock(write(tmp_path, text)).packages[0].wheels[0]
    assert wheel.filename == "torch-2.9.0+cu128-cp312-cp312-linux_x86_64.whl"


def test_what_buildmatrix_writes_comes_back(tmp_path: Path) -> None:
    inputs = {"python": "3.12", 'file a "b".in': "sha256:1"}
    origins = {
        "torch": Origin("https://robot:s3cret@wheels.example.com/x", ("base.in:3", "app")),
        "old": Origin(None, ()),
    }
    text = document(PIP_STYLE, "0.13.8", inputs, origins)
    assert "s3cret" not in text
    lock = read_lock(write(tmp_path, text))
    assert lock.inputs == inputs_digest(inputs)
    assert lock.packages[0].via == ("app", "base.in:3")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"1.0"\ncreated', '"2.0"\ncreated', "`lock-version` is '2.0', and only 1.x can be read"),
        ('name = "torch"', 'name = "Torch_X"', "packages[0]: `name` is 'Torch_X'"),
        ('"2.9.0+cu128"', '"latest"', "package `torch`: `version` is 'latest'"),
        (f'sha256 = "{HASH}"\n\n', f'sha512 = "{HASH}"\n\n', "has no sha256 hash"),
        (f'sha256 = "{HASH}"\n\n', 'sha256 = "ab"\n\n', "has no sha256 hash"),
        ('name = "torch-2.9.0+cu128-', 'name = "../../torch-', "is not a valid name of a wheel"),
        ('url = "https://wheels.example.com/torch', 'uri = "', "has neither `url` nor `path`"),
        ("[[packages]]", "[[package]]", "there is not an array `packages`"),
        ("lock-version", "lock-version = ", "this is not TOML"),
    ],
)
def test_a_broken_lock_names_the_file_and_the_package(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = PIP_STYLE.replace(old, new)
    assert text != PIP_STYLE
    message = problems(tmp_path, text)
    assert said in message
    assert message.startswith(str(tmp_path / "pylock.toml"))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = PIP_STYLE.replace('"1.0"\ncreated', '"9"\ncreated').replace(HASH, "zz")
    assert len(problems(tmp_path, text).splitlines()) == 2


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = " + b"[" * 100_000, b"packages = 3"])
def test_hostile_bytes_are_a_problem_and_no_crash(tmp_path: Path, data: bytes) -> None:
    assert problems(tmp_path, data)


def test_a_lock_that_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file or directory; run `buildmatrix lock`"):
        read_lock(tmp_path / "pylock.toml")
