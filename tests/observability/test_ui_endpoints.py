"""What ``entrepot ui`` serves: memory, objects, previews, pins, events, streams, hosts; and what it does to objects."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import httpx
import numpy as np
import pyarrow as pa
import pytest

Wait = Callable[..., None]


class Hostile:
    """A value that is pickled; unpickling it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def listed(browser: httpx.Client, **parameters: Any) -> dict[str, Any]:
    """A page of the table."""
    answer = browser.get("/api/objects", params=parameters)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def wait_listed(browser: httpx.Client, session: entrepot.Store, count: int, wait_until: Wait) -> None:
    """Wait until the page shows so many objects of a session."""
    wait_until(
        lambda: listed(browser, search=session.session_name)["matched"] == count, f"{count} objects to be listed"
    )


def test_memory_adds_up_to_the_capacity(browser: httpx.Client, session: entrepot.Store, wait_until: Wait) -> None:
    held = session.get(session.put(np.zeros(500_000), name="held"))
    overview: dict[str, Any] = {}

    def pinned() -> bool:
        overview.update(browser.get("/api/overview").json())
        return bool(overview["status"]) and overview["memory"][0]["nbytes"] >= held.nbytes

    wait_until(pinned, "the pin to be seen")
    assert overview["state"] == "live"
    assert overview["memory"][0]["key"] == "pinned"
    assert sum(part["nbytes"] for part in overview["memory"]) == overview["status"]["capacity_bytes"]
    assert overview["store"]["instance"] == session.instance_id
    assert any(client["pins"] for client in overview["clients"])


def test_groups_count_each_object_once(browser: httpx.Client, session: entrepot.Store, wait_until: Wait) -> None:
    set_name = f"set of {session.session_name}"
    session.put(np.zeros(10_000), locality_set=session.locality_set(set_name))
    session.put(b"x" * 100)
    wait_listed(browser, session, 2, wait_until)
    for by in ("session", "locality_set", "type", "state"):
        overview = browser.get("/api/overview", params={"by": by}).json()
        assert sum(group["objects"] for group in overview["groups"]) == listed(browser)["total"]
    groups = {group["name"]: group for group in browser.get("/api/overview").json()["groups"]}
    assert groups[f"default: {session.session_name}"]["nbytes"] == 80_100
    groups = {
        group["name"]: group for group in browser.get("/api/overview", params={"by": "locality_set"}).json()["groups"]
    }
    assert groups[set_name]["objects"] == 1
    refused = browser.get("/api/overview", params={"by": "colour"})
    assert refused.status_code == 400
    assert "not by 'colour'" in refused.json()["error"]


def test_search_order_and_pages(browser: httpx.Client, session: entrepot.Store, wait_until: Wait) -> None:
    for number in range(7):
        session.put(b"x" * (number * 10), name=f"Part {number}")
    wait_listed(browser, session, 7, wait_until)
    search = session.session_name
    page = listed(browser, search=search, sort="names", descending=0, limit=3, offset=2)
    assert [row["names"] for row in page["rows"]] == ["Part 2", "Part 3", "Part 4"]
    assert page["matched"] == 7
    page = listed(browser, search=search, sort="nbytes", descending=1, limit=2)
    assert [row["nbytes"] for row in page["rows"]] == [60, 50]
    page = listed(browser, search=f"PART {search.upper()} 3")  # 3 may occur in an ID, too
    assert "Part 3" in [row["names"] for row in page["rows"]]
    assert listed(browser, search=f"{search} bytearray")["rows"] == []
    assert listed(browser, offset=10**9)["rows"] == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sort": "colour"}, "not by 'colour'"),
        ({"limit": "0"}, "1 to 1000 rows"),
        ({"limit": "1001"}, "1 to 1000 rows"),
        ({"offset": "-1"}, "whole number"),
        ({"offset": "9" * 40}, "whole number"),
        ({"search": "x" * 201}, "at most 200 characters"),
    ],
)
def test_bad_questions(browser: httpx.Client, parameters: dict[str, str], message: str) -> None:
    answer = browser.get("/api/objects", params=parameters)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def preview_of(browser: httpx.Client, oid: entrepot.ObjectID, **parameters: Any) -> dict[str, Any]:
    """The first rows of an object."""
    answer = browser.get(f"/api/objects/{oid}/preview", params=parameters)
    assert answer.status_code == 200, answer.text
    preview: dict[str, Any] = answer.json()
    return preview


def test_the_first_rows_of_an_arrow_table(browser: httpx.Client, session: entrepot.Store) -> None:
    table = pa.table({"n": range(1000), "text": ["<b>\x1b[31m"] * 1000, "gone": pa.nulls(1000)})
    preview = preview_of(browser, session.put(table), rows=3)
    assert preview["columns"] == [
        {"name": "n", "type": "int64"},
        {"name": "text", "type": "string"},
        {"name": "gone", "type": "null"},
    ]
    assert preview["rows"] == [[str(number), "<b>\x1b[31m", "null"] for number in range(3)]
    assert preview["note"] == "3 of 1000 rows"


def test_the_first_rows_of_other_types(browser: httpx.Client, session: entrepot.Store) -> None:
    import pandas as pd
    import polars as pl

    frame = preview_of(browser, session.put(pd.DataFrame({"a": [1, 2], "b": ["x", None]})))
    assert [column["name"] for column in frame["columns"]] == ["", "a", "b"]
    assert frame["rows"][0] == ["0", "1", "x"]
    polars_frame = preview_of(browser, session.put(pl.DataFrame({"a": [1.5, 2.5]})), rows=1)
    assert (polars_frame["rows"], polars_frame["note"]) == ([["1.5"]], "1 of 2 rows")
    array = preview_of(browser, session.put(np.arange(24).reshape(2, 3, 4)))
    assert array["text"] == "int64, shape 2×3×4"
    assert array["rows"][1][:2] == ["12", "13"]
    assert preview_of(browser, session.put(np.float32(2.5)))["kind"] in ("text", "array")
    assert preview_of(browser, session.put("é 😀".encode()))["text"] == "é 😀"
    assert preview_of(browser, session.put(b"\xff\x00"))["text"] == "ff 00"
    long = preview_of(browser, session.put(("é" * 5000).encode()))
    assert long["text"] == "é" * 256
    assert long["note"] == "the first 512 of 10000 bytes"
    assert preview_of(browser, session.put({"key": [1, 2]}))["rows"] == [["key", "[1, 2]"]]
    assert preview_of(browser, session.put([1, "two"]))["rows"] == [["1"], ["two"]]
    assert preview_of(browser, session.put(None))["text"] == "None"
    wide = preview_of(browser, session.put(pa.table({f"c{number}": [number] for number in range(150)})))
    assert len(wide["columns"]) == 100
    assert wide["note"] == "100 of 150 columns"


def test_nothing_is_unpickled(browser: httpx.Client, session: entrepot.Store, tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    hostile = Hostile(trace)
    pickle.loads(pickle.dumps(hostile))
    assert trace.exists()  # the control: unpickling leaves the trace
    trace.unlink()
    for value in (hostile, [hostile], {"a": hostile}, np.array([hostile], dtype=object)):
        preview = preview_of(browser, session.put(value))
        assert preview["kind"] == "none"
        assert preview["note"]
    assert not trace.exists()


def test_everything_about_an_object(browser: httpx.Client, session: entrepot.Store) -> None:
    oid = session.put(np.zeros(100_000), name="<script>\x1b[2J")
    info = browser.get(f"/api/objects/{oid}").json()
    assert info["names"] == ["<script>\x1b[2J"]
    assert info["type"] == "numpy.ndarray"
    assert info["own_bytes"] == 800_000
    assert info["blob_count"] == 1
    for path, code in (("0" * 40, 404), ("xyz", 400), (f"{'0' * 40}/preview", 404)):
        assert browser.get(f"/api/objects/{path}").status_code == code
    assert browser.get(f"/api/objects/{oid}/preview", params={"rows": 501}).status_code == 400
    assert browser.get("/nothing").status_code == 404


def test_who_pins_and_what_is_shared(browser: httpx.Client, session: entrepot.Store, wait_until: Wait) -> None:
    first = session.put(np.arange(200_000), name="first")
    held = session.get(first)
    second = session.put(held[:100_000], name="second")
    wait_listed(browser, session, 2, wait_until)

    def is_pinned() -> bool:
        return any(pin["id"] == str(first) for pin in browser.get("/api/pins").json()["pins"])

    wait_until(is_pinned, "the pin to be seen")
    largest = {each["id"]: each for each in browser.get("/api/largest").json()["objects"]}
    assert largest[str(second)]["parents"] == [str(first)]
    assert largest[str(second)]["referenced_bytes"] == 800_000
    assert largest[str(first)]["shared_bytes"] > 0
    del held
    wait_until(lambda: not is_pinned(), "the pin to be gone")


def act(browser: httpx.Client, action: str, oids: list[entrepot.ObjectID], **options: Any) -> httpx.Response:
    """Do something to objects."""
    return browser.post(f"/api/actions/{action}", json={"ids": [str(oid) for oid in oids], **options})


def test_pin_unpin_and_delete(browser: httpx.Client, session: entrepot.Store) -> None:
    oids = [session.put(np.zeros(10_000)), session.put(np.ones(10_000))]
    absent = entrepot.ObjectID.random()
    result = act(browser, "pin", [*oids, absent]).json()
    assert result["done"] == [str(oid) for oid in oids]
    assert f"no object {absent} is sealed" in result["failed"][str(absent)]
    assert [session.info(oid).pins for oid in oids] == [1, 1]
    assert act(browser, "pin", oids[:1]).json()["done"]  # once more: still one pin, and still released by one unpin
    assert browser.get("/api/pins").json()["pinned_here"] == sorted(map(str, oids))
    assert act(browser, "unpin", oids).json()["done"] == [str(oid) for oid in oids]
    assert [session.info(oid).pins for oid in oids] == [0, 0]
    result = act(browser, "delete", [*oids, absent]).json()
    assert result["done"] == [str(oid) for oid in oids]
    assert list(result["failed"]) == [str(absent)]
    assert not any(session.exists(oid) for oid in oids)


def test_save(browser: httpx.Client, session: entrepot.Store, tmp_path: Path) -> None:
    oid = session.put(pa.table({"a": [1, 2, 3]}), name="table")
    result = act(browser, "save", [oid], url=str(tmp_path / "saved")).json()
    assert result["done"] == [str(oid)]
    session.delete(oid)
    assert session.load(str(tmp_path / "saved")) == [oid]
    for options in ({}, {"url": " "}, {"url": str(tmp_path / "x"), "format": "pickle"}):
        assert act(browser, "save", [oid], **options).status_code == 400


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("delete", b"["),
        ("delete", b"[]"),
        ("delete", b"\xff"),
        ("delete", b"{}"),
        ("delete", b'{"ids": []}'),
        ("delete", b'{"ids": [1]}'),
        ("delete", b'{"ids": "' + b"0" * 40 + b'"}'),
        ("delete", b'{"ids": ["xyz"]}'),
        ("delete", json.dumps({"ids": ["0" * 40] * 1001}).encode()),
        ("explode", json.dumps({"ids": ["0" * 40]}).encode()),
    ],
)
def test_bad_actions(browser: httpx.Client, action: str, body: bytes) -> None:
    answer = browser.post(f"/api/actions/{action}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_without_a_cluster_there_are_no_hosts(browser: httpx.Client) -> None:
    assert browser.get("/api/cluster").json() == {"configured": False, "hosts": [], "error": ""}


def test_hosts_of_a_cluster(module_daemon: Any, new_page: Any, tmp_path: Path) -> None:
    from entrepot_cluster.directory.opening import open_directory

    url = f"embedded://{tmp_path}/team"
    with open_directory(url) as directory:
        directory.register("a" * 32, "<b>host", ["10.0.0.1:7000"], protocol=1, started_at=0.0, lease_seconds=600.0)
        with new_page(module_daemon.address, "--cluster", url) as server, server.logged_in() as client:
            (host,) = client.get("/api/cluster").json()["hosts"]
    assert (host["host"], host["id"], host["addresses"]) == ("<b>host", "a" * 32, ["10.0.0.1:7000"])
    with new_page(module_daemon.address, "--cluster", "nonsense://x") as server, server.logged_in() as client:
        hosts = client.get("/api/cluster").json()
        assert hosts["configured"]
        assert "nonsense" in hosts["error"]


def test_streams_are_listed(browser: httpx.Client, session: entrepot.Store, wait_until: Wait) -> None:
    with session.stream("numbers").writer() as writer:
        writer.put(1)
        wait_until(
            lambda: any(each["name"] == "numbers" for each in browser.get("/api/overview").json()["streams"]),
            "the stream to be seen",
        )
