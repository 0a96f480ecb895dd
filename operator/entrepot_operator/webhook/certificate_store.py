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

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ClusterUnavailable, ResourceNotFound
from entrepot_operator.webhook.certificates import CertificateBundle, KeyPair, Lifetimes, rotate
from entrepot_operator.webhook.settings import Settings

log = logging.getLogger(__name__)

MANAGER = "entrepot-webhook"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_MAX_ATTEMPTS = 5


class CertificateSource(Protocol):
    """A source of the server's certificate."""

    def refresh(self) -> KeyPair:
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
        lifetimes: lifetimes of certificates.
    """

    def __init__(self, api: Api, settings: Settings, lifetimes: Lifetimes | None = None) -> None:
        self._api = api
        self._settings = settings
        self._lifetimes = lifetimes

    def refresh(self) -> KeyPair:
        """As :meth:`CertificateSource.refresh`; renews what is due.

        Raises:
            InvalidArgument: the Secret or the configuration does not exist.
            AccessDenied, ClusterRefused, ClusterUnavailable: they cannot be read or written.
        """
        bundle = self._load_or_rotate()
        self._publish_ca_bundle(bundle.ca_bundle)
        return bundle.server

    def _load_or_rotate(self) -> CertificateBundle:
        name, namespace = self._settings.secret, self._settings.namespace
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        for _ in range(_MAX_ATTEMPTS):
            try:
                secret = self._api.get(path)
            except ResourceNotFound as error:
                raise InvalidArgument(
                    f"Secret {name} for the webhook's certificates not found in namespace {namespace}: apply the "
                    "shipped manifests, or create an empty Secret with this name"
                ) from error
            bundle = _parse_secret(secret)
            rotated = rotate(bundle, self._api.now(), self._settings.server_names, self._lifetimes)
            if rotated is bundle:
                return rotated
            manifest = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "resourceVersion": secret["metadata"]["resourceVersion"],
                },
                "data": {key: base64.b64encode(value).decode() for key, value in rotated.to_data().items()},
            }
            try:
                self._api.apply(path, manifest, MANAGER)
            except ClusterRefused as error:
                if error.status != CONFLICT:
                    raise
                continue  # another replica was faster: use its result
            log.info(
                "issued webhook certificates: %d trusted CAs, server certificate expires %s",
                len(rotated.authorities),
                rotated.server.expires,
            )
            return rotated
        raise ClusterUnavailable(
            f"Secret {name} in namespace {namespace} changed during all {_MAX_ATTEMPTS} update attempts"
        )

    def _publish_ca_bundle(self, ca_bundle: bytes) -> None:
        name, text = self._settings.configuration, base64.b64encode(ca_bundle).decode()
        try:
            configuration = self._api.get(f"{_CONFIGURATIONS}/{name}")
        except ResourceNotFound as error:
            raise InvalidArgument(
                f"MutatingWebhookConfiguration {name} not found: apply the shipped manifests"
            ) from error
        webhooks: list[dict[str, Any]] = configuration.get("webhooks") or []
        if all((webhook.get("clientConfig") or {}).get("caBundle") == text for webhook in webhooks):
            return
        manifest = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{"name": webhook["name"], "clientConfig": {"caBundle": text}} for webhook in webhooks],
        }
        self._api.apply(f"{_CONFIGURATIONS}/{name}", manifest, MANAGER)
        log.info("MutatingWebhookConfiguration %s now trusts the webhook's CA", name)


class MountedCertificates:
    """A directory with ``tls.crt`` and ``tls.key``, such as a mounted Secret of cert-manager.

    Args:
        folder: the directory.
        sleep: waits; for tests.
    """

    def __init__(self, folder: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder = folder
        self._sleep = sleep

    def refresh(self) -> KeyPair:
        """As :meth:`CertificateSource.refresh`.

        Raises:
            InvalidArgument: the files cannot be read.
        """
        # The kubelet swaps both atomically, by a symlink: if two reads are equal, the files belong together.
        previous = self._read()
        for _ in range(_MAX_ATTEMPTS):
            current = self._read()
            if current == previous:
                return current
            previous = current
            self._sleep(0.1)
        raise InvalidArgument(f"the certificate in {self._folder} keeps changing while it is read")

    def _read(self) -> KeyPair:
        try:
            return KeyPair((self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes())
        except OSError as error:
            raise InvalidArgument(f"cannot read the webhook's certificate: {error}") from error


def _parse_secret(secret: dict[str, Any]) -> CertificateBundle | None:
    data = secret.get("data") or {}
    if not data:
        return None
    try:
        return CertificateBundle.from_data({key: base64.b64decode(value, validate=True) for key, value in data.items()})
    except (binascii.Error, InvalidArgument) as error:
        log.warning("replacing invalid certificates in Secret %s: %s", secret["metadata"].get("name"), error)
        return None
