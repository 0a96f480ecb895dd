"""What a notebook shows, in a real kernel: stores, objects, collections, and what a cell put."""

from __future__ import annotations

import os
from typing import Any

import entrepot
import pyarrow as pa
import pytest
from entrepot._store.browsing import SHOWN
from entrepot.errors import ObjectNotFound

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def run_notebook(address: str, *cells: str) -> list[Any]:
    """Run cells in a kernel of their own; return the outputs of each one."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    environment = os.environ | {"ENTREPOT_ADDRESS": address}
    client = nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3")
    client.execute(env=environment)
    return [cell["outputs"] for cell in notebook["cells"]]


def html(outputs: list[Any]) -> str:
    """The only HTML of a cell."""
    (shown,) = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    return str(shown)


@pytest.mark.slow
def test_a_notebook(daemon: Any) -> None:
    outputs = run_notebook(
        daemon.address,
        "import entrepot, pyarrow as pa\nstore = entrepot.connect()\n%load_ext entrepot",
        "%%entrepot\ntable = pa.table({'n': range(500_000)})\noid = store.put(table, name='orders')",
        "%%entrepot store\npart = store.put(store.get(oid).slice(1000, 400_000), name='part')",
        "store",
        "store.browse()",
        "store.info(oid)",
        "parts = store.collection('parts')\nparts.put([1], index=0)\nparts.put([2], index=1)\nparts.seal(2)",
        "%%entrepot\n1 / 1",
    )
    assert "put 1 object: 3.8 MiB copied, 0 B shared" in html(outputs[1])
    assert "<td>orders</td><td>arrow.table</td>" in html(outputs[1])
    assert "put 1 object: 0 B copied, 3.8 MiB shared" in html(outputs[2])
    assert f"<td>{daemon.address}</td>" in html(outputs[3])
    assert "2 objects, 7.6 MiB, in the scope&#x27;s own session" in html(outputs[4])
    assert html(outputs[4]).index("orders") < html(outputs[4]).index("part")
    assert '<th scope="row">state</th><td>sealed</td>' in html(outputs[5])
    assert '<th scope="row">members</th><td>2 of type' in html(outputs[6])
    assert "put 0 objects" in html(outputs[7])


@pytest.mark.slow
def test_a_cell_that_fails_and_a_store_that_is_missing(daemon: Any) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match=r"needs the name of one open entrepot\.Store"):
        run_notebook(daemon.address, "%load_ext entrepot", "%%entrepot\n1")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match=r"limit is no entrepot\.Store, but int"):
        run_notebook(daemon.address, "limit = 3\n%load_ext entrepot", "%%entrepot limit\n1")


def test_names_are_text(daemon: Any) -> None:
    with entrepot.connect(daemon.address) as store:
        oid = store.put(pa.table({"x": [1]}), name=HOSTILE)
        for shown in (store.browse()._repr_html_(), store.info(oid)._repr_html_()):
            assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in shown
            assert "<script" not in shown
            assert "\x1b" not in shown + repr(store.browse())


def test_browse_is_a_sequence_of_the_largest_first(daemon: Any) -> None:
    with entrepot.connect(daemon.address) as store, store.session("run-1") as session:
        session.put_many([b"x" * size for size in range(SHOWN + 5)])
        session.put(b"y" * 5000, name="large")
        table = store.browse(session="run-1")
        assert len(table) == SHOWN + 6
        assert (table[0].names, len(table[1:3])) == (["large"], 2)
        assert table._repr_html_().count("<tr>") == SHOWN + 1
        assert repr(table).startswith(f"{SHOWN + 6} objects, ")
        assert f"of which the largest {SHOWN} are shown" in repr(table)
        assert len(session.browse("lar*")) == 1
        with pytest.raises(ObjectNotFound):
            store.browse(session="nobody's")


def test_a_closed_store_is_shown_as_text(daemon: Any) -> None:
    store = entrepot.connect(daemon.address)
    assert store._repr_html_() is not None
    store.close()
    assert store._repr_html_() is None
    assert repr(store).startswith("<entrepot.Store ")
