"""Writing generated files, and telling what differs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from dockerfile_reader import instructions, pairs
from render_cases import BACKENDS, CPU, CUDA, DIGEST, ROCM, lock_of, spec_of

from buildmatrix.errors import SpecError, UsageError
from buildmatrix.render.bake import bake_file
from buildmatrix.render.dockerfile import dockerfile, dockerignore
from buildmatrix.render.environment import builtin_templates, make_environment
from buildmatrix.render.generate import differences, generate, write
from buildmatrix.render.names import bake_name, scan_name
from buildmatrix.spec.model import Spec, Target


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
        ".buildmatrix/generated/cuda12.8-py312-server/Dockerfile belongs to no target of this "
        "specification" in reported
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
    definition = json.loads(bake_file(spec_of(tmp_path, *BACKENDS), BACKENDS))
    assert definition["group"]["default"]["targets"] == sorted(bake_name(t.id) for t in BACKENDS)
    image = definition["target"]["cuda12_8-py312-server"]
    assert image["dockerfile"] == ".buildmatrix/generated/cuda12.8-py312-server/Dockerfile"
    assert image["tags"] == ["registry.example.com/acme/inferno:1.4.0-cuda12.8-py312-server"]
    assert definition["target"][scan_name(CPU.id)]["contexts"] == {
        "rootfs": "target:cpu-py312-server"
    }
    assert definition["target"][scan_name(CPU.id)]["platforms"] == ["linux/arm64"]


def test_the_bake_file_takes_values_literally(tmp_path: Path) -> None:
    one = dataclasses.replace(CPU, image="acme/${env.HOME}", tags=("1",))
    assert json.loads(bake_file(spec_of(tmp_path, one), [one]))["target"][bake_name(one.id)][
        "tags"
    ] == ["acme/$${env.HOME}:1"]


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
    one = dataclasses.replace(CPU, base=dataclasses.replace(CPU.base, final=pinned))
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


def test_the_context_holds_only_the_lock_and_what_is_copied() -> None:
    assert dockerignore(CUDA).splitlines()[1:] == [
        "*",
        "!locks/pylock.cuda12.8-py312-server.toml",
        "!images/app",
        "**/.git",
        "**/__pycache__",
        "**/*.pyc",
    ]


def test_copying_the_whole_repository_allows_all_of_it() -> None:
    lines = dockerignore(dataclasses.replace(CUDA, copy=((".", "/app"),))).splitlines()
    assert "*" not in lines


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
        one = dataclasses.replace(CUDA, template="own.j2")
        assert f"# {block} is mine" in text_of(tmp_path, one)


def test_a_backend_without_a_template_says_which_file_to_write(tmp_path: Path) -> None:
    one = dataclasses.replace(CPU, backend="gaudi", template="gaudi.Dockerfile.j2")
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, one)
    assert caught.value.message == (
        "gaudi.Dockerfile.j2: cpu-py312-server: there is no such template; write that file, "
        "beginning with {% extends 'base.Dockerfile.j2' %}"
    )
    (tmp_path / "gaudi.Dockerfile.j2").write_text('{% extends "base.Dockerfile.j2" %}')
    assert "AS final" in text_of(tmp_path, one)


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
    one = dataclasses.replace(CPU, template="own.j2", env={"NAME": "two words"})
    with pytest.raises(SpecError) as caught:
        text_of(tmp_path, one)
    assert said in caught.value.message
