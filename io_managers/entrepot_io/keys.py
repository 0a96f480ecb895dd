"""Logical keys: the same output of the same task always gets the same key, hence the same object ID.

An ID is ``hash(scope, session, key)``. The scope distinguishes deployments and the session distinguishes runs, so a key
names an output *within* a run (or, for values that outlive runs, within the deployment). A retried task derives the
same key and writes the same ID. Keys are readable and unambiguous: the characters that separate their parts are
escaped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from entrepot.errors import InvalidArgument

# Length limits: alias of an object 255 bytes, session name 240, scope 160 (docs/formats/control-memory.md).
MAX_NAME_BYTES = 255
UNMAPPED = -1


def _escape(part: str, separators: str) -> str:
    escaped = part.replace("%", "%25")
    for separator in separators:
        escaped = escaped.replace(separator, f"%{ord(separator):02X}")
    return escaped


def join(parts: Sequence[str], separators: str = "/") -> str:
    """Join parts with ``/`` such that different parts never give the same text.

    >>> join(["a", "b/c"]), join(["a/b", "c"])
    ('a/b%2Fc', 'a%2Fb/c')

    Raises:
        InvalidArgument: there are no parts, or one is not a string.
    """
    if not parts:
        raise InvalidArgument("a key needs at least one part, but got none")
    for part in parts:
        if not isinstance(part, str):
            raise InvalidArgument(f"the parts of a key must be strings, but {part!r} is a {type(part).__name__}")
    return "/".join(_escape(part, separators) for part in parts)


def airflow_key(dag_id: str, task_id: str, map_index: int | None, xcom_key: str) -> str:
    """The key of an XCom within its DAG run.

    Args:
        dag_id: the DAG.
        task_id: the task, including its task groups.
        map_index: index of the mapped task instance; ``None`` or -1 for a task that is not mapped.
        xcom_key: the XCom's own key, such as ``return_value``.

    >>> airflow_key("etl", "load", -1, "return_value"), airflow_key("etl", "load", 3, "return_value")
    ('etl/load/return_value', 'etl/load[3]/return_value')
    """
    task = _escape(task_id, "/[")
    if map_index is not None and map_index != UNMAPPED:
        task += f"[{map_index}]"
    return f"{_escape(dag_id, '/[')}/{task}/{_escape(xcom_key, '/[')}"


def dagster_asset_key(path: Sequence[str], partition: str | None = None) -> str:
    """The key of an asset, or of one of its partitions; the same in every run.

    Args:
        path: the components of the asset key.
        partition: the partition key; ``None`` for an asset without partitions.

    >>> dagster_asset_key(["raw", "orders"]), dagster_asset_key(["orders"], "2026-01-01")
    ('asset:raw/orders', 'asset:orders@2026-01-01')
    """
    key = "asset:" + join(path, "/@")
    return key if partition is None else f"{key}@{partition}"


def dagster_output_key(identifier: Sequence[str]) -> str:
    """The key of an op's output within its run.

    Args:
        identifier: step key, output name and, for a dynamic output, the mapping key.

    >>> dagster_output_key(["load", "result"]), dagster_output_key(["load", "result", "part_1"])
    ('op:load/result', 'op:load/result/part_1')
    """
    return "op:" + join(identifier)


def kedro_key(name: str, version: str | None = None) -> str:
    """The key of a dataset within a run, or of one version of it.

    Args:
        name: the dataset's name in the catalog.
        version: the save version of a versioned dataset.

    >>> kedro_key("model_input"), kedro_key("model", "2026-01-01T00.00.00.000Z")
    ('dataset:model_input', 'dataset:model@2026-01-01T00.00.00.000Z')
    """
    key = "dataset:" + _escape(name, "@")
    return key if version is None else f"{key}@{version}"


def shorten(text: str, limit: int) -> str:
    """``text`` if it has at most ``limit`` bytes of UTF-8, else its start and a hash of the whole.

    Different texts stay different. Control characters are replaced, because the result is displayed.
    """
    clean = "".join(c if c.isprintable() else "?" for c in text)
    raw = clean.encode("utf-8", "replace")
    if clean == text and len(raw) <= limit:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    start = raw[: limit - len(digest) - 1].decode("utf-8", "ignore")
    return f"{start}~{digest}"


def object_name(key: str) -> str:
    """The alias of a key's object, shortened to the length that the store allows."""
    return shorten(key, MAX_NAME_BYTES)
