"""A saved image: which of its blobs are the layers, and what its configuration says.

Formats: OCI image specification 1.1 (image layout, index, manifest, configuration), as a folder or
as an archive of one, and what `docker save` writes: the same since Docker 25, before that a
`manifest.json` that names layers by path.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.trees.archive import OpenFile, Slice, Spool, plain
from buildmatrix.trees.archive_layers import LayeredTree
from buildmatrix.trees.base import Closing, Unreadable
from buildmatrix.trees.tar import TarMember, members

#: Bytes of an index, a manifest or a configuration.
LARGEST_DOCUMENT = 8 << 20
#: Blobs of one archive or layout; each layer is one.
MOST_BLOBS = 100_000
#: Docker and containerd stop at 127.
MOST_LAYERS = 1000
#: Characters of an instruction that are kept; heredocs can be whole scripts.
LONGEST_INSTRUCTION = 400
#: Indexes inside of indexes.
DEEPEST_INDEX = 4

_DIGEST = re.compile(r"(sha256|sha512):([0-9a-f]+)\Z")


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
    several images the one counts whose platform `is_wanted`. Raises `Unreadable` when there is no
    image in it, or several, or when it is damaged; or OSError. Holds files open; `close` or a
    `with` statement frees them.
    """

    def __init__(self, path: Path, is_wanted: IsWanted | None = None) -> None:
        with ExitStack() as held:
            self._spool = Spool()
            held.callback(self._spool.close)
            folder = path.is_dir()
            self._blobs = _layout(path, held) if folder else _archive(path, held, self._spool)
            image = image_in(self._blobs, is_wanted)
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
    for name in ("index.json", "manifest.json"):
        if (path / name).is_file() and not (path / name).is_symlink():
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
        if member.data is not None:
            blobs[name] = member.data
        elif member.kind == "symlink":
            links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.target))
    for name, target in links.items():
        if target in blobs:
            blobs.setdefault(name, blobs[target])
    return blobs


def archive_files(archive: Slice) -> Iterator[tuple[str, TarMember]]:
    """The entries of a saved image, with their paths, of which none is there twice.

    Raises `Unreadable`: podman takes the first of two with one path, Docker the last.
    """
    seen: set[str] = set()
    for count, member in enumerate(members(archive)):
        name = plain(member.name)
        if name is None:
            raise Unreadable(f"its entry {member.name!r} leads out of the archive")
        if count >= MOST_BLOBS:
            raise Unreadable(f"more than {MOST_BLOBS} files, which no saved image has")
        if member.kind != "folder":
            if name in seen:
                raise Unreadable(f"it holds {name[:200]!r} twice: engines take one or the other")
            seen.add(name)
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
    #: Names of blobs, the lowest layer first.
    layers: tuple[str, ...]
    #: `linux/arm64/v8`
    platform: str = ""


#: Whether the image of a platform is the one of several that is meant.
IsWanted = Callable[[str], bool]


def image_in(blobs: Mapping[str, Slice], is_wanted: IsWanted | None = None) -> ImageBlobs:
    """The one image of the layout or archive whose files are `blobs`. Raises `Unreadable`.

    Only its documents are read. See `SavedImage` for `is_wanted`.
    """
    if "index.json" in blobs:
        images = list(_of_index(blobs, _document(blobs, "index.json"), (), 0))
    elif "manifest.json" in blobs:
        images = list(_of_docker(blobs))
    else:
        raise Unreadable(
            "neither an OCI layout nor the output of docker save: no index.json, no manifest.json"
        )
    if is_wanted is not None:
        platforms = ", ".join(sorted({image.platform for image in images}))
        images = [image for image in images if is_wanted(image.platform)]
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


def _content(image: ImageBlobs) -> tuple[object, ...]:
    """All but its names: images of the same layers load others where their variables differ."""
    configuration = image.configuration
    variables, labels = (
        tuple(sorted(item.items())) for item in (configuration.environment, configuration.labels)
    )
    return image.layers, variables, labels, configuration.digests, configuration.instructions


def _title(image: ImageBlobs) -> str:
    return ", ".join(image.configuration.names) or "without a name"


def _of_index(
    blobs: Mapping[str, Slice], index: Mapping[str, object], names: tuple[str, ...], depth: int
) -> Iterator[ImageBlobs]:
    """The images of an index whose blobs are there: one of many platforms may be saved alone."""
    if depth > DEEPEST_INDEX:
        raise Unreadable(f"indexes nested more than {DEEPEST_INDEX} deep")
    for entry in _objects(index, "manifests"):
        annotations = _object(entry, "annotations")
        if "vnd.docker.reference.type" in annotations:
            continue  # An attestation: it has a manifest, and no file system.
        titles = (
            annotations.get("io.containerd.image.name"),
            annotations.get("org.opencontainers.image.ref.name"),
        )
        name = next((str(text) for text in titles if text), None)
        platform = _object(entry, "platform")
        named = (*names, name) if name else names
        if platform:
            named = (*named, f"{platform.get('os')}/{platform.get('architecture')}")
        place = _place(entry)
        if place not in blobs and len(_objects(index, "manifests")) > 1:
            continue
        document = _document(blobs, place)
        if "manifests" in document:
            yield from _of_index(blobs, document, named, depth + 1)
        elif "layers" in document:
            layers = tuple(_place(layer) for layer in _objects(document, "layers"))
            config = _document(blobs, _place(_object(document, "config")))
            yield _with(config, layers, named)


def _of_docker(blobs: Mapping[str, Slice]) -> Iterator[ImageBlobs]:
    for entry in _list(_parsed(blobs, "manifest.json"), "manifest.json"):
        if not isinstance(entry, dict):
            raise Unreadable("manifest.json lists something that is no image")
        config = _document(blobs, _text(entry, "Config"))
        layers = tuple(
            _as_text(name, "a layer") for name in _list(entry.get("Layers"), "the list of layers")
        )
        names = tuple(str(name) for name in _list(entry.get("RepoTags") or [], "RepoTags"))
        yield _with(config, layers, names)


def _with(
    config: Mapping[str, object], layers: tuple[str, ...], names: tuple[str, ...]
) -> ImageBlobs:
    if len(layers) > MOST_LAYERS:
        raise Unreadable(f"{len(layers)} layers, which no engine runs")
    inner = _object(config, "config")
    variables = (str(text).partition("=") for text in _list(inner.get("Env") or [], "Env"))
    labels = {key: str(value) for key, value in _object(inner, "Labels").items()}
    environment = {name: value for name, _, value in variables}
    configuration = Configuration(
        environment,
        labels,
        names,
        _digests(config, len(layers)),
        _instructions(config, len(layers)),
    )
    platform = (config.get("os"), config.get("architecture"), config.get("variant"))
    return ImageBlobs(configuration, layers, "/".join(str(part) for part in platform if part))


def _digests(config: Mapping[str, object], count: int) -> tuple[str, ...]:
    """`rootfs.diff_ids`: digests of the uncompressed layers."""
    diff_ids = _object(config, "rootfs").get("diff_ids")
    texts = tuple(str(digest) for digest in diff_ids) if isinstance(diff_ids, list) else ()
    return texts if len(texts) == count else ("",) * count


def _instructions(config: Mapping[str, object], count: int) -> tuple[str, ...]:
    """What made each layer: the entries of `history` that are not marked as empty."""
    history = config.get("history")
    entries = (
        [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    )
    made = [entry for entry in entries if entry.get("empty_layer") is not True]
    if len(made) != count:
        return ("",) * count
    return tuple(
        instruction(str(entry.get("created_by") or entry.get("comment") or "")) for entry in made
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


def _place(descriptor: Mapping[str, object]) -> str:
    """The name of the blob that a descriptor means."""
    match = _DIGEST.match(_text(descriptor, "digest"))
    if match is None:
        raise Unreadable(f"{descriptor.get('digest')!r} is no digest that names a blob")
    return f"blobs/{match[1]}/{match[2]}"


def digest_in(name: str) -> str:
    """The digest that the name of a blob claims; empty for a name that is none."""
    algorithm, _, encoded = name.removeprefix("blobs/").partition("/")
    digest = f"{algorithm}:{encoded}"
    return digest if name.startswith("blobs/") and _DIGEST.match(digest) else ""


def _parsed(blobs: Mapping[str, Slice], name: str) -> object:
    """A JSON document among the blobs; its digest is checked where its name is one."""
    blob = _blob(blobs, name)
    if blob.size > LARGEST_DOCUMENT:
        raise Unreadable(f"{name} has {blob.size} bytes, which no document of an image has")
    data = blob.read(0, blob.size)
    folder, _, digest = name.rpartition("/")
    if folder == "blobs/sha256" and hashlib.sha256(data).hexdigest() != digest:
        raise Unreadable(f"{name} is damaged: its bytes have another digest")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name} is no JSON: {error}") from error


def _document(blobs: Mapping[str, Slice], name: str) -> Mapping[str, object]:
    document = _parsed(blobs, name)
    if not isinstance(document, dict):
        raise Unreadable(f"{name} is no JSON object")
    return document


def _object(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under `key`; empty where there is none."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _objects(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    return [entry for entry in _list(document.get(key), key) if isinstance(entry, dict)]


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise Unreadable(f"{name} is no JSON list, as it must be")
    return value


def _text(document: Mapping[str, object], key: str) -> str:
    return _as_text(document.get(key), key)


def _as_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise Unreadable(f"{name} is no text, as it must be")
    return value
