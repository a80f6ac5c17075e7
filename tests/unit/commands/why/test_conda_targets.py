"""`why TARGET PACKAGE` of an image that has an environment of conda."""

from __future__ import annotations

from pathlib import Path

from conda_locks import PYTHON, package, pixi
from graph_cases import distribution, flat, graph_of, labels, one, why
from lock_cases import CPU, spec_of

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Silent
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.matrix.model import Target
from buildmatrix.sources.model import requirement_lines
from buildmatrix.sources.target import lock_of

PACKAGES = [
    package(PYTHON),
    package("pytorch-2.8.0-cuda129_0", "__cuda", "libcublas >=12.9")
    + "  purls:\n  - pkg:pypi/torch\n",
    package("libcublas-12.9.1.4-h0_0"),
]
MANIFEST = '[dependencies]\npython = "3.12.*"\npytorch = ">=2.8"\n'
#: As conda installs them: one package has a Python distribution of another name.
TREE = Inventory(
    distributions=(
        distribution("python", version="3.12.7"),
        distribution("torch", "libcublas", version="2.8.0"),
        distribution("libcublas", version="12.9.1.4", installer="conda"),
    )
)


def locked(root: Path) -> tuple[Lock, dict[str, str]]:
    """The lock of a target as `why TARGET` reads it, and the lines that it names."""
    (root / "pixi.lock").write_text(pixi(PACKAGES))
    (root / "pixi.toml").write_text(MANIFEST)
    own = f".buildmatrix/locks/pylock.{CPU.id}.toml"
    target: Target = replace(
        CPU, requirements=(), python="3.12", lock=own, committed_lock="pixi.lock"
    )
    spec = spec_of(root, target)
    lock_targets(spec, [target], upgrade=False, offline=True, progress=Silent(), jobs=1)
    lock = lock_of(spec, target)
    assert lock is not None
    return lock, requirement_lines(lock, root)[0]


def test_a_chain_begins_at_the_line_of_the_manifest(tmp_path: Path) -> None:
    lock, lines = locked(tmp_path)
    answer = why(TREE, "libcublas", lock, lines)
    graph = graph_of(TREE, lock, lines)
    assert labels(one(answer), graph) == ["pixi.toml:3", "torch 2.8.0", "libcublas 12.9.1.4"]
    assert 'pytorch = ">=2.8"' in flat(answer)
    assert "__cuda" not in {name for node in graph.nodes.values() for name in node.names}
    # The build of a package is no other version of its distribution.
    assert graph.notes == ()


def test_a_lock_whose_origin_is_gone_still_answers(tmp_path: Path) -> None:
    lock, _ = locked(tmp_path)
    (tmp_path / "pixi.lock").unlink()
    own = replace(CPU, lock=str(lock.path.relative_to(tmp_path)), committed_lock="pixi.lock")
    again = lock_of(spec_of(tmp_path, own), own)
    assert again is not None
    assert {item.name for item in again.conda} == {
        "conda:python",
        "conda:pytorch",
        "conda:libcublas",
    }
    chain = labels(one(why(TREE, "libcublas", again)), graph_of(TREE, again))
    assert chain == ["pixi.toml", "torch 2.8.0", "libcublas 12.9.1.4"]
