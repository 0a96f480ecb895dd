"""The job for Dagster: one op per function, the IO manager a resource.

A user's definitions would be

    defs = Definitions(jobs=[flights.to_job()], resources={"io_manager": EntrepotIOManager()})

:func:`flights_job` adds a clock around whichever IO manager the demo asks for, and runs each op in its own process.
"""

# No `from __future__ import annotations`: Dagster uses the annotations of ops as types.
import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from dagster import (
    Config,
    DagsterInstance,
    FilesystemIOManager,
    GraphDefinition,
    InitResourceContext,
    InputContext,
    IOManager,
    JobDefinition,
    JobExecutionResult,
    OutputContext,
    ResourceDefinition,
    execute_job,
    graph,
    io_manager,
    multiprocess_executor,
    op,
    reconstructable,
)

from examples.flights import job
from examples.flights.dagster_names import FILES_VARIABLE, TRANSPORT_VARIABLE
from examples.flights.measure.meter import Meter


class LoadConfig(Config):
    """Configuration of the first op."""

    scale: int = 1
    rows: int | None = None


@op
def load(config: LoadConfig) -> Any:
    return job.load(config.scale, config.rows)


@op
def join(tables: Any) -> Any:
    return job.join(tables)


@op
def features(joined: Any) -> Any:
    return job.features(joined)


@op
def train(featured: Any) -> Any:
    return job.train(featured)


@op
def score(model: Any, featured: Any) -> Any:
    return job.score(model, featured)


@op
def report(joined: Any, scored: Any) -> Any:
    return job.report(joined, scored)


def _flights() -> Any:
    joined = join(load())
    featured = features(joined)
    return report(joined, score(train(featured), featured))


flights: GraphDefinition = graph(name="flights")(_flights)


class MeasuredIOManager(IOManager):
    """Measures another IO manager's two methods."""

    def __init__(self, inner: IOManager, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        with self._meter.call("write", context.step_key):
            self._inner.handle_output(context, obj)

    def load_input(self, context: InputContext) -> Any:
        upstream = context.upstream_output
        with self._meter.call("read", upstream.step_key if upstream is not None else context.name):
            return self._inner.load_input(context)


@io_manager(required_resource_keys={"transport"})
def measured_io_manager(context: InitResourceContext) -> MeasuredIOManager:
    """The IO manager in the resource ``transport``, measured."""
    return MeasuredIOManager(context.resources.transport, Meter.from_environment())


def selected_io_manager() -> Any:
    """The IO manager that the environment selects."""
    transport_name = os.environ.get(TRANSPORT_VARIABLE, "entrepot")
    if transport_name == "files":
        return FilesystemIOManager(base_dir=os.environ.get(FILES_VARIABLE))
    if transport_name == "entrepot":
        from entrepot_dagster import EntrepotIOManager

        return EntrepotIOManager()
    raise ValueError(f"{TRANSPORT_VARIABLE} must be 'entrepot' or 'files', not {transport_name!r}")


def measured_job(work: GraphDefinition, transport: Any = None) -> JobDefinition:
    """A graph as a job with a transport, measured; each op runs in its own process.

    Args:
        work: the graph.
        transport: an IO manager; default: the one that the environment selects.
    """
    io_manager_resource: ResourceDefinition = measured_io_manager
    selected = selected_io_manager() if transport is None else transport
    return work.to_job(
        resource_defs={"transport": selected, "io_manager": io_manager_resource},
        executor_def=multiprocess_executor,
    )


def flights_job() -> JobDefinition:
    """The job of this example."""
    return measured_job(flights)


def print_failed_steps(result: JobExecutionResult) -> None:
    """Print why steps of a run failed."""
    for event in result.all_events:
        if event.is_step_failure:
            print(f"step {event.step_key} failed: {event.step_failure_data.error_display_string}", flush=True)


def _importable_job() -> Any:
    """:func:`flights_job` of the module under its own name, importable by the steps' processes; here it is
    `__main__`.
    """
    return importlib.import_module("examples.flights.dagster_job").flights_job


def main() -> int:
    """Run the job and write its report, and Dagster's metadata of each output, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answer", type=Path, required=True, help="output file for the report")
    arguments = parser.parse_args()
    config = {
        "ops": {"load": {"config": {"scale": arguments.scale, "rows": arguments.rows}}},
        # One process per step, forked from a server with all imports done, rather than importing them each time.
        "execution": {
            "config": {
                "max_concurrent": arguments.workers,
                "start_method": {"forkserver": {"preload_modules": [_importable_job().__module__]}},
            }
        },
    }
    with (
        DagsterInstance.get() as instance,
        execute_job(reconstructable(_importable_job()), instance=instance, run_config=config) as result,
    ):
        if not result.success:
            print_failed_steps(result)
            return 1
        outputs: dict[str, dict[str, str]] = {}
        for event in result.all_events:
            if event.event_type_value == "HANDLED_OUTPUT" and event.step_key is not None:
                metadata = event.event_specific_data.metadata  # type: ignore[union-attr]
                outputs[event.step_key] = {name: str(entry.value) for name, entry in metadata.items()}
        answer = {"report": result.output_for_node("report"), "outputs": outputs}
    arguments.answer.write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
