"""Requirements that say where their file is, in every form that pip and uv read."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_cases import spec_of, target

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.lines import parse_requirement
from buildmatrix.locks.pinned import is_pinned
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.target_requirements import read_target_requirements

URL = "https://example.com/whl/fast-1.0+cu128-py3-none-any.whl"
HASH = "ab" * 32


def read(folder: Path, text: str) -> RequirementSet:
    (folder / "requirements.in").write_text(text)
    return read_requirements(folder / "requirements.in", "requirements.in")


@pytest.mark.parametrize(
    "line",
    [
        f"fast @ {URL}; sys_platform == 'linux'",
        f"fast @ {URL} ;sys_platform == 'linux'",
        f"fast @ {URL} ; sys_platform == 'linux'",
        f"fast @ {URL};sys_platform=='linux'",
        f"fast@{URL}; sys_platform == 'linux'",
        f"Fast@ {URL} ; sys_platform == 'linux'  # why",
        f"fast @ {URL}; sys_platform == 'linux' --hash=sha256:{HASH}",
        f"fast @ {URL} \\\n    ; sys_platform == 'linux' \\\n    --hash=sha256:{HASH}",
        f"{URL}; sys_platform == 'linux'",
    ],
)
def test_a_marker_may_follow_an_address_at_once(tmp_path: Path, line: str) -> None:
    (said,) = read(tmp_path, line + "\n").lines
    assert (said.name, said.requirement.url) == ("fast", URL)
    assert str(said.requirement.marker) == 'sys_platform == "linux"'
    assert said.hashes == (frozenset({HASH}) if "--hash" in line else frozenset())


def test_a_semicolon_of_an_address_stays_in_it(tmp_path: Path) -> None:
    url = "https://example.com/a;b/fast-1.0-py3-none-any.whl"
    (said,) = read(tmp_path, f"fast @ {url} ; python_version > '3'\n").lines
    assert said.requirement.url == url


def test_the_hash_in_a_fragment_counts(tmp_path: Path) -> None:
    (said,) = read(tmp_path, f"fast @ {URL}#sha256={HASH}\n").lines
    assert said.hashes == {HASH}
    assert is_pinned(tmp_path / "requirements.in", "requirements.in")


@pytest.mark.parametrize(
    "line",
    [
        "fast[gpu] @ file:my%20dist/fast-1.0-py3-none-any.whl",
        "fast[gpu] @ ./my dist/fast-1.0-py3-none-any.whl ; python_version > '3'",
        "./my dist/fast-1.0-py3-none-any.whl[gpu]; python_version > '3'",
        "my dist/fast-1.0-py3-none-any.whl[gpu]",
        "fast[gpu] @ file://${BM_DIST}/fast-1.0-py3-none-any.whl",
    ],
)
def test_wheels_on_this_machine_are_found(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my dist"
    folder.mkdir()
    (folder / "fast-1.0-py3-none-any.whl").write_text("")
    monkeypatch.setenv("BM_DIST", str(folder))
    (said,) = read(tmp_path, line + "\n").lines
    assert said.requirement.url == (folder / "fast-1.0-py3-none-any.whl").as_uri()
    assert said.requirement.extras == {"gpu"}


@pytest.mark.parametrize(
    "line",
    [
        "-e ./svc[web]",
        "-e 'svc[web]' ",
        "--editable=./svc[web] ; python_version > '3'",
        "-e service[web] @ ./svc",
        "service[web] @ file:./svc",
        "service [web] @ ./svc ; python_version > '3'",
        "service[web] @ file://${BM_HERE}/svc; python_version > '3'",
        "./svc[web]",
        "svc/[web]",
    ],
)
def test_a_folder_is_read_for_what_it_requires_however_it_is_named(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BM_HERE", str(tmp_path))
    (tmp_path / "svc").mkdir()
    (tmp_path / "svc" / "pyproject.toml").write_text(
        '[project]\nname = "service"\nversion = "1"\ndependencies = ["torch"]\n'
        'optional-dependencies.web = ["starlette"]\n'
    )
    found = read(tmp_path, line + "\n")
    assert [one.name for one in found.unbuilt] == ["service"]
    assert {said.name for said in found.lines} == {"torch", "starlette"}
    marked = {str(said.requirement.marker or "") for said in found.lines}
    assert marked == ({'python_version > "3"'} if "python_version" in line else {""})


def test_secrets_in_addresses_of_servers_stay_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BM_TOKEN", "s3cret")
    monkeypatch.setenv("BM_FILE", "fast-1.0-py3-none-any.whl")
    text = (
        "--index-url https://${BM_TOKEN}@example.com/simple\n"
        "fast @ https://example.com/${BM_TOKEN}/${BM_FILE}\n"
        "git+https://${BM_TOKEN}@example.com/other.git\nnumpy=>${BM_TOKEN}\n"
    )
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    assert "`numpy=>${BM_TOKEN}` is not a valid requirement" in caught.value.message
    found = read(tmp_path, text.rpartition("numpy")[0])
    assert [said.name for said in found.lines] == ["fast"]
    assert [one.name for one in found.unbuilt] == ["other"]
    assert "s3cret" not in repr(found)


def test_a_version_may_be_a_variable_as_for_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BM_VERSION", "2.0")
    assert [str(one.requirement) for one in read(tmp_path, "a==${BM_VERSION}\n").lines] == [
        "a==2.0"
    ]


def test_a_variable_that_is_not_set_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BM_NOWHERE", raising=False)
    (said,) = read(tmp_path, "fast @ https://x/${BM_NOWHERE}/fast-1-py3-none-any.whl\n").lines
    assert said.requirement.url == "https://x/${BM_NOWHERE}/fast-1-py3-none-any.whl"


def test_a_lock_reads_the_same_lines(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text(f"fast @ {URL}; sys_platform == 'linux'\n")
    (said,) = read_target_requirements(spec_of(tmp_path, target()).root, target()).lines
    assert (said.requirement.url, str(said.requirement.marker)) == (URL, 'sys_platform == "linux"')


def test_a_project_may_have_them_too() -> None:
    assert parse_requirement(f"fast[b,a] @ {URL};python_version > '3'").extras == {"a", "b"}
