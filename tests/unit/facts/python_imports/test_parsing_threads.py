"""Syntax trees are made by one thread at a time: Python 3.11 mixes them up otherwise."""

from __future__ import annotations

import ast
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from buildmatrix.facts.python_imports import parser
from buildmatrix.facts.python_imports.repair import repair


def test_no_two_threads_make_syntax_trees_at_once(monkeypatch: pytest.MonkeyPatch):
    busy, overlaps, made = threading.Lock(), [], ast.parse

    def slow(source: bytes | str) -> ast.Module:
        if not busy.acquire(blocking=False):
            overlaps.append(source)
            return made(source)
        try:
            threading.Event().wait(0.005)
            return made(source)
        finally:
            busy.release()

    monkeypatch.setattr(parser.ast, "parse", slow)
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parser.parse, [b"import a\n"] * 12))
        others = list(pool.map(repair, [b"import a\nprint 1\n"] * 4))
    assert len(trees) == 12
    assert len(others) == 4
    assert overlaps == []
