"""The calls of `uv pip compile` for one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix import toml
from buildmatrix.errors import UndecidedError
from buildmatrix.locks.graph import ResolvedNode, read_graph
from buildmatrix.locks.plan import INDEX_PROJECT, UvPlan
from buildmatrix.locks.platform import python_platform
from buildmatrix.locks.uv import Uv
from buildmatrix.locks.uv_errors import explain
from buildmatrix.locks.uvsettings import project_text
from buildmatrix.spec.model import Target
from buildmatrix.trees.base import reason

#: The generated requirement file that asks for twins.
TWINS = "buildmatrix-twins.in"


class Compiler:
    """Resolves one target; `folder` is scratch space of its own.

    `options` are the index options of its requirements files, `builder` the Python that builds.
    """

    def __init__(
        self,
        uv: Uv,
        root: Path,
        target: Target,
        folder: Path,
        flags: Sequence[str],
        options: Sequence[str] = (),
        builder: str | None = None,
    ) -> None:
        self._uv = uv
        self._root = root
        self._target = target
        self._folder = folder
        self._flags = tuple(flags)
        self._options = tuple(options)
        self._builder = builder

    def graph(
        self, plan: UvPlan, preferred: Mapping[str, str], *, explore: bool = False
    ) -> Mapping[str, ResolvedNode]:
        """Resolve, with `preferred` versions where they fit; raises `UndecidedError` if uv cannot.

        `explore` opens the target's explicit indexes to all distributions and searches them first.
        """
        indexes = sorted(set(self._target.index.values())) if explore else []
        # uv prefers the versions that it finds in the file that it is about to write.
        resolved = self._file("resolved.txt", _pins(preferred))
        self._run(
            plan,
            "--format=requirements.txt",
            "--annotation-style=split",
            "--emit-index-annotation",
            f"--output-file={resolved}",
            *(["--index-strategy=unsafe-first-match"] if indexes else []),
            *(f"--index={url}" for url in indexes),
        )
        return read_graph(resolved.read_text())

    def pylock(self, plan: UvPlan, graph: Mapping[str, ResolvedNode]) -> str:
        """The resolution `graph` as PEP 751 text with hashes."""
        pins = {name: node.version for name, node in graph.items() if node.version is not None}
        pylock = self._folder / "pylock.toml"
        constraints = self._file("pins.txt", _pins(pins))
        self._run(
            plan, "--format=pylock.toml", f"--output-file={pylock}", f"--constraints={constraints}"
        )
        text = pylock.read_text()
        locked = {package["name"] for package in toml.loads(text).get("packages", [])}
        if locked != set(graph):
            raise UndecidedError(
                f"{self._target.id}: the index changed while it was read; run this again."
            )
        return text

    def _run(self, plan: UvPlan, *flags: str) -> None:
        target = self._target
        arguments = [
            "pip",
            "compile",
            f"--python-version={target.python}",
            f"--python-platform={python_platform(target)}",
            *([f"--python={self._builder}"] if self._builder else []),
            "--no-header",
            "--quiet",
            *self._flags,
            *flags,
            *(f"--extra={extra}" for extra in target.extras),
            *(f"--no-binary={name}" for name in target.no_binary),
        ]
        if plan.excluded:
            excluded = self._file("excluded.txt", sorted(plan.excluded))
            arguments.append(f"--excludes={excluded}")
        if target.torch is not None and "torch" not in target.index:
            arguments.append(f"--torch-backend={target.torch}")
        # uv wants at least one source, also for a target that asks for nothing.
        sources = [
            *target.requirements,
            str(self._file(TWINS, [t.requirement for t in plan.twins])),
        ]
        if target.pyproject is not None:
            sources.append(target.pyproject)
        if plan.bound:
            sources.append(str(self._file("pyproject.toml", [_project(plan.bound)])))
        process = self._uv.run([*arguments, "--", *sources], self._root, self._options)
        if process.returncode != 0:
            raise explain(target, process.stderr)

    def _file(self, name: str, lines: Sequence[str]) -> Path:
        path = self._folder / name
        try:
            path.write_text("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise UndecidedError(
                f"{self._target.id}: {path} cannot be written: {reason(error)}."
            ) from error
        return path


def _pins(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={versions[name]}" for name in sorted(versions)]


def _project(bound: Mapping[str, str]) -> str:
    """A `pyproject.toml` that ties distributions to explicit indexes, and asks for nothing more."""
    names = {url: f"index-{number}" for number, url in enumerate(sorted(set(bound.values())))}
    indexes = [{"name": name, "url": url, "explicit": True} for url, name in names.items()]
    sources = {name: names[url] for name, url in bound.items()}
    return project_text(sources, {"index": indexes}, sorted(bound), INDEX_PROJECT)
