"""Leader election by Lease among several operators, whatever their clocks say."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.controller.leader_election import ElectionConfig, LeaderElector
from entrepot_operator.kubernetes.errors import ClusterUnavailable
from entrepot_operator.kubernetes.objects import lease_path

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
        config = ElectionConfig("stores", name, lease_seconds=15)
        self.elector = LeaderElector(config, server.api(0), lambda _: None, self.clock)

    def step(self) -> bool:
        self.elector.try_acquire()
        return self.elector.leading()


@pytest.fixture
def replicas(server: Any) -> tuple[Replica, Replica]:
    """Two replicas whose clocks are unrelated to each other and to the server's."""
    return Replica(server, "one", 1000), Replica(server, "two", 77_000)


def pass_time(seconds: float, *replicas: Replica) -> None:
    for replica in replicas:
        replica.clock.now += seconds


def test_the_first_leads_and_the_other_waits(server: Any, replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    assert first.step()
    for _ in range(20):
        pass_time(2, first, second)
        assert first.step()
        assert not second.step()
    spec = server.resources[PATH]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 0)


def test_leadership_counts_from_before_the_request(server: Any, replicas: tuple[Replica, Replica]) -> None:
    """The others count from when they see the renewal, which may be as soon as the server has it."""
    first, _ = replicas
    begin = first.clock.now

    def be_slow(method: str, *_: Any) -> None:
        if method != "GET":
            pass_time(4, first)

    server.refuse = be_slow
    assert first.step()
    first.clock.now = begin + 9.9
    assert first.elector.leading()
    first.clock.now = begin + 10.1  # two thirds of the lease's duration
    assert not first.elector.leading()


def test_the_other_takes_over_when_the_lease_is_over_and_not_before(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    assert first.step()
    assert not second.step()
    pass_time(10.1, first, second)
    assert not first.elector.leading()  # it steps down by its own clock, without waiting to hear of another leader
    pass_time(4.8, first, second)
    assert not second.step()
    pass_time(0.2, first, second)
    assert second.step()
    assert not first.step()


def test_a_clock_that_is_wrong_takes_nothing_from_the_leader(server: Any, replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    assert first.step()
    server.resources[PATH]["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert not second.step()


def test_of_two_that_try_at_the_same_moment_one_wins(server: Any, replicas: tuple[Replica, Replica]) -> None:
    first, _ = replicas

    def meanwhile(method: str, *_: Any) -> None:
        if method == "POST":
            server.put(PATH, {"metadata": {"name": "entrepot-operator"}, "spec": {"holderIdentity": "two"}})

    server.refuse = meanwhile
    assert not first.step()
    assert not first.step()


def test_a_renewal_that_meets_another_write_is_lost(server: Any, replicas: tuple[Replica, Replica]) -> None:
    first, _ = replicas
    assert first.step()

    def meanwhile(method: str, *_: Any) -> None:
        if method == "PUT":
            server.resources[PATH]["metadata"]["resourceVersion"] = "another"

    server.refuse = meanwhile
    pass_time(11, first)
    assert not first.step()


def test_a_server_that_is_away_costs_the_leadership_in_time(server: Any, replicas: tuple[Replica, Replica]) -> None:
    first, _ = replicas
    assert first.step()
    server.refuse = lambda *_: (503, "overloaded")
    pass_time(5, first)
    with pytest.raises(ClusterUnavailable):
        first.elector.try_acquire()
    assert first.elector.leading()
    pass_time(5.1, first)
    assert not first.elector.leading()


def test_a_clean_end_gives_the_lease_back(server: Any, wait_until: Any) -> None:
    leadership: list[bool] = []
    elector = LeaderElector(ElectionConfig("stores", "one", lease_seconds=15), server.api(0), leadership.append)
    elector.start()
    wait_until(elector.leading, "the only replica to lead")
    elector.stop()
    assert leadership == [True, False]
    assert not elector.leading()
    assert server.resources[PATH]["spec"]["holderIdentity"] == ""
    second = Replica(server, "two", 0)
    assert second.step()


@pytest.mark.parametrize("seconds", [0, 1.5, 4000])
def test_a_lease_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="must last between 2 and 3600 seconds"):
        ElectionConfig("stores", "one", lease_seconds=seconds)
