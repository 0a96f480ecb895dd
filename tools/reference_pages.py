"""The pages of the documentation's reference that are made from docstrings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReferencePage:
    """A page.

    Attributes:
        path: in the site.
        title: its heading.
        about: a sentence under it.
        names: what it documents, by the module that users import it from.
    """

    path: str
    title: str
    about: str
    names: tuple[str, ...]

    def markdown(self) -> str:
        """The page, for mkdocstrings."""
        return "\n\n".join([f"# {self.title}", self.about, *(f"::: {name}" for name in self.names)]) + "\n"


def _of(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


REFERENCE = (
    ReferencePage(
        "reference/store.md",
        "Store",
        "A connection to a store, and what its methods return. See [clusters](../cluster.md) for the methods about "
        "other hosts, [eviction](../eviction.md) for hints and locality sets.",
        _of(
            "entrepot",
            "connect Store ObjectID ObjectInfo PutResult SessionInfo Blob Pin Durable LocalitySet Reservation",
        )
        + _of("entrepot", "Allocating"),
    ),
    ReferencePage(
        "reference/collections.md",
        "Collections and builders",
        "Many objects as one value ([collections](../collections.md)), and tables that are built in the store "
        "([builders](../builders.md)).",
        _of("entrepot", "Collection CollectionBuilder TableBuilder ColumnBuilder"),
    ),
    ReferencePage(
        "reference/streams.md",
        "Streams",
        "Values that one task reads while another still writes: see [streams](../streams.md).",
        _of("entrepot", "Stream StreamWriter StreamReader"),
    ),
    ReferencePage(
        "reference/services.md",
        "Services",
        "Shuffles, aggregations and other services on pages: see [services](../services.md).",
        _of(
            "entrepot",
            "Shuffle ShuffleWriter Aggregation AggregationWriter Broadcast JoinMap Page PageIterator ScratchSet",
        ),
    ),
    ReferencePage(
        "reference/errors.md",
        "Error classes",
        "All derive from `EntrepotError`. Causes and ways out: see [errors](../errors/README.md).",
        ("entrepot.errors",),
    ),
    ReferencePage(
        "reference/codecs.md",
        "Codecs",
        "How types are stored; see [codecs](../codecs.md).",
        ("entrepot._codecs.own_codecs.codec", "entrepot.codec.Codec", "entrepot_io.register"),
    ),
    ReferencePage(
        "reference/airflow.md",
        "Airflow",
        "The provider's public names; see [Airflow](../orchestrators/airflow.md).",
        _of(
            "entrepot_airflow",
            "EntrepotXComBackend store_options stored PolicyRetries FailoverNotifier last_checkpoint",
        )
        + _of("entrepot_airflow", "on_failure on_retry pod_override DataLocalityCallback"),
    ),
    ReferencePage(
        "reference/dagster.md",
        "Dagster",
        "The integration's public names; see [Dagster](../orchestrators/dagster.md).",
        _of(
            "entrepot_dagster",
            "EntrepotIOManager TieredIOManager EntrepotResource PipesValues TypeHandler rerun_failed",
        )
        + _of("entrepot_dagster", "policy_sensors policy_failure_hook policy_retries store_failure_hook")
        + _of("entrepot_dagster", "store_failure_sensor StepFailure entrepot_k8s_job_executor placement_tags"),
    ),
    ReferencePage(
        "reference/kedro.md",
        "Kedro",
        "The plugin's public names; see [Kedro](../orchestrators/kedro.md).",
        _of("entrepot_kedro", "EntrepotDataset EntrepotParallelRunner node_annotations"),
    ),
    ReferencePage(
        "reference/frames.md",
        "Dataframe programs",
        "Programs on several ranks; see [dataframe programs](../dataframes.md).",
        _of("entrepot_frames", "Executor Env Frame Communicator"),
    ),
)
