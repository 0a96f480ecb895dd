"""Rules for the life time of the values of runs that have ended, from the section ``[entrepot]``."""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.errors import InvalidArgument
from entrepot_io.sessions import parse_ttl
from entrepot_io.settings import switch

from entrepot_airflow.configuration import option

DEFAULT_KEEP_RUNS = 1
FOREVER = "forever"


@dataclass(frozen=True)
class LifetimeRules:
    """When the values of a run that has ended may be removed. Without a rule, its session's time to live decides.

    Attributes:
        after_success: seconds after its end that a successful run's values are kept; None: no rule.
        after_failure: the same for a failed run.
        max_age: seconds after its end that any run's values are kept; None: no rule.
        keep_runs: how many of the newest successful and of the newest failed runs of each DAG keep their values
            nevertheless: for the page that shows them, and for tasks that pull with ``include_prior_dates``.
    """

    after_success: float | None = None
    after_failure: float | None = None
    max_age: float | None = None
    keep_runs: int = 0

    def limit(self, state: str) -> tuple[float, str] | None:
        """How long the values of a run with this outcome are kept, and by which option; None: no rule says so."""
        rules = [(self.max_age, "keep_at_most")]
        if state == "success":
            rules.append((self.after_success, "keep_after_success"))
        elif state == "failed":
            rules.append((self.after_failure, "keep_after_failure"))
        return min(((seconds, name) for seconds, name in rules if seconds is not None), default=None)

    @property
    def empty(self) -> bool:
        """Whether there is no rule, so that only values of deleted runs are removed."""
        return self.after_success is None and self.after_failure is None and self.max_age is None


def configured_rules() -> LifetimeRules:
    """Return the rules of the configuration.

    Raises:
        InvalidArgument: an option that cannot be read; the message names it and its value.
    """
    dropped = switch("drop_finished", option("drop_finished") or None)
    after_success = _duration("keep_after_success")
    if dropped and after_success is not None:
        raise InvalidArgument(
            "[entrepot] drop_finished and keep_after_success contradict each other: drop_finished is "
            "keep_after_success = 0s; leave it out"
        )
    rules = LifetimeRules(0.0 if dropped else after_success, _duration("keep_after_failure"), _duration("keep_at_most"))
    if rules.empty:
        return rules
    # Who sets drop_finished alone expects the values of the newest run to go as well, as they always did.
    only_dropped = dropped and rules == LifetimeRules(after_success=0.0)
    return LifetimeRules(
        rules.after_success,
        rules.after_failure,
        rules.max_age,
        _count("keep_runs", 0 if only_dropped else DEFAULT_KEEP_RUNS),
    )


def _duration(name: str) -> float | None:
    value = (option(name) or "").strip()
    if not value or value.lower() == FOREVER:
        return None
    if value in ("0", "0s"):
        return 0.0
    try:
        return parse_ttl(value)
    except InvalidArgument:
        raise InvalidArgument(
            f"[entrepot] {name} must be a duration such as 0s, 90s, 12h or 7d, or {FOREVER}, not {value!r}"
        ) from None


def _count(name: str, default: int) -> int:
    value = (option(name) or "").strip()
    if not value:
        return default
    if not value.isdecimal():
        raise InvalidArgument(f"[entrepot] {name} must be a number of runs, not {value!r}")
    return int(value)
