"""Passwords go to their own server, and nowhere else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from index import IndexServer
from loopback import answering, redirecting

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client, Credentials
from buildmatrix.net.addresses import Login, parse
from buildmatrix.net.machine_indexes import Index

LOGIN = ("me", "s3cret/word")
NewClient = Callable[..., Client]


def _with_login(url: str) -> str:
    return url.replace("://", "://me:s3cret%2Fword@")


def _sent(server: IndexServer) -> list[str | None]:
    return [
        base64.b64decode(header.split()[1]).decode() if header else None
        for header in (seen.headers.get("authorization") for seen in server.requests)
    ]


def test_credentials_of_an_index_url_open_its_files(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages, login=LOGIN) as server:
        (file,) = client.project(_with_login(server.url), "alpha")
        assert "s3cret" not in file.url
        assert client.open(file.url).size == wheel.stat().st_size
        assert set(_sent(server)) == {"me:s3cret/word"}


def test_credentials_of_a_file_url_are_used(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages, login=LOGIN) as server:
        remote = client.open(_with_login(server.file_url(wheel.name)))
        assert remote.read(0, 2) == b"PK"


def test_credentials_of_the_configured_index_open_its_files(
    packages: Path, wheel: Path, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IndexServer(packages, login=LOGIN) as server:
        monkeypatch.setenv("UV_DEFAULT_INDEX", _with_login(server.url))
        assert new_client().open(server.file_url(wheel.name)).size == wheel.stat().st_size


def test_credentials_of_a_named_index_come_from_the_environment(
    packages: Path, wheel: Path, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IndexServer(packages, login=LOGIN) as server:
        monkeypatch.setenv("UV_INDEX", f"my-company.x={server.url}")
        monkeypatch.setenv("UV_INDEX_MY_COMPANY_X_USERNAME", LOGIN[0])
        monkeypatch.setenv("UV_INDEX_MY_COMPANY_X_PASSWORD", LOGIN[1])
        assert new_client().project(server.url, "alpha")


def test_credentials_come_from_netrc(
    packages: Path,
    wheel: Path,
    new_client: NewClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    netrc = tmp_path / "my-netrc"
    netrc.write_text(f"machine 127.0.0.1 login {LOGIN[0]} password {LOGIN[1]}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with IndexServer(packages, login=LOGIN) as server:
        # Not over plain http to a server that only a page named ...
        with pytest.raises(UndecidedError, match="answers 401: it wants credentials"):
            new_client().project(server.url, "alpha")
        assert _sent(server) == [None]
        # ... but to one of the configuration.
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        assert new_client().project(server.url, "alpha")


@pytest.mark.parametrize("variable", ["UV_FIND_LINKS", "PIP_FIND_LINKS"])
def test_the_password_of_a_page_of_links_is_that_of_its_files(
    packages: Path, wheel: Path, new_client: Callable[..., Client], monkeypatch, variable: str
) -> None:
    with IndexServer(packages, login=LOGIN) as server:
        monkeypatch.setenv(variable, _with_login(f"{server.origin}/links"))
        assert new_client().open(server.file_url(wheel.name)).size == wheel.stat().st_size


def test_netrc_is_for_its_hosts_only(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine a.example.com login x password y\ndefault login d password e\n")
    netrc.chmod(0o600)
    credentials = Credentials((), {"NETRC": str(netrc)})
    login = credentials.of(parse("https://A.example.com/simple/"))
    assert login is not None
    assert login.header == Login.basic("x", "y", "netrc").header
    assert credentials.of(parse("https://b.example.com/simple/")) is None
    assert credentials.of(parse("http://a.example.com/simple/")) is None


def test_a_broken_netrc_is_none(tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    for broken in (b"machine", b"\xff\xfe", b"nonsense here"):
        netrc.write_bytes(broken)
        credentials = Credentials((), {"NETRC": str(netrc)})
        assert credentials.of(parse("https://a.example.com/")) is None


def test_the_port_and_the_scheme_are_a_part_of_the_server() -> None:
    credentials = Credentials((Index("https://u:p@example.com:8443/simple"),), {})
    assert credentials.of(parse("https://example.com:8443/other/x.whl")) is not None
    for url in ("https://example.com/", "http://example.com:8443/", "https://a.example.com:8443/"):
        assert credentials.of(parse(url)) is None


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_credentials_are_not_carried_to_another_server(
    packages: Path, wheel: Path, client: Client, status: int
) -> None:
    with IndexServer(packages) as other, IndexServer(packages, login=LOGIN) as server:
        server.misbehave("/a", redirecting(other.file_url(wheel.name), status))
        server.misbehave("/b", redirecting(_with_login(other.file_url(wheel.name)), status))
        for path in ("/a", "/b"):
            client.open(_with_login(server.origin + path)).read(0, 10)
        assert set(_sent(server)) == {"me:s3cret/word"}
        assert set(_sent(other)) == {None}


def test_a_page_cannot_ask_for_credentials_of_another_server(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as other, IndexServer(packages, login=LOGIN) as server:
        server.announce(wheel.name, url=other.file_url(wheel.name))
        (file,) = client.project(_with_login(server.url), "alpha")
        client.open(file.url)
        assert _sent(other) == [None]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 429, 302])
def test_no_error_shows_a_password(
    packages: Path, wheel: Path, client: Client, status: int
) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/x.whl", answering(status))
        with pytest.raises(UndecidedError) as error:
            client.open(_with_login(server.origin + "/x.whl?signature=s3cret"))
    assert "/x.whl" in error.value.message
    chain: list[BaseException | None] = [error.value]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    assert "s3cret" not in repr(chain)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:s3cret/word@example.com/",
        "https://me:s3cret#word@example.com:x/",
        "http://me:s3cret word@example.com/",
        "ftp://me:s3cret@example.com/",
    ],
)
def test_what_is_no_url_shows_no_password_either(client: Client, url: str) -> None:
    with pytest.raises(UndecidedError, match="cannot be requested") as error:
        client.open(url)
    assert "s3cret" not in error.value.message


def test_refused_credentials_are_named_by_where_they_were(
    packages: Path, wheel: Path, client: Client
) -> None:
    with (
        IndexServer(packages, login=("me", "another")) as server,
        pytest.raises(UndecidedError, match="does not take the credentials from its URL"),
    ):
        client.project(_with_login(server.url), "alpha")


def test_nothing_that_is_kept_holds_a_password(
    packages: Path, wheel: Path, tmp_path: Path, new_client: NewClient
) -> None:
    folder = tmp_path / "kept"
    with IndexServer(packages, login=LOGIN) as server:
        client = new_client(cache=Cache(folder))
        (file,) = client.project(_with_login(server.url), "alpha")
        kept = [path for path in folder.rglob("*") if path.is_file()]
        assert len(kept) == 1
        assert not any(b"s3cret" in path.read_bytes() for path in kept)
        assert all(path.parent.stat().st_mode & 0o077 == 0 for path in kept)
        # The same page without the credentials is the same entry.
        assert new_client(cache=Cache(folder), offline=True).project(server.url, "alpha") == (file,)


def test_addresses_and_logins_hide_their_secrets_from_logs() -> None:
    address = parse("https://me:s3cret@example.com:444/a/b?token=s3cret")
    credentials = Credentials((), {})
    credentials.remember(address)
    assert str(address) == "https://example.com:444/a/b"
    shown = f"{address} {credentials.of(address)!r} {Index('https://me:s3cret@example.com/')!r}"
    assert "s3cret" not in shown
