"""Sources of the server's certificate: a Secret shared and renewed by the replicas, or a directory renewed by
others.
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from entrepot.errors import InvalidArgument
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import CONFLICT, ClusterRefused, ClusterUnavailable, ResourceNotFound

from entrepot_operator.admission.authority import Held, Pair, Terms, advance
from entrepot_operator.admission.settings import Settings

log = logging.getLogger(__name__)

MANAGER = "entrepot-webhook"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_TRIES = 5


class Certificates(Protocol):
    """A source of the server's certificate."""

    def refresh(self) -> Pair:
        """The certificate to serve now. Called periodically, by one thread.

        Raises:
            EntrepotError: it is not available now; the message says why.
        """
        ...


class SharedCertificates:
    """Our own CA, in a Secret.

    The replicas write it only on the version they have read, so that one of them wins and the others follow it. The CA
    bundle is written into the webhook's configuration before the certificate is served.

    Args:
        api: the cluster's, for this thread only.
        settings: names of Secret and configuration.
        terms: lifetimes of certificates.
    """

    def __init__(self, api: Api, settings: Settings, terms: Terms | None = None) -> None:
        self._api = api
        self._settings = settings
        self._terms = terms

    def refresh(self) -> Pair:
        """As :meth:`Certificates.refresh`; renews what is due.

        Raises:
            InvalidArgument: the Secret or the configuration does not exist.
            AccessDenied, ClusterRefused, ClusterUnavailable: they cannot be read or written.
        """
        held = self._agreed()
        self._publish(held.bundle)
        return held.server

    def _agreed(self) -> Held:
        name, namespace = self._settings.secret, self._settings.namespace
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        for _ in range(_TRIES):
            try:
                secret = self._api.get(path)
            except ResourceNotFound as error:
                raise InvalidArgument(
                    f"the webhook keeps its certificates in the Secret {name} of namespace {namespace}, which is not "
                    "there: apply the shipped manifests, or an empty Secret of this name"
                ) from error
            held = _read(secret)
            wanted = advance(held, self._api.now(), self._settings.server_names, self._terms)
            if wanted is held:
                return wanted
            manifest = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "resourceVersion": secret["metadata"]["resourceVersion"],
                },
                "data": {key: base64.b64encode(value).decode() for key, value in wanted.to_data().items()},
            }
            try:
                self._api.apply(path, manifest, MANAGER)
            except ClusterRefused as error:
                if error.status != CONFLICT:
                    raise
                continue  # another replica was faster: use its result
            log.info(
                "certificates of the webhook made: %d trusted, served until %s",
                len(wanted.authorities),
                wanted.server.expires,
            )
            return wanted
        raise ClusterUnavailable(f"the Secret {name} of namespace {namespace} was changed {_TRIES} times meanwhile")

    def _publish(self, bundle: bytes) -> None:
        name, text = self._settings.configuration, base64.b64encode(bundle).decode()
        try:
            found = self._api.get(f"{_CONFIGURATIONS}/{name}")
        except ResourceNotFound as error:
            raise InvalidArgument(
                f"the MutatingWebhookConfiguration {name} is not there: apply the shipped manifests"
            ) from error
        listed: list[dict[str, Any]] = found.get("webhooks") or []
        if all((one.get("clientConfig") or {}).get("caBundle") == text for one in listed):
            return
        manifest = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{"name": one["name"], "clientConfig": {"caBundle": text}} for one in listed],
        }
        self._api.apply(f"{_CONFIGURATIONS}/{name}", manifest, MANAGER)
        log.info("the MutatingWebhookConfiguration %s trusts the webhook's authority", name)


class MountedCertificates:
    """A directory with ``tls.crt`` and ``tls.key``, such as a mounted Secret of cert-manager.

    Args:
        folder: the directory.
        sleep: waits; for tests.
    """

    def __init__(self, folder: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._sleep = sleep

    def refresh(self) -> Pair:
        """As :meth:`Certificates.refresh`.

        Raises:
            InvalidArgument: the files cannot be read.
        """
        # The kubelet swaps both atomically, by a symlink: if two reads are equal, the files belong together.
        before = self._read()
        for _ in range(_TRIES):
            found = self._read()
            if found == before:
                return found
            before = found
            self._sleep(0.1)
        raise InvalidArgument(f"the certificate in {self._folder} changes all the time")

    def _read(self) -> Pair:
        try:
            return Pair((self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes())
        except OSError as error:
            raise InvalidArgument(f"the certificate of the webhook cannot be read: {error}") from error


def _read(secret: dict[str, Any]) -> Held | None:
    data = secret.get("data") or {}
    if not data:
        return None
    try:
        return Held.of_data({key: base64.b64decode(value, validate=True) for key, value in data.items()})
    except (binascii.Error, InvalidArgument) as error:
        log.warning("the Secret %s is made anew: %s", secret["metadata"].get("name"), error)
        return None
