"""Images are read from the mirrors in the settings of this machine, and from nowhere wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import make_certificate
from hasty import HASTY
from loopback import answering, cut_after
from registry import MANIFEST, RegistryServer, digest_of

from buildmatrix.base.errors import SpecError, UndecidedError
from buildmatrix.images import documents
from buildmatrix.images.documents import Descriptor
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Mirrors, Reference

BLOB = bytes(range(256)) * 400
LAYER = Descriptor(media_type=documents.LAYER, digest=digest_of(BLOB), size=len(BLOB))
CONFIG = {"mediaType": documents.CONFIGURATION, "digest": digest_of(b"{}"), "size": 2}


def image(salt: str) -> bytes:
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": CONFIG, "layers": []}
    return json.dumps({**document, "annotations": {"salt": salt}}).encode()


class Machine:
    """A registry with two mirrors, and settings that name them."""

    def __init__(self, root: Path, origin: RegistryServer, mirrors: list[RegistryServer]) -> None:
        self.root, self.origin, self.mirrors = root, origin, mirrors
        self.app = Reference.parse(f"{origin.host}/team/app:1")
        self.said: list[str] = []
        for server in (origin, *mirrors):
            repository = "team/app" if server is origin else "hub/team/app"
            server.put(repository, b"{}")
            server.put(repository, BLOB)
            server.tag(repository, "1", image("one"))

    def write(self, name: str, text: str) -> Path:
        file = self.root / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        names = {f"M{number}": server.host for number, server in enumerate(self.mirrors)}
        for key, value in {"ORIGIN": self.origin.host, **names}.items():
            text = text.replace(key, value)
        file.write_text(text)
        return file

    def podman(self, more: str = "") -> None:
        self.write(
            "containers/registries.conf",
            '[[registry]]\nprefix = "ORIGIN/team"\nlocation = "ORIGIN/team"\n' + more
            + '[[registry.mirror]]\nlocation = "M0/hub/team"\n'
            + '[[registry.mirror]]\nlocation = "M1/hub/team"\n',
        )  # fmt: skip

    def registry(self, **environment: str) -> Registry:
        mirrors = Mirrors({**os.environ, **environment}, self.root)
        return Registry(patience=HASTY, mirrors=mirrors, note=self.said.append)

    def asked(self) -> list[int]:
        """Requests for manifests and blobs: of the registry, and of its mirrors."""
        servers = (self.origin, *self.mirrors)
        return [sum("team/app" in seen.path for seen in server.requests) for server in servers]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with RegistryServer() as origin, RegistryServer() as first, RegistryServer() as second:
        yield Machine(tmp_path / "root", origin, [first, second])


def read(registry: Registry, reference: Reference) -> bytes:
    with registry.blob(reference, LAYER) as chunks:
        return b"".join(chunks)


def test_without_settings_the_registry_is_asked(machine: Machine) -> None:
    with machine.registry() as registry:
        registry.resolve(machine.app)
    assert machine.asked() == [1, 0, 0]
    assert machine.said == []


def test_the_first_mirror_of_podman_serves_and_is_said(machine: Machine) -> None:
    machine.podman()
    with machine.registry() as registry:
        digest = registry.resolve(machine.app).digest
        assert registry.manifest(machine.app.at(digest)).digest == digest_of(image("one"))
        assert read(registry, machine.app) == BLOB
        assert registry.bytes_read > len(BLOB)
    assert machine.asked()[0] == 0 and machine.asked()[2] == 0
    assert machine.said == [f"{machine.app.name}: read from the mirror {machine.mirrors[0].host}"]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_a_mirror_that_fails_is_passed_over_for_the_next(machine: Machine, status: int) -> None:
    machine.podman()
    first = machine.mirrors[0]
    first.misbehave("/v2/hub/team/app/manifests/1", answering(status))
    first.misbehave(first.path_of("hub/team/app", LAYER.digest), answering(status))
    with machine.registry() as registry:
        assert registry.resolve(machine.app).digest == digest_of(image("one"))
        assert read(registry, machine.app) == BLOB
    assert machine.asked()[0] == 0 and machine.asked()[2] == 2
    assert machine.asked()[1] == (1 if status >= 500 else 2)
    assert machine.said[0].startswith(f"the mirror {first.host} is skipped: ")


def test_the_registry_is_the_last(machine: Machine) -> None:
    machine.podman()
    for mirror in machine.mirrors:
        mirror.misbehave("/v2/hub/team/app/manifests/1", answering(500))
    with machine.registry() as registry:
        assert registry.resolve(machine.app).digest == digest_of(image("one"))
    machine.origin.misbehave("/v2/team/app/manifests/1", answering(404))
    with machine.registry() as registry, pytest.raises(UndecidedError) as error:
        registry.resolve(machine.app)
    assert error.value.message.startswith(machine.app.name), "the registry that was named"


def test_a_mirror_that_is_not_there(machine: Machine) -> None:
    machine.write(
        "containers/registries.conf",
        '[[registry]]\nlocation = "ORIGIN"\n[[registry.mirror]]\nlocation = "127.0.0.1:1"\n',
    )
    with machine.registry() as registry:
        assert registry.resolve(machine.app).digest == digest_of(image("one"))


def test_a_mirror_that_lies_about_a_digest_is_passed_over(machine: Machine) -> None:
    machine.podman()
    digest = digest_of(image("one"))
    for mirror in machine.mirrors:
        mirror.misbehave(f"/v2/hub/team/app/manifests/{digest}", answering(200, image("two")))
    with machine.registry() as registry:
        assert registry.manifest(machine.app.at(digest)).data == image("one")
    assert machine.asked() == [1, 1, 1]


def test_a_blob_that_a_mirror_cuts_is_ended_by_the_next(machine: Machine) -> None:
    machine.podman()
    first, second = machine.mirrors
    first.misbehave(first.path_of("hub/team/app", LAYER.digest), cut_after(1000))
    second.misbehave(second.path_of("hub/team/app", LAYER.digest), answering(503))
    with machine.registry() as registry:
        assert read(registry, machine.app) == BLOB
    assert machine.origin.sent(machine.origin.path_of("team/app", LAYER.digest)) < len(BLOB)


def test_wrong_bytes_of_a_mirror_are_never_taken_for_the_blob(machine: Machine) -> None:
    machine.podman()
    first = machine.mirrors[0]
    wrong = bytes(len(BLOB))
    first.misbehave(first.path_of("hub/team/app", LAYER.digest), answering(200, wrong))
    with machine.registry() as registry:
        with pytest.raises(UndecidedError, match="blob"):
            read(registry, machine.app)
        assert read(registry, machine.app) == BLOB, "and it is not asked again"
    assert any(text.startswith(f"the mirror {first.host} is skipped") for text in machine.said)


@pytest.mark.parametrize(
    ("setting", "by_tag", "by_digest"),
    [
        ("", 1, 1),
        ("mirror-by-digest-only = true\n", 0, 1),
        ("mirror-by-digest-only = false\n", 1, 1),
    ],
)
def test_a_mirror_for_digests_alone_says_nothing_of_tags(
    machine: Machine, setting: str, by_tag: int, by_digest: int
) -> None:
    machine.podman(setting)
    with machine.registry() as registry:
        registry.resolve(machine.app)
        assert machine.asked()[1] == by_tag
        registry.resolve(machine.app.at(digest_of(image("one"))))
        assert machine.asked()[1] == by_tag + by_digest


def test_the_longest_prefix_counts_and_a_later_file_stands_in_place_of_an_earlier(
    machine: Machine,
) -> None:
    machine.podman()
    machine.write(
        "containers/registries.conf.d/50-team.conf",
        '[[registry]]\nprefix = "ORIGIN/team"\nlocation = "ORIGIN/team"\n'
        '[[registry.mirror]]\nlocation = "M1/hub/team"\n',
    )
    machine.write("containers/registries.conf.d/60-all.conf", '[[registry]]\nlocation = "ORIGIN"\n')
    with machine.registry() as registry:
        registry.resolve(machine.app)
    assert machine.asked() == [0, 0, 1]


def test_a_registry_that_is_blocked_and_one_that_has_moved(machine: Machine) -> None:
    machine.podman("blocked = true\n")
    with machine.registry() as registry, pytest.raises(UndecidedError, match="blocks it"):
        registry.resolve(machine.app)
    machine.write(
        "containers/registries.conf",
        '[[registry]]\nprefix = "*.example.com"\nlocation = "M1/hub"\n',
    )
    with machine.registry() as registry:
        moved = Reference.parse("eu.example.com/team/app:1")
        assert registry.resolve(moved).digest == digest_of(image("one"))


def test_hosts_of_containerd(machine: Machine) -> None:
    host = machine.origin.host
    machine.write(
        f"containerd/certs.d/{host}/hosts.toml",
        'server = "http://ORIGIN"\n'
        '[host."http://M0/v2/hub"]\n  capabilities = ["pull"]\n  override_path = true\n'
        '[host."http://M1/v2/hub"]\n  capabilities = ["pull", "resolve"]\n  override_path = true\n'
        '[host."https://push.example.com"]\n  capabilities = ["push"]\n',
    )
    with machine.registry() as registry:
        registry.resolve(machine.app)
        assert machine.asked() == [0, 0, 1], "the first may not say what a tag means"
        registry.resolve(machine.app.at(digest_of(image("one"))))
    assert machine.asked() == [0, 1, 1]


def test_mirrors_of_docker_are_for_docker_hub(tmp_path: Path) -> None:
    file = tmp_path / "etc/docker/daemon.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"registry-mirrors": ["https://mirror.example.com/", "http://plain.lan"]}')
    said: list[str] = []
    mirrors = Mirrors({"HOME": str(tmp_path)}, tmp_path, said.append)
    hub = Reference.parse("debian:12")
    mirror, origin = mirrors.locate(hub)
    assert str(mirror) == "mirror.example.com/library/debian:12"
    assert origin == hub
    other = Reference.parse("ghcr.io/a/b")
    assert mirrors.locate(other) == (other,)
    assert said == [
        f"{file}: plain.lan is skipped: it has no TLS; name it in BUILDMATRIX_PLAIN_HTTP to use it"
    ]
    named = Mirrors({"HOME": str(tmp_path)}, tmp_path, plain_http=("plain.lan",))
    assert len(named.locate(hub)) == 3


def test_an_authority_of_a_mirror_is_trusted_for_that_mirror(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with RegistryServer(certificate=certificate) as mirror, RegistryServer() as origin:
        machine = Machine(tmp_path / "root", origin, [mirror])
        folder = f"containerd/certs.d/{origin.host}"
        text = '[host."https://M0/v2/hub"]\noverride_path = true\n'
        for setting, served in (("skip_verify = true", 0), (f'ca = "{certificate[0]}"', 1)):
            machine.write(f"{folder}/hosts.toml", f"{text}{setting}\n")
            with machine.registry() as registry:
                assert registry.resolve(machine.app).digest == digest_of(image("one"))
            assert machine.asked()[1] == served, machine.said


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("containers/registries.conf", 'a = "b"\n[[registry]\n', 2, ""),
        ("containers/registries.conf", "a = 1\n[[registry]]\nblocked = true\n", 2, "location"),
        ("containers/registries.conf", "[[registry]]\nlocation = 'a'\nmirror = 1\n", 1, "mirror"),
        ("containers/registries.conf", "[registries.search]\n[registry]\n", 2, "version 1"),
        ("containers/registries.conf.d/a.conf", "\n\n= 1\n", 3, ""),
        ("containerd/certs.d/_default/hosts.toml", '\n[host\n', 2, ""),
        ("containerd/certs.d/_default/hosts.toml", '\n[host."ftp://a"]\n', 2, "URL"),
        ("docker/daemon.json", '{\n "registry-mirrors": [,]}', 2, "JSON"),
        ("docker/daemon.json", '{\n "registry-mirrors": "a"}', 2, "is not a list"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_with_its_line(
    machine: Machine, name: str, text: str, line: int, words: str
) -> None:
    file = machine.write(name, text)
    with machine.registry() as registry, pytest.raises(SpecError) as error:
        registry.resolve(Reference.parse("docker.io/library/debian:12"))
    assert error.value.message.startswith(f"{file}:{line}")
    assert words in error.value.message and "\n" not in error.value.message


def test_what_is_written_and_what_refers_to_an_image_is_the_registrys_own(
    machine: Machine,
) -> None:
    machine.podman()
    with machine.registry() as registry:
        registry.push_manifest(machine.app, image("one"), MANIFEST)
        registry.has_blob(machine.app, LAYER.digest)
        registry.referrers(machine.app, digest_of(image("one")))
    assert machine.asked()[1:] == [0, 0]


@pytest.mark.parametrize("variable", ["CONTAINERS_REGISTRIES_CONF", "XDG_CONFIG_HOME"])
def test_a_user_has_settings_of_his_own(machine: Machine, variable: str, tmp_path: Path) -> None:
    machine.podman()
    file = tmp_path / "user/containers/registries.conf"
    file.parent.mkdir(parents=True)
    file.write_text("")
    value = file if variable.startswith("CONTAINERS") else tmp_path / "user"
    with machine.registry(**{variable: str(value)}) as registry:
        registry.resolve(machine.app)
    assert machine.asked() == [1, 0, 0]


def test_short_names_are_not_guessed(machine: Machine) -> None:
    machine.write("containers/registries.conf", 'unqualified-search-registries = ["M0"]\n')
    (origin,) = Mirrors(os.environ, machine.root).locate(Reference.parse("app"))
    assert origin.host == "docker.io"
