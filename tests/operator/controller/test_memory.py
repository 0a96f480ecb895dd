"""Memory that an operator needs for 10,000 published objects, in addition to that of the Kubernetes client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from entrepot_operator.kubernetes.objects import resource_path

MIB = 1 << 20
OBJECTS = 10_000
BOUND = 30 * MIB

PROGRAM = """
import sys, threading
from datetime import datetime, timezone
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.kubernetes.official import Configuration
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.controller.cache.cluster_cache import ClusterCache
from entrepot_operator.controller.work_queue import WorkQueue
from entrepot_operator.controller.main import resident_bytes
import time

def connect():
    return Api(ClusterCredentials(Configuration(host=sys.argv[1])), patience=0)

cache = ClusterCache("stores", connect, WorkQueue(), lambda: datetime.now(timezone.utc))
before = resident_bytes()
informer = cache.informers["localobjects"]
informer.start()
while not informer.synced:
    assert informer.problem is None, informer.problem
    time.sleep(0.01)
print(len(cache.index), resident_bytes() - before)
"""


def test_ten_thousand_objects_fit(server: Any, make_object: Callable[..., Any]) -> None:
    for place in range(OBJECTS):
        manifest = make_object(f"{place:040x}", f"node-{place % 20}", place)
        server.put(resource_path("localobjects", "stores", manifest["metadata"]["name"]), manifest)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    count, grown = map(int, done.stdout.split())
    assert count == OBJECTS
    assert grown < BOUND
