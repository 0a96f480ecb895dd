"""Ray's end of ``python -m benchmarks transport --beside ray``: a program for an environment with Ray.

``transport_ray.py ADDRESS HEAD`` is a driver on the host ADDRESS of a cluster of two nodes, whose head has the resource
``head``. It reads lines of JSON ``[objects, bytes of each]``, and answers by the seconds that ``ray.get`` took for as
many arrays that were put on the head's host.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


def fetch_all(address: str, head: str) -> None:
    """Fetch what the input says, as often as it says so."""
    import numpy as np
    import ray

    ray.init(address=head, _node_ip_address=address, log_to_driver=False, logging_level=logging.ERROR)

    class Source:
        def put(self, count: int, nbytes: int) -> list[Any]:
            self.refs = [ray.put(np.full(nbytes, number % 251, dtype=np.uint8)) for number in range(count)]
            return self.refs

    remote: Any = ray.remote(num_cpus=0, resources={"head": 0.1})(Source)
    source = remote.remote()
    print("ready", flush=True)
    for line in sys.stdin:
        count, nbytes = json.loads(line)
        refs = ray.get(source.put.remote(count, nbytes))
        begin = time.perf_counter()
        values = ray.get(refs)
        seconds = time.perf_counter() - begin
        total = sum(value.nbytes for value in values)
        del values, refs
        print(json.dumps({"seconds": seconds, "nbytes": total}), flush=True)


if __name__ == "__main__":
    fetch_all(sys.argv[1], sys.argv[2])
