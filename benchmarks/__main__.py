"""``python -m benchmarks``: measures and reports; ``make bench`` runs it."""

from __future__ import annotations

import argparse
import signal
import sys

from benchmarks.commands.admission import add_admission
from benchmarks.commands.airflow_costs import add_airflow_costs
from benchmarks.commands.checkpoints import add_checkpoints
from benchmarks.commands.clients import add_clients
from benchmarks.commands.cluster import add_cluster
from benchmarks.commands.crowd import add_crowd
from benchmarks.commands.dataframes import add_dataframes
from benchmarks.commands.decoding import add_decoding
from benchmarks.commands.directory import add_directory
from benchmarks.commands.drops import add_drops
from benchmarks.commands.full import add_full
from benchmarks.commands.mount import add_mount
from benchmarks.commands.observers import add_observers
from benchmarks.commands.pipes import add_pipes
from benchmarks.commands.placement import add_placement
from benchmarks.commands.plasma_python import add_plasma_python
from benchmarks.commands.plasma_restart import add_plasma_restart
from benchmarks.commands.plasma_server import add_plasma_server
from benchmarks.commands.policy import add_policy
from benchmarks.commands.quick import add_quick
from benchmarks.commands.services import add_services
from benchmarks.commands.step_start import add_step_start
from benchmarks.commands.streams import add_streams
from benchmarks.commands.table_handoff import add_handoff
from benchmarks.commands.transport import add_transport
from benchmarks.commands.views import add_views
from benchmarks.commands.zero_copy import add_zero_copy


def _end(number: int, _: object) -> None:
    """Exit through all ``finally`` blocks, which stop the servers and workers."""
    sys.exit(128 + number)


def main() -> int:
    """Parse and run the command line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_full(commands)
    add_quick(commands)
    add_checkpoints(commands)
    add_placement(commands)
    add_admission(commands)
    add_airflow_costs(commands)
    add_clients(commands)
    add_crowd(commands)
    add_cluster(commands)
    add_observers(commands)
    add_views(commands)
    add_policy(commands)
    add_drops(commands)
    add_decoding(commands)
    add_zero_copy(commands)
    add_plasma_python(commands)
    add_plasma_server(commands)
    add_plasma_restart(commands)
    add_handoff(commands)
    add_step_start(commands)
    add_dataframes(commands)
    add_mount(commands)
    add_services(commands)
    add_streams(commands)
    add_pipes(commands)
    add_transport(commands)
    add_directory(commands)
    arguments = parser.parse_args()
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
