"""Invalid targets and checkpoints raise errors that say what is wrong; store and checkpoint stay unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_checkpoints import list_checkpoints, prune, verify
from entrepot_checkpoints.manifests.manifest_codec import FORMAT_VERSION
from entrepot_checkpoints.progress import Progress


def saved(store: entrepot.Store, target: Any) -> tuple[entrepot.ObjectID, Path]:
    """Save a checkpoint with one chunk; returns the object's ID and the checkpoint's directory."""
    oid = store.put(np.arange(200_000), name="numbers")
    store.save(oid, target("one"))
    return oid, Path(target("one"))


def chunk_of(target: Any) -> Path:
    """The only chunk below a root."""
    (chunk,) = (path for path in Path(target.url, ".entrepot/chunks").rglob("*") if path.is_file())
    return chunk


def unharmed(other: entrepot.Store) -> bool:
    """Whether a refused load left nothing behind."""
    status = other.status()
    return not other.list() and status["names"] == 0 and status["used_bytes"] == 0


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_truncated_manifest(store: entrepot.Store, other: entrepot.Store, folder: Any, part: float) -> None:
    _, place = saved(store, folder)
    text = (place / "manifest.json").read_bytes()
    (place / "manifest.json").write_bytes(text[: int(part * len(text))])
    with pytest.raises(entrepot.CorruptData, match=r"manifest\.json"):
        other.load(folder("one"))
    assert unharmed(other)


def test_an_edited_manifest(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    _, place = saved(store, folder)
    text = (place / "manifest.json").read_text()
    for old, new in (
        ('"what":"object"', '"what":"session"'),
        ("numbers", "numberz"),
        ('"scope":"tests"', '"scope":"x"'),
    ):
        for count in (1, -1):
            edited = text.replace(old, new, count)
            assert edited != text
            (place / "manifest.json").write_text(edited)
            with pytest.raises(entrepot.CorruptData, match=r"changed after it was written|truncated"):
                other.load(folder("one"))
    assert unharmed(other)


def test_a_manifest_of_a_newer_version_names_both(
    store: entrepot.Store, other: entrepot.Store, folder: Any, files: Callable[[str], dict[str, bytes]]
) -> None:
    oid, place = saved(store, folder)
    newer = {"entrepot_checkpoint": FORMAT_VERSION + 1, "written_by": "entrepot 9.0"}
    (place / "manifest.json").write_text(json.dumps(newer) + "\nwhatever comes then")
    with pytest.raises(
        entrepot.VersionMismatch, match=rf"format {FORMAT_VERSION + 1}, written by 'entrepot 9.0'.*{FORMAT_VERSION}"
    ):
        other.load(folder("one"))
    before = files(folder.url)
    with pytest.raises(entrepot.VersionMismatch, match="another URL"):
        store.save(oid, folder("one"))  # an older program must not overwrite it
    with pytest.raises(entrepot.VersionMismatch):
        prune(folder.url)  # nor remove chunks that it may need
    assert files(folder.url) == before
    (listed,) = list_checkpoints(folder.url)
    assert "format" in listed.problem
    assert unharmed(other)


def test_another_file_is_no_manifest(other: entrepot.Store, folder: Any) -> None:
    Path(folder("one")).mkdir(parents=True)
    for text in (b"{}", b"[1]\n", b"hello", b"\xff\xfe" * 9000, b'{"entrepot_checkpoint": 0}', b"[" * 9000, b"\0"):
        Path(folder("one"), "manifest.json").write_bytes(text)
        with pytest.raises(entrepot.CorruptData):
            other.load(folder("one"))


def test_a_damaged_chunk(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    oid, _ = saved(store, folder)
    chunk = chunk_of(folder)
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(entrepot.CorruptData, match=chunk.name):
        other.load(folder("one"))
    assert chunk.name in verify(folder("one")).problems[0]
    assert verify(folder("one"), quick=True).ok
    assert unharmed(other)
    store.save(oid, folder("one"), incremental=False)  # as the error message advises
    assert other.load(folder("one")) == oid


def test_a_chunk_that_is_too_short_or_gone_is_written_anew(
    store: entrepot.Store, other: entrepot.Store, folder: Any
) -> None:
    oid, _ = saved(store, folder)
    chunk = chunk_of(folder)
    os.truncate(chunk, 1000)
    with pytest.raises(entrepot.CorruptData, match="1000 bytes"):
        other.load(folder("one"))
    assert not verify(folder("one"), quick=True).ok
    assert store.save(oid, folder("one")).written_bytes == 1_600_000
    chunk.unlink()
    with pytest.raises(entrepot.ObjectLost, match="does not exist: it was removed"):
        other.load(folder("one"))
    assert unharmed(other)
    assert store.save(oid, folder("one")).written_bytes == 1_600_000
    assert other.load(folder("one")) == oid


def test_no_checkpoint_there(other: entrepot.Store, target: Any) -> None:
    with pytest.raises(entrepot.ObjectNotFound, match="no checkpoint at"):
        other.load(target("none"), storage_options=target.options)


def test_a_bucket_that_does_not_exist(store: entrepot.Store, s3_server: Any) -> None:
    oid = store.put(b"x")
    with pytest.raises(entrepot.InvalidArgument, match="bucket"):
        store.save(oid, "s3://no-such-bucket/place/one", storage_options=s3_server.options)
    with pytest.raises(entrepot.ObjectNotFound):
        store.load("s3://no-such-bucket/place/one", storage_options=s3_server.options)


def test_an_unreachable_s3(store: entrepot.Store) -> None:
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"},
        "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 2},
    }
    oid = store.put(b"x")
    with pytest.raises(entrepot.StoreUnavailable, match=r"s3://bucket/place/one.*127\.0\.0\.1:1"):
        store.save(oid, "s3://bucket/place/one", storage_options=options)
    with pytest.raises(entrepot.StoreUnavailable):
        store.load("s3://bucket/place/one", storage_options=options)
    assert store.get(oid) == b"x"


def test_no_credentials(store: entrepot.Store, s3_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    options = {"client_kwargs": {"endpoint_url": s3_server.endpoint}, "skip_instance_cache": True}
    with pytest.raises(entrepot.AccessDenied, match="credentials"):
        store.save(store.put(b"x"), "s3://bucket/place/one", storage_options=options)


@pytest.mark.parametrize("url", ["nonsense://place/one", "", "/", "/top", "s3://bucket", None, 7, b"/x/y"])
def test_a_url_that_names_no_place(store: entrepot.Store, url: Any) -> None:
    oid = store.put(b"x")
    with pytest.raises(entrepot.InvalidArgument):
        store.save(oid, url)
    with pytest.raises(entrepot.InvalidArgument):
        store.load(url)


@pytest.mark.parametrize(
    ("hidden", "url", "advice"),
    [("fsspec", "/x/y", r"entrepot\[checkpoints\]"), ("s3fs", "s3://bucket/place/one", "s3fs")],
)
def test_a_package_that_is_not_installed(hidden: str, url: str, advice: str, daemon: Any) -> None:
    code = (
        f"import sys; sys.modules[{hidden!r}] = None\n"
        f"import entrepot\nstore = entrepot.connect({daemon.address!r})\n"
        f"try: store.save(store.put(b'x'), {url!r})\nexcept entrepot.InvalidArgument as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert advice.replace("\\", "") in done.stdout


def test_what_is_not_an_object(store: entrepot.Store, folder: Any) -> None:
    missing = entrepot.ObjectID.random()
    for what in (missing, [missing], [store.put(b"x"), missing]):
        with pytest.raises(entrepot.ObjectNotFound, match=str(missing)):
            store.save(what, folder("one"))
    for wrong in (7, None, [1], "a name", {"a": object()}):
        with pytest.raises(entrepot.InvalidArgument):
            store.save(wrong, folder("one"))
    with pytest.raises(entrepot.InvalidArgument, match="format"):
        store.save(store.put(b"x"), folder("one"), format="xlsx")  # type: ignore[arg-type]
    assert not Path(folder("one")).exists()


def test_an_object_that_is_deleted_meanwhile(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    first, second = store.put(np.arange(3_000_000)), store.put(np.arange(100_000))
    store.save(first, folder("one"))

    def progress(_: Progress) -> None:
        store.delete(second)

    with pytest.raises(entrepot.ObjectNotFound, match=f"{second} was deleted while"):
        store.save([store.put(np.arange(900_000)), second], folder("one"), progress=progress)
    assert other.load(folder("one")) == first
    with store.session("s") as session:
        ids = sorted(session.put_many([np.full(300_000, i) for i in range(40)]))

        def delete_the_last(_: Progress) -> None:
            session.delete(ids[-1])

        session.save(session, folder("two"), progress=delete_the_last)
    assert other.load(folder("two")) == ids[:-1]  # by then it was no longer in the session


def test_objects_that_are_there_with_other_content(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    oid = store.put(np.arange(100_000), name="n")
    small = store.put(b"small", name="m")
    store.save([oid, small], folder("one"))
    other.put(np.arange(100_001), id=oid)
    with pytest.raises(entrepot.ObjectExists, match="replace=True"):
        other.load(folder("one"))
    assert len(other.get(oid)) == 100_001
    other.load(folder("one"), replace=True)
    assert len(other.get_by_name("n")) == 100_000
    other.set_name("m", oid, replace=True)
    with pytest.raises(entrepot.ObjectExists, match="m"):
        other.load(folder("one"))
    other.load(folder("one"), replace=True)
    assert other.get_by_name("m") == b"small"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(store: entrepot.Store, folder: Any) -> None:
    Path(folder.url).mkdir(mode=0o500)
    with pytest.raises(entrepot.AccessDenied, match=folder.url):
        store.save(store.put(b"x"), folder("one"))


def test_a_read_only_or_full_target(
    store: entrepot.Store, other: entrepot.Store, folder: Any, monkeypatch: Any
) -> None:
    """Errors of the kernel are simulated in os.write; a full disk for the test would need privileges."""
    import errno

    oid, _ = saved(store, folder)
    more = store.put(np.arange(900_000))
    real = os.write
    for number, kind in (
        (errno.ENOSPC, entrepot.StoreFull),
        (errno.EROFS, entrepot.AccessDenied),
        (errno.EIO, entrepot.StoreUnavailable),
    ):

        def failing(file: int, data: Any, number: int = number) -> int:
            if len(data) > 100_000:
                raise OSError(number, os.strerror(number))
            return real(file, data)

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", failing)
            with pytest.raises(kind, match="chunks"):
                store.save([oid, more], folder("one"))
    assert other.load(folder("one")) == oid
    assert not list(Path(folder.url).rglob(".*.tmp-*"))


def test_a_path_through_a_file(store: entrepot.Store, folder: Any) -> None:
    Path(folder.url).write_bytes(b"a file")
    with pytest.raises(entrepot.InvalidArgument, match="folder"):
        store.save(store.put(b"x"), folder("one"))
    with pytest.raises(entrepot.InvalidArgument, match="folder"):
        store.load(folder("one"))


def test_an_error_of_the_callback_ends_the_save(store: entrepot.Store, folder: Any) -> None:
    class Stop(Exception):
        pass

    def progress(done: Progress) -> None:
        raise Stop

    with pytest.raises(Stop):
        store.save(store.put(np.arange(100_000)), folder("one"), progress=progress)
    assert not list_checkpoints(folder.url)


@pytest.mark.parametrize("url", ["s3:/bucket/orders", "memory:/orders", "gs:/"])
def test_a_url_that_lacks_a_slash_is_no_folder(
    store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    oid = store.put([1])
    scheme, _, path = url.partition("/")
    with pytest.raises(entrepot.InvalidArgument, match=f"single slash.*write {scheme}//{path}"):
        store.save(oid, url)
    assert not list(tmp_path.iterdir())
