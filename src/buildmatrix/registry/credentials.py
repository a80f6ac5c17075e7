"""Who this machine is to a registry: the configuration of Docker and of podman, and its helpers.

Files, the first that knows the registry wins: REGISTRY_AUTH_FILE; `config.json` in DOCKER_CONFIG or
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
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from buildmatrix import child
from buildmatrix.files import read_at_most
from buildmatrix.registry.reference import DOCKER_HUB, Reference
from buildmatrix.strict_json import parse_json
from buildmatrix.text import printable

#: Under which Docker keeps what belongs to Docker Hub.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_KEYS = frozenset({_HUB_KEY, "index.docker.io", "docker.io", "registry-1.docker.io"})
#: Bytes of a configuration; it holds some hundred registries at most.
_LARGEST_FILE = 4 << 20
#: A helper may ask a cloud for a token, or unlock a keychain.
_HELPER_SECONDS = 30.0
_HELPER_MEMORY = 1 << 30
_HELPER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
#: A helper that has nothing says this, and ends with 1.
_NOT_FOUND = "credentials not found in native keychain"
#: What a helper gives as the name of the user where the secret is an identity token.
_IDENTITY = "<token>"


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """What somebody is to one registry: user and password, or one of the tokens."""

    #: Where it was found, for messages.
    source: str
    user: str = ""
    password: str = ""
    #: A refresh token of OAuth 2: the token server takes it, the registry does not.
    identity_token: str = ""
    #: What the registry itself takes.
    registry_token: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may hold, in the forms in which it is sent; the longest first."""
        plain = {self.password, self.identity_token, self.registry_token} - {""}
        sent = {quote_plus(secret) for secret in plain}
        if self.password:
            sent.add(base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii"))
        return tuple(sorted(plain | sent, key=len, reverse=True))

    def __repr__(self) -> str:
        return f"RegistryLogin(source={self.source!r})"


@dataclass(frozen=True, slots=True)
class Access:
    """What this machine's settings say of a registry."""

    login: RegistryLogin | None = None
    #: Why there may be more than was found: a file or a helper that failed.
    troubles: tuple[str, ...] = ()


class RegistryCredentials:
    """The credentials of this machine, by registry; for all threads. Each is looked for once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._access: dict[tuple[str, str], Access] = {}
        self._answers: dict[tuple[str, str], tuple[RegistryLogin | None, str]] = {}
        self._lock = threading.Lock()

    def of(self, reference: Reference) -> Access:
        """Who this machine is to the registry of `reference`; podman may know the repository."""
        key = reference.host, reference.repository
        with self._lock:  # A helper may ask its user: not twice.
            if key not in self._access:
                self._access[key] = self._find(reference)
            return self._access[key]

    def _find(self, reference: Reference) -> Access:
        troubles: list[str] = []
        for path in _files(self._environment):
            try:
                settings = _read(path)
            except ValueError as error:
                troubles.append(f"{path} cannot be read ({error})")
                continue
            login = self._in(settings, path, reference, troubles)
            if login is not None:
                return Access(login, tuple(troubles))
        return Access(None, tuple(troubles))

    def _in(
        self, settings: Mapping[str, Any], path: Path, reference: Reference, troubles: list[str]
    ) -> RegistryLogin | None:
        server = _HUB_KEY if reference.host == DOCKER_HUB else reference.host
        helpers = _table(settings, "credHelpers")
        for helper in (_entry(helpers, reference.host), settings.get("credsStore")):
            if isinstance(helper, str) and helper:
                login, trouble = self._helped(helper, server)
                if login is not None:
                    return login
                if trouble:
                    troubles.append(trouble)
        auths = _table(settings, "auths")
        parts = reference.repository.split("/")
        for count in range(len(parts), 0, -1):
            entry = auths.get(f"{reference.host}/{'/'.join(parts[:count])}")
            if isinstance(entry, dict) and (login := _login(entry, str(path))):
                return login
        entry = _entry(auths, reference.host)
        return _login(entry, str(path)) if isinstance(entry, dict) else None

    def _helped(self, helper: str, server: str) -> tuple[RegistryLogin | None, str]:
        """What a helper says of a server, or why it says nothing."""
        key = helper, server
        if key not in self._answers:
            try:
                self._answers[key] = _ask(helper, server, self._environment), ""
            except ValueError as error:
                self._answers[key] = None, f"docker-credential-{printable(helper)[:64]} {error}"
        return self._answers[key]


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    home = Path(environment.get("HOME") or "/")
    yield Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    configuration = environment.get("XDG_CONFIG_HOME") or home / ".config"
    yield Path(configuration) / "containers" / "auth.json"


def _read(path: Path) -> Mapping[str, Any]:
    """The file; empty where there is none. Raises ValueError."""
    try:
        data = read_at_most(path, _LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(error.strerror) from None
    if len(data) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE >> 20} MiB")
    if not data.strip():
        return {}
    try:
        document = parse_json(data)
    # The text of the error may hold a part of the file.
    except (JSONDecodeError, UnicodeDecodeError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _table(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = settings.get(key)
    return value if isinstance(value, dict) else {}


def _entry(table: Mapping[str, Any], host: str) -> Any:
    """What stands under a host: Docker also wrote URLs, with `/v1/` and `/v2/` behind them."""
    if host in table:
        return table[host]
    wanted = _HUB_KEYS if host == DOCKER_HUB else {host}
    for key, value in table.items():
        bare = re.sub(r"^https?://", "", key)
        if key in wanted or re.sub(r"/(v[12]/?)?$", "", bare) in wanted:
            return value
    return None


def _login(entry: Mapping[str, Any], source: str) -> RegistryLogin | None:
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


def _ask(name: str, server: str, environment: Mapping[str, str]) -> RegistryLogin | None:
    """What a helper has of a server; None for nothing. Raises ValueError for one that fails."""
    if not _HELPER_NAME.fullmatch(name):
        raise ValueError("is no name of a helper")
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
        # What it prints may be anything, a secret too.
        raise ValueError(f"ended with {done.returncode}")
    try:
        answer = parse_json(done.stdout)
        user, secret = answer["Username"], answer["Secret"]
    except (JSONDecodeError, KeyError, TypeError):
        raise ValueError("answered with something else than a user name and a secret") from None
    if not isinstance(user, str) or not isinstance(secret, str) or not secret:
        return None
    if user == _IDENTITY:
        return RegistryLogin(program, identity_token=secret)
    return RegistryLogin(program, user, secret)
