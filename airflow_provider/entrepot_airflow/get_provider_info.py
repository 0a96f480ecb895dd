"""Provider metadata for Airflow's providers manager."""

from __future__ import annotations

from typing import Any

INTEGRATION = "Entrepot"


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

    def modules(kind: str) -> list[dict[str, Any]]:
        return [{"integration-name": INTEGRATION, "python-modules": [f"entrepot_airflow.{kind}.entrepot"]}]

    def field(label: str, description: str) -> dict[str, Any]:
        return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}

    return {
        "package-name": "entrepot",
        "name": "Entrepot",
        "description": "Passes XComs by object ID through shared memory.",
        "integrations": [{"integration-name": INTEGRATION, "tags": ["software"]}],
        "hooks": modules("hooks"),
        "operators": modules("operators"),
        "sensors": modules("sensors"),
        "triggers": modules("triggers"),
        "connection-types": [
            {
                "connection-type": "entrepot",
                "hook-class-name": "entrepot_airflow.hooks.entrepot.EntrepotHook",
                "hook-name": "Entrepot",
                "ui-field-behaviour": {"hidden-fields": ["host", "port", "login", "password", "schema"]},
                "conn-fields": {
                    "address": field("Address", "unix:///path of the store's socket; default: that of [entrepot]"),
                    "scope": field("Scope", "name of an installation in the store; default: this one's"),
                    "session": field("Session", "default: the scope's own, which never expires"),
                },
            }
        ],
        "asset-uris": [
            {
                "schemes": ["entrepot"],
                "handler": "entrepot_airflow.assets.sanitize_uri",
                "factory": "entrepot_airflow.assets.create_asset",
                "to_openlineage_converter": "entrepot_airflow.assets.convert_asset_to_openlineage",
            }
        ],
        "filesystems": ["entrepot_airflow.filesystem"],
        "notifications": ["entrepot_airflow.callbacks.FailoverNotifier"],
        "config": {
            "entrepot": {
                "description": "Settings of EntrepotXComBackend. ENTREPOT_* environment variables take precedence.",
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
                        "Copy mode for reading values: never (read-only, no copy), on_write, or always.",
                        example="on_write",
                        default="never",
                    ),
                    "inline_below": option(
                        "Plain JSON values smaller than this many bytes stay in Airflow's database.",
                        example="0",
                        default="4096",
                        kind="integer",
                    ),
                    "allocate": option(
                        "Whether NumPy and Arrow make tasks' large values in the store, so that passing them on copies "
                        "nothing. Unset: yes, if XComs go through the store.",
                        example="False",
                        kind="boolean",
                    ),
                    "reserve": option(
                        "What a task reserves in the store before it runs, waiting for its turn: off, measured (what "
                        "it stored in earlier runs), or a size.",
                        example="measured",
                        default="off",
                    ),
                    "reserve_timeout": option(
                        "How long a task waits for that before it runs without: seconds, or 90s, 15min, 1h.",
                        example="1h",
                        default="10min",
                    ),
                    "allow_pickle": option(
                        "Whether to accept pickled values: yes, no, or listed (only the classes in [core] "
                        "allowed_deserialization_classes). Unset: yes unless the store is shared between users, "
                        "limited to that list if it differs from Airflow's default.",
                        example="listed",
                    ),
                    "drop_finished": option(
                        "Whether to remove a run's values once it has succeeded and nobody reads them; its tasks can "
                        "then no longer be cleared individually. Values of deleted runs are always removed.",
                        example="True",
                        default="False",
                        kind="boolean",
                    ),
                    "keep_after_success": option(
                        "How long the values of a run are kept after it has succeeded: 0s, 90s, 12h, 7d, or forever "
                        "(until its session expires, see session_ttl). Unset: forever.",
                        example="1h",
                    ),
                    "keep_after_failure": option(
                        "How long the values of a run are kept after it has failed; as for keep_after_success.",
                        example="3d",
                    ),
                    "keep_at_most": option(
                        "How long the values of a run are kept after it has ended, however it did.",
                        example="7d",
                    ),
                    "keep_runs": option(
                        "How many of the newest successful and of the newest failed runs of each DAG keep their values "
                        "in spite of these rules. Unset: 1; 0 with drop_finished alone.",
                        example="3",
                        kind="integer",
                    ),
                    "policy": option(
                        "Policy file for checkpoints and failover. Unset: no policy.",
                        example="/etc/entrepot/policy.yaml",
                    ),
                    "locations": option(
                        "Source of object locations, for scheduling pods near their data: references, a file's "
                        "absolute path, or another source as NAME:REST. Unset: pods are not modified.",
                        example="/etc/entrepot/locations.yaml",
                    ),
                    "socket_folder": option(
                        "Folder of the store's socket on the nodes, mounted into pods.",
                        example="/run/entrepot",
                        default="/run/entrepot",
                    ),
                    "shared_memory": option(
                        "Limit of /dev/shm in pods, such as 4Gi; none: do not mount it. Unset: the pod's own limit.",
                        example="4Gi",
                    ),
                    "rerun_timeout": option(
                        "How long a task waits for the scheduler to clear the tasks that recompute its lost inputs.",
                        example="2m",
                        default="60s",
                    ),
                },
            }
        },
    }
