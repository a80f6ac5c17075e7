"""A registry in memory, and a client that loses its patience quickly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hasty import HASTY
from registry import RegistryServer

from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing that this machine knows of registries."""
    for name in os.environ:
        if name.startswith(("XDG_", "DOCKER_", "REGISTRY_")):
            monkeypatch.delenv(name)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@pytest.fixture
def new_registry() -> Iterator[Callable[..., Registry]]:
    """Makes clients after a test has set up its environment."""
    registries: list[Registry] = []

    def make(**options: object) -> Registry:
        options.setdefault("patience", HASTY)
        registries.append(Registry(**options))
        return registries[-1]

    yield make
    for registry in registries:
        registry.close()


@pytest.fixture
def registry(new_registry: Callable[..., Registry]) -> Registry:
    return new_registry()


@pytest.fixture
def app(server: RegistryServer) -> Reference:
    """The repository `team/app` of the server."""
    return Reference.parse(f"{server.host}/team/app")
