"""The layers of an image are exported once, and only where they are others than before."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, Interrupted
from buildmatrix.engines.model import ImageFacts
from buildmatrix.facts.inventory.model import Distribution, Inventory
from buildmatrix.images import store
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import TargetFiles
from buildmatrix.sources.target_layers import add_layers

SITE = "opt/venv/lib/python3.11/site-packages"
STEPS = ("ADD root.tar /", "COPY /opt/venv /opt/venv")
LAYERS = ("sha256:" + "1" * 64, "sha256:" + "2" * 64)
INVENTORY = Inventory(distributions=(Distribution("acme", "1.0", f"{SITE}/acme-1.0.dist-info"),))


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class StandInEngine:
    """Has one image of two layers, and counts how often it was exported."""

    def __init__(self) -> None:
        self.exported = 0
        self.layers = LAYERS
        self.history = [*STEPS, "LABEL version=1"]
        self.trouble: Exception | None = None

    def image(self, name: str) -> ImageFacts:
        steps = tuple((f"/bin/sh -c #(nop) {step}", 10) for step in self.history)
        return ImageFacts(name, {}, {}, 1000, "", steps, self.layers)

    @contextmanager
    def export(self, name: str) -> Iterator[Iterator[bytes]]:
        self.exported += 1
        if self.trouble is not None:
            raise self.trouble
        steps = [{"created_by": step} for step in STEPS]
        configuration = {"config": {}, "history": steps, "rootfs": {"diff_ids": self.layers}}
        files = [{"etc/os-release": b"x"}, {f"{SITE}/acme-1.0.dist-info/METADATA": b"x"}]
        names = [f"{number}/layer.tar" for number in range(len(files))]
        yield iter(
            [
                tar(
                    {
                        **{name: tar(one) for name, one in zip(names, files, strict=True)},
                        "c.json": json.dumps(configuration).encode(),
                        "manifest.json": json.dumps(
                            [{"Config": "c.json", "RepoTags": [], "Layers": names}]
                        ).encode(),
                    }
                )
            ]
        )


class Target:
    """A target whose image was just built."""

    def __init__(self, folder: Path, engine: StandInEngine) -> None:
        self.files, self.engine = TargetFiles(folder), engine
        self.built("a")

    def built(self, image: str, inventory: Inventory = INVENTORY) -> None:
        self.inventory = inventory
        self.files.folder.mkdir(exist_ok=True)
        store.write(self.files.inventory, inventory)
        record = state_folder.BuildRecord(
            key="k",
            digest=f"sha256:{image * 64}",
            config=None,
            loaded=True,
            tags=("x:1",),
            inventory=state_folder.file_sha256(self.files.inventory),
            seconds=1.0,
        )
        state_folder.write(self.files, record)

    def known(self) -> tuple[Inventory, str | None]:
        return add_layers(
            self.files,
            self.inventory,
            lambda: self.engine,
            lambda _: None,
            self.files.folder / "Dockerfile",
        )


@pytest.fixture
def engine() -> StandInEngine:
    return StandInEngine()


@pytest.fixture
def target(tmp_path: Path, engine: StandInEngine) -> Target:
    return Target(tmp_path / "cpu", engine)


def test_an_image_is_exported_once(target: Target, engine: StandInEngine) -> None:
    inventory, unknown = target.known()
    assert unknown is None
    assert [one.instruction for one in inventory.layers] == list(STEPS)
    assert target.known() == (inventory, None)
    assert engine.exported == 1


def test_layers_of_the_base_are_told_from_those_of_the_dockerfile(target: Target) -> None:
    (target.files.folder / "Dockerfile").write_text("FROM a:1\nCOPY /opt/venv /opt/venv\n")
    inventory, _ = target.known()
    assert [layer.is_base for layer in inventory.layers] == [True, False]
    (target.files.folder / "Dockerfile").write_text("FROM a:1\nCOPY /elsewhere /opt/venv\n")
    inventory, _ = target.known()
    assert not any(layer.is_base for layer in inventory.layers)


def test_an_image_with_another_label_is_not_exported_again(
    target: Target, engine: StandInEngine
) -> None:
    first = target.known()
    target.built("b")
    engine.history = [*STEPS, "LABEL version=2"]
    assert target.known() == first
    target.built("c")
    assert target.known() == first
    assert engine.exported == 1


def other_layer(target: Target) -> None:
    target.engine.layers = (LAYERS[0], "sha256:" + "3" * 64)


def other_step(target: Target) -> None:
    target.engine.history = [STEPS[0], "COPY --link /opt/venv /opt/venv"]


def other_order(target: Target) -> None:
    target.engine.history = list(reversed(STEPS))


def more_was_seen(target: Target) -> None:
    more = Distribution("extra", "1.0", f"{SITE}/extra-1.0.dist-info")
    target.built("b", replace(INVENTORY, distributions=(*INVENTORY.distributions, more)))


@pytest.mark.parametrize("change", [other_layer, other_step, other_order, more_was_seen])
def test_an_image_that_differs_is_exported(
    target: Target, engine: StandInEngine, change: Callable[[Target], None]
) -> None:
    target.known()
    target.built("b")
    change(target)
    inventory, unknown = target.known()
    assert (unknown, engine.exported) == (None, 2)
    assert tuple(one.digest for one in inventory.layers) == engine.layers


def test_an_export_that_fails_is_a_reason_and_is_tried_again(
    target: Target, engine: StandInEngine
) -> None:
    engine.trouble = ComponentError("the daemon ended the connection")
    assert target.known() == (target.inventory, "the daemon ended the connection")
    engine.trouble = None
    assert target.known()[1] is None


def test_a_user_who_stops_is_no_reason(target: Target, engine: StandInEngine) -> None:
    engine.trouble = Interrupted("interrupted")
    with pytest.raises(Interrupted):
        target.known()
