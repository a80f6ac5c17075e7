"""Publishing: images first, then their verdicts, and last the tags; or a stop in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_registry import MemoryRegistry
from rulecases import target
from test_verdict import spec

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildError, Interrupted, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.commands.build_gates import Publication
from buildmatrix.commands.build_work import BuildWork, Options
from buildmatrix.engines.model import BuildJob, Pushed
from buildmatrix.judge.model import StagedImage
from buildmatrix.locks.model import Lock
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.run import Report, assemble
from buildmatrix.signing.documents import read_private
from buildmatrix.sources.state_folder import BuildRecord, State

KEY = read_private(Path(__file__).parents[2] / "signing/vectors/openssl.pem", None)
NAME = "registry.example.com/demo"
TARGETS = [replace(target(backend), tags=(f"1-{backend}",)) for backend in ("cpu", "cuda")]


class Engine:
    """Pushes what it is told to; fails at a target."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self.registry = registry
        self.fails_at = ""
        self.error: Exception = BuildError("it does not take it")

    def push(self, jobs: Any, surroundings: Any, progress: Any, *, tagged: bool = True) -> Pushed:
        digests = {}
        for job in jobs:
            if job.id == self.fails_at:
                return Pushed(digests, job.id, self.error)
            names = job.tags if tagged else [f"{NAME}:none"]
            for name in names:
                digests[job.id] = self.registry.image(Reference.parse(name), job.id).digest
            self.registry.tags.pop((NAME, "none"), None)
        return Pushed(digests)


class Run:
    """Two green targets, and what is published of them."""

    def __init__(self, folder: Path, registry: MemoryRegistry) -> None:
        (folder / "mine.toml").write_text("")
        self.registry = registry
        self.engine = Engine(registry)
        self.spec = spec(folder, *TARGETS)
        state = State(folder / "state")
        self.works = []
        for item in TARGETS:
            work = BuildWork(item, state.target_files(item.id))
            work.lock = Lock(Path("lock"), (), "", "sha256:10c4")
            work.gates.update(lock="passed", build="passed", scan="passed")
            work.record = BuildRecord(
                key="k",
                digest="sha256:a",
                config=None,
                loaded=False,
                tags=(),
                inventory="",
                seconds=1,
            )
            work.job = BuildJob(
                item.id, folder, "a", "b", folder, item.references, folder / "log", folder / "scan"
            )
            self.works.append(work)

    def report(self) -> Report:
        results = [work.result(self.spec.root, ()) for work in self.works]
        return assemble("buildmatrix.toml", "2026-11-01", targets=results)

    def publish(self, **options: Any) -> Exception | None:
        publication = Publication(self.spec, Options(**options), self.engine, None, Silent())
        return publication.publish(self.works, self.report)

    @property
    def pushes(self) -> list[str | None]:
        return [work.push for work in self.works]

    @property
    def tags(self) -> set[str]:
        return {tag for _, tag in self.registry.tags if not tag.endswith(".att")}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    registry = MemoryRegistry()
    monkeypatch.setattr("buildmatrix.net.registry_client.Registry", lambda: registry)
    return Run(tmp_path, registry)


def test_tags_without_verdicts_are_the_engines_work(run: Run) -> None:
    assert run.publish(push=True) is None
    assert (run.pushes, run.tags) == (["passed"] * 2, {"1-cpu", "1-cuda"})
    assert run.registry.listed == {}


def test_staged_images_get_no_tag(run: Run) -> None:
    assert run.publish(stage=True) is None
    assert (run.pushes, run.tags) == (["passed"] * 2, set())
    staged = [result.staged for result in run.report().targets]
    assert staged == [StagedImage(NAME, work.pushed, work.target.tags) for work in run.works]


def test_staged_images_get_their_verdicts(run: Run) -> None:
    assert run.publish(stage=True, signer=KEY) is None
    assert run.tags == set()
    for work in run.works:
        contents, verdict = run.registry.listed[work.pushed]
        assert work.attestation == verdict.digest
        kind = "dev.sigstore.bundle.predicateType"
        types = [item.annotations[kind] for item in (contents, verdict)]
        assert types == ["https://cyclonedx.org/bom", "urn:buildmatrix:verdict:1"]


def test_verdicts_are_there_before_any_tag(run: Run) -> None:
    assert run.publish(push=True, signer=KEY) is None
    assert (run.pushes, run.tags) == (["passed"] * 2, {"1-cpu", "1-cuda"})
    writes = [request for request in run.registry.asked if request.startswith("push_manifest")]
    assert writes[-2:] == [f"push_manifest {NAME}:1-{name}" for name in ("cpu", "cuda")]
    assert not any(":1-" in text for text in writes[:-2])


@pytest.mark.parametrize(
    "options", [{"push": True}, {"stage": True}, {"push": True, "signer": KEY}]
)
def test_one_red_target_leaves_everything_as_it_is(run: Run, options: dict[str, Any]) -> None:
    for gate, state in ("scan", "failed"), ("smoke", "undecided"):
        run.works[1].gates |= {"scan": "passed", gate: state}  # type: ignore[dict-item]
        assert run.publish(**options) is None
        assert (run.pushes, run.registry.asked) == (["not-run"] * 2, [])


@pytest.mark.parametrize("signer", [None, KEY])
def test_an_image_that_cannot_be_pushed_leaves_no_tag(run: Run, signer: Any) -> None:
    run.engine.fails_at = TARGETS[1].id
    error = run.publish(stage=signer is None, push=signer is not None, signer=signer)
    assert isinstance(error, BuildError)
    assert run.pushes[1] == "failed"
    assert (run.tags, run.registry.listed) == (set(), {})


def failing(name: str, part: str, error: BaseException) -> Callable[[str, Reference], None]:
    def fails(asked: str, reference: Reference) -> None:
        if asked == name and part in str(reference):
            raise error

    return fails


def test_a_verdict_that_cannot_be_attached_leaves_no_tag(run: Run) -> None:
    run.registry.fails = failing("push_manifest", ".att", RequestError("it says 500", status=500))
    error = run.publish(push=True, signer=KEY)
    assert isinstance(error, UndecidedError)
    assert (run.pushes, run.tags) == (["undecided", "not-run"], set())
    assert run.works[0].errors == ["not attested: it says 500"]


def test_a_tag_that_cannot_be_set_is_said(run: Run) -> None:
    run.registry.fails = failing(
        "push_manifest", ":1-cuda", RequestError("it says 500", status=500)
    )
    error = run.publish(push=True, signer=KEY)
    assert isinstance(error, BuildError)
    assert (run.pushes, run.tags) == (["passed", "failed"], {"1-cpu"})
    assert run.works[1].errors == [
        f"not pushed: {NAME}:1-cuda was not set: it says 500; run it again to go on"
    ]
    run.registry.fails = lambda name, reference: None
    assert run.publish(push=True, signer=KEY) is None
    assert (run.pushes, run.tags) == (["passed"] * 2, {"1-cpu", "1-cuda"})


def test_a_stop_while_tags_are_set_is_an_interruption(run: Run) -> None:
    run.registry.fails = failing("push_manifest", ":1-cuda", KeyboardInterrupt())
    with pytest.raises(Interrupted, match=f"interrupted while {NAME}:1-cuda was set"):
        run.publish(push=True, signer=KEY)
    assert run.tags == {"1-cpu"}
