"""What `fleet audit` keeps: a second run asks for nothing that cannot have changed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import pytest
from audit_index import HASTY, Locked
from index import IndexServer
from loopback import answering

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.fleet import auditing, context
from buildmatrix.fleet.auditing import audit_file
from buildmatrix.fleet.declaring import CachedAudits, summarize_answer
from buildmatrix.fleet.model import AuditDone, AuditTask, Holder, WorkerSettings
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks import lookup
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import Position, Waiver, bare_target
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.sources.resolved import Resolved

PLAIN = "plain-1.0-py3-none-any.whl"
SETTINGS = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 10))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IndexServer]:
    folder = tmp_path / "wheels"
    folder.mkdir()
    with IndexServer(folder) as server:
        yield server


@pytest.fixture
def locked(server: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Locked:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(auditing, "Client", lambda cache: Client(cache=cache, patience=HASTY))
    context.close()
    locked = Locked(tmp_path / "wheels", server)
    locked.add("nvidia-nvtx-cu12 12.8.90")
    locked.add("plain 1.0", requires=["other"])
    return locked


def task(text: str, *repositories: str, backend: str = "cpu") -> AuditTask:
    return AuditTask(
        holders=tuple(
            Holder(repository=name, path=f"{name}/pylock.toml", commit=name, created="", place="x")
            for name in repositories or ("a",)
        ),
        path="pylock.toml",
        files={"pylock.toml": zlib.compress(text.encode())},
        backend=backend,
    )


def judged(question: AuditTask, settings: WorkerSettings = SETTINGS) -> AuditDone:
    """What another process says of it."""
    context.close()
    return audit_file(settings, question)


def said(done: AuditDone) -> list[FleetResult]:
    return [replace(item, repository="", names=(), digest="") for item in done.results]


def test_a_lock_is_judged_once(locked: Locked, server: IndexServer):
    first = judged(task(locked.text()))
    assert [item.state for item in first.results] == ["failed"]
    assert first.bytes_read > 0
    assert not first.is_stored
    server.requests.clear()
    second = judged(task(locked.text(), "b", "c"))
    assert server.requests == []
    assert (second.is_stored, second.bytes_read) == (True, 0)
    assert [(item.repository, item.names, item.digest) for item in second.results] == [
        ("b", ("b/pylock.toml",), "b"),
        ("c", ("c/pylock.toml",), "c"),
    ]
    assert said(second) == said(first) * 2


def test_what_a_lock_has_and_nobody_asked_for_is_said_in_each_run(locked: Locked):
    text = 'extras = ["train"]\ndependency-groups = ["docs"]\n' + locked.text()
    first, second = judged(task(text)), judged(task(text))
    assert second.is_stored
    for done in (first, second):
        assert [item.left_out for item in done.results] == [
            "not audited of pylock.toml: extras `train`; groups `docs`. "
            "`pylock.toml[train]:docs` looks at more of it"
        ]


@pytest.mark.parametrize(
    ("question", "settings"),
    [
        ({"backend": "cuda"}, {}),
        ({"text": "# another\n"}, {}),
        ({}, {"platform": "linux/arm64"}),
        ({}, {"data_files": {"a.toml": ""}}),
    ],
)
def test_another_question_is_judged_anew(
    locked: Locked, question: Mapping[str, str], settings: Mapping[str, object]
):
    judged(task(locked.text()))
    text = locked.text() + question.get("text", "")
    asked = task(text, backend=question.get("backend", "cpu"))
    assert not judged(asked, replace(SETTINGS, **settings)).is_stored


def test_an_index_that_is_away_is_no_answer(locked: Locked, server: IndexServer):
    del locked.packages[0]
    server.misbehave(server.path_of(PLAIN), answering(503), times=HASTY.tries)
    first = judged(task(locked.text()))
    assert [item.state for item in first.results] == ["undecided"]
    assert (first.away, first.again) == (server.origin.removeprefix("http://"), True)
    second = judged(task(locked.text()))
    # The lock lacks what the wheel requires, which only its METADATA says.
    assert [found.rule for item in second.results for found in item.findings] == ["BM111"]
    assert (second.away, second.again, second.is_stored) == ("", False, False)
    assert judged(task(locked.text())).is_stored


def test_what_is_gone_for_good_is_not_waited_for(locked: Locked, server: IndexServer):
    del locked.packages[0]
    server.misbehave(server.path_of(PLAIN), answering(404))
    for _ in range(2):
        done = judged(task(locked.text()))
        assert [item.state for item in done.results] == ["undecided"]
        assert (done.away, done.is_stored) == ("", False)


def test_what_has_no_hash_is_read_again(locked: Locked):
    url = locked.server.file_url(PLAIN)
    text = f"# autogenerated by pip-compile\nplain @ {url}\n"
    pinned = replace(
        task(""), path="requirements.txt", files={"requirements.txt": zlib.compress(text.encode())}
    )
    assert [judged(pinned).is_stored for _ in range(2)] == [False, False]
    assert [item.error for item in judged(pinned).results] == [None]


RESULT = FleetResult(kind="lock", repository="", backend="cpu", state="passed")


def kept_on(day: int, folder: Path, answer: str = "") -> bool:
    settings = replace(SETTINGS, today=date(2026, 1, day))
    return bool(CachedAudits(Cache(folder), settings, task(""), {}).load(answer))


def test_what_is_accepted_until_a_day_holds_until_that_day(tmp_path: Path):
    waivers = [
        Waiver("BM101", (), None, None, "x", "", date(2026, 1, day), Position("a", 1))
        for day in (5, 20, 25)
    ]
    kept = CachedAudits(Cache(tmp_path), SETTINGS, task(""), {})
    kept.save([RESULT], "", waivers)
    assert [day for day in range(1, 31) if kept_on(day, tmp_path)] == list(range(6, 21))
    kept.save([RESULT], "")
    assert all(kept_on(day, tmp_path) for day in range(1, 31))


def test_an_entry_holds_for_one_answer_of_the_index(tmp_path: Path):
    def resolved(version: str, *, is_asked: bool = True) -> Resolved:
        package = Package("a", version, None, (Wheel("a.whl", "u", "0"),), False, ())
        lock = Lock(tmp_path / "pylock.toml", (package,), "", "")
        return Resolved(bare_target("a", "cpu"), lock, None, "a", is_asked)

    one, other = summarize_answer([resolved("1")], "x"), summarize_answer([resolved("2")], "x")
    assert len({one, other, summarize_answer([resolved("1", is_asked=False)], "x")}) == 3
    assert summarize_answer([resolved("1", is_asked=False)], "x") == ""
    # What cannot be resolved today is asked again, and so is what comes with it.
    failed = UndecidedError("/tmp/7/a.txt: no solution")
    assert summarize_answer([failed], "/tmp/7") == summarize_answer(
        [UndecidedError("/tmp/8/a.txt: no solution")], "/tmp/8"
    )
    kept = CachedAudits(Cache(tmp_path), SETTINGS, task(""), {})
    kept.save([RESULT], one)
    assert [kept_on(10, tmp_path, answer) for answer in (one, other, "")] == [True, False, False]


@pytest.mark.parametrize("text", ["plain\n", "# autogenerated by pip-compile\nplain==1.0\n"])
def test_what_the_index_decides_is_asked_each_time(
    text: str,
    locked: Locked,
    server: IndexServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """By uv, on an index that is away at first, and later has a newer version."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setattr(lookup, "YOUNG", 0.0)
    asked = replace(
        task(""), path="requirements.txt", files={"requirements.txt": zlib.compress(text.encode())}
    )
    server.misbehave("/simple/plain/", answering(503), times=1)
    first = judged(asked)
    assert [item.state for item in first.results] == ["undecided"]
    assert (first.away, first.again) == (server.origin.removeprefix("http://"), True)
    assert [(judged(asked).away, judged(asked).is_stored)] == [("", True)]
    server.requests.clear()
    assert judged(asked).is_stored
    assert server.count("/simple/plain/") > 0
    locked.add("plain 2.0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))
    assert judged(asked).is_stored == ("==" in text)
