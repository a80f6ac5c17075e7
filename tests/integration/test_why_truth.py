"""`why` against independent judges: ld.so, pipdeptree, uv and docker history."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Buildmatrix
from loader_roots import PROGRAM, Object, Root, Toolchain

from buildmatrix.commands.why_graph import join_graph
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.locks.uv import find_uv
from buildmatrix.reports.why import Edge, Graph

#: An image of the test stack that has a shell and a Python.
BASE = "localhost:5000/python:3.11-slim-bookworm"

#: ld.so tells where it looks for each library, and lists what it would load; in a chroot.
DEBUG = """
import os, subprocess, sys
root, interpreter, program, library_path = sys.argv[1:]
environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_DEBUG": "libs"}
if library_path:
    environment["LD_LIBRARY_PATH"] = library_path
os.chroot(root)
os.chdir("/")
os.dup2(1, 2)
os.execve(interpreter, [interpreter, program], environment)
"""


@pytest.fixture
def root(tmp_path: Path, toolchain: Toolchain) -> Root:
    return Root(tmp_path / "root", toolchain)


@dataclass(frozen=True)
class Search:
    """How ld.so came to one library."""

    #: As in `reports.why.Edge.rule`; what is inherited is told by `by`.
    rule: str
    by: str | None
    path: str


def searches(root: Root, library_path: str = "") -> dict[str, Search]:
    """Requested name → how ld.so found it."""
    command = [*root.tools.as_root, sys.executable, "-c", DEBUG, str(root.path)]
    command += [root.tools.interpreter, f"/{PROGRAM}", library_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    answers: dict[str, Search] = {}
    name, rule, by = "", "", None
    for line in done.stdout.splitlines():
        if match := re.search(r"find library=(\S+) \[", line):
            name = match[1]
        elif match := re.search(r"search path=\S*\s+\((\w+) from file (\S+)\)", line):
            rule, by = match[1].lower(), match[2]
        elif re.search(r"search path=\S*\s+\(LD_LIBRARY_PATH\)", line):
            rule, by = "environment", None
        elif re.search(r"search path=\S*\s+\(system search path\)", line):
            rule, by = "default", None
        elif "search cache=" in line:
            rule, by = "cache", None
        elif match := re.search(r"trying file=(\S+)", line):
            # The last one that is tried is the one that it takes.
            answers[name] = Search(rule, by, match[1])
    return answers


def edges_of(path: Path, environment: dict[str, str] | None = None) -> list[Edge]:
    with DirectoryTree(path) as tree:
        inventory = collect(tree, environment or {})
    return [one for one in join_graph(inventory, resolve(inventory)).edges if one.kind == "needs"]


def test_the_search_rule_and_whose_it_is_are_those_that_ld_so_tells(root: Root) -> None:
    root.add(
        PROGRAM,
        Object(needed=("liba.so", "libb.so", "libd.so", "libe.so"), rpath=("$ORIGIN/../lib",)),
    )
    root.add("opt/app/lib/liba.so", Object(needed=("libmissing.so",)))
    root.add("opt/app/lib/libmissing.so", Object())
    root.add("opt/env/libb.so", Object())
    root.add("opt/conf/libd.so", Object(soname="libd.so"))
    root.add(f"{root.tools.default_folders()[0]}/libe.so", Object())
    root.configure("/opt/conf")
    real = searches(root, "/opt/env")
    told = {
        edge.text: edge
        for edge in edges_of(root.path, {"LD_LIBRARY_PATH": "/opt/env"})
        if edge.rule != "loaded"
    }
    rules = {name: one.rule for name, one in real.items()}
    assert rules["liba.so"] == rules["libmissing.so"] == "rpath"
    assert (rules["libb.so"], rules["libd.so"]) == ("environment", "cache")
    for name, one in real.items():
        edge = told[name]
        inherited = one.by is not None and one.by != f"/{edge.source.partition(':')[2]}"
        # ldconfig -r puts the default folders into the cache, where a newer ld.so looks first.
        assert edge.rule == ("inherited-rpath" if inherited else one.rule), name
        if one.by is not None:
            assert f"/{edge.by}" == one.by
        assert edge.folder is not None
        assert (root.path / edge.folder.lstrip("/")).resolve() == (
            root.path / one.path.lstrip("/")
        ).parent.resolve()


def test_runpath_is_told_with_the_library_that_has_it(root: Root, toolchain: Toolchain) -> None:
    root.add(PROGRAM, Object(needed=("liba.so",), runpath=("/opt/one",)))
    root.add("opt/one/liba.so", Object(needed=("libb.so",), runpath=("$ORIGIN/../two",)))
    root.add("opt/two/libb.so", Object())
    real = searches(root)
    told = {edge.text: edge for edge in edges_of(root.path)}
    for name in ("liba.so", "libb.so"):
        assert (told[name].rule, f"/{told[name].by}") == (real[name].rule, real[name].by)


# A real virtual environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "venv"
    uv = str(find_uv().path)
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [
            *(uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python")),
            *("scikit-learn", "pillow", "pandas", "httpx[http2]", "jinja2"),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def graph(environment: Path) -> Graph:
    with DirectoryTree(environment) as tree:
        inventory = collect(tree)
    return join_graph(inventory, resolve(inventory))


@pytest.mark.network
def test_every_bundled_library_of_a_real_environment_is_the_one_that_ld_so_loads(
    environment: Path, graph: Graph
) -> None:
    links: dict[str, set[str]] = {}
    for edge in graph.edges:
        if edge.kind == "needs" and edge.rule is not None:
            source, target = edge.source.partition(":")[2], edge.target.partition(":")[2]
            links.setdefault(source, set()).add(target)
    modules = [path for path in links if ".cpython-" in path or ".abi3." in path]
    assert len(modules) > 30
    compared = 0
    for path in modules:
        seen, ahead = set[str](), [path]
        while ahead:
            further = links.get(ahead.pop(), set()) - seen
            seen |= further
            ahead += further
        listed = subprocess.run(
            ["ldd", environment / path], capture_output=True, text=True, timeout=300, env={}
        ).stdout
        real = {
            str(Path(found).resolve().relative_to(environment.resolve()))
            for found in re.findall(r"=> (\S+) \(0x", listed)
            if Path(found).resolve().is_relative_to(environment.resolve())
        }
        assert seen == real, path
        compared += len(real)
    assert compared > 20, "nothing in it was bundled: there was nothing to compare"


def required(graph: Graph) -> set[tuple[str, str]]:
    """Who requires whom, without what only an extra brings."""
    return {
        (edge.source.partition(":")[2], edge.target.partition(":")[2])
        for edge in graph.edges
        if edge.kind == "requires" and not edge.condition.startswith("extra ")
    }


@pytest.mark.network
def test_who_requires_whom_is_what_pipdeptree_says(environment: Path, graph: Graph) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pipdeptree", "--python", environment / "bin/python", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert listed.returncode == 0, listed.stderr
    real = {
        (one["package"]["key"], other["key"])
        for one in json.loads(listed.stdout)
        for other in one["dependencies"]
        if other["installed_version"] not in (None, "?")
    }
    assert len(real) > 15
    assert required(graph) == {(a.replace("_", "-"), b.replace("_", "-")) for a, b in real}


@pytest.mark.network
def test_an_inverted_tree_of_uv_names_the_same_chains(
    environment: Path, buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    uv = str(find_uv().path)
    python = str(environment / "bin/python")
    for name in ("numpy", "h11", "markupsafe"):
        listed = subprocess.run(
            [uv, "pip", "tree", "--invert", "--package", name, "--no-dedupe", "--python", python],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert listed.returncode == 0, listed.stderr
        done = buildmatrix(
            tmp_path, "why", f"dir:{environment}", name, "--all", "--format", "json", "--no-symbols"
        )
        (answer,) = json.loads(done.out)["answers"]
        told = {tuple(hop["name"].partition(" ")[0] for hop in chain) for chain in answer["chains"]}
        assert told == set(upwards(listed.stdout)), name


def upwards(text: str) -> Iterator[tuple[str, ...]]:
    """The chains of an inverted tree, each from what nobody requires down to the package."""
    way: list[str] = []
    lines = [line for line in text.splitlines() if re.search(r" v\d", line)]
    for number, line in enumerate(lines):
        match = re.match(r"([│├└─ ]*)(\S+) v\d", line)
        assert match is not None, line
        depth = len(match[1]) // 4
        way[depth:] = [match[2]]
        after = lines[number + 1] if number + 1 < len(lines) else ""
        deeper = re.match(r"[│├└─ ]*", after)
        if deeper is None or len(deeper[0]) // 4 <= depth or not after:
            yield tuple(reversed(way))


# Images


@pytest.fixture(scope="module")
def image(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three instructions, each of which brings a library."""
    folder = tmp_path_factory.mktemp("image")
    library = Path(re.findall(r"/\S+libz\S*|/\S+libc\.so\S*", listed_libraries())[0]).resolve()
    (folder / "libone.so.1").write_bytes(library.read_bytes())
    (folder / "Dockerfile").write_text(
        f"FROM {BASE}\n"
        "COPY libone.so.1 /opt/lib/libone.so.1\n"
        'RUN cp /opt/lib/libone.so.1 /opt/lib/libtwo.so.1 && echo "a  b"\n'
        "ENV LD_LIBRARY_PATH=/opt/lib\n"
        "RUN rm /opt/lib/libone.so.1 && cp /opt/lib/libtwo.so.1 /opt/lib/libthree.so.1\n"
    )
    name = f"buildmatrix-test/why-{uuid.uuid4().hex[:8]}:1"
    done = subprocess.run(
        ["docker", "build", "--quiet", "--tag", name, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    yield name
    subprocess.run(["docker", "rmi", "--force", name], capture_output=True)


def listed_libraries() -> str:
    return subprocess.run(["ldd", sys.executable], capture_output=True, text=True).stdout


def history(image: str) -> list[str]:
    """The instructions that made a layer, the oldest first."""
    done = subprocess.run(
        ["docker", "history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", image],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t", 1) for line in done.stdout.splitlines()]
    # What BuildKit adds to the text of the Dockerfile is no part of the instruction.
    shells = (
        text.replace("RUN /bin/sh -c ", "RUN ") for size, text in reversed(rows) if size != "0B"
    )
    return [" ".join(text.removesuffix("# buildkit").split()) for text in shells]


@pytest.mark.engine
@pytest.mark.parametrize(("library", "layer"), [("libtwo.so.1", -2), ("libthree.so.1", -1)])
def test_the_layer_and_its_instruction_are_those_of_docker_history(
    buildmatrix: Buildmatrix, image: str, tmp_path: Path, library: str, layer: int
) -> None:
    done = buildmatrix(tmp_path, "why", f"docker:{image}", library, "--format", "json")
    assert done.code == 0, done.err
    (answer,) = json.loads(done.out)["answers"]
    assert answer["layer"]["instruction"] == history(image)[layer]


@pytest.mark.engine
def test_a_file_that_a_later_layer_deleted_is_not_there(
    buildmatrix: Buildmatrix, image: str, tmp_path: Path
) -> None:
    done = buildmatrix(tmp_path, "why", f"docker:{image}", "libone.so.1")
    assert done.code == 0
    assert "is called libone.so.1, and nothing links or opens it" in " ".join(done.out.split())


@pytest.mark.engine
def test_a_saved_image_says_the_same_as_the_engine(
    buildmatrix: Buildmatrix, image: str, tmp_path: Path
) -> None:
    saved = tmp_path / "image.tar"
    subprocess.run(["docker", "save", image, "-o", saved], check=True)
    answers = []
    for source in (f"docker:{image}", f"tar:{saved}"):
        done = buildmatrix(
            tmp_path, "why", source, "libtwo.so.1", "--format", "json", "--no-symbols"
        )
        answers.append(json.loads(done.out)["answers"])
    assert answers[0] == answers[1]


@pytest.mark.engine
def test_symbols_of_an_image_are_read_when_they_are_asked_for(
    buildmatrix: Buildmatrix, image: str, tmp_path: Path
) -> None:
    done = buildmatrix(
        tmp_path, "why", f"docker:{image}", "libc.so.6", "--symbols", "--format", "json"
    )
    answer = json.loads(done.out)["answers"][0]
    assert answer["symbols"]["count"] > 0
    assert answer["symbols"]["unread"] is None


@pytest.mark.engine
def test_an_image_that_is_not_there_is_undecided(
    buildmatrix: Buildmatrix, tmp_path: Path, engine: None
) -> None:
    done = buildmatrix(tmp_path, "why", "docker:no-such-image:1", "cuda")
    assert (done.code, "there is no image no-such-image:1" in done.err) == (3, True)


@pytest.mark.engine
def test_a_daemon_that_is_down_is_a_missing_component(
    buildmatrix: Buildmatrix, tmp_path: Path, engine: None
) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "DOCKER_CONTEXT": ""}
    done = buildmatrix(tmp_path, "why", "docker:x:1", "cuda", env=nowhere)
    assert done.code == 5, done.err


# A lock


@pytest.mark.network
def test_a_requirement_of_the_index_is_told_without_downloading_its_wheels(
    buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    done = buildmatrix(
        tmp_path, "why", "pypi:xgboost==3.2.0", "nvidia-*", "--backend", "cuda", "--format", "json"
    )
    assert done.code == 0, done.err
    document = json.loads(done.out)
    chains = [
        [hop["name"].partition(" ")[0] for hop in chain]
        for answer in document["answers"]
        for chain in answer["chains"]
    ]
    assert ["pypi:xgboost==3.2.0", "xgboost", "nvidia-nccl-cu12"] in chains
