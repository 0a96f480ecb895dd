"""Failed responses of the API server, as errors with a remedy."""

from __future__ import annotations

from typing import Any, ClassVar

from entrepot.errors import AccessDenied, EntrepotError

CONFLICT = 409  # status if a resource exists already, or has changed since it was read


class ClusterUnavailable(EntrepotError, ConnectionError):
    """The API server cannot be reached, or is overloaded; the same request may succeed later."""

    code: ClassVar[str] = "cluster_unavailable"
    short_code: ClassVar[str] = "E601"


class ClusterRefused(EntrepotError):
    """The API server rejected a request, and would reject it again.

    Attributes:
        status: the HTTP status.
        reason: the server's reason, such as ``"Invalid"``.
    """

    code: ClassVar[str] = "cluster_refused"
    short_code: ClassVar[str] = "E602"

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ResourceNotFound(ClusterRefused):
    """The resource, its namespace, or its kind does not exist."""

    code: ClassVar[str] = "resource_not_found"
    short_code: ClassVar[str] = "E603"


class ListExpired(ClusterRefused):
    """A list was read too slowly and must be read again from the start."""

    code: ClassVar[str] = "list_expired"
    short_code: ClassVar[str] = "E604"


def refused(method: str, path: str, status: int, content: Any) -> EntrepotError:
    """The error for a failed response that retries cannot fix.

    Args:
        method, path: of the request.
        status: of the response.
        content: its body, usually a Kubernetes Status.
    """
    reason, message = "", ""
    if isinstance(content, dict):
        reason, message = str(content.get("reason") or ""), str(content.get("message") or "")
    elif content:
        message = str(content)[:500]
    text = f"{method} {path}: the API server returned {status} {reason}".rstrip() + (f": {message}" if message else "")
    if status == 401:
        return AccessDenied(f"{text}; the credentials are missing or expired: log in to the cluster again")
    if status == 403:
        if "exceeded quota" in message:
            return AccessDenied(f"{text}; raise the ResourceQuota, or publish fewer objects")
        return AccessDenied(f"{text}; bind a Role with this verb and resource to the account used")
    if status == 404:
        return ResourceNotFound(text, status, reason)
    if status == 410:
        return ListExpired(text, status, reason)
    return ClusterRefused(text, status, reason)
