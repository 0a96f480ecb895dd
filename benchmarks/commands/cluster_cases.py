"""The cases of ``python -m benchmarks cluster``: nodes, their objects, and pods that read these. Deterministic."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ZONE = "topology.kubernetes.io/zone"
ZONES = ("east", "west", "north")
SLOTS = 40  # pods per node
SMALL_CPU, LARGE_CPU = "50m", "500m"  # of 8 processors: more than SLOTS small pods, or 16 large ones
OBJECTS = 20  # per node


@dataclass
class FakeNode:
    """A node.

    Attributes:
        labels: in addition to its name.
        taints: as in its spec.
    """

    labels: dict[str, str]
    taints: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


@dataclass
class Pod:
    """A pod.

    Attributes:
        reads: IDs of objects.
        selector: its own node selector.
        cpu: its request.
    """

    name: str
    reads: list[str]
    selector: dict[str, str] = field(default_factory=dict[str, str])
    cpu: str = SMALL_CPU


@dataclass
class Case:
    """Nodes, objects and pods to place.

    Attributes:
        nodes: that pods may be placed on.
        sizes: bytes by object.
        places: nodes by object, as in the API.
        lost: nodes whose store is no longer heard from.
        pods: in order of creation.
    """

    name: str
    nodes: dict[str, FakeNode]
    sizes: dict[str, int]
    places: dict[str, list[str]]
    pods: list[Pod] = field(default_factory=list[Pod])
    lost: frozenset[str] = frozenset()

    def local(self, pod: Pod, node: str | None) -> int:
        """Bytes of a pod's inputs that are on a node."""
        if node is None or node in self.lost:
            return 0
        return sum(self.sizes[oid] for oid in pod.reads if node in self.places[oid])

    def holders(self) -> list[str]:
        """Nodes that have objects according to the API; some may be gone."""
        return sorted({node for nodes in self.places.values() for node in nodes})


def make_case(name: str, nodes: int, pods: int, seed: int) -> Case:
    """Create a case by name."""
    chance = random.Random(f"{name} {seed}")
    names = [f"bench-{place:02}" for place in range(nodes)]
    case = Case(name, {node_name: FakeNode({ZONE: ZONES[place % 3]}) for place, node_name in enumerate(names)}, {}, {})
    for node in names:
        for _ in range(OBJECTS):
            oid = chance.randbytes(20).hex()
            case.sizes[oid] = int(2 ** chance.uniform(20, 32))  # 1 MiB to 4 GiB
            case.places[oid] = [node]
    CASES[name](case, pods, chance)
    return case


def _of(case: Case, node: str) -> list[str]:
    return [oid for oid, nodes in case.places.items() if node in nodes]


def _homes(case: Case, pods: int, chance: random.Random) -> list[str]:
    """A node for each pod, with uneven weights, but never beyond a node's capacity."""
    room = dict.fromkeys(case.nodes, SLOTS - 4)
    weights = {name: chance.uniform(0.3, 1.7) for name in case.nodes}
    homes = []
    for _ in range(pods):
        free = [name for name in room if room[name] > 0]
        home = chance.choices(free, [weights[name] for name in free])[0]
        room[home] -= 1
        homes.append(home)
    return homes


def _one_node_each(case: Case, pods: int, chance: random.Random) -> None:
    for number, home in enumerate(_homes(case, pods, chance)):
        case.pods.append(Pod(f"p{number}", chance.sample(_of(case, home), chance.randint(1, 5))))


def _several_nodes(case: Case, pods: int, chance: random.Random) -> None:
    """Most inputs are on one node; a third of the objects are on a second one as well."""
    for oid, nodes in case.places.items():
        if chance.random() < 1 / 3:
            case.places[oid] = [*nodes, chance.choice([node for node in case.nodes if node not in nodes])]
    for number, home in enumerate(_homes(case, pods, chance)):
        reads = chance.sample(_of(case, home), chance.randint(2, 5))
        others = [oid for oid in case.sizes if home not in case.places[oid]]
        reads += chance.sample(others, chance.randint(0, 2))
        case.pods.append(Pod(f"p{number}", reads))


def _too_little_room(case: Case, pods: int, chance: random.Random) -> None:
    """All pods prefer the same fifth of the nodes."""
    selected = list(case.nodes)[: max(1, len(case.nodes) // 5)]
    for number in range(pods):
        case.pods.append(Pod(f"p{number}", chance.sample(_of(case, chance.choice(selected)), 2)))


def _full(case: Case, pods: int, chance: random.Random) -> None:
    """More pods than processors, so that some stay pending in any case."""
    for number, home in enumerate(_homes(case, pods, chance)):
        case.pods.append(Pod(f"p{number}", chance.sample(_of(case, home), 2), cpu=LARGE_CPU))


def _contradictions(case: Case, pods: int, chance: random.Random) -> None:
    """Pods with their own constraints, tainted nodes, lost stores, deleted nodes."""
    names = list(case.nodes)
    for name in names[::7]:
        case.nodes[name].taints = [{"key": "gpu", "effect": "NoSchedule"}]
    case.lost = frozenset(names[1::9])
    unknown_id = chance.randbytes(20).hex()
    case.sizes[unknown_id], case.places[unknown_id] = 1 << 32, ["bench-gone"]
    for number, home in enumerate(_homes(case, pods, chance)):
        pod = Pod(f"p{number}", chance.sample(_of(case, home), 2))
        if number % 3 == 0:
            pod.selector = {ZONE: chance.choice(ZONES)}
        if number % 5 == 0:
            pod.reads.append(unknown_id)
        case.pods.append(pod)


Maker = Callable[[Case, int, random.Random], None]
CASES: Mapping[str, Maker] = {
    "one node each": _one_node_each,
    "several nodes": _several_nodes,
    "too little room": _too_little_room,
    "more pods than room": _full,
    "contradictions": _contradictions,
}
