"""Subcommands about objects: ls, sets, info, put, get, rm, evict, prefetch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot import _cli_sessions
from entrepot._cli_common import add_connection_options, age, connect, human_bytes, plain, table
from entrepot._reports import everywhere
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot.ids import ID_BYTES, ObjectID

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers
    from entrepot._info import ObjectInfo
    from entrepot._store import Store


def add_verbs(verbs: SubParsers) -> None:
    """Add the subcommands of this module."""
    listing = verbs.add_parser("ls", help="list objects")
    add_connection_options(listing)
    listing.add_argument("pattern", nargs="?", default="*", help="glob over names and IDs (default: all)")
    listing.add_argument("--all", action="store_true", help="of all sessions; without --scope, of all scopes too")
    listing.add_argument("--json", action="store_true", help="as JSON, one list")
    listing.set_defaults(run=run_ls)

    sets = verbs.add_parser("sets", help="list the locality sets of the session")
    add_connection_options(sets)
    sets.add_argument("--json", action="store_true", help="as JSON, one list")
    sets.set_defaults(run=run_sets)

    info = verbs.add_parser("info", help="everything about one object")
    add_connection_options(info)
    info.add_argument("object", help="ID or name")
    info.add_argument("--json", action="store_true", help="as JSON")
    info.set_defaults(run=run_info)

    put = verbs.add_parser("put", help="store a file's bytes (Arrow and Parquet files become tables with --as table)")
    add_connection_options(put)
    put.add_argument("file", help="path, or - for standard input")
    put.add_argument("--name", help="bind a name")
    put.add_argument("--replace", action="store_true", help="rebind the name if it is taken")
    put.add_argument("--as", dest="kind", choices=("bytes", "table"), default="bytes", help="default: bytes")
    put.set_defaults(run=run_put)

    get = verbs.add_parser("get", help="print an object: bytes as they are, a table as text, others as repr")
    add_connection_options(get)
    get.add_argument("object", help="ID or name")
    get.add_argument("-o", "--output", type=Path, help="write to this file (tables: .parquet, .arrow or .csv)")
    get.add_argument("--timeout", type=float, default=0.0, help="seconds to wait for it (default 0)")
    get.set_defaults(run=run_get)

    remove = verbs.add_parser("rm", help="delete objects")
    add_connection_options(remove)
    remove.add_argument("objects", nargs="+", help="IDs or names")
    remove.set_defaults(run=run_rm)

    evict = verbs.add_parser("evict", help="move objects out of memory, to disk; a get brings them back")
    add_connection_options(evict)
    evict.add_argument("objects", nargs="+", help="IDs or names")
    evict.set_defaults(run=run_evict)

    prefetch = verbs.add_parser("prefetch", help="begin to bring objects back from disk")
    add_connection_options(prefetch)
    prefetch.add_argument("objects", nargs="+", help="IDs or names")
    prefetch.set_defaults(run=run_prefetch)


def find(store: Store, text: str, timeout: float = 0.0) -> ObjectID:
    """Return the ID of the object given by ID or name; text of 40 hexadecimal digits is taken for an ID."""
    if len(text) == 2 * ID_BYTES:
        try:
            return ObjectID(text)
        except InvalidArgument:
            pass  # 40 characters, but not hexadecimal: a name
    return store.resolve(text, timeout=timeout) if timeout else store.resolve(text)


def run_evict(arguments: argparse.Namespace) -> int:
    """``entrepot evict``."""
    with connect(arguments) as store:
        store.evict(*(find(store, text) for text in arguments.objects))
    return 0


def run_prefetch(arguments: argparse.Namespace) -> int:
    """``entrepot prefetch``."""
    with connect(arguments) as store:
        store.prefetch(*(find(store, text) for text in arguments.objects))
    return 0


def run_ls(arguments: argparse.Namespace) -> int:
    """``entrepot ls``."""
    several = arguments.all or (arguments.scope is not None and arguments.session is None)
    if several and arguments.session is not None:
        raise InvalidArgument("--session lists one session and --all lists all of them: leave one of them out")
    with _cli_sessions.look_at(arguments.address) if several else connect(arguments) as store:
        found = everywhere(store, arguments.pattern, arguments.scope) if several else store.list(arguments.pattern)
    if arguments.json:
        print(json.dumps([plain(one) for one in found], indent=2))
        return 0
    rows = [
        [
            str(one.id),
            human_bytes(_bytes(one)),
            _type(one),
            age(one.created),
            one.locality_set,
            ", ".join(one.names),
            *([f"{one.scope}: {one.session}" if arguments.scope is None else one.session] if several else []),
        ]
        for one in sorted(found, key=lambda one: one.created)
    ]
    print(table(rows, ["id", "bytes", "type", "age", "set", "names", *(["session"] if several else [])]))
    return 0


def run_sets(arguments: argparse.Namespace) -> int:
    """``entrepot sets``."""
    with connect(arguments) as store:
        found = store.locality_sets()
    if arguments.json:
        print(json.dumps([plain(one) for one in found], indent=2))
        return 0
    rows = [
        [
            one.name or "(default)",
            str(one.objects),
            human_bytes(one.nbytes),
            one.reading if one.reading != "unknown" else f"{one.reading_now} (inferred)",
            one.durability,
            one.lifetime if one.lifetime != "consumers" else f"{one.consumers} consumers",
            one.operation,
            one.policy,
            str(one.priority),
        ]
        for one in found
    ]
    columns = ["set", "objects", "bytes", "reading", "durability", "lifetime", "operation", "policy", "priority"]
    print(table(rows, columns))
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    """``entrepot info``."""
    with connect(arguments) as store:
        info = plain(store.info(find(store, arguments.object)))
    if arguments.json:
        print(json.dumps(info, indent=2))
        return 0
    width = max(len(key) for key in info)
    for key, value in info.items():
        print(f"{key.ljust(width)}  {value if not isinstance(value, (list, dict)) else json.dumps(value)}")
    return 0


def run_put(arguments: argparse.Namespace) -> int:
    """``entrepot put``."""
    value = _read(arguments.file, arguments.kind)
    with connect(arguments) as store:
        print(store.put(value, name=arguments.name, replace=arguments.replace))
    return 0


def run_get(arguments: argparse.Namespace) -> int:
    """``entrepot get``."""
    with connect(arguments) as store:
        value = store.get(find(store, arguments.object, arguments.timeout), timeout=arguments.timeout)
        if arguments.output is not None:
            _write(value, arguments.output)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            sys.stdout.buffer.write(value)
        else:
            print(value)
    return 0


def run_rm(arguments: argparse.Namespace) -> int:
    """``entrepot rm``."""
    missing = []
    with connect(arguments) as store:
        for text in arguments.objects:
            try:
                gone = store.delete(find(store, text))
            except ObjectNotFound:
                gone = False
            if not gone:
                missing.append(text)
    if missing:
        raise ObjectNotFound(f"not found, so not deleted: {', '.join(missing)}")
    return 0


def _bytes(one: ObjectInfo) -> int:
    return one.nbytes if one.collection is None else int(one.collection["nbytes"])


def _type(one: ObjectInfo) -> str:
    if one.collection is not None:
        return f"collection of {one.collection['members']} {one.collection['type']}".rstrip()
    if one.member_of is not None:
        return f"{one.type}, {one.member_of['name']}[{one.member_of['index']}]"
    return one.type


def _read(name: str, kind: str) -> Any:
    if name == "-":
        if kind == "table":
            raise InvalidArgument("a table is read from a file, not from standard input: give a path")
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
    raise InvalidArgument(f"a table is read from .parquet, .arrow, .feather, .ipc or .csv, not from {path.suffix!r}")


def _write(value: Any, path: Path) -> None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        path.write_bytes(value)
        return
    if path.suffix not in (".parquet", ".arrow", ".csv"):
        raise InvalidArgument(
            f"a {type(value).__name__} is written as .parquet, .arrow or .csv, not as {path.suffix!r}"
        )
    import pyarrow

    table_ = value if isinstance(value, pyarrow.Table) else pyarrow.table(value)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table_, path)
    elif path.suffix == ".arrow":
        import pyarrow.feather

        pyarrow.feather.write_feather(table_, path, compression="uncompressed")
    else:
        import pyarrow.csv

        pyarrow.csv.write_csv(table_, path)
