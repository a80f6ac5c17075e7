"""The engine oci on this machine: images that appear whole, move, are pushed, and survive kills.

The wheels and the base lie in folders; the registry is in memory and speaks the real protocol.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType, SimpleNamespace

import msgspec
import pytest
from hasty import HASTY
from layer_archives import tar
from loopback import answering
from oci_world import SPEC, World, make_base, make_world
from registry import RegistryServer

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    BuildError,
    BuildmatrixError,
    ComponentError,
    Interrupted,
    SpecError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Silent
from buildmatrix.commands.workspace import Workspace
from buildmatrix.engines.model import (
    BuildJob,
    BuildOutcome,
    DeviceAccess,
    Ingredients,
    RunResult,
    Surroundings,
)
from buildmatrix.engines.oci import cdi, sandboxes
from buildmatrix.engines.oci import engine as oci_engine
from buildmatrix.engines.oci.bases import Bases
from buildmatrix.engines.oci.confinement import Confined
from buildmatrix.engines.oci.engine import OciEngine
from buildmatrix.engines.oci.unpacking import Identity
from buildmatrix.images import store as inventories
from buildmatrix.images.documents import MANIFEST, MAX_DOCUMENT, encode
from buildmatrix.images.layout import OciLayout
from buildmatrix.images.saved_image import SavedImage
from buildmatrix.images.store.cache import Cache
from buildmatrix.net.registry_client import Registry

BASE = "python:3.11-slim-bookworm"
STAGED = "buildmatrix-staged:test"
#: Moments at which a build, and a push, is killed.
KILLS = 25


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.base.layout.publish(made.base.descriptor, [BASE])
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RegistryServer]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with RegistryServer() as server:
        yield server


def engine_of(world: World, state: str = "state", store: str = "store") -> OciEngine:
    cache = Cache(world.root.parent / store / "cache")
    folder = world.root / ".buildmatrix" / state / "images"
    return OciEngine(folder, world.store(store), cache, Registry(patience=HASTY))


def job_of(world: World, *tags: str) -> BuildJob:
    folder = world.root / ".buildmatrix" / "state" / "cpu"
    target = world.spec.targets[0]
    return BuildJob(
        id=target.id,
        bake_file=Path(),
        image_target="",
        scan_target="",
        context=world.root,
        tags=tags or target.references,
        staged=STAGED,
        log=folder / "build.log",
        scan_output=folder / "scan",
        ingredients=Ingredients(world.spec, target, world.lock()),
    )


def around(world: World) -> Surroundings:
    return Surroundings(mirror=f"oci:{world.base.layout.folder}", engine="oci")


def build(world: World, engine: OciEngine | None = None) -> BuildOutcome:
    return (engine or engine_of(world)).build(job_of(world), around(world), Silent())


def check_whole(layout: OciLayout) -> list[str]:
    """All blobs have the bytes of their names, and all images all of their blobs; the digests."""
    for path in layout.folder.glob("blobs/sha256/*"):
        if not path.name.startswith("."):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    images = layout.images()
    for image in images:
        manifest = layout.manifest(image)
        assert all(map(layout.has, (image, manifest.config, *manifest.layers)))
    return [image.digest for image in images]


# What the engine has


def test_described_devices_are_given_to_commands_or_none_is_started(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, driver = tmp_path / "cdi", tmp_path / "driver.so"
    folder.mkdir()
    driver.write_text("acme")
    edits = {
        "deviceNodes": [{"path": "/dev/acme0", "hostPath": "/dev/null"}],
        "mounts": [{"hostPath": str(driver), "containerPath": "/opt/acme/driver.so"}],
        "env": ["ACME=1"],
        "additionalGids": [4711],
    }
    devices = [{"name": "all", "containerEdits": edits}]
    document = {"cdiVersion": "0.7.0", "kind": "acme.com/gpu", "devices": devices}
    (folder / "acme.json").write_text(json.dumps(document))
    monkeypatch.setattr(cdi, "FOLDERS", (folder,))
    started: list[Confined] = []

    def start(program: object, confined: Confined, *_: object) -> RunResult:
        assert (confined.root / "opt/acme/driver.so").is_file()
        started.append(confined)
        return RunResult(0, "", timed_out=False)

    monkeypatch.setattr(sandboxes, "usable", lambda: (SimpleNamespace(has_owners=False), "x"))
    monkeypatch.setattr(sandboxes, "run", start)
    engine = engine_of(world)
    build(world, engine)
    assert engine.facilities().cdi == ("acme.com/gpu=all",)
    with engine.runner(STAGED, DeviceAccess(cdi=("acme.com/gpu=all",))) as run:
        assert run(("true",), 1).exit_code == 0
    (confined,) = started
    assert confined.nodes == {"/dev/acme0": "/dev/null"}
    assert confined.folders == {"/opt/acme/driver.so": driver}
    assert confined.environment["ACME"] == "1" and 4711 in confined.devices.groups

    with engine.runner(STAGED, DeviceAccess(cdi=("acme.com/gpu=7",))) as run:
        result = run(("true",), 1)
    assert (result.exit_code, len(started)) == (127, 1)
    assert result.output.endswith("describes acme.com/gpu=7")


def test_a_driver_that_no_file_describes_is_given_to_commands(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "libcuda.so.580.95"
    library.write_text("driver")
    inside = f"/usr/local/nvidia/lib64/{library.name}"
    edits = cdi.Edits({"/dev/nvidia0": "/dev/null"}, {inside: str(library)})
    monkeypatch.setattr(oci_engine, "describe_driver", lambda: {"nvidia.com/gpu=all": edits})
    monkeypatch.setattr(cdi, "FOLDERS", (tmp_path / "cdi",))
    started: list[Confined] = []

    def start(program: object, confined: Confined, *_: object) -> RunResult:
        started.append(confined)
        return RunResult(0, "", timed_out=False)

    monkeypatch.setattr(sandboxes, "usable", lambda: (SimpleNamespace(has_owners=False), "x"))
    monkeypatch.setattr(sandboxes, "run", start)
    engine = engine_of(world)
    build(world, engine)
    (name,) = engine.facilities().cdi
    for devices in (DeviceAccess(cdi=(name,)), DeviceAccess()):
        with engine.runner(STAGED, devices) as run:
            assert run(("true",), 1).exit_code == 0
    with_device, without = started
    assert with_device.nodes == {"/dev/nvidia0": "/dev/null"}
    assert with_device.folders == {inside: library}
    assert (without.nodes, without.folders) == ({}, {})


def test_an_image_is_laid_out_once_for_runs_in_a_row(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = tmp_path / "driver.so"
    driver.write_text("acme")
    given = cdi.Edits(mounts={"/opt/acme/driver.so": str(driver)})
    monkeypatch.setattr(cdi, "edits", lambda names, *_: given if names else cdi.Edits())
    roots: list[Path] = []

    def start(program: object, confined: Confined, *_: object) -> RunResult:
        roots.append(confined.root)
        mounted = (confined.root / "opt/acme/driver.so").exists()
        return RunResult(0, "device" if mounted else "", timed_out=False)

    monkeypatch.setattr(sandboxes, "usable", lambda: (SimpleNamespace(has_owners=False), "x"))
    monkeypatch.setattr(sandboxes, "run", start)
    engine = engine_of(world)
    build(world, engine)
    with engine.runner(STAGED) as smoke:
        smoke(("true",), 1)
    with engine.runner(STAGED) as climb:
        climb(("true",), 1)
        # Its files have a place for what the device mounts, and serve no other command.
        with engine.runner(STAGED, DeviceAccess(cdi=("acme.com/gpu=all",))) as device:
            assert device(("true",), 1).output == "device"
        assert climb(("true",), 1).output == ""
    assert roots[0] == roots[1] == roots[3] != roots[2]
    assert roots[0].is_dir() and roots[2].is_dir()

    # Another image takes the place of those that nobody uses.
    (world.root / "app/run.sh").write_text("#!/bin/sh\necho new\n")
    build(world, engine)
    with engine.runner(STAGED) as run:
        run(("true",), 1)
    assert [root.exists() for root in roots] == [False] * 4 + [True]
    engine.close()
    assert not roots[4].exists()


def test_an_image_is_staged_until_it_is_released(world: World) -> None:
    engine = engine_of(world)
    tags = job_of(world).tags
    outcome = build(world, engine)

    assert engine.present([STAGED, *tags]) == {STAGED: outcome.digest}
    engine.release(STAGED, tags)
    assert engine.present([STAGED, *tags]) == dict.fromkeys(tags, outcome.digest)
    for name in (outcome.digest, outcome.config, tags[0]):
        facts = engine.image(str(name))
        assert facts is not None
        assert (facts.digest, facts.user) == (outcome.digest, "10001")
        assert facts.environment["VIRTUAL_ENV"] == "/opt/venv"
        assert sum(1 for _, size in facts.history if size) == len(facts.layers)
    assert engine.image("nothing:here") is None


def test_the_inventory_says_what_lies_in_which_layer(world: World) -> None:
    outcome = build(world)
    inventory = inventories.read(outcome.inventory)

    assert {one.name for one in inventory.distributions} == {"heavy", "odd", "small"}
    assert outcome.has_layers
    (layer,) = [
        number
        for number, layer in enumerate(inventory.layers)
        if layer.instruction.endswith("# buildmatrix heavy 1.0")
    ]
    (heavy,) = [one.path for one in inventory.distributions if one.name == "heavy"]
    assert inventory.origins[heavy] == layer
    assert outcome.bases == {BASE: world.base.descriptor.digest}


def test_a_fresh_runner_reads_no_file_of_an_image_that_another_one_has_read(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    inventories_read = []
    for runner in ("one", "another"):
        monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / runner))
        shutil.rmtree(world.root / ".buildmatrix", ignore_errors=True)
        place = Workspace(world.root / "buildmatrix.toml", engine="oci", store=str(shared))
        engine = place.builder()
        assert isinstance(engine, OciEngine)
        inventories_read.append(inventories.read(build(world, engine).inventory))
    first, second = inventories_read
    assert first.stats.bytes_read > second.stats.bytes_read == 0
    assert first.distributions == second.distributions
    # Layers that another machine wrote are not taken from there.
    assert {path.name for path in shared.iterdir()} <= {"facts", "layers", "python"}


def test_a_new_image_takes_the_names_and_the_room_of_the_last_one(world: World) -> None:
    engine = engine_of(world)
    tags = job_of(world).tags
    first = build(world, engine)
    engine.release(STAGED, tags)
    (world.root / "app/run.sh").write_text("#!/bin/sh\necho new\n")
    second = build(world, engine)

    assert engine.present([STAGED, *tags]) == {
        STAGED: second.digest,
        **dict.fromkeys(tags, first.digest),
    }
    engine.release(STAGED, tags)
    layout = OciLayout(world.root / ".buildmatrix/state/images")
    assert check_whole(layout) == [second.digest]
    manifest = layout.manifest(layout.images()[0])
    blobs = {path.name for path in layout.folder.glob("blobs/sha256/*")}
    wanted = {manifest.config.digest, second.digest, *(part.digest for part in manifest.layers)}
    assert blobs == {digest.partition(":")[2] for digest in wanted}


def test_an_equal_image_that_is_built_again_keeps_its_tags(world: World) -> None:
    engine = engine_of(world)
    tags = job_of(world).tags
    digest = build(world, engine).digest
    engine.release(STAGED, tags)
    build(world, engine)

    assert engine.present([STAGED, *tags]) == dict.fromkeys([STAGED, *tags], digest)


def test_an_image_that_lost_a_blob_is_not_here(world: World) -> None:
    engine = engine_of(world)
    build(world, engine)
    layout = OciLayout(world.root / ".buildmatrix/state/images")
    layout.path(layout.manifest(layout.images()[0]).layers[-1].digest).unlink()

    assert engine.present([STAGED]) == {}
    assert build(world, engine).digest == engine.present([STAGED])[STAGED]


def test_an_export_is_read_as_the_same_image(world: World, tmp_path: Path) -> None:
    engine = engine_of(world)
    build(world, engine)
    with (tmp_path / "image.tar").open("wb") as file, engine.export(STAGED) as chunks:
        file.writelines(chunks)

    with SavedImage(tmp_path / "image.tar") as image:
        facts = engine.image(STAGED)
        assert facts is not None
        assert image.configuration.digests == facts.layers
        assert "opt/venv/bin/python" in {item.path for item in image.tree().walk()}


def test_what_runs_nowhere_here_says_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(world)
    build(world, engine)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    why_not = engine.cannot_run(STAGED)
    assert isinstance(why_not, UndecidedError)
    assert why_not.message == "the image is for linux/amd64, and this machine is riscv64"
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(
        "buildmatrix.engines.oci.sandboxes.usable", lambda: (None, "install bubblewrap")
    )
    why_not = engine_of(world).cannot_run(STAGED)
    assert isinstance(why_not, ComponentError)
    assert why_not.message == "install bubblewrap"


def test_only_a_changed_root_as_root_looks_for_the_account_of_an_image(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not confine root. Layers of gigabytes would be inflated to know the account."""
    sandbox = sandboxes.ChangedRoot("unshare")
    monkeypatch.setattr(sandboxes, "usable", lambda: (sandbox, ""))
    engine = engine_of(world)
    build(world, engine)
    sandbox.confines_root = False
    assert engine.cannot_run(STAGED) is None
    with monkeypatch.context() as patch:
        patch.setattr("buildmatrix.engines.oci.engine.identity", lambda *_: Identity(0, 0))
        why_not = engine.cannot_run(STAGED)
    assert isinstance(why_not, ComponentError) and "runs as root" in why_not.message
    sandbox.confines_root = True
    monkeypatch.delattr("buildmatrix.engines.oci.images.Images.tree")
    assert engine.cannot_run(STAGED) is None


def test_a_builder_of_docker_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match="--builder remote is a builder of Docker's"):
        engine_of(world).check("remote")


def test_what_only_a_builder_can_do_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    spec = SPEC.replace('runtime = "any"', 'runtime = "any"\ntemplate = "ours.Dockerfile.j2"')
    world = make_world(tmp_path, spec)
    (world.root / "ours.Dockerfile.j2").write_text(
        '{% extends "cpu.Dockerfile.j2" %}{% block user %}RUN make it\n{{ super() }}{% endblock %}'
    )
    job = job_of(world)
    (error,) = engine_of(world).refusals([job]).values()

    assert isinstance(error, SpecError)
    assert "RUN make it" in error.message and "--engine docker" in error.message
    assert not (tmp_path / "store/images/layout").exists()


def test_rpm_packages_are_refused_with_the_engine_that_installs_them(tmp_path: Path) -> None:
    settings = 'runtime = "any"\npackage-manager = "dnf"\n'
    world = make_world(tmp_path / "one", SPEC.replace('runtime = "any"', settings))
    assert engine_of(world).refusals([job_of(world)]) == {}

    settings += 'system-packages = ["libgomp"]'
    world = make_world(tmp_path / "other", SPEC.replace('runtime = "any"', settings))
    (error,) = engine_of(world).refusals([job_of(world)]).values()
    assert isinstance(error, SpecError)
    assert "the engine `oci` cannot install RPM packages (libgomp)" in error.message
    assert "--engine docker" in error.message


# Base images


def test_a_base_is_found_under_any_spelling_of_its_name(world: World) -> None:
    bases = Bases(Registry(), f"oci:{world.base.layout.folder}")
    for name in (BASE, f"docker.io/library/{BASE}", f"{BASE}@{world.base.descriptor.digest}"):
        assert bases.take(name, "linux/amd64").descriptor.digest == world.base.descriptor.digest


@pytest.mark.parametrize(
    ("name", "platform", "message"),
    [
        ("python:3.12", "linux/amd64", f"has no image of the name python:3.12; it has {BASE}"),
        (BASE, "linux/arm64", "is an image for linux/amd64, not linux/arm64"),
    ],
)
def test_a_base_that_is_not_there_or_for_another_platform(
    world: World, name: str, platform: str, message: str
) -> None:
    with pytest.raises(UndecidedError, match=message):
        Bases(Registry(), f"oci:{world.base.layout.folder}").take(name, platform)


def test_a_base_comes_out_of_an_archive(world: World, tmp_path: Path) -> None:
    from buildmatrix.images.layers import iter_archive

    path = tmp_path / "base.tar"
    path.write_bytes(b"".join(iter_archive(world.base.layout, world.base.descriptor, [BASE])))
    base = Bases(Registry(), f"tar:{path}").take(BASE, "linux/amd64")

    assert base.descriptor.digest == world.base.descriptor.digest
    with base.blob(base.manifest.layers[0]) as chunks:
        data = b"".join(chunks)
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == base.manifest.layers[0].digest


@pytest.mark.parametrize("change", ["layers", "twice", "name"])
def test_an_archive_in_which_engines_find_other_bases_is_undecided(
    world: World, tmp_path: Path, change: str
) -> None:
    """`docker load` reads manifest.json, podman and containerd index.json."""
    from buildmatrix.images.layers import iter_archive

    names = [f"docker.io/library/{BASE}"]
    data = b"".join(iter_archive(world.base.layout, world.base.descriptor, names))
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as source:
        for member in source:
            if member.isfile():
                files[member.name] = source.extractfile(member).read()
    entries = list(files.items())
    if change == "layers":
        (listed,) = json.loads(files["manifest.json"])
        listed["Layers"] = listed["Layers"][:-1]
        entries = list({**files, "manifest.json": json.dumps([listed]).encode()}.items())
    elif change == "twice":
        entries.append(("index.json", b'{"manifests": []}'))
    else:
        index = json.loads(files["index.json"])
        other = {**index["manifests"][0], "digest": f"sha256:{'0' * 64}"}
        index["manifests"].append(other)
        entries = list({**files, "index.json": json.dumps(index).encode()}.items())
    path = tmp_path / "base.tar"
    path.write_bytes(tar(entries))
    with pytest.raises(UndecidedError, match=r"manifest\.json names|comes twice|2 images of"):
        Bases(Registry(), f"tar:{path}").take(BASE, "linux/amd64")


def test_a_damaged_archive_is_undecided(world: World, tmp_path: Path) -> None:
    from buildmatrix.images.layers import iter_archive

    path = tmp_path / "base.tar"
    data = b"".join(iter_archive(world.base.layout, world.base.descriptor, [BASE]))
    digest = world.base.manifest.layers[0].digest.partition(":")[2].encode()
    at = data.index(digest) + 512 + 100
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    base = Bases(Registry(), f"tar:{path}").take(BASE, "linux/amd64")
    with (
        pytest.raises(UndecidedError, match="is damaged"),
        base.blob(base.manifest.layers[0]) as chunks,
    ):
        b"".join(chunks)
    path.write_bytes(data[:2000])
    with pytest.raises(UndecidedError, match="cannot be read"):
        Bases(Registry(), f"tar:{path}").take(BASE, "linux/amd64")


def test_documents_of_a_base_are_no_larger_than_documents(world: World) -> None:
    layout = world.base.layout
    claimed = msgspec.structs.replace(world.base.manifest.config, size=MAX_DOCUMENT + 1)
    manifest = msgspec.structs.replace(world.base.manifest, config=claimed)
    layout.publish(layout.put(encode(manifest), MANIFEST), [BASE])
    with pytest.raises(UndecidedError, match="too large for a document"):
        Bases(Registry(), f"oci:{layout.folder}").take(BASE, "linux/amd64")


def test_a_base_comes_from_a_registry(world: World, server: RegistryServer) -> None:
    layout, image = world.base.layout, world.base.descriptor
    for blob in (world.base.manifest.config, *world.base.manifest.layers):
        server.put("library/python", layout.path(blob.digest).read_bytes())
    server.tag("library/python", "3.11-slim-bookworm", layout.document(image))
    engine = engine_of(world)
    outcome = engine.build(job_of(world), Surroundings(mirror=f"{server.host}/library/"), Silent())

    assert outcome.digest == build(world, engine_of(world, "other", "else")).digest
    engine.close()


def test_a_registry_that_goes_away_ends_the_build_and_the_next_one_goes_on(
    world: World, server: RegistryServer
) -> None:
    layout, image = world.base.layout, world.base.descriptor
    for blob in (world.base.manifest.config, *world.base.manifest.layers):
        server.put("library/python", layout.path(blob.digest).read_bytes())
    server.tag("library/python", "3.11-slim-bookworm", layout.document(image))
    layer = server.path_of("library/python", world.base.manifest.layers[0].digest)
    server.misbehave(f"GET {layer}", answering(503), times=HASTY.tries)
    mirror = Surroundings(mirror=f"{server.host}/library/")
    engine = engine_of(world)

    with pytest.raises(UndecidedError, match="503"):
        engine.build(job_of(world), mirror, Silent())
    assert check_whole(OciLayout(world.root / ".buildmatrix/state/images")) == []
    assert "503" in job_of(world).log.read_text()
    assert engine.build(job_of(world), mirror, Silent()).digest
    engine.close()


# Publishing


def pushable(world: World, server: RegistryServer, engine: OciEngine) -> list[BuildJob]:
    """Two targets of one image, which is enough to see what is published when."""
    outcome = build(world, engine)
    return [
        replace(job_of(world, f"{server.host}/{name}:1", f"{server.host}/{name}:new"),
                id=name, config=outcome.config, digest=outcome.digest)
        for name in ("one", "two")
    ]  # fmt: skip


def tags_of(server: RegistryServer) -> dict[str, str]:
    """Tag → digest; every tag leads to a whole image."""
    found = {}
    for name in ("one", "two"):
        repository = server._repository(name)
        for tag, (data, _) in repository.manifests.items():
            manifest = json.loads(data)
            for blob in (manifest["config"], *manifest["layers"]):
                assert len(repository.blobs[blob["digest"]]) == blob["size"]
            if not tag.startswith("sha256:"):
                found[f"{name}:{tag}"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return found


def test_all_tags_of_all_targets_are_pushed(world: World, server: RegistryServer) -> None:
    engine = engine_of(world)
    jobs = pushable(world, server, engine)
    assert engine.unreachable([tag for job in jobs for tag in job.tags], None) == {}
    pushed = engine.push(jobs, around(world), Silent())

    digest = engine.present([STAGED])[STAGED]
    assert pushed.error is None
    assert pushed.digests == {"one": digest, "two": digest}
    assert set(tags_of(server)) == {"one:1", "one:new", "two:1", "two:new"}
    engine.close()


def test_without_tags_the_images_are_pushed_alone(world: World, server: RegistryServer) -> None:
    engine = engine_of(world)
    jobs = pushable(world, server, engine)
    pushed = engine.push(jobs, around(world), Silent(), tagged=False)

    assert pushed.error is None
    assert tags_of(server) == {}
    assert {*server._repository("one").manifests} == {pushed.digests["one"]}
    engine.close()


def test_no_tag_moves_where_a_blob_of_another_target_cannot_be_pushed(
    world: World, server: RegistryServer
) -> None:
    engine = engine_of(world)
    jobs = pushable(world, server, engine)
    server.misbehave("POST /v2/two/blobs/uploads/", answering(403), times=100)
    pushed = engine.push(jobs, around(world), Silent())

    assert isinstance(pushed.error, BuildError), pushed.error
    assert (pushed.stopped_at, pushed.digests) == ("two", {})
    assert tags_of(server) == {}
    engine.close()


def test_an_image_that_is_gone_is_not_pushed(world: World, server: RegistryServer) -> None:
    engine = engine_of(world)
    jobs = pushable(world, server, engine)
    jobs[1] = replace(jobs[1], digest=f"sha256:{'1' * 64}")
    pushed = engine.push(jobs, around(world), Silent())

    assert isinstance(pushed.error, UndecidedError)
    assert "is no longer on this machine" in pushed.error.message
    assert not server._repository("one").blobs
    engine.close()


def test_another_image_of_the_same_configuration_is_not_pushed(
    world: World, server: RegistryServer
) -> None:
    """Whoever writes into the layout may name the configuration with layers that nobody scanned."""
    engine = engine_of(world)
    jobs = pushable(world, server, engine)
    layout = OciLayout(world.root / ".buildmatrix" / "state" / "images")
    (image,) = layout.images()
    manifest = layout.manifest(image)
    other = msgspec.structs.replace(manifest, layers=manifest.layers[:1])
    layout.publish(layout.put(encode(other), MANIFEST), ["a first name"])
    assert engine.push(jobs[:1], around(world), Silent()).digests == {"one": image.digest}
    engine.close()


def test_a_registry_that_does_not_answer_is_told_before_the_build(world: World) -> None:
    with RegistryServer() as server:
        host = server.host
    engine = engine_of(world)
    assert set(engine.unreachable([f"{host}/a:1", f"{host}/b:1"], None)) == {f"{host}/a:1"}
    engine.close()


# Faults


def test_a_build_that_is_cancelled_ends_and_goes_on_later(world: World) -> None:
    engine = engine_of(world)

    class Cancelling(Silent):
        def step(self, target: str, text: str) -> None:
            engine.cancel()

    with pytest.raises(Interrupted):
        engine.build(job_of(world), around(world), Cancelling())
    assert check_whole(OciLayout(world.root / ".buildmatrix/state/images")) == []
    assert engine_of(world).present([build(world).digest]) != {}


def test_two_builds_in_one_cache_at_once_make_the_same_image(world: World) -> None:
    barrier = threading.Barrier(2)

    def run(state: str) -> str:
        engine = engine_of(world, state)
        barrier.wait(300)
        return build(world, engine).digest

    with ThreadPoolExecutor(2) as pool:
        digests = set(pool.map(run, ("a", "b")))
    assert len(digests) == 1
    for state in ("a", "b"):
        assert check_whole(OciLayout(world.root / ".buildmatrix" / state / "images")) == [*digests]


def steps_until(action: Callable[[], object], kill_at: int | None) -> int:
    """Run `action`, count the calls within buildmatrix, and be killed at the one of that number."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and "/buildmatrix/" in frame.f_code.co_filename:
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return count


def killed(action: Callable[[], object], kill_at: int) -> bool:
    """Run `action` in a process of its own; whether it was killed."""
    gc.freeze()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            steps_until(action, kill_at)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def moments(seed: int, total: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(1, total), KILLS))


def test_a_build_that_is_killed_leaves_no_half_image_and_the_next_one_goes_on(
    world: World,
) -> None:
    def whole(state: str, store: str) -> None:
        engine = engine_of(world, state, store)
        build(world, engine)
        engine.release(STAGED, job_of(world).tags)

    total = steps_until(lambda: whole("first", "first"), None)
    expected = engine_of(world, "first").present(job_of(world).tags)
    kills = 0
    for number, moment in enumerate(moments(1, total)):
        # Every fifth one begins with nothing; the others find what the last one left.
        state = store = f"k{number // 5}"
        kills += killed(lambda state=state, store=store: whole(state, store), moment)
        for layout in (
            OciLayout(world.root / ".buildmatrix" / state / "images"),
            world.store(store).layout,
        ):
            assert set(check_whole(layout)) <= set(expected.values())
    assert kills >= KILLS // 2, "most moments lie before the end"
    for number in range(KILLS // 5):
        whole(f"k{number}", f"k{number}")
        assert engine_of(world, f"k{number}").present(job_of(world).tags) == expected


def test_a_push_that_is_killed_leaves_whole_images_and_the_next_one_goes_on(
    world: World, server: RegistryServer
) -> None:
    jobs = pushable(world, server, engine_of(world))

    def push() -> None:
        engine = engine_of(world)
        pushed = engine.push(jobs, around(world), Silent())
        engine.close()
        assert pushed.error is None, pushed.error

    with RegistryServer() as first:
        moved = [
            replace(job, tags=tuple(tag.replace(server.host, first.host) for tag in job.tags))
            for job in jobs
        ]
        engine = engine_of(world)
        total = steps_until(lambda: engine.push(moved, around(world), Silent()), None)
        engine.close()
    for moment in moments(2, total)[: KILLS // 2]:
        killed(push, moment)
        assert set(tags_of(server)) <= {"one:1", "one:new", "two:1", "two:new"}
    push()
    assert set(tags_of(server)) == {"one:1", "one:new", "two:1", "two:new"}


def test_a_full_disk_for_inflated_layers_is_one_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sandboxes, "usable", lambda: (SimpleNamespace(has_owners=False), ""))
    engine = engine_of(world)
    build(world, engine)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("buildmatrix.engines.oci.images.Spool.store", full)
    with pytest.raises(BuildError, match=f"^the disk of {tmp_path} is full"), engine.runner(STAGED):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
@pytest.mark.parametrize("part", ["store", "state"])
def test_a_full_disk_fails_the_build_and_the_next_one_goes_on(
    world: World, tmp_path: Path, part: str
) -> None:
    # Bytes that no compressor shrinks, in a layer of their own.
    (world.root / "app/random").write_bytes(random.Random(3).randbytes(400_000))
    place = tmp_path / "small"
    place.mkdir()
    options = "size=300k" if part == "store" else "size=150k"
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True
    )
    assert mount.returncode == 0, mount.stderr
    try:
        target = tmp_path / "store" if part == "store" else world.root / ".buildmatrix"
        target.symlink_to(place)
        with pytest.raises(BuildmatrixError, match="is full"):
            build(world)
        for layout in (
            world.store().layout,
            OciLayout(world.root / ".buildmatrix/state/images"),
        ):
            assert check_whole(layout) == []
        subprocess.run(["mount", "-o", "remount,size=50m", place], check=True)
        assert build(world).digest
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_base_of_another_architecture_is_told_with_what_there_is(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    base = make_base(tmp_path / "arm", architecture="arm64")
    base.layout.publish(base.descriptor, [BASE])
    with pytest.raises(UndecidedError, match="is an image for linux/arm64, not linux/amd64"):
        engine_of(world).build(
            job_of(world), Surroundings(mirror=f"oci:{tmp_path / 'arm'}"), Silent()
        )
