"""The first specification loads, and says why it is as it is."""

from __future__ import annotations

import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.commands.init import first_spec
from buildmatrix.commands.init_sections import read_advice
from buildmatrix.matrix.load import load_spec

REQUIREMENTS = """\
# comment
torch>=2.4 ; python_version > "3.8"
-r more.txt
XGBoost[dask] == 3.2.0 \\
    --hash=sha256:aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00
--extra-index-url https://me:hunter2@wheels.example.com/simple
./local.whl
onnxruntime-gpu
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    (tmp_path / "more.txt").write_text("-r requirements.txt\ntriton  # GPU kernels\n")
    text = first_spec([tmp_path / "requirements.txt"], tmp_path)
    path = tmp_path / "buildmatrix.toml"
    path.write_text(text)
    return text, load_spec(path, backends=("cuda", "rocm", "oneapi", "cpu"))


def test_it_loads_without_error_for_all_backends(written):
    _, spec = written
    assert [target.backend for target in spec.targets] == ["cuda", "rocm", "oneapi", "cpu"]
    assert all(target.requirements == ("requirements.txt",) for target in spec.targets)


def test_torch_is_bound_to_the_build_of_each_backend(written):
    _, spec = written
    assert [target.torch for target in spec.targets] == ["cu128", "rocm7.2", "xpu", "cpu"]


def test_cuda_builds_are_replaced_or_dropped_elsewhere(written):
    _, spec = written
    cuda, rocm, oneapi, cpu = spec.targets
    assert (cuda.replace, cuda.drop) == ({}, ())
    assert rocm.replace == {"xgboost": "xgboost-cpu", "onnxruntime-gpu": "onnxruntime-migraphx"}
    assert cpu.replace == {"xgboost": "xgboost-cpu", "onnxruntime-gpu": "onnxruntime"}
    assert (oneapi.drop, cpu.drop) == (("triton",), ("triton",))


def test_the_cpu_build_of_a_family_is_replaced_on_accelerators(tmp_path):
    (tmp_path / "requirements.txt").write_text("onnxruntime\ntensorflow\n")
    path = tmp_path / "buildmatrix.toml"
    path.write_text(first_spec([tmp_path / "requirements.txt"], tmp_path))
    spec = load_spec(path, backends=("cuda", "rocm", "oneapi", "cpu"))
    replaced = {target.backend: target.replace for target in spec.targets}
    assert replaced["cuda"] == {"onnxruntime": "onnxruntime-gpu"}
    assert replaced["oneapi"]["onnxruntime"] == "onnxruntime-openvino"
    assert replaced["cpu"] == {"tensorflow": "tensorflow-cpu"}


def test_each_choice_names_the_line_that_caused_it_and_why(written):
    text, _ = written
    assert "# - torch (requirements.txt:2): the default wheels" in text
    assert "# - xgboost (requirements.txt:4): requires nvidia-nccl" in text
    assert "# - triton (more.txt:2): " in text


def test_a_file_that_is_named_after_a_backend_goes_to_that_backend_alone(tmp_path):
    (tmp_path / "requirements").mkdir()
    names = [
        "requirements.txt",
        "requirements-cuda12.txt",
        "requirements/rocm.in",
        "cuda_or_cpu.in",
    ]
    for name in names:
        (tmp_path / name).write_text("numpy\n")
    path = tmp_path / "buildmatrix.toml"
    path.write_text(first_spec([tmp_path / name for name in names], tmp_path))
    spec = load_spec(path, backends=("cuda", "rocm", "oneapi", "cpu"))
    both = ("requirements.txt", "cuda_or_cpu.in")
    assert {target.backend: target.requirements for target in spec.targets} == {
        "cuda": (*both, "requirements-cuda12.txt"),
        "rocm": (*both, "requirements/rocm.in"),
        "oneapi": both,
        "cpu": both,
    }


def test_lines_that_were_not_understood_are_named_without_their_secrets(written):
    text, _ = written
    assert "# - requirements.txt: the option --extra-index-url is left to the resolver" in text
    assert "# - requirements.txt:7: `local.whl` is not a valid name of a wheel" in text
    assert "hunter2" not in text


def test_without_special_requirements_there_is_only_cpu(tmp_path):
    (tmp_path / "requirements.in").write_text("requests\n")
    text = first_spec([tmp_path / "requirements.in"], tmp_path)
    (tmp_path / "buildmatrix.toml").write_text(text)
    assert [t.backend for t in load_spec(tmp_path / "buildmatrix.toml").targets] == ["cpu"]
    assert "None of the requirements is known to differ" in text


@pytest.mark.parametrize(
    ("requires", "version", "python"),
    [(">=3.10", "2.0.0", "3.12"), ("<3.12", "1!2.0+local", "3.11"), ("<3", "x\\ny", "3.12")],
)
def test_a_pyproject_gives_name_version_and_python(tmp_path, requires, version, python):
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "Acme_Inferno"\nversion = "{version}"\n'
        f'requires-python = "{requires}"\ndependencies = ["torch"]\n'
        '[project.optional-dependencies]\ngpu = ["bitsandbytes"]\n'
    )
    text = first_spec([tmp_path / "pyproject.toml"], tmp_path)
    (tmp_path / "buildmatrix.toml").write_text(text)
    spec = load_spec(tmp_path / "buildmatrix.toml")
    assert spec.project == "acme-inferno"
    assert spec.version == (version if version == "2.0.0" else "0.1.0")
    assert {target.python for target in spec.targets} == {python}
    assert spec.targets[0].pyproject == "pyproject.toml"
    assert '# extras = ["gpu"]' in text
    assert "bitsandbytes (pyproject.toml:7)" in text


@pytest.mark.parametrize(
    ("name", "data", "times", "part"),
    [
        ("pyproject.toml", b"[tool.x]\n", 1, r"no `\[project\]` table"),
        ("pyproject.toml", b"[project\n", 1, "not TOML"),
        ("requirements.txt", b"\xff", 1, "not UTF-8"),
        ("requirements.txt", b"#", (16 << 20) + 1, "larger than 16 MiB"),
        ("a $(b).txt", b"torch\n", 1, "cannot be named"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(tmp_path, name, data, times, part):
    (tmp_path / name).write_bytes(data * times)
    with pytest.raises(UsageError, match=part):
        first_spec([tmp_path / name], tmp_path)


def test_a_missing_input_and_one_outside_of_the_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        first_spec([tmp_path / "requirements.txt"], tmp_path)
    (tmp_path / "requirements.txt").write_text("torch\n")
    with pytest.raises(UsageError, match="cannot be named"):
        first_spec([tmp_path / "requirements.txt"], tmp_path / "sub")


def test_every_entry_of_the_knowledge_has_a_source_and_a_date():
    known = read_advice()
    backends = set(load().backends)
    for entry in known.package:
        assert entry.source and entry.date
    for package in known.package:
        assert package.torch or package.replace or package.drop
        assert set(package.replace) | set(package.drop) <= backends


def test_what_is_built_from_source_and_what_a_file_includes_is_named(tmp_path):
    (tmp_path / "requirements.txt").write_text(
        '-e .\ngit+https://me:hunter2@example.com/acme.git@main\n-r "gone\x07.txt"\n-c limits.txt\n'
    )
    (tmp_path / "limits.txt").write_text("torch<3\n")
    text = first_spec([tmp_path / "requirements.txt"], tmp_path)
    path = tmp_path / "buildmatrix.toml"
    path.write_text(text)
    assert [target.backend for target in load_spec(path).targets] == ["cpu"]
    assert "# - requirements.txt:2: git+https://example.com/acme.git@main is built from" in text
    assert "# - requirements.txt:3: gone\\x07.txt: cannot be read" in text
    assert "hunter2" not in text
