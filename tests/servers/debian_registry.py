"""Debian's docker-registry, started for a test: with TLS, and with passwords or tokens."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from loopback import LoopbackServer, Request, Response
from registry import basic, error

#: crypt(3) of `hunter2`: bcrypt is all that the registry takes.
_HTPASSWD = "ann:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n"
LOGIN = ("ann", "hunter2")
_START_SECONDS = 300
_ISSUER, _SERVICE = "issuer.test", "registry.test"


@dataclass
class DebianRegistry:
    """One that runs."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def host(self) -> str:
        """As references have it."""
        return f"127.0.0.1:{self.port}"


def htpasswd(folder: Path) -> Mapping[str, object]:
    """Its setting `auth`, for a password."""
    path = folder / "htpasswd"
    path.write_text(_HTPASSWD)
    return {"htpasswd": {"realm": "test", "path": str(path)}}


@contextmanager
def debian_registry(
    program: Path,
    folder: Path,
    *,
    certificate: tuple[Path, Path] | None = None,
    auth: Mapping[str, object] | None = None,
    catalog: Mapping[str, object] | None = None,
    port: int = 0,
) -> Iterator[DebianRegistry]:
    """A registry with its blobs in `folder`, on a free port or this one; ended by its process."""
    port = port or _free_port()
    http: dict[str, object] = {"addr": f"127.0.0.1:{port}"}
    if certificate is not None:
        http["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    settings = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
        "http": http,
        **({"auth": dict(auth)} if auth else {}),
        **({"catalog": dict(catalog)} if catalog else {}),
    }
    configuration = folder / "registry.json"
    configuration.write_text(json.dumps(settings))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", configuration], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        end = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((folder / "log").read_text(errors="replace"))
            time.sleep(0.02)
        yield DebianRegistry(port, process)
    finally:
        process.terminate()
        process.wait(300)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class TokenServer(LoopbackServer):
    """Gives tokens that a registry with the setting `auth` takes: for ann all, for others pull.

    https://distribution.github.io/distribution/spec/auth/jwt/
    """

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        super().__init__(certificate)
        self._bundle = certificate[0]
        key = serialization.load_pem_private_key(certificate[1].read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    @property
    def auth(self) -> Mapping[str, object]:
        """The registry's setting `auth`."""
        token = {
            "realm": f"{self.origin}/token",
            "service": _SERVICE,
            "issuer": _ISSUER,
            "rootcertbundle": str(self._bundle),
        }
        return {"token": token}

    def _serve(self, request: Request) -> Response:
        parts = urlsplit(request.path)
        query = parse_qs(parts.query)
        sent = request.headers.get("authorization")
        if parts.path != "/token" or sent not in (None, basic(*LOGIN)):
            return error(401, "UNAUTHORIZED", "who are you")
        access = []
        for scope in query.get("scope", []):
            kind, name, actions = scope.split(":")
            allowed = [action for action in actions.split(",") if sent or action == "pull"]
            access.append({"type": kind, "name": name, "actions": allowed})
        now = int(time.time())
        claims = {
            "iss": _ISSUER,
            "sub": "ann" if sent else "",
            "aud": query["service"][0],
            "iat": now,
            "nbf": now - 60,
            "exp": now + 300,
            "jti": uuid.uuid4().hex,
            "access": access,
        }
        body = json.dumps({"token": self._signed(claims), "expires_in": 300}).encode()
        return Response(200, body, {"content-type": "application/json"})

    def _signed(self, claims: Mapping[str, object]) -> str:
        pem = self._bundle.read_text()
        der = "".join(line for line in pem.splitlines() if "-----" not in line)
        header = {"typ": "JWT", "alg": "ES256", "x5c": [der]}
        signed = b".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        der_signature = self._key.sign(signed, ec.ECDSA(hashes.SHA256()))
        numbers = utils.decode_dss_signature(der_signature)
        raw = b"".join(number.to_bytes(32, "big") for number in numbers)
        return (signed + b"." + _encoded(raw)).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
