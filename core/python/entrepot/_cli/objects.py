"""Subcommands about objects: ls, sets, info, put, get, rm, prefetch."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot._cli import physical, streams
from entrepot._cli.common import (
    add_connection_options,
    age,
    connect,
    connect_for_inspection,
    duration_option,
    human_bytes,
    positive_option,
    printable,
    printable_json,
    table,
    to_json_value,
)
from entrepot._cli.heads import format_head, head_of
from entrepot._cli.lost import lost_label, missing_error
from entrepot._cli.object_summary import payload_bytes, summary_of, type_label
from entrepot._cli.styles import style_labels
from entrepot._client.queries import session_records
from entrepot._codecs.plasma_objects import PlasmaObject
from entrepot._store.object_info import list_objects_everywhere
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, UnsupportedType
from entrepot.ids import ID_BYTES, ObjectID
from entrepot.library_errors import is_library_error, reason_of
from entrepot.phrases import count_of, session_phrase

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers
    from entrepot._store.store import Store


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the subcommands of this module."""
    listing = subparsers.add_parser("ls", help="list objects, or streams")
    add_connection_options(listing)
    listing.add_argument("pattern", nargs="?", default="*", help="glob over names and IDs (default: all)")
    listing.add_argument("--all", action="store_true", help="list all sessions; without --scope, all scopes too")
    listing.add_argument("--json", action="store_true", help="print a JSON list")
    listing.add_argument(
        "--physical",
        action="store_true",
        help="show the memory and disk that objects occupy, each shared byte once, with a total; JSON: one object",
    )
    listing.add_argument(
        "--streams", action="store_true", help="list the streams whose names match, with their writers and readers"
    )
    listing.set_defaults(run=run_ls)

    sets = subparsers.add_parser("sets", help="list the locality sets of the session")
    add_connection_options(sets)
    sets.add_argument("--json", action="store_true", help="print a JSON list")
    sets.set_defaults(run=run_sets)

    info = subparsers.add_parser("info", help="show everything about one object")
    add_connection_options(info)
    info.add_argument("object", help="ID or name")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.set_defaults(run=run_info)

    put = subparsers.add_parser(
        "put", help="store a file's bytes (Arrow and Parquet files become tables with --as table)"
    )
    add_connection_options(put)
    put.add_argument("file", help="path, or - for standard input")
    put.add_argument("--name", help="bind this name to the object")
    put.add_argument("--replace", action="store_true", help="rebind the name if it is taken")
    put.add_argument("--as", dest="kind", choices=("bytes", "table"), default="bytes", help="default: bytes")
    put.set_defaults(run=run_put)

    get = subparsers.add_parser("get", help="print an object: bytes unchanged, a table as text, others as repr")
    add_connection_options(get)
    get.add_argument("object", help="ID or name")
    get.add_argument("-o", "--output", type=Path, help="write to this file (tables: .parquet, .arrow or .csv)")
    get.add_argument(
        "--timeout",
        type=duration_option,
        default=0.0,
        metavar="TIME",
        help="how long to wait for the object, such as 30 or 5min (default: 0)",
    )
    get.add_argument(
        "--head",
        type=positive_option,
        metavar="N",
        help="print only the first N rows of a table or array, entries of a list or dict, or bytes",
    )
    get.set_defaults(run=run_get)

    remove = subparsers.add_parser("rm", help="delete objects")
    add_connection_options(remove)
    remove.add_argument("objects", nargs="+", help="IDs or names")
    remove.set_defaults(run=run_rm)

    prefetch = subparsers.add_parser("prefetch", help="start reloading objects from disk")
    add_connection_options(prefetch)
    prefetch.add_argument("objects", nargs="+", help="IDs or names")
    prefetch.set_defaults(run=run_prefetch)


def resolve_object(store: Store, text: str, timeout: float = 0.0) -> ObjectID:
    """Return the ID of the object given by ID or name.

    Text of 40 hexadecimal digits is a name only if there is such a name and no object has that ID.
    """
    if len(text) == 2 * ID_BYTES:
        try:
            oid = ObjectID(text)
        except InvalidArgument:
            pass  # 40 characters, but not hexadecimal: a name
        else:
            if store.exists(oid):
                return oid
            try:
                return store.resolve(text)
            except ObjectNotFound:
                return oid
    return store.resolve(text, timeout=timeout) if timeout else store.resolve(text)


def run_prefetch(arguments: argparse.Namespace) -> int:
    """``entrepot prefetch``."""
    with connect(arguments) as store:
        store.prefetch(*(resolve_object(store, text) for text in arguments.objects))
    return 0


def run_ls(arguments: argparse.Namespace) -> int:
    """``entrepot ls``."""
    many_sessions = arguments.all or (arguments.scope is not None and arguments.session is None)
    if many_sessions and arguments.session is not None:
        raise InvalidArgument("--session lists one session and --all lists all sessions: use only one of these options")
    if arguments.streams and arguments.physical:
        raise InvalidArgument("--physical lists objects and --streams lists streams: use only one of these options")
    with connect_for_inspection(arguments.address) if many_sessions else connect(arguments) as store:
        if arguments.streams:
            place = (arguments.scope, None) if many_sessions else (store.scope, store.session_name)
            listed = streams.matching(store.status().get("streams"), arguments.pattern, *place)
            streams.print_streams(listed, arguments.json)
            return 0
        if many_sessions:
            raw, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
            objects = list_objects_everywhere(raw, session, arguments.pattern, arguments.scope)
        else:
            objects = store.list(arguments.pattern)
            if not objects and arguments.pattern == "*" and not arguments.json:
                _hint_at_other_sessions(store)
        status: dict[str, Any] = {}
        if arguments.physical:
            objects = physical.physical_infos(store._raw(), objects)  # pyright: ignore[reportPrivateUsage]
            status = store.status()
    objects.sort(key=lambda info: info.created)
    if arguments.physical:
        complete = many_sessions and arguments.scope is None and arguments.pattern == "*"
        report = physical.physical_report(objects, status, complete=complete)
        labels = [type_label(info) for info in objects]
        print(json.dumps(report, indent=2) if arguments.json else physical.format_physical(report, labels))
        return 0
    if arguments.json:
        print(json.dumps([to_json_value(info) for info in objects], indent=2))
        return 0
    marked = any(info.lost for info in objects)
    rows = [
        [
            str(info.id),
            human_bytes(payload_bytes(info)),
            type_label(info),
            age(info.created),
            info.state,
            *([lost_label(info)] if marked else []),
            info.locality_set,
            ", ".join(info.names),
            *([f"{info.scope}: {info.session}" if arguments.scope is None else info.session] if many_sessions else []),
        ]
        for info in objects
    ]
    columns = ["id", "bytes", "type", "age", "state", *(["lost"] if marked else []), "set", "names"]
    print(table(rows, [*columns, *(["session"] if many_sessions else [])]))
    return 0


def _hint_at_other_sessions(store: Store) -> None:
    records = session_records(store._raw())  # pyright: ignore[reportPrivateUsage]
    others = sum(1 for record in records if record["objects"])
    if others:
        have = "has some" if others == 1 else "have some"
        where = session_phrase(store.scope, store.session_name)
        print(
            f"entrepot: no objects in {where}, but {count_of(others, 'other session')} {have}: "
            "'entrepot ls --all' lists them",
            file=sys.stderr,
        )


def run_sets(arguments: argparse.Namespace) -> int:
    """``entrepot sets``."""
    with connect(arguments) as store:
        locality_sets = store.locality_sets()
    if arguments.json:
        print(json.dumps([to_json_value(locality_set) for locality_set in locality_sets], indent=2))
        return 0
    rows = [
        [
            locality_set.name or "(default)",
            str(locality_set.objects),
            human_bytes(locality_set.nbytes),
            locality_set.reading if locality_set.reading != "unknown" else f"{locality_set.reading_now} (inferred)",
            locality_set.durability,
            locality_set.lifetime if locality_set.lifetime != "consumers" else f"{locality_set.consumers} consumers",
            locality_set.operation,
            locality_set.policy,
            str(locality_set.priority),
        ]
        for locality_set in locality_sets
    ]
    columns = ["set", "objects", "bytes", "reading", "durability", "lifetime", "operation", "policy", "priority"]
    print(table(rows, columns))
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    """``entrepot info``."""
    with connect(arguments, allow_pickle=False) as store:
        oid = resolve_object(store, arguments.object)
        try:
            described = store.info(oid)
        except ObjectNotFound as error:
            raise missing_error(store, oid, error) from error
        summary = [] if arguments.json else summary_of(store, described)
    info = to_json_value(described)
    if arguments.json:
        print(json.dumps(info, indent=2))
        return 0
    info["created"] = datetime.fromtimestamp(info["created"]).astimezone().isoformat(timespec="seconds")
    width = max(len(key) for key in info)
    lines = [f"{label.ljust(width)}  {text}" for label, text in summary]
    lines.append("")
    for key, value in info.items():
        label = "recomputed" if key == "made_again" else key  # made_again is its former name
        text = printable_json(value) if isinstance(value, (list, dict)) else printable(str(value))
        lines.append(f"{label.ljust(width)}  {text}")
    print(style_labels("\n".join(lines)))
    return 0


def run_put(arguments: argparse.Namespace) -> int:
    """``entrepot put``."""
    value = _read_value(arguments.file, arguments.kind)
    with connect(arguments, create_session=True) as store:
        try:
            oid = store.put(value, name=arguments.name, replace=arguments.replace)
        except ObjectExists as error:
            raise ObjectExists(
                f"the name {arguments.name!r} is bound to another object already: choose another name, or pass "
                "--replace to rebind it"
            ) from error
    print(oid)
    return 0


def run_get(arguments: argparse.Namespace) -> int:
    """``entrepot get``."""
    if arguments.head is not None and arguments.output is not None:
        raise InvalidArgument("--head prints and --output writes a file: use only one of these options")
    with connect(arguments) as store:
        value = store.get(resolve_object(store, arguments.object, arguments.timeout), timeout=arguments.timeout)
        if isinstance(value, PlasmaObject):
            value = value.data
        if arguments.output is not None:
            _write_value(value, arguments.output)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            sys.stdout.buffer.write(memoryview(value)[: arguments.head])
        elif arguments.head is not None:
            print(format_head(head_of(value, arguments.head)))
        else:
            print(_text_of(value))
    return 0


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except BaseException as error:  # of whatever library the value is
        if not is_library_error(error):
            raise
        raise UnsupportedType(
            f"this {type(value).__name__} cannot be printed ({reason_of(error)}): show its first rows with --head, or "
            "write it to a file with --output"
        ) from error


def run_rm(arguments: argparse.Namespace) -> int:
    """``entrepot rm``."""
    missing: list[str] = []
    with connect(arguments) as store:
        for text in arguments.objects:
            try:
                deleted = store.delete(resolve_object(store, text))
            except ObjectNotFound:
                deleted = False
            if not deleted:
                missing.append(text)
    deleted_count = len(arguments.objects) - len(missing)
    if deleted_count:
        print(f"{count_of(deleted_count, 'object')} deleted")
    if missing:
        raise ObjectNotFound(f"not found, so not deleted: {', '.join(missing)}")
    return 0


def _read_value(name: str, kind: str) -> Any:
    if name == "-":
        if kind == "table":
            raise InvalidArgument("a table cannot be read from standard input: give the path of a file")
        return sys.stdin.buffer.read()
    path = Path(name)
    if not path.is_file():
        raise InvalidArgument(f"{name} is not a file")
    if kind == "bytes":
        return path.read_bytes()
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    if path.suffix in (".arrow", ".feather", ".ipc"):
        import pyarrow.feather

        return pyarrow.feather.read_table(path)
    if path.suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.read_csv(path)
    raise InvalidArgument(
        f"a table can be read from .parquet, .arrow, .feather, .ipc or .csv files, but {name} {_suffix_phrase(path)}"
    )


def _suffix_phrase(path: Path) -> str:
    return f"has the suffix {path.suffix!r}" if path.suffix else "has no suffix"


def _write_value(value: Any, path: Path) -> None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        path.write_bytes(value)
        return
    if path.suffix not in (".parquet", ".arrow", ".csv"):
        raise InvalidArgument(
            f"a {type(value).__name__} can be written as .parquet, .arrow or .csv, but {path} {_suffix_phrase(path)}"
        )
    import pyarrow

    arrow_table = value if isinstance(value, pyarrow.Table) else pyarrow.table(value)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow_table, path)
    elif path.suffix == ".arrow":
        import pyarrow.feather

        pyarrow.feather.write_feather(arrow_table, path, compression="uncompressed")
    else:
        import pyarrow.csv

        pyarrow.csv.write_csv(arrow_table, path)
