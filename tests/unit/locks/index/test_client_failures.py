"""Servers that are busy, broken, slow, far away, or not what they seem."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpcore
import pytest
from certificates import make_certificate
from hasty import HASTY, hurry
from index import IndexServer
from loopback import Request, Response, Serve, answering, dripping, redirecting

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.locks.index.client import Client, Credentials
from buildmatrix.net import transport
from buildmatrix.net.addresses import RequestError, parse, retry_after
from buildmatrix.net.machine_indexes import configured_trust
from buildmatrix.net.requests import Requests


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_recovers_is_no_error(
    packages: Path, wheel: Path, client: Client, status: int
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(status), times=2)
        assert client.open(server.file_url(wheel.name)).size == wheel.stat().st_size
        assert server.count(server.path_of(wheel.name)) == 3


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_does_not_recover_is_named_with_its_answer(
    packages: Path, wheel: Path, client: Client, status: int
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(status))
        with pytest.raises(UndecidedError) as error:
            client.open(server.file_url(wheel.name))
        assert error.value.message.startswith(f"{server.file_url(wheel.name)} answers {status}")
        assert "try again later" in error.value.message
        assert server.count(server.path_of(wheel.name)) == 3


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "it wants credentials"),
        (403, "does not have this, or wants credentials"),
        (404, "there is no such file"),
        (410, "there is no such file"),
        (418, "unexpected response"),
        (204, "unexpected response"),
    ],
)
def test_a_final_answer_is_not_asked_for_twice(
    packages: Path, wheel: Path, client: Client, status: int, why: str
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(status))
        with pytest.raises(UndecidedError, match=f"answers {status}.*{why}"):
            client.open(server.file_url(wheel.name))
        assert len(server.requests) == 1


def test_a_server_that_wants_to_be_left_alone_for_long_is_not_waited_for(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(429, retry_after="3600"))
        with pytest.raises(
            UndecidedError, match=r"answers 429 \(too many requests\); retry after 3600 s"
        ):
            client.open(server.file_url(wheel.name))
        assert len(server.requests) == 1


def test_a_short_wish_to_be_left_alone_is_obeyed(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        server.misbehave(server.path_of(wheel.name), answering(429, retry_after="0"), times=1)
        assert client.open(server.file_url(wheel.name)).size == wheel.stat().st_size


def test_retry_after_is_a_number_or_a_date() -> None:
    now = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert retry_after("120", now) == 120
    assert retry_after(format_datetime(now + timedelta(minutes=5), usegmt=True), now) == 300
    assert retry_after(format_datetime(now - timedelta(minutes=5), usegmt=True), now) == 0
    for nonsense in (None, "", "soon", "-5", "1e9", "٣", "Mon, 99 Foo 2024 25:61:61 GMT"):
        assert retry_after(nonsense, now) is None
    assert retry_after("9" * 400, now) == 999_999_999


def test_redirects_are_followed_across_servers(packages: Path, wheel: Path, client: Client) -> None:
    with IndexServer(packages) as files, IndexServer(packages) as server:
        for status in (301, 302, 303, 307, 308):
            server.misbehave(f"/{status}", redirecting(files.file_url(wheel.name), status))
            assert client.open(f"{server.origin}/{status}").size == wheel.stat().st_size


def test_redirects_that_never_end_are_an_error(packages: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/a", redirecting("/b"))
        server.misbehave("/b", redirecting("/a"))
        with pytest.raises(UndecidedError, match="redirects more than 5 times"):
            client.open(f"{server.origin}/a")
        assert len(server.requests) == 6


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "http://h:99999/"]
)
def test_a_redirect_to_what_is_no_web_address_is_an_error(
    packages: Path, client: Client, location: str
) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/a", redirecting(location))
        with pytest.raises(UndecidedError, match="/a redirects to an invalid or unsupported URL"):
            client.open(f"{server.origin}/a")


def test_a_redirect_without_an_address_is_an_error(packages: Path, client: Client) -> None:
    with IndexServer(packages) as server:
        server.misbehave("/a", answering(302))
        with pytest.raises(UndecidedError, match="answers 302"):
            client.open(f"{server.origin}/a")


def test_a_server_that_is_not_there_is_named(client: Client) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(UndecidedError, match=f"127.0.0.1:{port} refuses connections"):
            client.open(f"http://127.0.0.1:{port}/x.whl")


def test_a_host_name_that_does_not_exist_is_named(client: Client) -> None:
    with pytest.raises(UndecidedError, match=r"no-such-host\.invalid cannot be resolved"):
        client.open("https://no-such-host.invalid/x.whl")


def test_a_server_that_drips_is_given_up_in_time(
    packages: Path, wheel: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    with IndexServer(packages) as server:
        path = server.path_of(wheel.name)
        server.misbehave(path, dripping(0.001))
        with pytest.raises(UndecidedError, match="does not answer in time"):
            client.open(server.file_url(wheel.name))


def _answer_with(*pieces: bytes, pause: float = 0.0) -> tuple[str, Callable[[], None]]:
    """The address of a server that sends `pieces`, again and again, and how to stop it."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        while not stopped.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    for piece in pieces:
                        connection.sendall(piece)
                        if stopped.wait(pause):
                            return
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        # Closing alone does not wake a thread that waits in accept(2).
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

    return f"http://127.0.0.1:{listener.getsockname()[1]}/x.whl", stop


def test_a_server_that_drips_its_headers_is_given_up_in_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    url, stop = _answer_with(b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n"] * 5000, pause=0.001)
    try:
        with pytest.raises(UndecidedError, match="does not answer in time"):
            client.open(url)
    finally:
        stop()


def test_headers_without_end_are_an_error(client: Client) -> None:
    url, stop = _answer_with(b"HTTP/1.1 200 OK\r\n", b"x: yyyyyyyyyyyyyyyyyyy\r\n" * 10_000)
    try:
        with pytest.raises(UndecidedError, match=r"does not speak HTTP|broke"):
            client.open(url)
    finally:
        stop()


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"\0\xff\0\xff" * 100])
def test_what_speaks_no_http_is_an_error(client: Client, said: bytes) -> None:
    url, stop = _answer_with(said)
    try:
        with pytest.raises(UndecidedError, match=r"does not speak HTTP|broke"):
            client.open(url)
    finally:
        stop()


def test_a_certificate_that_nobody_signed_is_refused_with_the_way_out(
    packages: Path, wheel: Path, client: Client, tmp_path: Path
) -> None:
    with IndexServer(packages, certificate=make_certificate(tmp_path)) as server:
        with pytest.raises(UndecidedError, match=r"not trusted.*set SSL_CERT_FILE"):
            client.open(server.file_url(wheel.name))
        assert server.requests == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"])
def test_a_certificate_authority_can_be_named(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv(variable, str(certificate[0]))
    with IndexServer(packages, certificate=certificate) as server:
        assert new_client().open(server.file_url(wheel.name)).size == wheel.stat().st_size


@pytest.mark.parametrize("variable", ["UV_INSECURE_HOST", "PIP_TRUSTED_HOST"])
@pytest.mark.parametrize("host", ["127.0.0.1", "{authority}", "*", "example.com"])
def test_a_host_whose_certificate_is_not_to_be_checked(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    host: str,
) -> None:
    with IndexServer(packages, certificate=make_certificate(tmp_path)) as server:
        authority = server.origin.partition("://")[2]
        monkeypatch.setenv(variable, f"other.example.com {host.format(authority=authority)}")
        if host == "example.com":
            with pytest.raises(UndecidedError, match="not trusted"):
                new_client().open(server.file_url(wheel.name))
        else:
            assert new_client().open(server.file_url(wheel.name)).size == wheel.stat().st_size


def test_a_file_without_certificates_is_named(
    new_client: Callable[..., Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UndecidedError, match=r"SSL_CERT_FILE is"):
        new_client().open("https://127.0.0.1:1/x.whl")


def test_a_certificate_for_another_host_is_no_matter_of_authorities(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.2")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with IndexServer(packages, certificate=certificate) as server:
        with pytest.raises(UndecidedError, match="IP address mismatch") as error:
            new_client().open(server.file_url(wheel.name))
        assert "SSL_CERT_FILE" not in error.value.message


def test_a_redirect_away_from_https_is_not_followed(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with IndexServer(packages) as plain, IndexServer(packages, certificate=certificate) as server:
        server.misbehave("/a", redirecting(plain.file_url(wheel.name)))
        with pytest.raises(UndecidedError, match="redirects from https to http"):
            new_client().open(f"{server.origin}/a")
        assert plain.requests == []


def test_a_server_without_tls_where_tls_is_expected_is_named(
    packages: Path, client: Client
) -> None:
    with IndexServer(packages) as server, pytest.raises(UndecidedError, match="no TLS connection"):
        client.open(server.origin.replace("http:", "https:") + "/x.whl")


@pytest.mark.parametrize("alerts", [1, 2])
def test_a_tls_handshake_that_fails_is_tried_again(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alerts: int,
) -> None:
    """A proxy once answered with such an alert, and one wheel of 17 was undecided."""
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with IndexServer(packages, certificate=certificate) as server:
        server.alerts = alerts
        assert new_client().open(server.file_url(wheel.name)).size == wheel.stat().st_size
        assert server.alerts == 0
        server.alerts = 100
        with pytest.raises(UndecidedError, match=r"no TLS connection .*DECODE_ERROR"):
            new_client().open(server.file_url(wheel.name))


def test_requests_go_through_the_proxy_of_the_environment(
    packages: Path, wheel: Path, new_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    # To a proxy, a request for http:// is a request with the whole address as its path.
    with IndexServer(packages) as proxy:
        url = f"http://index.invalid{proxy.path_of(wheel.name)}"
        proxy.misbehave(url, redirecting(proxy.file_url(wheel.name)))
        monkeypatch.setenv("HTTP_PROXY", proxy.origin.replace("//", "//me:secret@"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert new_client().open(url).size == wheel.stat().st_size
        assert "proxy-authorization" in proxy.requests[0].headers
        assert "proxy-authorization" not in proxy.requests[1].headers


def test_https_goes_through_a_tunnel_of_the_proxy(
    packages: Path,
    wheel: Path,
    new_client: Callable[..., Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with IndexServer(packages, certificate=certificate) as server, _Tunnel() as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        remote = new_client().open(server.file_url(wheel.name))
        assert remote.read(0, 2) == b"PK"
        assert [line.split()[0] for line in tunnel.asked] == [b"CONNECT"]


def test_a_proxy_that_refuses_is_named(
    packages: Path, new_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    with IndexServer(packages) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.origin)
        with pytest.raises(
            UndecidedError, match=r"through the proxy http://127\.0\.0\.1:\d+\): 501"
        ):
            new_client().open("https://index.invalid/x.whl")


class _Tunnel:
    """A proxy that knows CONNECT, for one connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: First lines of the requests.
        self.asked: list[bytes] = []

    def __enter__(self) -> _Tunnel:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(65536)
        line = head.partition(b"\r\n")[0]
        self.asked.append(line)
        host, _, port = line.split()[1].decode().rpartition(":")
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=self._copy, args=(server, client), daemon=True).start()
        self._copy(client, server)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:1", "http://me:secret@:x/"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    new_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(UndecidedError, match=r"the proxy .* cannot be used") as error:
        new_client().open("https://index.invalid/x.whl")
    assert "secret" not in error.value.message


def test_a_proxy_that_is_not_there_is_named_without_its_password(
    new_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:1")
    with pytest.raises(UndecidedError, match=r"through the proxy http://127.0.0.1:1\)") as error:
        new_client().open("https://index.invalid/x.whl")
    assert "secret" not in error.value.message


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x",
        "http:///x",
        "http://example.com:port/x",
        "http://example.com/a b",
        "http://exa\nmple.com/",
        "http://[::1/x",
        "http://" + "ä" * 80 + "/",
        "x.whl",
        "http://example.com/" + "x" * 9000,
    ],
)
def test_what_is_no_web_address_is_an_error(client: Client, url: str) -> None:
    with pytest.raises(UndecidedError, match="cannot be requested"):
        client.open(url)


def test_a_closed_client_waits_for_nobody(packages: Path, wheel: Path) -> None:
    patience = replace(HASTY, longest_pause=9999.0)
    with IndexServer(packages) as server, Client(patience=patience) as client:
        server.misbehave(server.path_of(wheel.name), answering(429, retry_after="9999"))
        failures: list[Exception] = []

        def ask() -> None:
            try:
                client.open(server.file_url(wheel.name))
            except UndecidedError as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not server.requests:
            pass
        client.close()
        thread.join(timeout=300)
        assert not thread.is_alive()
        assert len(failures) == 1


_JOBS = 16


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that anybody tried to connect to, in order."""
    hosts: list[str] = []
    connect = transport._TimedNetwork.connect_tcp

    def count(self: transport._TimedNetwork, host: str, *rest: object, **more: object) -> object:
        hosts.append(host)
        if host == "black.hole":
            raise httpcore.ConnectTimeout("nobody answers")
        return connect(self, host, *rest, **more)

    monkeypatch.setattr(transport._TimedNetwork, "connect_tcp", count)
    return hosts


@pytest.mark.parametrize(
    ("host", "retries", "cause"),
    [
        ("127.0.0.1:1", 2, "127.0.0.1:1 refuses connections"),
        ("no-such-host.invalid", 2, "the host name of no-such-host.invalid cannot be resolved"),
        # TCP has asked three times by then.
        ("black.hole", 0, "connecting to black.hole timed out"),
        # TLS is spoken to a server without it: there is no reason to try again.
        ("plain", 0, "no TLS connection to"),
        ("silent", 2, "breaks off, or does not speak HTTP"),
    ],
)
def test_a_host_that_does_not_answer_costs_one_attempt(
    packages: Path, client: Client, connects: list[str], host: str, retries: int, cause: str
) -> None:
    def ask(number: int) -> str:
        with pytest.raises(UndecidedError) as error:
            client.open(f"{origin}/{number}-1.0-py3-none-any.whl")
        return error.value.message

    with IndexServer(packages) as server, ThreadPoolExecutor(_JOBS) as pool:
        for number in range(320):
            path = f"/{number}-1.0-py3-none-any.whl"
            server.misbehave(path, lambda request, serve: Response(200, dropped=True))
        known = {"plain": server.origin.replace("http:", "https:"), "silent": server.origin}
        origin = known.get(host, f"http://{host}")
        messages = set(pool.map(ask, range(320)))
    (message,) = messages
    assert cause in message
    # Those who had begun are not told before their own connection fails.
    assert retries < len(connects) <= _JOBS + retries
    assert len(client.away) == (host != "plain")


def test_a_host_that_fails_once_and_then_works_is_not_given_up(
    packages: Path, wheel: Path, client: Client
) -> None:
    path = IndexServer.path_of(wheel.name)
    begun = threading.Barrier(_JOBS)

    def drop(request: Request, serve: Serve) -> Response:
        begun.wait()
        return Response(200, dropped=True)

    with IndexServer(packages) as server, ThreadPoolExecutor(_JOBS) as pool:
        server.misbehave(path, drop, times=_JOBS)
        url = server.file_url(wheel.name)
        remotes = list(pool.map(lambda _: client.open(url), range(2 * _JOBS)))
        assert {remote.size for remote in remotes} == {wheel.stat().st_size}
        assert server.count(path) == 3 * _JOBS
    assert not client.away


def test_a_file_that_a_server_never_gives_is_not_the_end_of_its_host(
    packages: Path, wheel: Path, client: Client
) -> None:
    with IndexServer(packages) as server:
        assert client.open(server.file_url(wheel.name)).size
        server.misbehave("/x.whl", lambda request, serve: Response(200, dropped=True))
        for _ in range(2):
            with pytest.raises(UndecidedError, match=r"/x\.whl breaks off"):
                client.open(f"{server.origin}/x.whl")
        assert server.count("/x.whl") == 2 * HASTY.tries
        assert client.open(server.file_url(wheel.name)).size


def test_a_host_that_was_given_up_is_asked_again_after_a_while(connects: list[str]) -> None:
    now = [0.0]
    requests = Requests(HASTY, Credentials((), {}).of, configured_trust(), clock=lambda: now[0])

    def ask() -> None:
        with requests.send(parse("http://127.0.0.1:1/"), {}):
            pass

    for later, total in ((0.0, 3), (HASTY.rest - 1, 3), (HASTY.rest, 6)):
        now[0] = later
        with pytest.raises(RequestError, match="refuses connections"):
            requests.retry(ask)
        assert len(connects) == total
    requests.close()


def test_a_thread_that_stops_trying_is_replaced(client: Client) -> None:
    """What waits for another thread goes on by itself when that one says nothing more."""
    hasty = replace(HASTY, request=0.01)
    requests = Requests(hasty, Credentials((), {}).of, configured_trust())
    error = RequestError("x", is_temporary=True, host_message="host", is_unconnected=True)
    error.host = "host"
    thread = threading.Thread(target=requests.pause, args=(error, 1))
    thread.start()
    thread.join()
    requests.pause(error, 1)
    with pytest.raises(RequestError, match="host"):
        requests.pause(error, HASTY.tries)
    requests.close()
