"""What earlier runs have said is found without a worker, and nothing else is said without one."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from fleet_steps import STEPS, Nothing, digest_of
from fleet_steps import subject as named
from hasty import HASTY
from image_registry import ImageRegistry
from layer_archives import tar
from test_fleet_work import BASE, FOREIGN, SETTINGS, done, subject

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError
from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster, context, work
from buildmatrix.fleet.model import ClusterOptions, ImageTask, Subject, WorkerSettings
from buildmatrix.fleet.run import scan
from buildmatrix.fleet.running import RunOutcome
from buildmatrix.fleet.work import (
    FEWEST_THREADS,
    THREADS,
    AnswerLookup,
    LookedUp,
    adjust_threads,
    look_up_all,
)
from buildmatrix.net.registry_client import Registry
from buildmatrix.reports.fleet import FleetResult

#: Seconds until a test that waits for ever fails.
PATIENCE = 300


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(context, "Registry", lambda **_: Registry(patience=HASTY))
    context.close()
    yield
    context.close()


@pytest.fixture
def server() -> Iterator[ImageRegistry]:
    with ImageRegistry() as server:
        yield server


def test_an_answer_costs_one_request(server: ImageRegistry) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    wanted = subject(server, owner="red", containers=2)
    first = done(wanted)
    server.requests.clear()
    with AnswerLookup(SETTINGS) as find:
        again = find(wanted)
        assert isinstance(again, ImageTask) and again.is_stored
        assert again.results == first.results
        assert [request for request in server.requests if request[1] != "/v2/"] == [
            ("HEAD", "/v2/team/app/manifests/1")
        ]


def test_what_nobody_has_judged_is_left_with_its_digest(server: ImageRegistry) -> None:
    image = server.image([tar(BASE)], tag="1")
    wanted = subject(server)
    with AnswerLookup(SETTINGS) as find:
        assert find(wanted) == replace(wanted, digest=image["digest"])
        # Read, but for another question.
        done(wanted)
        cuda = replace(SETTINGS, backend="cuda")
        with AnswerLookup(cuda) as other:
            left = other(wanted)
        assert isinstance(left, Subject)
        server.requests.clear()
        assert done(left, cuda).results[0].backend == "cuda"
        assert server.requests == [], "its tag is not asked for again"
        # The tag moved since.
        moved = server.image([tar(BASE), tar(FOREIGN)], tag="1")
        assert find(wanted) == replace(wanted, digest=moved["digest"])


def test_an_index_and_what_is_no_image_are_answered_by_what_is_kept(server: ImageRegistry) -> None:
    amd = server.image([tar(BASE)])
    server.index(server.image([tar(FOREIGN)], architecture="arm64"), amd, tag="1")
    server.image([tar(BASE)], architecture="arm64", tag="arm")
    with AnswerLookup(SETTINGS) as find:
        for name in ("app:1", "app:arm"):
            assert isinstance(find(subject(server, name)), Subject)
            done(subject(server, name))
        server.requests.clear()
        task = find(subject(server, "app:1"))
        assert isinstance(task, ImageTask) and task.results[0].digest == amd["digest"]
        task = find(subject(server, "app:arm"))
        assert isinstance(task, ImageTask) and "no image for linux/amd64" in task.left_out
        assert {method for method, _ in server.requests} == {"HEAD"}
        # What runs somewhere is undecided, which workers say.
        assert isinstance(find(subject(server, "app:arm", containers=1)), Subject)


def test_what_fails_is_left_as_it_is_and_a_registry_that_fails_is_left_alone(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Away(Registry):
        def digest(self, reference: Any, known: str = "") -> str:
            asked.append(reference.host)
            return super().digest(reference, known)

    monkeypatch.setattr(context, "Registry", lambda **_: Away(patience=HASTY))
    server.image([tar(BASE)], tag="1")
    gone = [replace(subject(server), reference=f"127.0.0.1:1/app:{tag}") for tag in range(9)]
    bad = replace(subject(server), reference="NO NAME")
    missing = [subject(server, f"app:gone-{number}") for number in range(5)]
    with AnswerLookup(SETTINGS) as find:
        assert [find(item) for item in [*gone, bad, *missing]] == [*gone, bad, *missing]
        assert asked.count("127.0.0.1:1") == 3
        assert asked.count(server.host) == 5
        assert isinstance(find(subject(server)), Subject)
        assert find(subject(server)) != subject(server), "others are asked"


# A run


def answered(subject: Subject) -> ImageTask:
    result = FleetResult(repository="", digest=digest_of(1), state="passed", backend="cpu")
    return ImageTask(
        subject=subject,
        reference="",
        results=(result,),
        is_stored=True,
    )


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    find: Callable[[Subject], LookedUp],
    failure: Exception | None = None,
) -> tuple[RunOutcome, list[str]]:
    """How a run ended, and what was handed to workers."""
    settings = replace(SETTINGS, store=str(folder))
    handed: list[str] = []
    reported: list[FleetResult] = []

    class Workers:
        workers, threads, busy, repeated, is_local = 1, 1, 0.0, 0, True

        async def run_work(self, work: Any, argument: Any, **_: object) -> Any:
            handed.append(work.__name__)
            return work(settings, argument)

        async def watch_workers(self) -> None:
            return None

    @asynccontextmanager
    async def connected(*_: object) -> Any:
        handed.append("connected")
        if failure is not None:
            while len(reported) < sum("new" not in name for name in names):
                await asyncio.sleep(0.01)
            raise failure
        yield Workers()

    def opened(_: WorkerSettings) -> AbstractContextManager[AnswerLookup]:
        known = Nothing()
        monkeypatch.setattr(Nothing, "__call__", lambda _, subject: find(subject))
        return nullcontext(known)

    monkeypatch.setattr(cluster, "connect", connected)
    outcome = scan(
        [named(name) for name in names],
        settings,
        replace(STEPS, look_up=opened),
        ClusterOptions(),
        progress=Silent(),
        write=reported.append,
    )
    return outcome, handed


def test_a_run_of_answers_starts_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"image-{number}" for number in range(100)]
    outcome, handed = run(tmp_path, monkeypatch, names, answered)
    assert handed == []
    assert sorted(result.repository for result in outcome.results) == sorted(
        named(name).reference.removesuffix(":1") for name in names
    )
    assert outcome.work.stored == outcome.work.subjects == 100
    assert outcome.work.workers == 0 and outcome.stopped is None and outcome.missing == ()


def test_workers_get_what_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(subject: Subject) -> Subject | ImageTask:
        return subject if "new" in subject.reference else answered(subject)

    names = [f"{'new' if number % 10 == 0 else 'image'}-{number}" for number in range(100)]
    outcome, handed = run(tmp_path, monkeypatch, names, find)
    assert len(outcome.results) == 100 and outcome.work.stored == 90
    assert handed.count("connected") == 1
    assert handed.count("resolve") == handed.count("read") == handed.count("judge") == 10


def test_workers_get_the_only_image_of_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, handed = run(tmp_path, monkeypatch, ["new-0"], lambda subject: subject)
    assert len(outcome.results) == 1
    assert handed == ["connected", "resolve", "read", "judge"]


def test_what_has_an_answer_is_reported_where_no_scheduler_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(subject: Subject) -> Subject | ImageTask:
        return subject if "new" in subject.reference else answered(subject)

    failure = ComponentError("no Dask scheduler answers")
    outcome, _ = run(tmp_path, monkeypatch, ["image-1", "new-2", "image-3"], find, failure)
    assert outcome.stopped is failure and len(outcome.results) == 2
    assert outcome.missing == ("1 of 3 images not judged: the run ended before",)
    with pytest.raises(ComponentError):
        run(tmp_path, monkeypatch, ["new-2"], find, failure)


def test_nobody_makes_a_text_of_all_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[object] = []
    monkeypatch.setattr(FleetResult, "__repr__", lambda result: texts.append(result) or "")
    run(tmp_path, monkeypatch, ["image-1", "image-2"], answered)
    assert texts == []


def test_an_empty_fleet_starts_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, handed = run(tmp_path, monkeypatch, [], answered)
    assert outcome.results == () and handed == []


def test_what_looking_up_raises_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(subject: Subject) -> Subject:
        raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError):
        run(tmp_path, monkeypatch, ["image-1"], find)


def test_more_threads_ask_what_is_far_away() -> None:
    threads = FEWEST_THREADS
    for _ in range(5):
        threads = adjust_threads(threads, 0.05)
    assert threads == THREADS > FEWEST_THREADS == adjust_threads(FEWEST_THREADS, 0.008)


class FarAway:
    """A clock by which each piece of work waits for a second."""

    def __init__(self) -> None:
        self.seconds = itertools.count()

    def monotonic(self) -> float:
        return next(self.seconds)

    def thread_time(self) -> float:
        return 0.0


def test_far_away_all_threads_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "time", FarAway())
    subjects = [named(f"image-{number}") for number in range(2000)]
    # Those that first threads take, after which there are more; then one for each thread.
    first = FEWEST_THREADS * work._AT_ONCE
    ends = first + THREADS * work._AT_ONCE
    meeting = {item.reference for item in subjects[first : ends : work._AT_ONCE]}
    together = threading.Barrier(THREADS)

    def find(subject: Subject) -> Subject:
        if subject.reference in meeting:
            together.wait(PATIENCE)
        return subject

    async def ask() -> list[LookedUp]:
        return [item async for item in look_up_all(find, subjects)]

    assert len(asyncio.run(ask())) == 2000


def test_threads_end_with_who_has_asked() -> None:
    asked, begun, goes_on = list[Subject](), threading.Event(), threading.Event()

    def find(subject: Subject) -> Subject:
        asked.append(subject)
        begun.set()
        goes_on.wait(PATIENCE)
        return subject

    async def ask() -> None:
        async for _ in look_up_all(find, [named(f"image-{number}") for number in range(1000)]):
            pass

    async def cancelled() -> None:
        task = asyncio.create_task(ask())
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("lookup"):
            thread.join(PATIENCE)
    assert 1 <= len(asked) <= THREADS
