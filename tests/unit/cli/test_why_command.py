"""`why`: what a SOURCE may be, what the answer is written as, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec._core
import pytest
from built_targets import BUILT, leave_built, leave_record

from buildmatrix import cli
from buildmatrix.base.data import replace
from buildmatrix.commands.workspace import Workspace
from buildmatrix.engines.model import ImageFacts
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory, Unread
from buildmatrix.images import store
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.reports import json_form as report_json
from buildmatrix.reports.run import assemble
from buildmatrix.sources.state_folder import FOLDER, State
from buildmatrix.sources.target_layers import detach_layers

#: A real extension module: it links libc.so.6, with versioned symbols.
MODULE = Path(msgspec._core.__file__)
SITE = "usr/lib/python3.11/site-packages"
TARGET = "cpu-py311-server"
SPEC = """\
schema = 1
[project]
name = "inferno"
version = "1.4.0"
image = "registry.example.com/{project}"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""
LOCK = """\
lock-version = "1.0"
created-by = "buildmatrix"
[[packages]]
name = "acme"
version = "1.0"
wheels = [{name = "acme-1.0-py3-none-any.whl", url = "https://example.com/acme-1.0-py3-none-any.whl", hashes = {sha256 = "%s"}}]
[tool.buildmatrix.packages]
acme = { via = ["base.in:2"] }
""" % ("0" * 64)  # noqa: E501

INVENTORY = Inventory(
    distributions=(Distribution("acme", "1.0", f"{SITE}/acme-1.0.dist-info"),),
    binaries=(
        Binary(
            f"{SITE}/acme/core.so",
            100,
            Elf(64, True, "x86_64", "dyn", needed=("libcudart.so.12",)),
            "acme==1.0",
        ),
    ),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification whose target was built: its lock and the inventory of its image are there."""
    folder = tmp_path / "project"
    (folder / "locks").mkdir(parents=True)
    (folder / "buildmatrix.toml").write_text(SPEC)
    (folder / "base.in").write_text("# what the service needs\nacme[gpu]>=1  # for speed\n")
    (folder / f"locks/pylock.{TARGET}.toml").write_text(LOCK)
    built(folder, INVENTORY)
    monkeypatch.chdir(folder)
    return folder


def built(folder: Path, inventory: Inventory) -> None:
    """Leave what a build leaves that read no layers of its image."""
    files = State(folder / FOLDER).target_files(TARGET)
    leave_built(files, inventory)
    detach_layers(files, BUILT, Inventory(), print)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(part) for part in arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), " ".join(printed.out.split()), printed.err


# Targets of the specification


@pytest.mark.parametrize("source", [TARGET, f"target:{TARGET}"])
def test_a_target_that_was_built_is_asked_without_its_image(
    project: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    code, out, _ = run(capsys, "why", source, "libcudart")
    assert code == 0
    assert "base.in:2: acme[gpu]>=1" in out
    assert "acme 1.0 └ …/acme/core.so └ libcudart.so.12" in out


def test_the_second_question_is_answered_from_the_graph_that_was_kept(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(capsys, "why", TARGET, "libcudart")
    monkeypatch.setattr(store, "read", lambda path: pytest.fail("the inventory was read again"))
    assert run(capsys, "why", TARGET, "libcudart") == first


def test_the_specification_is_loaded_again_only_when_it_changed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(capsys, "why", TARGET, "libcudart")
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "load", lambda _: pytest.fail("it was loaded again"))
        assert run(capsys, "why", TARGET, "libcudart") == first
        assert run(capsys, "why", f"target:{TARGET}", "libcudart") == first
    (project / "buildmatrix.toml").write_text(SPEC.replace('["server"]', '["worker"]'))
    code, _, err = run(capsys, "why", f"target:{TARGET}", "libcudart")
    assert (code, "has no target" in err) == (2, True)


@pytest.mark.parametrize(
    ("id", "said"),
    [
        *((id, "has no target") for id in ("../cpu", "..", "a/../cpu-py311-server")),
        ("", "target: names nothing"),
    ],
)
def test_an_identifier_is_never_a_path(
    project: Path, capsys: pytest.CaptureFixture[str], id: str, said: str
) -> None:
    run(capsys, "why", TARGET, "libcudart")
    code, _, err = run(capsys, "why", f"target:{id}", "libcudart")
    assert (code, said in err) == (2, True)


def test_a_new_build_a_new_lock_and_new_requirements_give_a_new_answer(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "why", TARGET, "libcudart")
    (project / "base.in").write_text("# nothing\nacme>=2\n")
    assert "base.in:2: acme>=2" in run(capsys, "why", TARGET, "libcudart")[1]
    lock = project / f"locks/pylock.{TARGET}.toml"
    lock.write_text(LOCK.replace("base.in:2", "base.in:1"))
    assert "base.in:1" in run(capsys, "why", TARGET, "libcudart")[1]
    built(project, replace(INVENTORY, binaries=()))
    assert "Nothing in target" in run(capsys, "why", TARGET, "libcudart")[1]


def test_a_kept_graph_that_is_damaged_is_made_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "why", TARGET, "libcudart")
    (kept,) = (project / f".buildmatrix/state/{TARGET}/made").iterdir()
    for damage in (b"", kept.read_bytes()[:-9], b"\xc1" * 100):
        kept.write_bytes(damage)
        assert run(capsys, "why", TARGET, "libcudart") == first


def test_a_target_that_was_not_built_says_what_to_do(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / f".buildmatrix/state/{TARGET}/inventory.json").unlink()
    code, _, err = run(capsys, "why", TARGET, "libcudart")
    assert code == 3
    assert f"buildmatrix build --select {TARGET}" in err


def test_a_target_that_does_not_exist_is_named_with_what_is_near(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "why", "target:cpu-py311-serve", "libcudart")
    assert code == 2
    assert f"did you mean {TARGET}?" in err


def test_a_target_without_a_specification_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "why", "target:cpu-py311", "x")
    assert (code, "there is no specification here" in err) == (2, True)


def test_a_target_that_is_spelled_like_one_is_suggested_in_place_of_an_image(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "image_engine", lambda *_: StandInEngine({}))
    code, _, err = run(capsys, "why", "cpu-py311-serve", "libcudart")
    assert code == 3
    assert f"did you mean target:{TARGET}?" in err


def test_an_empty_library_is_a_usage_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "why", TARGET, " ")
    assert (code, "LIBRARY is empty" in err) == (2, True)


# The layers of a target

IMAGE = f"sha256:{'1' * 64}"


class StandInEngine:
    """Has images by name, as the bytes of `docker save`; counts what is exported."""

    def __init__(self, images: dict[str, bytes]) -> None:
        self.images = images
        self.exported: list[str] = []

    def image(self, name: str) -> ImageFacts | None:
        return ImageFacts(name, {}, {}, 1000, "") if name in self.images else None

    @contextmanager
    def export(self, name: str) -> Iterator[Iterator[bytes]]:
        self.exported.append(name)
        yield iter([self.images[name]])


def saved_image(module: bytes = b"x") -> bytes:
    """An image of two layers, the second of which has acme; what docker save writes."""

    def tar(files: dict[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as out:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    history = [{"created_by": "ADD root.tar /"}, {"created_by": "COPY /opt/venv /opt/venv"}]
    diffs = [f"sha256:{number * 64}" for number in "23"]
    configuration = {"config": {}, "history": history, "rootfs": {"diff_ids": diffs}}
    names = ["0/layer.tar", "1/layer.tar"]
    manifest = [{"Config": "c.json", "RepoTags": ["acme:1"], "Layers": names}]
    layers = [tar({"etc/os-release": b"x"}), tar({f"{SITE}/acme/core.so": module})]
    return tar(
        {
            "manifest.json": json.dumps(manifest).encode(),
            "c.json": json.dumps(configuration).encode(),
            **dict(zip(names, layers, strict=True)),
        }
    )


def record(project: Path, image: str = IMAGE) -> None:
    leave_record(State(project / FOLDER).target_files("cpu-py311-server"), image)


@pytest.fixture
def recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> StandInEngine:
    """The record of the build that made the target's image, and an engine that has the image."""
    record(project)
    engine = StandInEngine({IMAGE: saved_image()})
    for name in ("builder", "image_engine"):
        monkeypatch.setattr(Workspace, name, lambda *_: engine)
    return engine


PUT = "put there by: layer 2 of 2: COPY /opt/venv /opt/venv"
UNKNOWN = "Not known: which layer put a file there"


def test_the_layers_of_a_target_are_read_from_its_image_once(
    recorded: StandInEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "why", TARGET, "core.so")
    assert (code, PUT in out) == (0, True)
    assert "reading the layers of the image (1.0 kB), once" in err
    assert run(capsys, "why", TARGET, "core.so") == (0, out, "")
    assert recorded.exported == [IMAGE]


def test_an_image_that_is_gone_leaves_the_layers_unknown_until_somebody_insists(
    recorded: StandInEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    image = recorded.images.pop(IMAGE)
    code, out, _ = run(capsys, "why", TARGET, "core.so")
    assert (code, PUT in out, UNKNOWN in out) == (0, False, True)
    assert "--layers tries again" in out
    recorded.images[IMAGE] = image
    assert UNKNOWN in run(capsys, "why", TARGET, "core.so")[1]
    assert PUT in run(capsys, "why", TARGET, "core.so", "--layers")[1]
    assert PUT in run(capsys, "why", TARGET, "core.so")[1]


def test_the_symbols_of_a_target_are_read_from_its_image_when_they_are_asked_for(
    project: Path, recorded: StandInEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.images[IMAGE] = saved_image(MODULE.read_bytes())
    libc = replace(INVENTORY.binaries[0].elf, needed=("libc.so.6",))
    module = replace(INVENTORY.binaries[0], elf=libc, size=MODULE.stat().st_size)
    built(project, replace(INVENTORY, binaries=(module,)))
    record(project)
    for _ in range(2):  # the second answer comes from the graph that was kept
        _, out, _ = run(capsys, "why", TARGET, "libc.so.6")
        assert "symbols:" not in out
        assert "Not known: which symbols make links necessary (--symbols exports the image" in out
        _, out, _ = run(capsys, "why", TARGET, "libc.so.6", "--symbols")
        assert "symbols: " in out and "memcpy" in out and "Not known" not in out
    recorded.images.clear()
    code, out, _ = run(capsys, "why", TARGET, "libc.so.6", "--symbols")
    assert (code, "that it built is not on this machine" in out) == (0, True)


def test_the_line_of_the_dockerfile_is_told_with_the_layer(
    project: Path, recorded: StandInEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f".buildmatrix/generated/{TARGET}/Dockerfile"
    (project / name).parent.mkdir(parents=True)
    (project / name).write_text("FROM ${MIRROR}python:3\nCOPY --from=build /opt/venv /opt/venv\n")
    assert f"{PUT}, {name}:2" in run(capsys, "why", TARGET, "core.so")[1]
    (project / name).write_text("FROM python:3\n\nCOPY --from=other /opt/venv /opt/venv\n")
    assert f"{PUT}, {name}:3" in run(capsys, "why", TARGET, "core.so")[1]
    (project / name).write_text("FROM python:3\nCOPY --from=other /opt/other /opt/venv\n")
    assert PUT in (told := run(capsys, "why", TARGET, "core.so")[1]) and name not in told


def test_layers_that_nobody_wants_are_not_read_and_not_missed(
    recorded: StandInEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "why", TARGET, "core.so", "--no-layers")
    assert PUT not in out and UNKNOWN not in out
    assert recorded.exported == []
    assert PUT in run(capsys, "why", TARGET, "core.so")[1]


def test_the_layers_of_an_image_that_was_built_before_are_not_those_of_the_new_one(
    recorded: StandInEngine, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "why", TARGET, "core.so")
    store.write(
        State(project / FOLDER).target_files(TARGET).inventory,
        replace(INVENTORY, environment={"A": "b"}),
    )
    # Killed between the two: the record is that of the old image.
    code, _, err = run(capsys, "why", TARGET, "core.so")
    assert (code, "was not built here" in err) == (3, True)
    other = IMAGE.replace("1", "4")
    record(project, other)
    recorded.images = {other: saved_image()}
    assert PUT in run(capsys, "why", TARGET, "core.so", "--layers")[1]
    assert recorded.exported == [IMAGE, other]


# Files


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.write(MODULE, "acme/core.so")
        out.writestr(
            "acme-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n"
        )
        out.writestr("acme-1.0.dist-info/RECORD", "acme/core.so,,\n")
    return path


def test_the_symbols_that_make_a_link_necessary_are_told(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "why", f"wheel:{wheel}", "libc.so.6", "--format", "json")
    (told,) = json.loads(out)["answers"]
    assert (code, told["state"]) == (0, "missing")
    assert "memcpy" in told["symbols"]["names"]


def test_a_link_that_is_not_used_is_called_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, flags in (("libused.so", []), ("core.so", ["libused.so", "-Wl,--no-as-needed"])):
        source = tmp_path / "one.c"
        source.write_text(f"int from_{name.partition('.')[0]}(void) {{ return 1; }}\n")
        command = ["gcc", "-shared", "-nostdlib", "-fPIC", "-Wl,-rpath,$ORIGIN"]
        command += [*flags[1:], source, *flags[:1], "-o", name]
        subprocess.run(command, cwd=tmp_path, check=True)
    _, out, _ = run(capsys, "why", f"dir:{tmp_path}", "libused.so")
    assert "symbols: none: core.so does not use its link to libused.so" in out


def test_of_several_that_link_a_library_the_one_that_uses_it_most_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lib.c").write_text("int one(void) { return 1; } int two(void) { return 2; }\n")
    (tmp_path / "a.c").write_text("int nothing(void) { return 0; }\n")
    (tmp_path / "b.c").write_text("int one(void); int b(void) { return one(); }\n")
    (tmp_path / "c.c").write_text(
        "int one(void); int two(void); int c(void) { return one() + two(); }\n"
    )
    flags = ["gcc", "-shared", "-nostdlib", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
    subprocess.run([*flags, "lib.c", "-o", "libused.so"], cwd=tmp_path, check=True)
    for name in "abc":
        command = [*flags, f"{name}.c", "libused.so", "-o", f"{name}.so"]
        subprocess.run(command, cwd=tmp_path, check=True)
    _, out, _ = run(capsys, "why", f"dir:{tmp_path}", "libused.so")
    assert "symbols: none: a.so does not use its link to libused.so" in out
    assert "used by: c.so: one, two also linked by: c.so (2 symbols), b.so (1 symbol)" in out
    _, out, _ = run(capsys, "why", f"dir:{tmp_path}", "libused.so", "--format", "json")
    (told,) = json.loads(out)["answers"]
    assert {one["binary"]: one["names"] for one in told["uses"]} == {
        "b.so": ["one"],
        "c.so": ["one", "two"],
    }


def test_symbols_that_the_library_lacks_are_not_said_to_be_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["gcc", "-shared", "-nostdlib", "-fPIC", "-Wl,-rpath,$ORIGIN"]
    (tmp_path / "core.c").write_text(
        "int one(void); int two(void); int core(void) { return one() + two(); }\n"
    )
    for functions in (("one", "two"), ("one",)):
        text = "".join(f"int {name}(void) {{ return 1; }}\n" for name in functions)
        (tmp_path / "lib.c").write_text(text)
        (tmp_path / "lib.map").write_text(f"libold.so.1 {{ global: {'; '.join(functions)}; }};\n")
        script = ["-Wl,--version-script=lib.map", "-Wl,-soname,libold.so.1"]
        command = [*flags, *script, "lib.c", "-o", "libold.so.1"]
        subprocess.run(command, cwd=tmp_path, check=True)
        if "two" in functions:
            command = [*flags, "core.c", "libold.so.1", "-o", "core.so"]
            subprocess.run(command, cwd=tmp_path, check=True)
    _, out, _ = run(capsys, "why", f"dir:{tmp_path}", "libold.so.1")
    assert "symbols: one; missing here: two" in out


def test_mangled_symbols_are_told_as_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lib.c").write_text("int _ZN4abcd5rollsEi(int n) { return n; }\n")
    (tmp_path / "core.c").write_text(
        "int _ZN4abcd5rollsEi(int); int from(void) { return _ZN4abcd5rollsEi(1); }\n"
    )
    flags = ["gcc", "-shared", "-nostdlib", "-fPIC", "-Wl,-rpath,$ORIGIN"]
    for names in (["lib.c", "-o", "librolls.so"], ["core.c", "librolls.so", "-o", "core.so"]):
        subprocess.run([*flags, *names], cwd=tmp_path, check=True)
    _, out, _ = run(capsys, "why", f"dir:{tmp_path}", "librolls.so")
    assert "symbols: abcd::rolls(int)" in out


def test_symbols_are_not_read_when_nobody_wants_them(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "why", wheel, "libc.so.6", "--no-symbols")
    assert "symbols:" not in out


def test_a_wheel_without_metadata_still_has_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        out.write(MODULE, "acme/core.so")
    code, out, _ = run(capsys, "why", path, "libc.so.6")
    assert code == 0
    assert "no Python distribution owns it" in out


def test_a_lock_beside_a_folder_tells_the_requirement_line(
    project: Path, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    lock = project / f"locks/pylock.{TARGET}.toml"
    _, out, _ = run(capsys, "why", f"dir:{site}", "libc.so.6", "--lock", lock)
    assert "base.in:2: acme[gpu]>=1" in out


# Reports


def test_a_saved_report_answers_without_the_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    finding = Finding(
        rule="BM101",
        name="foreign-dependency",
        severity="error",
        target="cpu",
        backend="cpu",
        vendor="nvidia",
        message="a message",
        chain=("base.in:2", "acme 1.0", "nvidia-nccl-cu12 2.1"),
    )
    targets = [TargetResult("cpu", "cpu", {"lock": "failed"})]
    path.write_text(
        report_json.render(assemble("demo", "2026-11-20", targets=targets, findings=[finding]))
    )
    code, out, _ = run(capsys, "why", f"report:{path}", "nvidia-nccl-cu12")
    assert code == 0
    assert "base.in:2 └ acme 1.0" in out
    assert "a report says what rules found" in out


def test_a_report_is_recognised_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(report_json.render(assemble("demo", "2026-11-20")))
    code, out, _ = run(capsys, "why", path, "cuda")
    assert (code, f"No finding of report:{path}" in out) == (0, True)


# The user's own data files

OWN = """\
schema = 1
backend = "zpu"
vendor = "zed"
title = "Zed accelerators"
checked = 2026-11-20
[sources]
handbook = "https://example.com/zed"
[[libraries]]
names = ["libzed.so*", "core.so*"]
role = "runtime"
where = "image"
weight = "strong"
source = ["handbook"]
basis = "documented"
"""


@pytest.mark.parametrize("source", [TARGET, "wheel", "report"])
def test_the_data_files_of_the_specification_count_for_every_source(
    project: Path, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    (project / "zed.toml").write_text(OWN)
    with (project / "buildmatrix.toml").open("a") as file:
        file.write('[catalogue]\nfiles = ["zed.toml"]\n')
    report = tmp_path / "report.json"
    report.write_text(report_json.render(assemble("demo", "2026-11-20")))
    places = {"wheel": f"wheel:{wheel}", "report": f"report:{report}"}
    code, out, _ = run(capsys, "why", places.get(source, source), "zpu", "--format", "json")
    assert (code, json.loads(out)["question"]["kind"]) == (0, "backend")
    assert "zed runtime (zpu)" in run(capsys, "inspect", wheel)[1]


def test_doctor_knows_the_data_files_and_says_what_is_wrong_with_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (project / "buildmatrix.toml").open("a") as file:
        file.write('[catalogue]\nfiles = ["zed.toml"]\n')
    code, out, _ = run(capsys, "doctor")
    assert (code, "there is no file `zed.toml` below" in out) == (2, True)
    (project / "zed.toml").write_text(OWN)
    assert ", xdna, zpu" in run(capsys, "doctor")[1]


def test_a_file_that_is_no_report_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}")
    code, _, err = run(capsys, "why", f"report:{tmp_path / 'x.json'}", "cuda")
    assert (code, "is not a report of buildmatrix" in err) == (2, True)


# Output and exit codes


def test_nothing_there_is_an_answer(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "why", TARGET, "libcudrt")
    assert code == 0
    assert "is called libcudrt, and nothing links or opens it. Nearly: libcudart.so.12" in out


def test_nothing_found_where_something_could_not_be_read_is_undecided(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(project, replace(INVENTORY, unread=(Unread("opt/x.so", "permission denied"),)))
    code, out, _ = run(capsys, "why", TARGET, "libfoo")
    assert code == 3
    assert "opt/x.so could not be read: permission denied" in out
    assert run(capsys, "why", TARGET, "libcudart")[0] == 0


@pytest.mark.parametrize(
    ("format_", "start"),
    [("json", "{"), ("dot", "digraph"), ("mermaid", "---")],
)
def test_the_answer_is_written_as(
    project: Path, capsys: pytest.CaptureFixture[str], format_: str, start: str
) -> None:
    _, out, _ = run(capsys, "why", TARGET, "libcudart", "--format", format_)
    assert out.startswith(start)
    assert run(capsys, "why", TARGET, "libcudart", "--format", format_, "-o", "out")[1] == ""
    assert " ".join((project / "out").read_text().split()) == out


def test_a_source_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "why", "./nowhere", "cuda")
    assert (code, "there is no ./nowhere" in err) == (2, True)


def test_a_stored_inventory_is_asked_without_slow_modules(project: Path) -> None:
    program = (
        f"import sys; sys.argv = ['buildmatrix', 'why', '{TARGET}', 'libcudart']\n"
        "from buildmatrix.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'lief', 'docker', 'jinja2', 'httpx', 'rich', 'cyclonedx'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project, env=os.environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
