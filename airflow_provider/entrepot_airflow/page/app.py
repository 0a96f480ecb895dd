"""The application that Airflow's API server mounts under ``/entrepot``.

It is built at the first request, so that other processes, which load the plugin as well, import none of it.
"""

from __future__ import annotations

from typing import Any

URL_PREFIX = "/entrepot"


class PageApp:
    """ASGI application; builds the one that it stands for when it is first called.

    It is called in the event loop of one thread, and building does not wait.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        if self._app is None:
            from entrepot_airflow.page.routes import build

            self._app = build()
        await self._app(scope, receive, send)
