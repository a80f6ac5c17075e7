"""From axes, include and exclude to targets."""

from __future__ import annotations

import subprocess

import pytest


def ids(spec):
    return [target.id for target in spec.targets]


def test_identifiers_follow_the_axes_in_a_fixed_order(load, small):
    assert ids(load(small)) == [
        "cuda12.8-py312-server",
        "cuda13.0-py312-server",
        "cpu-py312-server",
        "cpu-py312-server-arm64",
    ]


def test_versions_are_ordered_as_versions_however_they_are_written(load, small):
    text = small.replace('python = ["3.12"]', 'python = ["3.10", "3.9"]').replace(
        'runtime."12.8"', 'runtime."12.10" = { full = "12.10.0" }\nruntime."12.8"'
    )
    assert ids(load(text))[:4] == [
        "cuda12.8-py39-server",
        "cuda12.8-py310-server",
        "cuda12.10-py39-server",
        "cuda12.10-py310-server",
    ]


def test_an_axis_of_a_backend_takes_the_place_of_the_default_axis(load, small):
    text = small.replace("[backend.cpu]", '[backend.cpu]\npython = ["3.11"]\nvariant = ["tiny"]')
    assert ids(load(text))[2:] == ["cpu-py311-tiny", "cpu-py311-tiny-arm64"]


def test_a_runtime_without_values_may_stand_as_a_string(load, small):
    text = small.replace('runtime = "any"', 'runtime = "2025.0"')
    assert ids(load(text))[2] == "cpu2025.0-py312-server"


def test_runtimes_without_values_may_stand_as_a_list(load, small):
    text = small.replace('runtime = "any"', 'runtime = ["2025.10", "2025.3"]').replace(
        'platforms = ["linux/amd64", "linux/arm64"]', 'env = { LINE = "{runtime}" }'
    )
    spec = load(text)
    assert ids(spec)[2:] == ["cpu2025.3-py312-server", "cpu2025.10-py312-server"]
    assert [target.env.get("LINE") for target in spec.targets[2:]] == ["2025.3", "2025.10"]


def test_without_variants_there_is_one_that_is_called_default(load, small):
    text = small.replace('variant = ["server"]\n', "")
    assert ids(load(text))[0] == "cuda12.8-py312-default"


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ('select = ["cpu*"]', ["cuda12.8-py312-server", "cuda13.0-py312-server"]),
        ('select = "cuda12.8-*"', ["cuda13.0", "cpu-py312-server", "arm64"]),
        ('when = { backend = "cuda", runtime = ">=13" }', ["cuda12.8", "cpu-", "arm64"]),
        ('when = { platform = "linux/arm64" }', ["cuda12.8", "cuda13.0", "cpu-"]),
        ('when = { runtime = ["12.8", "any"] }', ["cuda13.0"]),
        ('select = ["c*"]\nwhen = { python = ">=3.9,<3.13", backend = ["cpu"] }', ["12.8", "13.0"]),
    ],
)
def test_exclude_takes_points_out_by_pattern_and_by_condition(load, small, selector, left):
    spec = load(f'{small}\n[[exclude]]\n{selector}\nreason = "no wheels"\n')
    assert len(spec.targets) == len(left)
    assert all(part in id for part, id in zip(left, ids(spec), strict=True))
    assert {exclusion.reason for exclusion in spec.excluded} == {"no wheels"}
    assert len(spec.excluded) + len(spec.targets) == 4


def test_include_adds_a_point_and_may_bring_back_an_excluded_one(load, small):
    spec = load(
        small
        + """
[[exclude]]
select = "cpu*"
reason = "later"
[[include]]
backend = "cpu"
python = "3.12"
platform = "linux/arm64"
reason = "edge boxes"
[[include]]
backend = "cuda"
runtime = "13.0"
python = "3.13"
reason = "preview"
"""
    )
    assert ids(spec)[2:] == ["cpu-py312-server-arm64", "cuda13.0-py313-server"]
    assert [exclusion.id for exclusion in spec.excluded] == ["cpu-py312-server"]


def test_settings_add_up_from_defaults_over_backend_to_variant(load, small):
    text = small.replace(
        "[backend.cuda]",
        """\
system-packages = ["libgomp1"]
env = { A = "1", B = "1" }
archs = ["sm_70"]
command = "python -m 'my app'"
[variant.server]
requirements = ["base.in"]
env = { B = "3", C = "3" }
[backend.cuda]
requirements = ["cuda.in"]
system-packages = ["libnuma1=2.0.16-1"]
archs = ["sm_80"]
env = { B = "2" }
""",
    )
    cuda, *_, cpu = load(text).targets
    assert cuda.requirements == ("base.in", "cuda.in")
    assert cuda.system_packages == ("libgomp1", "libnuma1=2.0.16-1")
    assert cuda.archs == ("sm_80",)
    assert cuda.env == {"A": "1", "B": "3", "C": "3"}
    assert cuda.command == ("python", "-m", "my app")
    assert cpu.archs == ("sm_70",)


def test_overrides_replace_in_file_order_unless_they_inherit(load, small):
    spec = load(
        small
        + """
[[override]]
select = "cuda*"
archs = ["sm_80"]
env = { A = "1" }
requirements = ["cuda.in"]
[[override]]
select = ["cuda13.0-*"]
archs = ["sm_120", "sm_80"]
env = { B = "2" }
inherit = { archs = "append", env = "append" }
"""
    )
    old, new, cpu, _ = spec.targets
    assert (old.archs, new.archs, cpu.archs) == (("sm_80",), ("sm_80", "sm_120"), ())
    assert (old.env, new.env) == ({"A": "1"}, {"A": "1", "B": "2"})
    assert old.requirements == ("cuda.in",)


def test_of_several_bases_the_first_that_matches_is_taken(load, small):
    text = small.replace(
        'base = "python:{python}-slim-bookworm"',
        """base = [
  { when = { platform = "linux/arm64" }, final = "arm64v8/python:{python}" },
  { build = "python:{python}", final = "python:{python}-slim" },
]""",
    )
    *_, amd64, arm64 = load(text).targets
    assert (amd64.base.build, amd64.base.final) == ("python:3.12", "python:3.12-slim")
    assert (arm64.base.build, arm64.base.final) == ("arm64v8/python:3.12",) * 2


def test_placeholders_are_filled_in_per_target(load, small):
    text = small.replace(
        "[backend.cuda]",
        """\
[backend.cuda]
torch = "{runtime.torch}"
labels = { about = "{project} {version} {id} {backend} {runtime} {python} {variant} {platform}" }
env = { JSON = '{{"a": 1}}', DATA = "/opt:${HOME}" }
""",
    )
    target = load(text).targets[0]
    assert target.torch == "cu128"
    assert target.base.final == "nvidia/cuda:12.8.1-base-ubuntu22.04"
    assert target.labels == {
        "about": "inferno 1.4.0 cuda12.8-py312-server cuda 12.8 3.12 server linux/amd64"
    }
    assert target.env == {"JSON": '{"a": 1}', "DATA": "/opt:${HOME}"}


def test_what_is_not_said_has_documented_defaults(load, small):
    spec = load(small)
    target = spec.targets[0]
    assert target.image == "inferno"
    assert target.tags == ("1.4.0-cuda12.8-py312-server",)
    assert target.lock == "locks/pylock.cuda12.8-py312-server.toml"
    assert target.template == "cuda.Dockerfile.j2"
    assert (target.user.name, target.user.uid) == ("app", 10001)
    assert spec.output == ".buildmatrix/generated"
    assert set(spec.tools) == {"uv", "micromamba", "scanner"}
    assert spec.policy.bloat_threshold == 5_000_000


def test_an_alias_is_one_more_tag_of_one_target(load, small):
    spec = load(
        small + '[tags]\nalias = { latest = "cuda13.0-*", "{version}" = "cpu-py312-server" }\n'
    )
    tags = {target.id: target.tags[1:] for target in spec.targets if target.tags[1:]}
    assert tags == {"cuda13.0-py312-server": ("latest",), "cpu-py312-server": ("1.4.0",)}


def test_the_commit_is_asked_for_only_where_a_tag_uses_it(load, small, project, monkeypatch):
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", "-C", project, *arguments], check=True)
    tagged = small + '[tags]\ntemplates = ["{git.short}-{id}"]\n'
    tag = load(tagged).targets[0].tags[0]
    assert len(tag.partition("-")[0]) >= 12
    monkeypatch.setenv("PATH", "/nowhere")
    assert load(small).targets


def test_a_subset_can_keep_only_the_latest_runtime_of_what_it_selects(load, small):
    spec = load(
        small
        + """
[subset.pr]
select = ["*-py312-server"]
latest = "runtime"
[subset.old]
select = ["cuda12.*"]
latest = "runtime"
"""
    )
    assert spec.subsets == {
        "pr": ("cuda13.0-py312-server", "cpu-py312-server"),
        "old": ("cuda12.8-py312-server",),
    }


def test_policy_waivers_smoke_and_node_classes_become_typed_values(load, small):
    spec = load(
        small
        + """
[policy]
max-size = { cpu = "1.5GB", "*" = "20 GiB" }
bloat-threshold = "500kB"
forbid-env = { cpu = ["NVIDIA_*"] }
allow-unresolved = { cuda = ["libcuda.so.1"] }
[[waive]]
rule = "BM401"
select = "cuda*"
path = "*/libbitsandbytes_cuda*.so"
reason = "the loader picks the file"
owner = "ml-platform"
expires = 2027-01-31
[[smoke]]
name = "warmup"
level = "batch"
select = ["cuda*"]
command = "python -m inferno.warmup --batch 1"
timeout = "1.5m"
[node-class.h100]
backend = "cuda"
driver = ">=570"
archs = ["sm_90"]
labels = { "nvidia.com/gpu.family" = "hopper" }
runs = ["cuda12.8-*"]
[node-class.slice]
backend = "cuda"
driver = "550.54.14"
products = "NVIDIA-A100-SXM4-80GB"
memory = "80GB"
count = 8
interconnect = "nvlink"
partition = "1g.10gb"
kernel = ">=5.15"
container-runtime = "containerd 1.7.27"
cpu = "x86-64-v3"
resources = "nvidia.com/mig-1g.10gb"
tolerations = ["nvidia.com/gpu=present:NoSchedule"]
cdi = "nvidia.com/gpu=0:1"
known-good = "ghcr.io/acme/inferno@sha256:%s"
"""
        % ("a" * 64)
    )
    assert spec.policy.max_size == {"cpu": 1_500_000_000, "*": 20 * 2**30}
    assert spec.policy.bloat_threshold == 500_000
    assert str(spec.waivers[0].expires) == "2027-01-31"
    assert spec.waivers[0].position.line == 22
    cuda, _, cpu, _ = spec.targets
    assert cpu.smoke == ()
    assert cuda.smoke[0].command == ("python", "-m", "inferno.warmup", "--batch", "1")
    assert cuda.smoke[0].timeout_s == 90
    h100, part = spec.node_classes
    assert h100.runs == ("cuda12.8-*",)
    assert cuda.node_classes == (h100, part)
    assert cpu.node_classes == ()
    assert (part.products, part.memory, part.count) == (
        ("NVIDIA-A100-SXM4-80GB",),
        80_000_000_000,
        8,
    )
    assert (part.driver, part.cpu, part.partition) == ("550.54.14", "x86-64-v3", "1g.10gb")
    assert part.known_good == f"ghcr.io/acme/inferno@sha256:{'a' * 64}"
    assert (part.image, part.fall_back) == (None, None)


def test_the_same_file_gives_the_same_specification(load, small):
    assert load(small) == load(small)
