"""A registry on loopback that has the images it is given, and counts what it sends."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ImageRegistry:
    """Serves documents by name and digest. Close it, or use a `with` statement."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[bytes, str]] = {}
        self.blobs: dict[str, bytes] = {}
        #: Digest of a blob → bytes of it that were sent.
        self.sent: dict[str, int] = {}
        self.has_ranges = True
        #: Method and path of each request.
        self.requests: list[tuple[str, str]] = []
        #: How often something was still what the client knew.
        self.unchanged = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                outer.answer(self)

            do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> ImageRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        _, _, name = handler.path.rpartition("/")
        self.requests.append((handler.command, handler.path))
        if "/manifests/" in handler.path and name in self.documents:
            data, kind = self.documents[name]
            if handler.headers.get("If-None-Match") == f'"{digest_of(data)}"':
                self.unchanged += 1
                handler.send_response(304)
                handler.end_headers()
                return
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.send_header("Docker-Content-Digest", digest_of(data))
        elif "/blobs/" in handler.path and name in self.blobs:
            data = whole = self.blobs[name]
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
            if asked and self.has_ranges:
                first, last = int(asked[1]), min(int(asked[2]), len(whole) - 1)
                data = whole[first : last + 1]
                handler.send_response(206)
                handler.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
            else:
                handler.send_response(200)
            self.sent[name] = self.sent.get(name, 0) + len(data)
        else:
            data = b""
            handler.send_response(404 if handler.path != "/v2/" else 200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    def add(self, data: bytes) -> dict[str, Any]:
        self.blobs[digest_of(data)] = data
        return {"digest": digest_of(data), "size": len(data)}

    def image(
        self,
        layers: Sequence[bytes],
        *,
        diff_ids: Sequence[str] = (),
        kind: str = LAYER,
        annotations: Sequence[Mapping[str, str]] = (),
        config: Mapping[str, Any] | None = None,
        architecture: str = "amd64",
        tag: str = "",
    ) -> dict[str, Any]:
        """An image with these layers; what an index says of it."""
        configuration = {
            "architecture": architecture,
            "os": "linux",
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": [*diff_ids] or [*map(digest_of, layers)]},
        }
        more = [{"annotations": dict(texts)} for texts in annotations] or [{}] * len(layers)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": CONFIGURATION,
                **self.add(json.dumps(configuration).encode()),
            },
            "layers": [
                {"mediaType": kind, **self.add(layer), **extra}
                for layer, extra in zip(layers, more, strict=True)
            ],
        }
        platform = {"os": "linux", "architecture": architecture}
        return {**self.document(manifest, MANIFEST, tag), "platform": platform}

    def index(self, *images: Mapping[str, Any], tag: str) -> dict[str, Any]:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(images)}
        return self.document(index, INDEX, tag)

    def document(self, document: Mapping[str, Any], kind: str, tag: str) -> dict[str, Any]:
        data = json.dumps(document).encode()
        for name in filter(None, (digest_of(data), tag)):
            self.documents[name] = data, kind
        return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}
