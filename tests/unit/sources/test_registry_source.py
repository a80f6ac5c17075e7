"""`registry:` and names without a prefix: what is read, and from whom."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from image_registry import LAYER, ImageRegistry, digest_of
from layer_archives import Entry, differences, of_folder, tar, unpack
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UndecidedError, UsageError
from buildmatrix.engines.model import Engine
from buildmatrix.images.documents import this_platform
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.net.registry_client import Registry
from buildmatrix.sources.images import NothingToRun
from buildmatrix.sources.model import Argument, Facts, ReadingOptions
from buildmatrix.sources.parse import parse

BASE: list[Entry] = [("usr/lib/libbase.so", ELF), ("srv/data", bytes(range(256)) * 400)]
APP: list[Entry] = [("app/libapp.so", ELF + b"app"), ("usr/lib/.wh.nothing", b"")]
OTHER: list[Entry] = [("app/libother.so", ELF + b"other")]


@pytest.fixture
def server() -> Iterator[ImageRegistry]:
    with ImageRegistry() as server:
        yield server


def no_engine() -> Engine:
    raise ComponentError("no Docker daemon answers")


def facts(
    text: str,
    folder: Path | None = None,
    platform: str | None = None,
    engine: Callable[[], Engine] = no_engine,
) -> Facts:
    source = parse(Argument(text, "scan"))
    cache = None if folder is None else FactCache(Cache(folder))
    with Registry() as registry:
        return source.facts(
            ReadingOptions(
                engine, platform=platform, cache=lambda: cache, registry=lambda: registry
            )
        )


def packed(*layers: Sequence[Entry]) -> list[bytes]:
    return [gzip.compress(tar(layer), mtime=0) for layer in layers]


def test_an_image_is_what_its_unpacked_files_are(server: ImageRegistry, tmp_path: Path) -> None:
    layers = [BASE, APP]
    image = server.image(
        packed(*layers),
        diff_ids=[digest_of(tar(layer)) for layer in layers],
        kind=f"{LAYER}+gzip",
        config={"Env": ["A=b"], "Labels": {"dev.buildmatrix.backend": "cpu"}},
        tag="1",
    )
    unpack(tmp_path, *layers)
    for name in ("app:1", f"app@{image['digest']}", f"app:7@{image['digest']}"):
        found = facts(f"registry:{server.host}/{name}")
        assert found.backend == "cpu"
        assert found.inventory.environment == {"A": "b"}
        labels = {"dev.buildmatrix.backend": "cpu"}
        folder = replace(of_folder(tmp_path), environment={"A": "b"}, labels=labels)
        assert differences(found.inventory, folder) == {}
        assert found.inventory.origins["app/libapp.so"] == 1


def test_after_one_changed_layer_only_that_one_is_fetched(
    server: ImageRegistry, tmp_path: Path
) -> None:
    base, app, other = (tar(layer) for layer in (BASE, APP, OTHER))
    server.image([base, app], tag="1")
    facts(f"registry:{server.host}/app:1", tmp_path)
    assert (server.sent[digest_of(base)], server.sent[digest_of(app)]) == (len(base), len(app))
    server.sent.clear()
    server.image([base, other], tag="2")
    found = facts(f"registry:{server.host}/app:2", tmp_path)
    assert {digest for digest in server.sent if server.sent[digest] > 1000} == {digest_of(other)}
    assert found.inventory.stats.bytes_read == len(other)
    # Another image, in another repository, shares the base.
    server.sent.clear()
    server.image([base], tag="3")
    facts(f"registry:{server.host}/elsewhere/base:3", tmp_path)
    assert digest_of(base) not in server.sent


def test_an_image_is_chosen_by_its_platform(server: ImageRegistry) -> None:
    images = {
        name: server.image([tar([(f"{name}.so", ELF)])], architecture=name)
        for name in ("amd64", "arm64", "s390x")
    }
    server.index(images["arm64"], images["amd64"], images["s390x"], tag="many")
    name = f"registry:{server.host}/app:many"
    for platform in ("linux/arm64", "linux/s390x", "linux/arm64/v8"):
        (binary,) = facts(name, platform=platform).inventory.binaries
        assert binary.path == f"{platform.split('/')[1]}.so"
    own = this_platform().architecture
    (binary,) = facts(name).inventory.binaries
    assert binary.path == f"{own}.so"
    with pytest.raises(
        UndecidedError,
        match=r"no image for linux/riscv64; give --platform one "
        r"of these: linux/arm64, linux/amd64, linux/s390x",
    ):
        facts(name, platform="linux/riscv64")
    server.image([tar(BASE)], architecture="arm64", tag="one")
    with pytest.raises(UndecidedError, match="it is for linux/arm64 alone"):
        facts(f"registry:{server.host}/app:one", platform="linux/amd64")
    with pytest.raises(UsageError, match="is not a platform"):
        facts(name, platform="arm")


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        ({"annotations": {"vnd.docker.reference.type": "x"}}, {}, "several images that engines"),
        ({"platform": {"os": "Linux", "architecture": "x86_64"}}, {}, "several images"),
        ({"platform": {"os": "linux", "architecture": "386"}}, {}, "second.so"),
        (
            {"platform": {"os": "linux", "architecture": "386"}},
            None,
            "no image for linux/amd64: con",
        ),
        ({"platform": {"os": "unknown", "architecture": "unknown"}}, {}, "second.so"),
        ({"platform": {"os": "LINUX", "architecture": "X86_64"}}, None, "first.so"),
        ({"platform": {}}, None, "first.so"),
        ({"platform": None}, {"platform": None}, "several images"),
        ({"artifactType": "text/x"}, {}, "several images"),
        ({}, {"digest": "same"}, "first.so"),
    ],
)
def test_of_an_index_the_image_that_engines_run_is_read(
    server: ImageRegistry, first: dict[str, object], second: dict[str, object] | None, read: str
) -> None:
    one, other = ({**server.image([tar([(f"{name}.so", ELF)])])} for name in ("first", "second"))
    entries = [one | first]
    if second is not None:
        entries.append(one if "digest" in second else other | second)
    server.index(*entries, tag="1")
    name = f"registry:{server.host}/app:1"
    if read.endswith(".so"):
        (binary,) = facts(name, platform="linux/amd64").inventory.binaries
        assert binary.path == read
    else:
        with pytest.raises(UndecidedError, match=read):
            facts(name, platform="linux/amd64")


@pytest.mark.parametrize("platform", [{"os": "linux", "architecture": "amd64"}, None])
def test_an_image_of_an_index_that_says_it_is_for_another_platform_is_undecided(
    server: ImageRegistry, platform: dict[str, str] | None
) -> None:
    """Engines go by the index, and some by the configuration where the index says nothing."""
    image = server.image([tar(BASE)], architecture="arm64")
    server.index({**image, "platform": platform}, tag="1")
    with pytest.raises(UndecidedError, match="its configuration says linux/arm64"):
        facts(f"registry:{server.host}/app:1", platform="linux/amd64")


def test_an_index_inside_of_an_index_is_undecided(server: ImageRegistry) -> None:
    inner = server.index(server.image([tar(BASE)]), tag="inner")
    server.index(inner, tag="1")
    with pytest.raises(UndecidedError, match="nested index"):
        facts(f"registry:{server.host}/app:1", platform="linux/amd64")


def test_a_list_of_what_is_attached_is_no_image(server: ImageRegistry) -> None:
    config = {"mediaType": "application/vnd.oci.empty.v1+json", **server.add(b"{}")}
    entries = [
        server.document(
            {"schemaVersion": 2, "config": config, "layers": [], "annotations": {"a": name}},
            "application/vnd.oci.image.manifest.v1+json",
            "",
        )
        for name in ("one", "two")
    ]
    server.index(*entries, tag="sha256-0")
    with pytest.raises(NothingToRun, match="no image for linux/amd64"):
        facts(f"registry:{server.host}/app:sha256-0", platform="linux/amd64")


def test_a_name_is_the_engines_where_it_has_it_else_the_registrys(server: ImageRegistry) -> None:
    server.image([tar(BASE)], tag="1")
    name = f"{server.host}/app:1"
    assert facts(name).label == f"registry:{name}"
    empty = SimpleNamespace(image=lambda _: None)
    assert facts(name, engine=lambda: empty).label == f"registry:{name}"
    asked: list[str] = []

    class Having:
        def image(self, name: str) -> object:
            asked.append(name)
            return SimpleNamespace(digest="sha256:1", labels={}, environment={})

        def export(self, name: str) -> object:
            raise UndecidedError("the engine was asked")

    with pytest.raises(UndecidedError, match="the engine was asked"):
        facts(name, engine=Having)
    assert asked == [name, name]
    with pytest.raises(UndecidedError, match="no Docker daemon answers, and "):
        facts(f"{server.host}/app:missing")


@pytest.mark.parametrize(
    "name", ["registry:localhost:1/UPPER", "registry:a b", "registry:user:pw@host/x"]
)
def test_what_is_no_reference_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        facts(f"registry:{name}")
    assert "pw" not in caught.value.message


def test_a_layer_that_the_registry_lies_about_is_undecided(
    server: ImageRegistry, tmp_path: Path
) -> None:
    base = tar(BASE)
    server.image([base], tag="1")
    server.blobs[digest_of(base)] = tar(APP).ljust(len(base), b"\0")
    with pytest.raises(UndecidedError):
        facts(f"registry:{server.host}/app:1", tmp_path)
    server.blobs[digest_of(base)] = base
    assert len(facts(f"registry:{server.host}/app:1", tmp_path).inventory.binaries) == 1


def test_a_configuration_that_names_known_layers_hides_no_others(
    server: ImageRegistry, tmp_path: Path
) -> None:
    base, evil = tar(BASE), tar([("usr/lib/libcudart.so.12", ELF)])
    server.image([base], tag="1")
    facts(f"registry:{server.host}/app:1", tmp_path)
    server.image([evil], diff_ids=[digest_of(base)], tag="2")
    with pytest.raises(UndecidedError, match="another one than the configuration says"):
        facts(f"registry:{server.host}/app:2", tmp_path)


def test_what_is_no_image_is_undecided(server: ImageRegistry) -> None:
    server.image([tar(BASE)], kind="application/vnd.cncf.helm.chart.content.v1.tar+gzip", tag="1")
    with pytest.raises(UndecidedError, match="is not an image that an engine can run"):
        facts(f"registry:{server.host}/app:1")


def test_the_files_are_opened_again(server: ImageRegistry) -> None:
    layers = [BASE, APP]
    server.image(
        packed(*layers),
        diff_ids=[digest_of(tar(one)) for one in layers],
        kind=f"{LAYER}+gzip",
        tag="1",
    )
    source = parse(Argument(f"registry:{server.host}/app:1", "why"))
    with Registry() as registry:
        opened = source.open(ReadingOptions(no_engine, registry=lambda: registry))
        assert opened is not None
        with opened() as tree:
            assert tree.read_bytes("srv/data", 1 << 20) == BASE[1][1]
            assert tree.read_bytes("app/libapp.so", 1 << 20) == ELF + b"app"
