"""Verdicts that an identity signed, and no key: who may sign, and each fault with its sentence.

Fulcio and Rekor are the local stand-in of `tests/servers/sigstore_services.py`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import msgspec
import pytest
from loopback import answering, dripping
from memory_registry import IMAGE, MemoryRegistry, digest_of
from sigstore_services import GITHUB, WORKFLOW, SigstoreServices, token
from test_verify import DEMANDS, KEY, asked, attached, refused
from verdict_cases import GOOD

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UndecidedError, UsageError
from buildmatrix.cli import main
from buildmatrix.commands.verify import AdmissionDemands
from buildmatrix.images.documents import Descriptor, encode, manifest_of
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.signing import documents, keyless, verdict
from buildmatrix.signing.attached import Claim, attach, attestation_tag, list_tagged_layers
from buildmatrix.signing.keyless import (
    CertificateCheck,
    Identity,
    KeylessSigner,
    load_trusted_root,
    make_keyless_signer,
)

#: What names a CI system, and would be an identity of the machine that runs the tests.
CI = (
    "GITHUB_ACTIONS", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL",
    "GITLAB_CI", "SIGSTORE_ID_TOKEN", "BUILDKITE", "CIRCLECI", "GOOGLE_SERVICE_ACCOUNT_NAME",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No CI system, and nobody's home."""
    for name in CI:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[SigstoreServices]:
    with SigstoreServices() as services:
        services.in_github(monkeypatch)
        yield services


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def trust(services: SigstoreServices, tmp_path: Path) -> Path:
    return services.trust_root(tmp_path / "trust.json")


def may(root: Path, subject: str = WORKFLOW, issuer: str = GITHUB) -> AdmissionDemands:
    check = CertificateCheck([Identity(subject, issuer)], load_trusted_root(root))
    return replace(DEMANDS, keys=(), certificates=check)


def signed(registry: MemoryRegistry, signer: KeylessSigner) -> Reference:
    image = registry.image()
    claim = Claim(GOOD.target.id, verdict.PREDICATE_TYPE, verdict.encode(GOOD))
    attach(registry, image, claim, signer, datetime.now(UTC))
    return image


def changed(
    registry: MemoryRegistry, image: Reference, change: Callable[[dict[str, object]], None]
) -> None:
    """Another bundle in place of the one that is attached; without the tag of older cosign."""
    registry.tags.pop((image.name, attestation_tag(image).tag))
    (listed,) = registry.listed.pop(image.digest)
    held = manifest_of(registry.manifests[image.name, listed.digest], "it")
    document = json.loads(registry.blobs[image.name, held.layers[0].digest])
    change(document)
    data = json.dumps(document).encode()
    registry.blobs[image.name, digest_of(data)] = data
    layer = Descriptor(media_type=documents.MEDIA_TYPE, digest=digest_of(data), size=len(data))
    registry.push_referrer(image, encode(msgspec.structs.replace(held, layers=(layer,))))


def test_the_identity_of_a_job_proves_an_image(registry: MemoryRegistry, trust: Path) -> None:
    image = signed(registry, make_keyless_signer(trust))
    found = asked(registry, may(trust))
    assert found.verified and found.proof is not None
    assert (found.proof.key, found.proof.identity, found.proof.issuer) == (None, WORKFLOW, GITHUB)
    (layer,) = list_tagged_layers(registry, attestation_tag(image))
    assert layer.annotations["dev.sigstore.cosign/certificate"].startswith("-----BEGIN CERT")
    promise = json.loads(layer.annotations["dev.sigstore.cosign/bundle"])
    assert set(promise["Payload"]) == {"body", "integratedTime", "logIndex", "logID"}


def test_nobody_is_asked_when_it_is_verified(
    registry: MemoryRegistry, trust: Path, services: SigstoreServices
) -> None:
    signed(registry, make_keyless_signer(trust))
    before = len(services.requests)
    assert asked(registry, may(trust)).verified
    assert len(services.requests) == before


def test_gitlab_and_people_have_other_names(
    registry: MemoryRegistry, trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", token("https://gitlab.com", sub="ann@example.com"))
    signed(registry, make_keyless_signer(trust))
    assert asked(registry, may(trust, "ann@example.com", "https://gitlab.com")).verified


@pytest.mark.parametrize(
    ("subject", "admitted"),
    [
        (WORKFLOW, True),
        (WORKFLOW.replace("1.4.0", "*"), True),
        ("https://github.com/acme/*", True),
        (WORKFLOW.replace("1.4.0", "1.4"), False),
        (WORKFLOW.replace("1.4.0", "1?4?0"), False),
        (WORKFLOW.replace("1.4.0", "1.4.*1"), False),
        ("https://github.com/evil/*", False),
        ("", False),
    ],
)
def test_a_star_stands_for_any_text_and_nothing_else_does(subject: str, admitted: bool) -> None:
    assert Identity(subject, GITHUB).covers(WORKFLOW) == admitted


def test_another_identity(registry: MemoryRegistry, trust: Path) -> None:
    signed(registry, make_keyless_signer(trust))
    reason, message = refused(registry, may(trust, WORKFLOW.replace("acme", "other")))
    assert reason == "other-identity"
    wanted = WORKFLOW.replace("acme", "other")
    assert message.endswith(f" is signed by {WORKFLOW}, not by {wanted}")


def test_another_issuer(registry: MemoryRegistry, trust: Path) -> None:
    signed(registry, make_keyless_signer(trust))
    reason, message = refused(registry, may(trust, issuer="https://gitlab.com"))
    assert reason == "other-issuer"
    assert message.endswith(
        f"is signed by {WORKFLOW} with the issuer {GITHUB}, not https://gitlab.com"
    )


def test_a_certificate_that_had_run_out(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with SigstoreServices(late=timedelta(hours=1)) as services:
        services.in_github(monkeypatch)
        trust = services.trust_root(tmp_path / "late.json")
        signed(registry, make_keyless_signer(trust))
    reason, message = refused(registry, may(trust))
    assert reason == "certificate"
    assert "was signed at 2" in message and "but its certificate was valid from 2" in message


def test_a_certificate_that_is_good_no_more_was_good_when_it_signed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A verdict is read months later: the log says when it was signed."""
    hours = timedelta(hours=2)

    class Then(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - hours

    with SigstoreServices(ago=hours) as services:
        services.in_github(monkeypatch)
        trust = services.trust_root(tmp_path / "then.json")
        with monkeypatch.context() as then:
            then.setattr("sigstore.sign.datetime", Then)
            signed(registry, make_keyless_signer(trust))
    assert asked(registry, may(trust)).verified


def test_a_certificate_of_another_authority(
    registry: MemoryRegistry, trust: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with SigstoreServices() as others:
        others.in_github(monkeypatch)
        signed(registry, make_keyless_signer(others.trust_root(tmp_path / "others.json")))
    reason, message = refused(registry, may(trust))
    assert reason == "certificate"
    assert "has a certificate that is not trusted" in message


def test_a_verdict_that_was_changed(registry: MemoryRegistry, trust: Path) -> None:
    image = signed(registry, make_keyless_signer(trust))

    def later(document: dict) -> None:
        document["dsseEnvelope"]["payload"] = "e30="

    changed(registry, image, later)
    reason, message = refused(registry, may(trust))
    assert reason == "changed"
    assert message.endswith("was changed after it was signed")


def test_an_entry_of_the_log_that_is_about_something_else(
    registry: MemoryRegistry, trust: Path
) -> None:
    signer = make_keyless_signer(trust)
    image = signed(registry, signer)
    other = json.loads(
        signer.sign(
            b'{"_type": "https://in-toto.io/Statement/v1", "predicateType": '
            b'"a", "subject": [{"name": "", "digest": {"sha256": "0"}}]}'
        )
    )

    def swap(document: dict) -> None:
        entries = other["verificationMaterial"]["tlogEntries"]
        document["verificationMaterial"]["tlogEntries"] = entries

    changed(registry, image, swap)
    reason, message = refused(registry, may(trust))
    assert reason == "changed"
    assert "differs from its entry in the transparency log" in message


def _set_kind(version: str) -> Callable[[dict], None]:
    def change(document: dict) -> None:
        (entry,) = document["verificationMaterial"]["tlogEntries"]
        entry["kindVersion"] = {"kind": "dsse", "version": version}

    return change


def _set_timestamps(*timestamps: str) -> Callable[[dict], None]:
    def change(document: dict) -> None:
        document["verificationMaterial"]["timestampVerificationData"] = {
            "rfc3161Timestamps": [{"signedTimestamp": text} for text in timestamps]
        }

    return change


def _drop_promise(document: dict) -> None:
    document["verificationMaterial"]["tlogEntries"][0].pop("inclusionPromise")


@pytest.mark.parametrize(
    ("change", "reason", "cause"),
    [
        (_set_kind("0.0.2"), "timestamp", "Integrated time only supported for"),
        (_set_kind("0.0.9"), "unreadable", "entry that is not supported: .*got 0.0.9"),
        (_set_timestamps("AAAA"), "timestamp", "can be verified: "),
        (_drop_promise, "timestamp", "signed timestamp"),
    ],
)
def test_a_time_or_an_entry_that_is_not_supported_is_no_fault_of_the_certificate(
    registry: MemoryRegistry,
    trust: Path,
    change: Callable[[dict], None],
    reason: str,
    cause: str,
) -> None:
    changed(registry, signed(registry, make_keyless_signer(trust)), change)
    found, message = refused(registry, may(trust))
    assert found == reason
    assert re.search(cause, message)
    assert "not trusted" not in message


def test_a_bundle_without_its_entry_of_the_log(registry: MemoryRegistry, trust: Path) -> None:
    image = signed(registry, make_keyless_signer(trust))
    changed(registry, image, lambda document: document["verificationMaterial"].pop("tlogEntries"))
    reason, message = refused(registry, may(trust))
    assert (reason, message.endswith("lacks its entry in the transparency log")) == (
        "stripped",
        True,
    )


def test_a_bundle_without_its_certificate(registry: MemoryRegistry, trust: Path) -> None:
    image = signed(registry, make_keyless_signer(trust))
    changed(registry, image, lambda document: document["verificationMaterial"].pop("certificate"))
    reason, message = refused(registry, may(trust))
    assert reason == "stripped"
    assert message.endswith("has no certificate with it, which says who signed")


def test_an_envelope_whose_bundle_was_taken_away(registry: MemoryRegistry, trust: Path) -> None:
    """What is left under the tag of older cosign proves nothing here."""
    signed(registry, make_keyless_signer(trust))
    registry.listed.clear()
    assert refused(registry, may(trust))[0] == "stripped"


def test_a_key_is_no_identity_and_an_identity_is_no_key(
    registry: MemoryRegistry, trust: Path
) -> None:
    image = attached(registry)
    reason, message = refused(registry, may(trust))
    assert (reason, "is signed by a key, and not by an identity" in message) == ("other-key", True)
    registry.listed.clear()
    registry.tags.pop((image.name, attestation_tag(image).tag))
    signed(registry, make_keyless_signer(trust))
    reason, message = refused(registry)
    assert reason == "other-key"
    assert message.endswith("is signed without a key; say by whom with --identity and --issuer")


def test_either_is_enough_where_both_may_sign(registry: MemoryRegistry, trust: Path) -> None:
    both = replace(may(trust), keys=(KEY.public,))
    attached(registry)
    assert asked(registry, both).verified
    other = MemoryRegistry()
    signed(other, make_keyless_signer(trust))
    assert asked(other, both).verified


# Signing


def test_no_identity_in_this_environment(trust: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    with pytest.raises(UsageError, match=r"--attest needs a key .* this environment has none"):
        make_keyless_signer(trust)


def test_a_job_that_has_no_right_to_an_identity(
    trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL")
    with pytest.raises(UsageError, match="give the job `permissions: id-token: write`"):
        make_keyless_signer(trust)


def test_a_token_that_has_run_out(trust: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.setenv("GITLAB_CI", "true")
    old = token("https://gitlab.com", seconds=-60)
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", old)
    with pytest.raises(UndecidedError, match="the verdict was not signed: IdentityError") as raised:
        make_keyless_signer(trust).sign(b"{}")
    assert old not in raised.value.message


@pytest.mark.parametrize("path", ["/api/v2/signingCert", "/api/v1/log/entries"])
@pytest.mark.parametrize("body", [b"", b"[]", b'{"message": "no"}', b"\xff"])
@pytest.mark.parametrize("status", [200, 201, 400, 500])
def test_services_that_fail_have_a_sentence(
    services: SigstoreServices, registry: MemoryRegistry, trust: Path,
    path: str, status: int, body: bytes,
) -> None:  # fmt: skip
    services.misbehave(path, answering(status, body))
    with pytest.raises(UndecidedError, match=r"^the verdict was not signed: ") as raised:
        signed(registry, make_keyless_signer(trust))
    assert "\n" not in raised.value.message
    assert "eyJ" not in raised.value.message, "a token"
    assert not registry.listed


def test_services_that_hang_are_given_up(
    services: SigstoreServices, trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyless, "_SECONDS", 0.3)
    services.misbehave("/api/v2/signingCert", dripping(60.0))
    with pytest.raises(UndecidedError, match="did not answer in 0 s"):
        make_keyless_signer(trust).sign(
            b'{"_type": "https://in-toto.io/Statement/v1", "predicateType": "a", '
            b'"subject": [{"name": "", "digest": {"sha256": "0"}}]}'
        )


def test_a_certificate_that_runs_out_between_two_verdicts_is_asked_for_again(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with SigstoreServices() as services:
        services.in_github(monkeypatch)
        signer = make_keyless_signer(services.trust_root(tmp_path / "trust.json"))
        image = signed(registry, signer)
        services.life = timedelta(seconds=-1)
        signer._signer = None
        with pytest.raises(UndecidedError, match="ExpiredCertificate"):
            signed(registry, signer)
        services.life = timedelta(minutes=1)
        assert signed(registry, signer) == image
        assert services.count("/api/v2/signingCert") >= 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mediaType": "a"}', "\x00"])
def test_a_file_that_is_no_trust_is_named(
    services: SigstoreServices, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "trust.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"trust\.json is not a trust configuration of a client"):
        make_keyless_signer(file)
    with pytest.raises(UsageError, match=r"trust\.json is neither a trusted root of sigstore"):
        load_trusted_root(file)
    with pytest.raises(UsageError, match=r"none\.json cannot be read"):
        load_trusted_root(tmp_path / "none.json")


def test_a_trusted_root_alone_verifies_and_does_not_sign(
    services: SigstoreServices, registry: MemoryRegistry, trust: Path, tmp_path: Path
) -> None:
    root = services.trusted_root(tmp_path / "root.json")
    signed(registry, make_keyless_signer(trust))
    assert asked(registry, may(root)).verified
    with pytest.raises(UsageError, match="which signing requires"):
        make_keyless_signer(root)


def test_the_public_root_is_there_without_a_network() -> None:
    names = [item.subject.rfc4514_string() for item in load_trusted_root(None).get_fulcio_certs()]
    assert any("sigstore" in name for name in names)


def test_the_library_is_named_where_it_is_missing(
    trust: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for missing in (lambda: make_keyless_signer(trust), lambda: load_trusted_root(trust)):
        with pytest.raises(ComponentError, match=r"pip install 'buildmatrix\[keyless\]'"):
            missing()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "--key cosign.pub, or --identity SUBJECT --issuer URL"),
        (["--identity", "a"], "add --issuer URL"),
        (["--key", "a", "--issuer", GITHUB], "--issuer is about who signed without a key"),
        (["--key", "a", "--trust-root", "a"], "--trust-root is about who signed without a key"),
    ],
)
def test_options_that_need_each_other(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", f"registry:{IMAGE}", "--backend", "cpu", *options])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
