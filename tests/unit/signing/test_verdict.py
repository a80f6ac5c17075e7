"""The predicate: what of a report is signed, and its schema."""

from __future__ import annotations

import hashlib
import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.judge import acceptance
from buildmatrix.judge.findings import fingerprint
from buildmatrix.judge.model import ClimbedRung, Finding, TargetResult, Verdict
from buildmatrix.matrix.model import Policy, Position, Smoke, Spec, Target, Waiver
from buildmatrix.reports.run import Report, assemble
from buildmatrix.signing.verdict import encode, make_verdict, parse, schema, select_target

CUDA, CPU = target("cuda", "12.8"), target("cpu")
NOON = datetime(2026, 11, 22, 13, 0, 1, 999, tzinfo=timezone(timedelta(hours=1)))
GATES = dict.fromkeys(("lock", "build", "scan"), "passed")


def spec(root: Path, *targets: Target, accepted: tuple[Waiver, ...] = ()) -> Spec:
    return Spec(
        path=root / "buildmatrix.toml",
        project="demo",
        version="1",
        source=None,
        targets=targets,
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=accepted,
        catalogue=("mine.toml",),
    )


def finding(name: str, of: Target = CPU, severity: str = "error") -> Finding:
    return Finding(
        rule="BM301",
        name="foreign-needed",
        severity=severity,
        target=of.id,
        backend=of.backend,
        vendor="nvidia",
        distribution=name,
        version="1.0",
        message="it needs libcudart.so.12",
        fingerprint=fingerprint("BM301", of.backend, name, None, None),
    )


def accepting(reason: str) -> Waiver:
    owner, expires = "team@example.com", date(2027, 1, 31)
    return Waiver("BM301", (), "a", None, reason, owner, expires, Position("a", 1))


def report(*findings: Finding) -> Report:
    return assemble(
        "buildmatrix.toml",
        "2026-11-01",
        targets=[
            TargetResult(item.id, item.backend, gates=GATES, bases={"debian:12": "sha256:b"})
            for item in (CPU, CUDA)
        ],
        findings=findings,
        verdicts=[
            Verdict("numpy", "2.3", "cpu", "ok", "nothing foreign", targets=(CPU.id,)),
            Verdict("numpy", "2.3", "cuda", "ok", "nothing foreign", targets=(CUDA.id,)),
        ],
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text("# mine\n")
    return tmp_path


def made(root: Path, held: Report, of: Target = CPU) -> dict[str, object]:
    said = make_verdict(
        spec(root, CPU, CUDA), of, "sha256:10c4", held, NOON, fail_on="error", strict=False
    )
    data = encode(said)
    assert parse(data) == said
    document = json.loads(data)
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    return document


def test_it_says_what_was_judged_by_what(root: Path) -> None:
    said = made(root, report(), replace(CUDA, archs=("sm_80",)))
    assert said["schema"] == "buildmatrix/verdict/1"
    assert said["tool"]["catalogue"] == "2026-11-01"
    assert said["judged"] == "2026-11-22T12:00:01Z"
    assert said["target"] == {
        "id": "cuda12.8-py311-server",
        "backend": "cuda",
        "runtime": "12.8",
        "python": "3.11",
        "variant": "server",
        "platform": "linux/amd64",
        "architectures": ["sm_80"],
    }
    assert said["lock"] == "sha256:10c4"
    assert said["bases"] == {"debian:12": "sha256:b"}
    assert said["gates"] == {**GATES, "smoke": "not-run"}
    assert said["rules"]["fail_on"] == "error"
    assert "BM301" in said["rules"]["codes"]
    assert said["rules"]["catalogue_files"] == {
        "mine.toml": hashlib.sha256(b"# mine\n").hexdigest()
    }


def test_a_target_without_smoke_commands_has_no_such_gate(root: Path) -> None:
    smoke = Smoke("import", "import", ("python",), 1, Position("a", 1))
    assert made(root, report())["required"] == ["lock", "build", "scan"]
    asked = made(root, report(), replace(CPU, smoke=(smoke,)))
    assert asked["required"] == ["lock", "build", "scan", "smoke"]


def test_a_rung_with_an_accepted_failure_is_not_signed_as_passed(root: Path) -> None:
    rungs = (
        ClimbedRung("import", "passed", "accepted: benchmarks"),
        ClimbedRung("device", "passed"),
        ClimbedRung("compute", "not-run"),
    )
    held = report()
    climbed = replace(held, targets=tuple(replace(item, rungs=rungs) for item in held.targets))
    assert made(root, climbed)["rungs_passed"] == ["device"]
    assert "rungs_passed" not in made(root, held)


def test_only_what_is_about_the_target_is_in_it(root: Path) -> None:
    held = report(finding("a"), finding("b", CUDA), replace(finding("c", CUDA), also=(CPU.id,)))
    assert [item["distribution"] for item in made(root, held)["findings"]] == ["a", "c"]
    assert [item.targets for item in select_target(held, CPU.id).distributions] == [(CPU.id,)]


def test_what_was_accepted_says_by_whom_and_until_when(root: Path) -> None:
    waiver = accepting("never imported")
    known = finding("b")
    found = acceptance.apply_waivers(
        [finding("a"), known, finding("c", severity="note")], [waiver], NOON.date()
    )
    said = made(root, report(*acceptance.apply_baseline(found, {known.fingerprint})))
    assert said["counts"] == {"error": 0, "warning": 0, "note": 1, "accepted": 2}
    assert [item["accepted"] for item in said["findings"]] == [
        {
            "by": "waiver",
            "reason": "never imported",
            "owner": "team@example.com",
            "expires": "2027-01-31",
        },
        {
            "by": "baseline",
            "reason": "it is in the baseline report",
            "owner": None,
            "expires": None,
        },
        None,
    ]


def test_secrets_of_addresses_are_in_no_statement(root: Path) -> None:
    waiver = accepting("see https://me:hunter2@host.example.com/a")
    (found,) = acceptance.apply_waivers([finding("a")], [waiver], NOON.date())
    assert "hunter2" not in json.dumps(made(root, report(found)))


def test_the_same_verdict_gives_the_same_bytes(root: Path) -> None:
    one, two = (json.dumps(made(root, report(finding("a")))) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[" * 100_000, b'{"schema": "buildmatrix/verdict/2"}', b'{"schema": 7}'],
)
def test_what_is_no_verdict_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse(data)
