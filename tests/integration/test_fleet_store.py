"""The store of a fleet in a folder, S3, GCS and Azure: emulators on loopback, real drivers.

moto's S3 server and gcp-storage-emulator are there always. Azurite is where somebody has put it
on the PATH, with adlfs in the environment: `npm install azurite` brings 190 MB.
"""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from image_registry import ImageRegistry
from layer_archives import tar
from moto.server import ThreadedMotoServer

from buildmatrix.fleet import context
from buildmatrix.fleet.model import ImageDone, Subject, WorkerSettings
from buildmatrix.fleet.work import judge_image, read_layer, resolve
from buildmatrix.images.store.cache import DAY, Cache, Store
from buildmatrix.images.store.shared import SharedEntries, open_storage

DATA = bytes(range(256)) * 8_000
BUCKET = "fleet"
URL = f"s3://{BUCKET}/facts"
AZURITE = shutil.which("azurite-blob")
PLACES = ["folder", "s3", "gs", *(["abfs"] if AZURITE else [])]
#: Azurite's; https://learn.microsoft.com/azure/storage/common/storage-use-azurite
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An empty bucket, and how this machine gets at it: by the environment alone."""
    speak_to(endpoint, monkeypatch, tmp_path)
    bucket = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()


def speak_to(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # fsspec remembers its drivers by what they were made with.
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "geheim",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


def store_of(
    folder: Path | None, notes: list[str] | None = None, patience: float = 300.0, url: str = URL
) -> Store:
    noted = [] if notes is None else notes
    shared = SharedEntries(open_storage(url), url, noted.append, patience=patience)
    cache = Cache(folder, noted.append, shared)
    return cache.store("layers", "1", limit=1 << 30, age=DAY, by_use=True)


@pytest.fixture(scope="module")
def google() -> Iterator[str]:
    from gcp_storage_emulator.server import create_server

    # It has no option for a free port, and takes 0 for one.
    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    yield f"http://127.0.0.1:{server._api._httpd.server_port}"
    server.stop()


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    assert AZURITE is not None
    line = [AZURITE, "--blobPort", port, "--inMemoryPersistence", "--disableTelemetry"]
    with subprocess.Popen([*line, "--skipApiVersionCheck"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert any(b"successfully listens" in line for line in process.stdout)
        account = f"http://127.0.0.1:{port}/devstoreaccount1"
        yield f"AccountName=devstoreaccount1;AccountKey={AZURE_KEY};BlobEndpoint={account}"
        process.terminate()


@pytest.fixture(params=PLACES)
def url(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """An empty place, and how this machine gets at it: by the environment alone."""
    if request.param == "folder":
        yield str(tmp_path / "place/facts")
        return
    if request.param == "s3":
        request.getfixturevalue("bucket")
    if request.param == "gs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("google"))
    if request.param == "abfs":
        connection = request.getfixturevalue("azure")
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
    url = f"{request.param}://{BUCKET}/facts"
    files = raw(url)
    if request.param != "s3":
        files.mkdir(BUCKET)
    yield url
    if request.param != "s3":
        files.rm(BUCKET, recursive=True)


def raw(url: str) -> Any:
    """What fsspec makes of an address, without anything remembered."""
    return fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)[0]


def the_entry(url: str) -> str:
    """The path of the only entry."""
    (path,) = raw(url).find(url)
    return str(path)


def test_what_one_worker_keeps_another_one_has(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    notes: list[str] = []
    store = store_of(tmp_path / "one", notes, url=url)
    assert store.get("key") is None and not store.has("key")
    store.put("key", DATA)
    other = store_of(tmp_path / "two", notes, url=url)
    assert other.has("key") and other.get("key") == DATA
    entry = the_entry(url)
    assert "facts/layers/" in entry
    raw(url).rm(entry)
    # What lies on a disk of this machine is not copied to another place on it.
    is_near = "://" not in url and open_storage(url).is_near()
    assert other.get("key") == (None if is_near else DATA)
    assert store_of(None, notes, url=url).get("key") is None
    assert notes == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kept", [0, 20, 1000])
def test_an_object_that_was_cut_is_not_taken_and_replaced(url: str, kept: int) -> None:
    notes: list[str] = []
    store = store_of(None, notes, url=url)
    store.put("key", DATA)
    entry = the_entry(url)
    raw(url).pipe_file(entry, raw(url).cat_file(entry)[:kept])
    assert store.get("key") is None and store.has("key") is (kept > 0)
    store.put("key", DATA)
    assert store.get("key") == DATA and notes == []


def test_a_place_that_is_not_there(url: str, tmp_path: Path) -> None:
    if "://" not in url:
        return  # A folder is made.
    url = url.replace(BUCKET, "missing")
    store = store_of(tmp_path, notes := [], url=url)
    store.put("key", DATA)
    assert store.get("key") == DATA
    assert store_of(None, url=url).get("key") is None
    (note,) = notes
    assert url in note and "cannot be written" in note
    assert AZURE_KEY not in note and "geheim" not in note


def test_a_bucket_that_is_not_there(bucket: Any, tmp_path: Path) -> None:
    store = store_of(tmp_path, notes := [])
    store.put("one", DATA)
    bucket.objects.all().delete()
    bucket.delete()
    try:
        store.put("two", DATA)
        assert store.get("two") == DATA
        assert store_of(None).get("one") is None
    finally:
        bucket.create()
    assert len(notes) == 1 and URL in notes[0] and "cannot be written" in notes[0]
    assert "geheim" not in notes[0]


@pytest.mark.parametrize("fault", ["busy", "hangs"])
def test_a_server_that_is_busy_or_hangs(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = threading.Event()

    class Faulty(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if fault == "hangs":
                done.wait(20)
                return
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        speak_to(f"http://127.0.0.1:{server.server_address[1]}", monkeypatch, tmp_path)
        notes: list[str] = []
        store = store_of(tmp_path, notes, patience=1.0)
        for number in range(3):
            store.put(f"key {number}", b"data")
            assert store.get(f"key {number}") == b"data"
            assert store.get(f"other {number}") is None
        said = sorted(note.partition("cannot ")[2].partition(":")[0] for note in notes)
        assert said == ["be read", "be written"]
    finally:
        done.set()
        server.shutdown()
        server.server_close()


def test_two_machines_judge_one_image_and_read_it_once(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = WorkerSettings(
        store=URL, platform="linux/amd64", today=date(2026, 11, 23), backend="cpu"
    )
    with ImageRegistry() as server:
        server.image([tar([("usr/lib/libx.so", Path("/bin/true").read_bytes())])], tag="1")
        subject = Subject(reference=f"{server.host}/app:1", places=("file:x",))

        def done() -> ImageDone:
            task = resolve(settings, subject)
            for layer in task.unread:
                read_layer(settings, layer)
            return judge_image(settings, task)

        answers = []
        for machine in ("one", "two"):
            monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / machine))
            context.close()
            answers.append(done())
            assert resolve(settings, subject).is_stored
        sent = [path for method, path in server.requests if "/blobs/" in path]
        assert len(sent) == len(set(sent)) == 2
    context.close()
    assert answers[0].results == answers[1].results
    assert answers[0].notes == answers[1].notes == ()
