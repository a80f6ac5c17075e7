"""Pages of an index: which files there are of one project.

Formats: the simple repository API, https://packaging.python.org/specifications/simple-repository-api/
(HTML of PEP 503, JSON of PEP 691, versions of PEP 629, metadata files of PEP 658 and PEP 714, sizes
of PEP 700, yanked files of PEP 592).
"""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from buildmatrix.errors import UndecidedError

#: Bytes of one page; the largest that are known, of nightly builds, have 12 MB.
LARGEST_PAGE = 32 << 20
MOST_FILES = 200_000
#: Asked for in this order; servers that do not choose answer with HTML.
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = frozenset({"text/html", "application/vnd.pypi.simple.v1+html", "application/xhtml+xml", ""})
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_CHUNK = 64 << 10
#: Characters; titles and links have hundreds.
_LONGEST_TAG = 256 << 10


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of a project, as its index tells of it."""

    filename: str
    #: Absolute, without fragment.
    url: str
    #: In hex, lower case; None where the index does not say it.
    sha256: str | None = None
    #: Bytes; None where the index does not say it.
    size: int | None = None
    #: Whether the metadata lies beside it, as `<url>.metadata`.
    has_metadata: bool = False
    #: sha256 of that metadata, where the index says it.
    metadata_sha256: str | None = None
    #: A version specifier, as written.
    requires_python: str | None = None
    yanked: bool = False


def read_page(data: bytes, content_type: str, url: str, shown: str) -> tuple[IndexFile, ...]:
    """The files that a page at `url` lists, in its order; `shown` is its name in messages.

    What links to no file of a package is left out, as installers do. Raises UndecidedError.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        return _read_json(data, url, shown)
    if kind in _HTML:
        return _read_html(data, url, shown)
    raise UndecidedError(
        f"{shown} answers with {kind[:60]!r}, which is no page of a package index; check the URL"
    )


def _check_version(version: str, shown: str) -> None:
    major = version.partition(".")[0]
    if major != "1":
        raise UndecidedError(
            f"{shown} speaks version {version[:20]!r} of the index format, and buildmatrix knows 1"
        )


def _target(link: str, base: str) -> tuple[str, str] | None:
    """URL and fragment of a link; None where it leads to nothing that may be fetched."""
    try:
        url, _, fragment = urljoin(base, link.strip()).partition("#")
        scheme = urlsplit(url).scheme
    except ValueError:
        return None
    # A page on the network must not make us read a file of this machine.
    if scheme not in ("http", "https") and (scheme, urlsplit(base).scheme) != ("file", "file"):
        return None
    return url, fragment


def _is_name(filename: str) -> bool:
    return bool(filename) and "/" not in filename and filename.isprintable()


def _sha256(value: str | None) -> str | None:
    return value.lower() if value is not None and _SHA256.fullmatch(value) else None


# JSON


class _Meta(msgspec.Struct, rename="kebab"):
    api_version: str


class _JsonFile(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    requires_python: str | None = None
    core_metadata: bool | dict[str, str] | None = None
    #: The name before PEP 714.
    dist_info_metadata: bool | dict[str, str] | None = None
    yanked: bool | str | None = False


class _JsonPage(msgspec.Struct):
    meta: _Meta
    files: list[_JsonFile]


def _read_json(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    try:
        page = msgspec.json.decode(data, type=_JsonPage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UndecidedError(f"{shown} is no page of a package index: {error}") from error
    _check_version(page.meta.api_version, shown)
    _check_count(len(page.files), shown)
    found = []
    for file in page.files:
        target = _target(file.url, url)
        if target is None or not _is_name(file.filename):
            continue
        metadata = file.dist_info_metadata if file.core_metadata is None else file.core_metadata
        found.append(
            IndexFile(
                filename=file.filename,
                url=target[0],
                sha256=_sha256(file.hashes.get("sha256")),
                size=file.size if file.size is not None and file.size > 0 else None,
                has_metadata=bool(metadata) or isinstance(metadata, dict),
                metadata_sha256=(
                    _sha256(metadata.get("sha256")) if isinstance(metadata, dict) else None
                ),
                requires_python=file.requires_python,
                yanked=bool(file.yanked),
            )
        )
    return tuple(found)


def _check_count(files: int, shown: str) -> None:
    if files > MOST_FILES:
        raise UndecidedError(f"{shown} lists more than {MOST_FILES} files, as no project has")


# HTML


def _read_html(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    page = _Page(url, shown)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for start in range(0, len(data), _CHUNK):
        try:
            page.feed(decoder.decode(data[start : start + _CHUNK]))
        except AssertionError as error:
            # What Python 3.11 to 3.13 answer to `<![` that begins no marked section.
            raise UndecidedError(f"{shown} is no page of a package index: {error}") from error
        # What is left is a tag without an end, and it would be looked through again each time.
        if len(page.rawdata) > _LONGEST_TAG:
            raise UndecidedError(f"{shown} is no page of a package index: a tag without an end")
    if not page.is_page:
        raise UndecidedError(f"{shown} is no page of a package index: it holds no HTML")
    return tuple(page.files)


class _Page(HTMLParser):
    def __init__(self, url: str, shown: str) -> None:
        super().__init__()
        self._base = url
        self._shown = shown
        self._has_base = False
        self.files: list[IndexFile] = []
        self.is_page = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_page = True
        # The first of two attributes with one name counts (HTML, 13.2.5.33).
        attributes = dict(reversed(attrs))
        if tag == "a":
            self._anchor(attributes)
        elif tag == "base" and not self._has_base and (href := attributes.get("href")):
            self._has_base = True
            target = _target(href, self._base)
            self._base = target[0] if target is not None else self._base
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            _check_version(attributes.get("content") or "", self._shown)

    def _anchor(self, attributes: Mapping[str, str | None]) -> None:
        target = _target(attributes.get("href") or "", self._base)
        if target is None:
            return
        url, fragment = target
        filename = unquote(posixpath.basename(urlsplit(url).path))
        if not _is_name(filename):
            return
        metadata = attributes.get(
            "data-core-metadata", attributes.get("data-dist-info-metadata", "false")
        )
        self.files.append(
            IndexFile(
                filename=filename,
                url=url,
                sha256=_hash_in(fragment),
                has_metadata=metadata != "false",
                metadata_sha256=_hash_in(metadata),
                requires_python=attributes.get("data-requires-python") or None,
                yanked="data-yanked" in attributes,
            )
        )
        _check_count(len(self.files), self._shown)


def _hash_in(text: str | None) -> str | None:
    """The sha256 in `sha256=...`, which may stand among other parameters."""
    for part in (text or "").split("&"):
        algorithm, _, value = part.partition("=")
        if algorithm == "sha256":
            return _sha256(value)
    return None
