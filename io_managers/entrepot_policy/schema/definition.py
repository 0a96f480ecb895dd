"""The definition of a policy file, as pydantic models: the single source of reader, JSON schema and reference.

Importing this module imports pydantic and builds the models, so only code that reads a policy, or prints the schema,
imports it.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from entrepot_policy.schema.constants import (
    DEFAULT_BACKOFF_FACTOR,
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_EVENT_BYTES,
    DEFAULT_FAILURES_PER_DAY,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_BACKOFF_SECONDS,
    DEFAULT_MAX_TASKS,
    DEFAULT_MODE,
    DEFAULT_QUEUE,
    DEFAULT_WAIT_SECONDS,
    EventName,
    Mode,
    OrchestratorName,
    StepName,
)
from entrepot_policy.schema.limit import Limit
from entrepot_policy.schema.sections import EXACTLY_ONE, SCALAR, SECTION, Section, scalar_or_section
from entrepot_policy.schema.value_types import (
    BYTES,
    COUNT,
    SECONDS,
    Comparison,
    Expected,
    Integer,
    Items,
    Number,
    Omittable,
    OneOf,
    whole,
)

_NAME = "[a-z][a-z0-9]*(_[a-z0-9]+)*"


def _target_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ValueError(name)
    return name


Glob = Annotated[str, Field(min_length=1), Expected("a glob", "train_*", string=True)]
Globs = Annotated[tuple[Glob, ...], Items(bare=True)]
Orchestrators = Annotated[tuple[Annotated[OrchestratorName, OneOf()], ...], Items(bare=True)]
SizeRange = Annotated[tuple[Annotated[Limit, Comparison(BYTES)], ...], Items(bare=True)]
TimeRange = Annotated[tuple[Annotated[Limit, Comparison(SECONDS)], ...], Items(bare=True)]
CountRange = Annotated[tuple[Annotated[Limit, Comparison(COUNT)], ...], Items(bare=True)]
Seconds = Annotated[float, SECONDS]
Bytes = Annotated[float, BYTES]
AtLeastOne = Annotated[int, Integer()]
UpTo1000 = Annotated[int, Integer(most=1000)]
ModeName = Annotated[Mode, OneOf()]
Recompute = Annotated[Literal["auto", "never"], OneOf()]
TargetOrUrl = Annotated[
    str,
    Field(min_length=1),
    Expected("the name of a target, or a URL", "s3://bucket/checkpoints/{pipeline}/{run}", string=True),
]


class MatchSection(Section, title="a match"):
    """Conditions of a rule. All keys must match; of a list, one item (of bounds, all)."""

    orchestrator: Orchestrators = Field(default_factory=tuple, description="the orchestrator")
    pipeline: Globs = Field(default_factory=tuple, description="Airflow's DAG, Dagster's job, Kedro's pipeline")
    task: Globs = Field(default_factory=tuple, description="Airflow's task, Dagster's op or step, Kedro's node")
    asset: Globs = Field(default_factory=tuple, description="the asset key, its parts joined by '/'")
    dataset: Globs = Field(default_factory=tuple, description="the name in Kedro's catalog")
    key: Globs = Field(default_factory=tuple, description="the key in the store, as 'entrepot ls' shows it")
    tag: Globs = Field(
        default_factory=tuple, description="a tag of the task or asset; a tag with a value is 'name=value'"
    )
    type: Globs = Field(default_factory=tuple, description="the type of the value, such as 'pandas.*'")
    size: SizeRange = Field(
        default_factory=tuple, description="size in bytes, such as '>=1MiB', or a list of bounds that must all hold"
    )
    host: Orchestrators = Field(
        default_factory=tuple,
        description="former name of 'orchestrator', deprecated",
        json_schema_extra={"deprecated": True},
    )

    def orchestrators(self) -> tuple[OrchestratorName, ...]:
        """The orchestrators that are written, under either name; under both: those in both."""
        if self.host and self.orchestrator:
            return tuple(name for name in self.orchestrator if name in self.host)
        return self.orchestrator or self.host


Matches = Annotated[
    Annotated[Glob, Tag(SCALAR)] | Annotated[MatchSection, Tag(SECTION)], Discriminator(scalar_or_section)
]


class WhenSection(Section, title="a condition"):
    """Conditions under which a rule of 'checkpoint' writes a checkpoint. All keys must hold."""

    recompute_seconds: TimeRange = Field(
        default_factory=tuple,
        description="duration of the task's last run and of upstream tasks without checkpointed outputs",
    )
    size: SizeRange = Field(default_factory=tuple, description="size of the value in bytes")
    fan_out: CountRange = Field(
        default_factory=tuple, description="how many tasks read the value, if the orchestrator knows"
    )


When = Annotated[
    Annotated[Literal["always", "never", "auto"], OneOf(), Tag(SCALAR)] | Annotated[WhenSection, Tag(SECTION)],
    Discriminator(scalar_or_section),
]


class CheckpointRuleSection(Section, title="a rule of 'checkpoint'"):
    """A rule about which outputs are checkpointed, when and where."""

    match: Matches = Field(
        default="*", description="which outputs: a glob over task names, or a mapping; all its keys must match"
    )
    every: AtLeastOne = Field(default=1, description="only in every n-th run of the task")
    when: When = Field(default="always", description="the condition; all its keys must hold")
    mode: Annotated[ModeName | None, Omittable("as in checkpoint")] = Field(
        default=None, description="whether the task waits for the checkpoint"
    )
    keep: Annotated[AtLeastOne | None, Omittable("as in checkpoint")] = Field(
        default=None, description="how many checkpoints of an output to keep, across all runs"
    )
    target: Annotated[TargetOrUrl | None, Omittable("as in checkpoint")] = Field(
        default=None, description="where checkpoints are written"
    )


class RetrySection(Section, title="retry"):
    """Run the task again."""

    attempts: Annotated[UpTo1000 | None, Omittable("max_attempts of the rule")] = Field(
        default=None, description="maximum number of retries"
    )
    delay: Annotated[Seconds | None, Omittable("backoff of the rule")] = Field(
        default=None, description="seconds before the first retry"
    )
    factor: Annotated[float, Number(1, 100)] = Field(
        default=DEFAULT_BACKOFF_FACTOR, description="factor by which the delay grows with each retry"
    )
    max_delay: Annotated[Seconds | None, Omittable("max_backoff of the rule")] = Field(
        default=None, description="maximum delay in seconds"
    )


class FailSection(Section, title="fail"):
    """Let the task fail."""

    reason: Annotated[str, Field(min_length=1), Expected("a string", string=True)] = Field(
        description="text of the error"
    )


class StepSection(Section, title="a step", json_schema_extra={"minProperties": 1, "maxProperties": 1}):
    """A step with settings of its own: exactly one of its keys."""

    retry: Annotated[RetrySection | None, Omittable()] = Field(default=None, description="retry with limits of its own")
    fail: Annotated[FailSection | None, Omittable()] = Field(default=None, description="give up, with a reason")

    exactly_one: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_exactly_one(self) -> StepSection:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError(EXACTLY_ONE, "one key is required")
        return self


Step = Annotated[
    Annotated[StepName, OneOf(), Tag(SCALAR)] | Annotated[StepSection, Tag(SECTION)], Discriminator(scalar_or_section)
]


class FailoverRuleSection(Section, title="a rule of 'failover'"):
    """A rule about losses and failures, and the steps to take."""

    on: Annotated[tuple[Annotated[EventName, OneOf()], ...], Items(bare=True)] = Field(
        description="the event, or a list of events"
    )
    match: Matches = Field(
        default="*", description="tasks or outputs, as in a checkpoint rule; for a lost object, its producer"
    )
    do: Annotated[tuple[Step, ...], Items(bare=True)] = Field(
        description="the steps, tried in order until one succeeds"
    )
    max_attempts: UpTo1000 = Field(
        default=DEFAULT_MAX_ATTEMPTS, description="maximum passes through the steps, and retries of a retry step"
    )
    backoff: Seconds = Field(
        default=DEFAULT_BACKOFF_SECONDS, description="seconds before the second attempt; doubled each time"
    )
    max_backoff: Seconds = Field(default=DEFAULT_MAX_BACKOFF_SECONDS, description="maximum back-off in seconds")
    max_tasks: AtLeastOne = Field(
        default=DEFAULT_MAX_TASKS, description="maximum number of tasks to rerun for one loss"
    )


class TargetSection(Section, title="a target"):
    """A location for checkpoints."""

    url: Annotated[str, Field(min_length=1), Expected("a URL", "s3://bucket/checkpoints/{run}", string=True)] = Field(
        description="a URL template"
    )
    options: dict[str, object] = Field(
        default_factory=dict,
        description="for fsspec's driver; ${NAME} is read from the environment",
        json_schema_extra={"additionalProperties": True},  # older versions of pydantic leave it out
    )
    credentials: Annotated[
        Annotated[str, Field(min_length=1)] | None,
        Expected("the name of an entry of credentials.yml", string=True),
        Omittable(),
    ] = Field(default=None, description="Kedro: an entry of `credentials.yml`, whose options are added to these")
    fallback: Annotated[
        Annotated[str, Field(pattern=whole(_NAME)), Expected("the name of a target", string=True)] | None, Omittable()
    ] = Field(default=None, description="target to use if this one cannot be written")


class CheckpointSection(Section, title="checkpoint"):
    """Rules about checkpoints, and their defaults."""

    enabled: bool = Field(default=True, description="whether checkpoints are written")
    target: Annotated[TargetOrUrl | None, Omittable()] = Field(default=None, description="default target of the rules")
    mode: ModeName = Field(default=DEFAULT_MODE, description="whether tasks wait for checkpoints")
    keep: Annotated[AtLeastOne | None, Omittable("all")] = Field(
        default=None, description="how many checkpoints of an output to keep, across all runs"
    )
    queue: Annotated[int, Integer(most=100_000)] = Field(
        default=DEFAULT_QUEUE, description="async: maximum pending checkpoints"
    )
    wait: Seconds = Field(
        default=DEFAULT_WAIT_SECONDS, description="async: seconds to wait for them at the end of a run or process"
    )
    on_error: Annotated[Literal["warn", "fail"], OneOf()] = Field(
        default="warn", description="whether a failed sync checkpoint fails its task"
    )
    failures_per_day: Annotated[float, Number()] = Field(
        default=DEFAULT_FAILURES_PER_DAY, description="auto: assumed rate of store losses, before any occur"
    )
    rules: Annotated[tuple[CheckpointRuleSection, ...], Items()] = Field(
        description="the first rule that matches an output applies"
    )


class MemoryRuleSection(Section, title="a rule of 'memory'"):
    """A rule about which outputs may be dropped."""

    match: Matches = Field(default="*", description="which outputs: as in a checkpoint rule")
    recompute: Recompute = Field(description="auto: drop values that are cheaper to recompute than to spill")


class MemorySection(Section, title="memory"):
    """Behaviour when memory is short."""

    recompute: Recompute = Field(default="never", description="for outputs that no rule matches")
    overhead: Annotated[
        Seconds | None, Omittable("0 if the orchestrator reruns it in the reader's process, else 10s")
    ] = Field(default=None, description="overhead of rerunning a task, in addition to its own run time")
    rules: Annotated[tuple[MemoryRuleSection, ...], Items()] = Field(
        default_factory=tuple, description="the first rule that matches an output applies"
    )


class EventsSection(Section, title="events"):
    """The log of losses, reloads, checkpoints and reruns."""

    enabled: bool = Field(default=True, description="whether events are logged")
    folder: Annotated[
        Annotated[str, Field(pattern=whole(r"/[\s\S]+")), Expected("an absolute path", string=True)] | None,
        Omittable("$XDG_STATE_HOME/entrepot/events"),
    ] = Field(default=None, description="log folder")
    max_bytes: Bytes = Field(
        default=DEFAULT_EVENT_BYTES, description="maximum size; when it is reached, the older half is removed"
    )


class PolicySection(Section, title="a policy"):
    """The policy: what to checkpoint, and what to do when something is lost."""

    version: AtLeastOne = Field(description="format version: 1")
    targets: dict[
        Annotated[
            str, AfterValidator(_target_name), Expected(f"the name of a target: it must match {_NAME}", string=True)
        ],
        TargetSection,
    ] = Field(
        default_factory=dict,
        description="named locations for checkpoints",
        json_schema_extra={"propertyNames": {"pattern": whole(_NAME)}},
    )
    checkpoint: Annotated[CheckpointSection | None, Omittable()] = Field(
        default=None, description="what to checkpoint, where and when"
    )
    memory: Annotated[MemorySection | None, Omittable()] = Field(
        default=None, description="what may be dropped when memory is short, and recomputed when it is read"
    )
    failover: Annotated[tuple[FailoverRuleSection, ...], Items()] = Field(
        default_factory=tuple, description="what to do when something is lost; the first matching rule applies"
    )
    events: EventsSection = Field(default_factory=EventsSection, description="the event log")
