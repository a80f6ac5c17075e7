"""What can go wrong under a run of `fleet scan`, each as one round with a seed.

A round does something to the parts of a `Bed`, runs twice or more, and says how the first run
ended: `equal` to an undisturbed one, or `undecided` in part. Anything else fails an assertion.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import io
import itertools
import json
import logging
import os
import random
import signal
import subprocess
import tarfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bench.fleet_registry import CONFIGURATION, LAYER, MANIFEST, tarred
from fault_proxy import hung_up
from fleet_bed import IMPATIENT, Bed, Run
from loopback import Misdeed, Request, Response, answering, cut_after
from registry import basic

from buildmatrix.reports.fleet.assembly import assemble
from buildmatrix.reports.fleet.model import FleetReport, FleetResult

Ending = Literal["equal", "undecided"]
#: One round: what stands in the folder is its own.
Fault = Callable[[Bed, random.Random, Path], Ending]
INDEX = "application/vnd.oci.image.index.v1+json"


def check(run: Run, truth: FleetReport, stopped: int = 0) -> Ending:
    """What must hold for every run, whatever happened: nothing lost, twice, or falsely clean."""
    results = run.report.results
    keys = [item.key for item in results]
    assert len(keys) == len(set(keys)), "counted twice"
    assert assemble("", run.lines, "").results == results, "lines and report differ"
    wrong = [item for item in results if not _is_true(item, truth)]
    for item in wrong:
        assert item.state == "undecided", f"{item} is none of the truth"
        error = item.error or ""
        assert 20 < len(error) <= 1000 and "\n" not in error and "Traceback" not in error, error
        assert "internal error" not in error, error
    names = {(item.repository, name) for item in results for name in item.names}
    lost = {(item.repository, name) for item in truth.results for name in item.names} - names
    if stopped:
        assert run.code == stopped, run.code
        assert any("the run ended before" in text for text in run.report.missing)
        return "undecided"
    assert not lost, f"lost: {lost}"
    assert run.report.missing == (), run.report.missing
    assert run.code == (3 if wrong else 0), run.code
    return "undecided" if wrong else "equal"


def _is_true(result: FleetResult, truth: FleetReport) -> bool:
    """Whether it is in the truth; some of the tags of an image may be undecided by themselves."""
    return any(
        {*result.names} <= {*item.names}
        and {*result.places} <= {*item.places}
        and replace(result, names=item.names, places=item.places) == item
        for item in truth.results
    )


def check_equal(run: Run, truth: FleetReport) -> None:
    """A run that says what an undisturbed one says."""
    assert check(run, truth) == "equal", run.undecided
    assert run.report.results == truth.results


def chosen(seed: random.Random, share: float, misdeed: Callable[[random.Random], Misdeed]) -> Any:
    """A plan that does something to the first requests for some paths; they stay the same ones."""
    about = seed.random()

    def plan(request: Request, number: int) -> Misdeed | None:
        path = request.path.partition("?")[0]
        own = random.Random(f"{about} {request.method} {path}")
        if "/v2/" not in path or own.random() > share:
            return None
        return misdeed(own) if number < own.randint(1, 3) else None

    return plan


# A registry that is down, busy or breaks off


def registry_down_for_a_while(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Killed in the middle, and started again after some requests came to nothing."""
    first, failed = seed.randint(2, 35), seed.randint(2, 12)
    bed.proxy.at(first, bed.registry.kill)
    bed.proxy.at(first + failed, bed.registry.start)
    run = bed.run(folder / "store")
    assert bed.registry.process is not None and bed.proxy.total > first + failed
    check_equal(run, bed.truth)
    return "equal"


def registry_gone_until_the_next_run(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Killed in the middle, and back for the next run only."""
    bed.proxy.at(seed.randint(2, 35), bed.registry.kill)
    run = bed.run(folder / "store", waiting=IMPATIENT)
    assert bed.registry.process is None
    ending = check(run, bed.truth)
    assert ending == "undecided"
    bed.registry.start()
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


def registry_throttles(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """429 with `Retry-After`."""
    bed.proxy.plan = chosen(seed, 0.3, lambda own: answering(429, retry_after="1"))
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_unavailable(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """503 and its like."""
    statuses = (500, 502, 503, 504)
    bed.proxy.plan = chosen(seed, 0.4, lambda own: answering(own.choice(statuses)))
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_resets_connections(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """RST in place of an answer."""
    bed.proxy.plan = chosen(seed, 0.4, lambda own: hung_up())
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_cuts_bodies(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """The connection ends in the middle of a body."""

    def cut(own: random.Random) -> Misdeed:
        return cut_after(own.randint(1, 150), reset=own.random() < 0.5)

    bed.proxy.plan = chosen(seed, 0.5, cut)
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


REGISTRY: Mapping[str, Fault] = {
    "registry killed and started again": registry_down_for_a_while,
    "registry gone until the next run": registry_gone_until_the_next_run,
    "registry throttles (429, Retry-After)": registry_throttles,
    "registry answers 500 to 504": registry_unavailable,
    "registry resets connections": registry_resets_connections,
    "registry cuts bodies": registry_cuts_bodies,
}

# An image that is broken or hostile


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


# Workers and schedulers


def worker_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """SIGKILL for one worker, twice."""
    fired = []

    def kill() -> None:
        fired.append(bed.kill_worker(seed.randrange(2)))

    # What earlier runs said is looked up before anything is handed to workers.
    first = seed.randint(1, 12)
    bed.proxy.at(first, kill)
    bed.proxy.at(first + seed.randint(18, 30), kill)
    run = bed.run(folder / "store")
    assert fired == [True, True]
    check_equal(run, bed.truth)
    assert run.report.work.retries > 0, "what Dask repeats is counted"
    check_equal(bed.run(folder / "store"), bed.truth)
    return "equal"


def scheduler_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """SIGKILL for a scheduler of its own, with its workers; the next run has another one."""
    with own_scheduler(bed) as (address, kill):
        bed.proxy.at(seed.randint(2, 35), kill)
        run = bed.run(folder / "store", scheduler=address)
    ending = check(run, bed.truth, stopped=5)
    assert "is gone" in " ".join(run.log)
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


def _serve(address: Any) -> None:
    from distributed import Scheduler, Worker

    async def serve() -> None:
        async with (
            Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler,
            Worker(scheduler.address, nthreads=1, dashboard=False),
            Worker(scheduler.address, nthreads=1, dashboard=False),
        ):
            address.put(scheduler.address)
            await scheduler.finished()

    asyncio.run(serve())


@contextmanager
def own_scheduler(bed: Bed) -> Iterator[tuple[str, Callable[[], None]]]:
    """A scheduler with two workers in one process: its address, and what kills it."""
    from distributed.utils import get_mp_context

    multiprocessing = get_mp_context()
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=_in_environment, args=(bed.environment, queue))
    process.start()
    try:
        yield queue.get(timeout=120), process.kill
    finally:
        process.kill()
        process.join()


def _in_environment(environment: Mapping[str, str], queue: Any) -> None:
    os.environ.update(environment)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _serve(queue)


WORKERS: Mapping[str, Fault] = {
    "worker killed": worker_killed,
    "scheduler and workers killed": scheduler_killed,
}

# The store


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A small file system of its own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a file system that `mounted` made."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def store_full(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """No room after some entries, and more of it for the next run."""
    with mounted(folder / "store", f"{seed.randint(16, 160)}k") as store:
        run = bed.run(store)
        check_equal(run, bed.truth)
        assert any("no space left" in note for note in run.report.notes), run.report.notes
        assert bed.run(store).report.results == bed.truth.results
        remount(store, "size=32m")
        check_equal(bed.run(store), bed.truth)
        last = bed.run(store)
        check_equal(last, bed.truth)
        assert last.report.work.stored == len(bed.names)
    return "equal"


def store_read_only(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Half of the fleet is in the store when it may only be read."""
    half = seed.sample(bed.names, len(bed.names) // 2)
    with mounted(folder / "store", "32m") as store:
        bed.run(store, names=half)
        remount(store, "ro")
        for _ in range(2):
            run = bed.run(store)
            check_equal(run, bed.truth)
            assert len(half) <= run.report.work.stored < len(bed.names)
            assert any("cannot be written" in note for note in run.report.notes)
        remount(store, "rw")
        check_equal(bed.run(store), bed.truth)
    return "equal"


def store_writer_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """A worker gets SIGKILL when half of an entry is written, in the cache or in the store."""
    where = seed.choice(["store.shared", "store.cache"])
    mark = folder / "killed"
    bed.on_workers(die_in_write, f"buildmatrix.{where}", seed.randint(1, 25), str(mark))
    try:
        run = bed.run(folder / "store")
        assert mark.exists()
        check_equal(run, bed.truth)
        unfinished = [*folder.glob("store/*/.*"), *bed.folder.glob("cache/buildmatrix/*/.*")]
        assert unfinished, "it was in the middle of a file"
        check_equal(bed.run(folder / "store"), bed.truth)
    finally:
        bed.on_workers(write_again)
    return "equal"


def die_in_write(module: str, number: int, mark: str) -> None:
    """Have this process end in the middle of a file; one of all processes does."""
    import importlib

    from buildmatrix.inventory import writing

    count = itertools.count(1)

    class Torn:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, data: bytes) -> None:
            half = len(data) // 2
            self._file.write(data[:half])
            if half and next(count) >= number:
                self._file.flush()
                with suppress(FileExistsError):
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                    os.kill(os.getpid(), signal.SIGKILL)
            self._file.write(data[half:])

    @contextmanager
    def atomically(path: Path, *, is_private: bool = False) -> Iterator[Any]:
        with writing.atomically(path, is_private=is_private) as file:
            yield Torn(file)

    importlib.import_module(module).atomically = atomically  # type: ignore[attr-defined]


def write_again() -> None:
    """Take back what `die_in_write` did."""
    from buildmatrix.inventory import writing
    from buildmatrix.store import cache, shared

    cache.atomically = shared.atomically = writing.atomically  # type: ignore[attr-defined]


def store_torn(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Entries that are cut, damaged or swapped, as a machine leaves them that loses its power."""
    check_equal(bed.run(folder / "store"), bed.truth)
    entries = sorted(path for path in (folder / "store").rglob("*") if path.is_file())
    for path in seed.sample(entries, len(entries) // 2):
        data = path.read_bytes()
        match seed.randrange(4):
            case 0:
                path.write_bytes(data[: seed.randrange(len(data))])
            case 1:
                place = seed.randrange(len(data))
                path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            case 2:
                path.write_bytes(seed.choice(entries).read_bytes())
            case 3:
                path.write_bytes(bytes(len(data)))
    check_equal(bed.run(folder / "store"), bed.truth)
    last = bed.run(folder / "store")
    check_equal(last, bed.truth)
    assert last.report.work.stored == len(bed.names), "what was torn is replaced"
    return "equal"


def two_runs_at_once(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Two runs over the same images with one store, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(bed.run, folder / "store", keep=bool(number), at=str(number))
            for number in range(2)
        ]
        for run in runs:
            check_equal(run.result(), bed.truth)
    last = bed.run(folder / "store")
    check_equal(last, bed.truth)
    assert last.report.work.stored == len(bed.names)
    return "equal"


STORE: Mapping[str, Fault] = {
    "store full": store_full,
    "store read-only": store_read_only,
    "writer killed in the middle of an entry": store_writer_killed,
    "entries cut, damaged, swapped": store_torn,
    "two runs at once on one store": two_runs_at_once,
}
# A store in a bucket


@contextmanager
def bucket(bed: Bed) -> Iterator[str]:
    """A bucket of moto's S3 server, behind a proxy of its own; the URL of a store in it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        bed.s3.reset()
        bed.s3.port = server.get_host_and_port()[1]
        aws_key(bed, "OLD")
        connection = http.client.HTTPConnection("127.0.0.1", bed.s3.port)
        connection.request("PUT", "/fleet")
        assert connection.getresponse().status == 200
        connection.close()
        yield f"s3://fleet/{uuid.uuid4().hex}"
    finally:
        server.stop()


def aws_key(bed: Bed, name: str) -> None:
    """What the helper says from now on."""
    end = datetime.now(UTC) + timedelta(hours=5)
    answer = {
        "Version": 1,
        "AccessKeyId": name,
        "SecretAccessKey": "geheim",
        "SessionToken": "token",
        "Expiration": end.isoformat(),
    }
    (bed.folder / "aws.json").write_text(json.dumps(answer))


def cut_while_reading(then: Callable[[], object] = lambda: None) -> Misdeed:
    """Half of what is sent is taken; then the connection is reset."""

    def misdeed(request: Request, serve: Callable[[Request], Response]) -> Response:
        request.read(int(request.headers.get("content-length", 0)) // 2)
        then()
        return Response(0, dropped=True, reset=True)

    return misdeed


def s3_cuts_connections(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Writing and reading of some objects breaks off in the middle, now and then for good."""
    about, share = seed.random(), seed.uniform(0.1, 0.9)

    def plan(request: Request, number: int) -> Misdeed | None:
        own = random.Random(f"{about} {request.method} {request.path}")
        if own.random() > share or number >= own.choice((1, 2, 5)):
            return None
        return cut_while_reading() if request.method == "PUT" else cut_after(own.randint(1, 40))

    with bucket(bed) as url:
        bed.s3.plan = plan
        check_equal(bed.run(url), bed.truth)
        check_equal(bed.run(url), bed.truth)
        bed.s3.reset()
        check_equal(bed.run(url), bed.truth)
        last = bed.run(url)
        check_equal(last, bed.truth)
        assert last.report.work.stored == len(bed.names)
    return "equal"


def s3_writer_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Both workers get SIGKILL when half of an object is sent."""
    first = seed.randint(1, 25)
    count = itertools.count(1)
    fired: list[bool] = []

    def kill() -> None:
        fired.extend(bed.kill_worker(number) for number in (1, 0))

    def plan(request: Request, number: int) -> Misdeed | None:
        is_turn = request.method == "PUT" and next(count) == first
        return cut_while_reading(kill) if is_turn else None

    with bucket(bed) as url:
        bed.s3.plan = plan
        check_equal(bed.run(url), bed.truth)
        assert any(fired)
        check_equal(bed.run(url), bed.truth)
        last = bed.run(url)
        assert last.report.work.stored == len(bed.names)
    return "equal"


def s3_credentials_expire(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """The key is refused from some request on; the helper has another one by then."""
    first = seed.randint(5, 60)
    expired: list[bool] = []

    def plan(request: Request, number: int) -> Misdeed | None:
        if "Credential=OLD/" not in request.headers.get("authorization", ""):
            return None
        if bed.s3.total < first:
            return None
        if not expired:
            aws_key(bed, "NEW")
        expired.append(True)
        text = b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
        return answering(400, text, content_type="application/xml")

    with bucket(bed) as url:
        bed.s3.plan = plan
        check_equal(bed.run(url), bed.truth)
        assert expired
        last = bed.run(url)
        check_equal(last, bed.truth)
        # What was under way when the key ran out may have been kept by nobody.
        assert last.report.work.stored > len(bed.names) // 2, last.report
    return "equal"


# Credentials of the registry


class Guard:
    """Wants tokens, which it gives for a password; both may expire."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.token = self.password = 0
        self.tell()

    def tell(self) -> None:
        """Have the helper say the password of now."""
        answer = {"Username": "robot", "Secret": f"password-{self.password}"}
        (self.bed.folder / "secret.json").write_text(json.dumps(answer))

    def plan(self, request: Request, number: int) -> Misdeed | None:
        """See `FaultProxy.plan`."""
        sent = request.headers.get("authorization", "")
        if request.path.startswith("/token"):
            if sent != basic("robot", f"password-{self.password}"):
                return answering(401)
            body = json.dumps({"token": f"token-{self.token}", "expires_in": 300}).encode()
            return answering(200, body, content_type="application/json")
        if sent == f"Bearer token-{self.token}":
            return None
        challenge = f'Bearer realm="{self.bed.proxy.origin}/token",service="test"'
        return answering(401, www_authenticate=challenge)


def token_expires(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """The registry takes no token of before any more, three times."""
    guard = Guard(bed)

    def expire() -> None:
        guard.token += 1

    for total in sorted(seed.sample(range(5, 60), 3)):
        bed.proxy.at(total, expire)
    bed.proxy.plan = guard.plan
    check_equal(bed.run(folder / "store"), bed.truth)
    assert guard.token > 0
    return "equal"


def password_expires(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Token and password are good no longer; the helper has the new one some requests later."""
    guard = Guard(bed)

    def expire() -> None:
        guard.token += 1
        guard.password += 1

    first = seed.randint(5, 45)
    bed.proxy.at(first, expire)
    bed.proxy.at(first + seed.randint(1, 6), guard.tell)
    bed.proxy.plan = guard.plan
    run = bed.run(folder / "store")
    assert guard.token == 1
    ending = check(run, bed.truth)
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


BUCKET: Mapping[str, Fault] = {
    "S3 cuts connections": s3_cuts_connections,
    "S3 writer killed in the middle of an object": s3_writer_killed,
    "S3 credentials expire": s3_credentials_expire,
}
CREDENTIALS: Mapping[str, Fault] = {
    "registry token expires": token_expires,
    "registry password expires": password_expires,
}
FAULTS: Mapping[str, Fault] = {
    **REGISTRY,
    **IMAGE,
    "names and links that lead out": path_escapes,
    **WORKERS,
    **STORE,
    **BUCKET,
    **CREDENTIALS,
}
