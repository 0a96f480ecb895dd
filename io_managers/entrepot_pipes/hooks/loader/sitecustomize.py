"""Loaded by every Python process whose PYTHONPATH begins with this folder: installs the hooks of data pipes.

A module of the same name further down the path, which this one hides, is loaded as well.
"""

import os
import sys


def _chain() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module  # as if this one were not there
        spec.loader.exec_module(module)


def _install() -> None:
    try:
        from entrepot_pipes.hooks.install import install
    except ImportError as error:
        print(
            f"entrepot: {sys.executable} cannot use data pipes, as {error.name or error} is missing there; install"
            " 'entrepot[pipes]' in its environment",
            file=sys.stderr,
        )
    else:
        install()


_install()
_chain()
