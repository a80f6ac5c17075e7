"""What is wrong with a file, where, and what to write instead."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.matrix.load import load_spec

#: Line to put into a table of the small specification → (place in that line, message part).
CASES = [
    # table, line, what the line's complaint points at, part of the message
    ("defaults", 'no_binary = ["x"]', "no_binary", "did you mean `no-binary`?"),
    ("defaults", "archs = [1]", "1]", 'a whole number; write `"sm_90"`'),
    ("defaults", 'archs = "sm_90"', '"sm_90"', 'write `["sm_90"]`'),
    ("defaults", 'requirements = ["bas.in"]', '"bas.in"', "did you mean `base.in`?"),
    ("defaults", 'pyproject = "x/pyproject.toml"', '"x/', "there is no file"),
    ("defaults", 'requirements = ["../base.in"]', '"../', "leaves its folder"),
    ("defaults", 'copy = [["/etc", "/x"]]', '"/etc"', "below the specification's folder"),
    ("defaults", 'copy = [["src", "x"]]', '"x"', "absolute path in the image"),
    ("defaults", 'copy = [["a", "/b/../c"]]', '"/b', "contains `..`"),
    ("defaults", 'copy = [["$HOME", "/x"]]', '"$HOME"', "is not a path"),
    ("defaults", 'copy = [["a"]]', '["a"]', "a list of two strings"),
    ("defaults", 'extras = ["x"]', '"x"', "need a `pyproject`"),
    ("defaults", 'env = { "A B" = "1" }', '"A B"', "name of an environment variable"),
    ("defaults", 'env = { A = "1\\nRUN x" }', '"1', "one line of plain text"),
    ("defaults", 'env = { A = "\\u202ex" }', '"\\u202e', "U+202E"),
    ("defaults", 'env = { A = "{nope}" }', '"{nope}"', "unknown placeholder `{nope}`"),
    ("defaults", 'env = { A = "{projct}" }', '"{projct}"', "did you mean `project`?"),
    ("defaults", 'env = { A = "a}" }', '"a}"', "single brace"),
    ("defaults", 'labels = { "a b" = "1" }', '"a b"', "label key"),
    ("defaults", 'system-packages = ["curl; reboot"]', '"curl;', "system package"),
    ("defaults", 'system-packages = ["-y"]', '"-y"', "system package"),
    ("defaults", 'package-manager = "yum"', '"yum"', "write `apt` or `dnf` or `zypper`"),
    ("defaults", 'system-packages = ["curl-"]', '"curl-"', "remove the package"),
    ("defaults", "user = { uid = 0 }", "0 }", "from 1 to"),
    ("defaults", 'user = { name = "a:b" }', '"a:b"', "name of a user"),
    ("defaults", 'user = { name = "root" }', '"root"', "without special rights"),
    ("defaults", 'user = { nam = "a" }', "nam", "did you mean `name`?"),
    ("defaults", 'torch = "cu128 --evil"', '"cu128', "torch build"),
    ("defaults", 'replace = { "a b" = "c" }', '"a b"', "distribution name"),
    ("defaults", 'drop = ["--all"]', '"--all"', "distribution name"),
    ("defaults", 'index = { torch = "ftp://x" }', '"ftp', "package index"),
    ("defaults", 'index = { torch = "https://u:p@x/" }', '"https', "credentials"),
    ("defaults", 'index = { torch = "https://x/$(id)" }', '"https', "package index"),
    ("defaults", 'lock = "locks/x.toml"', '"locks', "share the lock"),
    ("defaults", 'command = "python \'"', '"python', "cannot be split into words"),
    ("defaults", "command = []", "[]", "is empty"),
    (
        "defaults",
        'platforms = ["windows/amd64"]',
        '"windows',
        "write `linux/amd64` or `linux/arm64`",
    ),
    ("defaults", 'platforms = ["linux/x86_64"]', '"linux', "write `linux/amd64`"),
    ("backend.cpu", 'python = ["3.12", "3.12"]', '"3.12"]', "twice"),
    ("backend.cpu", "python = [3.10]", "3.10", 'write `"3.10"`'),
    ("backend.cpu", 'python = ["3"]', '"3"', "Python version"),
    ("backend.cpu", 'variant = ["A"]', '"A"', "variant name (lower-case letters"),
    ("backend.cpu", 'labels = { a = "{runtime.full}" }', '"{runtime', "has no value `full`"),
    ("backend.cuda", 'labels = { a = "{runtime.ful}" }', '"{runtime', "mean `runtime.full`?"),
    ("backend.cuda", 'template = "../x.j2"', '"../x', "leaves its folder"),
    ("backend.cuda", 'template = "mine/x.j2"', '"mine', "there is no file"),
    ("backend.rocm", 'runtime = "twelve"\nbase = "a"', '"twelve"', "it begins with a digit"),
    ("backend.rocm", 'base = "a"\nruntime = []', "", 'is empty; write `["12.8"]`'),
    ("backend.rocm", 'base = "a"\nruntime = ["6.4", "6.4"]', '"6.4"]', "is listed twice"),
    ("backend.rocm", 'base = "a"\nruntime = ["6.4", "any"]', "", "others beside it"),
    ("backend.rocm", 'base = "a"\nruntime = [6.4]', "6.4", 'write `"6.4"`'),
    ("backend.rocm", 'base = "a"\nruntime = 6.4', "6.4", "a string or a list of strings or a"),
    ("backend.rocm", 'base = "a"\nruntime = { any = {}, "6.4" = {} }', "", "others beside it"),
    ("backend.rocm", 'base = "a"\nruntime.6.4 = { full = "6.4.1" }', "4 =", 'write `"6.4"` in'),
    ("defaults", 'archs = ["90"]', '"90"', "GPU architecture"),
    ("defaults", 'archs = ["sm90"]', '"sm90"', "like `sm_90`"),
    ("defaults", 'torch = "cuda12.8"', '"cuda12.8"', "`cu` or `rocm` with a version"),
    ("defaults", 'env = { PATH = "/opt/bin" }', '"/opt', "leaves out `/opt/venv/bin`"),
    ("defaults", 'env = { LD_LIBRARY_PATH = "/a:$LD_LIBRARY_PATH" }', '"/a', "refers to itself"),
    ("defaults", 'env = { A = "${A}" }', '"${A', "`env` expands nothing"),
    ("defaults", 'env = { PYTHONHOME = "/usr" }', '"/usr', "remove it; PYTHONPATH"),
    ("defaults", 'replace = { Torch = "torch" }', '"torch"', "by itself"),
    ("defaults", 'replace = { a_b = "c", a-b = "d" }', '"d"', "replaced twice"),
    ("defaults", 'labels = { "dev.buildmatrix.backend" = "cpu" }', '"dev', "is for buildmatrix"),
    ("defaults", "command = []", "[]", 'write `["python"]`'),
    ("[override]", 'select = "cpu*"', "", "this override sets nothing"),
    ("tags", "templates = []", "[]", "{version}-{id}"),
    ("generate", 'output = ".buildmatrix/state/x"', '".build', "reserved for local state"),
    ("policy", "max-size = { cpu = 3 }", "3 }", 'write `"3GB"`'),
    ("backend.rocn", 'runtime = "6.4"', "", "unknown backend `rocn`; did you mean `rocm`?"),
    ("variant.servr", 'drop = ["x"]', "", "did you mean `server`?"),
    ("[exclude]", 'select = "cuda14*"\nreason = "x"', '"cuda14*"', "no target matches"),
    ("[exclude]", 'reason = "x"', "", "does not say what it excludes"),
    ("[exclude]", 'select = "cpu*"', "", "has no `reason`"),
    ("[exclude]", 'when = { backend = "cdua" }\nreason = "x"', '"cdua"', "did you mean `cuda`?"),
    ("[exclude]", 'when = { python = ">3.13" }\nreason = "x"', "", "no target meets"),
    ("[exclude]", 'when = { python = ">=x" }\nreason = "x"', '">=x"', "not a version range"),
    ("[exclude]", 'select = "*"\nreason = "x"', "", "the matrix has no targets"),
    ("[include]", 'backend = "tpu"\npython = "3.12"\nreason = "x"', '"tpu"', "no backend `tpu`"),
    ("[include]", 'backend = "cuda"\npython = "3.12"\nreason = "x"', "", "no `runtime`"),
    (
        "[include]",
        'backend = "cpu"\nplatform = "linux/amd64"\npython = "3.12"\nreason = "x"',
        "",
        "already in the matrix",
    ),
    ("[override]", 'select = "cuda12.9-*"', '"cuda12', "the closest are cuda12.8-py312-server"),
    ("[override]", 'select = "*"\ninherit = { torch = "append" }', '"append"', "is a single value"),
    ("[override]", 'select = "*"\ninherit = { env = "append" }', '"append"', "does not set"),
    (
        "[override]",
        'select = "*"\ninherit = { env = "add" }',
        '"add"',
        "write `append` or `replace`",
    ),
    (
        "[smoke]",
        'name = "x"\nlevel = "boot"\ncommand = "x"',
        '"boot"',
        "`import` or `device` or `batch`",
    ),
    ("subset.pr", 'latest = "python"', '"python"', "write `runtime`"),
    ("tags", 'templates = ["{version}"]', '"{version}"', "would all be tagged"),
    ("tags", 'templates = ["a:b-{id}"]', '"a:b', "image tag"),
    ("tags", 'alias = { latest = "cuda*" }', '"cuda*"', "belongs to exactly one"),
    ("tags", 'alias = { latest = "cuda" }', '"cuda"', "no target matches"),
    ("node-class.x", 'backend = "roc"\ndriver = ">=6"', '"roc"', "there is no backend `roc` here"),
    ("policy", 'max-size = { cpu = "3 gigs" }', '"3 gigs"', "such as `3GB`|like `3GB`"),
    ("policy", 'max-size = { gpu = "3GB" }', "", "there is no backend `gpu` here"),
    ("tools", 'uv = "uv latest"', '"uv', "image reference"),
    ("generate", 'output = "."', '"."', "cannot be in the specification's folder"),
]


@pytest.mark.parametrize(("table", "line", "spot", "part"), CASES, ids=[c[1][:40] for c in CASES])
def test_each_mistake_has_its_place_and_its_remedy(refuse, small, table, line, spot, part):
    header = f"[{table}]"
    if header in small:
        first_key = line.split(" ", 1)[0]
        before, after = small.split(header + "\n")
        # The mistake takes the place of the key of the same name, if there is one.
        head, _, tail = after.partition("\n[")
        kept = [other for other in head.splitlines() if not other.startswith(first_key + " ")]
        text = before + "\n".join([header, line, *kept]) + (f"\n[{tail}" if tail else "\n")
    else:
        text = f"{small}{header}\n{line}\n"
    problems = refuse(text)
    problem = next(p for p in problems if any(s in str(p) for s in part.split("|")))
    assert problem.line is not None and problem.column is not None
    assert text.splitlines()[problem.line - 1][problem.column - 1 :].startswith(spot)


def test_all_mistakes_of_a_file_are_reported_at_once_in_its_order(refuse):
    problems = refuse(
        """\
schema = 2
[project]
name = "In ferno"
imge = "x"
[defaults]
python = 3.10
requirements = ["base.ni"]
[backend.cudda]
runtime = { "12.8" = { full = "12.8.1" } }
base = "nvidia/cuda:{runtime.ful}"
[[waive]]
rule = "BM-401"
expires = "2027-01-31"
"""
    )
    assert [(p.line, p.column) for p in problems] == [
        (1, 10),
        (2, 2),
        (3, 8),
        (4, 1),
        (6, 10),
        (7, 17),
        (8, 10),
        (10, 8),
        (11, 3),
        (11, 3),
        (12, 8),
        (13, 11),
    ]


def test_what_may_follow_from_another_mistake_is_not_reported_beside_it(refuse, small):
    text = small.replace('"13.0" = {', '"13 0" = {') + '[[override]]\nselect = "cuda13*"\n'
    (problem,) = refuse(text)
    assert "13 0" in problem.message


@pytest.mark.parametrize(
    ("image", "good"),
    [
        ("ubuntu", True),
        ("ubuntu:24.04", True),
        ("localhost:5000/nvidia/cuda:12.8.1-base", True),
        ("ghcr.io/acme/a__b.c--d@sha256:" + "0" * 64, True),
        ("Ubuntu:24.04", False),
        ("ubuntu:24.04 AS evil", False),
        ("ubuntu:-x", False),
        ("ubuntu@sha256:12", False),
        ("$(id)", False),
        ("a//b", False),
        ("scratch\\nRUN x", False),
    ],
)
def test_base_images_follow_the_grammar_of_references(load, refuse, small, image, good):
    text = small.replace("python:{python}-slim-bookworm", image)
    if good:
        assert load(text).targets[-1].base.final == image
    else:
        assert any("backend.cpu.base" in problem.message for problem in refuse(text))


def test_what_placeholders_make_of_a_text_is_checked_again(refuse, small):
    text = small.replace('"12.8.1"', '"12.8.1+x"')
    (problem,) = refuse(text)
    assert "becomes `nvidia/cuda:12.8.1+x-base-ubuntu22.04` for cuda12.8-py312-server" in str(
        problem
    )


def test_a_path_with_an_unknown_placeholder_is_one_mistake_not_two(refuse, small):
    (problem,) = refuse(small.replace('["base.in"]', '["{bakend}.in"]'))
    assert "did you mean `backend`?" in str(problem)


def test_a_folder_is_no_requirements_file(refuse, small):
    (problem,) = refuse(small.replace('["base.in"]', '["."]'))
    assert "there is no file `.`" in problem.message


def test_credentials_are_not_repeated_in_the_message(refuse, small):
    (problem,) = refuse(
        small + '[[override]]\nselect = "*"\nindex = { torch = "https://me:hunter2@x/" }\n'
    )
    assert "hunter2" not in str(problem)


def test_a_list_of_bases_without_a_match_is_a_mistake(refuse, small):
    text = small.replace(
        'base = "python:{python}-slim-bookworm"',
        'base = [{ when = { platform = "linux/amd64" }, final = "python:3.12" }]',
    )
    (problem,) = refuse(text)
    assert "no base image matches cpu-py312-server-arm64" in problem.message


def test_two_points_may_not_share_an_identifier(refuse, small):
    text = small.replace(
        "[backend.cpu]",
        '[backend.cuda1]\nruntime = "2.8"\nbase = "x"\n[backend.cpu]',
    )
    assert any("`cuda12.8-py312-server`" in p.message for p in refuse(text))


def test_the_other_name_of_a_backend_is_answered_with_the_one_that_is_written_here(tmp_path):
    path = tmp_path / "buildmatrix.toml"
    path.write_text('[project]\nname = "a"\nversion = "1"\n[backend.xpu]\nruntime = "2025.3"\n')

    def known(*aliases):
        return SimpleNamespace(aliases=aliases, products=(), has_product=lambda name: False)

    with pytest.raises(SpecError) as caught:
        load_spec(path, backends={"tpu": known(), "oneapi": known("xpu", "sycl")})
    assert "unknown backend `xpu`; it is called `oneapi` here" in str(caught.value)


@pytest.mark.parametrize(
    ("lock", "settings", "why"),
    [
        ("pixi.lock", 'requirements = ["base.in"]', "`requirements` have no effect"),
        ("pixi.lock", 'extras = ["cuda"]', "`pixi.lock` has no `extras`, as cpu-py312"),
        ("pixi.lock", 'groups = ["cuda"]', "`pixi.lock` has no `groups`, as cpu-py312"),
        ("conda-lock.yml", 'only-groups = ["gpu"]', "`conda-lock.yml` has no `only-groups`"),
        (
            "conda-lock.yml",
            'environment = "gpu"',
            "`environment` of cpu-py312-default needs",
        ),
        ("pixi.lock", 'environment = "a b"', "`a b` is not the name of an environment"),
        ("conda-lock.yaml.orig", "", "not a path of a lock"),
    ],
)
def test_parts_that_a_lock_of_conda_does_not_have(refuse, project, lock, settings, why):
    (project / lock).write_text("version: 6\n")
    head = '[project]\nname = "a"\nversion = "1"\n'
    defaults = f'[defaults]\npython = ["3.12"]\nlock = "{lock}"\n{settings}\n'
    problems = refuse(f'{head}{defaults}[backend.cpu]\nruntime = "any"\nbase = "debian:13"\n')
    assert [why in problem.message for problem in problems] == [True], problems


def test_an_environment_needs_a_lock_of_pixi(refuse, small):
    (problem,) = refuse(small + 'environment = "cuda"\n')
    assert 'write `lock = "pixi.lock"`' in str(problem)


def test_a_lock_may_not_be_written_over_what_it_is_made_from(refuse, small):
    for name in ("buildmatrix.toml", "pyproject.toml", "pixi.toml"):
        settings = f'[defaults]\nlock = "{name}"\npyproject = "pyproject.toml"\n'
        problems = refuse(small.replace("[defaults]\n", settings))
        assert any(f"would be written over `{name}`" in p.message for p in problems)


def test_a_table_that_is_there_twice_is_named_as_it_is_written(refuse, small):
    (problem,) = refuse(small + "[backend.cpu]\n")
    assert "cannot declare `backend.cpu` twice" in problem.message


def test_a_commit_placeholder_outside_of_git_says_so(refuse, small, monkeypatch, project):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    problems = refuse(small + '[tags]\ntemplates = ["{git.short}-{id}"]\n')
    assert len(problems) == 1
    assert "needs a git commit: not a git repository" in str(problems[0])


@pytest.mark.parametrize(
    ("data", "place", "part"),
    [
        (b"a = 1\nb = \n", (2, 5), "not TOML: invalid value"),
        (b"[a]\n[a]\n", (2, 3), "keep one of the two"),
        (b"a = 1\nb = '\xff'\n", (2, 6), "0xff is not UTF-8"),
        ("a = 1".encode("utf-16"), (1, 1), "UTF-16"),
        (b"a = " + b"9" * 5000, (1, 5), "too many digits"),
        (b"\na = " + b"[" * 30 + b"]" * 30, (2, 29), "deeper than"),
        (b"a = " + b"[" * 5000, (1, 1), "nested too deeply"),
        (b"a." * 500 + b"b = 1", (1, 49), "more than 24 parts"),
        (b"#" * 300_000, (None, None), "more than 250,000 bytes"),
    ],
)
def test_a_file_that_is_no_usable_toml_is_refused_with_its_place(project, data, place, part):
    path = project / "buildmatrix.toml"
    path.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == place
    assert part in str(problem)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(project, small):
    path = project / "buildmatrix.toml"
    path.write_bytes(b"\xef\xbb\xbf" + small.replace("\n", "\r\n").encode())
    assert len(load_spec(path).targets) == 4


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(SpecError, match="no such file; run `buildmatrix init`"):
        load_spec(tmp_path / "buildmatrix.toml")


def test_a_folder_and_a_pipe_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SpecError, match="not a regular file"):
            load_spec(path)


def test_a_matrix_of_absurd_size_is_refused_before_it_is_expanded(refuse, small):
    text = small.replace(
        'python = ["3.12"]', "python = [" + ",".join(f'"3.{n}"' for n in range(99)) + "]"
    ).replace('["server"]', "[" + ",".join(f'"v{n}"' for n in range(400)) + "]")
    (problem,) = refuse(text)
    assert "500 is the limit" in problem.message


def test_thousands_of_mistakes_end_after_a_hundred(refuse, small):
    text = small + "".join(f"[subset.s{n}]\nselect = 'x{n}*'\n" for n in range(400))
    problems = refuse(text)
    assert len(problems) == 101
    assert "may be more" in problems[-1].message


def test_a_mistake_that_every_target_has_is_reported_once_and_hides_no_other(refuse, small):
    many = ", ".join(f'"v{number}"' for number in range(100))
    text = (
        small.replace('["server"]', f"[{many}]")
        .replace("[backend.cpu]", '[backend.cpu]\nextras = ["x"]')
        .replace('"python:{python}-slim-bookworm"', '[{ when = { python = "<3" }, final = "a" }]')
    )
    messages = [str(problem) for problem in refuse(text)]
    assert len(messages) == 2
    assert "no base image matches cpu-py312-v0" in messages[1]
    assert "`extras` of cpu-py312-v0 need" in messages[0]
    smoke = '[[smoke]]\nname = "a"\nlevel = "import"\ncommand = "x"\n' * 2
    messages = [
        str(problem) for problem in refuse(f'{text}{smoke}[tags]\ntemplates = ["a:{{id}}"]')
    ]
    assert len(messages) == 2
    assert "another smoke command" in messages[0]
    assert "becomes `a:cuda12.8-py312-v0`" in messages[1]


def test_backends_are_not_checked_when_nobody_says_which_there_are(project, small):
    path = project / "buildmatrix.toml"
    path.write_text(small.replace("[backend.cpu]", "[backend.habana]"))
    assert load_spec(path).targets[-1].backend == "habana"
