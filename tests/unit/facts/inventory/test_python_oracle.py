"""What an import loads, as Python itself says: each case is run by the interpreter of the test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_python_loading import SITE, read

from buildmatrix.facts.inventory.model import Inventory

#: Imports `pkg` with a stand-in for what loads libraries, and prints their names.
RECORDER = """
import ctypes, json, site, sys
names = []
class CDLL:
    def __init__(self, name=None, *rest, **more):
        names.append(name)
    def __getattr__(self, name):
        raise AttributeError(name)
ctypes.CDLL = ctypes.PyDLL = CDLL
ctypes.cdll = ctypes.LibraryLoader(CDLL)
root = sys.argv[1]
sys.path.insert(0, root)
sys.stderr = open("/dev/null", "w")
site.addsitedir(root)
try:
    import pkg
except Exception:
    pass
json.dump(names, sys.stdout)
"""
LIB = "libcudart.so.12"
C = f'CDLL("{LIB}")'
HEAD = "from ctypes import CDLL\n"


def encoded(text: str, name: str, cookie: str = "") -> bytes:
    """A module whose second line has the cookie of its encoding."""
    return b"#!\n# coding: " + (cookie or name).encode() + b"\n" + text.encode(name)


#: The package's own file, or several.
CASES: Mapping[str, str | bytes | Mapping[str, str | bytes]] = {
    # Expressions of a definition
    "a default": f"{HEAD}def f(l={C}): pass\n",
    "a default of a keyword": f"{HEAD}def f(*, l={C}): pass\n",
    "a default before a slash": f"{HEAD}def f(l={C}, /): pass\n",
    "a default of a coroutine": f"{HEAD}async def f(l={C}): pass\n",
    "a default of a lambda": f"{HEAD}f = lambda l={C}: l\n",
    "a default of a lambda's keyword": f"{HEAD}f = lambda *, l={C}: l\n",
    "a default of a method": f"{HEAD}class A:\n    def f(self, l={C}): pass\n",
    "a default by another name": f"from ctypes import CDLL as L\ndef f(L=L('{LIB}')): pass\n",
    "a decorator": f"{HEAD}def d(l): return lambda f: f\n@d({C})\ndef f(): pass\n",
    "a decorator of a class": f"{HEAD}def d(l): return lambda f: f\n@d({C})\nclass A: pass\n",
    "an annotation": f"{HEAD}def f(x: {C}): pass\n",
    "what is returned": f"{HEAD}def f() -> {C}: pass\n",
    "an annotation of a name": f"{HEAD}x: {C}\n",
    "an annotation of an attribute": f"{HEAD}class A:\n    x: {C} = 1\n",
    "an annotation that is kept as text": (
        f"from __future__ import annotations\n{HEAD}def f(x: {C}) -> {C}: pass\nx: {C}\n"
    ),
    "an annotation in a function": f"{HEAD}def f():\n    x: {C} = 1\nf()\n",
    "a class": f"{HEAD}class A:\n    class B:\n        l = {C}\n",
    "a base class": f"{HEAD}def base(l): return object\nclass A(base({C})): pass\n",
    "a metaclass": f"{HEAD}def meta(l): return type\nclass A(metaclass=meta({C})): pass\n",
    "a function that a default calls": f"{HEAD}def load(): return {C}\ndef f(l=load()): pass\n",
    # Expressions and statements
    "a list": f"{HEAD}l = [{C} for _ in (1,)]\n",
    "a set": f"{HEAD}l = {{id({C}) for _ in (1,)}}\n",
    "a dictionary": f"{HEAD}l = {{1: {C} for _ in (1,)}}\n",
    "what a generator walks over": f"{HEAD}l = (x for x in [{C}])\n",
    "a walrus": f"{HEAD}if (l := {C}): pass\n",
    "a match": f"{HEAD}match {C}:\n    case _: pass\n",
    "a format": f"{HEAD}l = f'{{CDLL(\"{LIB}\")}}'\n",
    "a format of a format": f"{HEAD}l = f'{{1:{{id(CDLL(\"{LIB}\"))}}}}'\n",
    "an index": f"{HEAD}x = {{}}\nx[{C}] = 1\n",
    "a deletion": f"{HEAD}x = {{}}\ntry:\n    x[1] = 1\nfinally:\n    del x[(id({C}), 1)[1]]\n",
    "a sum": f"{HEAD}x = 0\nx += id({C})\n",
    "an assertion": f"{HEAD}assert {C}\n",
    "a loop": f"{HEAD}for x in [{C}]: pass\n",
    "a loop's end": f"{HEAD}for x in []: pass\nelse: {C}\n",
    "a condition of a loop": f"{HEAD}while not {C}: pass\n",
    "a context": f"{HEAD}import contextlib\nwith contextlib.nullcontext({C}): pass\n",
    "an exception": f"{HEAD}raise ValueError({C})\n",
    "several exceptions": f"{HEAD}try:\n    {C}\nexcept* ZeroDivisionError: pass\n",
    "an import before several exceptions": {
        "pkg/__init__.py": "try:\n    from . import inner\nexcept* ZeroDivisionError: pass\n",
        "pkg/inner.py": f"{HEAD}{C}\n",
    },
    "what is called later": f"{HEAD}def f():\n    return {C}\n",
    "what nobody calls": f"{HEAD}f = lambda: {C}\n",
    # Lines and encodings
    "carriage returns": f"{HEAD}{C}\n".replace("\n", "\r"),
    "a comment that a carriage return ends": f"{HEAD}# x\r{C}\n",
    "both line ends": f"{HEAD}{C}\n".replace("\n", "\r\n"),
    "form feeds": f"\f{HEAD}\f{C}\n",
    "a continued line": f"import ctypes\nctypes. \\\n  CDLL ( \\\n '{LIB}')\n",
    "a continued name": f'{HEAD}CDLL("libcud\\\nart.so.12")\n',
    "names in parts": f"{HEAD}CDLL('libcud' \"art.so\" '.12')\n",
    "a mark of byte order": f"{HEAD}{C}\n".encode("utf-8-sig"),
    "wide letters": f"import ctypes\nctypes.ＣDLL('{LIB}')\n",
    "mathematical letters": f"import ctypes\nctypes.𝐂𝐃𝐋𝐋('{LIB}')\n",
    "Latin-1": encoded(f"# é\n{HEAD}{C}\n", "latin-1"),
    "UTF-7": b"# coding: utf-7\nimport ctypes\nctypes.+AEMARABMAEw-('libcudart.so.12')\n",
    "escapes": b"# coding: unicode_escape\nimport ctypes\nctypes.\\x43DLL('libcudart.so.12')\n",
    "escaped line ends": (
        b"# coding: unicode_escape\\nfrom ctypes import *\\n\\x43DLL('libcudart.so.12')\n"
    ),
    "UTF-16": b"# coding: utf-16\n" + f"{HEAD}{C}\n".encode("utf-16"),
    # Imports
    **{
        f"an import, {number}": {
            "pkg/__init__.py": source,
            "pkg/inner.py": f"{HEAD}{C}\n",
            "pkg/other.py": "y = 1\n",
        }
        for number, source in enumerate(
            (
                "x = 1; from . import inner\n",
                "import os; import pkg.inner\n",
                "import os, pkg.inner\n",
                "import os, \\\n  pkg.inner\n",
                "import \\\n  pkg.inner\n",
                "from . \\\n  import inner\n",
                "from .inner import \\\n  CDLL as f\n",
                "from .other import y; from .inner import C\n",
                "from .other import (y, # )\n  y as z); from . import inner\n",
                "if 1: from . import inner\n",
                "if 1: import os; from . import inner\n",
                "class A: from . import inner\n",
                "from.inner import CDLL\n",
                "from . import(inner)\n",
                "from\f.\timport\finner\n",
                "\ffrom . import inner\n",
                "from . import ｉnner\n",
                "from .ｉnner import CDLL\n",
                "import pkg.ｉnner\n",
                "import os\rfrom . import inner\r",
                "def f(x=__import__('pkg.inner')): pass\n",
                "f = lambda x=__import__('pkg.inner'): x\n",
                "import importlib as i\ni.import_module('.inner', __package__)\n",
                "import importlib as i\ni.import_module('.inner', package=__package__)\n",
                "from importlib import import_module as m\nm ('pkg.inner')\n",
                "__import__ (\n  'pkg.inner')\n",
                "from importlib import __import__ as m; m('pkg.inner')\n",
                "exec('from . import inner')\n",
                "exec(compile('from . import inner', 'x', 'exec'))\n",
                "eval('__import__(\"pkg.inner\")')\n",
                "# coding: unicode_escape\nfrom . import \\x69nner\n",
            )
        )
    },
    # Text that is run
    "a text that is run": f"exec('from ctypes import CDLL; CDLL(\"{LIB}\")')\n",
    "bytes that are run": f"exec(b'from ctypes import CDLL; CDLL(\"{LIB}\")')\n",
    "an expression that is run": f"import ctypes\neval('ctypes.CDLL(\"{LIB}\")')\n",
    # What runs when Python starts
    "a line of a path file": {
        "pkg/__init__.py": "",
        "a.pth": f"import ctypes; ctypes.CDLL('{LIB}')\n",
    },
    "behind a tab": {"pkg/__init__.py": "", "a.pth": f"x\nimport\tctypes; ctypes.CDLL('{LIB}')\n"},
    "behind a space": {"pkg/__init__.py": "", "a.pth": f" import ctypes; ctypes.CDLL('{LIB}')\n"},
    "behind a hash": {"pkg/__init__.py": "", "a.pth": f"#import ctypes; ctypes.CDLL('{LIB}')\n"},
    "a path file in a folder": {
        "pkg/__init__.py": "",
        "pkg/a.pth": f"import ctypes; ctypes.CDLL('{LIB}')\n",
    },
    "a path file that imports": {
        "pkg/__init__.py": "",
        "pkg/_start.py": f"{HEAD}{C}\n",
        "a.pth": "import pkg._start\n",
    },
    "a path file with carriage returns": {
        "pkg/__init__.py": "",
        "a.pth": f"x\rimport ctypes; ctypes.CDLL('{LIB}')\r",
    },
}


def recorded(root: Path) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", RECORDER, str(root / SITE)]
    return list(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def reached(inventory: Inventory) -> bool:
    """Whether an import is said to load the library, or what it loads to be unknown."""
    return any(
        LIB in load.names and load.reach in ("import", "guarded") for load in inventory.python_loads
    ) or any(one.reach in ("import", "guarded") for one in inventory.unparsed)


@pytest.mark.parametrize("name", CASES)
def test_an_import_loads_what_python_loads(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    files = {"pkg/__init__.py": case} if isinstance(case, str | bytes) else dict(case)
    inventory = read(tmp_path, files)
    assert reached(inventory) == (LIB in recorded(tmp_path)), inventory.python_loads
