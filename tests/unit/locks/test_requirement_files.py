"""What a requirements file asks for, when it is read to be judged and not to be built."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_cases import target

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.pinned import is_pinned
from buildmatrix.locks.pinned import read as read_pinned
from buildmatrix.locks.requirement_files import add_file, check, read_requirements
from buildmatrix.locks.requirement_lines import RequirementSet, applies
from buildmatrix.locks.selection import LockSelection, marker_environment


def write(folder: Path, text: str, name: str = "requirements.in") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(folder: Path, text: str) -> RequirementSet:
    return read_requirements(write(folder, text), "requirements.in")


def lines(wanted: RequirementSet) -> dict[str, str]:
    return {str(line): str(line.requirement) for line in wanted.lines}


def test_includes_and_constraints_keep_their_own_lines(tmp_path: Path) -> None:
    write(tmp_path, "\nnumpy>=2\n-r more.in\n", "images/base.in")
    write(tmp_path, "scipy\n-r base.in\n", "images/more.in")
    write(tmp_path, "numpy<3\n", "limits.txt")
    wanted = read(tmp_path, "-r images/base.in\n-climits.txt\ntorch \\\n  >=2\n")
    assert lines(wanted) == {
        "images/base.in:2": "numpy>=2",
        "images/more.in:1": "scipy",
        "requirements.in:3": "torch>=2",
    }
    assert [str(line.requirement) for line in wanted.constraints] == ["numpy<3"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-e ./services/fast", "fast"),
        ("--editable git+https://example.com/acme/fast.git@main#egg=fast_lib", "fast-lib"),
        ("git+ssh://git@example.com/acme/fast.git", "fast"),
        ("fast @ https://example.com/x/fast-1.0.tar.gz", "fast"),
        ("https://example.com/fast.zip", "fast"),
        ("./vendor/fast-1.0.tar.gz", "fast-1-0"),
        ("-e .", "local-project"),
    ],
)
def test_what_is_to_be_built_is_named_and_no_mistake(tmp_path: Path, line: str, name: str) -> None:
    wanted = read(tmp_path, f"numpy\n{line}\n")
    assert [(one.name, one.place) for one in wanted.unbuilt] == [(name, "requirements.in:2")]
    assert lines(wanted) == {"requirements.in:1": "numpy"}


def test_a_folder_that_says_what_it_requires_is_read_without_building_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[project]\nname = "Service"\nversion = "1"\ndependencies = ["torch"]\n'
        '[project.optional-dependencies]\nweb = ["starlette"]\ndev = ["pytest"]\n',
        "svc/pyproject.toml",
    )
    wanted = read(tmp_path, "-e ./svc[web]\n")
    assert lines(wanted) == {"svc/pyproject.toml:4": "torch", "svc/pyproject.toml:6": "starlette"}
    assert [one.name for one in wanted.unbuilt] == ["service"]


def test_a_local_wheel_is_asked_for_by_its_place(tmp_path: Path) -> None:
    wheel = tmp_path / "dist" / "fast-1.0-py3-none-any.whl"
    write(tmp_path, "", "dist/fast-1.0-py3-none-any.whl")
    wanted = read(tmp_path, "./dist/fast-1.0-py3-none-any.whl[gpu] ; python_version > '3'\n")
    (line,) = wanted.lines
    assert (line.name, line.requirement.url) == ("fast", wheel.as_uri())
    assert line.requirement.extras == {"gpu"}


def test_options_that_decide_the_resolution_are_kept_and_others_passed_over(
    tmp_path: Path,
) -> None:
    wanted = read(
        tmp_path,
        "-i https://example.com/simple\n--extra-index-url=https://example.com/cu128\n"
        "--find-links wheels\n--trusted-host example.com\n--no-binary :all:,Fast_Lib\n--pre\n",
    )
    assert wanted.options == [
        "--index-url https://example.com/simple",
        "--extra-index-url https://example.com/cu128",
        f"--find-links {tmp_path / 'wheels'}",
    ]
    assert (wanted.no_binary, wanted.prerelease) == ({":all:", "fast-lib"}, True)


def test_every_mistake_has_its_file_line_and_column(tmp_path: Path) -> None:
    write(tmp_path, "scipy ==\n", "more.in")
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "numpy >>2\n-r more.in\n-r gone.in\n--nonsense\n./gone-1-py3-none-any.whl\n")
    said = caught.value.message.splitlines()
    assert said[0].startswith(
        "requirements.in:1:7: `numpy >>2` is not a valid requirement: Expected"
    )
    assert said[1].startswith("more.in:1:")
    assert said[2].startswith("requirements.in:3: gone.in: cannot be read: no such file")
    assert said[3].startswith("requirements.in:4: `--nonsense` is not an option")
    assert said[4].startswith("requirements.in:5: there is no ./gone-1-py3-none-any.whl")


@pytest.mark.parametrize("text", ["fast-1.0-py3-none-any.whl", "fast-1.0-py3-none-any.whl[gpu]"])
def test_a_name_of_an_archive_is_a_file_here_as_for_pip(tmp_path: Path, text: str) -> None:
    wheel = tmp_path / "fast-1.0-py3-none-any.whl"
    with pytest.raises(SpecError, match=r"there is no fast-1.0-py3-none-any.whl"):
        read(tmp_path, f"{text} ; python_version > '3'\n")
    wheel.touch()
    (line,) = read(tmp_path, f"{text} ; python_version > '3'\n").lines
    assert (line.name, line.requirement.url) == ("fast", wheel.as_uri())
    (one,) = read(tmp_path, "fast-1.0.tar.gz\n").unbuilt
    assert one.source == "fast-1.0.tar.gz"


@pytest.mark.parametrize("line", ["six;", "six[x] ;", "six>=1 ; "])
def test_an_empty_marker_is_none_as_for_pip(tmp_path: Path, line: str) -> None:
    (one,) = read(tmp_path, line).lines
    assert (one.name, one.requirement.marker) == ("six", None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-16-le"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    mark = "" if encoding in ("utf-8-sig", "utf-16", "utf-32") else "\ufeff"
    path = tmp_path / "requirements.txt"
    text = f"{mark}# ä\nsix==1.0 --hash=sha256:{'ab' * 32}\n"
    path.write_bytes(text.encode(encoding))
    assert lines(read_requirements(path, "r.txt")) == {"r.txt:2": "six==1.0"}
    assert is_pinned(path, "r.txt")


@pytest.mark.parametrize("data", [b"\xff\xfe6", b"\xff\xfe\x00\xd8", b"\xff\xfe\0\0six\0"])
def test_a_mark_before_other_bytes_is_a_problem(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r.txt").write_bytes(data)
    with pytest.raises(SpecError, match=r"r.txt:1: this is not UTF"):
        read_requirements(tmp_path / "r.txt", "r.txt")


@pytest.mark.parametrize("hash", [f"sha512:{'0a' * 64}", f"sha384:{'0A' * 48}"])
def test_hashes_that_no_index_lists_allow_what_an_installer_checks(
    tmp_path: Path, hash: str
) -> None:
    path = write(tmp_path, f"six==1.0 --hash={hash}\n", "requirements.txt")
    (line,) = read_requirements(path, "requirements.txt").lines
    assert (line.hashes, line.is_hashed) == (frozenset(), True)
    assert is_pinned(path, "requirements.txt")
    pins, _ = read_pinned(LockSelection(path, "requirements.txt", target()))
    assert not pins.lock.is_completed
    with pytest.raises(SpecError, match=r"none of them is a SHA-256"):
        add_file(image := RequirementSet(for_image=True), path, "requirements.txt")
        check(image)


@pytest.mark.parametrize("hash", ["sha512:0a", "foo", "md5:12", "sha256:abc"])
def test_hashes_that_nobody_can_check_are_not_passed_over(tmp_path: Path, hash: str) -> None:
    with pytest.raises(SpecError, match=r"requirements.in:1: the hashes of this line cannot be"):
        read(tmp_path, f"numpy==2.0 --hash={hash}\n")


def test_columns_count_what_stands_before_a_requirement(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "numpy\n  six >>1\n")
    assert caught.value.message.startswith("requirements.in:2:7: ")


def test_credentials_of_an_address_never_show(tmp_path: Path) -> None:
    wanted = read(tmp_path, "git+https://robot:s3cret@example.com/fast.git\n")
    assert "s3cret" not in repr(wanted.unbuilt)
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "-r https://robot:s3cret@example.com/r.txt\n")
    assert "s3cret" not in caught.value.message


def test_what_is_to_be_built_on_other_platforms_alone_is_not_built_here(tmp_path: Path) -> None:
    wanted = read(tmp_path, "fast @ git+https://example.com/fast ; sys_platform == 'win32'\n")
    (one,) = wanted.unbuilt
    assert not applies(one, marker_environment(target()))
    with pytest.raises(SpecError, match=r"requirements.in:1: `nonsense` is not a valid marker"):
        read(tmp_path, "https://example.com/fast.zip ; nonsense\n")
