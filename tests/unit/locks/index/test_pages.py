"""What a page of an index says, and what a page may not do."""

from __future__ import annotations

import json

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.locks.index.client import IndexFile, read_page

URL = "https://example.com/simple/alpha/"
JSON = "application/vnd.pypi.simple.v1+json"
ONE, TWO = "1" * 64, "2" * 64


def _html(page: str, url: str = URL) -> tuple[IndexFile, ...]:
    return read_page(page.encode(), "text/html; charset=utf-8", url, "the page")


def _json(files: object, version: str = "1.1") -> tuple[IndexFile, ...]:
    page = {"meta": {"api-version": version}, "name": "alpha", "files": files}
    return read_page(json.dumps(page).encode(), JSON, URL, "the page")


def test_the_files_of_an_html_page() -> None:
    page = f"""<!DOCTYPE html><html><head>
      <meta name="pypi:repository-version" content="1.0"></head><body>
      <a href="../../files/alpha-1.0.tar.gz#sha256={ONE.upper()}"
         data-requires-python="&gt;=3.8,&lt;4">alpha-1.0.tar.gz</a>
      <a href="https://files.example.com/alpha-1.0%2Bcpu-py3-none-any.whl#sha256={ONE}"
         data-core-metadata="sha256={TWO}" data-dist-info-metadata="false"
         data-yanked="broken">whatever</a>
      <A HREF='alpha-2.0-py3-none-any.whl#md5=abc' data-dist-info-metadata="true" data-yanked></A>
      </body></html>"""
    assert _html(page) == (
        IndexFile(
            "alpha-1.0.tar.gz",
            "https://example.com/files/alpha-1.0.tar.gz",
        ),
        IndexFile(
            "alpha-1.0+cpu-py3-none-any.whl",
            "https://files.example.com/alpha-1.0%2Bcpu-py3-none-any.whl",
        ),
        IndexFile(
            "alpha-2.0-py3-none-any.whl",
            "https://example.com/simple/alpha/alpha-2.0-py3-none-any.whl",
        ),
    )


def test_the_files_of_a_json_page() -> None:
    files = [
        {
            "filename": "alpha-1.0.tar.gz",
            "url": "../../files/alpha-1.0.tar.gz",
            "hashes": {"sha256": ONE, "blake2b": "x"},
            "requires-python": ">=3.8",
            "size": 123,
            "yanked": False,
            "upload-time": "2024-01-01T00:00:00Z",
        },
        {
            "filename": "alpha-1.0-py3-none-any.whl",
            "url": "https://files.example.com/alpha-1.0-py3-none-any.whl",
            "hashes": {},
            "core-metadata": {"sha256": TWO},
            "dist-info-metadata": False,
            "yanked": "broken",
        },
        {
            "filename": "alpha-2.0-py3-none-any.whl",
            "url": "alpha-2.0-py3-none-any.whl",
            "hashes": {"sha256": "not one"},
            "dist-info-metadata": True,
            "size": None,
            "requires-python": None,
        },
    ]
    assert _json(files) == (
        IndexFile(
            "alpha-1.0.tar.gz",
            "https://example.com/files/alpha-1.0.tar.gz",
        ),
        IndexFile(
            "alpha-1.0-py3-none-any.whl",
            "https://files.example.com/alpha-1.0-py3-none-any.whl",
        ),
        IndexFile(
            "alpha-2.0-py3-none-any.whl",
            "https://example.com/simple/alpha/alpha-2.0-py3-none-any.whl",
        ),
    )


def test_the_first_base_of_a_page_moves_its_links() -> None:
    page = '<base href="/mirror/"><base href="/other/"><a href="alpha-1.tar.gz">x</a>'
    assert _html(page)[0].url == "https://example.com/mirror/alpha-1.tar.gz"


@pytest.mark.parametrize(
    "link",
    [
        "file:///etc/alpha-1.tar.gz",
        "javascript:alert(1)",
        "ftp://example.com/alpha-1.tar.gz",
        "http://[::1/alpha-1.tar.gz",
        "../",
        "",
        "#top",
        "a%2F..%2Fb",
        "alpha%0A1.tar.gz",
    ],
)
def test_a_link_to_what_is_no_file_of_a_package_is_left_out(link: str) -> None:
    page = f'<a href="{link}">alpha-1.tar.gz</a><a href="alpha-2.tar.gz">alpha-2.tar.gz</a>'
    assert [file.filename for file in _html(page)] == ["alpha-2.tar.gz"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a\nb"])
def test_a_name_that_is_no_file_name_is_left_out(name: str) -> None:
    assert _json([{"filename": name, "url": "x.whl", "hashes": {}}]) == ()


def test_a_page_on_this_machine_may_link_to_this_machine() -> None:
    (file,) = _html('<a href="../../files/a-1.whl">', "file:///srv/simple/a/index.html")
    assert file.url == "file:///srv/files/a-1.whl"


@pytest.mark.parametrize("version", ["2.0", "", "one"])
def test_another_version_of_the_format_is_an_error(version: str) -> None:
    with pytest.raises(UndecidedError, match="of the index format"):
        _json([], version)
    with pytest.raises(UndecidedError, match="of the index format"):
        _html(f'<meta name="pypi:repository-version" content="{version}">')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"files": []}',
        b"\xff",
        b"[" * 100_000,
        b'{"meta":{"api-version":"1.0"},"files":[{"filename":1,"url":"x"}]}',
    ],
)
def test_json_that_is_no_page_is_an_error(data: bytes) -> None:
    with pytest.raises(UndecidedError, match="the page is not a page of a package index"):
        read_page(data, JSON, URL, "the page")


@pytest.mark.parametrize("page", ["", "404 nothing here", '<a href="' + "x" * 1_000_000])
def test_html_that_is_no_page_is_an_error(page: str) -> None:
    with pytest.raises(UndecidedError, match="the page is not a page of a package index"):
        _html(page)


@pytest.mark.parametrize("kind", ["image/png", "application/zip", "application/json"])
def test_another_kind_of_content_is_an_error(kind: str) -> None:
    with pytest.raises(UndecidedError, match=f"has the content type '{kind}'"):
        read_page(b"<html>", kind, URL, "the page")


def test_a_page_with_absurdly_many_files_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.client.MOST_FILES", 2)
    with pytest.raises(UndecidedError, match="more than 2 files"):
        _html('<a href="a-1.whl"></a>' * 3)
    with pytest.raises(UndecidedError, match="more than 2 files"):
        _json([{"filename": "a-1.whl", "url": "x", "hashes": {}}] * 3)
