"""Pages of an index: the files of one project.

Formats: the simple repository API,
https://packaging.python.org/specifications/simple-repository-api/ (HTML of PEP 503, JSON of PEP
691, versions of PEP 629). Other content of pages is left to uv.
"""

from __future__ import annotations

import codecs
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict_json import parse_json
from buildmatrix.base.threads import prepare_type

#: Bytes of one page; the largest known ones, of nightly builds, have 12 MB.
LARGEST_PAGE = 32 << 20
MOST_FILES = 200_000
#: In order of preference; servers that do not choose answer with HTML.
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = frozenset({"text/html", "application/vnd.pypi.simple.v1+html", "application/xhtml+xml", ""})
_CHUNK = 64 << 10
#: Characters; titles and links have hundreds.
_LONGEST_TAG = 256 << 10


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of a project, as listed by its index."""

    filename: str
    #: Absolute, without fragment.
    url: str


def read_page(data: bytes, content_type: str, url: str, shown: str) -> tuple[IndexFile, ...]:
    """Return the files that a page at `url` lists, in its order; `shown` is its name in messages.

    Links to other files are skipped, as by installers. Raises UndecidedError.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        return _read_json(data, url, shown)
    if kind in _HTML:
        return _read_html(data, url, shown)
    raise UndecidedError(
        f"{shown} has the content type {kind[:60]!r}, not that of a package index; check the URL"
    )


def _check_version(version: str, shown: str) -> None:
    major = version.partition(".")[0]
    if major != "1":
        raise UndecidedError(
            f"{shown} uses version {version[:20]!r} of the index format; only 1 is supported"
        )


def _target(link: str, base: str) -> str | None:
    """Return the URL of a link, without fragment; None if it must not be fetched."""
    try:
        url = urljoin(base, link.strip()).partition("#")[0]
        scheme = urlsplit(url).scheme
    except ValueError:
        return None
    # A page on the network must not lead to a file of this machine.
    if scheme not in ("http", "https") and (scheme, urlsplit(base).scheme) != ("file", "file"):
        return None
    return url


def _is_name(filename: str) -> bool:
    return bool(filename) and "/" not in filename and filename.isprintable()


class _Meta(msgspec.Struct, rename="kebab"):
    api_version: str


class _JsonPage(msgspec.Struct):
    meta: _Meta
    files: list[IndexFile]


def _read_json(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    try:
        parse_json(data)  # which refuses files that come twice: installers differ on those
        page = msgspec.json.decode(data, type=prepare_type(_JsonPage))
    except ValueError as error:
        raise UndecidedError(f"{shown} is not a page of a package index: {error}") from error
    _check_version(page.meta.api_version, shown)
    _check_count(len(page.files), shown)
    return tuple(
        IndexFile(file.filename, target)
        for file in page.files
        if (target := _target(file.url, url)) is not None and _is_name(file.filename)
    )


def _check_count(files: int, shown: str) -> None:
    if files > MOST_FILES:
        raise UndecidedError(f"{shown} lists more than {MOST_FILES} files")


def _read_html(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    page = _LinkParser(url, shown)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for start in range(0, len(data), _CHUNK):
        try:
            page.feed(decoder.decode(data[start : start + _CHUNK]))
        except AssertionError as error:
            # Python 3.11 to 3.13 raise this for `<![` that begins no marked section.
            raise UndecidedError(f"{shown} is not a page of a package index: {error}") from error
        # The rest is a tag without an end, which would be searched again each time.
        if len(page.rawdata) > _LONGEST_TAG:
            raise UndecidedError(f"{shown} is not a page of a package index: a tag without an end")
    if not page.is_page:
        raise UndecidedError(f"{shown} is not a page of a package index: it has no HTML")
    return tuple(page.files)


class _LinkParser(HTMLParser):
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
            self._base = target if target is not None else self._base
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            _check_version(attributes.get("content") or "", self._shown)

    def _anchor(self, attributes: Mapping[str, str | None]) -> None:
        target = _target(attributes.get("href") or "", self._base)
        if target is None:
            return
        filename = unquote(posixpath.basename(urlsplit(target).path))
        if not _is_name(filename):
            return
        self.files.append(IndexFile(filename, target))
        _check_count(len(self.files), self._shown)
