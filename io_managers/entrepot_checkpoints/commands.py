"""Subcommands of the command line: save, load, checkpoints list, verify, prune."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, InvalidArgument
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers
    from entrepot._cli.progress_display import ProgressDisplay

    from entrepot_checkpoints.progress import Progress, ProgressCallback


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    from entrepot._cli.common import add_connection_options

    save = subparsers.add_parser("save", help="save objects or a whole session to a checkpoint")
    add_connection_options(save)
    save.add_argument("objects", nargs="*", help="IDs or names (default: the whole session)")
    save.add_argument("url", help="the checkpoint's folder: a path, s3://bucket/path, ...")
    formats = ("entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5")
    save.add_argument("--format", choices=formats, default="entrepot", help="default: entrepot")
    save.add_argument("--no-incremental", action="store_true", help="write all data to the checkpoint's own folder")
    _add_common(save)
    save.set_defaults(run=run_save)

    load = subparsers.add_parser("load", help="load a checkpoint into the store")
    add_connection_options(load)
    load.add_argument("url", help="the checkpoint's folder")
    load.add_argument("--replace", action="store_true", help="replace objects with different content, and rebind names")
    _add_common(load)
    load.set_defaults(run=run_load)

    group = subparsers.add_parser("checkpoints", help="list, verify and prune checkpoints")
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the checkpoints in a folder")
    listing.add_argument("url", help="the folder that contains the checkpoints")
    _add_common(listing, progress=False)
    listing.set_defaults(run=run_list)
    verify = actions.add_parser("verify", help="read a checkpoint and verify all checksums")
    verify.add_argument("url", help="the checkpoint's folder")
    verify.add_argument("--quick", action="store_true", help="only check that all files exist and have their full size")
    _add_common(verify, progress=False)
    verify.set_defaults(run=run_verify)
    prune = actions.add_parser("prune", help="remove old checkpoints and unreferenced chunks")
    prune.add_argument("url", help="the folder that contains the checkpoints")
    prune.add_argument("--match", default="*", help="glob over the names of checkpoints to consider (default: all)")
    prune.add_argument(
        "--older-than", type=_parse_age, metavar="AGE", help="remove those older than AGE, such as 12h or 7d"
    )
    prune.add_argument("--keep", type=int, metavar="N", help="keep the newest N")
    prune.add_argument("--yes", action="store_true", help="confirm --keep 0, which removes all checkpoints that match")
    prune.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    _add_common(prune, progress=False)
    prune.set_defaults(run=run_prune)


def run_save(arguments: argparse.Namespace) -> int:
    """``entrepot save``."""
    from entrepot._cli.common import connect, human_bytes
    from entrepot._cli.objects import resolve_object
    from entrepot._cli.progress_display import ProgressDisplay

    with connect(arguments) as store:
        objects = [resolve_object(store, text) for text in arguments.objects]
        with ProgressDisplay(arguments.progress) as display:
            report = store.save(
                store if not objects else objects[0] if len(objects) == 1 else objects,
                arguments.url,
                format=arguments.format,
                incremental=not arguments.no_incremental,
                progress=_showing(display),
                storage_options=arguments.storage_option,
            )
    if arguments.json:
        print(json.dumps(asdict(report)))
    elif report.committed:
        print(f"{report.url}: {count_of(report.objects, 'object')}, {human_bytes(report.nbytes)}; "
              f"{human_bytes(report.written_bytes)} written")  # fmt: skip
    else:
        print(f"{report.url}: {count_of(report.objects, 'object')}, {human_bytes(report.nbytes)}; already up to date")
    return 0


def run_load(arguments: argparse.Namespace) -> int:
    """``entrepot load``."""
    from entrepot._cli.common import connect
    from entrepot._cli.progress_display import ProgressDisplay

    with connect(arguments, create_session=True) as store, ProgressDisplay(arguments.progress) as display:
        loaded = store.load(
            arguments.url,
            replace=arguments.replace,
            progress=_showing(display),
            storage_options=arguments.storage_option,
        )
    ids = [str(oid) for oid in loaded] if isinstance(loaded, list) else [str(loaded)]
    print(json.dumps(ids) if arguments.json else "\n".join(ids))
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints list``."""
    from entrepot._cli.common import human_bytes, table

    from entrepot_checkpoints.retention import list_checkpoints
    from entrepot_checkpoints.storage.directory import open_directory

    path = open_directory(arguments.url, arguments.storage_option).local_path
    if path is not None and not path.is_dir():
        raise InvalidArgument(f"there is no folder {path}: give the one that contains the checkpoints")
    checkpoints = list_checkpoints(arguments.url, storage_options=arguments.storage_option)
    if arguments.json:
        print(json.dumps([asdict(checkpoint) for checkpoint in checkpoints], indent=2))
        return 0
    rows = [
        [checkpoint.name, "cannot be read", "", "", "", checkpoint.problem]
        if checkpoint.problem
        else [
            checkpoint.name,
            checkpoint.what if checkpoint.format == "entrepot" else f"{checkpoint.what}, {checkpoint.format}",
            str(checkpoint.objects),
            human_bytes(checkpoint.nbytes),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created)),
            f"{checkpoint.scope}/{checkpoint.session}",
        ]
        for checkpoint in checkpoints
    ]
    print(table(rows, ["name", "what", "objects", "bytes", "written", "scope/session"]))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints verify``."""
    from entrepot._cli.common import human_bytes

    from entrepot_checkpoints.retention import verify

    report = verify(arguments.url, quick=arguments.quick, storage_options=arguments.storage_option)
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        read = "" if arguments.quick else f", {human_bytes(report.nbytes)} read"
        print(f"{report.url}: {count_of(report.objects, 'object')} in {count_of(report.chunks, 'file')}{read}")
    if not report.ok:
        raise CorruptData(f"{report.url} cannot be loaded completely:\n  " + "\n  ".join(report.problems))
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """``entrepot checkpoints prune``."""
    from entrepot._cli.common import human_bytes

    from entrepot_checkpoints.retention import prune

    if arguments.keep == 0 and arguments.older_than is None and not (arguments.yes or arguments.dry_run):
        raise InvalidArgument(
            f"--keep 0 would remove all checkpoints in {arguments.url} that match {arguments.match!r}: confirm it with "
            "--yes, or look first with --dry-run"
        )
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
    action = "would remove" if arguments.dry_run else "removed"
    removed = f"{count_of(len(report.removed), 'checkpoint')}, {count_of(report.chunks, 'chunk')}"
    names = f", {count_of(report.names, 'name')} of durable sessions without an object" if report.names else ""
    print(f"{action} {removed} ({human_bytes(report.nbytes)}){names}")
    for name in report.removed:
        print(f"  {name}")
    if report.kept_for:
        print(f"{report.kept_for} saves are in progress there, so no chunks were removed: prune again later")
    return 0


def _showing(display: ProgressDisplay) -> ProgressCallback:
    def show(progress: Progress) -> None:
        display.show(
            progress.done_bytes,
            progress.total_bytes,
            progress.done_objects,
            progress.total_objects,
            progress.moved_bytes,
        )

    return show


def _add_common(parser: argparse.ArgumentParser, *, progress: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--storage-option",
        action=_KeyValueOption,
        metavar="KEY=VALUE",
        help="option for fsspec's driver (repeatable); VALUE is parsed as JSON if possible, else used as a string",
    )
    if progress:
        parser.add_argument(
            "--progress",
            action=argparse.BooleanOptionalAction,
            default=None,
            help="show progress on standard error (default: if it is a terminal)",
        )


class _KeyValueOption(argparse.Action):
    """Collects KEY=VALUE into a dictionary."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        key, equals, text = str(values).partition("=")
        if not equals or not key:
            parser.error(f"--storage-option must be KEY=VALUE, but got {values!r}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), key: value})


def _parse_age(text: str) -> float:
    from entrepot._cli.common import duration_option

    if text[-1:].isdecimal():  # may well be meant as days
        raise argparse.ArgumentTypeError(f"an age needs a unit (s, min, h or d), such as 7d, but got {text!r}")
    return duration_option(text)
