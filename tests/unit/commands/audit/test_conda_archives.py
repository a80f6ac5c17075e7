"""Packages of conda are read on their channel: their lists of files, then the files."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from audit_index import embedded, library, noise
from conda_channel import Content, make_package
from conda_locks import package, pixi
from index import IndexServer
from loopback import Misdeed, Request, Response, Serve, answering

from buildmatrix import cli
from buildmatrix.locks.index import model

PLAIN = {"lib/libplain.so.1": Content(library()), "lib/libplain.so": Content(link="libplain.so.1")}


class ChannelServer(IndexServer):
    """A channel in a folder, with range requests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def _serve(self, request: Request) -> Response:
        file = self.folder / request.path.lstrip("/")
        return self._data(file.read_bytes(), request) if file.is_file() else Response(404)

    def add(self, stem: str, files: Mapping[str, Content], **more: Any) -> str:
        """Make a package and return its entry in `pixi.lock`."""
        return self.entry(make_package(self.folder, stem, files, **more))

    def entry(self, file: Path, **stated: object) -> str:
        data = file.read_bytes()
        values = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **stated}
        lines = [f"- conda: {self.origin}/{file.parent.name}/{file.name}"]
        return "\n".join([*lines, *(f"  {name}: {value}" for name, value in values.items())]) + "\n"


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ChannelServer]:
    folder = tmp_path / "channel"
    folder.mkdir()
    with ChannelServer(folder) as server:
        yield server


Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(entries: list[str], *more: str, backend: str = "cpu") -> tuple[int, dict[str, Any]]:
        (tmp_path / "requirements.in").touch()
        (tmp_path / "pixi.lock").write_text(pixi(entries))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as stop:
            cli.main(
                [
                    *("--no-progress", "audit", "pixi.lock", f"--backend={backend}", *more),
                    *("--no-vulnerabilities", "--format=json", "--output=report.json"),
                ]
            )
        assert isinstance(stop.value.code, int)
        report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
        return stop.value.code, report

    return run


def failing(report: dict[str, Any]) -> list[str]:
    return [f"{item['rule']} {item['distribution']}" for item in report["findings"]]


@pytest.mark.parametrize("ending", [".conda", ".tar.bz2"])
def test_a_harmless_package_of_an_unknown_channel_is_clean(
    run: Run, channel: ChannelServer, ending: str
) -> None:
    code, report = run([channel.add("plain-1.0-0", PLAIN, ending=ending)])
    assert (code, report["findings"], report["unread"]) == (0, [], [])
    (verdict,) = report["distributions"]
    assert (verdict["name"], verdict["version"]) == ("conda:plain", "1.0+0")
    assert (verdict["depth"], verdict["verdict"]) == ("whole", "ok")


@pytest.mark.parametrize("ending", [".conda", ".tar.bz2"])
def test_a_library_of_cuda_is_caught_by_its_name(
    run: Run, channel: ChannelServer, ending: str
) -> None:
    files = {**PLAIN, "lib/libcublas.so.12.9.1": Content(library(size=5_000_000))}
    code, report = run([channel.add("plain-1.0-0", files, ending=ending)])
    assert (code, failing(report)) == (1, ["BM201 conda:plain"])
    assert run([channel.add("plain-1.0-0", files, ending=ending)], backend="cuda")[0] == 0


def test_device_code_is_caught_under_a_harmless_name(run: Run, channel: ChannelServer) -> None:
    entry = channel.add("plain-1.0-0", {**PLAIN, "share/plain/model.bin": Content(embedded())})
    code, report = run([entry])
    (verdict,) = report["distributions"]
    assert (code, verdict["name"], verdict["verdict"]) == (1, "conda:plain", "bloat")
    assert run([entry], backend="cuda")[0] == 0


def test_links_lead_from_package_to_package(run: Run, channel: ChannelServer) -> None:
    user = channel.add("user-1.0-0", {"lib/libuser.so": Content(library("libhipblas.so.2"))})
    code, report = run([user])
    assert (code, failing(report)) == (1, ["BM301 conda:user"])
    names = {"lib/libhipblas.so.2.4": Content(library()), "lib/libhipblas.so.2": Content(link="x")}
    provider = channel.add("hip-1.0-0", names)
    _, report = run([user, provider], backend="rocm")
    assert report["findings"] == []


def test_python_in_a_package_belongs_to_it(run: Run, channel: ChannelServer) -> None:
    site = "lib/python3.12/site-packages"
    files = {
        f"{site}/demo/__init__.py": Content(b"import demo._native\nimport numpy\n"),
        f"{site}/demo/_native.so": Content(library("libhipblas.so.2")),
        f"{site}/demo-1.0.dist-info/METADATA": Content(b"Name: demo\nVersion: 1.0\n"),
        f"{site}/demo-1.0.dist-info/RECORD": Content(b"demo/__init__.py,,\ndemo/_native.so,,\n"),
    }
    code, report = run([channel.add("py-demo-1.0-0", files)])
    assert [item["name"] for item in report["distributions"]] == ["conda:py-demo"]
    (finding,) = report["findings"]
    assert (code, finding["rule"], finding["distribution"]) == (1, "BM301", "conda:py-demo")
    assert finding["chain"][0] == "pixi.lock:10"
    assert finding["path"] == f"{site}/demo/_native.so"


def test_a_list_of_files_is_enough_where_a_name_decides(run: Run, channel: ChannelServer) -> None:
    files = {f"lib/libcublas{n}.so.12": Content(noise(1 << 20, n)) for n in range(8)}
    files["lib/libcublas.so.12"] = Content(library())
    entry = channel.add("libcublas-12.9.1.4-h9ab20c4_0", files)
    code, report = run([entry], backend="cuda12.9")
    (verdict,) = report["distributions"]
    assert (code, verdict["verdict"], verdict["depth"]) == (0, "ok", "listing")
    assert report["stats"]["bytes_read"] < 200_000 < 8 << 20 < verdict["download"]
    _, report = run([entry], "--deep", backend="cuda12.9")
    assert report["distributions"][0]["depth"] == "whole"
    assert report["stats"]["bytes_read"] == verdict["download"]


def test_facts_are_cached_by_the_hash(
    run: Run, channel: ChannelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    entry = channel.add("plain-1.0-0", PLAIN)
    assert run([entry])[0] == 0
    before = len(channel.requests)
    code, report = run([entry], "--offline")
    assert (code, report["findings"], len(channel.requests)) == (0, [], before)
    assert report["distributions"][0]["depth"] == "whole"


def test_files_beyond_the_budget_leave_open_what_no_name_decides(
    run: Run, channel: ChannelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "FLOOR", 0)
    data = random.Random(1).randbytes(6 << 20)
    entry = channel.add("plain-1.0-0", {"lib/libplain.so": Content(library() + data)})
    code, report = run([entry])
    (verdict,) = report["distributions"]
    assert (code, verdict["certain"]) == (3, False)
    assert "conda:plain 1.0+0 could hide 6.3 MB of 6.3 MB" in broken(report)
    # Packages of this channel would say in their names that they are a vendor's.
    (tmp_path / "own.toml").write_text(CHANNEL.format(channel.origin.removeprefix("http://")))
    (tmp_path / "buildmatrix.toml").write_text(SPECIFICATION)
    code, report = run([entry])
    (verdict,) = report["distributions"]
    assert (code, report["findings"], verdict["certain"]) == (0, [], True)
    assert verdict["open"].startswith(
        "1 of 1 binary file not opened, so its contents are not known"
    )


def test_a_local_package_is_read_each_time(
    run: Run, channel: ChannelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    file = make_package(tmp_path / "pkgs", "plain-1.0-0", PLAIN)
    entry = "- conda: ./pkgs/linux-64/plain-1.0-0.conda\n"
    assert run([entry])[0] == 0
    files = {**PLAIN, "lib/libcublas.so.12.9.1": Content(library(size=5_000_000))}
    assert make_package(tmp_path / "pkgs", "plain-1.0-0", files) == file
    assert run([entry])[0] == 1
    file.unlink()
    code, report = run([entry])
    assert code == 3
    assert "plain-1.0-0.conda could not be read" in broken(report)


# Channels that do not answer


CHANNEL = """\
schema = 1
backend = "acme"
title = "Acme"
checked = 2026-11-20
[sources]
test = "a test"
[[channels]]
names = ["{}"]
source = ["test"]
basis = "memory"
"""
SPECIFICATION = """\
schema = 1
[project]
name = "demo"
version = "1.0"
[defaults]
python = ["3.12"]
requirements = ["requirements.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
[catalogue]
files = ["own.toml"]
"""


def after_listing(misdeed: Misdeed) -> Misdeed:
    """Misbehave for requests of all bytes alone."""

    def answer(request: Request, serve: Serve) -> Response:
        start = request.headers.get("range", "bytes=0-").removeprefix("bytes=")
        return misdeed(request, serve) if start.startswith("0-") else serve(request)

    return answer


def test_a_known_channel_that_does_not_answer_is_noted(run: Run) -> None:
    code, report = run([package("numpy-2.1.0-py312h1103770_0")], "--offline")
    (note,) = report["findings"]
    assert (code, note["rule"], note["severity"]) == (0, "BM902", "note")
    assert note["message"].startswith(
        "numpy of conda.anaconda.org/conda-forge is judged by name and build alone, as nothing was "
        "read (it has not been read before, and --offline was given"
    )


def test_another_channel_that_does_not_answer_is_undecided(
    run: Run, channel: ChannelServer
) -> None:
    entry = channel.add("plain-1.0-0", PLAIN)
    channel.misbehave("/linux-64/plain-1.0-0.conda", answering(404), times=99)
    code, report = run([entry])
    assert code == 3
    assert "plain come from 127.0.0.1" in broken(report)
    assert "nothing of them was read (it answers 404" in broken(report)


def test_a_package_that_is_no_longer_there_is_read_no_deeper(
    run: Run, channel: ChannelServer
) -> None:
    """Its list was read; what `--deep` asks for and does not get leaves the run undecided."""
    files = {f"lib/libcublas{n}.so.12": Content(noise(1 << 20, n)) for n in range(8)}
    entry = channel.add("libcublas-12.9.1.4-h9ab20c4_0", files)
    path = "/linux-64/libcublas-12.9.1.4-h9ab20c4_0.conda"
    channel.misbehave(path, after_listing(answering(404)), times=99)
    code, report = run([entry], "--deep", backend="cuda12.9")
    assert (code, [item["rule"] for item in report["findings"]]) == (3, ["BM902"])


# Archives that are not what they should be


def broken(report: dict[str, Any]) -> str:
    (finding,) = report["findings"]
    assert (finding["rule"], finding["severity"]) == ("BM902", "warning")
    return str(finding["message"])


def test_another_archive_than_the_locked_one_is_undecided(run: Run, channel: ChannelServer) -> None:
    file = make_package(channel.folder, "plain-1.0-0", PLAIN)
    code, report = run([channel.entry(file, sha256="a" * 64)])
    assert code == 3
    assert "it has the SHA-256" in broken(report)
    code, report = run([channel.entry(file, size=99)])
    assert code == 3
    assert "it has 2010 bytes, but 99 were announced" in broken(report)


def test_an_archive_of_another_package_is_undecided(run: Run, channel: ChannelServer) -> None:
    file = make_package(channel.folder, "evil-1.0-0", PLAIN)
    code, report = run([channel.entry(file.rename(file.with_name("plain-1.0-0.conda")))])
    assert code == 3
    assert "holds evil 1.0+0 by its own metadata" in broken(report)


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "paths outside of the environment": (
        {"paths": [{"_path": "../../etc/passwd", "size_in_bytes": 5}]},
        "which no environment can have",
    ),
    "an absolute path": (
        {"paths": [{"_path": "/etc/passwd", "size_in_bytes": 5}]},
        "which no environment can have",
    ),
    "a file that it does not have": (
        {"paths": [{"_path": "lib/libmissing.so", "size_in_bytes": 5}]},
        "lists 'lib/libmissing.so', which is not there",
    ),
    "a path with half a character": (
        {"paths": [{"_path": "lib/\ud800", "size_in_bytes": 5}]},
        "lists 'lib/\\ud800', which no environment can have",
    ),
    "a file twice": ({"paths": [{"_path": "lib/a"}] * 2}, "lists 'lib/a' twice"),
    "too many files": (
        {"paths": [{"_path": f"share/{number}"} for number in range(300_000)]},
        "lists more than 200000 files",
    ),
    "another name": ({"name": "../x"}, "has no valid name, version and build"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("ending", [".conda", ".tar.bz2"])
def test_hostile_lists_are_undecided(
    run: Run, channel: ChannelServer, case: str, ending: str
) -> None:
    more, said = HOSTILE[case]
    code, report = run([channel.add("plain-1.0-0", PLAIN, ending=ending, **more)])
    assert code == 3
    assert said in broken(report)


def test_a_list_that_hides_a_large_file_is_undecided(run: Run, channel: ChannelServer) -> None:
    """The list is all that is read of a large package, so it must not be smaller than that."""
    hidden = random.Random(1).randbytes(9 << 20)
    files = {**PLAIN, "share/data.txt": Content(hidden)}
    paths = [{"_path": name, "size_in_bytes": 10} for name in files]
    code, report = run([channel.add("plain-1.0-0", files, paths=paths)])
    assert code == 3
    assert "the list is false" in broken(report)


def test_bombs_are_undecided(run: Run, channel: ChannelServer) -> None:
    files = {"share/zeros": Content(bytes(400 << 20))}
    code, report = run([channel.add("plain-1.0-0", files)])
    assert code == 3
    messages = [item["message"] for item in report["findings"]]
    assert any("it inflates to more than 64 times its size: a bomb" in text for text in messages)
