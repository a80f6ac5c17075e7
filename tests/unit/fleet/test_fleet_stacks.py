"""What lies on a stack has the results of the stack exactly where merging all layers says so, too.

Every image here is judged twice: through what is known of its stack, and with all of its layers.
"""

from __future__ import annotations

import random
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from image_registry import ImageRegistry
from layer_archives import Entry, folder, hard, link, special, tar
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.listing import RecordedLookups
from buildmatrix.fleet import context, stacks
from buildmatrix.fleet.context import WorkerContext
from buildmatrix.fleet.judging import ImageQuestion, judge
from buildmatrix.fleet.model import Subject, WorkerSettings
from buildmatrix.fleet.stacks import Stacks, is_relevant_variable
from buildmatrix.fleet.work import judge_image, resolve
from buildmatrix.images.image import LayerReader
from buildmatrix.images.store.cache import Store
from buildmatrix.matrix.model import NodeClass, Position
from buildmatrix.reports.fleet import FleetResult

RESULTS = Stacks.results
MAKE_STACK = stacks._make_stack
GET = Store.get
SITE = "opt/venv/lib/python3.11/site-packages"
SETTINGS = WorkerSettings(
    store="",
    platform="linux/amd64",
    today=date(2026, 11, 23),
    backend="cpu",
    node_classes=(
        NodeClass("a100", "cuda", "550", ("sm_80",), {}, (), Position("nodes.toml", 1)),
        NodeClass("plain", "cpu", "", (), {}, (), Position("nodes.toml", 2)),
    ),
    would_run_on=("a100", "plain"),
)
INFO = "nvidia_nccl_cu12-2.27.3.dist-info"
#: A stack with a distribution that lists files that are not there, a folder of a `.pth` file that
#: is not there, links that lead nowhere, and files that it deletes again.
STACK: list[list[Entry]] = [
    [
        ("etc/os-release", b"ID=debian\n"),
        ("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n/srv/libraries\n"),
        ("var/lib/dpkg/status", b"Package: libc6\nStatus: install ok installed\nVersion: 2\n\n"),
        ("usr/bin/python3.11", ELF),
        ("usr/lib/libbase.so.1", ELF + b"base"),
        ("srv/data/large.bin.txt", bytes(200_000)),
        link("srv/next", "/srv/release"),
        link("lib", "usr/lib"),
    ],
    [
        ("opt/venv/pyvenv.cfg", b"home = /usr/bin\nversion = 3.11.2\n"),
        ("opt/venv/bin/python", b"#!"),
        (f"{SITE}/editable.pth", b"/srv/source\n/srv/data\n"),
        (f"{SITE}/{INFO}/METADATA", b"Name: nvidia-nccl-cu12\nVersion: 2.27.3\n"),
        (
            f"{SITE}/{INFO}/RECORD",
            b"nvidia/nccl/lib/libnccl.so.2,,\nnvidia/missing.py,,\n../../../../../srv/listed.txt,,\n"
            b"../../../share/nccl/notes.txt,,\n",
        ),
        (f"{SITE}/nvidia/nccl/lib/libnccl.so.2", ELF + bytes(1_000_000)),
        (f"{SITE}/nvidia/__init__.py", b"import ctypes\nctypes.CDLL('libnccl.so.2')\n"),
        ("srv/.wh.gone", b""),
    ],
]
CODE = b"import torch\nimport nvidia\nprint(1)\n"
#: Layers on which nothing depends ...
PLAIN: Mapping[str, list[Entry]] = {
    "application": [("app/main.py", CODE), ("app/data.json", b"{}" * 50), folder("app/empty")],
    "below a folder that is there": [("srv/app/main.py", CODE), ("srv/data/more.txt", b"1" * 99)],
    "nothing": [],
    "folders that are there": [folder("srv"), folder("srv/data"), ("srv/x/y/z.txt", b"text")],
    "where a link leads that nobody follows": [("srv/release/main.py", CODE)],
    "large text": [("app/words.txt", b"word " * 300_000)],
}
#: ... and those on which something may.
OTHER: Mapping[str, list[Entry]] = {
    "library": [("app/libmore.so", ELF + b"more")],
    "a module of a distribution": [(f"{SITE}/nvidia/missing.py", b"import os\n")],
    "a module in a site": [(f"{SITE}/other.py", CODE)],
    "what a RECORD lists": [("srv/listed.txt", b"listed" * 1000)],
    "what another RECORD lists": [("opt/venv/share/nccl/notes.txt", b"listed" * 1000)],
    "a folder that a .pth names": [("srv/source/pack/__init__.py", CODE)],
    "through a link": [("lib/notes.txt", b"text")],
    "a whiteout": [("srv/data/.wh.large.bin.txt", b"")],
    "an opaque folder": [("srv/data/.wh..wh..opq", b"")],
    "a replaced file": [("srv/data/large.bin.txt", b"less")],
    "a file over a folder": [("srv/data", b"file")],
    "a folder over a file": [folder("etc/os-release")],
    "a folder over a link": [folder("lib")],
    "a hard link": [hard("app/again", "usr/lib/libbase.so.1")],
    "a link": [link("app/current", "releases/1")],
    "a device": [special("app/pipe", tarfile.FIFOTYPE)],
    "an interpreter": [("usr/local/bin/python3.12", b"#!"), ("usr/local/lib/x", b"1")],
    "metadata": [("app/x-1.0.dist-info/METADATA", b"Name: x\nVersion: 1.0\n")],
    "a package of the system": [("var/lib/dpkg/status.d/cuda", b"Package: cuda\nVersion: 1\n")],
    "a database of RPM": [("var/lib/rpm/Packages", b"no database")],
    "a folder of the loader": [("etc/ld.so.conf.d/more.conf", b"/srv/more\n")],
    "a cache": [("root/.cache/pip/http/body.txt", bytes(3_000_000))],
    "an environment": [("app/venv/pyvenv.cfg", b"home = /usr/bin\nversion = 3.11.2\n")],
    "a name that leads out": [("app/../../x", b"1")],
    "a deep name": [("d/" * 100 + "x", b"1")],
    "an archive": [("app/code.zip", b"PK\x03\x04" + bytes(300))],
    "a name that is no text": [(b"app/\xff.txt".decode("utf-8", "surrogateescape"), b"1")],
}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    context.close()
    yield
    context.close()


@pytest.fixture
def server() -> Iterator[ImageRegistry]:
    with ImageRegistry() as server:
        yield server


def push(
    server: ImageRegistry, above: Sequence[Sequence[Entry]], config: Mapping[str, object]
) -> None:
    layers = [tar(entries) for entries in (*STACK, *above)]
    server.image(layers, config=config, tag="1")


def on_a_stack(server: ImageRegistry, monkeypatch: pytest.MonkeyPatch) -> tuple[FleetResult, ...]:
    """The results through what is known of the stack, none where that says nothing.

    They are those of all layers.
    """
    seen: list[tuple[FleetResult, ...]] = []

    def noted(*args: object) -> tuple[FleetResult, ...]:
        seen.append(RESULTS(*args))
        return seen[-1]

    subject = Subject(reference=f"{server.host}/app:1", places=("x",))

    def done() -> tuple[FleetResult, ...]:
        return judge_image(SETTINGS, replace(resolve(SETTINGS, subject), results=())).results

    monkeypatch.setattr(Stacks, "results", noted)
    first = done()
    monkeypatch.setattr(Stacks, "results", lambda *_: ())
    assert first == done()
    return seen[0]


@pytest.mark.parametrize("name", PLAIN)
def test_a_layer_that_adds_what_means_nothing(
    name: str, server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(server, [PLAIN[name]], {"Env": ["VERSION=1"]})
    (result,) = on_a_stack(server, monkeypatch)
    assert result.state == "failed" and len(result.layers) == 3


@pytest.mark.parametrize("name", OTHER)
def test_a_layer_that_may_do_more(
    name: str, server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(server, [OTHER[name]], {})
    assert on_a_stack(server, monkeypatch) == ()


def test_two_layers_of_which_one_replaces_what_the_other_brought(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(server, [PLAIN["application"], [("app/main.py", b"other")]], {})
    assert on_a_stack(server, monkeypatch) == ()
    push(server, [[("app", b"file")], PLAIN["application"]], {})
    assert on_a_stack(server, monkeypatch) == ()
    push(server, [PLAIN["application"], PLAIN["large text"]], {})
    assert on_a_stack(server, monkeypatch)


@pytest.mark.parametrize(
    "variables",
    [
        ["PYTHONPATH=/srv/source:/app"],
        ["LD_LIBRARY_PATH=/app/lib", "CUDA_VERSION=12.8"],
        ["PIP_CACHE_DIR=/app"],
        ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=99"],
        ["HOME=/app"],
    ],
)
def test_variables_of_the_image_count(
    variables: list[str], server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same layers, and after a stack without them is known."""
    config = {"Labels": {"com.nvidia.cudnn.version": "9.1", "team": "blue"}}
    push(server, [PLAIN["application"]], {})
    on_a_stack(server, monkeypatch)
    push(server, [PLAIN["application"]], {"Env": variables, **config})
    on_a_stack(server, monkeypatch)


def test_any_mixture_of_layers(server: ImageRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(15)
    entries = [entry for layer in (*PLAIN.values(), *OTHER.values()) for entry in layer]
    for _ in range(10):
        above = [drawn.sample(entries, drawn.randint(0, 3)) for _ in range(drawn.randint(1, 3))]
        push(server, above, {})
        on_a_stack(server, monkeypatch)


def test_a_stack_is_judged_once_by_all_workers(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []

    def counted(*args: object) -> object:
        judged.append(1)
        return judge(*args)

    monkeypatch.setattr("buildmatrix.fleet.stacks.judge", counted)
    monkeypatch.setattr("buildmatrix.fleet.work.judge", counted)
    for number in range(6):
        context.close()  # another process
        push(server, [[("app/main.py", b"%d" % number)]], {"Labels": {"revision": f"{number}"}})
        subject = Subject(reference=f"{server.host}/app:1", places=())
        done = judge_image(SETTINGS, resolve(SETTINGS, subject))
        assert done.results[0].state == "failed" and not done.results[0].error
    assert judged == [1]


def test_every_variable_that_is_asked_for_counts(server: ImageRegistry) -> None:
    """Readers and rules are watched while they work."""
    asked: set[str] = set()

    class Watched(dict[str, str]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            asked.add(name)
            return super().get(name, default)

        def __getitem__(self, name: str) -> str:
            asked.add(name)
            return super().__getitem__(name)

        def items(self) -> object:  # type: ignore[override]
            return [("OTHER", "1")]  # Each is compared with what the catalogue has.

    worker = WorkerContext(SETTINGS)
    push(server, [], {})
    from buildmatrix.net.registry_mirrors import Reference
    from buildmatrix.sources.images import image_documents

    pinned = Reference.parse(f"{server.host}/app:1")
    image = image_documents(worker.registry, pinned, SETTINGS.platform)
    reader = LayerReader(worker.cache)
    blobs = image.layers(worker.registry)
    configuration = replace(image.configuration, environment=Watched())
    inventory = reader.inventory(configuration, blobs, None, RecordedLookups())
    for backend in ("cuda", "cpu", "rocm", "oneapi"):
        settings = replace(SETTINGS, backend=backend)
        question = ImageQuestion(Subject(reference="app", places=()), settings, worker.catalogue)
        judge(replace(inventory, environment=Watched()), {}, question)
    worker.close()
    assert {"LD_LIBRARY_PATH", "PYTHONPATH", "HOME"} <= asked
    assert [name for name in asked if not is_relevant_variable(name, worker.catalogue)] == []


def test_a_stack_that_two_workers_miss_at_once_is_made_by_one(
    server: ImageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    both_missed = threading.Barrier(2)
    waited = threading.local()

    def counted(*args: object) -> object:
        made.append(1)
        return MAKE_STACK(*args)

    def get(store: Store, key: str) -> bytes | None:
        data = GET(store, key)
        if key.startswith("stack") and not hasattr(waited, "once"):
            waited.once = True
            assert data is None
            both_missed.wait()
        return data

    monkeypatch.setattr("buildmatrix.fleet.stacks._make_stack", counted)
    monkeypatch.setattr(Store, "get", get)
    images = []
    for number in range(2):
        push(server, [[("app/main.py", b"%d" % number)]], {})
        images.append(resolve(SETTINGS, Subject(reference=f"{server.host}/app:1", places=())))
    with ThreadPoolExecutor(2) as workers:
        done = list(workers.map(lambda image: judge_image(SETTINGS, image), images))
    assert [item.results[0].state for item in done] == ["failed", "failed"]
    assert made == [1]
