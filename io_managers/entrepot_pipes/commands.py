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
        "--profile",
        type=Path,
        metavar="FILE",
        help="the program's profile, made by 'entrepot pipe learn': its dialect, unless --dialect says another",
    )
    run.add_argument(
        "--verify",
        type=int,
        metavar="ROWS",
        help="send the first ROWS rows of each pipe, and samples of later ones, by file too, and compare them",
    )
    run.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")
    run.set_defaults(run=_run)

    learn = actions.add_parser(
        "learn",
        help="run an engine's own tests, and find out on which rung of the ladder its files can be pipes",
        description="Run tests that export to FILE and import from it: first as they are, to see how the file is used; "
        "then with pipes in its place, as text parsed in blocks, and as bytes. Prints the profile. Files that match "
        "FILE are removed between the runs.",
        usage="entrepot pipe learn [options] FILE -- PROGRAM [ARGUMENT ...]",
    )
    add_connection_options(learn)
    learn.add_argument("--engine", metavar="NAME", help="of the engine (default: the program's name)")
    learn.add_argument("--engine-version", default="", metavar="VERSION", help="of the engine")
    learn.add_argument("--output", type=Path, metavar="FILE", help="write the profile there (default: print it)")
    learn.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="for each run (default: 600)")
    learn.add_argument("file", metavar="FILE", help="the data file; may have * and ?, as in '/tmp/t/*.csv'")
    learn.add_argument("program", nargs=argparse.REMAINDER, help="the command that runs the tests, after --")
    learn.set_defaults(run=_learn)

    listing = actions.add_parser("ls", help="list who is at which pipe, and who waits for whom")
    add_connection_options(listing)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)


def _run(arguments: argparse.Namespace) -> int:
    from entrepot_pipes.run_command import run_program

    return run_program(arguments)


def _learn(arguments: argparse.Namespace) -> int:
    from entrepot_pipes.learn.lesson import learn

    return learn(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from entrepot_pipes.ls_command import print_pipes

    return print_pipes(arguments)
