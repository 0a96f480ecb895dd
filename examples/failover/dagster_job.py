"""The job for Dagster. The policy is in force because ENTREPOT_POLICY is set where it runs."""

# No `from __future__ import annotations`: Dagster uses the annotations of ops as types.
import json
from pathlib import Path
from typing import Any

from dagster import Config, GraphDefinition, JobDefinition, graph, multiprocess_executor, op
from entrepot_dagster import EntrepotIOManager, policy_retries

from examples.failover import tasks


class LoadConfig(Config):
    """Configuration of the first op."""

    scale: int = 1
    rows: int | None = None


@op
def load(config: LoadConfig) -> Any:
    return tasks.load(config.scale, config.rows)


@op
def join(tables: Any) -> Any:
    return tasks.join(tables)


@op
def features(joined: Any) -> Any:
    return tasks.features(joined)


@op
def train(featured: Any) -> Any:
    return tasks.train(featured)


@op
def score(model: Any, featured: Any) -> Any:
    return tasks.score(model, featured)


class ReportConfig(Config):
    """Settings of the report."""

    answer: str


@op
def report(config: ReportConfig, joined: Any, scored: Any) -> Any:
    answer = tasks.report(joined, scored)
    Path(config.answer).write_text(json.dumps(answer), encoding="utf-8")
    return answer


def _failover() -> Any:
    joined = join(load())
    featured = features(joined)
    return report(joined, score(train(featured), featured))


failover: GraphDefinition = graph(name="failover")(_failover)


def failover_job() -> JobDefinition:
    """The job, with each step in a process of its own."""
    return failover.to_job(
        resource_defs={"io_manager": EntrepotIOManager()},
        executor_def=multiprocess_executor,
        op_retry_policy=policy_retries(),
    )
