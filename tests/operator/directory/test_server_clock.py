"""The API server's clock, from dates in whole seconds."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from entrepot_operator.directory.server_clock import ServerClock, timestamp
from entrepot_operator.kubernetes.objects import parse_time
from hypothesis import given
from hypothesis import strategies as st


class Machine:
    """This machine's clock, and the server's ahead of it."""

    def __init__(self, ahead: float) -> None:
        self.at = 100.0
        self.ahead = ahead

    def respond(self, clock: ServerClock, way_there: float, way_back: float) -> None:
        sent = self.at
        date = datetime.fromtimestamp(int(self.at + way_there + self.ahead), timezone.utc)
        self.at += way_there + way_back
        clock.note(date, sent, self.at)


SECONDS = st.floats(0.0, 3.0)


@given(st.floats(1e9, 2e9), st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=20))
def test_it_is_right_within_its_uncertainty(ahead: float, responses: list[tuple[float, float, float]]) -> None:
    machine = Machine(ahead)
    clock = ServerClock(lambda: machine.at)
    before = float("inf")
    for pause, way_there, way_back in responses:
        machine.at += pause
        machine.respond(clock, way_there, way_back)
        assert abs(clock.now() - (machine.at + ahead)) <= clock.uncertainty() + 1e-5
        assert clock.uncertainty() <= before + 1e-5
        before = clock.uncertainty()


def test_responses_narrow_it_down_and_a_clock_that_was_set_starts_anew() -> None:
    machine = Machine(1_000_000_000.3)
    clock = ServerClock(lambda: machine.at)
    assert abs(clock.now() - time.time()) < 60.0  # before any response
    for _ in range(40):
        machine.at += 0.03
        machine.respond(clock, 0.001, 0.001)
    assert clock.uncertainty() < 0.02
    machine.ahead -= 5000.0
    machine.respond(clock, 0.001, 0.001)
    assert abs(clock.now() - (machine.at + machine.ahead)) < 1.1


def test_timestamps_are_those_of_kubernetes() -> None:
    text = timestamp(1_800_000_000.25)
    assert text == "2027-01-15T08:00:00.250000Z"
    parsed = parse_time(text)
    assert parsed is not None
    assert parsed.timestamp() == 1_800_000_000.25
