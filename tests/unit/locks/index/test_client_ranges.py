"""Reading a file of a server in parts."""

from __future__ import annotations

import io
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from index import IndexServer, ignoring_ranges
from loopback import answering, cut_after, redirecting, with_headers

from buildmatrix.base.errors import UndecidedError
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.ranges import HELD, TAIL, RemoteFile, Windows


class _Seekable(io.RawIOBase):
    """A remote file as zipfile wants it."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, self._file.size)[whence] + offset
        return self._at

    def read(self, length: int = -1) -> bytes:
        data = self._file.read(self._at, self._file.size if length < 0 else length)
        self._at += len(data)
        return data


def _open(client: Client, server: IndexServer, file: Path, size: int | None = None) -> RemoteFile:
    return client.open(server.file_url(file.name), size)


def test_the_directory_and_the_metadata_of_a_wheel_cost_one_request(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        archive = zipfile.ZipFile(_Seekable(remote))
        assert archive.namelist() == ["alpha/data.bin", "alpha-1.0.dist-info/METADATA"]
        assert archive.read("alpha-1.0.dist-info/METADATA").startswith(b"Metadata-Version")
        assert server.count(server.path_of(wheel.name)) == 1
        assert server.sent(server.path_of(wheel.name)) == remote.bytes_read == TAIL


@pytest.mark.parametrize("announced", [False, True])
def test_every_part_is_what_the_file_has_there(
    packages: Path, wheel: Path, client: Client, announced: bool
) -> None:
    data = wheel.read_bytes()
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel, len(data) if announced else None)
        assert remote.size == len(data)
        for offset, length in [
            (0, 10),
            (5, 100_000),
            (90_000, 20_000),
            (len(data) - TAIL - 5, 10),
            (len(data) - 3, 50),
            (len(data), 1),
            (len(data) + 7, 1),
            (300_000, 0),
            (0, len(data)),
        ]:
            assert remote.read(offset, length) == data[offset : offset + length]


def test_a_size_that_is_known_spares_servers_a_suffix_range(
    packages: Path, wheel: Path, client: Client
) -> None:
    size = wheel.stat().st_size
    with IndexServer(packages, ranges="explicit") as server:
        _open(client, server, wheel, size)
        assert [seen.headers["range"] for seen in server.requests] == [
            f"bytes={size - TAIL}-{size - 1}"
        ]


def test_small_reads_side_by_side_are_one_request(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        for offset in range(0, 10_000, 100):
            remote.read(offset, 100)
        assert server.count(server.path_of(wheel.name)) == 2


def test_parts_that_are_wanted_together_are_joined_where_they_are_close(
    packages: Path, wheel: Path, client: Client
) -> None:
    data = wheel.read_bytes()
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        parts = [(0, 100), (4000, 100), (400_000, 100), (405_000, 9)]
        remote.load(parts)
        assert server.count(server.path_of(wheel.name)) == 3
        for offset, length in parts:
            assert remote.read(offset, length) == data[offset : offset + length]
        assert server.count(server.path_of(wheel.name)) == 3


def test_what_is_held_already_is_not_asked_for_again(
    packages: Path, large: Path, client: Client
) -> None:
    size = large.stat().st_size
    with IndexServer(packages) as server:
        remote = _open(client, server, large)
        remote.load([(1_000_000, 200_000)])
        remote.load([(0, size)])
        # They are under way at the same time.
        assert {one.headers["range"] for one in server.requests[2:]} == {
            "bytes=0-999999",
            f"bytes=1200000-{2 * 1024 * 1024 + 199_999}",
        }


def test_no_more_of_a_file_is_held_than_was_promised(packages: Path, client: Client) -> None:
    path = packages / "long-1.0-py3-none-any.whl"
    path.write_bytes(bytes(3 * HELD))
    with IndexServer(packages) as server:
        remote = _open(client, server, path)
        remote.load([(0, 3 * HELD)])
        for offset in range(0, 3 * HELD, HELD // 8):
            assert remote.read(offset, 1000) == bytes(1000)
        assert remote.held <= HELD


def test_a_stream_can_be_left_early(packages: Path, large: Path, client: Client) -> None:
    data = large.read_bytes()
    with IndexServer(packages) as server:
        remote = _open(client, server, large)
        seen = b""
        for chunk in remote.stream(1000):
            seen += chunk
            if len(seen) > 100_000:
                break
        assert seen == data[1000 : 1000 + len(seen)]
        assert remote.bytes_read < 400_000


def test_a_stream_to_the_end_has_every_byte_once(
    packages: Path, large: Path, client: Client
) -> None:
    data = large.read_bytes()
    with IndexServer(packages) as server:
        remote = _open(client, server, large)
        remote.read(500_000, 10)  # a part that is held already
        assert b"".join(remote.stream()) == data
        assert remote.bytes_read == len(data)


def test_a_stream_goes_on_where_its_connection_broke(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(large.name), cut_after(70_000), after=2, times=1)
        remote = _open(client, server, large)
        assert b"".join(remote.stream()) == large.read_bytes()
        assert remote.bytes_read == large.stat().st_size


@pytest.mark.parametrize("reset", [False, True])
def test_a_range_that_was_cut_short_is_asked_for_again(
    packages: Path, wheel: Path, client: Client, reset: bool
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), cut_after(5000, reset=reset), times=2)
        remote = _open(client, server, wheel)
        assert remote.read(wheel.stat().st_size - TAIL, TAIL) == wheel.read_bytes()[-TAIL:]


@pytest.mark.parametrize("reset", [False, True])
def test_a_range_that_is_always_cut_short_is_an_error(
    packages: Path, wheel: Path, client: Client, reset: bool
) -> None:
    with IndexServer(packages) as server:
        path = server.path_of(wheel.name)
        server.misbehave(path, cut_after(5000, reset=reset))
        with pytest.raises(UndecidedError, match=r"break|broke"):
            _open(client, server, wheel)
        assert server.count(path) == 3


def test_files_as_small_as_the_first_request_need_no_other(packages: Path, client: Client) -> None:
    path = packages / "small-1.0-py3-none-any.whl"
    path.write_bytes(b"small")
    for ranges in ("all", "none"):
        with IndexServer(packages, ranges=ranges) as server:
            remote = _open(client, server, path)
            assert (remote.size, remote.read(0, 100), remote.ranges) == (5, b"small", True)
            assert server.count(server.path_of(path.name)) == 1


def test_an_empty_file_has_no_bytes(packages: Path, client: Client) -> None:
    path = packages / "empty-1.0-py3-none-any.whl"
    path.touch()
    with IndexServer(packages) as server:
        remote = _open(client, server, path)
        assert (remote.size, remote.read(0, 10), list(remote.stream())) == (0, b"", [])


def test_a_server_without_suffix_ranges_is_asked_for_the_size_first(
    packages: Path, wheel: Path, client: Client
) -> None:
    data = wheel.read_bytes()
    with IndexServer(packages, ranges="explicit") as server:
        remote = _open(client, server, wheel)
        assert remote.size == len(data)
        assert remote.read(1000, 10) == data[1000:1010]
        assert server.sent(server.path_of(wheel.name)) < 100_000


@pytest.mark.parametrize("status", [400, 405, 501])
def test_a_refused_suffix_range_is_followed_by_head(
    packages: Path, wheel: Path, client: Client, status: int
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(status), times=1)
        remote = _open(client, server, wheel)
        assert remote.size == wheel.stat().st_size
        assert [seen.method for seen in server.requests] == ["GET", "HEAD", "GET"]


def test_a_small_file_of_a_server_without_ranges_is_read_once(
    packages: Path, wheel: Path, client: Client
) -> None:
    data = wheel.read_bytes()
    with IndexServer(packages, ranges="none") as server:
        remote = _open(client, server, wheel)
        assert remote.ranges
        assert remote.read(100_000, 50) == data[100_000:100_050]
        assert b"".join(remote.stream(7)) == data[7:]
        assert server.sent(server.path_of(wheel.name)) == len(data)


def test_a_large_file_of_a_server_without_ranges_can_only_be_streamed(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages, ranges="none") as server:
        remote = _open(client, server, large, large.stat().st_size)
        assert not remote.ranges
        with pytest.raises(UndecidedError, match="does not support ranges"):
            remote.read(0, 10)
        assert b"".join(remote.stream()) == large.read_bytes()
        assert b"".join(remote.stream(2_500_000)) == large.read_bytes()[2_500_000:]


def test_a_large_file_of_unknown_size_is_an_error(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(large.name), ignoring_ranges(length=False))
        with pytest.raises(UndecidedError, match="neither ranges nor `Content-Length`"):
            _open(client, server, large)


def test_a_stream_without_ranges_that_ends_early_is_an_error(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages, ranges="none") as server:
        remote = _open(client, server, large)
        server.misbehave(server.path_of(large.name), cut_after(100_000))
        with pytest.raises(UndecidedError, match="breaks off"):
            list(remote.stream())


def test_a_server_that_forgets_about_ranges_is_an_error(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        server.misbehave(server.path_of(wheel.name), ignoring_ranges())
        with pytest.raises(UndecidedError, match="ranges at first, and now sends the whole file"):
            remote.read(0, 10)


@pytest.mark.parametrize("etags", [False, True])
def test_a_file_that_changes_between_two_ranges_is_an_error(
    packages: Path, wheel: Path, client: Client, etags: bool
) -> None:
    with IndexServer(packages, etags=etags) as server:
        remote = _open(client, server, wheel)
        data = wheel.read_bytes()
        wheel.write_bytes(data[::-1] if etags else data + b"more")
        with pytest.raises(UndecidedError, match="changed while it was read"):
            remote.read(0, 10)


def test_a_later_modification_is_a_change(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        path = server.path_of(wheel.name)
        monday, tuesday = (f"{day} Jan 2024 00:00:00 GMT" for day in ("Mon, 01", "Tue, 02"))
        server.misbehave(path, with_headers(last_modified=monday), times=1)
        server.misbehave(path, with_headers(last_modified=tuesday))
        remote = _open(client, server, wheel)
        with pytest.raises(UndecidedError, match="changed while it was read"):
            remote.read(0, 10)


def test_a_file_that_shrinks_is_an_error(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        wheel.write_bytes(b"short")
        with pytest.raises(UndecidedError, match="changed while it was read"):
            remote.read(100_000, 10)


@pytest.mark.parametrize("lie", [-1, 1, 100_000])
def test_another_size_than_announced_is_an_error(
    packages: Path, wheel: Path, client: Client, lie: int
) -> None:
    size = wheel.stat().st_size
    said = rf"{size} bytes, but {size + lie} were"
    for ranges in ("all", "none"):
        with IndexServer(packages, ranges=ranges) as server, pytest.raises(UndecidedError) as error:
            _open(client, server, wheel, size + lie)
        assert re.search(said, error.value.message)


@pytest.mark.parametrize(
    "said",
    [
        "bytes 0-99/700",
        "bytes 5-4/700",
        "bytes 0-699/700",
        "bytes 600-700/700",
        "bytes x-y/z",
        "pages 1-2/3",
        "",
    ],
)
def test_a_content_range_that_lies_is_an_error(
    packages: Path, wheel: Path, client: Client, said: str
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), with_headers(content_range=said))
        with pytest.raises(UndecidedError, match=wheel.name):
            _open(client, server, wheel)
        assert len(server.requests) == 1


def test_another_range_than_asked_for_is_an_error(
    packages: Path, wheel: Path, client: Client
) -> None:
    size = wheel.stat().st_size
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        said = f"bytes 100-199/{size}"
        server.misbehave(server.path_of(wheel.name), with_headers(content_range=said))
        with pytest.raises(UndecidedError, match="gives bytes 100 to 199, and 0 to 16383 were"):
            remote.read(0, 10)


@pytest.mark.parametrize(
    ("count", "why"),
    [(100, "cut short after 100 of 16384 bytes"), (20_000, "more bytes than announced")],
)
def test_another_number_of_bytes_than_the_range_has_is_an_error(
    packages: Path, wheel: Path, client: Client, count: int, why: str
) -> None:
    with IndexServer(packages, etags=False) as server:
        remote = _open(client, server, wheel)
        said = f"bytes 0-16383/{wheel.stat().st_size}"
        server.misbehave(
            server.path_of(wheel.name), answering(206, bytes(count), content_range=said)
        )
        with pytest.raises(UndecidedError, match=why):
            remote.read(0, 10)


def test_several_ranges_in_one_answer_are_an_error(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        kind = "multipart/byteranges; boundary=x"
        server.misbehave(server.path_of(wheel.name), with_headers(content_type=kind))
        with pytest.raises(UndecidedError, match="multipart/byteranges"):
            _open(client, server, wheel)


def test_compression_on_the_way_is_an_error(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), with_headers(content_encoding="gzip"))
        with pytest.raises(UndecidedError, match="compressed with 'gzip'"):
            _open(client, server, wheel)


def test_a_whole_file_may_be_given_where_all_of_it_was_asked_for(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, wheel)
        server.misbehave(server.path_of(wheel.name), ignoring_ranges())
        remote._windows = Windows(0)
        assert remote.read(0, remote.size) == wheel.read_bytes()


def test_a_stream_that_breaks_again_and_again_is_given_up(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        remote = _open(client, server, large)
        server.misbehave(server.path_of(large.name), cut_after(10))
        with pytest.raises(UndecidedError, match="breaks off"):
            list(remote.stream())
        assert server.count(server.path_of(large.name)) == 4


def test_a_read_that_is_absurdly_long_is_an_error(packages: Path, client: Client) -> None:
    path = packages / "absurd-1.0-py3-none-any.whl"
    with path.open("wb") as file:
        file.truncate(40 << 20)
    with IndexServer(packages) as server:
        remote = _open(client, server, path)
        with pytest.raises(UndecidedError, match="claims a part of 40000000 bytes"):
            remote.read(5, 40_000_000)
        assert remote.traffic.requests == 1


def test_a_length_that_is_no_number_is_an_error(
    packages: Path, large: Path, client: Client
) -> None:
    with IndexServer(packages, ranges="none") as server:
        server.misbehave(server.path_of(large.name), with_headers(content_length="many"))
        with pytest.raises(UndecidedError, match=large.name):
            _open(client, server, large)


def test_a_redirected_file_is_redirected_once(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/moved.whl", redirecting(server.path_of(wheel.name), 307))
        remote = client.open(f"{server.origin}/moved.whl")
        for offset in range(0, 300_000, 100_000):
            remote.read(offset, 10)
        assert server.count("/moved.whl") == 1


def test_an_address_behind_a_redirect_may_expire(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/moved.whl", redirecting(server.path_of(wheel.name)))
        server.misbehave(server.path_of(wheel.name), answering(403), after=1, times=1)
        remote = client.open(f"{server.origin}/moved.whl")
        assert remote.read(0, 10) == wheel.read_bytes()[:10]
        assert server.count("/moved.whl") == 2


def test_threads_share_connections(packages: Path, wheel: Path, client: Client) -> None:
    data = wheel.read_bytes()

    def read(number: int) -> bool:
        remote = _open(client, server, wheel)
        return remote.read(number * 1000, 500) == data[number * 1000 : number * 1000 + 500]

    with IndexServer(packages) as server, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(64)))
        assert server.count(server.path_of(wheel.name)) == 128
        assert server.connections <= 8
    assert client.requests == 128


def test_offline_opens_nothing(packages: Path, wheel: Path) -> None:
    with IndexServer(packages) as server, Client(offline=True) as client:
        with pytest.raises(UndecidedError, match=f"{wheel.name} .*--offline"):
            _open(client, server, wheel)
        assert server.requests == []
