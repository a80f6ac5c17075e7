"""What is true of a template is found out once, however many targets it is rendered for."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from buildmatrix.base.errors import SpecError
from buildmatrix.engines import dockerfile as module
from buildmatrix.engines.dockerfile import make_environment, render


def test_the_blocks_of_a_template_are_checked_once_for_all_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.j2").write_text("{{ name | comment }}\n")
    (tmp_path / "bad.j2").write_text(
        "{% extends 'base.Dockerfile.j2' %}{% block nothing %}{% endblock %}"
    )
    checked: list[str] = []
    check = module._check_blocks
    monkeypatch.setattr(
        module, "_check_blocks", lambda env, name: (checked.append(name), check(env, name))
    )
    environment = make_environment(tmp_path)
    texts = [render(environment, "good.j2", {"name": name}, subject=name) for name in "abc"]
    assert len(set(texts)) == 3
    assert checked == ["good.j2"]
    for name in "ab":  # A wrong one is wrong for every target.
        with pytest.raises(SpecError, match="has no block `nothing`"):
            render(environment, "bad.j2", {}, subject=name)
    render(make_environment(tmp_path), "good.j2", {"name": "a"}, subject="a")
    assert checked == ["good.j2", "bad.j2", "bad.j2", "good.j2"]


def test_a_template_is_compiled_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    compile_template = ImmutableSandboxedEnvironment.compile

    def counted(environment, source, name=None, filename=None):
        compiled.append(source)
        return compile_template(environment, source, name, filename)

    monkeypatch.setattr(ImmutableSandboxedEnvironment, "compile", counted)
    for text in ("a {{ name | comment }}", "b {{ name | comment }}"):
        (tmp_path / "good.j2").write_text(text)
        for name in "cd":
            printed = render(make_environment(tmp_path), "good.j2", {"name": name}, subject=name)
            assert printed == f"{text[0]} {name}"
    assert compiled == ["a {{ name | comment }}", "b {{ name | comment }}"]
