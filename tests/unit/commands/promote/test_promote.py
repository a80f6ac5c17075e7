"""`promote`: all tags or none; and what it says and does after a stop in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import jsonschema
import pytest
from memory_registry import MemoryRegistry

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.commands.options import PromoteOptions
from buildmatrix.commands.promote import promote
from buildmatrix.images.documents import INDEX, MANIFEST, ImageIndex, Manifest, encode
from buildmatrix.judge.model import Acceptance, Finding, StagedImage, TargetResult
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.json_form import render as as_json
from buildmatrix.reports.run import Report, assemble
from buildmatrix.reports.saved import read
from buildmatrix.reports.verify import Promotion, render_promotion

NAME = "registry.example.com/demo"
TARGETS = ("cpu", "cuda", "rocm")
TODAY = date(2026, 11, 22)
GATES = {"lock": "passed", "build": "passed", "scan": "passed", "smoke": "not-run"}


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def staged(registry: MemoryRegistry, id: str, *tags: str) -> TargetResult:
    """A target whose image lies in the registry without a tag."""
    scratch = Reference.parse(f"{NAME}:scratch")
    image = registry.image(scratch, salt=id)
    del registry.tags[NAME, "scratch"]
    tags = tags or (f"1.4.0-{id}", f"latest-{id}")
    return TargetResult(
        id, id, gates=GATES, push="passed", staged=StagedImage(NAME, image.digest, tags)
    )


def report(*targets: TargetResult, findings: tuple[Finding, ...] = ()) -> Report:
    return assemble("buildmatrix.toml", "2026-11-01", targets=targets, findings=findings)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def reports(registry: MemoryRegistry) -> list[Report]:
    """Those of three machines."""
    return [report(staged(registry, id)) for id in TARGETS]


def promoted(
    registry: MemoryRegistry, reports: list[Report], fail_on: str = "error"
) -> tuple[Promotion, int, list[str]]:
    notes = Notes()
    options = PromoteOptions([], fail_on=fail_on)
    promotion, code = promote(registry, reports, options, TODAY, notes)
    document = json.loads(as_json(promotion))
    jsonschema.validate(document, document_schema("promotion"), cls=jsonschema.Draft202012Validator)
    assert render_promotion(promotion, width=80, color=False)
    assert promotion.promoted == (code == 0)
    return promotion, code, notes.said


def tags(registry: MemoryRegistry) -> dict[str, str]:
    return {tag: digest for (_, tag), digest in registry.tags.items()}


def digests(reports: list[Report]) -> dict[str, str]:
    return {
        tag: target.staged.digest
        for item in reports
        for target in item.targets
        for tag in target.staged.tags
    }


def states(promotion: Promotion) -> list[str]:
    return [move.state for move in promotion.moves]


def test_all_tags_of_all_machines_are_set(registry: MemoryRegistry, reports: list[Report]) -> None:
    promotion, code, notes = promoted(registry, reports)
    assert code == 0
    assert states(promotion) == ["moved"] * 6
    assert tags(registry) == digests(reports)
    assert len(notes) == 6
    assert notes[0] == f"{NAME}:1.4.0-cpu: no such tag -> {tags(registry)['1.4.0-cpu']}"


def test_again_it_writes_nothing(registry: MemoryRegistry, reports: list[Report]) -> None:
    promoted(registry, reports)
    registry.asked.clear()
    promotion, code, notes = promoted(registry, reports)
    assert (code, notes, states(promotion)) == (0, [], ["already"] * 6)
    assert not any(request.startswith("push") for request in registry.asked)


def test_the_old_digest_of_a_moved_tag_is_told(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    old = registry.image(Reference.parse(f"{NAME}:1.4.0-cuda"), salt="old")
    promotion, _, notes = promoted(registry, reports)
    assert [move.before for move in promotion.moves] == [None, None, old.digest, None, None, None]
    assert notes[2] == f"{NAME}:1.4.0-cuda: {old.digest} -> {digests(reports)['1.4.0-cuda']}"
    assert f"(before: {old.digest})" in render_promotion(promotion, width=80, color=False)


@pytest.mark.parametrize(
    ("gate", "state", "code"),
    [
        ("lock", "failed", 1),
        ("build", "failed", 4),
        ("scan", "undecided", 3),
        ("smoke", "failed", 1),
    ],
)
def test_nothing_is_set_while_one_report_is_not_green(
    registry: MemoryRegistry, reports: list[Report], gate: str, state: str, code: int
) -> None:
    (target,) = reports[1].targets
    bad = replace(
        target, gates={**GATES, gate: state}, error="it failed", staged=None, push="not-run"
    )
    reports[1] = report(bad)
    promotion, found, _ = promoted(registry, reports)
    assert (found, tags(registry)) == (code, {})
    assert promotion.problems == ("no tag was set: these targets are not green: cuda",)
    assert states(promotion) == ["not-tried"] * 4


def test_findings_count_as_they_do_in_a_report(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    warning = Finding(
        rule="BM301", name="foreign-needed", severity="warning", target="cpu", backend="cpu",
        vendor=None, message="a warning", fingerprint="0" * 32,
    )  # fmt: skip
    reports[0] = report(*reports[0].targets, findings=(warning,))
    promotion, code, _ = promoted(registry, reports, "warning")
    assert (code, tags(registry)) == (1, {})
    assert promotion.problems == ("no tag was set: the reports give exit code 1",)
    assert promoted(registry, reports)[1] == 0


def test_nothing_is_set_while_one_image_is_gone(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    (last,) = reports[2].targets
    data = registry.manifests.pop((NAME, last.staged.digest))
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (3, {})
    assert "no tag was set: the registry" in promotion.problems[0]
    registry.manifests[NAME, last.staged.digest] = data
    blobs = dict(registry.blobs)
    registry.blobs.popitem()
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (3, {})
    assert "is incomplete: its registry lost sha256:" in promotion.problems[0]
    registry.blobs = blobs
    assert promoted(registry, reports)[1] == 0


def waived(severity: str, expires: str | None) -> Finding:
    acceptance = Acceptance(by="waiver", reason="never used", owner="team", expires=expires)
    return Finding(
        rule="BM301", name="foreign-needed", severity=severity, target="cpu", backend="cpu",
        vendor=None, message="a finding", fingerprint="0" * 32, distribution="acme",
        waived="never used (team)", acceptance=acceptance,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expires", "over"),
    [("2026-11-21", True), ("2026-11-22", False), ("someday", True), (None, False)],
)
def test_nothing_is_set_once_a_waiver_of_a_report_is_over(
    registry: MemoryRegistry, reports: list[Report], tmp_path: Path, expires: str, over: bool
) -> None:
    """As files have it: reports wait for days until somebody promotes them."""
    file = tmp_path / "report.json"
    found = waived("error", expires)
    file.write_text(as_json(report(*reports[0].targets, findings=(found,))))
    reports[0] = read(file)
    promotion, code, _ = promoted(registry, reports)
    if not over:
        assert (code, tags(registry)) == (0, digests(reports))
        return
    assert (code, tags(registry)) == (1, {})
    assert promotion.problems == (
        f"no tag was set: BM301 of acme was accepted by team until {expires}, which has passed: "
        "never used",
    )


def test_a_waiver_that_is_over_counts_as_the_finding_does(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    over = waived("warning", "2020-01-01")
    reports[0] = report(*reports[0].targets, findings=(over,))
    assert promoted(registry, reports, "warning")[1] == 1
    assert tags(registry) == {}
    assert promoted(registry, reports)[1] == 0


def attested(
    registry: MemoryRegistry, target: TargetResult, about: str | None = None
) -> TargetResult:
    assert target.staged is not None
    image = Reference.parse(NAME).at(about or target.staged.digest)
    config = registry.manifest(Reference.parse(NAME).at(target.staged.digest)).descriptor
    subject = registry.manifest(image).descriptor
    registry.blobs[NAME, config.digest] = b""
    data = encode(Manifest(media_type=MANIFEST, config=config, layers=(), subject=subject))
    return replace(target, attestation=registry.push_referrer(image, data).digest)


def test_nothing_is_set_while_one_verdict_is_gone(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    with_verdict = attested(registry, reports[2].targets[0])
    reports[2] = report(with_verdict)
    assert with_verdict.attestation is not None
    data = registry.manifests.pop((NAME, with_verdict.attestation))
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (3, {})
    assert promotion.problems[0].startswith("no tag was set: the registry")
    assert with_verdict.attestation in promotion.problems[0]
    registry.manifests[NAME, with_verdict.attestation] = data
    assert promoted(registry, reports)[1] == 0


def test_nothing_is_set_where_the_verdict_is_about_another_image(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    other = reports[0].targets[0].staged
    assert other is not None
    reports[2] = report(attested(registry, reports[2].targets[0], other.digest))
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (3, {})
    assert f"is about {other.digest}, and not about sha256:" in promotion.problems[0]


def test_the_images_of_an_index_have_to_be_there_too(registry: MemoryRegistry) -> None:
    one = staged(registry, "cpu")
    child = registry.manifest(Reference.parse(NAME).at(one.staged.digest))
    index = encode(ImageIndex(schema_version=2, media_type=INDEX, manifests=(child.descriptor,)))
    top = registry.push_manifest(Reference.parse(NAME), index, INDEX)
    target = replace(one, staged=replace(one.staged, digest=top.digest))
    del registry.manifests[NAME, child.digest]
    assert promoted(registry, [report(target)])[1] == 3
    registry.manifests[NAME, child.digest] = child.data
    assert promoted(registry, [report(target)])[1] == 0
    assert set(tags(registry).values()) == {top.digest}


def test_reports_of_one_target_contradict_each_other(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    with pytest.raises(UsageError, match="cpu is in more than one report"):
        promoted(registry, [*reports, reports[0]])


def test_one_tag_for_two_images_is_a_contradiction(registry: MemoryRegistry) -> None:
    both = [report(staged(registry, id, "latest")) for id in ("cpu", "cuda")]
    with pytest.raises(UsageError, match=rf"{NAME}:latest is the tag of 2 images"):
        promoted(registry, both)
    assert tags(registry) == {}


def test_what_was_not_staged_cannot_be_promoted(
    registry: MemoryRegistry, reports: list[Report]
) -> None:
    (target,) = reports[0].targets
    pushed = report(replace(target, staged=None))
    with pytest.raises(UsageError, match="cpu was not staged"):
        promoted(registry, [pushed, *reports[1:]])
    with pytest.raises(UsageError, match="nothing to promote"):
        promoted(registry, [report()])
    untagged = replace(target, staged=replace(target.staged, tags=()))
    with pytest.raises(UsageError, match="has a tag"):
        promoted(registry, [report(untagged)])


# Faults


def failing(at: int, error: BaseException) -> Callable[[str, Reference], None]:
    """Fails at one of the writes, before it happens."""
    writes = iter(range(1000))

    def fails(name: str, reference: Reference) -> None:
        if name == "push_manifest" and next(writes) == at:
            raise error

    return fails


@pytest.mark.parametrize("at", range(6))
def test_a_registry_that_fails_at_one_tag(
    registry: MemoryRegistry, reports: list[Report], at: int
) -> None:
    old = registry.image(Reference.parse(f"{NAME}:1.4.0-cpu"), salt="old")
    registry.fails = failing(at, RequestError("the registry answers 500", status=500))
    promotion, code, _ = promoted(registry, reports)
    assert code == 3
    assert states(promotion) == ["moved"] * at + ["failed"] + ["not-tried"] * (5 - at)
    name = promotion.moves[at].reference
    assert promotion.problems == (
        f"{name} was not set: the registry answers 500",
        "run it again to go on",
    )
    wanted = list(digests(reports).items())
    assert tags(registry) == {"1.4.0-cpu": old.digest, **dict(wanted[:at])}
    assert promotion.moves[0].before == old.digest

    registry.fails = lambda name, reference: None
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (0, dict(wanted))
    assert states(promotion) == ["already"] * at + ["moved"] * (6 - at)


@pytest.mark.parametrize("at", range(6))
def test_a_stop_by_the_user_says_how_far_it_got(
    registry: MemoryRegistry, reports: list[Report], at: int
) -> None:
    registry.fails = failing(at, KeyboardInterrupt())
    promotion, code, _ = promoted(registry, reports)
    assert code == 130
    assert states(promotion) == ["moved"] * at + ["failed"] + ["not-tried"] * (5 - at)
    assert promotion.problems[0].startswith("interrupted while")


@pytest.mark.parametrize("at", range(6))
def test_a_death_between_tags_leaves_what_a_later_run_finishes(
    registry: MemoryRegistry, reports: list[Report], at: int
) -> None:
    """What a `kill -9` leaves: nothing runs after it, neither a report nor a clean-up."""

    class Death(BaseException):
        pass

    registry.fails = failing(at, Death())
    with pytest.raises(Death):
        promoted(registry, reports)
    registry.fails = lambda name, reference: None
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (0, digests(reports))
    assert states(promotion) == ["already"] * at + ["moved"] * (6 - at)


@pytest.mark.parametrize("request_name", ["manifest", "has_blob"])
def test_a_registry_that_cannot_be_read_is_not_written(
    registry: MemoryRegistry, reports: list[Report], request_name: str
) -> None:
    asked = iter(range(1000))

    def fails(name: str, reference: Reference) -> None:
        assert not name.startswith("push")
        if name == request_name and next(asked) == 2:
            raise UndecidedError("the registry does not answer")

    registry.fails = fails
    promotion, code, _ = promoted(registry, reports)
    assert (code, tags(registry)) == (3, {})
    assert promotion.problems == ("no tag was set: the registry does not answer",)


def test_a_registry_that_takes_a_tag_and_forgets_it(
    registry: MemoryRegistry, reports: list[Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "push_manifest", lambda *arguments: None)
    promotion, code, _ = promoted(registry, reports)
    assert (code, states(promotion)[0]) == (3, "failed")
    assert "its registry accepted the tag, and then resolved it to nothing" in promotion.problems[0]


def test_an_image_that_was_not_the_judged_one_is_not_promoted(registry: MemoryRegistry) -> None:
    target = replace(staged(registry, "cpu"), digest="sha256:" + 64 * "0")
    with pytest.raises(UsageError, match="its report was changed"):
        promoted(registry, [report(target)])
    assert tags(registry) == {}


def test_two_spellings_of_a_tag_are_one_tag(registry: MemoryRegistry) -> None:
    first, second = (staged(registry, id, "1") for id in ("cpu", "cuda"))
    assert first.staged and second.staged
    short = replace(first, staged=replace(first.staged, repository="demo"))
    long = replace(second, staged=replace(second.staged, repository="docker.io/library/demo"))
    with pytest.raises(UsageError, match="is the tag of 2 images"):
        promoted(registry, [report(short), report(long)])


@pytest.mark.parametrize("tag", ["1@sha256:" + 64 * "0", "", "a b"])
def test_what_is_no_tag_is_not_set(registry: MemoryRegistry, tag: str) -> None:
    with pytest.raises(UsageError, match=r"is (no tag|not the name) of an image"):
        promoted(registry, [report(staged(registry, "cpu", tag))])
    assert tags(registry) == {}
