"""What is not known of real packages is never green, and no lock can plant a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Wheel
from buildmatrix.net.machine_indexes import default_indexes

pytestmark = pytest.mark.network


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


#: SHA-256 by the name of the file; what an index publishes under one name never changes.
SHA256 = {
    "h11-0.16.0-py3-none-any.whl": (
        "63cf8bbe7522de3bf65932fda1d9c2772064ffb3dae62d55932da54b31cb6c86"
    ),
    "lxml-6.0.2-cp311-cp311-manylinux_2_26_x86_64.manylinux_2_28_x86_64.whl": (
        "7d2de809c2ee3b888b59f995625385f74629707c9355e0ff856445cdcae682b7"
    ),
    "xgboost-3.2.0-py3-none-manylinux_2_28_x86_64.whl": (
        "99b4a6bbcb47212fec5cf5fbe12347215f073c08967431b0122cfbd1ee70312c"
    ),
}


def find(client: Client, filename: str) -> Wheel:
    index = next(url for url in default_indexes() if url.startswith("http"))
    (file,) = [
        file
        for file in client.project(index, filename.partition("-")[0])
        if file.filename == filename
    ]
    return Wheel(filename, file.url, SHA256[filename])


def test_the_hash_of_xgboost_in_a_lock_of_others_plants_nothing(
    client: Client, tmp_path: Path
) -> None:
    h11, lxml, xgboost = (find(client, filename) for filename in SHA256)
    reader = WheelReader(client, Cache(tmp_path))
    with pytest.raises(UndecidedError, match=r"has the SHA-256 .* another file"):
        reader.read(replace(h11, sha256=xgboost.sha256), "listing")
    assert reader.read(replace(lxml, sha256=xgboost.sha256), "listing").members
    for _ in range(2):
        facts = reader.read(xgboost, "listing")
        assert any(one.path.endswith("libxgboost.so") for one in facts.members)
        assert [one.name for one in facts.inventory.distributions] == ["xgboost"]
    assert facts.bytes_read == 0, "a warm reader asks nothing"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        pytest.param(f"h11==0.16.0 --hash=sha256:{'a' * 64}", "other hashes", id="a hash"),
        pytest.param("docopt==0.6.2", "only its source distribution", id="source code"),
        pytest.param("pywin32==306", "cannot be resolved", id="Windows only"),
        pytest.param("demo @ git+https://example.com/demo@1.0", "built from git+", id="git"),
    ],
)
def test_what_cannot_be_installed_or_read_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, lines: str, says: str
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text(f"{lines}\n")
    options = ("--backend=cpu", "--python=3.11", "--no-vulnerabilities", "-q")
    for strict, expected in (((), 3), (("--strict",), 1)):
        with pytest.raises(SystemExit) as stop:
            cli.main(("audit", "requirements.txt", *options, *strict))
        assert stop.value.code == expected
        assert says in " ".join(capsys.readouterr().out.split())
