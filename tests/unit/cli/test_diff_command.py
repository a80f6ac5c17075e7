"""`buildmatrix diff` from its arguments to its exit code, without engine and network."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import msgspec._core
import pytest
from built_targets import leave_built

from buildmatrix import cli
from buildmatrix.commands import diff_sources as diff_sides
from buildmatrix.facts.inventory.model import Distribution, Inventory, Stats
from buildmatrix.reports.formats import document_schema
from buildmatrix.sources.state_folder import FOLDER, State

#: A real extension module.
MODULE = Path(msgspec._core.__file__)

SPEC = """
schema = 1
[project]
name = "demo"
version = "1"
image = "registry.example.com/demo"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["base.in"]
[backend.cuda]
runtime = "12.8"
base = "nvidia/cuda:12.8.1-base-ubuntu22.04"
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""
LOCK = """
lock-version = "1.0"
created-by = "buildmatrix"
requires-python = "==3.11.*"

[[packages]]
name = "demo"
version = "{version}"
wheels = [{{ name = "{name}", path = "{path}", hashes = {{ sha256 = "{sha256}" }} }}]

[tool.buildmatrix.packages.demo]
via = ["base.in:1"]
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["diff", *(str(one) for one in arguments)])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    code, out, err = run(capsys, *arguments, "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    jsonschema.validate(found, document_schema("diff"))
    return found


def wheel(folder: Path, version: str, *needed: str, name: str = "demo") -> Path:
    """A wheel with a real binary that links `needed`."""
    import lief

    folder.mkdir(parents=True, exist_ok=True)
    binary = lief.ELF.parse(str(MODULE))
    assert binary is not None
    for library in needed:
        binary.add_library(library)
    binary.write(str(folder / "core.so"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.write(folder / "core.so", f"{name}/core.so")
        out.writestr(f"{name}/__init__.py", "from demo import core\n")
        out.writestr(
            f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        out.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        listed = (f"{name}/core.so", f"{name}/__init__.py", f"{metadata}/METADATA")
        out.writestr(f"{metadata}/RECORD", "".join(f"{one},,\n" for one in listed))
    return path


def test_two_wheels_tell_what_the_newer_one_links(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = wheel(tmp_path / "a", "1.0"), wheel(tmp_path / "b", "1.1", "libcudart.so.12")
    code, out, err = run(capsys, old, new, "--backend", "cpu")
    assert code == 1, err
    assert "new error BM301 foreign-needed  demo 1.1" in out
    assert "demo  1.0 -> 1.1" in out
    assert run(capsys, new, old, "--backend", "cpu")[0] == 0, "a finding that is gone fails nothing"
    assert run(capsys, new, new, "--backend", "cpu")[0] == 0, "one that was there fails nothing"
    assert run(capsys, old, new, "--backend", "cpu", "--fail-on", "never")[0] == 0


def test_a_saved_report_says_for_which_backend_the_other_side_is_judged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = wheel(tmp_path / "a", "1.0"), wheel(tmp_path / "b", "1.1", "libcudart.so.12")
    with pytest.raises(SystemExit):
        cli.main(["scan", str(old), "--backend", "cpu", "--format", "json=report.json"])
    assert run(capsys, "report:report.json", new)[0] == 1
    code, out, _ = run(capsys, new, "report.json")
    assert (code, "gone error BM301" in out) == (0, True)
    assert document(capsys, "report.json", old)["findings"]["new"] == []


def test_the_same_version_with_other_bytes_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = wheel(tmp_path / "a", "1.0"), wheel(tmp_path / "b", "1.0", "libm.so.6")
    (change,) = document(capsys, old, new)["distributions"]["changes"]
    assert change["step"] == "bytes"
    assert change["details"][0].startswith("other bytes: sha256 ")


def test_a_waiver_accepts_what_is_new(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old, new = wheel(tmp_path / "a", "1.0"), wheel(tmp_path / "b", "1.1", "libcudart.so.12")
    (tmp_path / "waivers.toml").write_text(
        "[[waive]]\nrule = 'BM301'\nreason = 'known'\nowner = 'me'\nexpires = 2999-01-01\n"
    )
    code, out, err = run(capsys, old, new, "--backend", "cpu", "--waivers", "waivers.toml")
    assert (code, "new accepted BM301" in out) == (0, True), err


def test_several_formats_go_to_several_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = wheel(tmp_path / "a", "1.0"), wheel(tmp_path / "b", "1.1")
    code, out, _ = run(
        capsys,
        old,
        new,
        "--format",
        "json=d.json",
        "--format",
        "markdown=d.md",
        "--format",
        "table",
    )
    assert code == 0 and "demo  1.0 -> 1.1" in out
    assert json.loads((tmp_path / "d.json").read_text())["schema"] == "buildmatrix/diff/1"
    assert (tmp_path / "d.md").read_text().startswith("## buildmatrix: what changed")


# Targets and locks


def built(tmp_path: Path, versions: Mapping[str, str]) -> None:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "base.in").write_text("demo\n")
    for id, version in versions.items():
        one = Distribution("demo", version, f"opt/site-packages/demo-{version}.dist-info", size=5)
        inventory = Inventory(distributions=(one,), stats=Stats(bytes_total=5))
        leave_built(State(tmp_path / FOLDER).target_files(id), inventory)


def test_targets_that_were_built_are_compared_again_without_being_judged_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, {"cpu-py311-server": "1.0", "cuda12.8-py311-server": "2.0"})
    sources = "cpu-py311-server", "target:cuda12.8-py311-server"
    first = document(capsys, *sources)
    assert [one["name"] for one in first["distributions"]["changes"]] == ["demo"]
    assert first["findings"] is None, "they are for two backends"

    def judged(*_: object) -> None:
        raise AssertionError("judged again")

    with monkeypatch.context() as patch:
        patch.setattr(diff_sides, "evidence", judged)
        assert document(capsys, *sources) == first
    monkeypatch.chdir(tmp_path)
    built(tmp_path, {"cpu-py311-server": "3.0"})
    again = document(capsys, *sources)
    assert again["distributions"]["changes"][0]["before"] == ["3.0"], "a new build is read"


def test_a_broken_memory_of_a_target_is_made_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built(tmp_path, {"cpu-py311-server": "1.0", "cuda12.8-py311-server": "2.0"})
    sources = "target:cpu-py311-server", "target:cuda12.8-py311-server"
    first = document(capsys, *sources)
    (kept,) = (tmp_path / ".buildmatrix/state/cpu-py311-server/made").iterdir()
    for broken in (b"", b"\x00" * 50, kept.read_bytes()[:-9]):
        kept.write_bytes(broken)
        assert document(capsys, *sources) == first


def locked(tmp_path: Path, file: str, version: str, *needed: str) -> Path:
    """A lock of one wheel of this machine."""
    from buildmatrix.images.store.facts import file_digest

    made = wheel(tmp_path / f"wheels-{file}", version, *needed)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        LOCK.format(
            version=version,
            name=made.name,
            path=made.resolve(),
            sha256=file_digest(made),
        )
    )
    return path


def test_two_locks_are_compared_by_the_wheels_that_they_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    locked(tmp_path, "pylock.a.toml", "1.0")
    locked(tmp_path, "pylock.b.toml", "1.1", "libcudart.so.12")
    code, out, err = run(capsys, "pylock.a.toml", "lock:pylock.b.toml", "--backend", "cpu")
    assert "demo  1.0 -> 1.1" in out, err
    assert "new error BM301" in out
    assert code == 1


def test_a_lock_whose_name_says_its_target_needs_no_backend(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = (f"{folder}/pylock.cpu-py311-server.toml" for folder in ("old", "new"))
    locked(tmp_path, old, "1.0")
    locked(tmp_path, new, "1.1", "libcudart.so.12")
    code, out, err = run(capsys, old, new)
    assert (code, "new error BM301" in out) == (1, True), err


def test_a_wheel_that_is_gone_leaves_what_the_lock_says_and_is_undecided(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    locked(tmp_path, "pylock.a.toml", "1.0")
    locked(tmp_path, "pylock.b.toml", "1.1")
    next((tmp_path / "wheels-pylock.b.toml").glob("*.whl")).unlink()
    code, out, _ = run(capsys, "pylock.a.toml", "pylock.b.toml")
    assert code == 3
    assert "demo  1.0 -> 1.1" in out
    assert "not read in lock:pylock.b.toml" in out


def test_drift_between_the_locks_of_targets_is_told_with_who_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built(tmp_path, {})
    for id, version in (("cpu-py311-server", "1.0"), ("cuda12.8-py311-server", "1.1")):
        locked(tmp_path, f"locks/pylock.{id}.toml", version)
    code, out, err = run(capsys, "--targets", "--offline")
    assert code == 0, err
    assert "base.in:1 -> demo 1.1" in out
    assert "2 targets: 1 distribution without a reason" in out
    assert run(capsys, "--targets", "--offline", "--fail-on", "warning")[0] == 1
    code, out, _ = run(capsys, "--targets", "--offline", "--format", "json")
    jsonschema.validate(json.loads(out), document_schema("drift"))


# Bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "diff compares two things, and none are named"),
        (["a.whl"], "diff compares two things, and 1 is named"),
        (["a", "b", "c"], "diff compares two things, and 3 are named"),
        (["", "b"], "SOURCE is empty"),
        (["./gone", "./gone"], "there is no ./gone"),
        (["dir:gone", "dir:gone"], "dir:gone cannot be read"),
        (["gone.whl", "gone2.whl"], "there is no gone.whl"),
        (["report:gone.json", "report:gone.json"], "gone.json cannot be read: No such file"),
        (["report:", "x.json"], "report: names nothing"),
        (["report:broken.json", "."], "broken.json is not a report of buildmatrix"),
        (["old.json", "."], "has the format buildmatrix/report/9"),
        (["target:x", "target:y"], "there is no specification here"),
        (["x.whl", "dir:."], "x.whl is one wheel and dir:. is a set of distributions"),
        (["lock:gone.toml", "lock:gone.toml"], "gone.toml"),
        ([".", ".", "--backend", "cuda13"], "there is no backend 'cuda13'; the catalogue knows"),
        ([".", ".", "--format", "sarif"], "--format sarif: write one of table, json, markdown"),
        ([".", ".", "--subset", "x"], "--subset belongs to --targets"),
        (["--targets", "a", "b"], "name one SOURCE or none, not 2"),
        (["--targets"], "buildmatrix.toml: there is no such file"),
        (["d", "d", "--fail-on", "error"], "nothing says which backend dir:d is for"),
        (["d", "d", "--waivers", "gone.toml"], "gone.toml"),
    ],
)
def test_bad_input_gets_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "broken.json").write_text("{}")
    (tmp_path / "x.whl").touch()
    report = {
        "schema": "buildmatrix/report/9",
        "tool": {"version": "9", "catalogue": ""},
        "subject": "",
        **{key: [] for key in ("targets", "distributions", "findings", "unread")},
        "stats": {},
    }
    (tmp_path / "old.json").write_text(json.dumps(report))
    metadata = tmp_path / "d/demo-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("")
    code, out, err = run(capsys, *arguments)
    assert code in (2, 3)
    assert sentence in err
    assert (out, len(err.strip().splitlines())) == ("", 1)


def test_a_target_that_was_not_built_is_undecided(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built(tmp_path, {"cpu-py311-server": "1.0"})
    code, _, err = run(capsys, "cpu-py311-server", "cuda12.8-py311-server")
    assert (code, "target cuda12.8-py311-server was not built here" in err) == (3, True)
    code, _, err = run(capsys, "cpu-py311-server", "target:cuda12.8-py312-server")
    assert (code, "did you mean" in err) == (2, True)
