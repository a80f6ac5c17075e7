"""The lists of a registry: its repositories and their tags, page by page."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from loopback import Misdeed, Request, Response, Serve, answering, filled, with_headers
from registry import RegistryServer

from buildmatrix.base.errors import UndecidedError
from buildmatrix.net import registry_client
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference

CATALOG = "/v2/_catalog"


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "_PAGE_NAMES", 2)


def page(link: str, *names: str) -> Misdeed:
    body = json.dumps({"repositories": names}).encode()
    return answering(200, body, link=link)


@pytest.mark.usefixtures("small_pages")
def test_lists_come_in_pages(server: RegistryServer, registry: Registry, app: Reference):
    for name in ("a", "b/c", "d", "e", "team/app"):
        server.tag(name, "1", name.encode())
    for tag in ("1.0", "1.1", "latest"):
        server.tag("team/app", tag, b"{}")
    assert list(registry.repositories(server.host)) == ["a", "b/c", "d", "e", "team/app"]
    assert list(registry.tags(app)) == ["1", "1.0", "1.1", "latest"]
    assert server.asked("GET", CATALOG) == 3


def test_a_page_is_asked_for_again(server: RegistryServer, registry: Registry):
    server.tag("a", "1", b"{}")
    server.misbehave(CATALOG, answering(503), times=1)
    assert list(registry.repositories(server.host)) == ["a"]


def test_the_token_for_a_catalog_has_its_own_scope(new_registry: Callable[..., Registry]):
    with RegistryServer(auth="bearer") as server:
        server.tag("team/app", "1", b"{}")
        registry = new_registry()
        assert list(registry.repositories(server.host)) == ["team/app"]
        assert list(registry.tags(Reference(server.host, "team/app"))) == ["1"]
        scopes = [seen.path for seen in server.requests if "/token" in seen.path]
    assert "scope=registry%3Acatalog%3A%2A" in scopes[0]
    assert "scope=repository%3Ateam%2Fapp%3Apull" in scopes[1]


def test_all_tags_deleted(server: RegistryServer, registry: Registry, app: Reference):
    server.misbehave("/v2/team/app/tags/list", answering(200, b'{"name": "a", "tags": null}'))
    assert list(registry.tags(app)) == []


@pytest.mark.parametrize(
    ("misdeed", "message"),
    [
        (page(f'<{CATALOG}?n=1000>; rel="next"', "a"), "has no last page"),
        (page('<http://other.example/v2/_catalog>; rel="next"', "a"), "on another server"),
        (page('<http://[::1/v2/_catalog>; rel="next"', "a"), "cannot be requested"),
        (answering(200, b"[1]"), "returned no JSON object"),
        (answering(200, b"[" * 100_000), "returned no JSON object"),
        (answering(200, b'{"repositories": [1]}'), "returned no list of names"),
        (answering(200, b'{"repositories": "abc"}'), "returned no list of names"),
        (answering(404), r"does not have its repositories \(404\)"),
        (filled(17 << 20), "exceeds the limit of 16 MiB"),
    ],
)
def test_what_is_no_list(
    server: RegistryServer, registry: Registry, misdeed: Misdeed, message: str
):
    server.misbehave(CATALOG, misdeed)
    with pytest.raises(UndecidedError, match=message) as error:
        list(registry.repositories(server.host))
    assert error.value.message.startswith(server.host)


def test_pages_without_end(
    server: RegistryServer, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry_client, "_MAX_PAGES", 5)

    def endless(request: Request, serve: Serve) -> Response:
        number = len(server.requests)
        return page(f'<{CATALOG}?last={number}>; rel="next"', f"a{number}")(request, serve)

    server.misbehave(CATALOG, endless)
    with pytest.raises(UndecidedError, match="has no last page"):
        list(registry.repositories(server.host))
    assert server.asked("GET", CATALOG) == 6


def test_names_without_end(
    server: RegistryServer, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry_client, "MAX_NAMES", 2)
    for name in "abc":
        server.tag(name, "1", b"{}")
    with pytest.raises(UndecidedError, match="lists more than 2"):
        list(registry.repositories(server.host))


def test_a_registry_behind_a_proxy_names_itself_wrongly(server: RegistryServer, registry: Registry):
    """It knows nothing of TLS, and of the port that it is reached at."""
    server.tag("a", "1", b"{}")
    link = f'<http://127.0.0.1:1{CATALOG}?last=a>; rel="next"'
    server.misbehave(CATALOG, with_headers(link=link), times=1)
    assert list(registry.repositories(server.host)) == ["a"]
    assert server.asked("GET", CATALOG) == 2
