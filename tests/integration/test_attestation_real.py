"""Verdicts in Debian's docker-registry; Debian's cosign judges what we write, and writes too."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path

import jsonschema
import pytest
import yaml
from conftest import ROOT, Buildmatrix, stack_program
from debian_registry import DebianRegistry, debian_registry
from verdict_cases import ALL, GOOD

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands.verify import AdmissionDemands, verify
from buildmatrix.images.documents import (
    CONFIGURATION,
    LAYER,
    MANIFEST,
    Descriptor,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
    manifest_of,
)
from buildmatrix.judge.model import Acceptance, StagedImage, TargetResult
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.json_form import render
from buildmatrix.reports.run import assemble
from buildmatrix.reports.verify import Verification
from buildmatrix.signing import verdict
from buildmatrix.signing.attached import CYCLONEDX, Claim, attach, attestation_tag
from buildmatrix.signing.documents import read_private, read_public
from buildmatrix.signing.verdict import FindingCounts, JudgedFinding, TargetVerdict

PASSWORD = "correct horse"
#: cosign's own option for registries with, and without, what OCI calls referrers.
FORMS = {"bundle": "--new-bundle-format=true", "tag": "--new-bundle-format=false"}


@pytest.fixture(scope="module")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = stack_program("docker-registry", "registry-prefix/usr/bin/docker-registry")
    with debian_registry(program, tmp_path_factory.mktemp("registry")) as running:
        assert isinstance(running, DebianRegistry)
        yield running.host


@pytest.fixture(autouse=True)
def no_logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)


@pytest.fixture(scope="module")
def cosign_program() -> Path:
    return stack_program("cosign", "judges/cosign/usr/bin/cosign")


@pytest.fixture(scope="module")
def keys(cosign_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ecdsa`, `other` and `ed25519`: key pairs of cosign's, encrypted."""
    folder = tmp_path_factory.mktemp("keys")
    environment = {**os.environ, "COSIGN_PASSWORD": PASSWORD, "HOME": str(folder)}
    for name in ("ecdsa", "other"):
        pair = [cosign_program, "generate-key-pair", "--output-key-prefix", name]
        subprocess.run(pair, cwd=folder, env=environment, check=True, capture_output=True)
    plain = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", "plain.pem"]
    subprocess.run(plain, cwd=folder, check=True, capture_output=True)
    taken = ["import-key-pair", "--key", "plain.pem", "--output-key-prefix", "ed25519"]
    subprocess.run(
        [cosign_program, *taken], cwd=folder, env=environment, check=True, capture_output=True
    )
    return folder


class Place:
    """A repository of the test's own, with an image in it."""

    def __init__(self, host: str, cosign: Path, keys: Path) -> None:
        self.registry = Registry()
        self.cosign_program, self.keys = cosign, keys
        self.name = Reference.parse(f"{host}/test/{uuid.uuid4().hex[:12]}:1")
        self.image = self.push(self.name)

    def push(self, name: Reference, text: bytes = b"a layer") -> Reference:
        layer = self.blob(name, text, LAYER)
        rootfs = RootFileSystem(diff_ids=(layer.digest,))
        held = ImageConfiguration(architecture="amd64", os="linux", rootfs=rootfs)
        config = self.blob(name, encode(held), CONFIGURATION)
        manifest = Manifest(schema_version=2, media_type=MANIFEST, config=config, layers=(layer,))
        return name.at(self.registry.push_manifest(name, encode(manifest), MANIFEST).digest)

    def blob(self, name: Reference, data: bytes, media_type: str) -> Descriptor:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
        self.registry.push_blob(name, descriptor, lambda: BytesIO(data))
        return descriptor

    def attest(self, key: str = "ecdsa", held: TargetVerdict = GOOD) -> None:
        private = read_private(self.keys / f"{key}.key", PASSWORD)
        claims = (
            Claim(held.target.id, CYCLONEDX, b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}'),
            Claim(held.target.id, verdict.PREDICATE_TYPE, verdict.encode(held)),
        )
        for claim in claims:
            attach(self.registry, self.image, claim, private, datetime.now(UTC))

    def verify(self, key: str = "ecdsa") -> Verification:
        public = read_public(self.keys / f"{key}.pub")
        demands = AdmissionDemands("rocm", (public,), date(2026, 11, 22))
        # A client of its own: nothing that it remembers helps.
        with Registry() as registry:
            return verify(registry, str(self.name), self.name, demands)

    def cosign(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.cosign_program, *arguments], cwd=self.keys, capture_output=True, text=True
        )

    def judged(self, key: str, kind: str, form: str) -> subprocess.CompletedProcess[str]:
        return self.cosign(
            "verify-attestation", f"--key={key}.pub", "--insecure-ignore-tlog", f"--type={kind}",
            FORMS[form], str(self.name),
        )  # fmt: skip


@pytest.fixture
def place(registry_host: str, cosign_program: Path, keys: Path) -> Iterator[Place]:
    place = Place(registry_host, cosign_program, keys)
    yield place
    place.registry.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [verdict.PREDICATE_TYPE, "cyclonedx"])
@pytest.mark.parametrize("key", ["ecdsa", "ed25519"])
def test_cosign_verifies_what_we_attest(place: Place, key: str, kind: str, form: str) -> None:
    place.attest(key)
    done = place.judged(key, kind, form)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(base64.b64decode(json.loads(line)["payload"]))
    assert said["predicateType"] == (CYCLONEDX if kind == "cyclonedx" else kind)
    assert said["subject"][0]["digest"] == {"sha256": place.image.digest[7:]}
    if kind == verdict.PREDICATE_TYPE:
        jsonschema.validate(said["predicate"], verdict.schema())
    assert place.verify(key).verified


@pytest.mark.parametrize("form", FORMS)
def test_cosign_refuses_what_another_key_signed_and_so_do_we(place: Place, form: str) -> None:
    place.attest("other")
    assert place.judged("ecdsa", verdict.PREDICATE_TYPE, form).returncode != 0
    assert [item.reason for item in place.verify("ecdsa").refusals] == ["other-key"]
    assert place.verify("other").verified


@pytest.mark.parametrize("form", FORMS)
def test_we_verify_what_cosign_attests(place: Place, tmp_path: Path, form: str) -> None:
    predicate = tmp_path / "verdict.json"
    predicate.write_bytes(verdict.encode(GOOD))
    done = place.cosign(
        "attest", "--key=ecdsa.key", "--yes", "--tlog-upload=false", "--use-signing-config=false",
        f"--type={verdict.PREDICATE_TYPE}", f"--predicate={predicate}", FORMS[form],
        str(place.image),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = place.verify()
    assert found.verified, found.refusals
    assert found.proof is not None
    assert found.proof.attestation.endswith(".att") == (form == "tag")
    assert [item.reason for item in place.verify("other").refusals] == ["other-key"]


def test_attestations_of_cosign_under_the_tag_stay_when_we_add_ours(
    place: Place, tmp_path: Path
) -> None:
    predicate = tmp_path / "provenance.json"
    predicate.write_text('{"a": 1}')
    done = place.cosign(
        "attest", "--key=other.key", "--yes", "--tlog-upload=false", "--use-signing-config=false",
        "--type=custom", f"--predicate={predicate}", FORMS["tag"], str(place.image),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place.attest()
    place.attest()
    held = manifest_of(place.registry.manifest(attestation_tag(place.image)).data, "it")
    assert len(held.layers) == 3
    assert place.judged("other", "custom", "tag").returncode == 0
    assert place.judged("ecdsa", verdict.PREDICATE_TYPE, "tag").returncode == 0


def test_an_attestation_that_was_copied_to_another_image(place: Place) -> None:
    place.attest()
    other = place.push(place.name.with_tag("2"), b"another layer")
    held = place.registry.manifest(attestation_tag(place.image))
    place.registry.push_manifest(attestation_tag(other), held.data, MANIFEST)
    place.name = place.name.with_tag("2")
    assert place.judged("ecdsa", verdict.PREDICATE_TYPE, "tag").returncode != 0
    found = place.verify()
    assert {item.reason for item in found.refusals} == {"other-image"}


def test_a_verdict_that_does_not_hold_is_refused_though_its_signature_does(place: Place) -> None:
    place.attest(held=replace(GOOD, gates={**GOOD.gates, "scan": "failed"}))
    assert place.judged("ecdsa", verdict.PREDICATE_TYPE, "bundle").returncode == 0
    assert [item.reason for item in place.verify().refusals] == ["gate"]


def test_the_command_answers_with_its_exit_code(place: Place, buildmatrix: Buildmatrix) -> None:
    place.attest()
    key = str(place.keys / "ecdsa.pub")

    def run(backend: str, name: str = str(place.name)) -> int:
        arguments = ("--backend", backend, "--key", key)
        return buildmatrix(place.keys, "verify", f"registry:{name}", *arguments).code

    assert run("rocm") == 0
    assert run("cuda") == 1
    assert run("rocm", f"{place.name.name}:none") == 3
    assert run("rocm", "127.0.0.1:1/none:1") == 3


PAGE = (ROOT / "docs/attestation.md").read_text()
#: The policies of docs/attestation.md: as Rego, and the one for policy-controller, in CUE.
POLICIES = {
    "policy.rego": re.findall(r"```rego\n(.*?)```", PAGE, re.DOTALL)[0],
    "policy.cue": yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])["spec"][
        "authorities"
    ][0]["attestations"][0]["policy"]["data"],
}

#: How the page has cosign ask for a policy.
COSIGN = shlex.split(
    re.findall(r"```\n(cosign verify-attestation --key .*?)```", PAGE, re.DOTALL)[0].replace(
        "\\\n", " "
    )
)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policies_of_the_documentation_admit_what_they_should(
    place: Place, tmp_path: Path, policy: str
) -> None:
    (tmp_path / policy).write_text(POLICIES[policy])
    today = replace(GOOD, tool=replace(GOOD.tool, catalogue=date.today().isoformat()))

    def admitted(held: TargetVerdict) -> bool:
        place.image = place.push(place.name, uuid.uuid4().bytes)
        place.attest(held=held)
        here = {"cosign.pub": "ecdsa.pub", "policy.rego": str(tmp_path / policy)}
        done = place.cosign(*(here.get(word, word) for word in COSIGN[1:-1]), str(place.image))
        assert done.returncode == 0 or "validation error" in done.stderr, done.stderr
        return done.returncode == 0

    assert admitted(today)
    assert not admitted(replace(today, target=replace(today.target, backend="cuda")))
    assert not admitted(replace(today, gates={**today.gates, "scan": "failed"}))
    assert not admitted(replace(today, counts=FindingCounts(error=1)))
    assert admitted(accepted(today, date.today()))
    if policy == "policy.rego":
        assert not admitted(accepted(today, date.today() - timedelta(days=1)))
        old = (date.today() - timedelta(days=91)).isoformat()
        assert not admitted(replace(today, tool=replace(today.tool, catalogue=old)))


def accepted(held: TargetVerdict, until: date) -> TargetVerdict:
    acceptance = Acceptance(by="waiver", reason="a", owner="b", expires=until.isoformat())
    found = JudgedFinding(rule="BM301", severity="error", fingerprint="0" * 32, accepted=acceptance)
    return replace(held, findings=(found,))


# promote

TARGETS = tuple(f"t{number}" for number in range(6))


def reports(place: Place, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    """The report of each target, staged; and tag → digest, as it has to be."""
    names, wanted = [], {}
    for target in TARGETS:
        image = place.push(place.name.with_tag("scratch"), target.encode())
        result = TargetResult(
            target,
            "cpu",
            gates=dict.fromkeys(ALL, "passed"),
            push="passed",
            staged=StagedImage(place.name.name, image.digest, (f"1-{target}", f"2-{target}")),
        )
        report = assemble("buildmatrix.toml", "2026-11-01", targets=[result])
        (folder / f"{target}.json").write_text(render(report))
        names.append(f"{target}.json")
        wanted |= {f"{line}-{target}": image.digest for line in (1, 2)}
    return names, wanted


def tags(place: Place, names: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for tag in names:
        try:
            found[tag] = place.registry.resolve(place.name.with_tag(tag)).digest
        except UndecidedError as error:
            assert "does not have" in error.message
    return found


def test_tags_are_promoted_by_the_command(
    place: Place, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    files, wanted = reports(place, tmp_path)
    assert tags(place, wanted) == {}
    done = buildmatrix(tmp_path, "promote", *files, "--format", "json")
    assert done.code == 0, done.err
    assert {move["state"] for move in json.loads(done.out)["moves"]} == {"moved"}
    assert tags(place, wanted) == wanted


@pytest.mark.parametrize(
    "line", [1, 4, *(pytest.param(line, marks=pytest.mark.weekly) for line in (8, 12))]
)
def test_a_promotion_that_is_killed_is_finished_by_the_next(
    place: Place, tmp_path: Path, buildmatrix: Buildmatrix, line: int
) -> None:
    """Whenever the kill arrives: tags in their order, and none is wrong."""
    files, wanted = reports(place, tmp_path)
    command = [sys.executable, "-m", "buildmatrix", "promote", "--no-progress", *files]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for text in process.stderr:
        said += [text] if " -> sha256:" in text else []
        if len(said) == line:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.stderr.close()
    process.wait(timeout=300)
    left = tags(place, wanted)
    assert left == dict(list(wanted.items())[: len(left)]), "a tag out of order, or a wrong one"
    assert line - 1 <= len(left)

    done = buildmatrix(tmp_path, "promote", *files, "--format", "json")
    assert done.code == 0, done.err
    states = [move["state"] for move in json.loads(done.out)["moves"]]
    # The registry may have had one more request, and set its tag after it was asked here.
    found = states.count("already")
    assert len(left) <= found <= len(left) + 1
    assert states == ["already"] * found + ["moved"] * (len(wanted) - found)
    assert tags(place, wanted) == wanted


def test_an_image_that_was_deleted_leaves_every_tag(
    place: Place, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    files, wanted = reports(place, tmp_path)
    last = json.loads((tmp_path / files[-1]).read_text())
    last["targets"][0]["staged"]["digest"] = "sha256:" + "0" * 64
    (tmp_path / files[-1]).write_text(json.dumps(last))
    done = buildmatrix(tmp_path, "promote", *files)
    assert done.code == 3
    assert "no tag was set" in done.out
    assert tags(place, wanted) == {}
