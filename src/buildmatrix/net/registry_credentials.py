"""Registry credentials: the configuration of Docker and podman, and credential helpers.

The first file with the registry wins: REGISTRY_AUTH_FILE; `config.json` in DOCKER_CONFIG or
`~/.docker`; podman's `containers/auth.json` in XDG_RUNTIME_DIR and in XDG_CONFIG_HOME or
`~/.config` (containers-auth.json(5)). In a file, as in Docker: the helper of the registry
(`credHelpers`), the store (`credsStore`), the file itself (`auths`).

Helper protocol: https://github.com/docker/docker-credential-helpers#development: the server's
address on standard input of `docker-credential-NAME get`, JSON on standard output.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from msgspec import Struct

from buildmatrix.base import child
from buildmatrix.base.strict import parse_json
from buildmatrix.base.text import printable
from buildmatrix.facts.files import read_at_most
from buildmatrix.net.registry_mirrors import DOCKER_HUB, Reference

#: Docker's key for the credentials of Docker Hub.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_KEYS = frozenset({_HUB_KEY, "index.docker.io", "docker.io", "registry-1.docker.io"})
#: Bytes of a configuration file; it has some hundred registries at most.
_MAX_FILE = 4 << 20
#: A helper may ask a cloud for a token, or unlock a keychain.
_HELPER_SECONDS = 30.0
_HELPER_MEMORY = 1 << 30
_HELPER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
#: Output of a helper without credentials for the server; it exits with 1.
_NOT_FOUND = "credentials not found in native keychain"
#: User name that marks the secret as an identity token.
_IDENTITY_USER = "<token>"


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Credentials for one registry: user and password, or a token."""

    #: Place where they were found, for messages.
    source: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    #: OAuth 2 refresh token: for the token server, not for the registry.
    identity_token: str = field(default="", repr=False)
    #: Token for the registry itself.
    registry_token: str = field(default="", repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to remove from messages, in all forms in which they are sent; longest first."""
        plain = {self.password, self.identity_token, self.registry_token} - {""}
        sent = {quote_plus(secret) for secret in plain}
        if self.password:
            sent.add(base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii"))
        return tuple(sorted(plain | sent, key=len, reverse=True))


class FoundCredentials(Struct, frozen=True):
    """Credentials for a registry, from this machine's settings."""

    login: RegistryLogin | None = None
    #: Failed files and helpers, which may have had credentials.
    troubles: tuple[str, ...] = ()


class RegistryCredentials:
    """Credentials of this machine by registry, for all threads. Each is looked up once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._access: dict[tuple[str, str], FoundCredentials] = {}
        self._helper_results: dict[tuple[str, str], tuple[RegistryLogin | None, str]] = {}
        self._lock = threading.Lock()

    def find(self, reference: Reference) -> FoundCredentials:
        """Return the credentials for a registry; podman's may be for one repository."""
        key = reference.host, reference.repository
        with self._lock:  # A helper may prompt its user: ask once.
            if key not in self._access:
                self._access[key] = self._search(reference)
            return self._access[key]

    def _search(self, reference: Reference) -> FoundCredentials:
        troubles: list[str] = []
        for path in _config_files(self._environment):
            try:
                settings = _read_config(path)
            except ValueError as error:
                troubles.append(f"{path} cannot be read ({error})")
                continue
            login = self._find_in(settings, path, reference, troubles)
            if login is not None:
                return FoundCredentials(login, tuple(troubles))
        return FoundCredentials(None, tuple(troubles))

    def _find_in(
        self, settings: Mapping[str, Any], path: Path, reference: Reference, troubles: list[str]
    ) -> RegistryLogin | None:
        server = _HUB_KEY if reference.host == DOCKER_HUB else reference.host
        helpers = _table(settings, "credHelpers")
        for helper in (_entry_for_host(helpers, reference.host), settings.get("credsStore")):
            if isinstance(helper, str) and helper:
                login, trouble = self._ask_helper(helper, server)
                if login is not None:
                    return login
                if trouble:
                    troubles.append(trouble)
        auths = _table(settings, "auths")
        parts = reference.repository.split("/")
        for count in range(len(parts), 0, -1):
            entry = auths.get(f"{reference.host}/{'/'.join(parts[:count])}")
            if isinstance(entry, dict) and (login := _parse_login(entry, str(path))):
                return login
        entry = _entry_for_host(auths, reference.host)
        return _parse_login(entry, str(path)) if isinstance(entry, dict) else None

    def _ask_helper(self, helper: str, server: str) -> tuple[RegistryLogin | None, str]:
        """Return a helper's credentials for a server, or the reason of its failure."""
        key = helper, server
        if key not in self._helper_results:
            try:
                self._helper_results[key] = _run_helper(helper, server, self._environment), ""
            except ValueError as error:
                self._helper_results[key] = (
                    None,
                    f"docker-credential-{printable(helper)[:64]} {error}",
                )
        return self._helper_results[key]


def _config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    home = Path(environment.get("HOME") or "/")
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    configuration = environment.get("XDG_CONFIG_HOME") or home / ".config"
    yield Path(configuration) / "containers" / "auth.json"


def _read_config(path: Path) -> Mapping[str, Any]:
    """Read a JSON object; empty if there is no file. Raises ValueError."""
    try:
        data = read_at_most(path, _MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(error.strerror) from None
    if len(data) > _MAX_FILE:
        raise ValueError(f"it has more than {_MAX_FILE >> 20} MiB")
    if not data.strip():
        return {}
    try:
        document = parse_json(data)
    # The error's text may contain a part of the file.
    except (JSONDecodeError, UnicodeDecodeError):
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def _table(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = settings.get(key)
    return value if isinstance(value, dict) else {}


def _entry_for_host(table: Mapping[str, Any], host: str) -> Any:
    """Return the entry of a host: Docker also wrote URLs, with the suffix `/v1/` or `/v2/`."""
    if host in table:
        return table[host]
    wanted = _HUB_KEYS if host == DOCKER_HUB else {host}
    for key, value in table.items():
        bare = re.sub(r"^https?://", "", key)
        if key in wanted or re.sub(r"/(v[12]/?)?$", "", bare) in wanted:
            return value
    return None


def _parse_login(entry: Mapping[str, Any], source: str) -> RegistryLogin | None:
    def text(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    user, password = text("username"), text("password")
    if auth := text("auth"):
        try:
            user, _, password = base64.b64decode(auth).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        password = password.strip("\0")  # as Docker does
    identity, registry = text("identitytoken"), text("registrytoken")
    if not (user or password or identity or registry):
        return None
    return RegistryLogin(source, user, password, identity, registry)


def _run_helper(name: str, server: str, environment: Mapping[str, str]) -> RegistryLogin | None:
    """Run a helper; None if it has no credentials. Raises ValueError if it fails."""
    if not _HELPER_NAME.fullmatch(name):
        raise ValueError("is not a valid helper name")
    program = f"docker-credential-{name}"
    try:
        done = child.run(
            [program, "get"],
            Path("/"),
            environment,
            seconds=_HELPER_SECONDS,
            memory=_HELPER_MEMORY,
            input=f"{server}\n",
        )
    except FileNotFoundError:
        raise ValueError("is not on the PATH") from None
    except OSError as error:
        raise ValueError(f"cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"did not answer within {_HELPER_SECONDS:.0f} s") from None
    if done.returncode != 0:
        if _NOT_FOUND in done.stdout or _NOT_FOUND in done.stderr:
            return None
        # The output may contain a secret.
        raise ValueError(f"ended with {done.returncode}")
    try:
        response = parse_json(done.stdout)
        user, secret = response["Username"], response["Secret"]
    except (JSONDecodeError, KeyError, TypeError):
        raise ValueError("did not return a user name and a secret") from None
    if not isinstance(user, str) or not isinstance(secret, str) or not secret:
        return None
    if user == _IDENTITY_USER:
        return RegistryLogin(program, identity_token=secret)
    return RegistryLogin(program, user, secret)
