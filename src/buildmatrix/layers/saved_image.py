"""A saved image: which of its blobs are the layers, and what its configuration says.

Formats: OCI image specification 1.1 (image layout, index, manifest, configuration), as a folder or
as an archive of one, and what `docker save` writes: the same since Docker 25, before that a
`manifest.json` that names layers by path.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildmatrix.errors import UndecidedError
from buildmatrix.oci.choosing import check_configuration, choose, images_in
from buildmatrix.oci.documents import (
    INDEXES,
    MANIFESTS,
    MAX_DOCUMENT,
    Descriptor,
    ImageConfiguration,
    Platform,
    configuration_of,
    index_of,
    manifest_of,
    media_type_of,
)
from buildmatrix.oci.layout import REF_NAME
from buildmatrix.strict_json import decode_json
from buildmatrix.text import printable
from buildmatrix.trees.archive import OpenFile, Slice, Spool, plain
from buildmatrix.trees.archive_layers import LayeredTree
from buildmatrix.trees.base import Closing, Unreadable
from buildmatrix.trees.tar import TarMember, members

#: Blobs of one archive or layout; each layer is one.
MOST_BLOBS = 100_000
#: Docker and containerd stop at 127.
MOST_LAYERS = 1000
#: Characters of an instruction that are kept; heredocs can be whole scripts.
LONGEST_INSTRUCTION = 400
#: Indexes inside of indexes.
DEEPEST_INDEX = 4

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z|sha512:[0-9a-f]{128}\Z")
#: The files that say which images there are.
_DOCUMENTS = ("index.json", "manifest.json", "repositories")
#: Where containerd and Docker write the whole name of an image into an index.
_IMAGE_NAME = "io.containerd.image.name"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an image's configuration says that its layers cannot."""

    environment: Mapping[str, str]
    labels: Mapping[str, str]
    #: Names that the archive gives the image; empty for none.
    names: tuple[str, ...] = ()
    #: Of each layer, the lowest first: the digest of its uncompressed bytes, and what made it.
    #: Empty texts where the configuration does not say, or contradicts the layers that are there.
    digests: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()


class SavedImage(Closing):
    """The one image in `path`: an archive of `docker save`, an OCI archive or an OCI layout.

    Digests of documents are checked, those of layers are not: that would read all of them. Of
    several images the one for the platform `wanted` counts. Raises `Unreadable` when there is no
    image in it, or several, or when it is damaged; or OSError. Holds files open; `close` or a
    `with` statement frees them.
    """

    def __init__(self, path: Path, wanted: Platform | None = None) -> None:
        with ExitStack() as held:
            self._spool = Spool()
            held.callback(self._spool.close)
            folder = path.is_dir()
            self._blobs = _layout(path, held) if folder else _archive(path, held, self._spool)
            image = image_in(self._blobs, wanted)
            self._layers = image.layers
            self.configuration = image.configuration
            self._held = held.pop_all()

    def layers(self) -> list[tuple[str, Slice]]:
        """The layers as they are saved, maybe compressed, with the names of their blobs.

        The lowest first. Raises `Unreadable` where one is missing.
        """
        return [(name, _blob(self._blobs, name)) for name in self._layers]

    def tree(self) -> LayeredTree:
        """The merged layers, valid until `close`. Raises `Unreadable` or OSError.

        Uncompressed layers are read in place; the others are inflated once, see `Spool`.
        """
        layers = []
        for name, blob in self.layers():
            try:
                layers.append(self._spool.plain(blob))
            except Unreadable as error:
                raise Unreadable(f"the layer {name} cannot be read: {error}") from error
        return LayeredTree(layers)

    def close(self) -> None:
        """Free the files; no tree of this image can be used afterwards."""
        self._held.close()


# Where the blobs are


def _open(path: Path, held: ExitStack) -> Slice:
    file = OpenFile(held.enter_context(path.open("rb")).fileno())
    return Slice(file, 0, file.size)


def _layout(path: Path, held: ExitStack) -> dict[str, Slice]:
    """The blobs of a layout folder. A link in it is not followed: blobs are plain files."""
    blobs: dict[str, Slice] = {}
    for name in _DOCUMENTS:
        if (path / name).is_symlink():
            raise Unreadable(f"its {name} is a link, which some engines follow and others do not")
        if (path / name).is_file():
            blobs[name] = _open(path / name, held)
    for file in sorted((path / "blobs").glob("*/*")):
        if file.is_file() and not file.is_symlink():
            if len(blobs) == MOST_BLOBS:
                raise Unreadable(f"more than {MOST_BLOBS} blobs")
            blobs[f"blobs/{file.parent.name}/{file.name}"] = _open(file, held)
    return blobs


def _archive(path: Path, held: ExitStack, spool: Spool) -> dict[str, Slice]:
    """The files of an archive. Old `docker save` stores equal layers once, and links to them."""
    blobs: dict[str, Slice] = {}
    links: dict[str, str] = {}
    for name, member in archive_files(spool.plain(_open(path, held))):
        if name in _DOCUMENTS and member.data is None:
            raise Unreadable(f"its {name} is no file, but a {member.kind}")
        if member.data is not None:
            blobs[name] = member.data
        elif member.kind == "symlink":
            links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.target))
    for name, target in links.items():
        if target in blobs:
            blobs.setdefault(name, blobs[target])
    return blobs


def archive_files(archive: Slice) -> Iterator[tuple[str, TarMember]]:
    """The entries of a saved image, with their paths. A blob may be there twice, nothing else.

    Raises `Unreadable`: podman takes the first of two with one path, Docker the last.
    """
    #: Path → whether it is a blob.
    seen: dict[str, bool] = {}
    for count, member in enumerate(members(archive)):
        name = plain(member.name)
        if name is None:
            raise Unreadable(f"its entry {member.name!r} leads out of the archive")
        if count >= MOST_BLOBS:
            raise Unreadable(f"more than {MOST_BLOBS} files, which no saved image has")
        if member.kind != "folder":
            is_blob = member.kind == "file" and digest_in(name) != ""
            if name in seen and not (is_blob and seen[name]):
                raise Unreadable(f"its entry {printable(name)} comes twice")
            seen[name] = is_blob
        yield name, member


def _blob(blobs: Mapping[str, Slice], name: str) -> Slice:
    blob = blobs.get(name)
    if blob is None:
        raise Unreadable(f"{name} is missing from it: the image was not saved completely")
    return blob


# Which image


@dataclass(frozen=True, slots=True)
class ImageBlobs:
    """An image among blobs."""

    configuration: Configuration
    #: Names of blobs: its configuration, and its layers, the lowest first.
    config: str
    layers: tuple[str, ...]
    platform: Platform


class _DockerImage(msgspec.Struct, frozen=True, rename="pascal"):
    """An entry of `manifest.json`, which `docker load` reads (moby, image/tarexport)."""

    config: str
    layers: tuple[str, ...] | None = ()
    repo_tags: tuple[str, ...] | None = ()


def image_in(blobs: Mapping[str, Slice], wanted: Platform | None = None) -> ImageBlobs:
    """The one image of the layout or archive whose files are `blobs`. Raises `Unreadable`.

    Only its documents are read. See `SavedImage` for `wanted`.
    """
    try:
        images = list(_images(blobs, wanted))
    except UndecidedError as error:
        raise Unreadable(error.message) from error
    if wanted is not None:
        platforms = ", ".join(sorted({printable(str(image.platform)) for image in images}))
        images = [image for image in images if _runs(wanted, image)]
        if not images:
            raise Unreadable(
                f"it holds no image of that platform: {platforms or 'nothing complete'}"
            )
    distinct = {_content(image): image for image in images}
    if len(distinct) != 1:
        names = "; ".join(map(_title, distinct.values()))
        content = f"{len(distinct)} images ({names})" if distinct else "no complete image"
        raise Unreadable(f"it holds {content}; save exactly one image, of one platform")
    return next(iter(distinct.values()))


def check_saved(blobs: Mapping[str, Slice]) -> None:
    """Raise `Unreadable` where `docker load` reads another image than podman and containerd.

    Docker's own store reads `manifest.json`, the others read `index.json`.
    """
    if "manifest.json" not in blobs and "repositories" in blobs:
        raise Unreadable("it has index.json and `repositories`, and older Docker reads the latter")
    if "manifest.json" not in blobs:
        return
    listed = {_key(image) for image in _of_index(blobs, None)}
    for image in _of_docker(blobs):
        if _key(image) not in listed:
            raise Unreadable(
                f"its manifest.json names an image ({_title(image)}) of other layers or another "
                "configuration than its index.json: docker load would run another one than podman"
            )


def _images(blobs: Mapping[str, Slice], wanted: Platform | None) -> Iterator[ImageBlobs]:
    if "index.json" in blobs:
        check_saved(blobs)
        yield from _of_index(blobs, wanted)
        if wanted is not None and "manifest.json" in blobs:
            yield from (image for image in _of_docker(blobs) if _runs(wanted, image))
    elif "manifest.json" in blobs:
        yield from _of_docker(blobs)
    else:
        raise Unreadable(
            "neither an OCI layout nor the output of docker save: no index.json, no manifest.json"
        )


def _runs(wanted: Platform, image: ImageBlobs) -> bool:
    """Engines run an image that does not say what it is for."""
    return not str(image.platform) or wanted.runs(image.platform)


def _key(image: ImageBlobs) -> tuple[str, tuple[str, ...]]:
    return image.config, image.layers


def _content(image: ImageBlobs) -> tuple[object, ...]:
    """All but its names: images of the same layers load others where their variables differ."""
    configuration = image.configuration
    variables, labels = (
        tuple(sorted(item.items())) for item in (configuration.environment, configuration.labels)
    )
    return image.layers, variables, labels, configuration.digests, configuration.instructions


def _title(image: ImageBlobs) -> str:
    return ", ".join(map(printable, image.configuration.names)) or "without a name"


def _of_index(blobs: Mapping[str, Slice], wanted: Platform | None) -> Iterator[ImageBlobs]:
    """The images of `index.json`: engines choose among its entries by name, not by platform."""
    index = index_of(_document(blobs, "index.json"), "index.json")
    for entry in index.manifests:
        yield from _of_entry(blobs, entry, len(index.manifests), (), wanted, 0)


def _of_entry(
    blobs: Mapping[str, Slice],
    entry: Descriptor,
    beside: int,
    names: tuple[str, ...],
    wanted: Platform | None,
    depth: int,
) -> Iterator[ImageBlobs]:
    """The images of an entry whose blobs are there: one of many platforms may be saved alone."""
    if depth > DEEPEST_INDEX:
        raise Unreadable(f"indexes nested more than {DEEPEST_INDEX} deep")
    titles = map(entry.annotations.get, (_IMAGE_NAME, REF_NAME))
    named = [*names, *[text for text in titles if text][:1]]
    if entry.platform is not None and str(entry.platform):
        named.append(f"{entry.platform.os}/{entry.platform.architecture}")
    place = _place(entry.digest)
    if place not in blobs and beside > 1:
        return
    data = _document(blobs, place)
    is_index = media_type_of(data, place) in INDEXES
    if entry.media_type in INDEXES | MANIFESTS and is_index != (entry.media_type in INDEXES):
        raise Unreadable(f"{place} is not what the index says, {entry.media_type}")
    if is_index:
        entries = images_in(index_of(data, place).manifests)
        if wanted is not None:
            chosen = choose(entries, wanted, place)
            entries = () if chosen is None else (chosen,)
        for inner in entries:
            yield from _of_entry(blobs, inner, len(entries), tuple(named), wanted, depth + 1)
        return
    manifest = manifest_of(data, place)
    config = _place(manifest.config.digest)
    image = _with(blobs, config, [_place(layer.digest) for layer in manifest.layers], named)
    check_configuration(entry, wanted or image.platform, image.platform)
    yield image


def _of_docker(blobs: Mapping[str, Slice]) -> Iterator[ImageBlobs]:
    try:
        images = decode_json(_document(blobs, "manifest.json"), tuple[_DockerImage, ...])
    except ValueError as error:
        raise Unreadable(f"manifest.json is no list of images: {error}") from error
    for image in images:
        yield _with(blobs, image.config, image.layers or (), image.repo_tags or ())


def _with(
    blobs: Mapping[str, Slice], config: str, layers: Sequence[str], names: Sequence[str]
) -> ImageBlobs:
    held = configuration_of(_document(blobs, config), config)
    return ImageBlobs(described(held, len(layers), names), config, tuple(layers), held.platform)


def described(config: ImageConfiguration, layers: int, names: Sequence[str] = ()) -> Configuration:
    """What the configuration of an image with this many layers says. Raises `Unreadable`."""
    if layers > MOST_LAYERS:
        raise Unreadable(f"{layers} layers, which no engine runs")
    digests = config.rootfs.diff_ids
    made = [entry for entry in config.history if not entry.empty_layer]
    nothing = ("",) * layers
    return Configuration(
        config.config.environment,
        dict(config.config.labels),
        tuple(names),
        digests if len(digests) == layers else nothing,
        tuple(instruction(entry.created_by or entry.comment) for entry in made)
        if len(made) == layers
        else nothing,
    )


def instruction(created_by: str) -> str:
    """A step of an image's history as a Dockerfile has it, in one line.

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
    return text if len(text) <= LONGEST_INSTRUCTION else f"{text[: LONGEST_INSTRUCTION - 3]}..."


# Documents


def _place(digest: str) -> str:
    """The name of the blob of a digest."""
    return f"blobs/{digest.replace(':', '/')}"


def digest_in(name: str) -> str:
    """The digest that the name of a blob claims; empty for a name that is none."""
    algorithm, _, encoded = name.removeprefix("blobs/").partition("/")
    digest = f"{algorithm}:{encoded}"
    return digest if name.startswith("blobs/") and _DIGEST.match(digest) else ""


def _document(blobs: Mapping[str, Slice], name: str) -> bytes:
    """A document among the blobs; its digest is checked where its name is one."""
    blob = _blob(blobs, name)
    if blob.size > MAX_DOCUMENT:
        raise Unreadable(f"{name} has {blob.size} bytes, which no document of an image has")
    data = blob.read(0, blob.size)
    algorithm, _, digest = digest_in(name).partition(":")
    if digest and hashlib.new(algorithm, data).hexdigest() != digest:
        raise Unreadable(f"{name} is damaged: its bytes have another digest")
    return data
