"""Runs ``entrepot gateway`` beside a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from entrepot._daemon import companions
from entrepot._daemon.companions import SUPERVISED
from entrepot.errors import InvalidArgument


def start_gateway(
    cluster: str, options: Sequence[str], address: str, log: Path, gateway_label: Callable[[], str]
) -> bool:
    """Start a detached gateway, which is started again when it dies, and wait until it serves the store.

    Returns:
        Whether it was started; False: the same one is running already.

    Args:
        cluster: URL of the cluster's directory.
        options: further options of ``entrepot gateway``.
        address: of the store.
        log: file to append its log to.
        gateway_label: returns the label of the store's present gateway; empty: it has none.

    Raises:
        InvalidArgument: the store has another gateway.
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
    """
    arguments = ["-m", "entrepot", "gateway", "--address", address, "--cluster", cluster, *options, SUPERVISED]
    if label := gateway_label():
        if any(words[1:] == arguments for words in _gateways(address).values()):
            return False
        raise InvalidArgument(
            f"--cluster {cluster}: the store at {address} has a gateway already, with other options "
            f"({label}): end it first"
        )
    companions.start_in_background(
        [sys.executable, *arguments], f"the gateway of {address}", log, lambda: gateway_label() != ""
    )
    return True


def end_gateways(address: str) -> list[int]:
    """Let the gateways of a store that run in the background leave the cluster, and wait until they have ended.

    Returns:
        Those that still run after 5 seconds: something keeps them from it, such as SIGSTOP.
    """
    running = {pid: words for pid, words in _gateways(address).items() if SUPERVISED in words}
    companions.terminate_supervised(running)
    return companions.wait_ended(running)


def _gateways(address: str) -> dict[int, list[str]]:
    return companions.processes(lambda words: words[1:4] == ["-m", "entrepot", "gateway"] and address in words)
