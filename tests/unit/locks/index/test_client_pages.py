"""Pages: asked for once, kept, and answered offline."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from index import IndexServer, huge
from loopback import answering, redirecting, with_headers

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client, Page, pages_of

NewClient = Callable[..., Client]


@pytest.mark.parametrize("pages", ["html", "json"])
def test_the_files_of_a_project_are_found(
    packages: Path, wheel: Path, client: Client, pages: Literal["html", "json"]
) -> None:
    with IndexServer(packages, pages=pages) as server:
        (file,) = client.project(server.url, "Alpha")
        assert file.filename == wheel.name
        assert file.url == server.file_url(wheel.name)
        assert client.open(file.url).size == wheel.stat().st_size


def test_a_project_that_the_index_does_not_know_has_no_files(
    packages: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        assert client.project(server.url, "nothing") == ()


@pytest.mark.parametrize("name", ["../alpha", "", "a b", "-x", "ä"])
def test_what_is_no_name_of_a_distribution_is_not_asked_for(
    packages: Path, client: Client, name: str
) -> None:
    with IndexServer(packages) as server:
        with pytest.raises(UndecidedError, match="not a valid name of a distribution"):
            client.project(server.url, name)
        assert server.requests == []


def test_links_of_a_redirected_page_belong_to_where_it_was(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as files, IndexServer(packages) as server:
        server.misbehave("/simple/alpha/", redirecting(f"{files.url}alpha/", 301))
        (file,) = client.project(server.url, "alpha")
        assert file.url == files.file_url(wheel.name)


def test_a_page_may_be_compressed(packages: Path, wheel: Path, client: Client) -> None:
    page = gzip.compress(b'<a href="/files/alpha-1.0.tar.gz">x</a>')
    with IndexServer(packages) as server:
        headers = {"content_type": "text/html", "content_encoding": "gzip"}
        server.misbehave("/simple/alpha/", answering(200, page, **headers))
        server.misbehave("/simple/beta/", answering(200, page[:-9], **headers))
        server.misbehave("/simple/gamma/", answering(200, b"no gzip", **headers))
        assert len(client.project(server.url, "alpha")) == 1
        for name in ("beta", "gamma"):
            with pytest.raises(UndecidedError, match=r"ends too early|is damaged"):
                client.project(server.url, name)


def test_a_page_without_end_is_given_up(
    packages: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.client.LARGEST_PAGE", 1 << 20)
    bomb = gzip.compress(bytes(20 << 20))
    with IndexServer(packages) as server:
        server.misbehave("/simple/alpha/", huge(100 << 20))
        headers = {"content_type": "text/html", "content_encoding": "gzip"}
        server.misbehave("/simple/beta/", answering(200, bomb, **headers))
        for name in ("alpha", "beta"):
            with pytest.raises(UndecidedError, match="exceeds the limit of 1 MiB"):
                client.project(server.url, name)
        assert server.sent("/simple/alpha/") < 20 << 20


def test_a_page_is_asked_for_once(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        assert client.project(server.url, "alpha") == client.project(server.url, "ALPHA")
        assert server.count("/simple/alpha/") == 1


def test_what_was_kept_spares_requests_and_serves_offline(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    with IndexServer(packages) as server:
        first = new_client(cache=Cache(folder))
        (file,) = first.project(server.url, "alpha")
        assert first.project(server.url, "nothing") == ()
        count = len(server.requests)
        for offline in (False, True):
            client = new_client(cache=Cache(folder), offline=offline)
            assert client.project(server.url, "alpha") == (file,)
            assert client.project(server.url, "nothing") == ()
            assert client.bytes_read == 0
        assert len(server.requests) == count


def test_offline_says_what_is_missing(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    with IndexServer(packages) as server:
        assert len(new_client().project(server.url, "alpha")) == 1
        for folder in (None, tmp_path / "kept"):
            client = new_client(cache=Cache(folder), offline=True)
            with pytest.raises(UndecidedError, match="/simple/alpha/ has not been read before"):
                client.project(server.url, "alpha")
        assert len(server.requests) == 1


def test_a_page_that_is_not_fresh_is_compared_with_the_index(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    with IndexServer(packages) as server:
        page = "/simple/alpha/"
        said = {"etag": '"1"', "cache_control": "max-age=0, private"}
        server.misbehave(page, with_headers(**said), times=1)
        server.misbehave(page, answering(304, **said), times=1)
        files = new_client(cache=Cache(folder)).project(server.url, "alpha")
        assert new_client(cache=Cache(folder)).project(server.url, "alpha") == files
        assert server.requests[1].headers["if-none-match"] == '"1"'
        shutil.copy(wheel, packages / "alpha-2.0-py3-none-any.whl")
        assert len(new_client(cache=Cache(folder)).project(server.url, "alpha")) == 2


def test_what_an_index_wants_nowhere_kept_is_not_kept(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    with IndexServer(packages) as server:
        server.misbehave("/simple/alpha/", with_headers(cache_control="no-store"))
        new_client(cache=Cache(folder)).project(server.url, "alpha")
        assert not folder.exists()


def test_a_damaged_entry_is_asked_for_again(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    with IndexServer(packages) as server:
        files = new_client(cache=Cache(folder)).project(server.url, "alpha")
        (entry,) = (path for path in folder.rglob("*") if path.is_file())
        for damaged in (b"", entry.read_bytes()[:-1], b"x" * 100):
            entry.write_bytes(damaged)
            assert new_client(cache=Cache(folder)).project(server.url, "alpha") == files
        assert server.count("/simple/alpha/") == 4


def test_a_folder_that_cannot_be_written_costs_requests_only(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    folder.write_text("a file")
    with IndexServer(packages) as server:
        for _ in range(2):
            assert len(new_client(cache=Cache(folder)).project(server.url, "alpha")) == 1
        assert server.count("/simple/alpha/") == 2


def test_the_oldest_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    pages = pages_of(Cache(tmp_path), limit=3000)
    dawn = time.time() - 1000
    for number in range(20):
        pages.save(str(number), Page(bytes(200), "text/html", "", None, 0.0))
        (newest,) = (path for path in tmp_path.rglob("*") if path.is_file() and not _is_dated(path))
        os.utime(newest, (dawn + number, dawn + number))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 3000
    assert [pages.get(str(number)) is not None for number in (0, 7, 12, 19)] == [
        False,
        False,
        True,
        True,
    ]


def _is_dated(path: Path) -> bool:
    return path.stat().st_mtime < time.time() - 100


def test_a_folder_can_be_an_index(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    page = tmp_path / "my index" / "alpha" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{wheel.as_uri()}">')
    client = new_client(offline=True)
    index = (tmp_path / "my index").as_uri()
    (file,) = client.project(index, "alpha")
    assert file.url == wheel.as_uri()
    assert client.project(index, "beta") == ()
    with pytest.raises(UndecidedError, match="is not this machine"):
        client.project("file://elsewhere/srv", "alpha")
