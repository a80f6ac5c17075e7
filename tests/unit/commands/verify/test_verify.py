"""`verify`: each reason not to admit an image has its sentence, and its exit code."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_registry import IMAGE, MemoryRegistry, digest_of
from verdict_cases import ALL, GOOD

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands.verify import (
    AdmissionDemands,
    exit_code,
    find_unmet_demands,
    verify,
    verify_envelopes,
)
from buildmatrix.images.documents import (
    INDEX,
    Descriptor,
    ImageIndex,
    Platform,
    encode,
    index_of,
    manifest_of,
)
from buildmatrix.judge.model import Acceptance
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.json_form import render as as_json
from buildmatrix.reports.verify import Verification, render
from buildmatrix.signing import documents, verdict
from buildmatrix.signing.attached import AttachedEnvelope, Claim, attach, attestation_tag
from buildmatrix.signing.documents import Envelope, PrivateKey, read_private
from buildmatrix.signing.verdict import FindingCounts, JudgedFinding, TargetVerdict

VECTORS = Path(__file__).parents[2] / "signing/vectors"
KEY = read_private(VECTORS / "openssl.pem", None)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TODAY = date(2026, 11, 22)
DEMANDS = AdmissionDemands("rocm", (KEY.public,), TODAY)


@cache
def other_key() -> PrivateKey:
    """Its passphrase costs half a second."""
    return read_private(VECTORS / "ed25519.key", "secret")


def accepted(expires: str | None) -> TargetVerdict:
    acceptance = Acceptance(by="waiver", reason="never used", owner="team", expires=expires)
    found = JudgedFinding(
        rule="BM301",
        severity="error",
        fingerprint="0" * 32,
        distribution="acme",
        accepted=acceptance,
    )
    return replace(GOOD, findings=(found,), counts=FindingCounts(accepted=1))


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def attached(
    registry: MemoryRegistry, held: TargetVerdict = GOOD, key: object = KEY, image: object = None
) -> Reference:
    image = image or registry.image()
    claim = Claim(held.target.id, verdict.PREDICATE_TYPE, verdict.encode(held))
    attach(registry, image, claim, key, NOW)
    return image


def asked(registry: MemoryRegistry, demands: AdmissionDemands = DEMANDS) -> Verification:
    found = verify(registry, str(IMAGE), IMAGE, demands)
    document = json.loads(as_json(found))
    jsonschema.validate(
        document, document_schema("verification"), cls=jsonschema.Draft202012Validator
    )
    assert render(found, width=80, color=False)
    return found


def refused(registry: MemoryRegistry, demands: AdmissionDemands = DEMANDS) -> tuple[str, str]:
    """The one reason, and its sentence."""
    found = asked(registry, demands)
    assert exit_code(found) == 1
    (refusal,) = found.refusals
    return refusal.reason, refusal.message


def test_an_image_with_its_proof_is_admitted(registry: MemoryRegistry) -> None:
    image = attached(registry)
    found = asked(registry)
    assert exit_code(found) == 0
    assert (found.verified, found.refusals, found.notes) == (True, (), ())
    assert (found.repository, found.digest) == (image.name, image.digest)
    assert found.proof is not None
    assert found.proof.target == "rocm6.4-py311-server"
    assert found.proof.key == KEY.public.hint


def test_the_proof_is_found_under_the_tag_of_older_cosign(registry: MemoryRegistry) -> None:
    image = attached(registry)
    registry.listed.clear()
    found = asked(registry)
    assert found.verified and found.proof is not None
    assert found.proof.attestation == attestation_tag(image).tag


def test_no_layer_and_no_configuration_is_read(registry: MemoryRegistry) -> None:
    image = attached(registry)
    registry.asked.clear()
    asked(registry)
    config = manifest_of(registry.manifest(image).data, "it").config
    assert not any(config.digest in request for request in registry.asked)
    assert len([request for request in registry.asked if request.startswith("blob")]) == 1


def test_an_image_without_an_attestation(registry: MemoryRegistry) -> None:
    registry.image()
    assert refused(registry) == (
        "no-attestation",
        "the image has no verdict of buildmatrix with it; `build --push --attest` attaches it",
    )


def test_attestations_of_other_kinds_are_none(registry: MemoryRegistry) -> None:
    image = registry.image()
    attach(registry, image, Claim("rocm", "https://slsa.dev/provenance/v1", b"{}"), KEY, NOW)
    assert refused(registry)[0] == "no-attestation"


def test_an_attestation_of_another_key(registry: MemoryRegistry) -> None:
    attached(registry, key=other_key())
    reason, message = refused(registry)
    assert reason == "other-key"
    assert message.endswith(f"is signed by another key ({other_key().public.hint[:19]})")


def test_one_of_several_keys_is_enough(registry: MemoryRegistry) -> None:
    attached(registry)
    demands = replace(DEMANDS, keys=(other_key().public, KEY.public))
    assert asked(registry, demands).verified


def rewritten(registry: MemoryRegistry, image: Reference, change: object) -> None:
    """The bundle with another envelope; without the tag of older cosign."""
    registry.tags.pop((image.name, attestation_tag(image).tag))
    (listed,) = registry.listed.pop(image.digest)
    held = manifest_of(registry.manifests[image.name, listed.digest], "it")
    before = documents.parse_bundle(registry.blobs[image.name, held.layers[0].digest])
    after = msgspec.json.encode(
        msgspec.structs.replace(before, dsse_envelope=change(before.dsse_envelope))
    )
    registry.blobs[image.name, digest_of(after)] = after
    layer = Descriptor(media_type=documents.MEDIA_TYPE, digest=digest_of(after), size=len(after))
    registry.push_referrer(image, encode(msgspec.structs.replace(held, layers=(layer,))))


def test_an_attestation_that_was_changed(registry: MemoryRegistry) -> None:
    image = attached(registry, accepted("2026-01-31"))

    def later(envelope: Envelope) -> Envelope:
        payload = envelope.payload.replace(b"2026-01-31", b"2999-01-31")
        assert payload != envelope.payload
        return msgspec.structs.replace(envelope, payload=payload)

    rewritten(registry, image, later)
    reason, message = refused(registry)
    assert reason == "changed"
    assert message.endswith("was changed after it was signed")


def test_an_attestation_whose_signature_was_stripped(registry: MemoryRegistry) -> None:
    image = attached(registry)
    rewritten(registry, image, lambda envelope: msgspec.structs.replace(envelope, signatures=()))
    reason, message = refused(registry)
    assert (reason, message.endswith("has lost its signature")) == ("stripped", True)


def test_an_attestation_that_is_listed_and_gone(registry: MemoryRegistry) -> None:
    image = attached(registry)
    registry.tags.pop((image.name, attestation_tag(image).tag))
    del registry.manifests[image.name, registry.listed[image.digest][0].digest]
    reason, message = refused(registry)
    assert reason == "stripped"
    assert message.endswith("is listed, and the registry does not have it")


def test_an_attestation_of_another_image(registry: MemoryRegistry) -> None:
    other = attached(registry, image=registry.image(IMAGE.with_tag("2"), salt="other"))
    image = registry.image()
    registry.listed[image.digest] = registry.listed[other.digest]
    assert refused(registry) == (
        "other-image",
        f"the attestation {registry.listed[image.digest][0].digest[:19]} is about another image "
        f"(sha256:{other.digest[7:19]})",
    )


def test_an_image_of_another_backend(registry: MemoryRegistry) -> None:
    attached(registry)
    assert refused(registry, replace(DEMANDS, backend="cuda")) == (
        "other-backend",
        "the image was judged for rocm, and not for cuda",
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [("failed", "failed"), ("undecided", "is undecided"), ("not-run", "did not run")],
)
@pytest.mark.parametrize("gate", ALL)
def test_a_gate_that_did_not_pass(
    registry: MemoryRegistry, gate: str, state: str, words: str
) -> None:
    attached(registry, replace(GOOD, gates={**GOOD.gates, gate: state}))
    assert refused(registry) == ("gate", f"the gate {gate} {words}")


def test_smoke_commands_that_nobody_ran_may_be_passed_over(registry: MemoryRegistry) -> None:
    attached(registry, replace(GOOD, gates={**GOOD.gates, "smoke": "not-run"}))
    assert asked(registry, replace(DEMANDS, smoke=False)).verified


def test_smoke_commands_that_failed_may_not(registry: MemoryRegistry) -> None:
    attached(registry, replace(GOOD, gates={**GOOD.gates, "smoke": "failed"}))
    assert refused(registry, replace(DEMANDS, smoke=False)) == ("gate", "the gate smoke failed")


def test_a_target_without_smoke_commands_lacks_none(registry: MemoryRegistry) -> None:
    gates = {**GOOD.gates, "smoke": "not-run"}
    attached(registry, replace(GOOD, gates=gates, required=("lock", "build", "scan")))
    assert asked(registry).verified


def test_errors_that_a_run_let_pass(registry: MemoryRegistry) -> None:
    rules = replace(GOOD.rules, fail_on="never")
    attached(registry, replace(GOOD, rules=rules, counts=FindingCounts(error=2)))
    assert refused(registry) == ("finding", "2 errors open: it was built with --fail-on never")


@pytest.mark.parametrize(
    ("expires", "over"),
    [("2026-11-21", True), ("2026-11-22", False), ("someday", True), (None, False)],
)
def test_what_was_accepted_until_a_day(
    registry: MemoryRegistry, expires: str | None, over: bool
) -> None:
    attached(registry, accepted(expires))
    if not over:
        assert asked(registry).verified
        return
    assert refused(registry) == (
        "expired",
        f"BM301 of acme was accepted by team until {expires}, which has passed: never used",
    )


@pytest.mark.parametrize(("days", "admitted"), [(20, False), (21, True), (None, True)])
def test_the_age_of_the_catalogue(
    registry: MemoryRegistry, days: int | None, admitted: bool
) -> None:
    attached(registry)
    demands = replace(DEMANDS, max_age=timedelta(days=days) if days is not None else None)
    if admitted:
        assert asked(registry, demands).verified
        return
    assert refused(registry, demands) == (
        "old-catalogue",
        "it was judged by the catalogue of 2026-11-01, 21 days old; 20 are allowed: build it again "
        "with a newer buildmatrix",
    )


def test_a_catalogue_without_a_day_is_too_old(registry: MemoryRegistry) -> None:
    attached(registry, replace(GOOD, tool=replace(GOOD.tool, catalogue="soon")))
    demands = replace(DEMANDS, max_age=timedelta(days=1))
    assert refused(registry, demands)[0] == "old-catalogue"


def test_every_reason_is_told(registry: MemoryRegistry) -> None:
    bad = replace(accepted("2020-01-01"), gates={**GOOD.gates, "scan": "failed"})
    attached(registry, bad)
    found = asked(registry, replace(DEMANDS, max_age=timedelta(days=1)))
    assert [item.reason for item in found.refusals] == ["gate", "expired", "old-catalogue"]


def test_the_newest_verdict_counts(registry: MemoryRegistry) -> None:
    """An older one that was better says nothing of today."""
    image = attached(registry, replace(GOOD, judged="2026-11-03T00:00:00Z"))
    worse = {**GOOD.gates, "scan": "failed"}
    attached(registry, replace(GOOD, judged="2026-11-04T00:00:00Z", gates=worse), image=image)
    attached(registry, replace(GOOD, judged="2026-11-02T00:00:00Z"), image=image)
    assert refused(registry) == ("gate", "the gate scan failed")


def test_the_newest_verdict_counts_behind_more_than_are_read(registry: MemoryRegistry) -> None:
    """The same image may be attested every day; a registry lists in the order that it likes."""
    image = registry.image()

    def attest(day: int, held: TargetVerdict) -> None:
        now = NOW + timedelta(days=day)
        held = replace(held, judged=now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        claim = Claim(held.target.id, verdict.PREDICATE_TYPE, verdict.encode(held))
        attach(registry, image, claim, KEY, now)

    for day in range(70):
        attest(day, GOOD)
    attest(70, replace(GOOD, gates={**GOOD.gates, "scan": "failed"}))
    assert refused(registry) == ("gate", "the gate scan failed")


def test_the_verdict_is_found_behind_what_others_attested_under_the_tag(
    registry: MemoryRegistry,
) -> None:
    image = registry.image()
    for number in range(40):
        attach(registry, image, Claim(str(number), "https://slsa.dev/v1", b"{}"), KEY, NOW)
    attached(registry, image=image)
    registry.listed.clear()
    assert asked(registry).verified


def test_verdicts_for_two_backends_do_not_disturb_each_other(registry: MemoryRegistry) -> None:
    image = attached(registry)
    other = replace(GOOD, judged="2026-11-09T00:00:00Z", target=replace(GOOD.target, backend="cpu"))
    attached(registry, other, image=image)
    assert asked(registry).verified
    assert asked(registry, replace(DEMANDS, backend="cpu")).verified


def test_what_somebody_else_attached_besides_is_a_note(registry: MemoryRegistry) -> None:
    image = attached(registry)
    attached(registry, key=other_key(), image=image)
    found = asked(registry)
    assert found.verified
    (note,) = found.notes
    assert "is signed by another key" in note


@pytest.mark.parametrize(
    "predicate",
    [
        b"{}",
        b"[]",
        b"7",
        b'{"schema": "buildmatrix/verdict/1"}',
        b'{"schema": "buildmatrix/verdict/9"}',
    ],
)
def test_a_signed_verdict_of_another_form_is_unreadable(
    registry: MemoryRegistry, predicate: bytes
) -> None:
    image = registry.image()
    attach(registry, image, Claim("rocm", verdict.PREDICATE_TYPE, predicate), KEY, NOW)
    found = asked(registry)
    assert {item.reason for item in found.refusals} == {"unreadable"}


def test_what_a_key_did_not_sign_is_never_parsed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached(registry, key=other_key())
    monkeypatch.setattr("buildmatrix.signing.documents.parse_statement", None)
    monkeypatch.setattr("buildmatrix.signing.verdict.parse", None)
    assert {item.reason for item in asked(registry).refusals} == {"other-key"}


# Several images under one name


def on(platform: str) -> AdmissionDemands:
    return replace(DEMANDS, platform=Platform.parse(platform))


def test_a_platform_is_demanded_of_a_single_image_too(registry: MemoryRegistry) -> None:
    attached(registry)
    assert asked(registry, on("linux/amd64")).verified
    assert refused(registry, on("linux/arm64")) == (
        "other-platform",
        "the image was judged for linux/amd64, and not for linux/arm64",
    )


def several(registry: MemoryRegistry) -> dict[str, Reference]:
    images = {name: registry.image(IMAGE.with_tag(name), salt=name) for name in ("amd64", "arm64")}
    entries = tuple(
        msgspec.structs.replace(
            registry.resolve(image), platform=Platform(os="linux", architecture=name)
        )
        for name, image in images.items()
    )
    index = ImageIndex(schema_version=2, media_type=INDEX, manifests=entries)
    registry.push_manifest(IMAGE, encode(index), INDEX)
    return images


def test_a_multi_platform_index_has_to_be_told_apart(registry: MemoryRegistry) -> None:
    images = several(registry)
    arm64 = replace(GOOD, target=replace(GOOD.target, platform="linux/arm64"))
    attached(registry, arm64, image=images["arm64"])
    assert refused(registry) == (
        "multi-platform",
        "the name is that of several images (linux/amd64, linux/arm64), and a verdict is about "
        "one: name one with --platform, or by its digest",
    )
    found = asked(registry, on("linux/arm64"))
    assert found.verified and found.digest == images["arm64"].digest
    amd64 = refused(registry, on("linux/amd64"))
    assert amd64[0] == "no-attestation"
    with pytest.raises(UndecidedError, match="has no image for linux/s390x"):
        asked(registry, on("linux/s390x"))


def test_a_verdict_about_an_index_says_nothing_of_several_images(registry: MemoryRegistry) -> None:
    """Nobody scanned that for arm64, and a node of arm64 would run it."""
    several(registry)
    attached(registry, image=IMAGE.at(registry.resolve(IMAGE).digest))
    assert refused(registry)[0] == "multi-platform"


def test_a_verdict_about_an_index_of_one_image_is_about_the_image(registry: MemoryRegistry) -> None:
    """BuildKit makes such an index, with its own attestation beside the image."""
    several(registry)
    index = index_of(registry.manifest(IMAGE).data, "it")
    first, second = index.manifests
    unknown = Platform(os="unknown", architecture="unknown")
    second = msgspec.structs.replace(second, platform=unknown)
    index = msgspec.structs.replace(index, manifests=(first, second))
    registry.push_manifest(IMAGE, encode(index), INDEX)
    attached(registry, image=IMAGE.at(registry.resolve(IMAGE).digest))
    assert asked(registry).verified


@pytest.mark.parametrize(
    ("first", "annotations"),
    [
        # What podman and containerd run, though its annotation calls it an attestation.
        ("linux/amd64", {"vnd.docker.reference.type": "attestation-manifest"}),
        # What containerd alone runs.
        ("Linux/x86_64", {}),
        ("linux/amd64/v1", {}),
    ],
)
def test_an_index_in_which_another_image_may_run_is_no_proof(
    registry: MemoryRegistry, first: str, annotations: dict[str, str]
) -> None:
    bad, good = (registry.image(IMAGE.with_tag(name), salt=name) for name in ("bad", "good"))
    attached(registry, image=good)
    entries = (
        msgspec.structs.replace(
            registry.resolve(bad), platform=Platform.parse(first), annotations=annotations
        ),
        msgspec.structs.replace(registry.resolve(good), platform=Platform.parse("linux/amd64")),
    )
    registry.push_manifest(IMAGE, encode(ImageIndex(manifests=entries, media_type=INDEX)), INDEX)
    assert refused(registry)[0] == "multi-platform"
    with pytest.raises(UndecidedError, match="several images that engines may run") as error:
        asked(registry, on("linux/amd64"))
    assert bad.digest in error.value.message and good.digest in error.value.message


def test_a_name_that_is_not_there_is_undecided(registry: MemoryRegistry) -> None:
    with pytest.raises(UndecidedError, match="does not have 1"):
        asked(registry)


# Hostile content

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)


@given(payload=st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_key_signed_is_refused_or_read(payload: bytes) -> None:
    """Even the owner of the key cannot make `verify` fall over."""
    envelope = Envelope.sign(payload, KEY)
    found = verify_envelopes([AttachedEnvelope("a", envelope)], "sha256:" + "0" * 64, DEMANDS)
    assert found.signed == []


@given(data=st.data())
def test_a_verdict_with_one_other_value_is_refused_or_judged(data: st.DataObject) -> None:
    document = json.loads(verdict.encode(accepted("2026-01-31")))
    place: object = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(_JSON)
    digest = "sha256:" + "0" * 64
    predicate = json.dumps(document).encode()
    payload = documents.encode_statement("a", digest, verdict.PREDICATE_TYPE, predicate)
    envelope = Envelope.sign(payload, KEY)
    found = verify_envelopes([AttachedEnvelope("a", envelope)], digest, DEMANDS)
    for signed in found.signed:
        assert list(find_unmet_demands(signed.verdict, DEMANDS)) is not None
