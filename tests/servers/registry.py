"""An image registry on loopback, in memory, which can misbehave on demand.

    with RegistryServer(auth="bearer", login=("ann", "secret")) as server:
        server.misbehave(f"GET {server.path_of('app', digest)}", answering(503), times=2)
        digest = server.put("app", b"...")

It speaks the OCI distribution API 1.1 and nothing else; digests are checked on the way in. Tokens
are given at `/token`, and name the scopes that they are good for, so that a test can read them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from loopback import LoopbackServer, Misdeed, Request, Response, Serve

from buildmatrix.base.data import replace

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_NAME = r"/v2/(?P<name>[a-z0-9/_.-]+?)"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def digest_of(data: bytes) -> str:
    """As registries name content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class _Repository:
    blobs: dict[str, bytes] = field(default_factory=dict)
    #: By tag and by digest: the bytes, and the media type.
    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)


def breaking_after(count: int) -> Misdeed:
    """Take so many bytes of an upload and keep them, and then hang up without an answer."""

    def misdeed(request: Request, serve: Serve) -> Response:
        taken = request.read(count)
        serve(replace(request, method="KEEP", read=lambda _: taken))
        return Response(0, dropped=True, reset=True)

    return misdeed


def losing_the_answer() -> Misdeed:
    """Do what was asked for, and hang up without an answer."""

    def misdeed(request: Request, serve: Serve) -> Response:
        serve(request)
        return Response(0, dropped=True)

    return misdeed


class RegistryServer(LoopbackServer):
    """The registry; starts with `with`.

    `auth`: what it wants to see; `login`: of whom, None for anybody who asks for a token.
    `referrers`: whether it has that API. `pieces`: whether it takes uploads in pieces.
    `mounts`: whether it takes blobs over from another repository. `realm`: where tokens are, if not
    here.
    """

    def __init__(
        self,
        *,
        auth: Literal["", "basic", "bearer"] = "",
        login: tuple[str, str] | None = None,
        identity_token: str = "",
        referrers: bool = True,
        pieces: bool = True,
        mounts: bool = True,
        realm: str = "",
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        super().__init__(certificate)
        self._auth = auth
        self._login = login
        self._identity_token = identity_token
        self._referrers = referrers
        self._pieces = pieces
        self._mounts = mounts
        self._realm = realm
        self._serial = 0
        #: Has one for each answer that hangs now; see `hasty.end_silence`.
        self.hangs = threading.Semaphore(0)
        #: Tokens that are good no longer.
        self.expired: set[str] = set()
        self.repositories: dict[str, _Repository] = {}

    @property
    def host(self) -> str:
        """As references have it."""
        return self.origin.partition("://")[2]

    @staticmethod
    def path_of(name: str, digest: str, kind: str = "blobs") -> str:
        """Where a blob is, or a manifest."""
        return f"/v2/{name}/{kind}/{digest}"

    def put(self, name: str, data: bytes) -> str:
        """Have a blob; its digest."""
        digest = digest_of(data)
        self._repository(name).blobs[digest] = data
        return digest

    def tag(self, name: str, tag: str, data: bytes, media_type: str = MANIFEST) -> str:
        """Have a manifest; its digest."""
        digest = digest_of(data)
        for version in filter(None, (tag, digest)):
            self._repository(name).manifests[version] = data, media_type
        return digest

    def asked(self, method: str, path: str) -> int:
        """Requests, whatever their query."""
        return sum(
            seen.method == method and seen.path.partition("?")[0] == path for seen in self.requests
        )

    def hanging(self) -> Misdeed:
        """No answer, until the server is closed."""

        def misdeed(request: Request, serve: Serve) -> Response:
            self.hangs.release()
            self.closing.wait()
            return Response(0, dropped=True)

        return misdeed

    def stalling_after(self, count: int) -> Misdeed:
        """So many bytes of the body, and then nothing, until the server is closed."""

        def misdeed(request: Request, serve: Serve) -> Response:
            response = serve(request)
            body = response.body
            assert isinstance(body, bytes)

            def pieces() -> Iterator[bytes]:
                yield body[:count]
                self.hangs.release()
                self.closing.wait()

            return replace(response, body=pieces()).having(content_length=str(len(body)))

        return misdeed

    def _repository(self, name: str) -> _Repository:
        return self.repositories.setdefault(name, _Repository())

    # Answers

    def _serve(self, request: Request) -> Response:
        parts = urlsplit(request.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        if path == "/token":
            return self._token(request, query)
        refused = self._refused(request, path, query)
        if refused is not None:
            return refused
        for pattern, answer in (
            (rf"{_NAME}/blobs/uploads/", self._begin),
            (rf"{_NAME}/blobs/uploads/(?P<what>[0-9]+)", self._upload),
            (rf"{_NAME}/blobs/(?P<what>[a-z0-9:]+)", self._blob),
            (rf"{_NAME}/manifests/(?P<what>[A-Za-z0-9:._-]+)", self._manifest),
            (rf"{_NAME}/referrers/(?P<what>[a-z0-9:]+)", self._list),
            (rf"{_NAME}/tags/list", self._tags),
            (r"/v2/_catalog", self._catalog),
        ):
            if match := re.fullmatch(pattern, path):
                return answer(request, match, query)
        return Response(200 if path == "/v2/" else 404)

    def _token(self, request: Request, query: dict[str, list[str]]) -> Response:
        if request.method == "POST":
            form = parse_qs(request.read(1 << 20).decode())
            if form.get("refresh_token") != [self._identity_token]:
                return error(401, "UNAUTHORIZED", f"wrong: {form.get('refresh_token')}")
            scopes = form["scope"][0].split(" ")
            key = "access_token"
        else:
            sent = request.headers.get("authorization", "")
            if self._login is not None and sent != basic(*self._login):
                return error(401, "UNAUTHORIZED", f"wrong: {sent}")
            scopes = query.get("scope", [])
            key = "token"
        self._serial += 1
        token = f"{self._serial}|{'|'.join(scopes)}"
        body = json.dumps({key: token, "expires_in": 300}).encode()
        return Response(200, body, {"content-type": "application/json"})

    def _refused(self, request: Request, path: str, query: dict[str, list[str]]) -> Response | None:
        sent = request.headers.get("authorization", "")
        if self._auth == "basic" and (self._login is None or sent != basic(*self._login)):
            return error(401, "UNAUTHORIZED", "who are you", 'Basic realm="registry"')
        if self._auth != "bearer":
            return None
        name = re.fullmatch(rf"{_NAME}/(blobs|manifests|referrers|tags)/.*", path)
        action = "pull" if request.method in ("GET", "HEAD") else "push"
        if "/uploads/" in path:
            action = "push"
        wanted = [(name["name"], action)] if name else []
        if path == "/v2/_catalog":
            wanted = [("catalog", "*")]
        if "from" in query and "mount" in query:
            wanted.append((query["from"][0], "pull"))
        serial, *scopes = sent.removeprefix("Bearer ").split("|")
        granted = {
            (scope.split(":")[1], action)
            for scope in scopes
            if scope
            for action in scope.split(":")[2].split(",")
        }
        if serial.isdigit() and set(wanted) <= granted and sent[7:] not in self.expired:
            return None
        realm = self._realm or f"{self.origin}/token"
        return error(
            401,
            "UNAUTHORIZED",
            "authentication required",
            f'Bearer realm="{realm}",service="registry.test",scope="ignored"',
        )

    def _begin(self, request: Request, match: re.Match[str], query: dict) -> Response:
        repository = self._repository(match["name"])
        mount, source = query.get("mount", [""])[0], query.get("from", [""])[0]
        known = self.repositories.get(source)
        if self._mounts and known is not None and mount in known.blobs:
            repository.blobs[mount] = known.blobs[mount]
            return Response(201, headers={"docker-content-digest": mount})
        self._serial += 1
        repository.uploads[str(self._serial)] = bytearray()
        return self._taken(match["name"], str(self._serial))

    def _taken(self, name: str, upload: str, status: int = 202) -> Response:
        count = len(self._repository(name).uploads[upload])
        # Relative, and with a state in it, as some registries have it.
        location = f"/v2/{name}/blobs/uploads/{upload}?_state={count}"
        return Response(status, headers={"location": location, "range": f"0-{max(0, count - 1)}"})

    def _upload(self, request: Request, match: re.Match[str], query: dict) -> Response:
        repository, upload = self._repository(match["name"]), match["what"]
        data = repository.uploads.get(upload)
        if data is None:
            return error(404, "BLOB_UPLOAD_UNKNOWN", "no such upload")
        if request.method == "GET":
            return self._taken(match["name"], upload, 204)
        if request.method == "DELETE":
            del repository.uploads[upload]
            return Response(204)
        if request.method == "KEEP":
            data += request.read(1 << 30)
            return Response(0)
        if request.method == "PATCH":
            if not self._pieces and data:
                return error(405, "UNSUPPORTED", "no pieces here")
            start = request.headers.get("content-range", "").partition("-")[0]
            if start != str(len(data)):
                return Response(416)
            data += request.read(1 << 30)
            return self._taken(match["name"], upload)
        data += request.read(1 << 30)
        digest = query["digest"][0]
        if digest_of(data) != digest:
            return error(400, "DIGEST_INVALID", "provided digest did not match")
        del repository.uploads[upload]
        repository.blobs[digest] = bytes(data)
        return Response(201, headers={"docker-content-digest": digest})

    def _blob(self, request: Request, match: re.Match[str], query: dict) -> Response:
        data = self._repository(match["name"]).blobs.get(match["what"])
        if data is None:
            return error(404, "BLOB_UNKNOWN", "blob unknown")
        if request.method == "HEAD":
            return Response(200, headers={"content-length": str(len(data))})
        wanted = _RANGE.fullmatch(request.headers.get("range", ""))
        if wanted is None:
            return Response(200, data)
        start, stop = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if start >= stop:
            return Response(416, headers={"content-range": f"bytes */{len(data)}"})
        headers = {"content-range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return Response(206, data[start:stop], headers)

    def _manifest(self, request: Request, match: re.Match[str], query: dict) -> Response:
        repository, version = self._repository(match["name"]), match["what"]
        if request.method == "PUT":
            data = request.read(16 << 20)
            digest = digest_of(data)
            media_type = request.headers["content-type"]
            document = json.loads(data)
            blobs = [*document.get("layers", []), *filter(None, [document.get("config")])]
            if any(blob["digest"] not in repository.blobs for blob in blobs):
                return error(400, "MANIFEST_BLOB_UNKNOWN", "blob unknown to registry")
            if ":" in version and version != digest:
                return error(400, "DIGEST_INVALID", "provided digest did not match")
            self.tag(match["name"], version, data, media_type)
            headers = {"docker-content-digest": digest}
            if self._referrers and "subject" in document:
                headers["oci-subject"] = document["subject"]["digest"]
            return Response(201, headers=headers)
        data, media_type = repository.manifests.get(version, (None, ""))
        if data is None:
            return error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        headers = {"content-type": media_type, "docker-content-digest": digest_of(data)}
        # As distribution has it: registry/handlers/manifests.go of version 2.8.3, `etagMatch`.
        if request.headers.get("if-none-match") == f'"{digest_of(data)}"':
            return Response(304)
        return Response(200, data, headers)

    def _list(self, request: Request, match: re.Match[str], query: dict) -> Response:
        if not self._referrers:
            return Response(404, b"404 page not found\n")
        entries = []
        # Another thread may push at this moment.
        manifests = self._repository(match["name"]).manifests.copy()
        for version, (data, media_type) in manifests.items():
            document = json.loads(data)
            if (
                version == digest_of(data)
                and document.get("subject", {}).get("digest") == match["what"]
            ):
                entry = {
                    "mediaType": media_type,
                    "digest": version,
                    "size": len(data),
                    "artifactType": document.get("artifactType", ""),
                    "annotations": document.get("annotations", {}),
                }
                entries.append(entry)
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        return Response(200, body, {"content-type": INDEX})

    def _tags(self, request: Request, match: re.Match[str], query: dict) -> Response:
        known = self.repositories.get(match["name"])
        tags = sorted(name for name in known.manifests if ":" not in name) if known else []
        if not tags:
            return error(404, "NAME_UNKNOWN", "repository name not known to registry")
        return _page(request, query, "tags", tags)

    def _catalog(self, request: Request, match: re.Match[str], query: dict) -> Response:
        return _page(request, query, "repositories", sorted(self.repositories))


def _page(request: Request, query: dict, key: str, names: list[str]) -> Response:
    """Part of a list, and where the next part is, as distribution has it."""
    after, most = query.get("last", [""])[0], int(query.get("n", ["100"])[0])
    rest = [name for name in names if name > after]
    page = rest[:most]
    response = Response(200, json.dumps({key: page}).encode(), {"content-type": "application/json"})
    if len(rest) <= most:
        return response
    path = urlsplit(request.path).path
    return response.having(link=f'<{path}?n={most}&last={page[-1]}>; rel="next"')


def basic(user: str, password: str) -> str:
    """The header that says who somebody is."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def error(status: int, code: str, message: str, challenge: str = "") -> Response:
    """An error as the specification has it."""
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    headers = {"content-type": "application/json"}
    if challenge:
        headers["www-authenticate"] = challenge
    return Response(status, body, headers)
