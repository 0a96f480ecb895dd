"""The subcommands ``entrepot gateway`` and ``entrepot cluster``; and ``entrepot drain``, from its own module."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

from entrepot_cluster import drain_command
from entrepot_cluster.patient_output import patient_output

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

    from entrepot_cluster.directory.directory import Directory
    from entrepot_cluster.gateway.settings import GatewaySettings
    from entrepot_cluster.transport.security import TransportSecurity

CANNOT_GO_ON = 4  # exit code of a gateway that must not be started again
RESTART_SECONDS = 1.0
SHORT_SECONDS = 10.0
MAX_SHORT_LIVES = 5
GARBAGE_THRESHOLD = 20_000  # objects that were made and not freed since the last collection; Python's default: 700


def add_subcommands(subparsers: SubParsers) -> None:
    """Add this module's subcommands."""
    gateway = subparsers.add_parser(
        "gateway",
        help="make the store part of a cluster",
        epilog="Runs until terminated, then leaves the cluster. It is a client of the store: nothing is lost with it.",
    )
    gateway.add_argument("--address", help="address of the store, unix:///path (default: ENTREPOT_ADDRESS)")
    gateway.add_argument(
        "--cluster", metavar="URL", help="the cluster's directory, etcd://HOST:2379/NAME (default: ENTREPOT_CLUSTER)"
    )
    gateway.add_argument(
        "--listen", metavar="HOST:PORT", help="where to listen for other gateways (default: 127.0.0.1, any free port)"
    )
    gateway.add_argument(
        "--advertise", metavar="HOST:PORT", help="where other gateways reach this one (default: where it listens)"
    )
    gateway.add_argument("--host", metavar="NAME", help="name of this host in the cluster (default: its host name)")
    gateway.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate of this gateway (PEM)")
    gateway.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    gateway.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificates that other gateways' must come from")
    gateway.add_argument("--token-file", type=Path, metavar="FILE", help="holds a secret that all gateways share")
    gateway.add_argument(
        "--insecure", action="store_true", help="allow other addresses than loopback without TLS and token"
    )
    gateway.add_argument(
        "--lease-seconds", type=float, metavar="N", help="without a sign of life for so long it is lost (default: 10)"
    )
    gateway.add_argument(
        "--compression",
        choices=("auto", "off"),
        default="auto",
        help="auto: send objects compressed where that makes them arrive earlier; off: never (default: auto)",
    )
    gateway.add_argument(
        "--transport",
        choices=("tcp", "ucx"),
        default="tcp",
        help="ucx: between gateways that both have this option, objects travel over UCX, unencrypted (default: tcp)",
    )
    gateway.add_argument("--keep-running", action="store_true", help="start it again if it is killed or fails")
    gateway.set_defaults(run=run_gateway)

    cluster = subparsers.add_parser("cluster", help="list the stores of a cluster")
    cluster.add_argument("--cluster", metavar="URL", help="its directory (default: ENTREPOT_CLUSTER)")
    cluster.add_argument("--lost", action="store_true", help="list the published objects of stores that are lost")
    cluster.add_argument("--json", action="store_true", help="print JSON")
    cluster.set_defaults(run=run_cluster)
    drain_command.add_subcommand(subparsers)


def run_gateway(arguments: argparse.Namespace) -> int:
    """``entrepot gateway``."""
    if arguments.keep_running:
        with patient_output():
            return _keep_running()
    settings = _settings(arguments)
    with patient_output() as drain:
        return _run_gateway(settings, drain)


def _run_gateway(settings: GatewaySettings, drain: Callable[[], None]) -> int:
    from entrepot.errors import EntrepotError, ObjectExists, VersionMismatch

    from entrepot_cluster.directory.errors import ClusterMismatch, InstanceSuperseded
    from entrepot_cluster.gateway.gateway import Gateway
    from entrepot_cluster.gateway.timely_exit import TimelyExit

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("entrepot").setLevel(logging.WARNING)
    try:
        gateway = Gateway(settings)
        timely_exit = TimelyExit(gateway.leave, drain)

        def stop(*_: object) -> None:
            gateway.stop()
            timely_exit.begin()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        print(f"gateway at {gateway.address}", flush=True)
        # What has been imported stays; thousands of small objects at a time would have it searched again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 10, 10)
        try:
            gateway.run()
        finally:
            timely_exit.begin()
    except EntrepotError as error:
        print(f"entrepot: {error}", file=sys.stderr)
        final = (ClusterMismatch, InstanceSuperseded, InvalidArgument, ObjectExists, VersionMismatch)
        return CANNOT_GO_ON if isinstance(error, final) else 1
    return 0


def run_cluster(arguments: argparse.Namespace) -> int:
    """``entrepot cluster``."""
    import json

    from entrepot_cluster.directory.opening import open_directory

    with open_directory(_directory(arguments)) as directory:
        if arguments.lost:
            return _print_lost(directory, as_json=arguments.json)
        instances, name = directory.instances(), directory.name
    if arguments.json:
        print(json.dumps([_to_json(instance) for instance in instances]))
        return 0
    if not instances:
        print(
            f"no store has joined the cluster {name!r} yet: start one with entrepot start --cluster URL",
            file=sys.stderr,
        )
    for instance in instances:
        state = "live" if instance.live else f"lost since {_utc(instance.lost_since or 0.0)}"
        print(f"{instance.host}  {instance.id}  {', '.join(instance.addresses)}  {state}")
    return 0


def _print_lost(directory: Directory, *, as_json: bool) -> int:
    import json

    from entrepot_cluster.lost_objects import lost_objects

    if as_json:
        fields = [
            {
                "id": item.oid.hex(),
                "host": item.instance.host,
                "instance": item.instance.id,
                "lost_since": item.instance.lost_since,
                "nbytes": item.nbytes,
                "copies": list(item.copies),
            }
            for item in lost_objects(directory)
        ]
        print(json.dumps(fields))
        return 0
    nothing = True
    for item in lost_objects(directory):
        nothing = False
        state = f"copies on {', '.join(item.copies)}" if item.copies else "lost"
        since = _utc(item.instance.lost_since or 0.0)
        print(f"{item.oid.hex()}  {item.nbytes} B  was on {item.instance.host}, lost since {since}  {state}")
    if nothing:
        print(f"no store of the cluster {directory.name!r} is lost that had published objects", file=sys.stderr)
    return 0


def _to_json(instance: Any) -> dict[str, Any]:
    return {
        "host": instance.host,
        "instance": instance.id,
        "addresses": list(instance.addresses),
        "live": instance.live,
        "lost_since": instance.lost_since,
    }


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _directory(arguments: argparse.Namespace) -> str:
    url: str = arguments.cluster or os.environ.get("ENTREPOT_CLUSTER", "")
    if not url:
        raise InvalidArgument("no cluster is given: pass --cluster etcd://HOST:2379/NAME, or set ENTREPOT_CLUSTER")
    return url


def _settings(arguments: argparse.Namespace) -> GatewaySettings:
    from entrepot_cluster.gateway import settings

    return settings.GatewaySettings(
        directory=_directory(arguments),
        address=arguments.address,
        listen=settings.DEFAULT_LISTEN if arguments.listen is None else arguments.listen,
        advertise=() if arguments.advertise is None else (arguments.advertise,),
        host=arguments.host,
        security=_security(arguments),
        compression=arguments.compression,
        transport=arguments.transport,
        lease_seconds=settings.LEASE_SECONDS if arguments.lease_seconds is None else arguments.lease_seconds,
    )


def _security(arguments: argparse.Namespace) -> TransportSecurity:
    from entrepot_cluster.transport.security import TlsFiles, TransportSecurity

    given = (arguments.tls_cert, arguments.tls_key, arguments.tls_ca)
    if any(given) and not all(given):
        raise InvalidArgument("TLS needs all of --tls-cert, --tls-key and --tls-ca")
    tls = TlsFiles(*given) if all(given) else None
    return TransportSecurity(tls=tls, token_file=arguments.token_file, insecure=arguments.insecure)


def _keep_running() -> int:
    """Run the same command without ``--keep-running``, and again whenever it ends by itself.

    A gateway that says that it cannot go on, or that has ended within ten seconds five times in a row, is not started
    again. It ends with this process: a gateway whose parent is gone gets SIGTERM from the kernel.
    """
    command = [sys.executable, "-m", "entrepot", *(word for word in sys.argv[1:] if word != "--keep-running")]
    stopping = False
    child: subprocess.Popen[bytes] | None = None

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if child is not None:
            child.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    short_lives = 0
    while True:
        began = time.monotonic()
        child = subprocess.Popen(command, preexec_fn=_end_with_parent)
        if stopping:  # since the signal found no child, or one that had ended
            child.terminate()
        code = child.wait()
        short_lives = short_lives + 1 if time.monotonic() - began < SHORT_SECONDS else 0
        if stopping or code in (0, CANNOT_GO_ON) or short_lives == MAX_SHORT_LIVES:
            return code
        print(f"entrepot: the gateway ended with {code}, and is started again", file=sys.stderr, flush=True)
        time.sleep(RESTART_SECONDS)
        if stopping:
            return 0


def _end_with_parent() -> None:
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
