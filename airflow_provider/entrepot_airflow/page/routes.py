"""The routes of the page: as HTML for people, and as JSON for programs. Whoever may read a DAG's XComs may see them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse, JSONResponse

from entrepot_airflow.compat.api_server import may_read_xcoms
from entrepot_airflow.page.contents import collect
from entrepot_airflow.page.html import render

NO_INDEX = "{MAP_INDEX}"  # what Airflow's page leaves in place of the index of a task that is not mapped
# Values must not be left in caches, and the page runs nothing, whatever its data say.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_Identifier = Annotated[str, Query(min_length=1, max_length=1000)]


def build() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="Entrepot", docs_url=None, redoc_url=None, openapi_url=None)
    access = [Depends(may_read_xcoms())]
    app.get("/xcoms", dependencies=access, response_class=HTMLResponse)(show)
    app.get("/xcoms.json", dependencies=access, response_class=JSONResponse)(show_json)
    return app


# Functions, not coroutines: they wait for the database and the store, so FastAPI runs them in threads.


def show(dag_id: _Identifier, run_id: _Identifier, task_id: _Identifier, map_index: str = NO_INDEX) -> HTMLResponse:
    """The page of a task instance."""
    return HTMLResponse(render(collect(dag_id, run_id, task_id, _index(map_index))), headers=_HEADERS)


def show_json(
    dag_id: _Identifier, run_id: _Identifier, task_id: _Identifier, map_index: str = NO_INDEX
) -> JSONResponse:
    """The same as JSON."""
    return JSONResponse(_plain(asdict(collect(dag_id, run_id, task_id, _index(map_index)))), headers=_HEADERS)


def _index(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
