"""Leader election by Lease among several operators, whatever their clocks say."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_io.cluster.errors import ClusterUnavailable
from entrepot_io.cluster.objects import lease_path
from entrepot_operator.controller.leading import Election, Elector

PATH = lease_path("stores", "entrepot-operator")


class Clock:
    """A replica's monotonic clock, in seconds."""

    def __init__(self, start: float) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now


class Replica:
    def __init__(self, server: Any, name: str, start: float) -> None:
        self.clock = Clock(start)
        election = Election("stores", name, seconds=15)
        self.elector = Elector(election, server.api(0), lambda _: None, self.clock)

    def step(self) -> bool:
        self.elector.step()
        return self.elector.leading()


@pytest.fixture
def replicas(server: Any) -> tuple[Replica, Replica]:
    """Two replicas whose clocks are unrelated to each other and to the server's."""
    return Replica(server, "one", 1000), Replica(server, "two", 77_000)


def pass_time(seconds: float, *replicas: Replica) -> None:
    for one in replicas:
        one.clock.now += seconds


def test_the_first_leads_and_the_other_waits(server: Any, replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    assert one.step()
    for _ in range(20):
        pass_time(2, one, two)
        assert one.step()
        assert not two.step()
    spec = server.resources[PATH]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 0)


def test_the_other_takes_over_when_the_lease_is_over_and_not_before(replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    assert one.step()
    assert not two.step()
    pass_time(10.1, one, two)
    assert not one.elector.leading()  # it steps down by its own clock, without waiting to hear of another leader
    pass_time(4.8, one, two)
    assert not two.step()
    pass_time(0.2, one, two)
    assert two.step()
    assert not one.step()


def test_a_clock_that_is_wrong_takes_nothing_from_the_leader(server: Any, replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    assert one.step()
    server.resources[PATH]["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert not two.step()


def test_of_two_that_try_at_the_same_moment_one_wins(server: Any, replicas: tuple[Replica, Replica]) -> None:
    one, _ = replicas

    def meanwhile(method: str, *_: Any) -> None:
        if method == "POST":
            server.put(PATH, {"metadata": {"name": "entrepot-operator"}, "spec": {"holderIdentity": "two"}})

    server.refuse = meanwhile
    assert not one.step()
    assert not one.step()


def test_a_renewal_that_meets_another_write_is_lost(server: Any, replicas: tuple[Replica, Replica]) -> None:
    one, _ = replicas
    assert one.step()

    def meanwhile(method: str, *_: Any) -> None:
        if method == "PUT":
            server.resources[PATH]["metadata"]["resourceVersion"] = "another"

    server.refuse = meanwhile
    pass_time(11, one)
    assert not one.step()


def test_a_server_that_is_away_costs_the_leadership_in_time(server: Any, replicas: tuple[Replica, Replica]) -> None:
    one, _ = replicas
    assert one.step()
    server.refuse = lambda *_: (503, "overloaded")
    pass_time(5, one)
    with pytest.raises(ClusterUnavailable):
        one.elector.step()
    assert one.elector.leading()
    pass_time(5.1, one)
    assert not one.elector.leading()


def test_a_clean_end_gives_the_lease_back(server: Any, wait_until: Any) -> None:
    told: list[bool] = []
    elector = Elector(Election("stores", "one", seconds=15), server.api(0), told.append)
    elector.start()
    wait_until(elector.leading, "the only replica to lead")
    elector.stop()
    assert told == [True, False]
    assert not elector.leading()
    assert server.resources[PATH]["spec"]["holderIdentity"] == ""
    two = Replica(server, "two", 0)
    assert two.step()


@pytest.mark.parametrize("seconds", [0, 1.5, 4000])
def test_a_lease_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="lasts from 2 to 3600 seconds"):
        Election("stores", "one", seconds=seconds)
