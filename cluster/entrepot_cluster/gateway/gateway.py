"""A gateway: its parts, put together, and its life.

    starting ──serves the store──▶ running ──stop()──▶ stopped: it has left the cluster
       │                             └──the store is gone, another gateway serves it──▶ failed: its lease ends
       └──another gateway serves the store, the address is in use──▶ failed

Parts::

    Gateway ── GatewayServer ── StoreObjects, PeerRequests    what other gateways ask for
       ├────── Calls ── Fetcher ── Peers                      what this store's clients ask for
       ├────── Membership                                     the lease; who else is there
       ├────── Publication ── StoreSnapshots                  what the directory knows of this store
       ├────── StreamCalls ── RemoteWriter, RemoteReader      streams of other stores, for this one's clients
       └────── HomeRequests ── HomeEnds                       streams of this store, for other gateways
       ├────── Replication                                    copies that its sessions ask for
       ├────── InterruptedCopies                              what an earlier gateway was sealing when it was killed
       ├────── LossMarks                                      what refers to lost objects
       └────── Migration ── Draining                          what is moved to other stores
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import entrepot
from entrepot.errors import AccessDenied, DirectoryUnavailable, EntrepotError, InvalidArgument, StoreUnavailable

from entrepot_cluster.gateway.calls import Calls, error_name
from entrepot_cluster.gateway.collection_calls import CollectionCalls
from entrepot_cluster.gateway.collection_requests import CollectionRequests
from entrepot_cluster.gateway.directory_access import DirectoryAccess, cluster_name
from entrepot_cluster.gateway.draining import Draining
from entrepot_cluster.gateway.fetcher import Fetcher
from entrepot_cluster.gateway.interrupted_copies import InterruptedCopies
from entrepot_cluster.gateway.loss_marks import LossMarks
from entrepot_cluster.gateway.membership import Membership
from entrepot_cluster.gateway.migration import Migration
from entrepot_cluster.gateway.moving_objects import MovingObjects
from entrepot_cluster.gateway.object_source import StoreObjects
from entrepot_cluster.gateway.peer_requests import PeerRequests
from entrepot_cluster.gateway.peers import Peers
from entrepot_cluster.gateway.publication import Publication
from entrepot_cluster.gateway.replication import Replication
from entrepot_cluster.gateway.session_stores import SessionStores
from entrepot_cluster.gateway.settings import GatewaySettings
from entrepot_cluster.gateway.store_snapshot import StoreSnapshots
from entrepot_cluster.gateway.streams.home_ends import HomeEnds
from entrepot_cluster.gateway.streams.home_requests import HomeRequests
from entrepot_cluster.gateway.streams.homes import StreamHomes
from entrepot_cluster.gateway.streams.stream_calls import StreamCalls
from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.server import GatewayServer

CALLS_AT_ONCE = 128
POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


def to_utf8(text: str) -> str:
    """Replace what cannot be encoded, such as parts of file names that are not text."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Gateway:
    """The gateway of one store. :meth:`run` is called once; :meth:`stop` from any thread.

    Args:
        settings: as started.

    Raises:
        StoreUnavailable: the store cannot be reached, or the address to listen on is in use.
        InvalidArgument: a setting is wrong.
        AccessDenied: a certificate, key or token cannot be read.

    Attributes:
        address: ``host:port`` under which other gateways reach it.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        name = cluster_name(settings.directory)
        settings.security.check_files()
        self._store = entrepot.connect(settings.address, scope="default", session="", durable=False)
        identity = Identity(name, self._store.instance_id)
        self._sessions = SessionStores(self._store.address)
        self._directory = DirectoryAccess(settings.directory)
        self._peers = Peers(identity, settings.security, settings.transport)
        unrecorded = UnrecordedCopies()
        self._source = StoreObjects(self._store, unrecorded)
        self._snapshots = StoreSnapshots(self._store, self._source, unrecorded)
        self._publication = Publication(self._store, self._directory, self._snapshots, self._source)
        self._fetcher = Fetcher(identity.instance, self._directory, self._peers, self._sessions, unrecorded)
        self._interrupted = InterruptedCopies(self._store, self._sessions, self._directory, self._peers, unrecorded)
        moving = MovingObjects()
        homes = StreamHomes(identity.instance, self._sessions, self._directory, self._publication)
        self._home_ends = HomeEnds()
        home_requests = HomeRequests(
            identity.instance,
            homes,
            self._home_ends,
            self._sessions,
            self._directory,
            self._peers,
            self._publication,
        )
        self._losses = LossMarks(self._store, self._sessions, self._directory, self._peers)
        collections = CollectionRequests(
            self._store, self._sessions, self._peers, self._publication, unrecorded, self._losses
        )
        self._server = GatewayServer(
            settings.listen,
            identity,
            self._source,
            requests=PeerRequests(
                self._store,
                self._fetcher,
                self._peers,
                self._publication,
                moving,
                self._source,
                home_requests,
                collections,
            ),
            security=settings.security,
            compression=settings.compression,
            transport=settings.transport,
        )
        addresses = settings.advertise or (self._server.address,)
        if addresses[0].startswith(("0.0.0.0:", "[::]:")):
            self._server.close()
            raise InvalidArgument(
                f"a gateway that listens on all addresses ({addresses[0]}) has to be told where others reach it: pass "
                "--advertise HOST:PORT"
            )
        self.address = addresses[0]
        host = settings.host or self._store.host
        self._streams = StreamCalls(
            homes, self._sessions, self._directory, self._peers, (identity.instance, host, self.address)
        )
        self._replication = Replication(
            self._store, self._sessions, self._directory, self._peers, self._source, self.address
        )
        self._publication.when_published = self._replication.published
        self._publication.when_listed = self._losses.listed
        migration = Migration(
            self._store, self._directory, self._peers, self._source, moving, self._replication, self.address
        )
        self._calls = Calls(
            self._store,
            self._directory,
            self._fetcher,
            self._publication,
            self._replication,
            migration,
            Draining(self._store, self._directory, self._peers, self._source, moving, migration),
            self._streams,
            CollectionCalls(self._store, self._directory, self._peers, self._publication, self.address),
            self.stop,
        )
        self._membership = Membership(
            self._store,
            host,
            addresses,
            settings.lease_seconds,
            self._directory,
            self._publication,
            self._peers,
            self._give_up,
        )
        self._label = f"process {os.getpid()}, {self.address}"
        self._stopping = threading.Event()
        self._failure: EntrepotError | None = None  # set before _stopping
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="call")

    def run(self) -> None:
        """Serve until :meth:`stop` is called.

        Raises:
            ObjectExists: the store has another gateway.
            StoreUnavailable: the store has ended.
            EntrepotError: the directory refuses this gateway, or another one has taken its place.
        """
        raw = self._store._raw()  # pyright: ignore[reportPrivateUsage]
        try:
            with suppress(DirectoryUnavailable):  # membership tries again; any other error is final
                self._directory.open()
            raw.serve_gateway(self._label)
            self._interrupted.start()  # before anything is published
            self._membership.start()
            self._publication.start()
            self._home_ends.start()
            self._replication.start()
            self._losses.start()
            while not self._stopping.is_set():
                try:
                    calls = raw.next_calls(CALLS_AT_ONCE, POLL_SECONDS)
                except AccessDenied:  # the daemon was restarted, or we were silent and another gateway came
                    raw.serve_gateway(self._label)
                    continue
                self._sessions.close_idle()
                for call in calls:
                    self._pool.submit(self._answer, *call)
        except EntrepotError as error:
            self._give_up(error)
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End :meth:`run`, and leave the cluster. May be called in a signal handler."""
        self._stopping.set()

    def leave(self) -> None:
        """Leave the cluster at once, if this gateway was asked to stop and has not left; from any thread."""
        if self._failure is None:
            self._membership.leave()

    def _give_up(self, error: EntrepotError) -> None:
        # Once it is being stopped, the store may end too, as both containers of a pod do: it still leaves the cluster.
        if not self._stopping.is_set():
            self._failure = error
        self._stopping.set()

    def _answer(self, number: int, operation: str, ids: list[bytes], payload: bytes, seconds: float) -> None:
        raw = self._store._raw()  # pyright: ignore[reportPrivateUsage]

        def respond(error: EntrepotError | None, answer: bytes = b"") -> None:
            name, message = ("", "") if error is None else (error_name(error), error.message)
            try:
                raw.answer_call(number, name, to_utf8(message), answer)
            except (AccessDenied, StoreUnavailable):
                pass  # the call is another gateway's now, or nobody's
            except EntrepotError:
                _log.exception("a call of the operation %r could not be answered", operation)

        try:
            answer = self._calls.answer(operation, ids, payload, seconds, respond)
        except EntrepotError as error:
            respond(error)
        except Exception as error:
            _log.exception("a call of the operation %r failed", operation)
            respond(EntrepotError(f"the gateway failed: {type(error).__name__}: {error}; see its log"))
        else:
            if answer is not None:
                respond(None, answer)

    def _close(self) -> None:
        with suppress(EntrepotError):
            self._store._raw().serve_gateway("")  # pyright: ignore[reportPrivateUsage]
        self._streams.close()
        self._home_ends.stop()
        self._replication.stop()
        self._losses.stop()
        self._interrupted.stop()
        self._publication.stop()
        self._membership.stop(depart=self._failure is None)
        self._calls.close()
        self._fetcher.close()
        self._server.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._peers.close()
        self._directory.close()
        self._sessions.forget_all()
        self._store.close()
