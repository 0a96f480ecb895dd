"""A session of Plasma's own client with Plasma's own server, replayed: the front end gives the same answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plasma_wire import HEADER, NAMES, WireClient, decode, receive_piece

pytestmark = pytest.mark.timeout(120)

CAPACITY_BYTES = 16 << 20  # as that of the recorded server
NOT_THERE = 2**64 - 1


def recorded() -> Iterator[tuple[str, str, bytes]]:
    """The lines of the recorded session: who speaks, the table, the message."""
    lines: list[str] = []
    for line in Path(__file__).with_name("recorded_session.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("  "):
            lines[-1] += line
        elif not line.startswith("#"):
            lines.append(line)
    for line in lines:
        speaker, name, digits = line.split(maxsplit=2)
        yield speaker, name, bytes.fromhex(digits)


def is_there(place: dict[str, Any]) -> bool:
    return bool(place["data_size"] != NOT_THERE)


def essential(name: str, reply: dict[str, Any]) -> Any:
    """A reply without what two servers may answer differently.

    - Segments: their numbers and sizes, and offsets in them. That there are any is kept, and so is that the metadata
      follows the data.
    - Of an object that is not there, and of a failed create, everything but that.
    - Lists: their order, and points in time.
    - The debug string's text.
    """

    def of_place(place: dict[str, Any]) -> Any:
        if not is_there(place):
            return "not there"
        assert place["metadata_offset"] == place["data_offset"] + place["data_size"]
        return place["data_size"], place["metadata_size"], place["device"]

    if name == "CreateReply":
        if reply["error"] != "Ok":
            return reply["object_id"], reply["error"]
        assert reply["segment"] == reply["place"]["segment"]
        return reply["object_id"], "Ok", of_place(reply["place"]), reply["segment_bytes"] > 0
    if name == "GetReply":
        places = reply["places"]
        used = {place["segment"] for place in places if is_there(place)}
        assert set(reply["segments"]) == used
        assert len(reply["segment_bytes"]) == len(reply["segments"])
        assert all(nbytes > 0 for nbytes in reply["segment_bytes"])
        return reply["object_ids"], [of_place(place) for place in places]
    if name == "ListReply":
        times = {"create_time": 0, "construct_duration": 0}
        return sorted((each | times for each in reply["objects"]), key=lambda each: str(each["object_id"]))
    if name == "DebugStringReply":
        return bool(reply["text"])
    return reply


def test_a_recorded_session_gets_the_same_answers(new_front_end: Any) -> None:
    front_end = new_front_end(CAPACITY_BYTES, "--strict")
    theirs: list[tuple[str, bytes]] = []
    ours: list[tuple[str, bytes]] = []
    descriptors = 0
    with WireClient(front_end.socket) as client:
        for speaker, name, message in recorded():
            if speaker == ">":
                client.socket.sendall(message)
                continue
            if name == "descriptor":
                continue  # ours come when a segment is new, too, but these are other segments
            theirs.append((name, message[HEADER.size :]))
            while True:
                piece = receive_piece(client.socket)
                assert piece is not None, (name, front_end.log())
                received, descriptor = piece
                if descriptor is None:
                    break
                os.close(descriptor)
                descriptors += 1
            version, number, _ = HEADER.unpack_from(received)
            assert (version, NAMES[number]) == (0, name)
            ours.append((name, received[HEADER.size :]))
    assert len(theirs) > 30
    assert descriptors > 0
    for (name, _), their_reply, our_reply in zip(theirs, decode(theirs), decode(ours), strict=True):
        assert essential(name, our_reply) == essential(name, their_reply), name
