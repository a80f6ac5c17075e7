"""Saved images: their configuration and layers among the blobs of a layout or an archive.

Formats: OCI image specification 1.1 (image layout, index, manifest, configuration), as a folder or
an archive; output of `docker save`, which is the same since Docker 25 and before used a
`manifest.json` with the paths of layers.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import decode_json
from buildmatrix.base.text import printable
from buildmatrix.facts.trees.archive import OpenFile, Slice, Spool, safe_path
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.facts.trees.base import Closing, Unreadable
from buildmatrix.facts.trees.tar import TarMember, members
from buildmatrix.images.documents import (
    INDEXES,
    MANIFESTS,
    MAX_DOCUMENT,
    Descriptor,
    ImageConfiguration,
    Platform,
    check_configuration,
    choose,
    configuration_of,
    images_in,
    index_of,
    manifest_of,
    media_type_of,
    this_platform,
)
from buildmatrix.images.layout import IMAGE_NAME, REF_NAME, blob_path

#: Blobs per archive or layout; each layer is one.
MAX_BLOBS = 100_000
#: Docker and containerd allow 127.
MAX_LAYERS = 1000
#: Characters per instruction; heredocs can be whole scripts.
MAX_INSTRUCTION = 400
#: Maximum nesting of indexes.
MAX_INDEX_DEPTH = 4

_BLOB = re.compile(r"blobs/(sha256/[0-9a-f]{64}|sha512/[0-9a-f]{128})")
#: Files that list images.
_DOCUMENTS = ("index.json", "manifest.json", "repositories")


class Configuration(Struct, frozen=True):
    """Settings of an image that its layers do not contain."""

    environment: Mapping[str, str]
    labels: Mapping[str, str]
    #: Names of the image in the archive.
    names: tuple[str, ...] = ()
    #: diff ID and instruction of each layer, bottom layer first. Empty texts if the configuration
    #: does not state them or contradicts the layers.
    digests: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()


class SavedImage(Closing):
    """The only image in `path`: an archive of `docker save`, an OCI archive or an OCI layout.

    Verifies digests of documents, but not of layers, which would have to be read. `wanted` chooses
    among images of several platforms. Raises `Unreadable` for no image, several or a damaged one,
    and OSError. Keeps files open until `close` or the end of a `with` statement.
    """

    def __init__(self, path: Path, wanted: Platform | None = None) -> None:
        with ExitStack() as held:
            self._spool = Spool()
            held.callback(self._spool.close)
            folder = path.is_dir()
            self._blobs = (
                _layout_blobs(path, held) if folder else _archive_blobs(path, held, self._spool)
            )
            image = find_image(self._blobs, wanted)
            self._layers = image.layers
            self.configuration = image.configuration
            self._held = held.pop_all()

    def layers(self) -> list[tuple[str, Slice]]:
        """Return the layers, compressed or not, with the names of their blobs; bottom layer first.

        Raises `Unreadable` if one is missing.
        """
        return [(name, _find_blob(self._blobs, name)) for name in self._layers]

    def tree(self) -> LayeredTree:
        """Return the merged layers, valid until `close`. Raises `Unreadable` or OSError.

        Uncompressed layers are read in place; others are decompressed once, see `Spool`.
        """
        layers = []
        for name, blob in self.layers():
            try:
                layers.append(self._spool.plain(blob))
            except Unreadable as error:
                raise Unreadable(f"the layer {name} cannot be read: {error}") from error
        return LayeredTree(layers)

    def close(self) -> None:
        """Close the files; trees of this image become invalid."""
        self._held.close()


def _open_file(path: Path, held: ExitStack) -> Slice:
    file = OpenFile(held.enter_context(path.open("rb")).fileno())
    return Slice(file, 0, file.size)


def _layout_blobs(path: Path, held: ExitStack) -> dict[str, Slice]:
    """Open the blobs of a layout folder. Links are not followed: blobs are plain files."""
    blobs: dict[str, Slice] = {}
    for name in _DOCUMENTS:
        if (path / name).is_symlink():
            raise Unreadable(f"its {name} is a link, which engines treat differently")
        if (path / name).is_file():
            blobs[name] = _open_file(path / name, held)
    for file in sorted((path / "blobs").glob("*/*")):
        if file.is_file() and not file.is_symlink():
            if len(blobs) == MAX_BLOBS:
                raise Unreadable(f"more than {MAX_BLOBS} blobs")
            blobs[f"blobs/{file.parent.name}/{file.name}"] = _open_file(file, held)
    return blobs


def _archive_blobs(path: Path, held: ExitStack, spool: Spool) -> dict[str, Slice]:
    """Locate the files of an archive. Old `docker save` stores equal layers as links to one."""
    blobs: dict[str, Slice] = {}
    links: dict[str, str] = {}
    for name, member in iter_archive_files(spool.plain(_open_file(path, held))):
        if name in _DOCUMENTS and member.data is None:
            raise Unreadable(f"its {name} is not a file but a {member.kind}")
        if member.data is not None:
            blobs[name] = member.data
        elif member.kind == "symlink":
            links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.target))
    for name, target in links.items():
        if target in blobs:
            blobs.setdefault(name, blobs[target])
    return blobs


def iter_archive_files(archive: Slice) -> Iterator[tuple[str, TarMember]]:
    """Yield the entries of a saved image with their paths. Only blobs may be repeated.

    Raises `Unreadable`: podman uses the first of two equal paths, Docker the last.
    """
    #: Path → True for a blob.
    seen: dict[str, bool] = {}
    for count, member in enumerate(members(archive)):
        name = safe_path(member.name)
        if name is None:
            raise Unreadable(f"its entry {member.name!r} leads out of the archive")
        if count >= MAX_BLOBS:
            raise Unreadable(f"more than {MAX_BLOBS} files")
        if member.kind != "folder":
            is_blob = member.kind == "file" and digest_from_path(name) != ""
            if name in seen and not (is_blob and seen[name]):
                raise Unreadable(f"its entry {printable(name)} comes twice")
            seen[name] = is_blob
        yield name, member


def _find_blob(blobs: Mapping[str, Slice], name: str) -> Slice:
    blob = blobs.get(name)
    if blob is None:
        raise Unreadable(f"{name} is missing from it: the image was not saved completely")
    return blob


class ImageBlobs(Struct, frozen=True):
    """Names of an image's blobs, and its configuration."""

    configuration: Configuration
    #: Names of the blobs of the configuration and the layers, bottom layer first.
    config: str
    layers: tuple[str, ...]
    platform: Platform


class _DockerImage(msgspec.Struct, frozen=True, rename="pascal"):
    """Entry of `manifest.json`, as `docker load` reads it (moby, image/tarexport)."""

    config: str
    layers: tuple[str, ...] | None = ()
    repo_tags: tuple[str, ...] | None = ()


def find_image(blobs: Mapping[str, Slice], wanted: Platform | None = None) -> ImageBlobs:
    """Return the only image of the layout or archive with the files `blobs`. Raises `Unreadable`.

    Only reads documents. `wanted` chooses among images of several platforms, by default that of
    this machine.
    """
    try:
        images = list(_iter_images(blobs, wanted))
    except UndecidedError as error:
        raise Unreadable(error.message) from error
    if wanted is not None:
        platforms = ", ".join(sorted({printable(str(image.platform)) for image in images}))
        images = [image for image in images if _is_runnable(wanted, image)]
        if not images:
            raise Unreadable(
                f"it holds no image for {wanted}; give --platform one of these: "
                f"{platforms or 'nothing complete'}"
            )
    distinct = {_content_key(image): image for image in images}
    if len(distinct) > 1 and wanted is None:
        return find_image(blobs, this_platform())
    if len(distinct) != 1:
        names = "; ".join(map(_format_names, distinct.values()))
        content = f"{len(distinct)} images ({names})" if distinct else "no complete image"
        raise Unreadable(f"it holds {content}; save exactly one image, of one platform")
    return next(iter(distinct.values()))


def check_saved(blobs: Mapping[str, Slice]) -> None:
    """Raise `Unreadable` if `docker load` reads another image than podman and containerd.

    Docker's own store reads `manifest.json`, the others read `index.json`.
    """
    if "manifest.json" not in blobs and "repositories" in blobs:
        raise Unreadable("it has index.json and `repositories`, and older Docker reads the latter")
    if "manifest.json" not in blobs:
        return
    listed = {_identity(image) for image in _index_images(blobs, None)}
    for image in _docker_images(blobs):
        if _identity(image) not in listed:
            raise Unreadable(
                f"its manifest.json names an image ({_format_names(image)}) of other layers "
                "or another configuration than its index.json: docker load would run another one "
                "than podman"
            )


def _iter_images(blobs: Mapping[str, Slice], wanted: Platform | None) -> Iterator[ImageBlobs]:
    if "index.json" in blobs:
        check_saved(blobs)
        yield from _index_images(blobs, wanted)
        if wanted is not None and "manifest.json" in blobs:
            yield from (image for image in _docker_images(blobs) if _is_runnable(wanted, image))
    elif "manifest.json" in blobs:
        yield from _docker_images(blobs)
    else:
        raise Unreadable(
            "neither an OCI layout nor the output of docker save: no index.json, no manifest.json"
        )


def _is_runnable(wanted: Platform, image: ImageBlobs) -> bool:
    """Return True if engines run the image: without a platform, they do everywhere."""
    return not str(image.platform) or wanted.runs(image.platform)


def _identity(image: ImageBlobs) -> tuple[str, tuple[str, ...]]:
    return image.config, image.layers


def _content_key(image: ImageBlobs) -> tuple[object, ...]:
    """Return all but the names: equal layers load different libraries with other variables."""
    configuration = image.configuration
    variables, labels = (
        tuple(sorted(item.items())) for item in (configuration.environment, configuration.labels)
    )
    return image.layers, variables, labels, configuration.digests, configuration.instructions


def _format_names(image: ImageBlobs) -> str:
    return ", ".join(map(printable, image.configuration.names)) or "without a name"


def _index_images(blobs: Mapping[str, Slice], wanted: Platform | None) -> Iterator[ImageBlobs]:
    """Yield the images of `index.json`: engines choose its entries by name, not by platform."""
    index = index_of(_read_document(blobs, "index.json"), "index.json")
    for entry in index.manifests:
        yield from _entry_images(blobs, entry, len(index.manifests), (), wanted, 0)


def _entry_images(
    blobs: Mapping[str, Slice],
    entry: Descriptor,
    beside: int,
    names: tuple[str, ...],
    wanted: Platform | None,
    depth: int,
) -> Iterator[ImageBlobs]:
    """Yield the images of an entry that are present: one of many platforms may be saved alone."""
    if depth > MAX_INDEX_DEPTH:
        raise Unreadable(f"indexes nested more than {MAX_INDEX_DEPTH} deep")
    titles = map(entry.annotations.get, (IMAGE_NAME, REF_NAME))
    named = [*names, *[text for text in titles if text][:1]]
    if entry.platform is not None and str(entry.platform):
        named.append(f"{entry.platform.os}/{entry.platform.architecture}")
    place = blob_path(entry.digest)
    if place not in blobs and beside > 1:
        return
    data = _read_document(blobs, place)
    is_index = media_type_of(data, place) in INDEXES
    if entry.media_type in INDEXES | MANIFESTS and is_index != (entry.media_type in INDEXES):
        raise Unreadable(f"{place} is not what the index says, {entry.media_type}")
    if is_index:
        entries = images_in(index_of(data, place).manifests)
        if wanted is not None:
            chosen = choose(entries, wanted, place)
            entries = () if chosen is None else (chosen,)
        for inner in entries:
            yield from _entry_images(blobs, inner, len(entries), tuple(named), wanted, depth + 1)
        return
    manifest = manifest_of(data, place)
    config = blob_path(manifest.config.digest)
    image = _image_blobs(
        blobs, config, [blob_path(layer.digest) for layer in manifest.layers], named
    )
    check_configuration(entry, wanted or image.platform, image.platform)
    yield image


def _docker_images(blobs: Mapping[str, Slice]) -> Iterator[ImageBlobs]:
    try:
        images = decode_json(_read_document(blobs, "manifest.json"), tuple[_DockerImage, ...])
    except ValueError as error:
        raise Unreadable(f"manifest.json is not a list of images: {error}") from error
    for image in images:
        yield _image_blobs(blobs, image.config, image.layers or (), image.repo_tags or ())


def _image_blobs(
    blobs: Mapping[str, Slice], config: str, layers: Sequence[str], names: Sequence[str]
) -> ImageBlobs:
    held = configuration_of(_read_document(blobs, config), config)
    return ImageBlobs(
        read_configuration(held, len(layers), names), config, tuple(layers), held.platform
    )


def read_configuration(
    config: ImageConfiguration, layers: int, names: Sequence[str] = ()
) -> Configuration:
    """Return the settings of an image that has `layers` layers. Raises `Unreadable`."""
    if layers > MAX_LAYERS:
        raise Unreadable(f"it has {layers} layers; the maximum is {MAX_LAYERS}")
    digests = config.rootfs.diff_ids
    made = [entry for entry in config.history if not entry.empty_layer]
    nothing = ("",) * layers
    return Configuration(
        config.config.environment,
        dict(config.config.labels),
        tuple(names),
        digests if len(digests) == layers else nothing,
        tuple(format_instruction(entry.created_by or entry.comment) for entry in made)
        if len(made) == layers
        else nothing,
    )


def format_instruction(created_by: str) -> str:
    """Format a step of an image's history as a Dockerfile instruction, in one line.

    BuildKit writes the instruction and a comment; the classic builder writes the command of a RUN
    as it was executed, and marks all other instructions with `#(nop)`.
    """
    text = " ".join(created_by.split()).removesuffix(" # buildkit")
    shell = "/bin/sh -c "
    if text.startswith(f"{shell}#(nop) "):
        text = text.removeprefix(f"{shell}#(nop) ").strip()
    elif text.startswith(shell):
        text = f"RUN {text.removeprefix(shell)}"
    else:
        text = text.replace(f"RUN {shell}", "RUN ", 1)
    return text if len(text) <= MAX_INSTRUCTION else f"{text[: MAX_INSTRUCTION - 3]}..."


def digest_from_path(name: str) -> str:
    """Return the digest that a blob's path claims; empty for other paths."""
    match = _BLOB.fullmatch(name)
    return match[1].replace("/", ":") if match else ""


def _read_document(blobs: Mapping[str, Slice], name: str) -> bytes:
    """Read a document, and verify it if its path claims a digest."""
    blob = _find_blob(blobs, name)
    if blob.size > MAX_DOCUMENT:
        raise Unreadable(f"{name} has {blob.size} bytes, too many for a document")
    data = blob.read(0, blob.size)
    algorithm, _, digest = digest_from_path(name).partition(":")
    if digest and hashlib.new(algorithm, data).hexdigest() != digest:
        raise Unreadable(f"{name} is damaged: its bytes have another digest")
    return data
