"""An image of which little has to be read is through at once; what goes wrong is left to steps."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from image_registry import ImageRegistry, digest_of
from layer_archives import tar
from test_fleet_remembered import STEPS, ThisProcess, this_process
from test_fleet_work import BASE, FOREIGN, SETTINGS, done, of, own_cache, server, subject

from buildmatrix.base.progress import Silent
from buildmatrix.fleet import cluster, context, work
from buildmatrix.fleet.model import ClusterOptions, LateError, WorkerKilledError
from buildmatrix.fleet.run import scan

__all__ = ["own_cache", "server"]
SMALL = [tar(BASE), tar([("app/main.py", b"print(1)\n")])]


def test_a_small_image_is_through_at_once(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.image(SMALL, tag="1")
    wanted = subject(server)
    task = work.resolve_and_judge(SETTINGS, wanted)
    assert (task.unread, task.is_stored, task.is_kept) == ((), False, True)
    assert list(task.read) == [digest_of(layer) for layer in SMALL]
    assert task.bytes_read == sum(map(len, SMALL))
    assert len(server.requests) == len(set(server.requests)), "nothing is asked for twice"
    again = work.resolve_and_judge(SETTINGS, wanted)
    assert again.is_stored and again.results == task.results and again.read == ()
    context.close()
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "another"))
    assert done(wanted).results == task.results, "as if one thing was asked after the other"


def test_layers_that_are_known_need_no_reading(server: ImageRegistry) -> None:
    server.image([tar(FOREIGN)], tag="1")
    done(subject(server))
    server.image([tar(FOREIGN), SMALL[1]], tag="2")
    task = work.resolve_and_judge(SETTINGS, subject(server, "team/app:2"))
    assert task.read == (digest_of(SMALL[1]),)
    assert of(subject(server, "team/app:2"), task).state == "failed"


def test_what_is_large_is_left_to_others(server: ImageRegistry) -> None:
    server.image([SMALL[0], tar(FOREIGN)], tag="1")
    task = work.resolve_and_judge(SETTINGS, subject(server))
    assert task == work.resolve(SETTINGS, subject(server))
    assert len(task.unread) == 2 and task.results == task.read == ()


@pytest.mark.parametrize("trouble", ["lost", "other bytes", "slow", "defect"])
def test_what_goes_wrong_is_left_to_steps(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    server.image(SMALL, tag="1")
    first, second = map(digest_of, SMALL)
    left = [second]
    with monkeypatch.context() as patch:
        if trouble == "lost":
            del server.blobs[second]
        elif trouble == "other bytes":
            server.blobs[second] = b"x" * len(SMALL[1])
        elif trouble == "slow":
            patch.setattr(work, "_SHORT", -1.0)
            left = [first, second]
        else:
            patch.setattr(work, "_judge", None)
            left = []
        task = work.resolve_and_judge(SETTINGS, subject(server))
    assert [layer.digest for layer in task.unread] == left
    assert list(task.read) == [digest for digest in (first, second) if digest not in left]
    assert (task.results, task.again, task.is_kept) == ((), False, False)
    (result,) = done(subject(server)).results
    assert result.state == ("undecided" if trouble in ("lost", "other bytes") else "passed")


def test_the_bill_of_small_images(server: ImageRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connect", this_process)
    tops = [tar([("app/main.py", b"%d" % number)]) for number in range(4)]
    for number, top in enumerate(tops):
        server.image([SMALL[0], top], tag=f"{number}")
    server.image([SMALL[0], tops[0]], tag="latest")
    del server.blobs[digest_of(tops[3])]
    tags = ["0", "1", "2", "3", "latest"]
    subjects = [subject(server, f"team/app:{tag}") for tag in tags]
    outcome = scan(subjects, SETTINGS, STEPS, ClusterOptions(), progress=Silent())
    assert sorted(item.state for item in outcome.results) == ["passed"] * 4 + ["undecided"]
    read = [SMALL[0], *tops[:3]]
    assert (outcome.work.layers, outcome.work.layers_read) == (5, 4)
    assert outcome.work.bytes_read == sum(map(len, read))
    # What the run has said of them is remembered: the next one needs no workers for these.
    assert scan(subjects, SETTINGS, STEPS, ClusterOptions(), progress=Silent()).work.stored == 4


@pytest.mark.parametrize("harm", [WorkerKilledError(), LateError("it took too long")])
def test_after_harm_one_thing_is_asked_after_the_other(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch, harm: Exception
) -> None:
    """A layer that ends whoever reads it is in many images, and is read once."""
    asked: list[str] = []

    class Harmed(ThisProcess):
        async def run_work(self, what: Any, argument: Any, **options: Any) -> object:
            asked.append(what.__name__)
            if len(asked) == 3:
                raise harm
            return await super().run_work(what, argument, **options)

    @asynccontextmanager
    async def harmed(*_: object) -> Any:
        yield Harmed()

    monkeypatch.setattr(cluster, "connect", harmed)
    for number in range(6):
        server.image([SMALL[0], tar([("app/main.py", b"%d" % number)])], tag=f"{number}")
    subjects = [subject(server, f"team/app:{number}") for number in range(6)]
    outcome = scan(subjects, SETTINGS, STEPS, ClusterOptions(), progress=Silent())
    assert len(outcome.results) == 6
    at_once = "resolve_and_judge"
    assert asked[:3] == [at_once] * 3 and at_once not in asked[3:]
    assert asked.count("resolve") == (4 if isinstance(harm, WorkerKilledError) else 3)
