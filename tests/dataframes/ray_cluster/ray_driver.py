"""A driver of a Ray cluster: runs the functions that it is sent, in a process of its own, because of Ray's threads.

ray_driver.py CONNECTION {ADDRESS | FOLDER}: joins the cluster at an address, or starts one of three CPUs.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle
import ray

CPUS = 3


def connect_ray(where: str) -> Any:
    """Join or start a cluster."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "_node_ip_address": "127.0.0.1"}
    if Path(where).is_dir():
        return ray.init(num_cpus=CPUS, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=where, **quiet)
    return ray.init(address=where, **quiet)


def main() -> None:
    connection: Connection[bytes, bytes] = Connection(int(sys.argv[1]))
    context = connect_ray(sys.argv[2])
    connection.send(cloudpickle.dumps((True, context.address_info["address"])))
    while True:
        try:
            function, arguments = cloudpickle.loads(connection.recv())
        except EOFError:
            break
        try:
            answer = True, function(*arguments)
        except Exception as error:
            answer = False, error
        connection.send(cloudpickle.dumps(answer))
    ray.shutdown()


if __name__ == "__main__":
    main()
