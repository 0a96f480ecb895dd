"""The subcommands ``entrepot pipe run`` and ``entrepot pipe ls``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this package's subcommands."""
    from entrepot._cli.common import add_connection_options

    pipe = subparsers.add_parser("pipe", help="run programs whose files are pipes, and see who is at a pipe")
    actions = pipe.add_subparsers(dest="action", metavar="ACTION", required=True)

    run = actions.add_parser(
        "run",
        help="run a program to which names such as db://orders are pipes",
        description="Run a program; in it and in its children, names such as db://orders are pipes. Ends with the "
        "program's exit code. Programs that open files by themselves, such as psql, get named pipes (FIFOs) for the "
        "names given by --export and --import.",
        usage="entrepot pipe run [options] -- PROGRAM [ARGUMENT ...]",
    )
    add_connection_options(run)
    run.add_argument("--folder", type=Path, help="the reserved folder, for names __reserved__NAME (default: a new one)")
    for role, verb in (("export", "writes"), ("import", "reads")):
        run.add_argument(
            f"--{role}",
            action="append",
            default=[],
            metavar="NAME",
            dest=f"{role}s",
            help=f"a pipe, such as db://orders, that the program {verb} as a FIFO; NAME in its arguments becomes the "
            "FIFO's path (repeatable)",
        )
    run.add_argument(
        "--dialect",
        metavar="JSON",
        help='dialect of the text in the FIFOs, such as {"delimiter": "|"} (default: an exporter\'s as it shows; an '
        "importer's as the exporter's, or CSV with a header)",
    )
    run.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long to wait for the other end (default: 300)"
    )
    run.add_argument(
        "--verify",
        type=int,
        metavar="ROWS",
        help="send the first ROWS rows of each pipe, and samples of later ones, by file too, and compare them",
    )
    run.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")
    run.set_defaults(run=_run)

    listing = actions.add_parser("ls", help="list who is at which pipe, and who waits for whom")
    add_connection_options(listing)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)


def _run(arguments: argparse.Namespace) -> int:
    from entrepot_pipes.run_command import run_program

    return run_program(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from entrepot_pipes.ls_command import print_pipes

    return print_pipes(arguments)
