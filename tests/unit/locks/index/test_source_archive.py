"""Source distributions are read in bounds, and say what they require without a build."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping

import pytest

from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.locks.index import source_archive
from buildmatrix.locks.index.source_archive import (
    hold,
    metadata_bytes,
    source_files,
    static_requirements,
)

_FILES = {
    "PKG-INFO": b"Metadata-Version: 2.2\nName: acme\nVersion: 1.0\n",
    "pyproject.toml": b"[project]\nname = 'acme'\nversion = '1.0'\n",
    "src/acme/__init__.py": b"import torch\n" * 10_000,
}


def tar(files: Mapping[str, bytes], mode: str = "w:gz", format: int = tarfile.PAX_FORMAT) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode=mode, format=format) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return output.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return output.getvalue()


def chunks(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1000] for at in range(0, len(data), 1000))


def content(data: bytes, **options: object) -> dict[str, bytes]:
    with hold(chunks(data), **options) as (archive, _):  # type: ignore[arg-type]
        return {file.path: file.data for file in source_files(archive, lambda _, size: size)}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_tar_archive_gives_its_files_below_its_folder(mode: str, format: int) -> None:
    data = tar({f"acme-1.0/{path}": text for path, text in _FILES.items()}, mode, format)
    assert content(data, sha256=hashlib.sha256(data).hexdigest()) == _FILES


def test_a_zip_archive_is_one_as_well() -> None:
    assert content(zipped({f"acme-1.0/{path}": text for path, text in _FILES.items()})) == {
        path: _FILES[path] for path in sorted(_FILES)
    }


def test_only_what_is_asked_for_is_held() -> None:
    data = tar({f"./acme-1.0/{path}": text for path, text in _FILES.items()})
    with hold(chunks(data)) as (archive, _):
        files = list(source_files(archive, lambda path, _: 6 if path.endswith(".py") else 0))
        again = [file.path for file in source_files(archive, metadata_bytes) if file.data]
    assert [(file.path, file.size, file.data) for file in files] == [
        ("PKG-INFO", 46, b""),
        ("pyproject.toml", 40, b""),
        ("src/acme/__init__.py", 130_000, b"import"),
    ]
    assert again == ["PKG-INFO", "pyproject.toml"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither a ZIP archive nor a tar archive"),
        (b"import setuptools\n" * 99, "neither a ZIP archive nor a tar archive"),
        (gzip.compress(b"import setuptools\n" * 99), "is outside of its single folder"),
        (tar({"acme-1.0/a": b"", "other/b": b""}), "'other/b' is outside of its single folder"),
        (tar({"acme-1.0/../../b": b""}), "is outside of its single folder"),
        (zipped({"acme-1.0/a": b"", "b": b""}), "'b' is outside of its single folder"),
        (tar({"acme-1.0/a": bytes(range(256)) * 99})[:200], "damaged"),
        (tar({"acme-1.0/a": b"x" * 2000}, "w")[:1600], "truncated"),
        (tar({"acme-1.0/zeros": bytes(8 << 20)}), "inflates to more than"),
        (tar({f"acme-1.0/{number}": b"" for number in range(60)}), "more than 50 files"),
        (tar({"acme-1.0/a": b"x" * 9999}, "w"), "it has more than 0 MiB, which is not read"),
    ],
    # The bytes of a gzip file hold the time, and each worker would name its tests after that.
    ids=lambda value: value if isinstance(value, str) else "data",
)
def test_an_archive_that_lies_or_is_too_large_is_not_read(
    monkeypatch: pytest.MonkeyPatch, data: bytes, why: str
) -> None:
    monkeypatch.setattr(source_archive, "MOST_INFLATED", 4 << 20)
    monkeypatch.setattr(source_archive, "MOST_FILES", 50)
    with pytest.raises(Unreadable, match=why):
        content(data, most=9999)


def test_an_archive_with_another_hash_is_not_read() -> None:
    with pytest.raises(Unreadable, match=r"has the SHA-256 .*, and the lock says 00"):
        content(tar({"acme-1.0/a": b""}), sha256="00" * 32)


_PROJECT = "[project]\nname = 'Acme'\nversion = '1.0'\n"
_PKG_INFO = "Metadata-Version: 2.2\nName: Acme\nVersion: 1.0\nRequires-Dist: numpy>=2\n"


@pytest.mark.parametrize(
    ("project", "pkg_info", "lines"),
    [
        # `[project]` decides, whatever PKG-INFO says.
        (_PROJECT, "", []),
        (f"{_PROJECT}dependencies = ['torch']", _PKG_INFO, ["torch"]),
        (f"{_PROJECT}dynamic = ['readme']\ndependencies = ['torch']", "", ["torch"]),
        # The name of the file says its version.
        (
            "[project]\nname = 'acme'\ndynamic = ['version']\ndependencies = ['torch']",
            "",
            ["torch"],
        ),
        (
            f"{_PROJECT}dependencies = []\n[project.optional-dependencies]\n"
            "GPU_all = ['a; python_version > \"3\" or os_name == \"x\"', 'b @ https://x.example/b']",
            "",
            [
                'a; (python_version > "3" or os_name == "x") and extra == "gpu-all"',
                'b @ https://x.example/b ; extra == "gpu-all"',
            ],
        ),
        # Else PKG-INFO.
        ("", _PKG_INFO, ["numpy>=2"]),
        ("[build-system]\nrequires = []", _PKG_INFO, ["numpy>=2"]),
        (f"{_PROJECT}dynamic = ['dependencies']", _PKG_INFO, ["numpy>=2"]),
        (f"{_PROJECT}dynamic = ['optional-dependencies']", _PKG_INFO, ["numpy>=2"]),
        (f"{_PROJECT}[tool.poetry.dependencies]\ntorch = '2'", _PKG_INFO, ["numpy>=2"]),
        (f"{_PROJECT}dependencies = ['not a requirement']", _PKG_INFO, ["numpy>=2"]),
        (f"{_PROJECT}[project.optional-dependencies]\n\"x'y\" = ['a']", _PKG_INFO, ["numpy>=2"]),
        ("not TOML", _PKG_INFO, ["numpy>=2"]),
        ("[project]\nname = 'other'\nversion = '1.0'", _PKG_INFO, ["numpy>=2"]),
        ("[project]\nname = 'acme'\nversion = '1.1'", _PKG_INFO, ["numpy>=2"]),
        ("", _PKG_INFO.replace("2.2", "2.4"), ["numpy>=2"]),
        ("", _PKG_INFO.replace("1.0", "1.0+local"), ["numpy>=2"]),
        ("", f"{_PKG_INFO}Dynamic: License-File\nDynamic: Version\n", ["numpy>=2"]),
        # Else a build.
        ("", "", None),
        ("", _PKG_INFO.replace("2.2", "2.1"), None),
        ("", _PKG_INFO.replace("2.2", "3.0"), None),
        ("", _PKG_INFO.replace("2.2", ""), None),
        ("", _PKG_INFO.replace("Acme", "other"), None),
        ("", _PKG_INFO.replace("1.0", "1.1"), None),
        ("", _PKG_INFO.replace("numpy", "num py"), None),
        ("", f"{_PKG_INFO}Dynamic: Requires-Dist\n", None),
        ("", f"{_PKG_INFO}Dynamic: requires-dist\n", None),
        ("", f"{_PKG_INFO}Dynamic: Provides-Extra\n", None),
        ("", f"{_PKG_INFO}Dynamic: Requires-Python\n", None),
        ("", _PKG_INFO.replace("\nRequires", "\n\nRequires"), []),
    ],
)
def test_static_requirements_are_those_that_uv_takes(
    project: str, pkg_info: str, lines: list[str] | None
) -> None:
    files = {"pyproject.toml": project.encode(), "PKG-INFO": pkg_info.encode()}
    files = {name: data for name, data in files.items() if data}
    requirements = static_requirements(files, "acme", "1.0")
    assert (None if requirements is None else list(requirements)) == lines
