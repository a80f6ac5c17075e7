"""What can go wrong with the store that all workers share: a folder, and a bucket."""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import os
import random
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleet_bed import Bed
from fleet_checks import Ending, Fault, check_equal
from loopback import Misdeed, Request, Response, answering, cut_after

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
    # What a store on a disk of this machine has is not in the cache as well.
    is_cache = seed.choice([False, True])
    store = "" if is_cache else folder / "store"
    mark = folder / "killed"
    bed.on_workers(die_in_write, seed.randint(1, 25), str(mark))
    try:
        run = bed.run(store)
        assert mark.exists()
        check_equal(run, bed.truth)
        unfinished = [*folder.glob("store/*/.*"), *bed.folder.glob("cache/buildmatrix/*/.*")]
        assert unfinished, "it was in the middle of a file"
        check_equal(bed.run(store, keep=is_cache), bed.truth)
    finally:
        bed.on_workers(write_again)
    return "equal"


def die_in_write(number: int, mark: str) -> None:
    """Have this process end in the middle of a file; one of all processes does."""
    from buildmatrix.facts.inventory import archive
    from buildmatrix.images.store import shared

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
        with archive.open_atomically(path, is_private=is_private) as file:
            yield Torn(file)

    shared.open_atomically = atomically  # type: ignore[attr-defined]


def write_again() -> None:
    """Take back what `die_in_write` did."""
    from buildmatrix.facts.inventory import archive
    from buildmatrix.images.store import shared

    shared.open_atomically = archive.open_atomically  # type: ignore[attr-defined]


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
        assert last.report.work.stored > len(bed.names) // 2, last.report.notes
    return "equal"


BUCKET: Mapping[str, Fault] = {
    "S3 cuts connections": s3_cuts_connections,
    "S3 writer killed in the middle of an object": s3_writer_killed,
    "S3 credentials expire": s3_credentials_expire,
}
