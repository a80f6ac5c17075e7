"""Who this machine is to a registry, as Docker and podman have it."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from buildmatrix.net import registry_credentials
from buildmatrix.net.registry_credentials import (
    FoundCredentials,
    RegistryCredentials,
    RegistryLogin,
)
from buildmatrix.net.registry_mirrors import Reference

APP = "registry.example:5000/team/app"


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.fixture
def docker(home: Path) -> Path:
    return home / ".docker" / "config.json"


def known(image: str = APP, **environment: str) -> FoundCredentials:
    return RegistryCredentials({**os.environ, **environment}).find(Reference.parse(image))


def login(image: str = APP, **environment: str) -> tuple[str, str] | None:
    found = known(image, **environment).login
    return (found.user, found.password) if found else None


def helper(folder: Path, name: str, script: str) -> None:
    """A helper on the PATH."""
    path = write(folder / f"docker-credential-{name}", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize(
    ("key", "image"),
    [
        ("registry.example:5000", APP),
        ("https://registry.example:5000", APP),
        ("http://registry.example:5000/v2/", APP),
        ("https://registry.example:5000/v1/", APP),
        ("registry.example:5000/team", APP),
        ("registry.example:5000/team/app", APP),
        ("https://index.docker.io/v1/", "debian"),
        ("docker.io", "debian"),
        ("index.docker.io", "docker.io/team/app"),
        ("registry-1.docker.io", "debian"),
        ("docker.io/library/debian", "debian:12"),
        ("localhost:5000", "localhost:5000/x"),
    ],
)
def test_a_key_is_for_its_registry(docker: Path, key: str, image: str) -> None:
    write(docker, {"auths": {"other.example": auth("no", "no"), key: auth("ann", "a:b")}})
    assert login(image) == ("ann", "a:b")


@pytest.mark.parametrize(
    "key",
    [
        "registry.example",
        "registry.example:5001",
        "registry.example:5000.evil.example",
        "evil.example/registry.example:5000",
        "registry.example:5000/team/app2",
        "registry.example:5000/tea",
        "registry.example:5000/other",
        "https://index.docker.io/v1/",
        "",
    ],
)
def test_a_key_is_for_no_other(docker: Path, key: str) -> None:
    write(docker, {"auths": {key: auth("ann", "secret")}})
    assert known() == FoundCredentials()


def test_the_longest_name_wins(docker: Path) -> None:
    names = ("registry.example:5000", "registry.example:5000/team", f"{APP}")
    write(docker, {"auths": {name: auth("ann", name) for name in names}})
    assert login() == ("ann", APP)
    assert login("registry.example:5000/team/other") == ("ann", names[1])
    assert login("registry.example:5000/any/other") == ("ann", names[0])


def test_where_files_are_looked_for(home: Path, docker: Path, tmp_path: Path) -> None:
    places = [
        ({}, home / ".config" / "containers" / "auth.json"),
        ({"XDG_CONFIG_HOME": str(tmp_path / "c")}, tmp_path / "c" / "containers" / "auth.json"),
        ({"XDG_RUNTIME_DIR": str(tmp_path / "r")}, tmp_path / "r" / "containers" / "auth.json"),
        ({}, docker),
        ({"DOCKER_CONFIG": str(tmp_path / "d")}, tmp_path / "d" / "config.json"),
        ({"REGISTRY_AUTH_FILE": str(tmp_path / "named")}, tmp_path / "named"),
    ]
    environment: dict[str, str] = {}
    for number, (variables, path) in enumerate(places):
        environment |= variables
        write(path, {"auths": {"registry.example:5000": auth(str(number), "x")}})
        assert login(**environment) == (str(number), "x"), path


def test_tokens_are_read(docker: Path) -> None:
    write(docker, {"auths": {"registry.example:5000": {"identitytoken": "i", **auth("ann", "")}}})
    assert known().login == RegistryLogin(str(docker), user="ann", identity_token="i")
    write(docker, {"auths": {"registry.example:5000": {"registrytoken": "r"}}})
    assert known().login == RegistryLogin(str(docker), registry_token="r")
    write(docker, {"auths": {"registry.example:5000": {"username": "ann", "password": "p"}}})
    assert login() == ("ann", "p")


@pytest.mark.parametrize(
    "entry", [{}, {"auth": ""}, {"auth": "%"}, {"auth": "/w=="}, {"auth": 5}, [], 5, None]
)
def test_an_entry_without_credentials_is_none(docker: Path, entry: Any) -> None:
    write(docker, {"auths": {"registry.example:5000": entry}})
    assert known() == FoundCredentials()


@pytest.mark.parametrize("document", ["", "{}", '{"auths": []}', '{"auths": null}', "{}\n\n"])
def test_a_file_without_entries_is_fine(docker: Path, document: str) -> None:
    write(docker, document)
    assert known() == FoundCredentials()


@pytest.mark.parametrize(
    ("text", "times", "why"),
    [
        ('{"auths": {"secret', 1, "it is not JSON"),
        ("[]", 1, "it is not a JSON object"),
        ("[", 100_000, "it is not JSON"),
        (" ", registry_credentials._MAX_FILE + 1, "it has more than 4 MiB"),
    ],
)
def test_a_broken_file_is_told_and_the_next_is_read(
    home: Path, docker: Path, text: str, times: int, why: str
) -> None:
    write(docker, text * times)
    assert known() == FoundCredentials(None, (f"{docker} cannot be read ({why})",))
    podman = home / ".config" / "containers" / "auth.json"
    write(podman, {"auths": {"registry.example:5000": auth("ann", "x")}})
    assert login() == ("ann", "x")


def test_a_file_that_is_none_is_told(docker: Path) -> None:
    docker.mkdir(parents=True)
    assert known().troubles == (f"{docker} cannot be read (Is a directory)",)


def test_a_helper_is_asked_by_dockers_protocol(docker: Path, helpers: Path, tmp_path: Path) -> None:
    helper(
        helpers,
        "own",
        f'[ "$1" = get ] || exit 1; cat >> {tmp_path}/asked\n'
        'echo \'{"ServerURL": "x", "Username": "ann", "Secret": "s"}\'',
    )
    write(docker, {"credHelpers": {"registry.example:5000": "own"}, "credsStore": "missing"})
    credentials = RegistryCredentials(os.environ)
    for image in (APP, APP, "registry.example:5000/other"):
        found = credentials.find(Reference.parse(image)).login
        assert found == RegistryLogin("docker-credential-own", "ann", "s")
    assert (tmp_path / "asked").read_text() == "registry.example:5000\n", "once"
    write(docker, {"credsStore": "own"})
    assert login("debian") == ("ann", "s")
    assert (tmp_path / "asked").read_text().endswith("\nhttps://index.docker.io/v1/\n")


def test_a_helper_may_have_an_identity_token(docker: Path, helpers: Path) -> None:
    helper(helpers, "own", 'echo \'{"Username": "<token>", "Secret": "s"}\'')
    write(docker, {"credsStore": "own"})
    assert known().login == RegistryLogin("docker-credential-own", identity_token="s")


def test_a_helper_that_has_nothing_leaves_it_to_the_file(docker: Path, helpers: Path) -> None:
    helper(helpers, "own", "echo 'credentials not found in native keychain'; exit 1")
    auths = {"registry.example:5000": auth("ann", "x")}
    write(docker, {"credsStore": "own", "auths": auths})
    assert known().troubles == ()
    assert login() == ("ann", "x")


@pytest.mark.parametrize(
    ("name", "script", "why"),
    [
        ("missing", None, "docker-credential-missing is not on the PATH"),
        ("own", "echo secret >&2; exit 3", "docker-credential-own ended with 3"),
        ("own", "echo secret", "did not return a user name and a secret"),
        ("own", "echo '[]'", "did not return"),
        ("own", "echo '{}'", "did not return"),
        ("own", "exec sleep 600", "did not answer within 0 s"),
        ("../own", None, "is not a valid helper name"),
        ("own get; id", None, "is not a valid helper name"),
    ],
)
def test_a_helper_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch,
    docker: Path,
    helpers: Path,
    name: str,
    script: str | None,
    why: str,
) -> None:
    if "sleep" in (script or ""):
        monkeypatch.setattr(registry_credentials, "_HELPER_SECONDS", 0.1)
    if script is not None:
        helper(helpers, name, script)
    write(docker, {"credsStore": name})
    (trouble,) = known().troubles
    assert why in trouble and "secret" not in trouble.replace("a secret", "")


def test_a_helper_that_is_no_program_is_told(docker: Path, helpers: Path) -> None:
    path = write(helpers / "docker-credential-own", "no program")
    path.chmod(0o755)
    write(docker, {"credsStore": "own"})
    assert "cannot be run (Exec format error)" in known().troubles[0]


def test_nothing_shows_a_secret() -> None:
    one = RegistryLogin("there", "ann", "p1", "i1", "r1")
    assert repr(one) == "RegistryLogin(source='there')"
    assert (
        repr(FoundCredentials(one))
        == "FoundCredentials(login=RegistryLogin(source='there'), troubles=())"
    )
    assert set(one.secrets) == {"p1", "i1", "r1", base64.b64encode(b"ann:p1").decode()}
