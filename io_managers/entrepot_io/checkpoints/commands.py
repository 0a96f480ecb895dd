"""Subcommands of the command line: save, load, checkpoints list, verify, prune."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers

    from entrepot_io.checkpoints.progress import Progress

PROGRESS_SECONDS = 0.2
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def add_verbs(verbs: SubParsers) -> None:
    """Add this module's subcommands."""
    from entrepot._cli_common import add_connection_options

    save = verbs.add_parser("save", help="write objects, or a whole session, to a checkpoint")
    add_connection_options(save)
    save.add_argument("objects", nargs="*", help="IDs or names (default: the whole session)")
    save.add_argument("url", help="the checkpoint's folder: a path, s3://bucket/path, ...")
    save.add_argument("--format", choices=("entrepot", "parquet"), default="entrepot", help="default: entrepot")
    save.add_argument("--no-incremental", action="store_true", help="write everything into the checkpoint's own folder")
    _add_common(save)
    save.set_defaults(run=run_save)

    load = verbs.add_parser("load", help="put back what a checkpoint holds")
    add_connection_options(load)
    load.add_argument("url", help="the checkpoint's folder")
    load.add_argument("--replace", action="store_true", help="replace objects of other content, and take names over")
    _add_common(load)
    load.set_defaults(run=run_load)

    family = verbs.add_parser("checkpoints", help="list, verify and prune checkpoints")
    members = family.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = members.add_parser("list", help="the checkpoints in a folder")
    listing.add_argument("url", help="the folder above the checkpoints")
    _add_common(listing, progress=False)
    listing.set_defaults(run=run_list)
    verify = members.add_parser("verify", help="read a checkpoint and compare all checksums")
    verify.add_argument("url", help="the checkpoint's folder")
    verify.add_argument("--quick", action="store_true", help="look only whether everything is there in its full length")
    _add_common(verify, progress=False)
    verify.set_defaults(run=run_verify)
    prune = members.add_parser("prune", help="remove old checkpoints, and chunks that none needs")
    prune.add_argument("url", help="the folder above the checkpoints")
    prune.add_argument("--match", default="*", help="glob over the names of those that may go (default: all)")
    prune.add_argument("--older-than", type=_age, metavar="AGE", help="such as 12h or 7d: remove those that are older")
    prune.add_argument("--keep", type=int, metavar="N", help="leave the newest N")
    prune.add_argument("--dry-run", action="store_true", help="remove nothing, say what would go")
    _add_common(prune, progress=False)
    prune.set_defaults(run=run_prune)


def run_save(arguments: argparse.Namespace) -> int:
    """``entrepot save``."""
    from entrepot._cli_common import connect, human_bytes
    from entrepot._cli_objects import find

    with connect(arguments) as store:
        found = [find(store, text) for text in arguments.objects]
        with _Shown(arguments) as shown:
            report = store.save(
                store if not found else found[0] if len(found) == 1 else found,
                arguments.url,
                format=arguments.format,
                incremental=not arguments.no_incremental,
                progress=shown,
                storage_options=arguments.storage_option,
            )
    if arguments.json:
        print(json.dumps(asdict(report)))
    elif report.committed:
        print(f"{report.url}: {report.objects} objects, {human_bytes(report.nbytes)}; "
              f"{human_bytes(report.written_bytes)} written")  # fmt: skip
    else:
        print(f"{report.url}: {report.objects} objects, {human_bytes(report.nbytes)}; all of it was there")
    return 0


def run_load(arguments: argparse.Namespace) -> int:
    """``entrepot load``."""
    from entrepot._cli_common import connect

    with connect(arguments) as store, _Shown(arguments) as shown:
        loaded = store.load(
            arguments.url, replace=arguments.replace, progress=shown, storage_options=arguments.storage_option
        )
    ids = [str(one) for one in loaded] if isinstance(loaded, list) else [str(loaded)]
    print(json.dumps(ids) if arguments.json else "\n".join(ids))
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints list``."""
    from entrepot._cli_common import human_bytes, table

    from entrepot_io.checkpoints.keeping import list_checkpoints

    found = list_checkpoints(arguments.url, storage_options=arguments.storage_option)
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return 0
    rows = [
        [one.name, "cannot be read", "", "", "", one.problem]
        if one.problem
        else [
            one.name,
            one.what if one.format == "entrepot" else f"{one.what}, {one.format}",
            str(one.objects),
            human_bytes(one.nbytes),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.created)),
            f"{one.scope}/{one.session}",
        ]
        for one in found
    ]
    print(table(rows, ["name", "what", "objects", "bytes", "written", "scope/session"]))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints verify``."""
    from entrepot._cli_common import human_bytes

    from entrepot_io.checkpoints.keeping import verify

    report = verify(arguments.url, quick=arguments.quick, storage_options=arguments.storage_option)
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        read = "" if arguments.quick else f", {human_bytes(report.nbytes)} read"
        print(f"{report.url}: {report.objects} objects, {report.chunks} chunks and files{read}")
    if not report.ok:
        raise CorruptData(f"{report.url} cannot be loaded whole:\n  " + "\n  ".join(report.problems))
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints prune``."""
    from entrepot._cli_common import human_bytes

    from entrepot_io.checkpoints.keeping import prune

    report = prune(
        arguments.url,
        match=arguments.match,
        older_than=arguments.older_than,
        keep=arguments.keep,
        dry_run=arguments.dry_run,
        storage_options=arguments.storage_option,
    )
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
        return 0
    said = "would remove" if arguments.dry_run else "removed"
    print(f"{said} {len(report.removed)} checkpoints, {report.chunks} chunks ({human_bytes(report.nbytes)})")
    for name in report.removed:
        print(f"  {name}")
    if report.kept_for:
        print(f"{report.kept_for} saves are at work there, so no chunk was removed: prune again later")
    return 0


class _Shown:
    """Shows progress on standard error; by default only if that is a terminal."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._on = bool(arguments.progress if arguments.progress is not None else sys.stderr.isatty())
        self._next = 0.0
        self._begun = time.monotonic()
        self._last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self._last = progress
        if self._on and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            self._print(progress)

    def _print(self, progress: Progress) -> None:
        from entrepot._cli_common import human_bytes

        share = 100 * progress.done_bytes // max(1, progress.total_bytes)
        rate = progress.moved_bytes / max(1e-9, time.monotonic() - self._begun)
        sys.stderr.write(
            f"\r{share:3d} %  {human_bytes(progress.done_bytes)} of {human_bytes(progress.total_bytes)}, "
            f"{progress.done_objects} of {progress.total_objects} objects, {human_bytes(int(rate))}/s   "
        )
        sys.stderr.flush()

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on and self._last is not None:
            self._print(self._last)
            sys.stderr.write("\n")


def _add_common(parser: argparse.ArgumentParser, *, progress: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--storage-option",
        action=_Option,
        metavar="KEY=VALUE",
        help="for fsspec's driver, may be repeated; VALUE is JSON if it can be read so, else text",
    )
    if progress:
        parser.add_argument(
            "--progress",
            action=argparse.BooleanOptionalAction,
            default=None,
            help="show progress on standard error (default: if that is a terminal)",
        )


class _Option(argparse.Action):
    """Collects KEY=VALUE into a dictionary."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        key, equals, text = str(values).partition("=")
        if not equals or not key:
            parser.error(f"--storage-option is KEY=VALUE, but got {values!r}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), key: value})


def _age(text: str) -> float:
    for unit, seconds in sorted(_UNITS.items(), key=lambda one: -len(one[0])):
        if text.endswith(unit):
            try:
                return float(text[: -len(unit)]) * seconds
            except ValueError:
                break
    raise argparse.ArgumentTypeError(f"an age is a number and one of {', '.join(_UNITS)}, such as 7d, not {text!r}")
