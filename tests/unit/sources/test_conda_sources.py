"""What conda installs by an environment is undecided; it is read for what it hands to pip."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_index import Locked
from fix_project import package_index, session, write
from index import IndexServer
from package_index import PackageIndex

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.commands.fixing import fixed
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.reading import CachingReader
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Lock
from buildmatrix.locks.requirement_files import read_environment, read_requirements
from buildmatrix.reports.run import Report, exit_code
from buildmatrix.sources.model import Argument, Declared, OnlineIndex, ReadingOptions
from buildmatrix.sources.parse import parse, parse_declared
from buildmatrix.sources.resolved import Resolved, resolve_sources

ENVIRONMENT = """\
name: demo
channels: [conda-forge]
dependencies:
  - python=3.11
  - pytorch::pytorch=2.1.0=py3.11_cuda12.1_cudnn8.9.2_0
  - pip
  - pip:
    - numpy  # what a person wrote
    - "xgboost>=3"
prefix: /opt/conda/envs/demo
"""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with package_index(monkeypatch, tmp_path) as served:
        served.add("pypi", "torch", "2.13.0", "nvidia-nccl-cu13")
        served.add("pypi", "lightning", "2.6.0", "torch", "numpy")
        yield served


def resolved(root: Path, source: str) -> Resolved:
    (one,) = resolve_sources([source], None, root=root, backends=["cpu"], progress=Silent())
    assert isinstance(one, Resolved), one
    return one


@pytest.mark.parametrize("name", ["conda-lock.yml", "env/pixi.lock", "env/pixi.toml"])
def test_locks_of_conda_and_pixi_are_no_requirements(tmp_path: Path, name: str) -> None:
    assert parse_declared(name, tmp_path).prefix == "lock"
    with pytest.raises(UsageError, match=rf"{name} is a lock; write lock:{name}"):
        parse_declared(f"requirements:{name}", tmp_path)


@pytest.mark.parametrize("platforms", ["osx-arm64", "linux-64,linux-aarch64"])
def test_a_lock_is_read_for_one_platform_of_images(tmp_path: Path, platforms: str) -> None:
    source = parse_declared(f"pixi.lock[cuda]:{platforms}", tmp_path)
    with pytest.raises(UsageError, match="write one platform of images, linux-64 or linux-aarch64"):
        source.platform()


@pytest.mark.parametrize(
    "text",
    [
        "# platform: linux-64\n@EXPLICIT\nhttps://conda.example.com/linux-64/numpy-2-0.conda#ab\n",
        "# platform: linux-64\n_libgcc_mutex=0.1=conda_forge\nnumpy=1.26.4=py311h64a7726_0\n",
    ],
)
def test_what_conda_list_writes_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "explicit.txt").write_text(text)
    with pytest.raises(SpecError) as caught:
        read_requirements(tmp_path / "explicit.txt", "explicit.txt")
    said = "explicit.txt:2: this is conda's list of packages, which audit does not read; create the"
    assert caught.value.message.startswith(said)
    assert len(caught.value.problems) == 1


def test_the_items_of_pip_are_requirements_at_their_own_lines(
    tmp_path: Path, index: PackageIndex
) -> None:
    (tmp_path / "environment.yml").write_text(ENVIRONMENT)
    one = resolved(tmp_path, "environment.yml")
    assert one.target.python == "3.11"
    packages = {package.name: package for package in one.lock.packages}
    assert packages["numpy"].via == ("environment.yml:8", "xgboost")
    assert packages["xgboost"].via == ("environment.yml:9",)
    (unread,) = one.lock.unread
    assert unread.path == "environment.yml:4"
    assert unread.why.startswith(
        "conda installs python=3.11, pytorch::pytorch=2.1.0=py3.11_cuda12.1_cudnn8.9.2_0, pip from"
    )


def test_pip_installs_nothing_again_that_conda_installs(
    tmp_path: Path, index: PackageIndex
) -> None:
    text = "dependencies: [pytorch, numpy, {pip: [lightning, numpy]}]\n"
    (tmp_path / "environment.yml").write_text(text)
    assert {one.name for one in resolved(tmp_path, "environment.yml").lock.packages} == {
        "lightning",
        # It has a line of its own, whatever conda installs.
        "numpy",
    }


def test_files_options_and_folders_stand_beside_the_environment(
    tmp_path: Path, index: PackageIndex
) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "base.txt").write_text("\nnumpy\n")
    (folder / "gpu.yaml").write_text(
        "dependencies:\n  - pip:\n    - -r base.txt\n    - --pre\n    - -e ./app\n"
    )
    one = resolved(tmp_path, "requirements:env/gpu.yaml")
    assert {package.name: package.via for package in one.lock.packages} == {
        "numpy": ("env/base.txt:2",),
        "app": ("env/gpu.yaml:5",),
    }
    assert one.lock.unread == ()


def test_an_environment_without_pip_asks_for_nothing_and_is_undecided(
    tmp_path: Path, index: PackageIndex
) -> None:
    (tmp_path / "environment.yml").write_text("dependencies:\n- numpy\n")
    lock = resolved(tmp_path, "environment.yml").lock
    assert lock.packages == ()
    assert [one.path for one in lock.unread] == ["environment.yml:2"]
    assert isinstance(parse(Argument(str(tmp_path / "environment.yml"), "why")), Declared)


def test_a_question_about_an_environment_says_what_it_does_not_know(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environment.yml").write_text(ENVIRONMENT)
    source = parse(Argument("environment.yml", "why"))
    with Client() as client:
        online = OnlineIndex(CachingReader(WheelReader(client, None)), Silent())
        options = ReadingOptions(pytest.fail, index=lambda: online, backend="cpu")
        facts = source.facts(options)
    assert facts.lines["environment.yml:8"] == "numpy"
    assert [one.path for one in facts.inventory.unread] == ["environment.yml:4"]


class CondaLocked(Locked):
    """The same, with what conda installs beside it."""

    def __init__(self, folder: Path, server: IndexServer, text: str) -> None:
        super().__init__(folder, server)
        self.environment = read_environment(text, "environment.yml")

    def lock(self) -> Lock:
        label = "environment.yml"
        conda, unread = self.environment.packages(label), self.environment.unread(label)
        return replace(super().lock(), conda=conda, unread=unread)


@pytest.fixture
def audit(tmp_path: Path):
    """Audits an environment whose pip section asks for one harmless wheel."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with IndexServer(folder) as server:

        def run(*names: str, backend: str = "cpu") -> Report:
            text = "dependencies:\n" + "".join(f"- {name}\n" for name in names)
            locked = CondaLocked(folder, server, text)
            locked.add("idna 3.10")
            return locked.audit(backend)

        yield run


def test_what_conda_installs_is_one_undecided_finding(audit) -> None:
    names = [f"library-{number}=1.{number}" for number in range(300)]
    report = audit(*names)
    assert exit_code(report, "error") == 3
    (finding,) = report.findings
    assert (finding.rule, finding.chain) == ("BM902", ("environment.yml:2",))
    assert "library-0=1.0, library-1=1.1" in finding.message
    assert "and 288 more from channels" in finding.message
    assert exit_code(audit(), "error") == 0


@pytest.mark.parametrize(
    ("name", "backend", "code"),
    [
        ("nvidia::pytorch-cuda=12.4", "cpu", 1),
        ("cudatoolkit=11.8", "rocm", 1),
        ("pytorch-cuda=12.4", "cuda", 3),
        # The index has another build of it than a channel may have.
        ("xgboost=3.0", "cpu", 3),
        ("tensorflow", "cpu", 3),
    ],
)
def test_a_name_that_says_whose_it_is_is_an_error(
    audit, name: str, backend: str, code: int
) -> None:
    report = audit("python=3.12", name, backend=backend)
    assert exit_code(report, "error") == code
    errors = [one for one in report.findings if one.severity == "error"]
    assert [one.chain[0] for one in errors] == (["environment.yml:3"] if code == 1 else [])
    assert "BM107" not in {one.rule for one in report.findings}


def test_a_fix_edits_the_item_in_its_yaml(tmp_path: Path, index: PackageIndex) -> None:
    root = tmp_path / "project"
    write(root, environment__yml=ENVIRONMENT)
    with session(root, "environment.yml", backends=("cpu",)) as one:
        found = one.resolve()
        report = fixed(one, found, one.report(found), dry_run=False)[1]
    assert report.fixes is not None
    assert report.fixes.files == ("environment.yml",)
    written = (root / "environment.yml").read_text()
    assert written == ENVIRONMENT.replace('"xgboost>=3"', '"xgboost-cpu>=3"')


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ('[tool.pixi.dependencies]\npython = "3.12.*"\npytorch-gpu = "*"\n', "pytorch-gpu"),
        ('[tool.pixi.feature.cuda.dependencies]\ncuda-toolkit = "12.*"\n', "cuda-toolkit"),
        ('[tool.pixi.target.linux-64.dependencies]\ncudnn = "*"\n', "cudnn"),
        ('[tool.pixi.pypi-dependencies]\ntorch = "*"\n', "torch"),
        (
            '[tool.pixi.dependencies]\npython = "3.12.*"\n[tool.pixi.tasks]\ntest = "pytest"\n'
            '[tool.pixi.pypi-dependencies]\ndemo = { path = ".", editable = true }\n',
            "",
        ),
        ("[tool.pixi]\nfeature = 1\ntarget = []\n", ""),
    ],
)
def test_what_pixi_adds_to_a_project_is_undecided(
    tmp_path: Path, index: PackageIndex, tables: str, said: str
) -> None:
    project = '[project]\nname = "demo"\nversion = "1"\ndependencies = ["lightning"]\n'
    (tmp_path / "pyproject.toml").write_text(project + tables)
    unread = resolved(tmp_path, "pyproject.toml").lock.unread
    assert [one.why for one in unread] == (
        [f"pixi installs {said} by `[tool.pixi]`, which is not read here; audit pixi.lock"]
        if said
        else []
    )
