"""Programs that print credentials (``exec`` in a kubeconfig), as the clouds use them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from entrepot.errors import InvalidArgument

PLUGIN_SECONDS = 60.0


def run_plugin(plugin: dict[str, Any], server: str) -> str:
    """Run the program, and return the token that it prints.

    Args:
        plugin: the mapping under ``exec``: ``command``, ``args``, ``env``, ``apiVersion``.
        server: for messages.

    Raises:
        InvalidArgument: it cannot be run, failed, or printed no token.
    """
    command = [str(plugin.get("command") or ""), *(str(one) for one in plugin.get("args") or [])]
    version = plugin.get("apiVersion") or "client.authentication.k8s.io/v1"
    environment = dict(os.environ)
    for pair in plugin.get("env") or []:
        environment[str(pair["name"])] = str(pair["value"])
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(
        {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    )
    begin = f"the kubeconfig's program for credentials of {server}, {command[0]!r},"
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PLUGIN_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidArgument(f"{begin} cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise InvalidArgument(f"{begin} ended with exit code {done.returncode}: {said}")
    try:
        token = json.loads(done.stdout)["status"]["token"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not token:
        raise InvalidArgument(f"{begin} printed no token; programs that give client certificates are not supported")
    return token
