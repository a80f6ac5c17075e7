"""Writing generated files, and telling what differs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from dockerfile_reader import instructions, pairs
from render_cases import BACKENDS, CPU, CUDA, DIGEST, ROCM, lock_of, spec_of

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.engines.dockerfile import (
    bake_file,
    bake_name,
    builtin_templates,
    differences,
    dockerfile,
    dockerignore,
    generate,
    make_environment,
    package_manager,
    scan_name,
    write,
)
from buildmatrix.engines.quoting import Ignored
from buildmatrix.judge import sizes
from buildmatrix.matrix.model import PackageManager, Spec, Target


def files_of(spec: Spec) -> dict[str, bytes]:
    return dict(generate(spec, spec.targets, {one.id: lock_of(one) for one in spec.targets}))


def text_of(root: Path, one: Target) -> str:
    return dockerfile(make_environment(root), spec_of(root, one), one, lock_of(one))


def test_what_was_written_does_not_differ(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, *BACKENDS)
    files = files_of(spec)
    assert len(differences(spec, files)) == len(files)
    write(spec, files)
    assert differences(spec, files) == ()


def test_a_file_edited_by_hand_or_removed_is_reported(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, CPU)
    files = files_of(spec)
    write(spec, files)
    edited = tmp_path / ".buildmatrix/generated/cpu-py312-server/Dockerfile"
    edited.write_text(edited.read_text() + "USER 0\n")
    (tmp_path / ".buildmatrix/generated/docker-bake.json").unlink()
    assert differences(spec, files) == (
        ".buildmatrix/generated/cpu-py312-server/Dockerfile differs",
        ".buildmatrix/generated/docker-bake.json is missing",
    )


def test_files_of_a_target_that_is_no_more_are_reported_and_then_removed(tmp_path: Path) -> None:
    before = spec_of(tmp_path, CPU, CUDA)
    write(before, files_of(before))
    after = spec_of(tmp_path, CPU)
    reported = differences(after, files_of(after))
    assert (
        ".buildmatrix/generated/cuda12.8-py312-server/Dockerfile does not belong to "
        "any target of this specification" in reported
    )
    write(after, files_of(after))
    assert differences(after, files_of(after)) == ()
    assert not (tmp_path / ".buildmatrix/generated/cuda12.8-py312-server").exists()


def test_a_selection_leaves_the_files_of_other_targets_alone(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, CPU, CUDA)
    write(spec, files_of(spec))
    some = generate(spec, [CPU], {CPU.id: lock_of(CPU)})
    write(spec, some)
    assert (tmp_path / ".buildmatrix/generated/cuda12.8-py312-server/Dockerfile").is_file()
    assert differences(spec, files_of(spec)) == ()


def test_files_of_other_people_in_the_output_folder_are_left_alone(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, CPU, output="docker")
    mine = tmp_path / "docker/mine/Dockerfile"
    mine.parent.mkdir(parents=True)
    mine.write_text("FROM scratch\n")
    write(spec, files_of(spec))
    assert mine.is_file()
    assert differences(spec, files_of(spec)) == ()


def test_a_file_that_is_up_to_date_is_not_touched(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, CPU)
    write(spec, files_of(spec))
    path = tmp_path / ".buildmatrix/generated/docker-bake.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    write(spec, files_of(spec))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_a_target_without_a_lock_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cpu-py312-server has no lock; run `buildmatrix lock`"):
        generate(spec_of(tmp_path, CPU), [CPU], {})


def test_the_bake_file_builds_all_images_and_scans_each(tmp_path: Path) -> None:
    definition = json.loads(bake_file(spec_of(tmp_path, *BACKENDS)))
    assert definition["group"]["default"]["targets"] == sorted(bake_name(t.id) for t in BACKENDS)
    image = definition["target"]["cuda12_8-py312-server"]
    assert image["dockerfile"] == ".buildmatrix/generated/cuda12.8-py312-server/Dockerfile"
    assert image["tags"] == ["registry.example.com/acme/inferno:1.4.0-cuda12.8-py312-server"]
    assert definition["target"][scan_name(CPU.id)]["contexts"] == {
        "rootfs": "target:cpu-py312-server"
    }
    assert definition["target"][scan_name(CPU.id)]["platforms"] == ["linux/arm64"]


def test_the_bake_file_takes_values_literally(tmp_path: Path) -> None:
    one = replace(CPU, image="acme/${env.HOME}", tags=("1",))
    assert json.loads(bake_file(spec_of(tmp_path, one)))["target"][bake_name(one.id)]["tags"] == [
        "acme/$${env.HOME}:1"
    ]


def test_the_image_says_what_it_is(tmp_path: Path) -> None:
    (arguments,) = [a for k, a in instructions(text_of(tmp_path, CUDA)) if k == "LABEL"]
    assert pairs(arguments) == {
        "dev.buildmatrix.backend": "cuda",
        "dev.buildmatrix.lock-digest": DIGEST,
        "dev.buildmatrix.runtime": "12.8",
        "dev.buildmatrix.target": "cuda12.8-py312-server",
        "org.opencontainers.image.base.name": "nvidia/cuda:12.8.1-base-ubuntu24.04",
        "org.opencontainers.image.source": "https://git.example.com/acme/inferno",
        "org.opencontainers.image.title": "inferno",
        "org.opencontainers.image.vendor": "Acme",
        "org.opencontainers.image.version": "1.4.0",
    }


def test_a_base_that_is_pinned_is_named_with_its_digest(tmp_path: Path) -> None:
    pinned = "python:3.12-slim@sha256:" + "ab" * 32
    one = replace(CPU, base=replace(CPU.base, final=pinned))
    text = text_of(tmp_path, one)
    assert f"FROM ${{MIRROR}}{pinned} AS final" in text
    assert f'org.opencontainers.image.base.digest="sha256:{"ab" * 32}"' in text


@pytest.mark.parametrize("one", BACKENDS, ids=lambda one: one.backend)
def test_no_secret_and_no_download_gets_into_a_layer(one: Target, tmp_path: Path) -> None:
    found = instructions(text_of(tmp_path, one))
    kinds = {keyword for keyword, _ in found}
    assert "ADD" not in kinds
    assert [arguments for keyword, arguments in found if keyword == "ARG"] == ['MIRROR=""']
    (install,) = [a for k, a in found if k == "RUN" and "uv pip sync" in a]
    for wanted in (
        "--mount=type=secret,id=ca",
        "--mount=type=secret,id=netrc",
        "--require-hashes",
        "--mount=type=cache",
        "UV_PYTHON_DOWNLOADS=never",
    ):
        assert wanted in install
    assert "required" not in install
    assert [arguments for keyword, arguments in found if keyword == "USER"][-1] == "10001"


def test_only_the_build_stage_knows_of_resolvers_and_of_uv(tmp_path: Path) -> None:
    for one in BACKENDS:
        build, final = text_of(tmp_path, one).split(" AS final\n")
        assert "uv" in build
        assert "uv " not in final
        assert "VARIANT_PROVIDER" not in final


def test_compilers_are_installed_only_where_something_is_built_from_source(tmp_path: Path) -> None:
    environment, spec = make_environment(tmp_path), spec_of(tmp_path, ROCM)
    with_wheels = dockerfile(environment, spec, ROCM, lock_of(ROCM))
    from_source = dockerfile(environment, spec, ROCM, lock_of(ROCM, source_only=True))
    assert "build-essential" not in with_wheels
    assert "build-essential python3.12-dev" in from_source.split(" AS final\n")[0]
    assert "build-essential" not in from_source.split(" AS final\n")[1]


@pytest.mark.parametrize(
    ("image", "manager"),
    [
        ("nvidia/cuda:12.8.1-base-ubi9", "dnf"),
        ("registry.example.com/mirror/ubi9/ubi-minimal:9.6", "dnf"),
        ("rocm/dev-almalinux-8:7.2.4-complete", "dnf"),
        ("rockylinux:9-minimal@sha256:" + "5e" * 32, "dnf"),
        ("quay.io/centos/centos:stream9", "dnf"),
        ("registry.suse.com/bci/python:3.12", "zypper"),
        ("opensuse/leap:15.6", "zypper"),
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", "apt"),
        ("registry.example.com/acme/cubicle:1", "apt"),
        ("registry.example.com/isles/sleeper:1", "apt"),
    ],
)
def test_a_base_gets_the_package_manager_of_its_distribution(image: str, manager: str) -> None:
    assert package_manager(CPU, image) == manager
    assert package_manager(replace(CPU, package_manager="zypper"), image) == "zypper"


@pytest.mark.parametrize(
    ("manager", "name", "message"),
    [
        ("apt", "mesa-libGLU", "`mesa-libGLU` is not the name of a Debian package"),
        ("dnf", "libgomp=1", "`libgomp=1` is not the name of an RPM package, `name` or `name-vers"),
        ("zypper", "a^b", "`a^b` is not the name of an RPM package, `name` or `name=version`"),
    ],
)
def test_a_name_of_another_distributions_package_is_refused(
    manager: PackageManager, name: str, message: str, tmp_path: Path
) -> None:
    one = replace(CPU, package_manager=manager, system_packages=(name,))
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, one)
    assert message in caught.value.message


def test_packages_of_a_backend_have_the_names_of_its_base(tmp_path: Path) -> None:
    one = replace(CPU, backend="opengl", template="opengl.Dockerfile.j2", package_manager="dnf")
    assert 'wanted="libglvnd-egl libglvnd-glx"' in text_of(tmp_path, one)
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, replace(one, package_manager="zypper"))
    assert "needs libegl1, libgl1, known only for Debian and RHEL" in caught.value.message


STUB = """#!/bin/sh
echo "${0##*/} $*" >> "$ROOT/calls"
case "$*" in *install*) for name in python3.12 useradd; do cp "$0" "$ROOT/$name"; done;; esac
"""


@pytest.mark.parametrize("has_python", [True, False])
@pytest.mark.parametrize("program", ["dnf", "microdnf", "zypper"])
def test_rpms_are_installed_only_if_the_base_lacks_them(
    program: str, has_python: bool, tmp_path: Path
) -> None:
    manager: PackageManager = "zypper" if program == "zypper" else "dnf"
    text = text_of(tmp_path, replace(CPU, package_manager=manager))
    step = next(a for keyword, a in instructions(text) if keyword == "RUN" and "wanted" in a)
    for name in [program, *(["python3.12", "useradd"] if has_python else [])]:
        (tmp_path / name).write_text(STUB)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "rm").symlink_to("/bin/true")
    (tmp_path / "cp").symlink_to("/bin/cp")
    environment = {"PATH": str(tmp_path), "ROOT": str(tmp_path)}
    subprocess.run(["/bin/sh", "-c", step], env=environment, check=True)
    calls = (tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""
    dnf = "install --assumeyes --setopt=install_weak_deps=0 --setopt=*.gpgcheck=1"
    expected = {
        "dnf": f"dnf {dnf} python3.12 shadow-utils\ndnf clean all\n",
        "microdnf": f"microdnf {dnf} python3.12 shadow-utils\nmicrodnf clean all\n",
        "zypper": "zypper --non-interactive install --no-recommends python312 shadow\n"
        "zypper clean --all\n",
    }
    assert calls == ("" if has_python else expected[program])


def ignore_lines(root: Path, one: Target, **more: str) -> list[str]:
    return dockerignore(spec_of(root, one, **more), one).splitlines()[1:]


def in_context(root: Path, one: Target, path: str) -> bool:
    return not Ignored(ignore_lines(root, one))(path)


def test_the_context_holds_only_the_lock_and_what_is_copied(tmp_path: Path) -> None:
    assert ignore_lines(tmp_path, CUDA) == [
        "*",
        "!images/app",
        "**/.git",
        "**/__pycache__",
        "**/*.pyc",
        "**/.buildmatrix",
        "!locks/pylock.cuda12.8-py312-server.toml",
    ]


ALL = replace(CUDA, copy=((".", "/app"),))


def test_copying_the_whole_repository_allows_all_of_it(tmp_path: Path) -> None:
    assert "*" not in ignore_lines(tmp_path, ALL)
    assert in_context(tmp_path, ALL, "src/main.py")


def test_what_buildmatrix_writes_is_never_copied(tmp_path: Path) -> None:
    assert not in_context(tmp_path, ALL, ".buildmatrix/state/x/record.json")
    elsewhere = Ignored(ignore_lines(tmp_path, ALL, output="ci/[docker]"))
    assert elsewhere("ci/[docker]/cuda/Dockerfile")
    assert elsewhere("ci/[docker]/docker-bake.json")
    assert not elsewhere("ci/[docker]/app/main.py")


def test_the_projects_own_ignore_rules_apply_inside_copied_folders(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text(
        "# secrets\r\n\n**/.env\n/images/app/local\nlocks\n*.md\n!README.md\n"
    )
    for one in (CUDA, ALL):
        assert not in_context(tmp_path, one, "images/app/.env")
        assert not in_context(tmp_path, one, "images/app/local/settings.py")
        assert in_context(tmp_path, one, "images/app/main.py")
        assert in_context(tmp_path, one, one.lock)
    assert not in_context(tmp_path, ALL, "NOTES.md")
    assert in_context(tmp_path, ALL, "README.md")


def test_ignore_rules_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"\.dockerignore: cannot be read: is not UTF-8"):
        ignore_lines(tmp_path, ALL)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.env", "a.env", "x/a.env"),
        ("**/*.env", "x/y/a.env", "a.envy"),
        ("x/**/z", "x/y/z", "xz"),
        ("x/**", "x/y", "x"),
        ("a?c", "abc", "a/c"),
        ("[a-c]1", "b1", "d1"),
        ("[^a]1", "b1", "a1"),
        (r"a\*", "a*", "ab"),
        ("./x/", "x/y", "y/x"),
        ("a.b", "a.b/c", "axb"),
    ],
)
def test_an_ignore_pattern_matches_what_it_does_for_docker(
    pattern: str, matching: str, other: str
) -> None:
    assert Ignored([pattern])(matching)
    assert not Ignored([pattern])(other)


def working_folder(root: Path, *copy: tuple[str, str]) -> str:
    (root / "src").mkdir(exist_ok=True)
    (root / "src/m.py").touch()
    found = instructions(text_of(root, replace(CUDA, copy=copy)))
    (arguments,) = [arguments for keyword, arguments in found if keyword == "WORKDIR"]
    return arguments


def test_the_working_folder_is_never_a_copied_file(tmp_path: Path) -> None:
    assert working_folder(tmp_path, ("src/m.py", "/app/m.py")) == '"/app"'
    assert working_folder(tmp_path, ("src/m.py", "/app/")) == '"/app"'
    assert working_folder(tmp_path, ("src/m.py", "/m.py")) == '"/"'
    assert working_folder(tmp_path, ("src/m.py", "/etc/m.py"), ("src", "/srv")) == '"/srv"'


def test_a_change_of_the_source_code_reruns_no_command(tmp_path: Path) -> None:
    for one in BACKENDS:
        found = instructions(text_of(tmp_path, one))
        environment = found.index(("COPY", "--from=build /opt/venv /opt/venv"))
        assert found[environment + 1] == ("RUN", '/opt/venv/bin/python -c ""')
        assert "RUN" not in [keyword for keyword, _ in found[environment + 2 :]]
        assert "useradd" in found[environment - 1][1]


def test_a_group_that_the_base_lacks_is_reported(tmp_path: Path) -> None:
    assert 'so the user is not in it:" video >&2' in text_of(tmp_path, CUDA)


def test_a_misspelt_block_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text(
        "{% extends 'cuda.Dockerfile.j2' %}\n{% block finale %}\nRUN x\n{% endblock %}"
    )
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, replace(CUDA, template="own.j2"))
    assert caught.value.message == (
        "own.j2:2: `cuda.Dockerfile.j2` has no block `finale`; did you mean `final`?"
    )


def test_a_template_may_offer_blocks_of_its_own_to_templates_that_extend_it(tmp_path: Path) -> None:
    (tmp_path / "ours.j2").write_text(
        "{% extends 'cpu.Dockerfile.j2' %}{% block final %}{{ super() -}}"
        "{% block extras %}{% endblock %}{% endblock %}"
    )
    (tmp_path / "mine.j2").write_text(
        "{% extends 'ours.j2' %}{% block extras %}\nRUN extras\n{% endblock %}"
    )
    assert "RUN extras" in text_of(tmp_path, replace(CPU, template="mine.j2"))


def test_torch_extensions_are_compiled_for_the_architectures_as_they_are_declared(
    tmp_path: Path,
) -> None:
    one = replace(CUDA, archs=("sm_80", "sm_90a", "compute_120"))
    text = text_of(tmp_path, one)
    assert 'TORCH_CUDA_ARCH_LIST="8.0;9.0a;12.0+PTX"' in text
    assert 'NV_VARIANT_PROVIDER_FORCE_SM_ARCH="12.0"' in text


def test_the_rule_on_variables_knows_those_that_the_template_sets(tmp_path: Path) -> None:
    text = text_of(tmp_path, CPU).replace("$PATH", "")
    (arguments,) = [arguments for keyword, arguments in instructions(text) if keyword == "ENV"]
    assert set(pairs(arguments)) == set(sizes.OF_TEMPLATES)


def test_the_fix_for_a_variable_of_the_template_names_its_block() -> None:
    image = SimpleNamespace(target=CPU)
    both = sizes._environment_fix(image, ["PATH", "TOKEN"]).text  # type: ignore[arg-type]
    assert both.startswith("PATH: the generated Dockerfile sets this; replace the `env` block")
    assert "take TOKEN out of `env`" in both


def test_a_template_of_the_users_own_can_replace_any_block(tmp_path: Path) -> None:
    builtin = (builtin_templates() / "base.Dockerfile.j2").read_text()
    blocks = [line.split()[2] for line in builtin.splitlines() if line.startswith("{% block ")]
    assert {
        "args",
        "base",
        "python",
        "build_tools",
        "install",
        "app",
        "user",
        "labels",
        "command",
    } < {*blocks}
    for block in blocks:
        (tmp_path / "own.j2").write_text(
            f"{{% extends 'cuda.Dockerfile.j2' %}}{{% block {block} %}}\n# {block} is mine\n"
            "{% endblock %}"
        )
        one = replace(CUDA, template="own.j2")
        assert f"# {block} is mine" in text_of(tmp_path, one)


def test_a_backend_without_a_template_takes_the_generic_one(tmp_path: Path) -> None:
    one = replace(CPU, backend="gaudi", template="gaudi.Dockerfile.j2")
    assert "AS final" in text_of(tmp_path, one)
    own = '{% extends "backend.Dockerfile.j2" %}{% block host %}# ours{% endblock %}'
    (tmp_path / "gaudi.Dockerfile.j2").write_text(own)
    assert text_of(tmp_path, one).endswith("# ours")


def test_a_template_that_was_named_and_is_not_there_says_which_file_to_write(
    tmp_path: Path,
) -> None:
    one = replace(CPU, template="gaudi.Dockerfile.j2")
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, one)
    assert caught.value.message == (
        "gaudi.Dockerfile.j2: cpu-py312-server: its template does not exist; write that file, "
        "beginning with {% extends 'backend.Dockerfile.j2' %}"
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% extends 'base.Dockerfile.j2' %", "own.j2:1: "),
        ("{% extends 'bsae.Dockerfile.j2' %}", "own.j2: uses `bsae.Dockerfile.j2`"),
        ("{{ target.pyhton }}", "has no attribute 'pyhton'"),
        ("FROM x\n{{ target.env.NAME }}", "need a quoting filter"),
        ("{{ target.__class__.__mro__ }}", "own.j2: cpu-py312-server: "),
        ("{% include '../../etc/passwd' %}", "own.j2: uses `../../etc/passwd`"),
    ],
)
def test_a_mistake_in_a_template_is_named_with_its_file(
    tmp_path: Path, template: str, said: str
) -> None:
    (tmp_path / "own.j2").write_text(template)
    one = replace(CPU, template="own.j2", env={"NAME": "two words"})
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, one)
    assert said in caught.value.message
