"""Several machines that attest one image at the same moment: nobody takes out what another added.

A registry has no lock, and the list of an image's referrers may be a tag.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hasty import HASTY
from registry import RegistryServer

from buildmatrix.attestation import bundle
from buildmatrix.attestation.attach import Claim, attach
from buildmatrix.attestation.keys import read_private
from buildmatrix.oci.documents import Descriptor, Manifest, encode
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference

KEY = read_private(Path(__file__).parent / "vectors/openssl.pem", None)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TYPE = "urn:example:1"


@pytest.mark.parametrize("referrers", [True, False], ids=["referrers", "tag"])
def test_machines_that_start_at_one_moment_all_find_their_verdict(
    referrers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over HTTP, each with a client of its own; also where the list itself is under a tag."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    names = [f"t{number}" for number in range(4)]
    with RegistryServer(referrers=referrers) as server:
        manifest = encode(
            Manifest(
                config=Descriptor(
                    media_type="application/vnd.oci.image.config.v1+json",
                    digest=server.put("demo", b"{}"),
                    size=2,
                ),
                layers=(),
                media_type="application/vnd.oci.image.manifest.v1+json",
            )
        )
        digest = server.tag("demo", "1", manifest)
        image = Reference.parse(f"{server.host}/demo:1").at(digest)
        start = Barrier(len(names))

        def work(target: str) -> None:
            with Registry(patience=HASTY) as registry:
                start.wait(300)
                attach(registry, image, Claim(target, TYPE, b"{}"), KEY, NOW)

        threads = [Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        with Registry(patience=HASTY) as registry:
            listed = registry.referrers(image, image.digest)
            assert {item.annotations[bundle.PREDICATE_TYPE] for item in listed} == {TYPE}
            assert sorted(item.annotations["dev.buildmatrix.target"] for item in listed) == names
