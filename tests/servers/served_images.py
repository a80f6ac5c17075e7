"""Images in a registry on loopback that asks who is there."""

from __future__ import annotations

import json
from collections.abc import Sequence

from registry import MANIFEST, RegistryServer

_CONFIGURATION = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def put_image(server: RegistryServer, name: str, tag: str, layers: Sequence[bytes]) -> str:
    """Have an image of these layers, as archives; its digest."""
    digests = [server.put(name, layer) for layer in layers]
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": digests},
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": _CONFIGURATION,
            "digest": server.put(name, configuration),
            "size": len(configuration),
        },
        "layers": [
            {"mediaType": _LAYER, "digest": digest, "size": len(layer)}
            for digest, layer in zip(digests, layers, strict=True)
        ],
    }
    return server.tag(name, tag, json.dumps(manifest).encode())
