"""One image of the fleet that is broken or hostile, in all the ways that there are."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench.fleet_registry import CONFIGURATION, LAYER, MANIFEST, tarred
from fleet_bed import IMPATIENT, Bed, Run
from fleet_checks import Ending, Fault, check, check_equal

from buildmatrix.base.data import replace
from buildmatrix.reports.fleet import FleetResult

# An image that is broken or hostile

INDEX = "application/vnd.oci.image.index.v1+json"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Victim:
    """One image of the fleet in whose place the registry serves something else for a while."""

    def __init__(self, bed: Bed, seed: random.Random) -> None:
        once = [name for name in bed.names if f"{name.partition(':')[0]}:latest" not in bed.names]
        self.name = seed.choice(once)
        self.repository, _, self.tag = self.name.partition(":")
        self.storage = bed.storage
        home = bed.storage.root / "repositories" / self.repository
        self.link = home / "_manifests/tags" / self.tag / "current/link"
        self.home = home
        self.manifest = json.loads(self.blob(self.link.read_text()).read_bytes())
        self._undo: list[Callable[[], object]] = []

    def blob(self, digest: str) -> Path:
        """Where the registry has a blob."""
        name = digest.partition(":")[2]
        return self.storage.root / "blobs/sha256" / name[:2] / name / "data"

    def put(self, data: bytes, shown: bytes | None = None) -> dict[str, Any]:
        """Have a blob of the repository, of which other bytes may be shown."""
        digest = self.storage.blob(data)
        self.storage._link(self.home / "_layers/sha256" / digest[7:] / "link", digest)
        if shown is not None:
            self.blob(digest).write_bytes(shown)
            self._undo.append(lambda: self.blob(digest).write_bytes(data))
        return {"digest": digest, "size": len(data)}

    def serve(self, data: bytes, shown: bytes | None = None) -> None:
        """Have the tag lead to a manifest."""
        digest = self.put(data, shown)["digest"]
        self.storage._link(self.home / "_manifests/revisions/sha256" / digest[7:] / "link", digest)
        before = self.link.read_text()
        # The first of them is a hard link that others share.
        self.link.unlink()
        self.link.write_text(digest)

        def back() -> None:
            self.link.unlink()
            self.link.write_text(before)

        self._undo.append(back)

    def with_top(self, layer: Mapping[str, Any], diff_id: str = "") -> bytes:
        """Its manifest with one more layer."""
        configuration = json.loads(self.blob(self.manifest["config"]["digest"]).read_bytes())
        configuration["rootfs"]["diff_ids"].append(diff_id or _digest(b"more"))
        configuration["history"].append({"created_by": "COPY more /"})
        config = {**self.manifest["config"], **self.put(json.dumps(configuration).encode())}
        whole = {"mediaType": LAYER, **layer}
        return json.dumps(
            {**self.manifest, "config": config, "layers": [*self.manifest["layers"], whole]}
        ).encode()

    def mend(self) -> None:
        """Serve what was served before."""
        while self._undo:
            self._undo.pop()()


def _more(seed: random.Random) -> bytes:
    """A layer that nobody else has."""
    return gzip.compress(tarred([(f"srv/more-{seed.random()}", seed.randbytes(2000))]), mtime=0)


def bad_digest(victim: Victim, seed: random.Random) -> None:
    data = _more(seed)
    place = seed.randrange(10, len(data))
    torn = data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]
    victim.serve(victim.with_top(victim.put(data, torn)))


def truncated_blob(victim: Victim, seed: random.Random) -> None:
    data = _more(seed)
    victim.serve(victim.with_top(victim.put(data, data[: seed.randrange(len(data))])))


def truncated_stream(victim: Victim, seed: random.Random) -> None:
    data = _more(seed)
    victim.serve(victim.with_top(victim.put(data[: seed.randrange(20, len(data) - 9)])))


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(300 << 20), mtime=0)


def bomb(victim: Victim, seed: random.Random) -> None:
    victim.serve(victim.with_top(victim.put(_bomb())))


def not_a_layer(victim: Victim, seed: random.Random) -> None:
    victim.serve(victim.with_top(victim.put(seed.randbytes(3000))))


def broken_manifest(victim: Victim, seed: random.Random) -> None:
    data = json.dumps(victim.manifest).encode()
    victim.serve(data[: seed.randrange(1, len(data))])


def lying_manifest(victim: Victim, seed: random.Random) -> None:
    data = victim.with_top(victim.put(_more(seed)))
    victim.serve(data, data.replace(b'"size": ', b'"size":  ', 1))


def foreign_media_type(victim: Victim, seed: random.Random) -> None:
    kind = seed.choice(
        [
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip.example",
            "application/vnd.example.layer.v1+squashfs",
            "text/html",
        ]
    )
    victim.serve(victim.with_top({**victim.put(_more(seed)), "mediaType": kind}))


def cyclic_index(victim: Victim, seed: random.Random) -> None:
    """An index that names itself: its bytes cannot have the digest under which it stands."""
    name = _digest(seed.randbytes(20))
    entry = {
        "mediaType": INDEX,
        "digest": name,
        "size": 400,
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()
    place = victim.blob(name)
    place.parent.mkdir(parents=True)
    place.write_bytes(index)
    victim.storage._link(victim.home / "_manifests/revisions/sha256" / name[7:] / "link", name)
    before = victim.link.read_text()
    victim.link.unlink()
    victim.link.write_text(name)

    def back() -> None:
        victim.link.unlink()
        victim.link.write_text(before)

    victim._undo.append(back)


def nested_index(victim: Victim, seed: random.Random) -> None:
    """Indexes in indexes, thirty deep."""
    entry: dict[str, Any] = {"mediaType": MANIFEST, **victim.put(seed.randbytes(300))}
    for _ in range(30):
        entry["platform"] = {"os": "linux", "architecture": "amd64"}
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
        digest = victim.put(index.encode())["digest"]
        revision = victim.home / "_manifests/revisions/sha256" / digest[7:] / "link"
        victim.storage._link(revision, digest)
        entry = {"mediaType": INDEX, "digest": digest, "size": len(index)}
    victim.serve(index.encode())


def broken_configuration(victim: Victim, seed: random.Random) -> None:
    config = {"mediaType": CONFIGURATION, **victim.put(seed.randbytes(100))}
    victim.serve(json.dumps({**victim.manifest, "config": config}).encode())


def endless_layer(victim: Victim, seed: random.Random) -> None:
    data = _more(seed)
    victim.serve(victim.with_top({**victim.put(data), "size": 1 << seed.randint(37, 62)}))


BROKEN: Mapping[str, Callable[[Victim, random.Random], None]] = {
    "layer with another digest": bad_digest,
    "layer cut by the registry": truncated_blob,
    "layer whose gzip stream ends": truncated_stream,
    "gzip bomb": bomb,
    "layer that is none": not_a_layer,
    "manifest cut": broken_manifest,
    "manifest with another digest": lying_manifest,
    "foreign media type": foreign_media_type,
    "index that names itself": cyclic_index,
    "indexes in indexes": nested_index,
    "configuration that is none": broken_configuration,
    "layer without end": endless_layer,
}


def broken(kind: str) -> Fault:
    """One image is broken in some way, and mended for the next run."""

    def fault(bed: Bed, seed: random.Random, folder: Path) -> Ending:
        victim = Victim(bed, seed)
        BROKEN[kind](victim, seed)
        try:
            run = bed.run(folder / "store", waiting=IMPATIENT)
            ending = check(run, bed.truth)
            assert list(run.undecided) == [bed.reference(victim.name)], run.undecided
            # What is broken stays undecided, however often it is asked for.
            again = bed.run(folder / "store", waiting=IMPATIENT)
            assert check(again, bed.truth) == ending
            assert again.undecided == run.undecided
        finally:
            victim.mend()
        check_equal(bed.run(folder / "store"), bed.truth)
        return ending

    return fault


IMAGE: Mapping[str, Fault] = {kind: broken(kind) for kind in BROKEN}


def path_escapes(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """A layer with names and links that lead out: it is judged, and nothing outside is touched."""
    victim = Victim(bed, seed)
    outside = folder / "outside"
    outside.mkdir()
    up = "../" * 12
    victim.serve(
        victim.with_top(
            victim.put(
                escaping(
                    [
                        (f"{up}{outside}/up", b"up"),
                        (f"{outside}/absolute", b"absolute"),
                        (f"usr/lib/{up}{outside}/libx.so", Path("/bin/true").read_bytes()),
                    ],
                    {"opt/way": str(outside), f"{up}{outside}/link": "/etc/passwd"},
                    "opt/way/through",
                )
            )
        )
    )
    try:
        run = bed.run(folder / "store")
        assert list(outside.iterdir()) == []
        others = replace_of(run, victim, bed)
        check_equal(others, bed.truth)
        again = bed.run(folder / "store")
        assert again.report.results == run.report.results
    finally:
        victim.mend()
    check_equal(bed.run(folder / "store"), bed.truth)
    return "equal"


def escaping(files: list[tuple[str, bytes]], links: Mapping[str, str], through: str) -> bytes:
    """A layer of such names; a file behind a link is its last entry."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, target in links.items():
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                archive.addfile(info)
        for name, data in [*files, (through, b"through")]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(held.getvalue(), mtime=0)


def replace_of(run: Run, victim: Victim, bed: Bed) -> Run:
    """A run with what the truth says of one image, which has other bytes in it."""
    reference = bed.reference(victim.repository)
    (true,) = (item for item in bed.truth.results if item.repository == reference)
    (own,) = (item for item in run.report.results if item.repository == reference)
    assert own.state in (true.state, "undecided") and own.digest != true.digest

    def swapped(results: tuple[FleetResult, ...]) -> tuple[FleetResult, ...]:
        return tuple(true if item.repository == reference else item for item in results)

    report = replace(run.report, results=swapped(run.report.results))
    return replace(run, report=report, lines=swapped(run.lines), code=0)
