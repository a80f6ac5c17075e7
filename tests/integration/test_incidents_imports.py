"""Issue 3: `broken` means that an import fails. Python is asked whether it does.

Each package is imported twice by a real interpreter: where the library that its extension links can
be found, which must work, and where it cannot. How that ends is what the verdict must have said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from components import missing
from tree_verdicts import tree_verdicts

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.matrix.model import Policy

SITE = Path("lib/python3.11/site-packages")
#: Stand for the bytes of a module that links the CUDA runtime, and of one that links nothing.
FOREIGN, PLAIN = "<foreign>", "<plain>"
NAMES = ("_c", "_cuda", "_cu12", "_cu13", "_cpu")
#: Of a line that no machine has.
RUNTIME = "libcudart.so.98"
#: The beginning of every C file: modules are made without the headers of a Python.
SOURCE = """
extern void *PyModule_Create2(void *, int);
static long definition[13] = {1, 0, 0, 0, 0, (long)"_c", 0, -1};
""" + "\n".join(
    f"void *PyInit_{name}(void) {{ return PyModule_Create2(definition, 1013); }}" for name in NAMES
)


@dataclass(frozen=True)
class Case:
    """A distribution `pkg`; its files besides `pkg/__init__.py` and the module `pkg/_c`."""

    init: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    #: What users import.
    module: str = "pkg"
    entry_points: str = ""
    #: Attribute that users take of it: a module's `__getattr__` runs then.
    attribute: str = ""


C = "pkg/_c.abi3.so"
TORCH = "class version:\n    cuda = None\nclass cuda:\n    is_available = staticmethod(bool)\n"
BEHIND_A_FUNCTION = {"pkg/_load.py": "def load():\n    from . import _c\n    return _c\n"}
WANTED = 'import ctypes\nctypes.CDLL("libcudart.so.98")\n'

CASES: dict[str, Case] = {
    # Imports without a guard
    "a plain import": Case("from . import _c\n"),
    "an absolute import": Case("import pkg._c\n"),
    "a submodule that __init__ imports": Case(
        "from .ops import run\n", {"pkg/ops.py": "from . import _c\ndef run(): pass\n"}
    ),
    "a submodule that nothing imports": Case("", {"pkg/ops.py": "from . import _c\n"}),
    "a subpackage whose own __init__ does it": Case(
        "import pkg.ops.fast\n",
        {"pkg/ops/__init__.py": "from .. import _c\n", "pkg/ops/fast.py": ""},
    ),
    "a namespace package": Case(
        "", {"ns/pkg/__init__.py": "from . import _c\n", "ns/pkg/_c.abi3.so": FOREIGN}, "ns.pkg"
    ),
    "a namespace package that is lazy": Case(
        "",
        {
            "ns/pkg/__init__.py": "def f():\n    from . import _c\n",
            "ns/pkg/_c.abi3.so": FOREIGN,
        },
        "ns.pkg",
    ),
    "a lone extension module at the top": Case("", {"_cuda.abi3.so": FOREIGN}, "_cuda"),
    "in the body of a class": Case("class A:\n    from . import _c\n"),
    "as SWIG writes it": Case(
        'if __package__ or "." in __name__:\n    from . import _c\nelse:\n    import _c\n'
    ),
    # try
    "try, except ImportError": Case(
        "try:\n    from . import _c\nexcept ImportError:\n    _c = None\n"
    ),
    "try, a bare except": Case("try:\n    from . import _c\nexcept:\n    pass\n"),
    "try, except OSError, which it is not": Case(
        "try:\n    from . import _c\nexcept OSError:\n    pass\n"
    ),
    "try, except ModuleNotFoundError, which it is not": Case(
        "try:\n    from . import _c\nexcept ModuleNotFoundError:\n    pass\n"
    ),
    "try, several exceptions": Case(
        "try:\n    from . import _c\nexcept (OSError, ImportError):\n    pass\n"
    ),
    "try, exceptions by a name": Case(
        "ERRORS = (OSError, ImportError)\ntry:\n    from . import _c\nexcept ERRORS:\n    pass\n"
    ),
    "try, raised again": Case("try:\n    from . import _c\nexcept ImportError:\n    raise\n"),
    "try, raised in other words": Case(
        "try:\n    from . import _c\nexcept ImportError as e:\n"
        "    raise RuntimeError('install CUDA') from e\n"
    ),
    "try, raised under a condition": Case(
        "import os\ntry:\n    from . import _c\nexcept ImportError:\n"
        "    if os.environ.get('STRICT'):\n        raise\n"
    ),
    "try, the process ends": Case(
        "import sys\ntry:\n    from . import _c\nexcept ImportError:\n"
        "    print('no CUDA')\n    sys.exit(1)\n"
    ),
    "try, logged, and the function returns": Case(
        "import logging\ndef load():\n    try:\n        from . import _c\n"
        "    except Exception:\n        logging.exception('no CUDA')\n        return None\n"
        "    return _c\nload()\n"
    ),
    "try around a submodule": Case(
        "try:\n    from . import ops\nexcept ImportError:\n    ops = None\n",
        {"pkg/ops.py": "from . import _c\n"},
    ),
    "try around a submodule that another one imports too": Case(
        "try:\n    from . import ops\nexcept ImportError:\n    pass\nfrom . import other\n",
        {"pkg/ops.py": "from . import _c\n", "pkg/other.py": "from . import ops\n"},
    ),
    "try, a flag, and a raise later": Case(
        "try:\n    from . import _c\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "if not HAS:\n    raise ImportError('no CUDA')\n"
    ),
    "try, None, and a raise later": Case(
        "try:\n    from . import _c\nexcept ImportError:\n    _c = None\n"
        "if _c is None:\n    raise ImportError('no CUDA')\n"
    ),
    "try, a flag, and a condition later": Case(
        "try:\n    from . import _c\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
        "if HAS:\n    run = _c.__name__\n"
    ),
    "try, and used by functions": Case(
        "try:\n    from . import _c\nexcept ImportError:\n    pass\n"
        "def name():\n    return _c.__name__\n"
    ),
    "try, and used where it is something": Case(
        "try:\n    from . import _c\nexcept ImportError:\n    _c = None\n"
        "NAME = _c and _c.__name__\nOTHER = _c.__name__ if _c else ''\n"
    ),
    "try, and a stand-in from elsewhere": Case(
        "try:\n    from . import _c\nexcept ImportError:\n    from . import slow as _c\n"
        "NAME = _c.__name__\n",
        {"pkg/slow.py": ""},
    ),
    "in the else of a try that holds": Case(
        "try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    from . import _c\n"
    ),
    "in the else of a try that fails": Case(
        "try:\n    import nothing_of_the_kind\nexcept ImportError:\n    pass\nelse:\n"
        "    from . import _c\n"
    ),
    "in a finally": Case("try:\n    pass\nfinally:\n    from . import _c\n"),
    "the stand-in is for the CPU": Case(
        "try:\n    from . import _cuda as _c\nexcept ImportError:\n    from . import _cpu as _c\n",
        {"pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "nested, and the outer one catches": Case(
        "try:\n    try:\n        from . import _c\n    except ImportError:\n        raise OSError\n"
        "except OSError:\n    pass\n"
    ),
    # with
    "contextlib.suppress": Case(
        "import contextlib\nwith contextlib.suppress(ImportError):\n    from . import _c\n"
    ),
    "suppress of something else": Case(
        "from contextlib import suppress\nwith suppress(KeyError):\n    from . import _c\n"
    ),
    "a context manager of its own that only tidies up": Case(
        "from .compat import quiet\nwith quiet():\n    from . import _c\n",
        {
            "pkg/compat.py": "import contextlib\n@contextlib.contextmanager\ndef quiet():\n"
            "    try:\n        yield\n    finally:\n        pass\n"
        },
    ),
    "a context manager class that catches": Case(
        "from .compat import try_import\nwith try_import() as imports:\n    from . import _c\n",
        {
            "pkg/compat.py": "class Deferred:\n    def __enter__(self):\n        return self\n"
            "    def __exit__(self, kind, value, trace):\n"
            "        if isinstance(value, ImportError):\n            return True\n"
            "        return None\n"
            "def try_import():\n    return Deferred()\n"
        },
    ),
    "a context manager that has nothing to do with it": Case(
        "import warnings\nwith warnings.catch_warnings():\n    from . import _c\n"
    ),
    # Conditions
    "TYPE_CHECKING": Case(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import _c\n"
    ),
    "find_spec finds the file": Case(
        "from importlib.util import find_spec\nif find_spec('pkg._c') is not None:\n"
        "    from . import _c\n"
    ),
    "find_spec of somebody else": Case(
        "import importlib.util\nif importlib.util.find_spec('cupy_of_nobody'):\n"
        "    from . import _c\n"
    ),
    "the file exists": Case(
        "import ctypes, os\nP = os.path.join(os.path.dirname(__file__), '_c.abi3.so')\n"
        "if os.path.exists(P):\n    ctypes.CDLL(P)\n"
    ),
    "an environment variable asks for it": Case(
        "import os\nif os.environ.get('PKG_BACKEND', 'cpu') == 'cuda':\n    from . import _c\n"
    ),
    "an environment variable could forbid it": Case(
        "import os\nif not os.environ.get('PKG_NO_CUDA'):\n    from . import _c\n"
    ),
    "an environment variable with a default": Case(
        "import os\nBACKEND = os.getenv('PKG_BACKEND', 'cuda')\nif BACKEND == 'cuda':\n"
        "    from . import _c\nelse:\n    from . import _cpu\n",
        {"pkg/_cpu.abi3.so": PLAIN},
    ),
    "a variable that is not in the environment": Case(
        "import os\nif 'PKG_NO_CUDA' in os.environ:\n    pass\nelse:\n    from . import _c\n"
    ),
    "torch.version.cuda": Case(
        "import torch\nif torch.version.cuda:\n    from . import _c\n", {"torch.py": TORCH}
    ),
    "torch.cuda.is_available": Case(
        "import torch\nif torch.cuda.is_available():\n    from . import _cuda\nelse:\n"
        "    from . import _cpu\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "a file per backend, by its name": Case(
        "import torch\nfrom importlib import import_module\n"
        "BACKEND = 'cuda' if torch.version.cuda else 'cpu'\nimport_module(f'pkg._{BACKEND}')\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "a file per backend, by a name that two branches give": Case(
        "import torch, importlib\nif torch.version.cuda:\n    NAME = '_cuda'\nelse:\n"
        "    NAME = '_cpu'\nimportlib.import_module('pkg.' + NAME)\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "a file per backend, with ctypes": Case(
        "import ctypes, os, torch\nHERE = os.path.dirname(__file__)\n"
        "NAME = '_cuda.abi3.so' if torch.version.cuda else '_cpu.abi3.so'\n"
        "ctypes.CDLL(os.path.join(HERE, NAME))\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "a file per backend, from a table": Case(
        "import ctypes, os, torch\nHERE = os.path.dirname(__file__)\n"
        "FILES = {True: '_cuda.abi3.so', False: '_cpu.abi3.so'}\n"
        "KEY = torch.cuda.is_available()\nctypes.CDLL(os.path.join(HERE, FILES[KEY]))\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "all files one after the other, with ctypes": Case(
        "import ctypes, os\nHERE = os.path.dirname(__file__)\n"
        "for name in ('_cpu.abi3.so', '_cuda.abi3.so'):\n"
        "    ctypes.CDLL(os.path.join(HERE, name))\n",
        {"pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "one of two for CUDA, by a condition": Case(
        "import torch\nif torch.version.cuda == '13.0':\n    from . import _cu13\nelse:\n"
        "    from . import _cu12\n",
        {"torch.py": TORCH, "pkg/_cu12.abi3.so": FOREIGN, "pkg/_cu13.abi3.so": FOREIGN},
    ),
    "one of three, by conditions": Case(
        "import torch\nif torch.version.cuda == '13.0':\n    from . import _cu13\n"
        "elif torch.version.cuda == '12.9':\n    from . import _cu12\nelse:\n"
        "    from . import _cpu\n",
        {
            "torch.py": TORCH,
            "pkg/_cpu.abi3.so": PLAIN,
            "pkg/_cu12.abi3.so": FOREIGN,
            "pkg/_cu13.abi3.so": FOREIGN,
        },
    ),
    "one of two for CUDA, and else nothing": Case(
        "import torch\nif torch.version.cuda == '13.0':\n    from . import _cu13\n"
        "elif torch.version.cuda == '12.9':\n    from . import _cu12\n",
        {"torch.py": TORCH, "pkg/_cu12.abi3.so": FOREIGN, "pkg/_cu13.abi3.so": FOREIGN},
    ),
    "one after the other, all for CUDA": Case(
        "try:\n    from . import _cu13 as _c\nexcept ImportError:\n    from . import _cu12 as _c\n",
        {"pkg/_cu12.abi3.so": FOREIGN, "pkg/_cu13.abi3.so": FOREIGN},
    ),
    "one after the other, all for CUDA, in modules": Case(
        "try:\n    from .new import run\nexcept ImportError:\n    from .old import run\n",
        {
            "pkg/new.py": "from ._cu13 import *\ndef run(): pass\n",
            "pkg/old.py": "from ._cu12 import *\ndef run(): pass\n",
            "pkg/_cu12.abi3.so": FOREIGN,
            "pkg/_cu13.abi3.so": FOREIGN,
        },
    ),
    "one after the other, and then nothing": Case(
        "try:\n    from . import _cu13 as _c\nexcept ImportError:\n    try:\n"
        "        from . import _cu12 as _c\n    except ImportError:\n        _c = None\n",
        {"pkg/_cu12.abi3.so": FOREIGN, "pkg/_cu13.abi3.so": FOREIGN},
    ),
    "a file per line of CUDA, by its name": Case(
        "import os, torch, ctypes\nHERE = os.path.dirname(__file__)\n"
        "LINE = '_cu13' if torch.version.cuda == '13.0' else '_cu12'\n"
        "ctypes.CDLL(os.path.join(HERE, LINE + '.abi3.so'))\n",
        {"torch.py": TORCH, "pkg/_cu12.abi3.so": FOREIGN, "pkg/_cu13.abi3.so": FOREIGN},
    ),
    "a constant": Case("USE_CUDA = True\nif USE_CUDA:\n    from . import _c\n"),
    "a constant that the build wrote": Case(
        "from .config import CUDA\nif CUDA:\n    from . import _c\n",
        {"pkg/config.py": "CUDA = True\n"},
    ),
    "a version of Python that all have": Case(
        "import sys\nif sys.version_info >= (3, 7):\n    from . import _c\n"
    ),
    "a version of Python that nobody has": Case(
        "import sys\nif sys.version_info[0] < 3:\n    from . import _c\n"
    ),
    "a function that returns early": Case(
        "import torch\ndef load():\n    if torch.version.cuda is None:\n        return None\n"
        "    from . import _c\n    return _c\nload()\n",
        {"torch.py": TORCH},
    ),
    "a loop that goes on early": Case(
        "import torch, importlib\nfor one in ('_cuda', '_cpu'):\n"
        "    if one == '_cuda' and not torch.cuda.is_available():\n        continue\n"
        "    importlib.import_module('.' + one, __package__)\n",
        {"torch.py": TORCH, "pkg/_cuda.abi3.so": FOREIGN, "pkg/_cpu.abi3.so": PLAIN},
    ),
    "a condition in one line": Case(
        "import os, importlib\nLIBRARY = importlib.import_module('pkg._c') if "
        "os.environ.get('PKG_CUDA') else None\n"
    ),
    "an and in one line": Case(
        "import os, importlib\n"
        "LIBRARY = os.environ.get('PKG_CUDA') and importlib.import_module('pkg._c')\n"
    ),
    "a cache that is empty": Case(
        "LIBRARY = None\ndef load():\n    global LIBRARY\n    if LIBRARY is not None:\n"
        "        return LIBRARY\n    from . import _c\n    LIBRARY = _c\nload()\n"
    ),
    "a part of the system's name": Case(
        "import sys\nif 'win' in sys.platform:\n    pass\nelse:\n    from . import _c\n"
    ),
    "another system": Case("import sys\nif sys.platform == 'win32':\n    from . import _c\n"),
    "a main program": Case("if __name__ == '__main__':\n    from . import _c\n"),
    # Functions
    "a lazy __getattr__": Case(
        "import importlib\ndef __getattr__(name):\n"
        "    return importlib.import_module('._c', __name__)\n",
        attribute="_c",
    ),
    "a function that nobody calls": Case("def f():\n    from . import _c\n"),
    "a function that is called": Case("def f():\n    from . import _c\nf()\n"),
    "a function of another module that is called": Case(
        "from ._load import load\nload()\n", BEHIND_A_FUNCTION
    ),
    "a function that is called under a try": Case(
        "from ._load import load\ntry:\n    load()\nexcept ImportError:\n    pass\n",
        BEHIND_A_FUNCTION,
    ),
    "a function in the default of a parameter": Case(
        "from ._load import load\ndef f(library=load()):\n    pass\n", BEHIND_A_FUNCTION
    ),
    "a function that is kept, with a cache": Case(
        "import functools\n@functools.lru_cache\ndef load():\n    from . import _c\n"
        "    return _c\nLIBRARY = load()\n"
    ),
    "a method of an object that is made": Case(
        "class Loader:\n    def __init__(self):\n        from . import _c\nLOADER = Loader()\n"
    ),
    "a lambda that is kept": Case("load = lambda: __import__('pkg._c')\n"),
    # Names that are put together
    "import_module with a name": Case("import importlib\nimportlib.import_module('pkg._c')\n"),
    "import_module with a relative name": Case(
        "from importlib import import_module\nimport_module('._c', __package__)\n"
    ),
    "import_module with an f-string": Case(
        "import importlib\nfor one in ('_c',):\n    importlib.import_module(f'{__name__}.{one}')\n"
    ),
    "import_module in a comprehension": Case(
        "import importlib\nALL = [importlib.import_module(f'.{n}', __name__) for n in ['_c']]\n"
    ),
    "import_module with a name that only a run knows": Case(
        "import importlib, os\nfor one in filter(None, [os.environ.get('PKG_BACKEND')]):\n"
        "    importlib.import_module(f'pkg.{one}')\n"
    ),
    "__import__": Case("__import__('pkg._c')\n"),
    "pkgutil finds all modules": Case(
        "import importlib, pkgutil\nfor one in pkgutil.iter_modules(__path__):\n"
        "    importlib.import_module(f'{__name__}.{one.name}')\n"
    ),
    "pkgutil finds all modules, and one may fail": Case(
        "import importlib, pkgutil\nfor one in pkgutil.walk_packages(__path__, __name__ + '.'):\n"
        "    try:\n        importlib.import_module(one.name)\n    except ImportError:\n"
        "        pass\n"
    ),
    "pkgutil lists the modules": Case(
        "import pkgutil\nNAMES = [one.name for one in pkgutil.iter_modules(__path__)]\n"
    ),
    # Plugins
    "an entry point that others load": Case(
        "", {"pkg/cuda.py": "from . import _c\n"}, entry_points="[x.plugins]\ncuda = pkg.cuda\n"
    ),
    "an entry point of its own, and one may fail": Case(
        "from importlib.metadata import entry_points\nfor one in entry_points(group='pkg'):\n"
        "    try:\n        one.load()\n    except ImportError:\n        pass\n",
        {"pkg/cuda.py": "from . import _c\n"},
        entry_points="[pkg]\ncuda = pkg.cuda\n",
    ),
    # ctypes
    "ctypes": Case(WANTED),
    "ctypes under another name": Case("from ctypes import CDLL as L\nL('libcudart.so.98')\n"),
    "a name for CDLL": Case("import ctypes\nload = ctypes.CDLL\nload('libcudart.so.98')\n"),
    "a name for CDLL of another module": Case(
        "from ._compat import load\nload('libcudart.so.98')\n",
        {"pkg/_compat.py": "import ctypes\nload = ctypes.CDLL\n"},
    ),
    "an item of cdll": Case("from ctypes import cdll\ncdll['libcudart.so.98']\n"),
    "an attribute of cdll": Case("import ctypes\ngetattr(ctypes.cdll, 'libcudart.so.98')\n"),
    "keywords": Case("import ctypes\nctypes.CDLL(mode=1, name='libcudart.so.98')\n"),
    "LoadLibrary with a keyword": Case(
        "import ctypes\nctypes.cdll.LoadLibrary(name='libcudart.so.98')\n"
    ),
    "a part of CDLL": Case(
        "import ctypes, functools\nfunctools.partial(ctypes.CDLL, mode=1)('libcudart.so.98')\n"
    ),
    "a subclass of CDLL": Case(
        "import ctypes\nclass Lib(ctypes.CDLL):\n    pass\nLib('libcudart.so.98')\n"
    ),
    "CDLL over several names": Case("import ctypes\nlist(map(ctypes.CDLL, ['libcudart.so.98']))\n"),
    "a name for import_module": Case(
        "from importlib import import_module as load\nload('pkg.inner')\n",
        {"pkg/inner.py": WANTED},
    ),
    "import_module with a keyword": Case(
        "import importlib\nimportlib.import_module(package='pkg', name='.inner')\n",
        {"pkg/inner.py": WANTED},
    ),
    "a name for CDLL under except OSError": Case(
        "import ctypes\nload = ctypes.CDLL\n"
        "try:\n    load('libcudart.so.98')\nexcept OSError:\n    pass\n"
    ),
    "ctypes under except OSError": Case(
        "import ctypes\ntry:\n    ctypes.CDLL('libcudart.so.98')\nexcept OSError:\n    pass\n"
    ),
    "ctypes under except ImportError, which it is not": Case(
        "import ctypes\ntry:\n    ctypes.CDLL('libcudart.so.98')\nexcept ImportError:\n    pass\n"
    ),
    "ctypes with a file of its own": Case(
        "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).parent / '_c.abi3.so'))\n"
    ),
    "find_library that finds nothing": Case(
        "import ctypes, ctypes.util\nctypes.CDLL(ctypes.util.find_library('cudart'))\n"
    ),
    "several names, and a raise at the end": Case(
        "import ctypes\ndef load():\n    for name in ('libcudart.so.99', 'libcudart.so.98'):\n"
        "        try:\n            return ctypes.CDLL(name)\n        except OSError:\n"
        "            continue\n    raise OSError('no CUDA')\nLIBRARY = load()\n"
    ),
    "several names, and nothing at the end": Case(
        "import ctypes\ndef load():\n    for name in ('libcudart.so.99', 'libcudart.so.98'):\n"
        "        try:\n            return ctypes.CDLL(name)\n        except OSError:\n"
        "            continue\n    return None\nLIBRARY = load()\n"
    ),
    "several names, and a raise in the loop's else": Case(
        "import ctypes\nfor name in ('libcudart.so.99', 'libcudart.so.98'):\n    try:\n"
        "        ctypes.CDLL(name)\n    except OSError:\n        continue\n    break\n"
        "else:\n    raise ImportError('no CUDA')\n"
    ),
    # What runs when Python starts, and what it makes of failures
    "a .pth file that imports it": Case("", {"pkg.pth": "import pkg._c\n"}),
    "a .pth file that adds a folder": Case(
        "",
        {
            "pkg.pth": "pkg_more\n",
            "pkg_more/inner/__init__.py": "from . import _c\n",
            "pkg_more/inner/_c.abi3.so": FOREIGN,
        },
        "inner",
    ),
    "sitecustomize": Case("", {"sitecustomize.py": "import pkg._c\n"}),
}


@dataclass(frozen=True)
class Objects:
    """What a compiler made: an extension that links the runtime, one that does not, the runtime."""

    foreign: Path
    plain: Path
    runtime: Path


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    if shutil.which("gcc") is None:
        missing("gcc", "apt-get install gcc")
    folder = tmp_path_factory.mktemp("objects")
    source, empty = folder / "one.c", folder / "empty.c"
    source.write_text(SOURCE)
    empty.write_text("")
    made = Objects(folder / "foreign.so", folder / "plain.so", folder / "lib" / RUNTIME)
    made.runtime.parent.mkdir()
    command = ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    for arguments in (
        [f"-Wl,-soname,{RUNTIME}", "-o", made.runtime, empty],
        ["-o", made.plain, source],
        ["-o", made.foreign, source, made.runtime],
    ):
        subprocess.run([*command, *arguments], check=True)
    return made


def written(case: Case, root: Path, objects: Objects) -> Path:
    """The case as an installed distribution below `root`; its site-packages."""
    site = root / SITE
    files = {"pkg/__init__.py": case.init, C: FOREIGN, **case.files}
    binaries = {FOREIGN: objects.foreign, PLAIN: objects.plain}
    for path, text in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if text in binaries:
            shutil.copyfile(binaries[text], place)
        else:
            place.write_text(text)
    metadata = site / "pkg-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(case.entry_points)
    (metadata / "RECORD").write_text("".join(f"{path},,\n" for path in files if path != "torch.py"))
    return site


def fails(case: Case, site: Path, libraries: Path | None) -> str | None:
    """The last line of what Python says when the import fails; None when it does not."""
    environment = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    program = f"import site; site.addsitedir({str(site)!r}); import {case.module}"
    program += f"; {case.module}.{case.attribute}" if case.attribute else ""
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, env=environment
    )
    return ((done.stderr.strip() or "exit").splitlines()[-1]) if done.returncode else None


def judged(root: Path) -> tuple[str, str]:
    with DirectoryTree(root) as tree:
        inventory = collect(tree)
    (one,) = tree_verdicts("cpu", inventory, evidence(inventory, load()), Policy())
    return one.verdict, one.reason


@pytest.mark.parametrize("name", CASES)
def test_broken_is_what_python_cannot_import(name: str, tmp_path: Path, objects: Objects) -> None:
    case = CASES[name]
    site = written(case, tmp_path, objects)
    assert fails(case, site, objects.runtime.parent) is None
    error = fails(case, site, None)
    verdict, reason = judged(tmp_path)
    assert (verdict == "broken") is (error is not None), f"{verdict}: {reason}; Python: {error}"


def test_what_has_its_library_beside_it_is_not_broken(tmp_path: Path, objects: Objects) -> None:
    case = Case("import ctypes, os\nfrom . import _c\n", {"pkg/libs/" + RUNTIME: "<runtime>"})
    site = written(case, tmp_path, objects)
    shutil.copyfile(objects.runtime, site / "pkg/libs" / RUNTIME)
    assert judged(tmp_path)[0] != "broken"
