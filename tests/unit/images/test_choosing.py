"""Which entry of an index is judged: the one that each engine runs, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import (
    MANIFEST,
    Descriptor,
    Platform,
    check_configuration,
    choose,
    images_in,
)

ATTESTATION = {"vnd.docker.reference.type": "attestation-manifest"}


def entry(
    name: str, platform: str | None, annotations: Mapping[str, str] | None = None, **more: object
) -> Descriptor:
    os, _, rest = (platform or "").partition("/")
    architecture, _, variant = rest.partition("/")
    fields = {"os": os, "architecture": architecture, "variant": variant, **more}
    return Descriptor(
        media_type=MANIFEST,
        digest=f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
        size=1,
        annotations=annotations or {},
        platform=None if platform is None else Platform(**fields),
    )


def chosen(entries: list[Descriptor], wanted: str) -> int | str | None:
    """The number of an entry, None, or the sentence of a refusal."""
    try:
        found = choose(entries, Platform.parse(wanted), "the index")
    except UndecidedError as error:
        return error.message
    return None if found is None else entries.index(found)


def index_of_platforms(*platforms: str | None) -> list[Descriptor]:
    return [entry(str(number), platform) for number, platform in enumerate(platforms)]


#: As Docker's official images have them.
OFFICIAL = index_of_platforms(
    "linux/amd64", "unknown/unknown", "linux/arm/v5", "linux/arm/v7", "linux/arm64/v8", "linux/386",
    "linux/ppc64le", "linux/riscv64", "linux/s390x", "unknown/unknown",
)  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "wanted", "expected"),
    [
        *[
            (OFFICIAL, wanted, number)
            for wanted, number in (
                ("linux/amd64", 0), ("linux/amd64/v3", 0), ("linux/arm64", 4),
                ("linux/arm64/v8", 4), ("linux/arm/v7", 3), ("linux/arm/v6", 2),
                ("linux/386", 5), ("linux/s390x", 8),
                ("linux/x86_64", 0), ("linux/loong64", None),
            )
        ],
        (index_of_platforms("linux/amd64/v3", "linux/amd64"), "linux/amd64", 1),
        (index_of_platforms("linux/amd64/v3", "linux/amd64/v2"), "linux/amd64", None),
        # containerd alone runs these.
        (index_of_platforms("Linux/x86_64"), "linux/amd64", 0),
        (index_of_platforms("linux/amd64/v1"), "linux/amd64", 0),
        (index_of_platforms("/amd64"), "linux/amd64", 0),
        # An entry without a platform is for those that find no other.
        (index_of_platforms(None, "linux/amd64"), "linux/amd64", 1),
        (index_of_platforms(None), "linux/amd64", 0),
        (index_of_platforms("linux/arm64", ""), "linux/amd64", 1),
        # An annotation hides nothing from an engine.
        ([entry("a", "linux/amd64", ATTESTATION)], "linux/amd64", 0),
        # One image twice is one image.
        ([entry("a", "linux/amd64"), entry("a", "linux/x86_64")], "linux/amd64", 0),
        ([entry("a", "linux/amd64", ATTESTATION), entry("b", "linux/amd64")], "linux/amd64", "2"),
        (index_of_platforms("Linux/x86_64", "linux/amd64"), "linux/amd64", "2"),
        (index_of_platforms("linux/amd64/v1", "linux/amd64"), "linux/amd64", "2"),
        (index_of_platforms("linux/arm64", "linux/arm64/v8"), "linux/arm64", "2"),
        (index_of_platforms("linux/x86_64", None), "linux/amd64", "2"),
        (index_of_platforms(None, ""), "linux/amd64", "2"),
        (index_of_platforms("linux/arm/v8", "linux/arm/v7"), "linux/arm", "2"),
        (
            [entry("a", "windows/amd64", os_version="1"), entry("b", "windows/amd64")],
            "windows/amd64",
            "2",
        ),
        # Since version 1.0, containerd's package passes over features that the machine lacks.
        (
            [entry("a", "linux/amd64", os_features=("x",)), entry("b", "linux/386")],
            "linux/amd64",
            "2",
        ),
        # containerd falls back to what the processor can run, and podman does not.
        (index_of_platforms("linux/386"), "linux/amd64", "1"),
        (index_of_platforms("linux/arm/v7"), "linux/arm64", "1"),
        (index_of_platforms("linux/386", None), "linux/amd64", "2"),
    ],
)  # fmt: skip
def test_what_engines_agree_on_is_chosen_and_what_they_do_not_is_named(
    entries: list[Descriptor], wanted: str, expected: int | str | None
) -> None:
    found = chosen(entries, wanted)
    if isinstance(expected, str):
        assert isinstance(found, str)
        named = [one.digest in found for one in entries].count(True)
        assert named == int(expected) or (expected == "1" and "give --platform" in found)
    else:
        assert found == expected


def test_only_what_no_machine_is_counts_as_an_attestation() -> None:
    entries = [
        entry("a", "unknown/unknown", ATTESTATION),
        entry("b", "linux/amd64", ATTESTATION),
        entry("c", "unknown/amd64", ATTESTATION),
        entry("d", None, ATTESTATION),
    ]
    assert images_in(entries) == tuple(entries[1:])


@pytest.mark.parametrize(
    ("platform", "configured", "is_fine"),
    [
        ("linux/amd64", "linux/amd64", True),
        ("linux/arm64/v8", "linux/arm64", True),
        ("linux/arm/v6", "linux/arm", True),
        ("Linux/x86_64", "linux/amd64", True),
        (None, "linux/amd64", True),
        ("linux/amd64", "linux/arm64", False),
        ("linux/arm/v6", "linux/arm/v7", False),
        (None, "linux/arm64", False),
    ],
)
def test_an_index_and_a_configuration_that_disagree_are_undecided(
    platform: str | None, configured: str, is_fine: bool
) -> None:
    one, wanted = entry("a", platform), Platform.parse("linux/amd64")
    if is_fine:
        check_configuration(one, wanted, Platform.parse(configured))
    else:
        with pytest.raises(UndecidedError, match=configured):
            check_configuration(one, wanted, Platform.parse(configured))


@pytest.mark.parametrize(
    ("machine", "image", "expected"),
    [
        ("linux/amd64", "Linux/x86_64", True),
        ("linux/arm64", "linux/arm64/v8", True),
        ("linux/arm/v6", "linux/arm", True),
        ("linux/amd64", "linux/amd64/v3", False),
        ("linux/amd64", "linux/386", False),
    ],
)
def test_a_machine_runs_what_is_for_it(machine: str, image: str, expected: bool) -> None:
    assert Platform.parse(machine).runs(Platform.parse(image)) is expected
