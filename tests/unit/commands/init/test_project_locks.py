"""`init` in a folder with committed locks: which of their parts are for which backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from conda_locks import PYTHON, conda_lock, package, pixi

from buildmatrix import cli
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.catalogue.load import load
from buildmatrix.commands.init import first_spec
from buildmatrix.commands.init_locked import divide_inputs, find_locks, read_locked
from buildmatrix.commands.init_sections import Answers
from buildmatrix.locks.taken import own_projects, trouble_with
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

CATALOGUE = load()
PYTHONS = ("3.12", "3.13", "3.11")
BASE = "python:{python}-slim-bookworm"
HASH = "0" * 64
INDEX = "https://files.example.com"
ANY = "py3-none-any"


def wheel(pin: str) -> tuple[str, str, str]:
    """Name, version and file name of `name version`, with the tag of the wheel where it counts."""
    name, version, *tag = pin.split()
    return name, version, f"{name.replace('-', '_')}-{version}-{tag[0] if tag else ANY}.whl"


def pylock(*pins: str, index: str = INDEX, python: str = ">=3.11") -> str:
    entries = [
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\nindex = "{index}/simple"\n'
        f'wheels = [{{ url = "{index}/{file}", hashes = {{ sha256 = "{HASH}" }} }}]\n'
        for name, version, file in map(wheel, pins)
    ]
    head = f'lock-version = "1.0"\ncreated-by = "uv"\nrequires-python = "{python}"\n'
    return head + "".join(entries)


def hashed(*pins: str) -> str:
    lines = [f"{n}=={v} --hash=sha256:{HASH}\n" for n, v, _ in map(wheel, pins)]
    return "".join(lines)


def uv_lock(
    extras: Mapping[str, Sequence[str]],
    *main: str,
    groups: Mapping[str, Sequence[str]] = {},
    python: str = ">=3.11",
    together: Sequence[str] = (),
) -> str:
    """A `uv.lock` of the project acme, whose extras exclude one another but for `together`."""
    parts = (main, *extras.values(), *groups.values())
    names = {pin.split()[0]: pin for pins in parts for pin in pins}

    def listed(pins: Sequence[str]) -> str:
        return "[" + ", ".join(f'{{ name = "{pin.split()[0]}" }}' for pin in pins) + "]"

    def table(key: str, parts: Mapping[str, Sequence[str]]) -> str:
        lines = "".join(f"{name} = {listed(pins)}\n" for name, pins in parts.items())
        return f"[package.{key}]\n{lines}" if parts else ""

    exclusive = [f'{{ package = "acme", extra = "{x}" }}' for x in extras if x not in together]
    head = f'version = 1\nrevision = 3\nrequires-python = "{python}"\n'
    head += f"conflicts = [[{', '.join(exclusive)}]]\n" if len(exclusive) > 1 else ""
    own = (
        '[[package]]\nname = "acme"\nversion = "1.0"\nsource = { editable = "." }\n'
        f"dependencies = {listed(main)}\n"
        + table("optional-dependencies", extras)
        + table("dev-dependencies", groups)
    )
    rest = [
        f'[[package]]\nname = "{name}"\nversion = "{version}"\n'
        f'source = {{ registry = "{INDEX}/simple" }}\n'
        f'wheels = [{{ url = "{INDEX}/{file}", hash = "sha256:{HASH}" }}]\n'
        for name, version, file in map(wheel, names.values())
    ]
    return head + own + "".join(rest)


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


NUMPY, CPU, GPU = "numpy 2.0", "onnxruntime 1.22.0", "onnxruntime-gpu 1.22.0"
CUDART = "nvidia-cuda-runtime-cu12 12.8.90"
TORCH = "https://index.example.com/whl"
CASES = {
    "extras, by name and by contents": (
        {"uv.lock": uv_lock({"cpu": [CPU], "gpu": [GPU, CUDART], "docs": [NUMPY]}, NUMPY)},
        {"uv.lock[cpu]": "cpu", "uv.lock[gpu]": "cuda 12.8"},
        {"uv.lock[docs]": "its name names no backend"},
    ),
    "toolkits in the names of extras": (
        {"uv.lock": uv_lock({"cu128": [CUDART], "cu130": ["nvidia-cublas 13.0.0.19"]})},
        {"uv.lock": "cpu", "uv.lock[cu128]": "cuda 12.8", "uv.lock[cu130]": "cuda 13.0"},
        {},
    ),
    "an extra beside its twins for accelerators": (
        {"uv.lock": uv_lock({"onnx": [CPU], "onnx-gpu": [GPU, CUDART], "onnx-docs": [NUMPY]})},
        {"uv.lock[onnx]": "cpu", "uv.lock[onnx-gpu]": "cuda 12.8"},
        {"uv.lock[onnx-docs]": "its name names no backend"},
    ),
    "groups": (
        {"uv.lock": uv_lock({}, NUMPY, groups={"gpu": [CUDART], "dev": [CPU]})},
        {"uv.lock": "cpu", "uv.lock[:gpu]": "cuda 12.8"},
        {},
    ),
    "one backend for all": (
        {"uv.lock": uv_lock({}, NUMPY, CUDART)},
        {"uv.lock": "cuda 12.8"},
        {},
    ),
    "a name that its contents contradict": (
        {"uv.lock": uv_lock({"cpu": [CPU], "rocm": [CUDART]}, NUMPY)},
        {"uv.lock[cpu]": "cpu"},
        {"uv.lock[rocm]": "what is locked in it is for cuda, too"},
    ),
    "an accelerator that nothing names": (
        {"uv.lock": uv_lock({"gpu": [NUMPY]}, CPU)},
        {"uv.lock": "cpu"},
        {"uv.lock[gpu]": "what is locked in it is for no backend that is known"},
    ),
    "two parts for the same": (
        {"uv.lock": uv_lock({"gpu": [CUDART], "cu12": ["nvidia-cuda-runtime-cu12 12.8.90"]})},
        {"uv.lock": "cpu", "uv.lock[cu12]": "cuda 12.8"},
        {"uv.lock[gpu]": "uv.lock[cu12] is for cuda 12.8 already"},
    ),
    "wheels for a Python that is not offered": (
        {
            "uv.lock": uv_lock(
                {"cpu": [CPU], "qnn": ["onnxruntime-qnn 1.22 cp310-cp310-linux_x86_64"]}
            )
        },
        {"uv.lock[cpu]": "cpu"},
        {
            "uv.lock[qnn]": "onnxruntime-qnn 1.22 cannot be installed: it has no wheel for "
            "linux/amd64 with Python 3.12; the nearest is for cp310-cp310-linux_x86_64"
        },
    ),
    "pylocks in a folder": (
        {
            "uv.lock.d/pylock.cpu.toml": pylock(NUMPY),
            "uv.lock.d/pylock.cuda.toml": pylock("torch 2.9.0+cu128", index=f"{TORCH}/cu128"),
            "uv.lock.d/pylock.rocm.toml": pylock("torch 2.9.0+rocm6.4", index=f"{TORCH}/rocm6.4"),
            "pylock.md": "",
        },
        {
            "uv.lock.d/pylock.cpu.toml": "cpu",
            "uv.lock.d/pylock.cuda.toml": "cuda 12.8",
            "uv.lock.d/pylock.rocm.toml": "rocm 6.4",
        },
        {},
    ),
    "requirement files with hashes": (
        {
            "requirements-cpu.txt": hashed(NUMPY),
            "requirements.cuda12.txt": hashed(CUDART),
            "requirements-dev.txt": hashed(NUMPY),
            "requirements-docs.txt": "sphinx\n",
        },
        {"requirements-cpu.txt": "cpu", "requirements.cuda12.txt": "cuda 12.8"},
        {"requirements-dev.txt": "its name names no backend"},
    ),
}

PYTHON_313 = package("python-3.13.1-h9a34b6e_0_cp313")
CUDA_PACKAGES = (package("cuda-version-12.9-h4f385c5_3"), package("libcublas-12.9.1.4-h9ab20c4_1"))
TORCH_CUDA = package("pytorch-2.8.0-cuda129_mkl_py312_h1e53aa0_302", "__cuda")
#: Python for 0, CUDA for 1 to 3, Python 3.13 for 4, other packages for 5 to 7.
CONDA = (
    package(PYTHON),
    *CUDA_PACKAGES,
    TORCH_CUDA,
    PYTHON_313,
    package("pytorch-2.8.0-cpu_mkl_py312_h6d5a6d3_102"),
    package("cuda-version-13.0-h4f385c5_3"),
    package("ruff-0.13.0-h4196e79_0"),
)
CASES |= {
    "environments, by name and by packages": (
        {
            "pixi.lock": pixi(
                CONDA, {"cpu": [0, 5], "default": [0, 7], "lint": [0, 7], "train": [0, 1, 2, 3]}
            )
        },
        {"pixi.lock[cpu]": "cpu", "pixi.lock[train]": "cuda 12.9"},
        {
            "pixi.lock[default]": "pixi.lock[cpu] is for cpu already",
            "pixi.lock[lint]": "its name and its packages name no backend",
        },
    ),
    "the environment of a backend before its tests": (
        {"pixi.lock": pixi(CONDA, {"a-gpu": [0, 1, 7], "default": [0, 5], "gpu": [0, 1, 3]})},
        {"pixi.lock[gpu]": "cuda 12.9", "pixi.lock[default]": "cpu"},
        {"pixi.lock[a-gpu]": "pixi.lock[gpu] is for cuda 12.9 already"},
    ),
    "the default environment before others with its packages": (
        {"pixi.lock": pixi(CONDA, {"dev": [0, 1, 7], "default": [0, 1]})},
        {"pixi.lock[default]": "cuda 12.9"},
        {"pixi.lock[dev]": "pixi.lock[default] is for cuda 12.9 already"},
    ),
    "an environment that no specification can name": (
        {"pixi.lock": pixi(CONDA, {'"cuda\\n[evil]"': [0, 1], "default": [0]})},
        {"pixi.lock[default]": "cpu"},
        {
            "pixi.lock[cuda\n[evil]]": "its name contains U+000A (control character); strings here "
            "are one line of plain text"
        },
    ),
    "two lines of CUDA in environments": (
        {"pixi.lock": pixi(CONDA, {"cu12": [0, 1], "cu13": [0, 6], "default": [0]})},
        {
            "pixi.lock[cu12]": "cuda 12.9",
            "pixi.lock[cu13]": "cuda 13.0",
            "pixi.lock[default]": "cpu",
        },
        {},
    ),
    "an environment that its packages contradict": (
        {"pixi.lock": pixi(CONDA, {"cpu": [0, 1], "default": [0, 5]})},
        {"pixi.lock[default]": "cpu"},
        {"pixi.lock[cpu]": "what is locked in it is for cuda, too"},
    ),
    "environments with Pythons of their own, and one without": (
        {"pixi.lock": pixi(CONDA, {"default": [4, 7], "cuda": [0, 1], "rocm": [7]})},
        {"pixi.lock[cuda]": "cuda 12.9", "pixi.lock[default]": "cpu"},
        {
            "pixi.lock[rocm]": "pixi.lock[rocm] has no python, which every image runs",
        },
    ),
    "a conda-lock, and its categories": (
        {
            "conda-lock.yml": conda_lock(
                {"file": "python-3.12.7-h_0"},
                {"file": "cuda-version-12.9-h_3", "category": "cuda"},
                {"file": "pytest-8.3.0-py312_0", "category": "dev"},
            )
        },
        {"conda-lock.yml": "cpu", "conda-lock.yml[:cuda]": "cuda 12.9"},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_lock_go_to_the_backends_that_they_are_for(case: str, tmp_path: Path) -> None:
    files, parts, open_parts = CASES[case]
    write(tmp_path, files)
    locks = [path.relative_to(tmp_path).as_posix() for path in find_locks(tmp_path)]
    found = read_locked(tmp_path, locks, PYTHONS, CATALOGUE, BASE)
    assert {part.label: f"{part.backend} {part.runtime}".rstrip() for part in found.parts} == parts
    assert {part.label: part.why for part in found.open} == open_parts


def spec_of(root: Path, *backends: str) -> tuple[Spec, str]:
    """What `init --offline` writes, loaded: each target can be installed from its lock."""
    locks = find_locks(root)
    own = [path for path in (root / "pyproject.toml",) if path.is_file()]
    text = first_spec(own, root, backends, locks=locks, answers=Answers(torch=None))
    (root / "buildmatrix.toml").write_text(text)
    spec = load_spec(root / "buildmatrix.toml", backends=CATALOGUE.backends)
    for target in spec.targets:
        assert trouble_with(root, target) is None, target.id
    return spec, text


def summary(spec: Spec) -> dict[str, str]:
    return {target.id.removesuffix("-default"): target.lock_label for target in spec.targets}


OLD, NEW = "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("files", "targets"),
    [
        *((files, None) for files, _, _ in CASES.values()),
        # A Python that the lock is for, and where the backends differ, one for each.
        (
            {"uv.lock": uv_lock({"cpu": [f"a 1 {OLD}"], "gpu": [f"b 1 {OLD}", CUDART]})},
            {"cpu-py311": "uv.lock[cpu]", "cuda12.8-py311": "uv.lock[gpu]"},
        ),
        (
            {"uv.lock": uv_lock({"cpu": [f"a 1 {OLD}"], "gpu": [f"b 1 {NEW}", CUDART]})},
            {"cpu-py311": "uv.lock[cpu]", "cuda12.8-py312": "uv.lock[gpu]"},
        ),
        (
            {"uv.lock": uv_lock({"cu128": [CUDART], "cu130": ["nvidia-cublas 13.0.0.19"]})},
            {
                "cpu-py312": "uv.lock",
                "cuda12.8-py312": "uv.lock[cu128]",
                "cuda13.0-py312": "uv.lock[cu130]",
            },
        ),
        # Two lines of one backend, in files of their own.
        (
            {
                "pylock.cu128.toml": pylock(CUDART),
                "pylock.cu130.toml": pylock("nvidia-cublas 13.0.0.19"),
            },
            {"cuda12.8-py312": "pylock.cu128.toml", "cuda13.0-py312": "pylock.cu130.toml"},
        ),
        # An extra and a group of one backend have no common line: the second one is left open.
        (
            {"uv.lock": uv_lock({"cu128": [CUDART]}, groups={"cu130": ["nvidia-cublas 13.0.0"]})},
            {"cpu-py312": "uv.lock", "cuda12.8-py312": "uv.lock[cu128]"},
        ),
    ],
)
def test_every_target_of_a_first_specification_can_be_installed(
    files: Mapping[str, str], targets: Mapping[str, str] | None, tmp_path: Path
) -> None:
    write(tmp_path, files)
    spec, _ = spec_of(tmp_path)
    assert targets is None or summary(spec) == targets


PROJECT = """\
[project]
name = "acme"
version = "1.0"
requires-python = ">=3.11"
[project.optional-dependencies]
cpu = ["onnxruntime"]
gpu = ["onnxruntime-gpu"]
docs = ["numpy"]
[project.scripts]
acme = "acme:main"
[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]
[build-system]
requires = []
"""


def test_the_project_is_installed_and_parts_that_conflict_are_not_offered(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": PROJECT})
    text = first_spec([tmp_path / "pyproject.toml"], tmp_path)
    assert '# extras = ["docs"]  # what pyproject.toml offers' in text
    extras = {"cpu": [CPU], "gpu": [CUDART], "docs": [NUMPY]}
    write(tmp_path, {"uv.lock": uv_lock(extras, NUMPY)})
    text = spec_of(tmp_path)[1]
    assert "# extras" not in text
    assert '# - uv.lock[docs]: its name names no backend; to use it: extras = ["docs"]\n' in text
    write(tmp_path, {"uv.lock": uv_lock(extras, NUMPY, together=["docs"])})
    spec, text = spec_of(tmp_path)
    assert '# extras = ["docs"]  # what else the lock offers' in text
    assert all(target.install_project for target in spec.targets)
    assert '# command = ["acme"]' in text
    assert [target.id for target in spec_of(tmp_path, "cuda")[0].targets] == [
        "cuda12.8-py312-default"
    ]


@pytest.mark.parametrize(
    ("files", "backends", "said"),
    [
        (
            {"uv.lock": uv_lock({"cpu": [CPU]}, NUMPY)},
            ["rocm"],
            "uv.lock: no part can be installed for rocm",
        ),
        (
            {"uv.lock": uv_lock({}, "kernels 1.0 cp310-cp310-linux_x86_64")},
            [],
            "uv.lock: no part can be installed for any backend:\n"
            "- uv.lock: kernels 1.0 cannot be installed: ",
        ),
        (
            {"uv.lock": uv_lock({}, NUMPY, python="<3.11")},
            [],
            "uv.lock: the lock is for Python <3.11, and cpu has 3.12; the Pythons that are offered "
            "are 3.11, 3.12, 3.13",
        ),
        ({"uv.lock": "version = 1\n[[package]]\nname = 3\n"}, [], "uv.lock:2: "),
    ],
)
def test_locks_for_nothing_are_refused_with_a_reason(
    files: Mapping[str, str], backends: Sequence[str], said: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    with pytest.raises(BuildmatrixError) as caught:
        spec_of(tmp_path, *backends)
    assert caught.value.message.startswith(said), caught.value


def test_named_locks_are_told_from_other_inputs(tmp_path: Path) -> None:
    texts = {
        "a.txt": hashed(NUMPY),
        "requirements.txt": "numpy\n",
        "requirements-b.txt": hashed(CPU),
    }
    write(tmp_path, {"uv.lock": "", "pyproject.toml": "", "pylock.x.toml": pylock(), **texts})
    paths = [tmp_path / name for name in ("uv.lock", "pyproject.toml", "pylock.x.toml", *texts)]
    locks, others = divide_inputs(paths)
    assert [path.name for path in locks] == ["uv.lock", "pylock.x.toml", "requirements-b.txt"]
    assert [path.name for path in others] == ["pyproject.toml", "a.txt", "requirements.txt"]


BUILT = "[build-system]\nrequires = []\n"


@pytest.mark.parametrize(
    ("text", "is_installed"),
    [
        ("", False),
        (BUILT, True),
        ("[tool.uv]\npackage = true\n", True),
        (f"{BUILT}[tool.uv]\npackage = false\n", False),
        (f"{BUILT}[tool.poetry]\npackage-mode = false\n", False),
    ],
)
def test_a_project_is_installed_where_its_own_tool_installs_it(
    text: str, is_installed: bool, tmp_path: Path
) -> None:
    write(tmp_path, {"uv.lock": uv_lock({}, NUMPY)})
    write(tmp_path, {"pyproject.toml": f'[project]\nname = "acme"\nversion = "1.0"\n{text}'})
    assert {target.install_project for target in spec_of(tmp_path)[0].targets} == {is_installed}


def test_folders_of_a_lock_are_installed_although_the_project_is_none(tmp_path: Path) -> None:
    engine = '[[package]]\nname = "engine"\nversion = "1"\nsource = { directory = "%s" }\n'
    project = '[project]\nname = "acme"\nversion = "1.0"\n'
    write(
        tmp_path,
        {
            "app/uv.lock": uv_lock({}, "engine 1").partition('[[package]]\nname = "engine')[0]
            + engine % "../engine",
            "app/pyproject.toml": project,
            "engine/setup.py": "",
        },
    )
    with pytest.raises(BuildmatrixError, match="is no folder below that of"):
        spec_of(tmp_path / "app")
    with pytest.raises(SystemExit) as ended:
        cli.main(
            ["-f", f"{tmp_path}/buildmatrix.toml", "init", "--offline", f"{tmp_path}/app/uv.lock"]
        )
    assert ended.value.code == 0
    (target,) = load_spec(tmp_path / "buildmatrix.toml").targets
    assert (target.pyproject, target.install_project) == ("app/pyproject.toml", True)
    assert own_projects(tmp_path, target) == ("engine",)


def test_a_pixi_project_gets_a_specification_that_its_lock_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lock = pixi(CONDA, {"cuda": [0, 1, 3], "default": [0, 5], "mac": [0], "lint": [0, 7]})
    before, mac, after = lock.partition("  mac:")
    lock = before + mac + after.replace("linux-64:", "osx-arm64:", 1)
    manifest = '[workspace]\nname = "Acme"\nversion = "2.1"\n'
    write(tmp_path, {"pixi.lock": lock, "pixi.toml": manifest})
    for arguments in (["init", "--offline"], ["lock", "--check", "--offline"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0, capsys.readouterr().err
    text = Path("buildmatrix.toml").read_text()
    assert 'name = "acme"\nversion = "2.1"\n' in text
    assert "# - Base image (source: python:{python}-slim-bookworm is made from it).\n" in text
    lines = text.splitlines()
    for line in (
        "# These parts belong to no backend here:",
        "# - pixi.lock[mac]: pixi.lock:19: there is no environment `mac` for linux-64; it is for "
        "osx-arm64",
        "# - pixi.lock[lint]: its name and its packages name no backend; to use it: environment = "
        '"lint"',
        'python = ["3.12"]  # one that the lock is for',
        'lock = "pixi.lock"',
        'environment = "cuda"',
        'environment = "default"',
        'base = "debian:bookworm-slim"',
    ):
        assert line in lines, text
    spec = load_spec(tmp_path / "buildmatrix.toml", backends=CATALOGUE.backends)
    assert summary(spec) == {
        "cpu-py312": "pixi.lock[default]",
        "cuda12.9-py312": "pixi.lock[cuda]",
    }


def test_vendor_images_do_not_limit_the_python_of_an_environment(tmp_path: Path) -> None:
    twelve = package("cuda-version-12.8-h4f385c5_3")
    lock = pixi([PYTHON_313, twelve])
    write(tmp_path, {"pixi.lock": lock})
    (target,) = spec_of(tmp_path)[0].targets
    assert (target.python, target.base.final) == ("3.13", "nvidia/cuda:12.8.1-base-ubuntu24.04")
