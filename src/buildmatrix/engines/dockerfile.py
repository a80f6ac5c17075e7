"""Generated files of a specification: rendered, written, and compared with those on disk.

Format: https://docs.docker.com/build/bake/reference/. Paths are relative to the folder that bake
is started in, which is the specification's. Settings of one machine (mirror, secrets, network,
outputs) are not in it: the mirror is a variable, the rest comes by `--set`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from weakref import WeakKeyDictionary

from jinja2 import (
    BytecodeCache,
    ChoiceLoader,
    FileSystemLoader,
    StrictUndefined,
    TemplateNotFound,
    TemplateSyntaxError,
    UndefinedError,
    nodes,
)
from jinja2.bccache import Bucket
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError, UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import BackendBuild, backend_build
from buildmatrix.engines.quoting import FILTERS, Unquotable, comment, ignore_pattern, plain, rules
from buildmatrix.facts.files import begins_with, keep_out_of_git, write_changed
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import DEFAULT_OUTPUT, PackageManager, Spec, Target


def bake_name(target: str) -> str:
    """Return the bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """Return the bake target that scans it."""
    return f"scan-{bake_name(target)}"


def staged_name(target: str, root: Path) -> str:
    """Return the name of an image on one machine until its gates have passed.

    It includes the specification's folder `root`: two projects may have targets of one name.
    """
    project = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    # A tag holds 128 characters (distribution/reference, `regexp.go`).
    return f"buildmatrix-staged:{project}-{target}"[: len("buildmatrix-staged:") + 128]


def site_folders(python: str) -> tuple[str, str]:
    """Return the folders of an image that a wheel's files and its `data` are installed into.

    Source: `install` in templates/_macros.j2.
    """
    return f"opt/venv/lib/python{python}/site-packages", "opt/venv"


# The bake file


_MIRROR = "BUILDMATRIX_MIRROR"


def bake_file(spec: Spec) -> str:
    """Return the bake file of all targets; `docker buildx bake` alone builds all images.

    It does not depend on the targets that a run selects: otherwise it could not be checked against
    the specification.
    """
    targets = spec.targets
    definition = {
        "variable": {_MIRROR: {"default": ""}},
        "group": {"default": {"targets": sorted(bake_name(target.id) for target in targets)}},
        "target": {
            **{bake_name(target.id): _image(spec, target) for target in targets},
            **{scan_name(target.id): _scan(spec, target) for target in targets},
        },
    }
    return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _image(spec: Spec, target: Target) -> dict[str, object]:
    return {
        "context": ".",
        "dockerfile": _literal(spec.dockerfile(target.id)),
        "platforms": [_literal(target.platform)],
        "tags": [_literal(reference) for reference in target.references],
        "args": {"MIRROR": f"${{{_MIRROR}}}"},
    }


def _scan(spec: Spec, target: Target) -> dict[str, object]:
    return {
        "context": _literal(f"{spec.output}/scan"),
        "contexts": {"rootfs": f"target:{bake_name(target.id)}"},
        "platforms": [_literal(target.platform)],
        "args": {"MIRROR": f"${{{_MIRROR}}}"},
    }


def _literal(text: str) -> str:
    """Escape `${...}` and `%{...}`, which bake expands in JSON strings too."""
    return text.replace("${", "$${").replace("%{", "%%{")


# Templates. Those of a user's repository are input like any other: they run in Jinja's sandbox, an
# unknown name in them is an error, and `quoting.plain` checks what they print.


#: Environment → templates with checked blocks; targets share few templates, and parsing one costs
#: more than rendering it.
_CHECKED = WeakKeyDictionary[ImmutableSandboxedEnvironment, set[str]]()


class _CompiledTemplates(BytecodeCache):
    """Compiled templates by name, file and source; each recipe has an environment of its own."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        if len(self._codes) == _MOST_COMPILED:
            self._codes.clear()
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _CompiledTemplates()
_MOST_COMPILED = 256


def make_environment(root: Path) -> ImmutableSandboxedEnvironment:
    """Return an environment that finds buildmatrix's templates, then those under `root`."""
    environment = ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(builtin_templates()), FileSystemLoader(root)]),
        bytecode_cache=_COMPILED,
        undefined=StrictUndefined,
        # Marks the results of macros, blocks and filters as finished, so that `finalize` can tell
        # them from bare values.
        autoescape=True,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment


def builtin_templates() -> Path:
    """Return the folder of buildmatrix's templates: packaged, or in a source checkout."""
    packaged = Path(__file__).parent / "templates"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "templates"


def render(
    environment: ImmutableSandboxedEnvironment,
    template: str,
    variables: Mapping[str, object],
    *,
    subject: str,
) -> str:
    """Render `template` for `subject` (a target, or `scan`).

    Raises `SpecError` that names the template, the subject and the change to make.
    """
    try:
        checked = _CHECKED.setdefault(environment, set())
        if template not in checked:
            _check_blocks(environment, template)
            checked.add(template)
        return environment.get_template(template).render(variables)
    except TemplateNotFound as error:
        name = str(error.name or template)
        if name != template:
            hint = f"write `{name}` beside the specification, or name an existing one"
            raise _error(f"uses `{name}`, which does not exist", template, hint=hint) from error
        hint = "write that file, beginning with {% extends 'backend.Dockerfile.j2' %}"
        raise _error(f"{subject}: its template does not exist", template, hint=hint) from error
    except TemplateSyntaxError as error:
        name = error.name or template
        raise _error(error.message or "is not a template", name, line=error.lineno) from error
    except (Unquotable, UndefinedError) as error:
        raise _error(f"{subject}: {error}", template, hint="see docs/templates.md") from error
    except (SecurityError, TemplateRuntimeError, TypeError, ValueError, RecursionError) as error:
        raise _error(f"{subject}: cannot be rendered: {error}", template) from error


def render_piece(
    environment: ImmutableSandboxedEnvironment, text: str, variables: Mapping[str, object]
) -> str:
    """Render a template without a file: a macro as in a target's Dockerfile."""
    return environment.from_string(text).render(variables)


def _check_blocks(environment: ImmutableSandboxedEnvironment, template: str) -> None:
    """Refuse blocks that no parent has: Jinja would silently omit a misspelled one."""
    chain: dict[str, nodes.Template] = {}
    name: str | None = template
    while name is not None and name not in chain:
        assert environment.loader is not None
        source, path, _ = environment.loader.get_source(environment, name)
        chain[name] = environment.parse(source, name, path)
        extends = chain[name].find(nodes.Extends)
        if extends is not None and not isinstance(extends.template, nodes.Const):
            return  # The template is known only at rendering.
        name = str(extends.template.as_const()) if extends is not None else None
    defined: set[str] = set()
    for child in list(chain)[:0:-1]:
        defined |= {block.name for block in chain[child].find_all(nodes.Block)}
        user = list(chain)[list(chain).index(child) - 1]
        for block in _outer_blocks(chain[user]):
            if block.name not in defined:
                near = difflib.get_close_matches(block.name, sorted(defined), n=1)
                hint = f"did you mean `{near[0]}`?" if near else "see docs/templates.md"
                message = f"`{child}` has no block `{block.name}`"
                raise _error(message, user, line=block.lineno, hint=hint)


def _outer_blocks(node: nodes.Node) -> Iterator[nodes.Block]:
    """Yield blocks that are in no other block; an inner one is printed with the outer one."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Block):
            yield child
        else:
            yield from _outer_blocks(child)


def _error(
    message: str, template: str, *, line: int | None = None, hint: str | None = None
) -> SpecError:
    # Names in it may be hostile, and a message is one line.
    return SpecError([Problem(comment(message), comment(template), line, hint=hint)])


# Dockerfiles


#: First words of every generated text file: files with them may be overwritten and removed.
MARK = "# Generated by buildmatrix"
#: For backends without a template.
GENERIC = "backend.Dockerfile.j2"


def dockerfile(
    environment: ImmutableSandboxedEnvironment, spec: Spec, target: Target, lock: Lock
) -> str:
    """Render the Dockerfile of `target`. Raises `SpecError` for invalid templates and values."""
    build = build_of(spec, target)
    variables = {
        "target": add_build_parts(target, build),
        "backend": build,
        "package_managers": {
            "build": package_manager(target, target.base.build),
            "final": package_manager(target, target.base.final),
        },
        "lock": lock,
        # An environment of conda has its own.
        "python": "" if lock.conda else target.python,
        "labels": labels(spec, target, lock),
        "tools": spec.tools,
        "workdir": workdir(spec, target),
        "needs_compiler": any(package.source_only for package in lock.packages),
    }
    return render(environment, template_of(spec.root, target), variables, subject=target.id)


def build_of(spec: Spec, target: Target) -> BackendBuild:
    """Return the catalogue's settings for images of the target's backend."""
    return backend_build(load(spec.catalogue_files), target.backend)


def add_build_parts(target: Target, build: BackendBuild) -> Target:
    """Return `target` with the packages and user groups that every image of its backend has.

    Raises `SpecError` if the catalogue does not know the packages of the base's distribution.
    """
    manager = package_manager(target, target.base.final)
    packages = {"apt": build.packages, "dnf": build.rpm_packages}.get(manager, ())
    if build.packages and not packages:
        known = "Debian and RHEL" if build.rpm_packages else "Debian"
        message = (
            f"{target.id}: its image needs {', '.join(build.packages)}, known only for {known}"
        )
        hint = f"take a base of {known.replace(' and ', ' or ')}"
        if at := target.base.final_at:
            raise SpecError([Problem(message, at.file, at.line, at.column, hint=hint)])
        raise SpecError([Problem(message, target.template, hint=hint)])
    groups = tuple(dict.fromkeys((*target.user.groups, *build.groups)))
    return replace(
        target,
        user=replace(target.user, groups=groups),
        system_packages=tuple(dict.fromkeys((*packages, *target.system_packages))),
    )


#: Words in the names of images whose distribution has RPMs.
_DNF = re.compile(
    r"(?<![a-z])(ubi\d|rhel|redhat|rocky|alma|centos|fedora|oraclelinux|amazonlinux|manylinux_2_28)"
)
_ZYPPER = re.compile(r"(?<![a-z])(opensuse|suse|sles?\d*|bci)(?![a-z])")


def package_manager(target: Target, image: str) -> PackageManager:
    """Return the package manager of one of the target's base images.

    It is what the specification says, else that of the distribution in the image's name, else apt.
    """
    if target.package_manager is not None:
        return target.package_manager
    name = image.partition("@")[0].lower()
    if _DNF.search(name):
        return "dnf"
    return "zypper" if _ZYPPER.search(name) else "apt"


def template_of(root: Path, target: Target) -> str:
    """Return the template of `target`: that of its backend, else the generic one."""
    own = f"{target.backend}.Dockerfile.j2"
    if target.template != own:
        return target.template
    is_there = any((folder / own).is_file() for folder in (builtin_templates(), root))
    return own if is_there else GENERIC


def labels(spec: Spec, target: Target, lock: Lock) -> dict[str, str]:
    """Return the labels of the image; the user's own labels win.

    `org.opencontainers.image.*` as the OCI image specification has them (annotations.md).
    """
    base, _, digest = target.base.final.partition("@")
    values = {
        "org.opencontainers.image.title": target.project,
        "org.opencontainers.image.version": spec.version,
        "org.opencontainers.image.source": spec.source or "",
        "org.opencontainers.image.base.name": base,
        "org.opencontainers.image.base.digest": digest,
        "dev.buildmatrix.target": target.id,
        "dev.buildmatrix.backend": target.backend,
        "dev.buildmatrix.runtime": target.runtime,
        # The project's own lock, and its installed parts.
        "dev.buildmatrix.lock": target.lock_label if target.committed_lock else "",
        "dev.buildmatrix.lock-digest": lock.digest,
    }
    merged = {**{key: value for key, value in values.items() if value}, **target.labels}
    return {key: merged[key] for key in sorted(merged)}


def workdir(spec: Spec, target: Target) -> str | None:
    """Return the working directory of the image's command: the first folder that is copied, or a
    file's folder.
    """
    for source, destination in target.copy:
        if not (spec.root / source).is_file():
            return destination
    return posixpath.dirname(target.copy[0][1]) or "/" if target.copy else None


def dockerignore(spec: Spec, target: Target) -> str:
    """Render `<Dockerfile>.dockerignore`: the context is the lock and the copied folders.

    In these folders the project's own rules apply. The lock comes last: no rule may hide it.
    """
    try:
        needed = [target.lock, *([target.wheel_folder] if target.install_project else [])]
        needed, copied = (
            [ignore_pattern(posixpath.normpath(path)) for path in paths]
            for paths in (needed, [source for source, _ in target.copy])
        )
    except Unquotable as error:
        raise SpecError([Problem(str(error), target.template, hint="rename the path")]) from error
    lines = [f"{MARK} for {target.id}. Do not edit."]
    if "." not in copied:
        lines += ["*", *dict.fromkeys(f"!{path}" for path in copied)]
    return "\n".join([*lines, *rules(spec.root, spec.output), *(f"!{n}" for n in needed), ""])


# All generated files


SCAN_TEMPLATE = "scan.Dockerfile.j2"


def generate(
    spec: Spec, targets: Sequence[Target], locks: Mapping[str, Lock]
) -> Mapping[str, bytes]:
    """Return path (relative to the specification) → content of every generated file.

    Depends only on the specification, the templates, the locks and the project's `.dockerignore`.
    Raises `SpecError` for a template or a value that cannot be used.
    """
    from buildmatrix.facts.inventory.archive import build_scanner_archive

    environment = make_environment(spec.root)
    files: dict[str, bytes] = {}
    for target in targets:
        lock = locks.get(target.id)
        if lock is None:
            raise UsageError(f"{target.id} has no lock; run `buildmatrix lock` first.")
        folder = f"{spec.output}/{target.id}"
        files[f"{folder}/Dockerfile"] = dockerfile(environment, spec, target, lock).encode()
        files[f"{folder}/Dockerfile.dockerignore"] = dockerignore(spec, target).encode()
    scan = render(environment, SCAN_TEMPLATE, {"tools": spec.tools}, subject="scan")
    files[f"{spec.output}/docker-bake.json"] = bake_file(spec).encode()
    files[f"{spec.output}/scan/Dockerfile"] = scan.encode()
    files[f"{spec.output}/scan/scan.pyz"] = build_scanner_archive()
    return {path: files[path] for path in sorted(files)}


def write(spec: Spec, files: Mapping[str, bytes]) -> None:
    """Write `files`, and remove those generated for removed targets.

    Files with equal content are left untouched. Raises `UndecidedError` on write errors.
    """
    if spec.output == DEFAULT_OUTPUT:
        try:
            keep_out_of_git((spec.root / spec.output).parent)
        except OSError as error:
            raise UndecidedError(f"{spec.output} cannot be written: {reason(error)}") from error
    for path, data in files.items():
        write_changed(spec.root / path, data)
    for leftover in _leftovers(spec, files):
        leftover.unlink()
        if not any(leftover.parent.iterdir()):
            leftover.parent.rmdir()


def differences(spec: Spec, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return one line per file that is missing, differs, or belongs to a removed target."""
    lines = []
    for path, data in files.items():
        present = spec.root / path
        if not present.is_file():
            lines.append(f"{path} is missing")
        elif present.read_bytes() != data:
            lines.append(f"{path} differs")
    for leftover in _leftovers(spec, files):
        lines.append(
            f"{_relative(spec, leftover)} does not belong to any target of this specification"
        )
    return tuple(lines)


def _leftovers(spec: Spec, files: Mapping[str, bytes]) -> list[Path]:
    """Return files with the generator's mark that belong to no target of the specification."""
    targets = {target.id for target in spec.targets}
    return sorted(
        path
        for path in (spec.root / spec.output).glob("*/Dockerfile*")
        if path.parent.name not in targets
        and _relative(spec, path) not in files
        and path.is_file()
        and begins_with(path, MARK)
    )


def _relative(spec: Spec, path: Path) -> str:
    return f"{spec.output}/{path.relative_to(spec.root / spec.output).as_posix()}"
