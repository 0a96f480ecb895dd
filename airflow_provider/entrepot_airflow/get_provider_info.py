"""Provider metadata for Airflow's providers manager."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, with the options of the section ``[entrepot]`` of Airflow's configuration."""

    def option(description: str, *, example: str, default: str | None = None, kind: str = "string") -> dict[str, Any]:
        return {
            "description": description,
            "version_added": "0.1.0",
            "type": kind,
            "example": example,
            "default": default,
        }

    return {
        "package-name": "entrepot",
        "name": "Entrepot",
        "description": "XComs handed over by object ID, through shared memory.",
        "notifications": ["entrepot_airflow.callbacks.FailoverNotifier"],
        "config": {
            "entrepot": {
                "description": "How EntrepotXComBackend hands values over. ENTREPOT_* variables win over this section.",
                "options": {
                    "address": option(
                        "Address of the store. Unset: the private store of the user that runs the task.",
                        example="unix:///run/entrepot/store.sock",
                    ),
                    "scope": option(
                        "Name of this installation in the store. Unset: derived from AIRFLOW_HOME.",
                        example="production",
                    ),
                    "session_ttl": option(
                        "How long a DAG run's values are kept after their last use: seconds, or 30m, 24h, 7d.",
                        example="12h",
                        default="24h",
                    ),
                    "copy": option(
                        "How values are read: never (read-only, no copy), on_write, or always.",
                        example="on_write",
                        default="never",
                    ),
                    "inline_below": option(
                        "Plain JSON values of fewer bytes than this stay in Airflow's database.",
                        example="0",
                        default="4096",
                        kind="integer",
                    ),
                    "allow_pickle": option(
                        "Whether values are taken that were pickled: yes, no, or listed: of the classes in [core] "
                        "allowed_deserialization_classes. Unset: unless the store is shared between users, and held to "
                        "that list where it says more than Airflow ships.",
                        example="listed",
                    ),
                    "drop_finished": option(
                        "Whether a run's values go once it succeeded and nobody reads them any more; its tasks cannot "
                        "be cleared one by one then. Values of deleted runs go in any case.",
                        example="True",
                        default="False",
                        kind="boolean",
                    ),
                    "policy": option(
                        "File that says what is checkpointed and what happens when something is lost. Unset: nothing.",
                        example="/etc/entrepot/policy.yaml",
                    ),
                    "locations": option(
                        "Where objects are, for pods that follow them: references, a file's absolute path, or another "
                        "source's NAME:REST. Unset: pods are left alone.",
                        example="/etc/entrepot/locations.yaml",
                    ),
                    "socket_folder": option(
                        "Folder of the store's socket on the nodes, which pods get.",
                        example="/run/entrepot",
                        default="/run/entrepot",
                    ),
                    "shared_memory": option(
                        "Limit of /dev/shm in pods, such as 4Gi; none: it is not mounted. Unset: the pod's own limit.",
                        example="4Gi",
                    ),
                    "rerun_timeout": option(
                        "How long a task waits for the scheduler to clear the tasks whose values it misses.",
                        example="2m",
                        default="60s",
                    ),
                },
            }
        },
    }
