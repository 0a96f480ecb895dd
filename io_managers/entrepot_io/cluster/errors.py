"""What the API server answered, as errors that say what to do."""

from __future__ import annotations

from typing import Any, ClassVar

from entrepot.errors import AccessDenied, EntrepotError

CONFLICT = 409  # the status where a resource is there already, or is not any more what it was read as


class ClusterUnavailable(EntrepotError, ConnectionError):
    """The API server cannot be reached, or is overloaded; the same request may succeed later."""

    code: ClassVar[str] = "cluster_unavailable"


class ClusterRefused(EntrepotError):
    """The API server refused a request, and would again.

    Attributes:
        status: of HTTP.
        reason: the server's word for it, such as ``"Invalid"``.
    """

    code: ClassVar[str] = "cluster_refused"

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class ResourceNotFound(ClusterRefused):
    """It is not there: the resource, its namespace, or its kind."""

    code: ClassVar[str] = "resource_not_found"


class ListExpired(ClusterRefused):
    """A list was read too slowly and has to be begun again."""

    code: ClassVar[str] = "list_expired"


def refused(method: str, path: str, status: int, said: Any) -> EntrepotError:
    """The error for an answer that is no success and cannot become one.

    Args:
        method, path: of the request.
        status: of the answer.
        said: its body, a Status of Kubernetes as a rule.
    """
    reason, message = "", ""
    if isinstance(said, dict):
        reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    elif said:
        message = str(said)[:500]
    told = f"{method} {path}: the API server answered {status} {reason}".rstrip() + (f": {message}" if message else "")
    if status == 401:
        return AccessDenied(f"{told}; the credentials are missing or have run out: log in to the cluster again")
    if status == 403:
        if "exceeded quota" in message:
            return AccessDenied(f"{told}; raise the ResourceQuota, or publish fewer objects")
        return AccessDenied(f"{told}; a Role with this verb and resource has to be bound to whoever asks")
    if status == 404:
        return ResourceNotFound(told, status, reason)
    if status == 410:
        return ListExpired(told, status, reason)
    return ClusterRefused(told, status, reason)
