"""What workers do, for tests of a run: the names of images and layers say what happens to them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from buildmatrix.fleet import workers
from buildmatrix.fleet.model import (
    ImageDone,
    ImageTask,
    LayerDone,
    LayerTask,
    Subject,
    WorkerSettings,
)
from buildmatrix.fleet.run import Steps
from buildmatrix.fleet.work import AnswerLookup, LookedUp
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.fleet import FleetLayer, FleetResult


def digest_of(number: int) -> str:
    return f"sha256:{number:064x}"


def subject(name: str) -> Subject:
    """`NAME-1-2-3`: an image with the layers 1, 2 and 3; `NAME` says what happens to it."""
    return Subject(reference=f"registry.test/{name}:1", places=("test",))


#: Number of a layer that nobody comes to the end of; its image is called `endless`.
ENDLESS = 777


#: File of the events at which a worker ends, each the first time, and what begins the name of what
#: says that it has.
FATAL = "fatal"


def _note(settings: WorkerSettings, event: str) -> None:
    """Remember what was done, for the test to count; the store is a folder."""
    folder = Path(settings.store)
    number = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(number, (json.dumps(event) + "\n").encode())
    os.close(number)
    fatal = folder / FATAL
    if fatal.exists() and event in fatal.read_text().splitlines():
        with suppress(FileExistsError):
            (folder / f"{FATAL} {event.replace('/', ' ')}").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)


def events(folder: Path) -> list[str]:
    path = folder / "events"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def resolve(settings: WorkerSettings, subject: Subject) -> ImageTask:
    reference = Reference.parse(subject.reference)
    word, *numbers = reference.repository.split("-")
    _note(settings, f"resolve {word}")
    image = digest_of(sum(10_000 + int(number) for number in numbers))
    if word == "busy" and len([e for e in events(Path(settings.store)) if e == "resolve busy"]) < 4:
        return ImageTask(
            subject=subject, reference="", results=(_result(subject, "busy"),), again=True
        )
    if word == "endless":
        _wait_little_for_the_endless()
    if word == "chart":
        return ImageTask(subject=subject, reference="", left_out="a chart")
    if word == "defect":
        raise ZeroDivisionError("nobody expected this")
    folder = Path(settings.store)
    unread = tuple(
        LayerTask(reference=str(reference), digest=digest_of(int(number)), size=1, media_type="x")
        for number in numbers
        if not (folder / number).exists()
    )
    if word == "killer":
        unread = (
            *unread,
            LayerTask(reference=str(reference), digest=digest_of(666), size=1, media_type="kill"),
        )
    return ImageTask(subject=subject, reference=str(reference.at(image)), unread=unread)


def _wait_little_for_the_endless() -> None:
    """Have this worker give up that layer soon; all else has the time limit of the run."""
    wait = workers.ended_within

    def ended_within(seconds: float, work: Any, name: str) -> Any:
        is_endless = getattr(work.args[1], "digest", "") == digest_of(ENDLESS)
        return wait(0.1 if is_endless else seconds, work, name)

    workers.ended_within = ended_within


def read(settings: WorkerSettings, layer: LayerTask) -> LayerDone:
    number = int(layer.digest.rpartition(":")[2], 16)
    _note(settings, f"read {number}")
    if number == ENDLESS:
        time.sleep(1000)
    if layer.media_type == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 13:
        return LayerDone(digest=layer.digest, bytes_read=5, seconds=0.0, error="layer 13 is torn")
    (Path(settings.store) / str(number)).touch()
    return LayerDone(digest=layer.digest, bytes_read=100, seconds=0.0)


def judge(settings: WorkerSettings, task: ImageTask) -> ImageDone:
    reference = Reference.parse(task.reference)
    _note(settings, f"judge {reference.repository}")
    error = "; ".join(done.error or "" for done in task.failed) or None
    return ImageDone(
        results=(_result(task.subject, error, task.reference),), bytes_read=0, seconds=0.0
    )


def _result(subject: Subject, error: str | None, reference: str = "") -> FleetResult:
    parsed = Reference.parse(reference or subject.reference)
    layers = () if error else parsed.repository.split("-")[1:]
    return FleetResult(
        repository=parsed.name,
        names=(parsed.tag,),
        digest=parsed.digest,
        places=subject.places,
        backend="cpu",
        backend_by="option",
        state="undecided" if error else "passed",
        error=error,
        layers=tuple(
            FleetLayer(digest=digest_of(int(number)), size=1, installed=1) for number in layers
        ),
    )


class Nothing:
    """Nobody has ever judged anything, and nobody will ask again."""

    def __call__(self, subject: Subject) -> LookedUp:
        return subject

    def keep(self, task: ImageTask, results: Sequence[FleetResult]) -> None:
        pass

    def save(self) -> Sequence[str]:
        return ()


def look_up(_: WorkerSettings) -> AbstractContextManager[AnswerLookup]:
    return nullcontext(Nothing())


STEPS = Steps(look_up=look_up, resolve=resolve, resolve_and_judge=resolve, read=read, judge=judge)
