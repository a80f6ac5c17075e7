"""What a worker does with one reference, one layer, one image; and with those that are broken."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from hasty import HASTY
from image_registry import LAYER, ImageRegistry, digest_of
from layer_archives import Entry, tar
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.facts.trees import archive
from buildmatrix.fleet import context
from buildmatrix.fleet.context import ResultInterner, add_subject
from buildmatrix.fleet.model import ImageDone, ImageTask, Subject, WorkerSettings
from buildmatrix.fleet.work import judge_image, read_layer, resolve
from buildmatrix.matrix.model import NodeClass, Position
from buildmatrix.net.registry_client import Registry
from buildmatrix.reports.fleet import FleetResult

SITE = "usr/lib/python3.11/site-packages"
BASE: list[Entry] = [("usr/lib/libbase.so", ELF), ("srv/data", bytes(range(256)) * 400)]
#: A distribution of NVIDIA's, by its name and by what it holds.
FOREIGN: list[Entry] = [
    (
        f"{SITE}/nvidia_nccl_cu12-2.27.3.dist-info/METADATA",
        b"Name: nvidia-nccl-cu12\nVersion: 2.27.3\n",
    ),
    (
        f"{SITE}/nvidia_nccl_cu12-2.27.3.dist-info/RECORD",
        b"nvidia/nccl/lib/libnccl.so.2,,\nnvidia_nccl_cu12-2.27.3.dist-info/METADATA,,\n",
    ),
    (f"{SITE}/nvidia/nccl/lib/libnccl.so.2", ELF + bytes(6_000_000)),
]
SETTINGS = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 11, 23), backend="cpu")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(context, "Registry", lambda **_: Registry(patience=HASTY))
    context.close()
    yield
    context.close()


@pytest.fixture
def server() -> Iterator[ImageRegistry]:
    with ImageRegistry() as server:
        yield server


def subject(server: ImageRegistry, name: str = "team/app:1", **known: object) -> Subject:
    return Subject(reference=f"{server.host}/{name}", places=("file:images.txt",), **known)


def done(wanted: Subject, settings: WorkerSettings = SETTINGS) -> ImageDone:
    """Everything that a run does for one image; all of it travels between processes."""
    task = pickle.loads(pickle.dumps(resolve(settings, wanted)))
    failed = []
    for layer in task.unread:
        answer = pickle.loads(pickle.dumps(read_layer(settings, layer)))
        failed += [answer] * (answer.error is not None)
    return pickle.loads(pickle.dumps(judge_image(settings, replace(task, failed=tuple(failed)))))


def of(wanted: Subject, answer: ImageTask | ImageDone) -> FleetResult:
    """The only result of an image, as a run reports it."""
    (result,) = answer.results
    return add_subject(result, wanted, ResultInterner())


def test_an_image_is_judged_and_then_known(server: ImageRegistry) -> None:
    config = {"Labels": {"dev.buildmatrix.backend": "cpu", "org.example.team": "blue"}}
    layers = [tar(BASE), tar(FOREIGN)]
    image = server.image(layers, config=config, tag="1")
    settings = replace(SETTINGS, backend="", owner_labels=("org.example.team",))
    result = of(subject(server), done(subject(server), settings))
    assert (result.repository, result.names) == (f"{server.host}/team/app", ("1",))
    assert (result.digest, result.platform) == (image["digest"], "linux/amd64")
    assert (result.backend, result.backend_by, result.owner) == ("cpu", "label", "blue")
    assert result.state == "failed" and result.places == ("file:images.txt",)
    finding = next(item for item in result.findings if item.severity == "error")
    assert (finding.distribution, finding.vendor) == ("nvidia-nccl-cu12", "nvidia")
    assert server.host not in str(result.findings)
    assert [layer.digest for layer in result.layers] == [digest_of(layer) for layer in layers]
    assert [layer.unusable > 6_000_000 for layer in result.layers] == [False, True]
    assert result.unusable == sum(layer.unusable for layer in result.layers)
    assert finding.size == result.unusable
    assert result.download == sum(map(len, layers))
    assert 0 < result.unusable_download < len(layers[1])
    assert {share.vendor for share in result.vendors} >= {"nvidia"}
    server.requests.clear()
    again = resolve(settings, subject(server))
    assert again.is_stored and of(subject(server), again) == result and again.unread == ()
    assert server.requests == [("HEAD", "/v2/team/app/manifests/1")]


def test_the_same_image_under_another_name_is_not_read_again(server: ImageRegistry) -> None:
    image = server.image([tar(BASE)], tag="1")
    tagged = subject(server, owner="red", containers=2)
    first = done(tagged)
    server.sent.clear()
    pinned = subject(server, f"other/app:7@{image['digest']}", owner="green")
    server.requests.clear()
    task = resolve(SETTINGS, pinned)
    assert task.is_stored and server.requests == []
    one, two = of(tagged, first), of(pinned, task)
    assert (one.owner, one.containers, two.owner, two.containers) == ("red", 2, "green", 0)
    assert (two.repository, two.names) == (f"{server.host}/other/app", ("7",))
    same = {"repository": "", "names": (), "owner": "", "containers": 0}
    assert replace(one, **same) == replace(two, **same)
    assert first.results == task.results


def test_another_question_is_judged_anew_from_what_is_known(server: ImageRegistry) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    done(subject(server))
    server.sent.clear()
    other = done(subject(server), replace(SETTINGS, backend="cuda"))
    assert (other.results[0].backend, other.results[0].state) == ("cuda", "passed")
    assert server.sent == {} and other.bytes_read == 0


def test_one_result_for_each_backend_that_it_runs_on(server: ImageRegistry) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    nodes = tuple(
        NodeClass(name, backend, "", (), {}, (), Position("nodes.toml", 1))
        for name, backend in (("plain", "cpu"), ("a100", "cuda"), ("mi300", "rocm"))
    )
    settings = replace(SETTINGS, node_classes=nodes, would_run_on=("mi300",))
    results = done(subject(server, node_classes=("plain", "a100")), settings).results
    assert [(item.backend, item.backend_by, item.state) for item in results] == [
        ("cpu", "node-class", "failed"),
        ("cuda", "node-class", "passed"),
    ]
    assert [[(fit.node, fit.state) for fit in item.fits] for item in results] == [
        [("plain", "ok"), ("mi300", "ok")],
        [("a100", "ok"), ("mi300", "refused")],
    ]
    assert results[1].fits[1].reasons == ("the image is for cuda, and mi300 has devices of rocm",)


def test_of_several_platforms_one_is_meant(server: ImageRegistry) -> None:
    arm = server.image([tar(FOREIGN)], architecture="arm64")
    amd = server.image([tar(BASE)])
    index = server.index(arm, amd, tag="1")
    (result,) = done(subject(server)).results
    assert result.digest == amd["digest"]
    assert resolve(SETTINGS, subject(server, f"app@{index['digest']}")).is_stored
    (result,) = done(subject(server), replace(SETTINGS, platform="linux/arm64")).results
    assert result.digest == arm["digest"]


def test_what_is_no_image_is_left_out_and_says_why(server: ImageRegistry) -> None:
    signature = "application/vnd.dev.cosign.simplesigning.v1+json"
    server.image([b"{}"], kind=signature, tag="sha256-1.sig")
    task = resolve(SETTINGS, subject(server, "app:sha256-1.sig"))
    assert task.results == () and signature in task.left_out
    server.image([tar(BASE)], architecture="arm64", tag="arm")
    task = resolve(SETTINGS, subject(server, "app:arm"))
    assert "no image for linux/amd64" in task.left_out
    # What runs there is one.
    (result,) = resolve(SETTINGS, subject(server, "app:arm", containers=1)).results
    assert result.state == "undecided" and "no image for linux/amd64" in (result.error or "")


def test_nothing_says_the_backend(server: ImageRegistry) -> None:
    server.image([tar(BASE)], tag="1")
    (result,) = done(subject(server), replace(SETTINGS, backend="")).results
    assert (result.state, result.backend, result.backend_by) == ("undecided", "", "nothing")
    assert result.installed > 100_000 and "nothing says which backend" in (result.error or "")


def undecided(answer: ImageDone | ImageTask) -> str:
    """The one sentence of a result that is undecided."""
    (result,) = answer.results
    assert result.state == "undecided" and result.error and "\n" not in result.error
    return result.error


def test_a_registry_without_the_image_or_without_an_answer(server: ImageRegistry) -> None:
    task = resolve(SETTINGS, subject(server, "app:gone"))
    assert "does not have the manifest gone" in undecided(task) and not task.again
    nobody = replace(subject(server), reference="127.0.0.1:1/app:1")
    task = resolve(SETTINGS, nobody)
    assert undecided(task) and task.again
    task = resolve(SETTINGS, replace(subject(server), reference="NO NAME"))
    assert "not the name of an image" in undecided(task) and not task.again


def test_a_blob_that_is_cut_or_another_one(server: ImageRegistry) -> None:
    layers = [tar(BASE), tar(FOREIGN)]
    server.image(layers, tag="1")
    server.blobs[digest_of(layers[1])] = layers[0]
    answer = done(subject(server))
    assert digest_of(layers[1]) in undecided(answer)
    assert [layer.installed for layer in answer.results[0].layers] == [0, 0]
    # It is not kept: who has mended the registry gets an answer.
    server.blobs[digest_of(layers[1])] = layers[1]
    assert done(subject(server)).results[0].state == "failed"


def test_a_bomb_ends_early(server: ImageRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "INFLATION_ALLOWANCE", 1 << 20)
    bomb = gzip.compress(bytes(30 << 20), 9)
    server.image([bomb], kind=f"{LAYER}+gzip", diff_ids=[digest_of(b"")], tag="1")
    assert "a bomb" in undecided(done(subject(server)))


def test_ten_thousand_layers_and_an_endless_one(server: ImageRegistry) -> None:
    server.image([tar([])] * 10_000, tag="1")
    assert "10000 layers" in undecided(resolve(SETTINGS, subject(server)))
    config = server.add(
        b'{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}'
    )
    endless = {"mediaType": LAYER, "digest": digest_of(b""), "size": 1 << 50}
    kind = "application/vnd.oci.image.config.v1+json"
    server.document(
        {"schemaVersion": 2, "config": {"mediaType": kind, **config}, "layers": [endless]},
        "application/vnd.oci.image.manifest.v1+json",
        "2",
    )
    assert "are not read" in undecided(resolve(SETTINGS, subject(server, "app:2")))


def test_a_layer_that_the_store_lost_is_read_again(server: ImageRegistry, tmp_path: Path) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    task = resolve(SETTINGS, subject(server))
    for layer in task.unread:
        assert read_layer(SETTINGS, layer).bytes_read == layer.size
        assert read_layer(SETTINGS, layer).bytes_read == 0
    for file in (tmp_path / "cache").rglob("layers/*"):
        file.unlink()
    answer = judge_image(SETTINGS, task)
    assert answer.results[0].state == "failed"
    assert answer.bytes_read == sum(layer.size for layer in task.unread)


def test_a_store_that_cannot_be_used_fails_nothing_and_says_so(
    server: ImageRegistry, tmp_path: Path
) -> None:
    server.image([tar(BASE), tar(FOREIGN)], tag="1")
    (tmp_path / "file").write_bytes(b"")
    settings = replace(SETTINGS, store=str(tmp_path / "file" / "store"))
    task = resolve(settings, subject(server))
    layers = [read_layer(settings, layer) for layer in task.unread]
    answer = judge_image(settings, task)
    assert answer.results[0].state == "failed"
    notes = [*task.notes, *(note for layer in layers for note in layer.notes), *answer.notes]
    assert len(notes) == len(set(notes)) == 2
    assert all(str(tmp_path / "file" / "store") in note for note in notes)
    assert answer.results == done(subject(server)).results


def test_a_store_without_its_driver_is_said(server: ImageRegistry) -> None:
    server.image([tar(BASE)], tag="1")
    settings = replace(SETTINGS, store="nonsense://bucket")
    task = resolve(settings, subject(server))
    assert len(task.notes) == 1 and "nonsense" in task.notes[0] and task.unread
