"""``entrepot completion``: a script with which a shell completes subcommands and options."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot._cli.common import SubParsers

SHELLS = ("bash", "zsh", "fish", "tcsh")
_EPILOG = """\
bash: entrepot completion bash > ~/.local/share/bash-completion/completions/entrepot
zsh:  entrepot completion zsh > "${fpath[1]}/_entrepot"
fish: entrepot completion fish > ~/.config/fish/completions/entrepot.fish
tcsh: entrepot completion tcsh > ~/.entrepot.tcsh, and 'source ~/.entrepot.tcsh' in ~/.tcshrc"""


def add_subcommands(subparsers: SubParsers, build_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add this module's subcommand; ``build_parser`` returns the whole command line's parser."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes subcommands and options in a shell",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=lambda arguments: run_completion(arguments.shell, build_parser))


def run_completion(shell: str, build_parser: Callable[[], argparse.ArgumentParser]) -> int:
    """``entrepot completion``."""
    if find_spec("shtab") is None:
        raise InvalidArgument("entrepot completion needs shtab: pip install 'entrepot[cli]'")
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise InvalidArgument(
            f"the installed shtab, {shtab.__version__}, has no completion for {shell}: pip install --upgrade shtab"
        )
    print(shtab.complete(build_parser(), shell))
    return 0
