"""From a lock to a verdict that a cluster asks for, without Docker and without a key.

`build --push --attest` makes a real image, pushes it to Debian's docker-registry and signs its
verdict with an identity of local stand-ins for Fulcio and Rekor; `verify` and Debian's cosign judge
the image by its tag.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from components import missing
from conftest import Buildmatrix
from sigstore_services import GITHUB, WORKFLOW, SigstoreServices
from test_attestation_real import FORMS, cosign_program, registry_host

from buildmatrix.signing import verdict
from buildmatrix.signing.attached import CYCLONEDX

__all__ = ["cosign_program", "registry_host"]

pytestmark = [pytest.mark.engine, pytest.mark.network]

TARGET = "cpu-py311-server"
SPEC = """\
schema = 1
[project]
name = "inferno"
version = "1.0"
image = "{image}"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["base.in"]
command = ["python", "-c", "import idna"]
[backend.cpu]
runtime = "any"
base = "python:{{python}}-slim-bookworm"
[tags]
templates = ["{{version}}"]
[[smoke]]
name = "import"
level = "import"
command = ["python", "-c", "import idna"]
"""


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SigstoreServices]:
    with SigstoreServices() as services:
        services.in_github(monkeypatch)
        services.trust_root(tmp_path / "trust.json")
        services.trusted_root(tmp_path / "root.json")
        yield services


def test_a_build_signs_without_a_key_and_its_image_is_verified_by_its_tag(
    services: SigstoreServices,
    registry_host: str,
    cosign_program: Path,
    tmp_path: Path,
    buildmatrix: Buildmatrix,
) -> None:
    if not os.environ.get("BUILDMATRIX_MIRROR"):
        missing("a registry with base images", "run scripts/test, which starts one")
    name = f"{registry_host}/whole/inferno"
    (tmp_path / "buildmatrix.toml").write_text(SPEC.format(image=name))
    (tmp_path / "base.in").write_text("idna\n")
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    run = buildmatrix(
        tmp_path, "build", "--push", "--attest", "--trust-root", "trust.json", "--format", "json",
        env=nowhere,
    )  # fmt: skip
    assert run.code == 0, run.err
    (target,) = run.report()["targets"]
    assert (target["push"], set(target["gates"].values())) == ("passed", {"passed"})
    assert target["attestation"].startswith("sha256:")
    leaves = len(services.leaves)
    assert leaves >= 1

    def verified(
        identity: str, issuer: str = GITHUB, backend: str = "cpu", image: str = f"{name}:1.0"
    ) -> tuple[int, str]:
        done = buildmatrix(
            tmp_path, "verify", f"registry:{image}", "--backend", backend, "--identity", identity,
            "--issuer", issuer, "--trust-root", "root.json",
        )  # fmt: skip
        return done.code, " ".join((done.out + done.err).split())

    for image in (f"{name}:1.0", f"{name}@{target['digest']}"):
        code, text = verified(WORKFLOW, image=image)
        assert code == 0, text
        assert f"signed by {WORKFLOW}" in text
    assert verified(WORKFLOW.replace("acme", "evil"))[0] == 1
    assert verified(WORKFLOW, issuer="https://gitlab.com")[0] == 1
    assert verified(WORKFLOW, backend="rocm")[0] == 1
    assert len(services.leaves) == leaves  # who verifies writes nothing

    for kind in (verdict.PREDICATE_TYPE, CYCLONEDX):
        for form in FORMS.values():
            judged = subprocess.run(
                [
                    cosign_program, "verify-attestation", "--trusted-root=root.json",
                    f"--certificate-identity={WORKFLOW}", f"--certificate-oidc-issuer={GITHUB}",
                    f"--type={kind}", form, f"{name}:1.0",
                ],
                cwd=tmp_path, capture_output=True, text=True,
            )  # fmt: skip
            assert judged.returncode == 0, judged.stderr
            for line in judged.stdout.splitlines():
                said = json.loads(base64.b64decode(json.loads(line)["payload"]))
                assert said["predicateType"] == kind
                assert said["subject"][0]["digest"] == {"sha256": target["digest"][7:]}
