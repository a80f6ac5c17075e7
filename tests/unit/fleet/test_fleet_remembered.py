"""What a run remembers of a repository speeds up the next run, and says nothing by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from image_registry import ImageRegistry
from layer_archives import tar
from test_fleet_work import BASE, FOREIGN, SETTINGS, done, own_cache, server, subject

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster, context, work
from buildmatrix.fleet.context import RememberedResults
from buildmatrix.fleet.model import ClusterOptions, ImageTask, Subject, WorkerSettings
from buildmatrix.fleet.run import Steps, scan
from buildmatrix.fleet.work import AnswerLookup
from buildmatrix.images.store.cache import Cache
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.fleet import FleetResult

__all__ = ["own_cache", "server"]
#: What a run does with real images.
STEPS = Steps(
    look_up=AnswerLookup,
    resolve=work.resolve,
    resolve_and_judge=work.resolve_and_judge,
    read=work.read_layer,
    judge=work.judge_image,
)
RESULTS = (FleetResult(repository="", digest="sha256:1", state="passed", backend="cpu"),)
APP = Reference.parse("registry.test/team/app:1")


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The store's entries of single images that were asked for."""
    asked: list[str] = []
    load = context.CachedResults.load

    def noted(kept: context.CachedResults, key: str) -> tuple[FleetResult, ...]:
        asked.append(key)
        return load(kept, key)

    monkeypatch.setattr(context.CachedResults, "load", noted)
    return asked


def run_over(subjects: list[Subject], settings: WorkerSettings = SETTINGS) -> list[object]:
    """What looking up says of all of them, as a run that needs no workers."""
    with AnswerLookup(settings) as look_up:
        found = [look_up(item) for item in subjects]
        assert look_up.save() == ()
    return found


class ThisProcess:
    """Workers in name only: Dask's leave a process and threads behind in that of the tests."""

    workers, threads, busy, repeated, is_local = 1, 1, 0.0, 0, True

    async def run_work(
        self,
        work: Callable[..., Any],
        argument: object,
        *,
        seen: Callable[[str, object], None],
        **_: object,
    ) -> object:
        answer = work(SETTINGS, argument)
        seen("here", answer)
        return answer

    async def watch_workers(self) -> None:
        return None


@asynccontextmanager
async def this_process(*_: object) -> AsyncIterator[ThisProcess]:
    yield ThisProcess()


def test_a_repository_is_one_entry(server: ImageRegistry, entries: list[str]) -> None:
    subjects = [subject(server, f"team/app:{tag}") for tag in range(20)]
    for tag in range(20):
        server.image([tar(BASE), tar([("srv/version", b"%d" % tag)])], tag=str(tag))
    judged = [done(item) for item in subjects]
    entries.clear()
    second = run_over(subjects)
    assert len(entries) == 20, "one image at a time, as they were judged"
    entries.clear()
    server.requests.clear()
    third = run_over(subjects)
    assert entries == []
    assert server.unchanged == 20, "the registry is told what is known"
    assert len([item for item in server.requests if item[1] != "/v2/"]) == 20
    for answer in (second, third):
        assert [item.results for item in answer] == [item.results for item in judged]
        assert all(item.is_stored for item in answer)


def test_an_end_of_a_run_is_remembered(
    server: ImageRegistry, entries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "connect", this_process)
    image = server.image([tar(BASE)], tag="1")
    server.image([tar(FOREIGN)], tag="2")
    server.index(server.image([tar(FOREIGN)], architecture="arm64"), image, tag="3")
    server.image([b"no archive"], tag="4")
    subjects = [subject(server, f"team/app:{tag}", owner="blue") for tag in range(1, 5)]

    def outcome() -> list[FleetResult]:
        ended = scan(subjects, SETTINGS, STEPS, ClusterOptions(), progress=Silent())
        return sorted(ended.results, key=lambda item: item.names)

    first = outcome()
    assert [item.state for item in first] == ["passed", "failed", "passed", "undecided"]
    entries.clear()
    found = run_over(subjects)
    # The last is what nobody has judged to the end: nothing is remembered of it.
    assert [isinstance(item, ImageTask) for item in found] == [True, True, True, False]
    assert len(entries) == 1
    assert outcome() == first


def test_what_is_remembered_is_not_what_counts(server: ImageRegistry, entries: list[str]) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    wanted = subject(server, owner="red")
    cpu = done(wanted).results
    cuda = replace(SETTINGS, backend="cuda")
    other = done(wanted, cuda).results
    run_over([wanted])
    # Another question.
    (answer,) = run_over([wanted], cuda)
    assert isinstance(answer, ImageTask) and answer.results == other != cpu
    # Another image.
    image = server.image([tar(BASE)], tag="1")
    assert run_over([wanted]) == [replace(wanted, digest=image["digest"])]
    moved = done(wanted).results
    for _ in range(2):
        (answer,) = run_over([wanted])
        assert isinstance(answer, ImageTask) and answer.results == moved != cpu
    # Another subject of the same name.
    entries.clear()
    (answer,) = run_over([replace(wanted, owner="blue", containers=3)])
    assert isinstance(answer, ImageTask) and answer.results == moved and entries == []


def test_entries_that_are_broken_are_as_if_they_were_not_there(
    server: ImageRegistry, tmp_path: Path
) -> None:
    server.image([tar(BASE)], tag="1")
    wanted = subject(server)
    judged = done(wanted).results
    run_over([wanted])
    (entry,) = (tmp_path / "cache/buildmatrix/fleet-repositories").iterdir()
    for data in (b"", b"x" * 100, entry.read_bytes()[:-3]):
        entry.write_bytes(data)
        (answer,) = run_over([wanted])
        assert isinstance(answer, ImageTask) and answer.results == judged


def test_results_of_another_form_are_left_to_workers(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.image([tar(BASE)], tag="1")
    wanted = subject(server)
    judged = done(wanted).results
    encode = context.msgspec.msgpack.encode

    def strange(value: object) -> bytes:
        return encode({"what": 1}) if value == judged else encode(value)

    with monkeypatch.context() as patch:
        patch.setattr(context.msgspec.msgpack, "encode", strange)
        run_over([wanted])
    (answer,) = run_over([wanted])
    assert isinstance(answer, Subject)
    assert done(answer).results == judged


def test_tags_of_other_runs_stay_for_a_while(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def run(*tags: int) -> None:
        now = RememberedResults(cache, SETTINGS)
        for tag in tags:
            now.keep(APP.with_tag(str(tag)), f"sha256:{tag}", "key", RESULTS)
        now.save()

    def known(*tags: int) -> list[bool]:
        later = RememberedResults(cache, SETTINGS)
        return [later.load(APP.with_tag(str(tag))) is not None for tag in tags]

    run(1, 2)
    run(3)
    assert known(1, 2, 3, 4) == [True, True, True, False]
    for start in range(10, 200, 10):
        run(*range(start, start + 10))
    # Those that were seen last.
    assert known(199, 190, 180, 100) == [True] * 4
    assert known(1, 2, 3, 10) == [False] * 4
    # A run over more keeps more.
    run(*range(1000, 1300))
    assert all(known(*range(1000, 1300), 199))


def test_runs_that_ask_the_same_remember_the_same(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = RememberedResults(cache, SETTINGS)
    first.keep(APP, "sha256:1", "key", RESULTS)
    first.save()
    later = replace(SETTINGS, today=SETTINGS.today.replace(year=2027), time_limit=1.0)
    image = RememberedResults(cache, later).load(APP)
    assert image is not None and image.results() == RESULTS and image.key == "key"
    assert RememberedResults(cache, replace(SETTINGS, platform="linux/arm64")).load(APP) is None
    assert RememberedResults(cache, replace(SETTINGS, owner_labels=("team",))).load(APP) is None


def test_what_did_not_change_is_not_written_again(
    server: ImageRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        server.image([tar(BASE)], tag="1")
        done(subject(server, f"team/{name}:1"))
    wanted = [subject(server, f"team/{name}:1") for name in ("a", "b")]
    run_over(wanted)
    saved: list[str] = []
    monkeypatch.setattr(RememberedResults, "_save", lambda _, name: saved.append(name))
    run_over(wanted)
    assert saved == []
    moved = server.image([tar(BASE), tar(FOREIGN)], tag="1")
    done(replace(wanted[0], digest=moved["digest"]))
    run_over(wanted[:1])
    assert saved == [f"{server.host}/team/a"]


def test_who_cannot_write_it_says_so_and_goes_on(server: ImageRegistry, tmp_path: Path) -> None:
    server.image([tar(BASE)], tag="1")
    settings = replace(SETTINGS, store=str(tmp_path / "store"))
    wanted = subject(server)
    judged = done(wanted, settings).results
    (tmp_path / "store/fleet-repositories").write_text("in the way")
    with AnswerLookup(settings) as look_up:
        answer = look_up(wanted)
        assert isinstance(answer, ImageTask) and answer.results == judged
        notes = " ".join((*answer.notes, *look_up.save()))
    assert "cannot be read" in notes and "cannot be written" in notes
