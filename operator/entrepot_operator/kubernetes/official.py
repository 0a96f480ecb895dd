"""What is used of the official Kubernetes client, or an error that says how to install it.

Only what every supported version has: its configuration, its loaders, and the connections (of urllib3) that it makes
from them. Its generated classes are not used, as the resources here are plain JSON.
"""

from __future__ import annotations

from entrepot.errors import InvalidArgument

try:
    import urllib3
    import yaml
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config import ConfigException, incluster_config, kube_config
except ImportError as error:
    raise InvalidArgument(
        f"access to a cluster needs the official Kubernetes client ({error}): pip install 'entrepot[kubernetes]'"
    ) from error

__all__ = ["ApiClient", "ConfigException", "Configuration", "incluster_config", "kube_config", "urllib3", "yaml"]
