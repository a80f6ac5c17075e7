"""`buildmatrix audit`: sources, exit codes and where its output goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from audit_index import Locked
from index import IndexServer
from loopback import answering

from buildmatrix import cli
from buildmatrix.reports.formats import document_schema

LOCK = "pylock.toml"


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "BUILDMATRIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "packages"
    folder.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    with IndexServer(folder) as server:
        yield Locked(folder, server)


def write(locked: Locked) -> None:
    Path(LOCK).write_text(locked.text())


def smuggle(locked: Locked) -> None:
    locked.add("embeddings 1.0", "requirements.in:3", requires=["nvidia-nccl-cu12"])
    locked.add(
        "nvidia-nccl-cu12 2.27", "embeddings", {"nvidia/nccl/lib/libnccl.so.2": b"x" * 90_000}
    )
    write(locked)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(("audit", "--no-vulnerabilities", *arguments))
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_a_foreign_distribution_fails_with_its_chain_and_its_bytes(locked: Locked, capsys) -> None:
    smuggle(locked)
    code, out, err = run(capsys, LOCK, "--backend", "rocm", "-q")
    assert (code, err) == (1, "")
    assert "requirements.in:3 -> embeddings 1.0 -> nvidia-nccl-cu12 2.27" in out
    assert "requirements.in:3 embeddings 1.0: " in out
    assert "installed are wasted, in 1 distribution" in " ".join(out.split())


def test_a_clean_lock_ends_with_0_for_every_backend(locked: Locked, capsys) -> None:
    locked.add("clean 1.0")
    write(locked)
    code, out, _ = run(capsys, LOCK, "--format", "json")
    assert code == 0
    report = json.loads(out)
    jsonschema.validate(report, document_schema("report"))
    assert report["findings"] == report["unread"] == []
    assert {one["backend"] for one in report["targets"]} == {"cuda", "rocm", "oneapi", "cpu"}


def test_what_is_read_is_told_on_standard_error(locked: Locked, capsys) -> None:
    smuggle(locked)
    _, out, err = run(capsys, LOCK, "--backend", "cpu", "--no-progress", "--format", "json")
    assert "file lists of 2" in err
    assert json.loads(out)["subject"] == LOCK


def test_offline_answers_from_the_cache_and_says_what_is_missing(locked: Locked, capsys) -> None:
    locked.add("clean 1.0")
    write(locked)
    code, out, _ = run(capsys, LOCK, "--backend", "cpu", "--offline")
    assert code == 3
    assert "it has not been read before, and --offline was given" in " ".join(out.split())
    assert run(capsys, LOCK, "--backend", "cpu")[0] == 0
    asked = len(locked.server.requests)
    assert run(capsys, LOCK, "--backend", "cpu", "--offline")[0] == 0
    assert len(locked.server.requests) == asked


def test_without_a_cache_everything_is_read_again(locked: Locked, capsys) -> None:
    path = locked.server.path_of(locked.add("clean 1.0").name)
    write(locked)
    run(capsys, LOCK, "--backend", "cpu", "--no-cache")
    asked = locked.server.count(path)
    run(capsys, LOCK, "--backend", "cpu", "--no-cache")
    assert locked.server.count(path) == 2 * asked
    assert not Path(os.environ["BUILDMATRIX_CACHE"]).exists()


def test_a_fresh_runner_reads_no_wheel_that_another_one_has_read(
    locked: Locked, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smuggle(locked)
    store = tmp_path / "store"
    once = run(capsys, LOCK, "--backend", "cpu", "--store", str(store), "--format", "json")
    asked = len(locked.server.requests)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "another"))
    monkeypatch.setenv("BUILDMATRIX_STORE", str(store))
    again = run(capsys, LOCK, "--backend", "cpu", "--format", "json")
    assert (once[0], len(locked.server.requests)) == (again[0], asked) == (1, asked)
    first, second = (json.loads(out) for _, out, _ in (once, again))
    assert first["findings"] == second["findings"]
    # Pages of an index, and what depends on the machine, stay there.
    assert {path.name for path in store.iterdir()} <= {"wheels", "tables", "sources"}


def test_damaged_and_swapped_entries_of_a_store_are_read_again(
    locked: Locked, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smuggle(locked)
    store = tmp_path / "store"
    arguments = (LOCK, "--backend", "cpu", "--store", str(store))
    run(capsys, *arguments)
    asked = len(locked.server.requests)
    first, second, *others = sorted(path for path in (store / "wheels").iterdir())
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data[:-1])
    for path in others:
        path.write_bytes(b"")
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "another"))
    assert run(capsys, *arguments)[0] == 1
    assert len(locked.server.requests) > asked


def test_a_store_that_cannot_be_written_costs_no_result(
    locked: Locked, capsys, tmp_path: Path
) -> None:
    smuggle(locked)
    (tmp_path / "store").touch()
    code, _, err = run(capsys, LOCK, "--backend", "cpu", "--store", str(tmp_path / "store"))
    assert code == 1
    assert f"the store {tmp_path / 'store'} cannot be written" in " ".join(err.split())


@pytest.mark.parametrize(
    ("store", "code", "said"),
    [
        ("s3://key:secret@bucket/facts", 2, "has credentials in its address"),
        ("gopher://host/facts", 2, "is not a valid store"),
    ],
)
def test_an_address_that_is_no_store_is_refused(
    locked: Locked, capsys, store: str, code: int, said: str
) -> None:
    smuggle(locked)
    ended, _, err = run(capsys, LOCK, "--backend", "cpu", "--store", store)
    assert ended == code
    assert said in " ".join(err.split()) and "secret" not in err


def test_an_index_that_fails_is_undecided(locked: Locked, capsys) -> None:
    path = locked.add("clean 1.0")
    write(locked)
    locked.server.misbehave(locked.server.path_of(path.name), answering(404))
    code, out, _ = run(capsys, LOCK, "--backend", "cpu")
    assert code == 3
    assert path.name in out


def test_a_source_that_cannot_be_read_is_said_once_for_all_backends(locked: Locked, capsys) -> None:
    Path("requirements.in").write_text("numpy=2\n")
    code, out, err = run(capsys, "requirements.in", "-q")
    assert (code, out) == (2, "")
    assert err.count("requirements.in:1:6") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.toml"], "there is no nowhere.toml"),
        ([LOCK, "--backend", "cudda"], "there is no backend 'cudda'"),
        ([LOCK, "--python", "three"], "'three' is not a Python version"),
        ([LOCK, "--format", "xml"], "--format xml"),
        ([], "buildmatrix.toml"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_one_sentence(
    locked: Locked, capsys, arguments: list[str], told: str
) -> None:
    locked.add("clean 1.0")
    write(locked)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_a_waiver_in_a_file_of_its_own_counts(locked: Locked, capsys) -> None:
    smuggle(locked)
    Path("waivers.toml").write_text(
        '[[waive]]\nrule = "BM101"\ndistribution = "nvidia-nccl-cu12"\nreason = "measured"\n'
        'owner = "team@example.com"\nexpires = 2099-01-31\n'
    )
    code, out, _ = run(capsys, LOCK, "--backend", "cpu", "--waivers", "waivers.toml")
    assert code == 0
    assert "accepted: measured" in out


def test_sarif_points_at_the_requirement_line(locked: Locked, capsys) -> None:
    smuggle(locked)
    run(capsys, LOCK, "--backend", "cpu", "--format", "sarif=audit.sarif")
    (result,) = json.loads(Path("audit.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "requirements.in"
    assert place["region"]["startLine"] == 3


def test_a_hash_that_no_file_has_is_undecided_whoever_asks(
    locked: Locked, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    locked.add("h11 0.16.0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", locked.server.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    real = locked.packages[0].wheels[0].sha256
    for digest, expected in (("a" * 64, 3), (real, 0)):
        Path("requirements.txt").write_text(f"h11==0.16.0 --hash=sha256:{digest}\n")
        code, out, err = run(capsys, "requirements.txt", "--backend=cpu", "-q")
        assert code == expected, err
        assert ("other hashes than the lock" in out) == (expected == 3)
        Path("pylock.toml").write_text(locked.text().replace(real, digest))
        assert run(capsys, "pylock.toml", "--backend=cpu", "-q")[0] == expected
