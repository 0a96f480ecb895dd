"""Two runs of assets in this process, or one of ops with a process for each step, with traces; run as a script."""

import sys

import numpy as np
from dagster import (
    DagsterInstance,
    Definitions,
    JobDefinition,
    asset,
    define_asset_job,
    execute_job,
    job,
    op,
    reconstructable,
)
from entrepot_dagster import EntrepotIOManager


@asset
def numbers() -> np.ndarray:
    return np.arange(1000)


@asset
def doubled(numbers: np.ndarray) -> np.ndarray:
    return numbers * 2


def assets_job() -> JobDefinition:
    definitions = Definitions(
        assets=[numbers, doubled],
        jobs=[define_asset_job("assets")],
        resources={"io_manager": EntrepotIOManager()},
    )
    return definitions.resolve_job_def("assets")


@op
def make() -> np.ndarray:
    return np.arange(1000)


@op
def total(values: np.ndarray) -> int:
    return int(values.sum())


@job(resource_defs={"io_manager": EntrepotIOManager()})
def ops_job() -> None:
    total(make())


if __name__ == "__main__":
    with DagsterInstance.get() as instance:
        if sys.argv[1] == "assets":  # two runs in one process, which must not mix
            for _ in range(2):
                assert assets_job().execute_in_process(instance=instance).success
        else:
            with execute_job(reconstructable(ops_job), instance=instance) as result:
                assert result.success
