"""Names, sessions, scopes and IDs as paths; errors are those of a file system."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import entrepot
import pytest
from entrepot.errors import AccessDenied, InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreFull
from entrepot_io.filesystem.file_system import EntrepotFileSystem
from entrepot_io.filesystem.os_errors import os_errors
from entrepot_io.filesystem.paths import decode, encode, is_regular, parse
from fsspec.spec import AbstractFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LARGE = bytes(range(256)) * 1024


def _count(store: entrepot.Store) -> int:
    return len(store.list())


def test_renaming_keeps_the_object(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    fs.pipe({"current/old": LARGE, "current/new": b"replaced"})
    oid = fs.info("current/old")["id"]
    fs.mv("current/old", "current/new")
    assert fs.info("current/new")["id"] == oid
    assert not fs.exists("current/old")
    fs.pipe_file("current/old", b"another")  # not the object that has moved away
    assert (fs.cat_file("current/new"), fs.cat_file("current/old")) == (LARGE, b"another")
    assert _count(store) == 2


def test_moving_a_directory_and_into_another_session(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a/1": b"1", "current/a/b/2": LARGE})
    fs.mv("current/a", "current/c", recursive=True)
    assert fs.find("current/") == ["current/c/1", "current/c/b/2"]
    fs.mv("current/c/b/2", "default/elsewhere/2")
    assert fs.find("current/") == ["current/c/1"]
    assert fs.cat_file("default/elsewhere/2") == LARGE
    with pytest.raises(FileNotFoundError):
        fs.mv("current/missing", "current/x")


def test_moving_something_to_where_it_is_leaves_it_there(
    new_fs: Callable[..., EntrepotFileSystem], options: dict[str, Any]
) -> None:
    fs = new_fs(**options | {"session": "run"})
    fs.pipe({"current/a": b"1", "current/b/c": b"2"})
    fs.mv("current/a", "default/run/a")
    fs.mv("default/run/b", "current/b", recursive=True)
    assert fs.cat(fs.find("current")) == {"current/a": b"1", "current/b/c": b"2"}
    with pytest.raises(FileNotFoundError):
        fs.mv("current/missing", "default/run/missing")


def test_the_whole_store_is_not_deleted(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/a", b"1")
    for path in ("", "entrepot://", "/", ["current/b", ""]):
        with pytest.raises(PermissionError, match="whole store"):
            fs.rm(path, recursive=True)
    assert fs.exists("current/a")


def test_a_copy_shares_memory(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    import numpy as np

    fs.pipe_file("current/a", LARGE)
    fs.cp_file("current/a", "current/b")
    first, second = (
        np.frombuffer(fs.view(name), np.uint8).__array_interface__["data"][0] for name in ("current/a", "current/b")
    )
    assert first == second
    fs.rm("current/a")
    assert fs.cat_file("current/b") == LARGE


def test_two_sessions_and_two_scopes(fs: EntrepotFileSystem) -> None:
    paths = ["default/run%2F1/x", "default/run-2/x", "other scope/-/x", "other scope/%2D/x"]
    for path in paths:
        fs.pipe_file(path, path.encode())
    for path in paths:
        assert fs.cat_file(f"entrepot://{path}") == fs.cat_file(f"entrepot:///{path}") == path.encode()
        assert path.rpartition("/")[0] in fs.ls(path.partition("/")[0], detail=False) or "other" in path
    scopes = fs.ls("", detail=False)
    assert "default" in scopes
    assert "other%20scope" in scopes
    assert fs.ls("other%20scope", detail=False) == ["other%20scope/-", "other%20scope/%2D"]
    assert [(entry["type"], entry["name"]) for entry in fs.ls("default/run%2F1")] == [("file", "default/run%2F1/x")]


def test_an_empty_scope_is_not_the_default_one(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("default/x/kept", b"original")
    with pytest.raises(OSError, match="not a scope: a path is SCOPE/SESSION/NAME"):
        fs.pipe_file("-/x/kept", b"other")
    with pytest.raises(OSError, match="not a scope"):
        fs.mkdir("-/y")
    assert not fs.exists("-/x/kept")
    assert fs.cat_file("default/x/kept") == b"original"
    assert not fs.exists("default/y")


def test_reading_creates_no_session(fs: EntrepotFileSystem) -> None:
    for path in ("default/nobody", "default/nobody/x", "nobody/-/x", "nobody"):
        assert not fs.exists(path)
        with pytest.raises(FileNotFoundError):
            fs.ls(path)
        with pytest.raises(FileNotFoundError):
            fs.open(path)
    assert "nobody" not in fs.ls("", detail=False)
    assert "default/nobody" not in fs.ls("default", detail=False)


def test_looking_into_another_scope_does_not_make_its_own_session(
    fs: EntrepotFileSystem, options: dict[str, Any]
) -> None:
    with entrepot.connect(options["address"], scope="looked-into", session="run") as store:
        store.put(b"x", name="x")
    assert fs.cat_file("looked-into/run/x") == b"x"
    fs.pipe_file("looked-into/run/y", b"y")
    assert fs.ls("looked-into", detail=False) == ["looked-into/run"]
    fs.rm("looked-into", recursive=True)
    fs.rmdir("looked-into/run")
    assert not fs.exists("looked-into")


def test_writing_sets_a_sessions_time_to_live_and_reading_does_not(
    new_fs: Callable[..., EntrepotFileSystem], options: dict[str, Any]
) -> None:
    def ttl(scope: str) -> int:
        with entrepot.connect(options["address"], scope=scope) as store:
            return next(info.ttl_seconds for info in store.sessions() if info.session == "timed")

    for scope in ("default", "foreign"):
        new_fs(**options, session_ttl="2h").pipe_file(f"{scope}/timed/x", b"x")
        assert ttl(scope) == 7200
        new_fs(**options, session_ttl=60).cat_file(f"{scope}/timed/x")
        new_fs(**options).pipe_file(f"{scope}/timed/x", b"y")
        assert ttl(scope) == 7200
    with pytest.raises(ValueError, match="time to live"):
        new_fs(session_ttl="soon")


def test_sessions_are_made_and_removed_as_directories(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    fs.mkdir("default/made")
    assert fs.isdir("default/made")
    with pytest.raises(FileExistsError):
        fs.mkdir("default/made")
    fs.makedirs("default/made/a/b", exist_ok=True)
    fs.pipe_file("default/made/a/b", b"x")
    with pytest.raises(FileExistsError):
        fs.makedirs("default/made/a/b", exist_ok=True)
    with pytest.raises(OSError, match="not empty") as caught:
        fs.rmdir("default/made")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        fs.rm("default/made/a")
    fs.rm("default/made/a", recursive=True)
    fs.rmdir("default/made")
    assert not fs.exists("default/made")


def test_deleting_all_files_of_a_session_leaves_what_has_no_name(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    oid = store.put(b"no name")
    fs.pipe({"current/a": b"1", "current/b/c": b"2"})
    fs.rm("current", recursive=True)
    assert fs.ls("current") == []
    assert store.exists(oid)
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("current")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(st.text("ab/.*[é ", min_size=1, max_size=6), max_size=8), folder=st.sampled_from(["", "/a", "/a/b"])
)
def test_finding_in_one_listing_is_the_same_as_walking(
    fs: EntrepotFileSystem, store: entrepot.Store, names: set[str], folder: str
) -> None:
    for info in store.list():
        store.delete(info.id)
    for name in names:
        store.put(name.encode(), name=name)
    path = f"current{folder}"
    walked = AbstractFileSystem.find(fs, path, detail=True)
    assert fs.find(path, detail=True) == walked
    assert fs.find(path) == list(walked)
    assert [path.removeprefix("current/") for path in fs.find("current")] == sorted(filter(is_regular, names))


@given(name=st.text(max_size=20).filter(lambda name: "\0" not in name))
def test_every_scope_and_session_has_a_segment(name: str) -> None:
    segment = encode(name)
    assert decode(segment) == name
    assert segment
    assert re.fullmatch(r"[!-~]+", segment)
    assert not set(segment) & set("/?#@*[]\\")
    assert parse(f"{segment}/x/y", "default", "").scope == name or not name
    assert parse(f"s/{segment}/y", "default", "").session == name


def test_an_object_by_its_id(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    oid = store.put(LARGE)
    assert fs.cat_file(f"entrepot://{oid}", 3, 9) == LARGE[3:9]
    assert fs.isfile(str(oid))
    assert fs.ls("current", detail=False) == []  # it has no name
    with pytest.raises(PermissionError, match="by their ID"):
        fs.pipe_file(str(oid), b"x")
    fs.rm(str(oid))
    assert not store.exists(oid)
    assert not fs.exists(str(oid))


def test_a_name_may_be_a_file_and_a_directory(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a": b"file", "current/a/b": b"below"})
    assert fs.cat_file("current/a") == b"file"
    assert sorted((entry["name"], entry["type"]) for entry in fs.ls("current")) == [
        ("current/a", "directory"),
        ("current/a", "file"),
    ]
    assert fs.ls("current/a", detail=False) == ["current/a/b"]
    assert fs.find("current") == ["current/a", "current/a/b"]


def test_names_that_look_like_patterns(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/[a]*/x": b"1", "current/a/y": b"2"})
    assert fs.ls("current/[a]*", detail=False) == ["current/[a]*/x"]
    assert fs.ls("current/a", detail=False) == ["current/a/y"]


def test_names_that_are_no_paths_are_not_listed(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    for name in ("/a", "b/", "c//d", "e"):
        store.put(b"x", name=name)
    assert fs.find("current") == ["current/e"]


def test_glob_find_walk(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a/1.csv": b"", "current/a/b/2.csv": b"", "current/a/b/3.txt": b"", "current/4.csv": b""})
    assert fs.glob("current/a/*") == ["current/a/1.csv", "current/a/b"]
    assert fs.glob("entrepot://current/**/*.csv") == ["current/4.csv", "current/a/1.csv", "current/a/b/2.csv"]
    assert fs.find("current/a", maxdepth=1) == ["current/a/1.csv"]
    assert list(fs.walk("current/a")) == [("current/a", ["b"], ["1.csv"]), ("current/a/b", [], ["2.csv", "3.txt"])]
    assert fs.du("current") == 0


def test_keys_and_times_change_with_the_content(fs: EntrepotFileSystem) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    fs.pipe_file("current/file", b"1")
    key, checksum = fs.ukey("current/file"), fs.checksum("current/file")
    assert (fs.ukey("current/file"), fs.checksum("current/file")) == (key, checksum)
    assert (
        before
        <= fs.created("current/file")
        == fs.modified("current/file")
        <= datetime.now(timezone.utc) + timedelta(seconds=1)
    )
    fs.pipe_file("current/file", b"2")
    assert fs.ukey("current/file") != key
    assert fs.checksum("current/file") != checksum


# --- errors


def test_errors_of_paths(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/folder/file", b"x")
    with pytest.raises(IsADirectoryError):
        fs.open("current/folder")
    for path in ("", "current", "default", "default/-"):
        with pytest.raises(IsADirectoryError):
            fs.open(path, "wb")
    with pytest.raises(FileNotFoundError, match="no object of this name"):
        fs.open("current/folder/missing")
    with pytest.raises(FileNotFoundError, match="three slashes"):
        fs.open("missing")
    with pytest.raises(FileNotFoundError):
        fs.rm("current/missing")
    with pytest.raises(FileNotFoundError):
        fs.rmdir("current/missing")
    with pytest.raises(OSError, match="two slashes") as caught:
        fs.open("current/a//b", "wb")
    assert caught.value.errno == errno.EINVAL
    for name in ("x" * 300, "x" * 300 + ".csv", "lone \udc80"):
        assert not fs.exists(f"current/{name}")
        assert not fs.isdir(f"current/{name}")
    with pytest.raises(OSError, match="255 bytes") as caught:
        fs.open("current/" + "x" * 300, "wb")
    assert caught.value.errno == errno.EINVAL
    assert isinstance(caught.value.__cause__, InvalidArgument)


def test_a_value_that_is_not_bytes_says_how_it_can_be_read(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put({"a": 1}, name="data")
    assert fs.isfile("current/data")
    with pytest.raises(OSError, match=r"python\.data.*connect\(\)\.get"):
        fs.cat_file("current/data")


def test_a_full_store(new_daemon: Callable[..., Any]) -> None:
    small = EntrepotFileSystem(address=new_daemon("64MiB").address, skip_instance_cache=True)
    file = small.open("current/file", "wb")
    for _ in range(80):
        file.write(bytes(1 << 20))
    with pytest.raises(OSError, match="larger than the whole store") as caught:
        file.close()
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, StoreFull)
    with pytest.raises(OSError, match="larger than the whole store"):
        small.open("current/file", "wb", size=80 << 20)
    assert not small.exists("current/file")
    small.pipe_file("current/file", LARGE)  # the memory is free again
    assert small.cat_file("current/file") == LARGE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ObjectNotFound("x"), FileNotFoundError),
        (ObjectExists("x"), FileExistsError),
        (AccessDenied("x"), PermissionError),
        (ObjectLost("x"), OSError),
    ],
)
def test_errors_of_the_store(error: Exception, expected: type[OSError]) -> None:
    with pytest.raises(expected, match="x"), os_errors("path"):
        raise error
