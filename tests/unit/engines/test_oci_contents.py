from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from oci_world import (
    SPEC,
    SYSTEM,
    TARGET,
    LayerFile,
    World,
    file,
    files_of,
    folder,
    link,
    make_base,
    make_world,
    origins,
    sha256,
    write_lock,
)
from package_index import wheel_bytes
from wheel_cases import make_wheel

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, SpecError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.oci.bases import BuiltImage
from buildmatrix.engines.oci.contents import assemble
from buildmatrix.engines.oci.recipe import recipe
from buildmatrix.images.documents import Execution

INSTALLED = 'pyproject = "pyproject.toml"\ninstall-project = true\n'
SITE = "opt/venv/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def build(world: World, store: str = "store") -> BuiltImage:
    with world.store(store) as place:
        return assemble(
            world.spec, world.spec.targets[0], world.lock(), world.base, place, Silent()
        )


def contents(world: World, image: BuiltImage, store: str = "store") -> dict[str, tuple[str, bytes]]:
    """Path → what it is, in the words of the last layer that has it."""
    found = {}
    with world.store(store) as place:
        for layer in image.layers:
            for name, (member, data) in files_of(place.layout, layer.descriptor).items():
                kind = {b"5": "folder", b"2": "link"}.get(member.type, "file")
                shown = (
                    f"{kind} {member.mode:o} {member.uid}:{member.gid} {member.linkname}".strip()
                )
                found[name] = (shown, data)
    return found


def test_an_image_holds_what_its_dockerfile_says(world: World) -> None:
    image = build(world)
    found = contents(world, image)
    assert found["opt/venv/bin/python"] == ("link 777 0:0 /usr/local/bin/python3.11", b"")
    assert found["opt/venv/bin/python3.11"][0] == "link 777 0:0 python"
    configuration = found["opt/venv/pyvenv.cfg"][1].decode().splitlines()
    assert configuration[:2] == ["home = /usr/local/bin", "implementation = CPython"]
    assert configuration[3:] == ["version_info = 3.11.2", "include-system-site-packages = false"]
    assert b"VIRTUAL_ENV='/opt/venv'\n" in found["opt/venv/bin/activate"][1]
    assert found[f"{SITE}/small.py"] == ("file 644 0:0", b"y = 2\n")
    assert found["opt/venv/bin/tool"] == ("file 755 0:0", b"#!/opt/venv/bin/python\nprint(1)\n")
    assert found["opt"][0] == "folder 775 0:0"
    assert found["app/run.sh"] == ("file 755 0:0", b"#!/bin/sh\n")
    assert found["home/app"][0] == "folder 750 10001:10001"
    assert found["home/app/.profile"] == ("file 644 10001:10001", b"# profile\n")
    passwd = found["etc/passwd"][1].decode()
    assert passwd.endswith("\napp:x:10001:10001::/home/app:/bin/sh\n")
    assert not any(name.endswith(".pyc") for name in found if "odd/__pycache__" not in name)


def test_the_configuration_is_that_of_the_dockerfile(world: World) -> None:
    image = build(world)
    run = image.configuration.config
    assert dict(item.split("=", 1) for item in run.env) == {
        "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin",
        "VIRTUAL_ENV": "/opt/venv",
        "PYTHONUNBUFFERED": "1",
        "MODE": "cpu",
        "QUOTED": 'a "b" $c \\d',
    }
    assert (run.user, run.working_dir, run.cmd) == ("10001", "/app", ("python", "-m", "inferno"))
    assert run.labels["dev.buildmatrix.target"] == TARGET
    assert run.labels["dev.buildmatrix.lock-digest"] == world.lock().digest
    assert image.manifest.annotations == {
        "org.opencontainers.image.base.name": "python:3.11-slim-bookworm",
        "org.opencontainers.image.base.digest": world.base.descriptor.digest,
    }
    assert image.base == ("python:3.11-slim-bookworm", world.base.descriptor.digest)
    steps = [step for step in image.configuration.history if not step.empty_layer]
    assert len(steps) == len(image.layers) == len(image.configuration.rootfs.diff_ids)
    words = [step.created_by.split()[0] for step in steps]
    assert words[-4:] == ["RUN", "COPY", "COPY", "COPY"]
    dockerfile = world.root / ".buildmatrix/generated" / TARGET / "Dockerfile"
    assert not dockerfile.exists()  # nothing is written into the project


def test_heavy_distributions_have_a_layer_of_their_own(world: World) -> None:
    image = build(world)
    heavy = image.layers[origins(image).index("heavy 1.0")]
    with world.store() as place:
        names = [name for name in files_of(place.layout, heavy.descriptor) if "heavy" in name]
    assert len(names) == 16 + 5 + 2


def test_the_project_itself_is_installed_from_its_wheel(tmp_path: Path) -> None:
    world = make_world(tmp_path, SPEC.replace("[defaults]\n", f"[defaults]\n{INSTALLED}"))
    (world.root / "pyproject.toml").write_text('[project]\nname = "inferno"\ndependencies = []\n')
    folder = world.root / world.spec.targets[0].wheel_folder
    with pytest.raises(BuildmatrixError, match=r"server has no wheel of pyproject\.toml"):
        build(world)
    folder.mkdir(parents=True)
    name, data = wheel_bytes("inferno", "1.0", modules={"inferno": "z = 3\n"})
    (folder / name).write_bytes(data)
    found = contents(world, build(world))
    assert found[f"{SITE}/inferno/__init__.py"] == ("file 644 0:0", b"z = 3\n")
    assert f"{SITE}/small.py" in found


def test_two_targets_share_what_they_lock_alike(tmp_path: Path) -> None:
    spec = (
        SPEC + '\n[backend.cuda]\nruntime = { "12.8" = {} }\nbase = "python:3.11-slim-bookworm"\n'
    )
    world = make_world(tmp_path, spec)
    ids = [target.id for target in world.spec.targets]
    for name in ids:
        write_lock(world.root, name)
    with world.store() as place:
        images = [
            assemble(world.spec, target, world.lock(target.id), world.base, place, Silent())
            for target in world.spec.targets
        ]
    first, second = ({layer.descriptor.digest for layer in image.layers} for image in images)
    assert len(ids) == 2 and first == second
    assert images[0].descriptor.digest != images[1].descriptor.digest


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_oci_contents import World, build, make_base
world = World(Path(sys.argv[1]), make_base(Path("base")))
print(build(world).descriptor.digest)
"""


def test_the_same_image_on_every_machine_and_day(world: World, tmp_path: Path) -> None:
    digests = {build(world).descriptor.digest}
    for number, (zone, mask) in enumerate([("Asia/Tokyo", 0o077), ("America/Lima", 0)]):
        place = tmp_path / str(number)
        shutil.copytree(world.root, place / "project")
        os.utime(place / "project" / "app" / "run.sh", (number, number))
        for path in (place / "project" / "app").rglob("*"):
            path.chmod(path.stat().st_mode & ~mask | (0o022 & ~mask))
        tests = Path(__file__).parent
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, place / "project", tests, tests.parent / "locks"],
            env={**os.environ, "TZ": zone, "LC_ALL": "C", "PYTHONHASHSEED": str(number)},
            umask=mask, cwd=place, capture_output=True, text=True,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def test_a_second_build_makes_no_layer_and_asks_for_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    first = build(world)
    blobs = {path: path.stat().st_ino for path in (tmp_path / "store").rglob("sha256/*")}
    asked = list(world.base.asked)
    for wheel in (world.root / "wheels").iterdir():
        wheel.unlink()
    assert build(world).descriptor == first.descriptor
    assert {path: path.stat().st_ino for path in (tmp_path / "store").rglob("sha256/*")} == blobs
    assert world.base.asked == asked


def test_a_blob_that_was_lost_is_made_again(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    image = build(world)
    with world.store() as place:
        for layer in image.layers:
            place.layout.path(layer.descriptor.digest).write_bytes(b"cut")
    assert build(world).descriptor == image.descriptor
    contents(world, image)


# The base


def without(part: str) -> list[LayerFile]:
    return [item for item in SYSTEM if part not in item.entry.path]


def test_folders_of_the_base_keep_owner_and_mode(tmp_path: Path) -> None:
    world = make_world(tmp_path, SPEC.replace('"/app"', '"/srv/data/app"'))
    world.base = make_base(
        tmp_path / "other",
        [*SYSTEM, folder("var/srv/data", 0o2775), link("srv", "/var/srv")],
    )
    found = contents(world, build(world))
    assert found["var/srv/data"][0] == "folder 2775 0:0"
    assert found["var/srv/data/app/run.sh"][0] == "file 755 0:0"
    assert found["srv"][0] == "link 777 0:0 /var/srv"


def test_links_of_the_base_stay_where_accounts_are_written(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    moved = [
        replace(item, entry=replace(item.entry, path=item.entry.path.replace("etc/", "conf/", 1)))
        for item in SYSTEM
        if item.entry.path != "home"
    ]
    world.base = make_base(
        tmp_path / "other",
        [*moved, link("etc", "conf"), link("home", "var/home"), folder("var/home")],
    )
    with pytest.raises(BuildmatrixError, match=r"/conf/passwd|/etc/passwd"):
        build(world)  # its bytes were not kept under that name
    kept = [item for item in SYSTEM if item.entry.path != "home"]
    world.base = make_base(
        tmp_path / "third", [*kept, link("home", "var/home"), folder("var/home")]
    )
    found = contents(world, build(world))
    assert found["home"][0] == "link 777 0:0 var/home"
    assert found["var/home/app"][0].startswith("folder 750 10001:10001")


@pytest.mark.parametrize(
    ("user", "owner"),
    [("", "0:0"), ("root", "0:0"), ("1000", "1000:1000"), ("1000:44", "1000:44"), ("x", None)],
)
def test_a_working_folder_belongs_to_the_user_of_the_moment(
    tmp_path: Path, user: str, owner: str | None
) -> None:
    world = with_template(
        tmp_path,
        "{% block app %}\n{{ super() -}}\n"
        + f"USER {user or 'root'}\nWORKDIR /new/below\n"
        + "{% endblock %}",
    )
    if owner is None:
        with pytest.raises(SpecError, match="whose number"):
            build(world)
        return
    found = contents(world, build(world))
    assert found["new"][0] == found["new/below"][0] == f"folder 755 {owner}"


@pytest.mark.parametrize(
    ("layers", "run", "why"),
    [
        ([file("etc/passwd", "")], None, "has no python3.11 on its PATH"),
        (
            [*SYSTEM],
            Execution(env=("PATH=/nowhere",)),
            "has no python3.11 on its PATH (/nowhere)",
        ),
        ([*SYSTEM, folder("opt/venv")], None, "has /opt/venv already"),
        ([*SYSTEM, file("app", "")], None, "/app is a file already"),
        ([*SYSTEM, link("a", "b"), link("b", "a")], Execution(on_build=("RUN x",)), "ONBUILD"),
        (
            [*without("python3.11"), file("usr/bin/python3.11", b"no version", 0o755)],
            Execution(),
            "does not say which release of Python 3.11",
        ),
        (
            [*without("etc/passwd"), file("etc/passwd", "app:x:5:5::/:/bin/sh\n")],
            None,
            "has a user app with another number",
        ),
    ],
)
def test_what_only_the_base_shows_is_said_before_any_wheel_is_fetched(
    tmp_path: Path, layers: list[object], run: Execution | None, why: str
) -> None:
    world = make_world(tmp_path)
    world.base = make_base(tmp_path / "other", layers, run=run)  # type: ignore[arg-type]
    with pytest.raises(BuildmatrixError) as error:
        build(world)
    assert why in error.value.message
    if "/app is" not in why:
        assert not (tmp_path / "store" / "images" / "wheels").exists()


def test_a_base_for_another_platform_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path, architecture="arm64")
    with pytest.raises(UndecidedError, match="for linux/arm64, and the target is for linux/amd64"):
        build(world)


def test_a_layer_that_is_not_the_configurations_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    other = msgspec.structs.replace(
        world.base.configuration.rootfs, diff_ids=(f"sha256:{'0' * 64}",)
    )
    world.base.configuration = msgspec.structs.replace(world.base.configuration, rootfs=other)
    with pytest.raises(UndecidedError, match="not the one that its configuration names"):
        build(world)


def test_an_existing_account_is_taken_as_it_is(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    there = file("etc/passwd", "root:x:0:0::/root:/bin/sh\nweb:x:10001:33::/var/www:/bin/sh\n")
    world.base = make_base(tmp_path / "other", [*without("etc/passwd"), there])
    found = contents(world, build(world))
    assert found["etc/passwd"][1] == there.data
    assert found["etc/group"][1].decode().splitlines()[1] == "video:x:44:web"
    assert "home/app" not in found


# Other platforms and Pythons: nothing of an image runs here


def test_an_image_for_another_processor_and_python(tmp_path: Path) -> None:
    spec = SPEC.replace('"3.11"]', '"3.13"]').replace(
        "[backend.cpu]", '[backend.cpu]\nplatforms = ["linux/arm64"]'
    )
    world = make_world(tmp_path, spec)
    (target,) = world.spec.targets
    make_wheel(
        world.root / "wheels", "native", {"native.so": b"elf"},
        tag="cp313-cp313-manylinux_2_17_aarch64",
    )  # fmt: skip
    make_wheel(
        world.root / "wheels",
        "native2",
        {"wrong.so": b"elf"},
        tag="cp313-cp313-manylinux_2_17_x86_64",
    )
    write_lock(world.root, target.id)
    why = recipe(world.spec, target, world.lock(target.id)).problems
    assert len(why) == 1 and "native2" in why[0].message
    next((world.root / "wheels").glob("native2*")).unlink()
    write_lock(world.root, target.id)
    python = file("usr/local/bin/python3.13", b"\x003.13.0rc1\x00", 0o755)
    library = file("usr/local/lib/python3.13/os.py", b"")
    world.base = make_base(tmp_path / "arm", [*SYSTEM, python, library], architecture="arm64")
    with world.store() as place:
        image = assemble(world.spec, target, world.lock(target.id), world.base, place, Silent())
    found = contents(world, image)
    assert found["opt/venv/lib/python3.13/site-packages/native.so"] == ("file 644 0:0", b"elf")
    assert b"version_info = 3.13.0rc1\n" in found["opt/venv/pyvenv.cfg"][1]
    assert "/lib/python3.13/" in found["opt/venv/bin/activate_this.py"][1].decode()
    assert image.configuration.architecture == "arm64"


# What cannot be built here


def with_template(world_place: Path, block: str) -> World:
    world = make_world(world_place, SPEC + 'template = "ours.Dockerfile.j2"\n')
    (world.root / "ours.Dockerfile.j2").write_text(
        '{% extends "cpu.Dockerfile.j2" %}\n' + block + "\n"
    )
    return world


@pytest.mark.parametrize(
    ("block", "line", "why"),
    [
        ("{% block final %}\n{{ super() -}}\nRUN ldconfig\n{% endblock %}", 4, "`RUN ldconfig`"),
        ("{% block app %}\n{{ super() -}}\nADD x /x\n{% endblock %}", 4, "`ADD x /x`"),
        ("{% block app %}\n{{ super() -}}\nCOPY --chown=1 app /x\n{% endblock %}", 4, "the flag"),
        ("{% block app %}\n{{ super() -}}\nCOPY app/* /x\n{% endblock %}", 4, "a wildcard"),
        ("{% block app %}\n{{ super() -}}\nCOPY a b /x/\n{% endblock %}", 4, "more than one"),
        ("{% block app %}\n{{ super() -}}\nHEALTHCHECK CMD x\n{% endblock %}", 4, "HEALTHCHECK"),
        ("{% block build_env %}\nENV UV_NO_CACHE=1\n{% endblock %}", 3, "would change what is"),
        ("{% block build_tools %}\nRUN make\n{% endblock %}", 3, "`RUN make`"),
        ("{% block env %}\nENV A=${B:-c}\n{% endblock %}", 3, "is more than a variable"),
        ("{% block base %}\nFROM x AS other\n{{ super() -}}\n{% endblock %}", 3, "FROM x AS other"),
        ("{% block app %}\n{% endblock %}", None, "copies no `/opt/venv`"),
        ("{% block install %}\n{% endblock %}", None, "does not install the lock"),
        ("{% block app %}\n{{ super() -}}\nRUN <<EOF\nls\nEOF\n{% endblock %}", None, "heredoc"),
    ],
)  # fmt: skip
def test_what_needs_a_builder_is_refused_with_its_place(
    tmp_path: Path, block: str, line: int | None, why: str
) -> None:
    world = with_template(tmp_path, block)
    (target,) = world.spec.targets
    problems = recipe(world.spec, target, world.lock()).problems
    assert problems and why in problems[0].message
    assert TARGET in problems[0].message and "--engine docker" in str(problems[0])
    if line is not None:
        assert (problems[0].file, problems[0].line) == ("ours.Dockerfile.j2", line)
    with pytest.raises(SpecError):
        build(world)
    assert world.base.asked == []


@pytest.mark.parametrize(
    "block",
    [
        '{% block command %}\nENTRYPOINT ["/bin/x"]\n{% endblock %}',
        "{% block command %}\nEXPOSE 80 53/udp\nVOLUME /data\nSTOPSIGNAL SIGINT\nCMD ls $HOME\n"
        "{% endblock %}",
        "{% block base %}\n{{ super() -}}\nWORKDIR /tmp\n{% endblock %}",
        "{% block user %}\nUSER {{ target.user.name }}\n{% endblock %}",
    ],
)
def test_what_is_configuration_alone_a_template_may_say(tmp_path: Path, block: str) -> None:
    world = with_template(tmp_path, block)
    run = build(world).configuration.config
    if "ENTRYPOINT" in block:
        assert (run.entrypoint, run.cmd) == (("/bin/x",), ())
    if "EXPOSE" in block:
        assert run.cmd == ("/bin/sh", "-c", "ls $HOME")
        assert (dict(run.exposed_ports), dict(run.volumes)) == (
            {"80/tcp": {}, "53/udp": {}}, {"/data": {}}
        )  # fmt: skip
        assert run.stop_signal == "SIGINT"


def test_source_distributions_are_refused_with_the_line_of_the_lock(world: World) -> None:
    lock = world.lock()
    broken = replace(lock.packages[0], wheels=(), source_only=True)
    changed = replace(lock, packages=(broken, *lock.packages[1:]))
    (problem,) = recipe(world.spec, world.spec.targets[0], changed).problems
    assert "heavy 1.0 cannot be installed without building it" in problem.message
    assert problem.line == 3 and problem.file.endswith(f"pylock.{TARGET}.toml")


# Copied files


def test_ignored_files_stay_outside(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    (world.root / ".dockerignore").write_text("**/*.secret\napp/cache\n!app/cache/keep\n")
    app = world.root / "app"
    for name in ("a.secret", "cache/x", "cache/keep", "__pycache__/x.pyc", ".git/HEAD"):
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text(name)
    (app / "empty").mkdir()
    (app / "link").symlink_to("./run.sh")
    (app / "private").write_text("p")
    (app / "private").chmod(0o600)
    found = contents(world, build(world))
    names = {name for name in found if name.startswith("app/")}
    assert names == {
        "app/cache", "app/cache/keep", "app/empty", "app/inferno", "app/inferno/__init__.py",
        "app/link", "app/private", "app/run.sh",
    }  # fmt: skip
    assert found["app/link"][0] == "link 777 0:0 ./run.sh"
    assert found["app/private"][0] == "file 644 0:0"


@pytest.mark.parametrize(
    ("copy", "path"),
    [
        ('["app/run.sh", "/srv/tool"]', "srv/tool"),
        ('["app/run.sh", "/srv/"]', "srv/run.sh"),
        ('["app/run.sh", "/home"]', "home/run.sh"),
    ],
)
def test_a_file_goes_where_docker_puts_it(tmp_path: Path, copy: str, path: str) -> None:
    world = make_world(tmp_path, SPEC.replace('["app", "/app"]', copy))
    found = contents(world, build(world))
    assert found[path][0].startswith("file 755")


def test_a_source_outside_of_the_context_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    (tmp_path / "secret").write_text("s")
    (world.root / "app" / "run.sh").unlink()
    (world.root / "app" / "inferno" / "__init__.py").unlink()
    (world.root / "app" / "inferno").rmdir()
    (world.root / "app").rmdir()
    (world.root / "app").symlink_to(tmp_path / "secret")
    with pytest.raises(SpecError):
        build(world)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    os.mkfifo(world.root / "app" / "pipe")
    with pytest.raises(UndecidedError, match="neither file, folder nor link"):
        build(world)


# Wheels


def test_a_wheel_of_another_hash_is_not_installed(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    wheel = next((world.root / "wheels").glob("small*"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(UndecidedError, match="it is another file than was locked"):
        build(world)
    folder = tmp_path / "store" / "images" / "wheels"
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]


def test_what_an_earlier_run_left_is_gone_on_with(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    wheel = next((world.root / "wheels").glob("small*"))
    folder = tmp_path / "store" / "images" / "wheels"
    folder.mkdir(parents=True)
    for begin in (wheel.read_bytes()[:100], b"of another file", wheel.read_bytes() * 2):
        (folder / f"{sha256(wheel)}.part").write_bytes(begin)
        with world.store() as place:
            item = next(one for one in world.lock().packages if one.name == "small")
            path = place.wheels.fetch(item.wheels[0], world.lock())
        assert path.read_bytes() == wheel.read_bytes()
        path.unlink()


def test_a_wheel_gets_its_name_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody computes its hash again after a power cut."""
    synced: dict[int, int] = {}

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    world = make_world(tmp_path)
    with world.store() as place:
        for package in world.lock().packages:
            status = place.wheels.fetch(package.wheels[0], world.lock()).stat()
            assert synced[status.st_ino] == status.st_size > 0


def test_json_of_the_image_is_canonical(world: World) -> None:
    image = build(world)
    with world.store() as place:
        data = place.layout.document(image.manifest.config)
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data
