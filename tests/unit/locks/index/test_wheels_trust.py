"""What the cache of wheels may answer: no claim of a lock answers for another wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from index import IndexServer
from loopback import with_headers
from test_wheels import bare, contents, locked, make, noise

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Wheel

BOOSTER = "xgboost-3.2.0-py3-none-manylinux_2_28_x86_64.whl"
CLEAN = "h11-0.16.0-py3-none-any.whl"


def large(folder: Path, filename: str, *, cuda: bool) -> Path:
    """A wheel that is not read by one request; with a CUDA library, or with data."""
    name, version = filename.split("-")[:2]
    files = {path: data for path, data in contents(name, version).items() if "info" in path}
    files[f"{name}/data.bin"] = noise(200_000)
    if cuda:
        files["xgboost/lib/libcudart.so.12"] = contents()["alpha/lib/libsmall.so"]
    return make(folder, filename, files)


@pytest.fixture
def server(packages: Path) -> Iterator[IndexServer]:
    large(packages, BOOSTER, cuda=True)
    large(packages, CLEAN, cuda=False)
    with IndexServer(packages) as server:
        yield server


@pytest.fixture
def reader(client: Client, tmp_path: Path) -> WheelReader:
    return WheelReader(client, Cache(tmp_path / "facts"))


def entry(server: IndexServer, packages: Path, filename: str) -> Wheel:
    return locked(packages / filename, server.file_url(filename))


def holds_cuda(reader: WheelReader, wheel: Wheel) -> bool:
    facts = reader.read(wheel, "heads")
    return any("cudart" in one.path for one in facts.inventory.binaries)


def test_facts_under_a_hash_that_another_wheel_claims_are_not_those_of_the_honest_one(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    booster, clean = (entry(server, packages, name) for name in (BOOSTER, CLEAN))
    planted = replace(clean, sha256=booster.sha256, size=None)
    assert not holds_cuda(reader, planted)
    assert reader.recall_facts(booster, "listing") is None
    assert holds_cuda(reader, booster)
    assert holds_cuda(reader, booster)


def test_a_wheel_of_the_same_name_elsewhere_with_the_real_hash_answers_for_itself_only(
    server: IndexServer, packages: Path, reader: WheelReader, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    large(hostile, BOOSTER, cuda=False)
    booster = entry(server, packages, BOOSTER)
    with IndexServer(hostile) as other:
        planted = replace(booster, url=other.file_url(BOOSTER), size=None)
        assert not holds_cuda(reader, planted)
    assert holds_cuda(reader, booster)


def test_what_was_hashed_whole_answers_wherever_a_lock_says_that_it_is(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    booster = entry(server, packages, BOOSTER)
    reader.read(booster, "whole")
    asked = len(server.requests)
    mirrored = replace(booster, url="https://mirror.example.com/" + BOOSTER)
    assert holds_cuda(reader, mirrored)
    assert len(server.requests) == asked


def test_a_hash_that_is_known_to_be_of_another_wheel_is_refused(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    clean, booster = (entry(server, packages, name) for name in (CLEAN, BOOSTER))
    reader.read(clean, "whole")
    wrong = replace(booster, sha256=clean.sha256, size=None)
    assert reader.recall_facts(wrong, "listing") is None
    with pytest.raises(
        UndecidedError, match=r"holds h11 0\.16\.0 by its own metadata, not xgboost"
    ):
        reader.read(wrong, "listing")


def test_a_wheel_that_one_request_brings_is_held_against_its_hash(
    packages: Path, reader: WheelReader
) -> None:
    small = {path: data for path, data in contents().items() if "info" in path}
    path = make(packages, "alpha-1.0-py3-none-any.whl", small)
    with IndexServer(packages) as server:
        wheel = locked(path, server.file_url(path.name))
        with pytest.raises(UndecidedError, match="has the SHA-256"):
            reader.read(replace(wheel, sha256="a" * 64), "listing")
        assert reader.read(wheel, "listing").sha256 == wheel.sha256


def test_the_same_lock_asks_nothing_and_another_claim_asks_whether_the_file_is_the_same(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    booster = entry(server, packages, BOOSTER)
    first = reader.read(booster, "heads")
    asked = len(server.requests)
    assert reader.read(booster, "heads").bytes_read == 0
    assert len(server.requests) == asked
    for claim in ("b" * 64, ""):
        facts = reader.read(replace(booster, sha256=claim), "heads")
        assert (facts.sha256, bare(facts.inventory)) == (claim or None, bare(first.inventory))
    assert len(server.requests) == asked + 2


def test_another_file_at_the_same_url_is_read_anew(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    unpinned = replace(entry(server, packages, BOOSTER), sha256="", size=None)
    assert holds_cuda(reader, unpinned)
    large(packages, BOOSTER, cuda=False)
    assert not holds_cuda(reader, unpinned)


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_a_server_that_does_not_tell_versions_apart_is_read_again(
    packages: Path, reader: WheelReader, etag: str
) -> None:
    path = large(packages, BOOSTER, cuda=True)
    with IndexServer(packages, etags=False) as server:
        if etag:
            server.misbehave(server.path_of(path.name), with_headers(etag=etag))
        unpinned = replace(entry(server, packages, BOOSTER), sha256="", size=None)
        first, second = (reader.read(unpinned, "heads").bytes_read for _ in range(2))
    assert first == second > 0


def test_what_a_lock_says_of_size_and_name_is_checked_on_every_hit(
    server: IndexServer, packages: Path, reader: WheelReader
) -> None:
    booster = entry(server, packages, BOOSTER)
    reader.read(booster, "listing")
    with pytest.raises(UndecidedError, match="the lock says 5"):
        reader.read(replace(booster, size=5), "listing")
    other = replace(booster, filename="xgboost-9.9-py3-none-any.whl")
    assert reader.recall_facts(other, "listing") is None
    with pytest.raises(UndecidedError, match=r"by its own metadata, not xgboost 9\.9"):
        reader.read(other, "listing")


def test_the_metadata_of_a_library_inside_say_nothing_of_the_wheel(packages: Path) -> None:
    inside = {
        path.replace("h11-0.16.0", "xgboost/_vendor/h11-0.16.0"): data
        for path, data in contents("h11", "0.16.0").items()
        if "info" in path
    }
    own = {path: data for path, data in contents("xgboost", "3.2.0").items() if "info" in path}
    honest = make(packages, BOOSTER, {**own, **inside})
    reader = WheelReader(None, None)
    assert reader.read(locked(honest), "listing").filename == BOOSTER
    for files in (
        {**own, **{path.replace("xgboost/_vendor/", ""): data for path, data in inside.items()}},
        {f"h11/{path}" if "info" in path else path: data for path, data in own.items()},
    ):
        hostile = make(packages, BOOSTER, files)
        with pytest.raises(UndecidedError, match=r"by its own metadata|no metadata folder"):
            reader.read(locked(hostile), "listing")
