"""Traces of runs: an asset outlives the run that writes it, so its session does not say to which run a span belongs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from entrepot_io.connections import session_store
from entrepot_io.sessions import run_session
from entrepot_io.tracing import switch as tracing

from entrepot_dagster.compat.steps import executing_step

if TYPE_CHECKING:
    from dagster import InputContext, OutputContext
    from entrepot_io.settings import Settings


def traced_in_run(
    context: InputContext | OutputContext, settings: Settings, scope: str
) -> AbstractContextManager[None]:
    """``with traced_in_run(...)``: spans belong to the step's run; without traces, nothing.

    Args:
        context: of the value.
        settings: the IO manager's.
        scope: the deployment.
    """
    if not tracing.is_on() or (step := executing_step(context)) is None:
        return nullcontext()
    from entrepot_io.tracing.context import in_run

    session = run_session("dagster", step.run_id)
    return in_run(lambda: session_store(settings.address, scope, session, settings.session_ttl))
