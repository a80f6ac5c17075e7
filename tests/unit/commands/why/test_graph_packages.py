"""The package half: who asked for a distribution."""

from __future__ import annotations

import pytest
from graph_cases import binary, distribution, elf, flat, graph_of, labels, lock, one, why

from buildmatrix.facts.inventory.model import (
    Inventory,
    Layer,
    PythonImport,
    RequirementLine,
    SystemPackage,
)
from buildmatrix.reports.why import reason


def test_a_chain_begins_with_the_line_that_the_lock_names() -> None:
    tree = Inventory(distributions=(distribution("acme", "numpy>=1"), distribution("numpy")))
    answered = why(
        tree, "numpy", lock(acme=["req.in:3"], numpy=["acme"]), {"req.in:3": "acme[gpu]>=1"}
    )
    assert labels(one(answered), answered.graph) == ["req.in:3", "acme 1.0", "numpy 1.0"]
    assert "req.in:3: acme[gpu]>=1" in flat(answered)
    assert "requires numpy>=1" in flat(answered)


def test_without_a_lock_it_begins_with_what_nobody_requires() -> None:
    tree = Inventory(distributions=(distribution("acme", "numpy>=1"), distribution("numpy")))
    answered = why(tree, "numpy")
    assert labels(one(answered), answered.graph) == ["acme 1.0", "numpy 1.0"]
    assert "no other distribution requires it" in flat(answered)


def test_what_was_asked_for_by_its_name_begins_a_chain_of_its_own() -> None:
    tree = Inventory(
        distributions=(distribution("acme", "numpy"), distribution("numpy", requested=True))
    )
    answered = why(tree, "numpy", every=True)
    assert labels(one(answered), answered.graph) == ["numpy 1.0"]
    assert "requested by name when it was installed" in flat(answered)


def test_an_installer_that_marks_everything_as_asked_for_says_nothing_with_it() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", "numpy", requested=True),
            distribution("numpy", requested=True),
        )
    )
    answered = why(tree, "numpy")
    assert labels(one(answered), answered.graph) == ["acme 1.0", "numpy 1.0"]


def test_the_url_that_a_distribution_came_from_is_told() -> None:
    url = "https://example.com/acme-1.0-py3-none-any.whl"
    tree = Inventory(distributions=(distribution("acme", direct_url=url), distribution("b")))
    assert f"from {url}" in flat(why(tree, "acme"))


def test_a_requirement_whose_marker_does_not_hold_is_no_link() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", 'numpy; sys_platform == "win32"', 'torch; sys_platform=="linux"'),
            distribution("numpy"),
            distribution("torch"),
        )
    )
    answered = why(tree, "numpy")
    assert labels(one(answered), answered.graph) == ["numpy 1.0"]
    told = flat(why(tree, "torch"))
    assert 'requires torch (sys_platform == "linux")' in told


def test_an_extra_that_somebody_asks_for_is_followed_and_named() -> None:
    tree = Inventory(
        distributions=(
            distribution("torch", "cuda-toolkit[cudart]"),
            distribution("cuda-toolkit", 'cuda-runtime; extra == "cudart"'),
            distribution("cuda-runtime"),
        )
    )
    answered = why(tree, "cuda-runtime")
    assert labels(one(answered), answered.graph) == [
        "torch 1.0", "cuda-toolkit 1.0", "cuda-runtime 1.0",
    ]  # fmt: skip
    assert "(extra cudart)" in flat(answered)
    assert all(edge.certain for edge in one(answered).chains[0].edges)


def test_an_extra_of_a_requirement_line_is_followed() -> None:
    tree = Inventory(
        distributions=(distribution("acme", 'numpy; extra == "fast"'), distribution("numpy"))
    )
    answered = why(
        tree, "numpy", lock(acme=["req.in:1"], numpy=["acme"]), {"req.in:1": "acme[fast]"}
    )
    assert all(edge.certain for edge in one(answered).chains[0].edges)
    assert "(extra fast)" in flat(answered)


def test_whether_an_extra_was_asked_for_is_not_invented() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", 'numpy; extra == "fast"'),
            distribution("numpy", "rings"),
            distribution("rings", "numpy"),
        )
    )
    answered = why(tree, "numpy")
    assert labels(one(answered), answered.graph) == ["acme 1.0", "numpy 1.0"]
    assert "whether that was requested is not recorded" in flat(answered)


def test_distributions_that_require_each_other_end_the_chain_once() -> None:
    tree = Inventory(
        distributions=(
            distribution("a", "b"),
            distribution("b", "c"),
            distribution("c", "b"),
        )
    )
    answered = why(tree, "c", every=True)
    assert [labels(one(answered), answered.graph)] == [["a 1.0", "b 1.0", "c 1.0"]]


def test_a_ring_that_nobody_requires_is_its_own_beginning() -> None:
    tree = Inventory(distributions=(distribution("b", "c"), distribution("c", "b")))
    answered = why(tree, "c")
    assert labels(one(answered), answered.graph) == ["c 1.0"]
    assert "a cycle of distributions that require each other" in flat(answered)


def test_a_lock_that_does_not_fit_what_is_installed_is_told() -> None:
    tree = Inventory(distributions=(distribution("acme", version="2.0"),))
    answered = why(tree, "acme", lock(acme=["req.in:1"]))
    assert "the lock has acme 1.0, installed is acme 2.0" in flat(answered)


def test_who_asked_is_also_known_where_metadata_is_silent() -> None:
    tree = Inventory(distributions=(distribution("acme"), distribution("numpy")))
    answered = why(tree, "numpy", lock(acme=["req.in:1"], numpy=["acme"]))
    assert labels(one(answered), answered.graph) == ["req.in:1", "acme 1.0", "numpy 1.0"]


def test_a_lock_alone_has_chains_too() -> None:
    answered = why(Inventory(), "numpy", lock(acme=["req.in:1"], numpy=["acme"]))
    assert labels(one(answered), answered.graph) == ["req.in:1", "acme 1.0", "numpy 1.0"]


def test_an_import_without_a_requirement_is_a_link_but_no_reason_to_install() -> None:
    tree = Inventory(
        distributions=(distribution("plugin"), distribution("z")),
        python_imports=(
            PythonImport("z/a.py", 4, "plugin.core", "imported", "z==1.0", "plugin==1.0"),
        ),
    )
    (edge,) = graph_of(tree).edges
    assert reason(edge) == "imports plugin.core at z/a.py:4, without requiring it"
    assert labels(one(why(tree, "plugin")), graph_of(tree)) == ["plugin 1.0"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"installer": "conda"}, "installed by conda"),
        ({"has_record": False}, "has no RECORD, so its files are not known"),
    ],
)
def test_what_an_unusual_installer_leaves_out_is_told(how: dict[str, object], told: str) -> None:
    tree = Inventory(distributions=(distribution("acme", **how), distribution("b")))
    assert told in flat(why(tree, "acme"))


def test_a_file_of_a_distribution_without_a_record_is_nobodys() -> None:
    tree = Inventory(
        distributions=(distribution("acme", has_record=False),),
        binaries=(binary("usr/lib/python3/dist-packages/acme/core.so", elf()),),
    )
    assert "no Python distribution owns it" in flat(why(tree, "core.so"))


def test_a_distribution_that_is_there_twice_is_one_node_with_the_requirements_of_both() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", "numpy"),
            distribution("acme", "torch", version="2.0"),
            distribution("numpy"),
            distribution("torch"),
        )
    )
    graph = graph_of(tree)
    assert {edge.target for edge in graph.edges} == {"distribution:numpy", "distribution:torch"}


def test_lines_that_are_no_requirements_are_passed_over() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", "numpy (((", "numpy @@ x; y", "numpy"),
            distribution("numpy"),
        )
    )
    assert labels(one(why(tree, "numpy")), graph_of(tree)) == ["acme 1.0", "numpy 1.0"]


def test_uv_marks_everything_and_that_says_nothing_beside_what_pip_marked() -> None:
    """pip made the environment, `uv pip install skl` came later: uv 0.13 marks joblib too."""
    tree = Inventory(
        distributions=(
            distribution("pip", installer="pip", requested=True),
            distribution("numpy", installer="pip", requested=True),
            distribution("rings", installer="pip"),
            distribution("skl", "joblib", installer="uv", requested=True),
            distribution("joblib", installer="uv", requested=True),
        )
    )
    answered = why(tree, "joblib")
    assert labels(one(answered), answered.graph) == ["skl 1.0", "joblib 1.0"]
    assert "requested by name" in flat(why(tree, "numpy"))


def test_what_nobody_asked_for_by_name_came_with_an_extra() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", 'fast; extra == "speed"', installer="pip", requested=True),
            distribution("fast", installer="pip"),
        )
    )
    answered = why(tree, "fast")
    assert labels(one(answered), answered.graph) == ["acme 1.0", "fast 1.0"]
    assert "(extra speed): whether that was requested is not recorded" in flat(answered)


def test_an_extra_that_may_have_brought_it_is_told_where_marks_say_nothing() -> None:
    tree = Inventory(
        distributions=(
            distribution("acme", 'fast; extra == "speed"', installer="uv", requested=True),
            distribution("fast", installer="uv", requested=True),
        )
    )
    told = flat(why(tree, "fast"))
    assert "no other distribution requires it, unless acme 1.0 was requested with extra" in told


def test_a_wheel_alone_is_not_said_to_be_required_by_no_other() -> None:
    tree = Inventory(
        distributions=(distribution("acme"),), binaries=(binary("a.so", elf(), "acme==1.0"),)
    )
    assert "no other distribution" not in flat(why(tree, "a.so"))


def test_what_the_system_installed_is_told_with_its_package_and_its_layer() -> None:
    numpy = distribution("numpy", version="1.24.2", has_record=False)
    tree = Inventory(
        distributions=(numpy, distribution("yaml", has_record=False)),
        system_packages=(
            SystemPackage("python3-numpy", "1:1.24.2-1+deb12u1"),
            SystemPackage("python3-yaml", "1.0.1-2"),
        ),
        layers=(
            Layer("sha256:0", "ADD root.tar /", 1),
            Layer("sha256:1", "RUN apt-get install", 1),
        ),
        origins={numpy.path: 1},
    )
    told = flat(why(tree, "numpy"))
    assert "apparently the system's package python3-numpy 1:1.24.2-1+deb12u1" in told
    assert "put there by: layer 2 of 2: RUN apt-get install" in told
    assert "the system's package" not in flat(why(tree, "yaml"))


@pytest.mark.parametrize("word", ["@scope/b.c", "npm:@scope/b.c"])
def test_a_package_of_npm_begins_with_the_line_of_its_manifest(word: str) -> None:
    line = RequirementLine("srv/package.json:5", "a ^1")
    tree = Inventory(
        distributions=(
            distribution("npm:a", "npm:@scope/b.c", "npm:gone", installer="npm", lines=(line,)),
            distribution("npm:@scope/b.c", installer="npm"),
            distribution("a"),
        )
    )
    answered = why(tree, word)
    chain = [line.place, "npm:a 1.0", "npm:@scope/b.c 1.0"]
    assert labels(one(answered), answered.graph) == chain
    assert "srv/package.json:5: a ^1" in flat(answered)
    assert labels(one(why(tree, "a")), graph_of(tree)) == ["a 1.0"]
