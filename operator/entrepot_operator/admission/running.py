"""The complete webhook: server, certificates and Events, each in a thread of its own.

webhook = serve(index, access, settings(arguments, namespace), site)   # options.py webhook.unready(), webhook.samples()
# for /readyz and /metrics webhook.close()
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import datetime

from entrepot.errors import EntrepotError
from entrepot_io.cluster.access import Access
from entrepot_io.cluster.api import Api
from entrepot_io.placement.names import Site

from entrepot_operator.admission.authority import Terms
from entrepot_operator.admission.counting import Counters, Sample
from entrepot_operator.admission.keeping import Certificates, MountedCertificates, SharedCertificates
from entrepot_operator.admission.knowing import Knowledge
from entrepot_operator.admission.listening import Server
from entrepot_operator.admission.requests import Review
from entrepot_operator.admission.reviewing import Verdict, decide
from entrepot_operator.admission.settings import Settings
from entrepot_operator.admission.telling import Teller

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 1.0


class Webhook:
    """A running webhook, created by ``serve``.

    Attributes:
        counters: of its reviews.
        expires: when the served certificate expires; None: there is none yet.
    """

    def __init__(
        self, known: Knowledge, access: Access, settings: Settings, site: Site, terms: Terms | None = None
    ) -> None:
        self.counters = Counters()
        self.expires: datetime | None = None
        self._known = known
        self._site = site
        self._settings = settings
        self._problem = ""
        self._stop: threading.Event = threading.Event()
        self._teller = Teller(Api(access, patience=0)) if settings.events else None
        self._certificates: Certificates
        if settings.certificates is not None:
            self._certificates = MountedCertificates(settings.certificates)
        else:
            self._certificates = SharedCertificates(Api(access, patience=0), settings, terms)
        told = self._teller.tell if self._teller is not None else None
        self._server = Server(settings, self._decide, self.counters, lambda: not self.unready(), told)
        self._keeper = threading.Thread(target=self._keep, name="entrepot-certificates", daemon=True)
        self._keeper.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    def unready(self) -> list[str]:
        """Why it can only leave pods unchanged; empty: it is ready."""
        wrong = [] if self._known.synced else ["where objects are was not read yet"]
        if not self._server.has_certificate:
            wrong.append(f"the webhook has no certificate: {self._problem or 'it is being made'}")
        return wrong

    def samples(self) -> Iterator[Sample]:
        """Name, labels and value of each number, for Prometheus."""
        yield from self.counters.samples()
        if self.expires is not None:
            yield "entrepot_webhook_certificate_end_seconds", {}, self.expires.timestamp()

    def close(self) -> None:
        """Finish requests in progress, and stop."""
        self._stop.set()
        self._server.close()
        self._keeper.join()
        if self._teller is not None:
            self._teller.close()

    def _decide(self, review: Review, mounts: bool) -> Verdict:
        return decide(review.pod, self._known, self._site, mounts=mounts and self._settings.mounts)

    def _keep(self) -> None:
        longest = self._settings.refresh_seconds
        pause = min(_FIRST_PAUSE_SECONDS, longest)
        while True:
            try:
                pair = self._certificates.refresh()
                self._server.install(pair)
                self.expires = pair.expires
                self._problem, pause = "", longest
            except (EntrepotError, ValueError) as error:  # ValueError: from a certificate that somebody else created
                if str(error) != self._problem:
                    log.warning("the webhook's certificate cannot be renewed now: %s", error)
                self._problem, pause = str(error), min(2 * pause, longest)
            if self._stop.wait(pause):
                return


def serve(
    known: Knowledge, access: Access, settings: Settings, site: Site | None = None, terms: Terms | None = None
) -> Webhook:
    """Start the webhook; it runs in threads of its own until it is closed.

    It listens immediately. The certificate follows as soon as the API server provides it; until then handshakes fail,
    and pods are created without the webhook.

    Args:
        known: where objects are.
        access: to the cluster, for the certificates and Events.
        settings: address and so on.
        site: configuration of the stores; default: ``Site()``.
        terms: lifetimes of certificates.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """
    return Webhook(known, access, settings, site or Site(), terms)
