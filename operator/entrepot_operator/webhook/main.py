"""The complete webhook: server, certificates and Events, each in a thread of its own.

``serve`` starts it, ``close`` stops it; ``readiness_problems`` and ``collect`` are its part of ``/readyz`` and
``/metrics``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import datetime

from entrepot.errors import EntrepotError
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.webhook.admission_review import Review
from entrepot_operator.webhook.certificate_store import CertificateSource, MountedCertificates, SharedCertificates
from entrepot_operator.webhook.certificates import Lifetimes
from entrepot_operator.webhook.cluster_view import ClusterView
from entrepot_operator.webhook.event_reporter import EventReporter
from entrepot_operator.webhook.handler import Decision, decide
from entrepot_operator.webhook.metrics import Counters
from entrepot_operator.webhook.server import Server
from entrepot_operator.webhook.settings import Settings

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 1.0


class Webhook(Collector):
    """A running webhook, created by ``serve``.

    Attributes:
        counters: of its reviews.
        expires: when the served certificate expires; None: there is none yet.
    """

    def __init__(
        self,
        view: ClusterView,
        credentials: ClusterCredentials,
        settings: Settings,
        cluster_config: ClusterConfig,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.counters = Counters()
        self.expires: datetime | None = None
        self._view = view
        self._cluster_config = cluster_config
        self._settings = settings
        self._last_error = ""
        self._stop: threading.Event = threading.Event()
        self._event_reporter = EventReporter(Api(credentials, patience=0)) if settings.events else None
        self._certificates: CertificateSource
        if settings.certificates is not None:
            self._certificates = MountedCertificates(settings.certificates)
        else:
            self._certificates = SharedCertificates(Api(credentials, patience=0), settings, lifetimes)
        report_warnings = self._event_reporter.report if self._event_reporter is not None else None
        self._server = Server(
            settings, self._decide, self.counters, lambda: not self.readiness_problems(), report_warnings
        )
        self._certificate_thread = threading.Thread(
            target=self._refresh_certificates, name="entrepot-certificates", daemon=True
        )
        self._certificate_thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    def readiness_problems(self) -> list[str]:
        """Reasons why it can only leave pods unchanged; empty: it is ready."""
        problems = [] if self._view.synced else ["object locations have not been read yet"]
        if not self._server.has_certificate:
            problems.append(f"the webhook has no certificate: {self._last_error or 'it is being issued'}")
        return problems

    def collect(self) -> Iterator[Metric]:
        """Its metrics, as Prometheus' library wants them."""
        yield from self.counters.collect()
        if self.expires is not None:
            text = "When the certificate of the webhook expires, in seconds since 1970."
            yield GaugeMetricFamily("entrepot_webhook_certificate_end_seconds", text, self.expires.timestamp())

    def close(self) -> None:
        """Finish requests in progress, and stop."""
        self._stop.set()
        self._server.close()
        self._certificate_thread.join()
        if self._event_reporter is not None:
            self._event_reporter.close()

    def _decide(self, review: Review, mounts: bool) -> Decision:
        return decide(review.pod, self._view, self._cluster_config, mounts=mounts and self._settings.mounts)

    def _refresh_certificates(self) -> None:
        max_pause = self._settings.refresh_seconds
        pause = min(_FIRST_PAUSE_SECONDS, max_pause)
        while True:
            try:
                key_pair = self._certificates.refresh()
                self._server.install(key_pair)
                self.expires = key_pair.expires
                self._last_error, pause = "", max_pause
            except (EntrepotError, ValueError) as error:  # ValueError: from a certificate that somebody else created
                if str(error) != self._last_error:
                    log.warning("cannot renew the webhook's certificate: %s", error)
                self._last_error, pause = str(error), min(2 * pause, max_pause)
            if self._stop.wait(pause):
                return


def serve(
    view: ClusterView,
    credentials: ClusterCredentials,
    settings: Settings,
    cluster_config: ClusterConfig | None = None,
    lifetimes: Lifetimes | None = None,
) -> Webhook:
    """Start the webhook; it runs in threads of its own until it is closed.

    It listens immediately. The certificate follows as soon as the API server provides it; until then handshakes fail,
    and pods are created without the webhook.

    Args:
        view: where objects are.
        credentials: to the cluster, for the certificates and Events.
        settings: address and so on.
        cluster_config: configuration of the stores; default: ``ClusterConfig()``.
        lifetimes: lifetimes of certificates.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """
    return Webhook(view, credentials, settings, cluster_config or ClusterConfig(), lifetimes)
