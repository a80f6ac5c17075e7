"""What is done with a specification: selecting, the CI matrix, the schema, the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import tomli

from buildmatrix.base.errors import UsageError
from buildmatrix.cli.matrix import github_matrix
from buildmatrix.matrix import keys, keys_settings
from buildmatrix.matrix.keys import schema
from buildmatrix.matrix.load import DEFAULT_TOOLS
from buildmatrix.matrix.matrix import select
from buildmatrix.matrix.shapes import Table

GUIDE = (Path(__file__).parents[3] / "docs" / "spec.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
WHOLE = next(example for example in EXAMPLES if example.startswith("schema = 1"))


def chosen(spec, *globs, subset=None):
    return [target.id for target in select(spec, globs, subset)]


def test_without_patterns_everything_is_selected(load, small):
    assert len(select(load(small), ())) == 4


def test_any_of_several_patterns_selects_in_matrix_order(load, small):
    assert chosen(load(small), "*arm64", "cuda12*") == [
        "cuda12.8-py312-server",
        "cpu-py312-server-arm64",
    ]


def test_a_pattern_with_an_exclamation_mark_leaves_out(load, small):
    spec = load(small)
    everything = {target.id for target in spec.targets}
    cpu = {name for name in everything if name.startswith("cpu")}
    assert cpu
    assert set(chosen(spec, "!cpu*")) == everything - cpu
    assert set(chosen(spec, "*", "!cpu*")) == everything - cpu
    with pytest.raises(UsageError, match=r"no target of .* matches `npu\*`"):
        chosen(spec, "!npu*")
    with pytest.raises(UsageError, match=r"--select cpu\* !cpu\* leaves no target"):
        chosen(spec, "cpu*", "!cpu*")


def test_a_subset_limits_what_patterns_select(load, small):
    spec = load(small + "[subset.gpu]\nselect = 'cuda*'\n")
    assert chosen(spec, "*13.0*", subset="gpu") == ["cuda13.0-py312-server"]
    with pytest.raises(UsageError, match="no target of subset `gpu` matches `cpu"):
        select(spec, ["cpu*"], "gpu")


@pytest.mark.parametrize(
    ("glob", "hint"),
    [
        ("cuda12.9-*", "the closest are cuda12.8-py312-server"),
        ("cpu-py311-server", "the closest are cpu-py312-server"),
        ("*zzz*", "cuda12.8-py312-server"),
        ("rocm*", "excluded: no wheels"),
    ],
)
def test_a_pattern_that_matches_nothing_is_a_usage_error_with_advice(load, small, glob, hint):
    text = small + (
        '[backend.rocm]\nruntime = "7.2"\nbase = "x"\n'
        '[[exclude]]\nselect = "rocm*"\nreason = "no wheels"\n'
    )
    with pytest.raises(UsageError, match=re.escape(hint)) as caught:
        select(load(text), [glob])
    assert caught.value.exit_code == 2


def test_an_unknown_subset_names_the_one_that_was_meant(load, small):
    with pytest.raises(UsageError, match="no subset `prz`; did you mean `prs`"):
        select(load(small + "[subset.prs]\n"), (), "prz")


def test_the_github_matrix_is_one_line_with_one_job_per_target(load, small):
    spec = load(small + '[[override]]\nselect = "*-arm64"\nrunner = "ubuntu-24.04-arm"\n')
    text = github_matrix(spec, spec.targets)
    assert "\n" not in text and ": " not in text
    jobs = json.loads(text)["include"]
    assert jobs[0] == {
        "id": "cuda12.8-py312-server",
        "backend": "cuda",
        "runtime": "12.8",
        "python": "3.12",
        "variant": "server",
        "platform": "linux/amd64",
    }
    assert [job.get("runner") for job in jobs] == [None, None, None, "ubuntu-24.04-arm"]


def test_the_schema_is_a_valid_schema_that_accepts_the_example(small):
    jsonschema.Draft7Validator.check_schema(schema())
    validator = jsonschema.Draft7Validator(schema())
    for text in (small, WHOLE):
        assert list(validator.iter_errors(tomli.loads(text))) == []


@pytest.mark.parametrize(
    "change",
    [
        ('name = "inferno"', 'nam = "inferno"'),
        ('["3.12"]', "[3.12]"),
        ('["3.12"]', '["3"]'),
        ('"linux/arm64"]', '"linux/arm64"]\ncopy = [["a"]]'),
        ('"python:{python}-slim-bookworm"', "1"),
        ('"linux/arm64"]', '"linux/arm64"]\nenv = { "A B" = "1" }'),
        ('runtime = "any"', ""),
    ],
)
def test_what_the_schema_refuses_the_loader_refuses_too(refuse, small, change):
    text = small.replace(*change)
    assert not jsonschema.Draft7Validator(schema()).is_valid(tomli.loads(text))
    assert refuse(text)


def test_patterns_of_the_schema_are_anchored_and_mean_the_same_in_editors():
    patterns = re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps(schema()))
    assert len(patterns) > 20
    for pattern in patterns:
        text = json.loads(f'"{pattern}"')
        assert text.startswith("^(?:") and text.endswith(")$")
        assert not re.search(r"\(\?[<P]|\+\+|\*\+|\\[AZzh]", text), "ECMA-262 does not know that"


def test_every_key_is_in_the_guide_and_has_a_description():
    tables = [
        table
        for module in (keys, keys_settings, keys, keys)
        for table in vars(module).values()
        if isinstance(table, type) and issubclass(table, Table)
    ]
    assert len(tables) > 15
    for table in tables:
        for key in table.keys:
            assert key.doc.endswith("."), key
            assert re.search(rf"[`\[.]{re.escape(key.name)}[`\]. ]", GUIDE), key.name


def test_the_example_of_the_guide_gives_the_targets_that_the_guide_lists(load, project):
    (project / "requirements").mkdir()
    (project / "requirements" / "base.in").write_text("numpy\n")
    listed = GUIDE.split("It gives the targets\n")[1].split("```")[1].split()
    spec = load(WHOLE)
    assert [target.id for target in spec.targets] == listed


def test_all_examples_of_the_guide_are_toml():
    for example in EXAMPLES:
        # Alternatives stand below each other, which TOML does not allow.
        for part in re.split(r"\n\n(?=base = )", example):
            tomli.loads(part)


def test_the_guide_names_the_default_tools():
    assert all(image in GUIDE for image in DEFAULT_TOOLS.values())
