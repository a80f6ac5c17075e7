"""BM607: base images that are other images tomorrow."""

from __future__ import annotations

import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.judge.model import Finding
from buildmatrix.judge.sizes import check_unpinned_base
from buildmatrix.judge.subject import Subject
from buildmatrix.matrix.model import Base, PinnedBases, Policy, Position

AT = Position("buildmatrix.toml", 23, 8)
DIGEST = "@sha256:" + "0" * 64


def of_base(
    build: str, final: str | None = None, demand: PinnedBases | None = None
) -> list[Finding]:
    base = Base(build, final or build, AT, replace(AT, line=24))
    policy = Policy(pinned_bases=demand)
    return list(
        check_unpinned_base(Subject(replace(target("cpu"), base=base), load(), policy, None, ()))
    )


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("debian", "has no tag"),
        ("debian:latest", "has the tag `latest`"),
        ("registry.example.com:5000/debian", "has no tag"),
        ("python:3.12-slim", "has no digest"),
        ("debian:latest-slim", "has no digest"),
    ],
)
def test_what_a_reference_lacks(reference: str, said: str) -> None:
    (one,) = of_base(reference)
    assert said in one.message
    assert one.severity == ("note" if said == "has no digest" else "warning")
    assert one.chain == ("buildmatrix.toml:24", reference)


@pytest.mark.parametrize("reference", [f"debian{DIGEST}", f"debian:latest{DIGEST}", "scratch", ""])
def test_a_digest_pins_whatever_the_tag_says(reference: str) -> None:
    assert of_base(reference, demand="digest") == []


@pytest.mark.parametrize(
    ("demand", "latest", "tagged"),
    [
        (None, "warning", "note"),
        ("none", "note", "note"),
        ("tag", "error", "note"),
        ("digest", "error", "error"),
    ],
)
def test_the_policy_says_what_a_base_must_have(
    demand: PinnedBases | None, latest: str, tagged: str
) -> None:
    found = of_base("debian:latest", "debian:12", demand)
    assert [one.severity for one in found] == [latest, tagged]
    for one in found:
        assert (f'`pinned-bases = "{demand}"`' in one.message) == (one.severity == "error")


def test_two_stages_with_two_tags_of_one_image_are_two_findings() -> None:
    one, two = of_base("debian:12", "debian:13")
    assert one.fingerprint != two.fingerprint
    assert (one.chain[0], two.chain[0]) == ("buildmatrix.toml:23", "buildmatrix.toml:24")
    assert of_base("debian:12")[0].fingerprint == of_base("debian:13")[0].fingerprint


def test_what_no_specification_names_stays_quiet() -> None:
    subject = Subject(target("cpu"), load(), Policy(), None, ())
    assert list(check_unpinned_base(subject)) == []
