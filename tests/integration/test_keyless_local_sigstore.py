"""Signatures without a key, with a local stand-in for Fulcio and Rekor; Debian's cosign judges.

The public services need an identity that only a CI system gives, and cannot be asked from here. So
authority and logs are those of `tests/servers/sigstore_services.py`, whose root of trust both
sides are given; certificates, log entries and bundles have the form of the public ones.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import Buildmatrix
from sigstore_services import GITHUB, WORKFLOW, SigstoreServices
from test_attestation_real import FORMS, Place, cosign_program, keys, registry_host
from verdict_cases import GOOD

from buildmatrix.signing import verdict
from buildmatrix.signing.attached import Claim, attach
from buildmatrix.signing.keyless import make_keyless_signer

__all__ = ["cosign_program", "keys", "registry_host"]


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SigstoreServices]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with SigstoreServices() as services:
        services.in_github(monkeypatch)
        services.trust_root(tmp_path / "trust.json")
        services.trusted_root(tmp_path / "root.json")
        yield services


@pytest.fixture
def place(
    services: SigstoreServices, registry_host: str, cosign_program: Path, keys: Path, tmp_path: Path
) -> Iterator[Place]:
    place = Place(registry_host, cosign_program, keys)
    signer = make_keyless_signer(tmp_path / "trust.json")
    claim = Claim(GOOD.target.id, verdict.PREDICATE_TYPE, verdict.encode(GOOD))
    attach(place.registry, place.image, claim, signer, datetime.now(UTC))
    yield place
    place.registry.close()


def judged(
    place: Place, root: Path, form: str, identity: str = WORKFLOW, issuer: str = GITHUB
) -> subprocess.CompletedProcess[str]:
    return place.cosign(
        "verify-attestation", f"--trusted-root={root}", f"--certificate-identity={identity}",
        f"--certificate-oidc-issuer={issuer}", f"--type={verdict.PREDICATE_TYPE}", FORMS[form],
        str(place.name),
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_cosign_verifies_what_an_identity_of_local_services_signed(
    place: Place, tmp_path: Path, form: str
) -> None:
    """Certificate, its timestamp, and the entry of the log: nothing is left out."""
    done = judged(place, tmp_path / "root.json", form)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(base64.b64decode(json.loads(line)["payload"]))
    assert said["predicateType"] == verdict.PREDICATE_TYPE
    assert said["subject"][0]["digest"] == {"sha256": place.image.digest[7:]}


@pytest.mark.parametrize("form", FORMS)
def test_cosign_refuses_another_identity_of_local_services_and_another_issuer(
    place: Place, tmp_path: Path, form: str
) -> None:
    root = tmp_path / "root.json"
    assert judged(place, root, form, identity=f"{WORKFLOW}0").returncode != 0
    assert judged(place, root, form, issuer="https://gitlab.com").returncode != 0


def test_the_command_verifies_what_an_identity_of_local_services_signed(
    place: Place, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    def run(subject: str, issuer: str = GITHUB, root: str = "root.json") -> tuple[int, str]:
        done = buildmatrix(
            tmp_path, "verify", f"registry:{place.name}", "--backend", "rocm", "--identity",
            subject, "--issuer", issuer, "--trust-root", root, "--no-smoke",
        )  # fmt: skip
        return done.code, done.out + done.err

    code, text = run(WORKFLOW)
    assert code == 0, text
    assert f"signed by {WORKFLOW}" in " ".join(text.split())
    assert run(WORKFLOW, root="trust.json")[0] == 0
    assert run(WORKFLOW.replace("1.4.0", "*"))[0] == 0
    assert run(WORKFLOW.replace("acme", "evil"))[0] == 1
    assert run(WORKFLOW, "https://gitlab.com")[0] == 1


def test_we_verify_what_cosign_attests_with_local_services(
    place: Place, services: SigstoreServices, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    place.image = place.push(place.name.with_tag("2"), os.urandom(16))
    place.name = place.name.with_tag("2")
    predicate = tmp_path / "verdict.json"
    predicate.write_bytes(verdict.encode(GOOD))
    trust = json.loads((tmp_path / "trust.json").read_text())
    (tmp_path / "signing.json").write_text(json.dumps(trust["signingConfig"]))
    done = place.cosign(
        "attest", "--yes", f"--type={verdict.PREDICATE_TYPE}", f"--predicate={predicate}",
        f"--trusted-root={tmp_path / 'root.json'}", f"--signing-config={tmp_path / 'signing.json'}",
        FORMS["bundle"], str(place.image),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = buildmatrix(
        tmp_path, "verify", f"registry:{place.name}", "--backend", "rocm", "--identity", WORKFLOW,
        "--issuer", GITHUB, "--trust-root", "root.json", "--no-smoke",
    )  # fmt: skip
    assert found.code == 0, found.out + found.err
