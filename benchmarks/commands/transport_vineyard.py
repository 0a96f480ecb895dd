"""Vineyard's ends of ``python -m benchmarks transport --beside vineyard``: a program for an environment with it.

``transport_vineyard.py put SOCKET`` reads lines of JSON ``[objects, bytes of each]``, puts as many arrays, and answers
by their IDs. ``transport_vineyard.py fetch SOCKET``, on the other host, reads such lists of IDs, and answers by the
seconds that getting them took, and their bytes.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def put_all(vineyard: Any, client: Any) -> None:
    """Put what the input says."""
    import numpy as np

    for line in sys.stdin:
        count, nbytes = json.loads(line)
        ids = [client.put(np.full(nbytes, number % 251, dtype=np.uint8)) for number in range(count)]
        for oid in ids:
            client.persist(oid)  # tells the other hosts
        print(json.dumps([int(oid) for oid in ids]), flush=True)


def fetch_all(vineyard: Any, client: Any) -> None:
    """Fetch what the input says."""
    for line in sys.stdin:
        ids = [vineyard.ObjectID(number) for number in json.loads(line)]
        begin = time.perf_counter()
        nbytes = sum(client.get(oid, fetch=True).nbytes for oid in ids)
        print(json.dumps({"seconds": time.perf_counter() - begin, "nbytes": nbytes}), flush=True)


if __name__ == "__main__":
    module = importlib.import_module("vineyard")
    connected = module.connect(sys.argv[2])
    print("ready", flush=True)
    (put_all if sys.argv[1] == "put" else fetch_all)(module, connected)
