"""Archives whose bytes are the same wherever and whenever they are made."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HISTORY = ("ADD rootfs.tar.gz / # buildkit", "COPY /opt/venv /opt/venv # buildkit")
_CREATED = "2026-01-02T03:04:05Z"


def wheel(
    name: str,
    version: str,
    files: Mapping[str, bytes],
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> tuple[str, bytes]:
    """File name and bytes of a wheel; nothing is compressed, as zlib's versions differ in that."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {line}\n" for line in requires]
    purelib = str(tag.endswith("any")).lower()
    members = {
        **files,
        f"{info}/METADATA": "".join(metadata).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n".encode(),
    }
    record = "".join(f"{path},,\n" for path in [*members, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as out:
        for path, data in {**members, f"{info}/RECORD": record.encode()}.items():
            out.writestr(zipfile.ZipInfo(path, (2026, 1, 2, 3, 4, 6)), data)
    return f"{stem}-{tag}.whl", buffer.getvalue()


def install(wheel_path: Path, site: Path) -> None:
    """Unpack a wheel as an installer does."""
    with zipfile.ZipFile(wheel_path) as archive:
        archive.extractall(site)
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    (site / info / "INSTALLER").write_text("pip\n")


def tar(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of files without owners and times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            out.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _layers(root: Path) -> tuple[bytes, bytes]:
    """The system and what was installed, as two layers."""
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    installed = {name: data for name, data in files.items() if name.startswith("opt/")}
    return tar({name: files[name] for name in files if name not in installed}), tar(installed)


def _configuration(layers: Sequence[bytes], environment: Sequence[str]) -> bytes:
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _CREATED,
            "config": {"Env": list(environment)},
            "history": [{"created": _CREATED, "created_by": step} for step in HISTORY],
            "rootfs": {"type": "layers", "diff_ids": [_sha256(data) for data in layers]},
        }
    ).encode()


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def saved_image(
    root: Path, environment: Sequence[str] = ("PATH=/opt/venv/bin",), tag: str = "acme:1"
) -> tuple[bytes, tuple[str, ...], tuple[tuple[str, int], ...]]:
    """What `docker save` gives of an image with the files of `root`, its layers, its history."""
    layers = _layers(root)
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "c.json", "RepoTags": [tag], "Layers": names}]
    archive = tar(
        {
            "manifest.json": json.dumps(manifest).encode(),
            "c.json": _configuration(layers, environment),
            **dict(zip(names, layers, strict=True)),
        }
    )
    history = tuple(zip(HISTORY, map(len, layers), strict=True))
    return archive, tuple(map(_sha256, layers)), history


def oci_layout(root: Path, folder: Path, environment: Sequence[str] = ()) -> None:
    """The same image as an OCI layout (image-spec, image-layout.md)."""
    layers = _layers(root)
    files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(data: bytes, kind: str) -> dict[str, object]:
        files[f"blobs/sha256/{_sha256(data)[7:]}"] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": _sha256(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "config": blob(_configuration(layers, environment), "config.v1+json"),
        "layers": [blob(data, "layer.v1.tar") for data in layers],
    }
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "acme:1"}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
