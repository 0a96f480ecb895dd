"""Inputs whose value is gone for good, of a step that Dagster would retry.

A retry reads the same input once more: it uses up the step's attempts and their delays, and fails as the first one did.
So such a step fails at once, with what has to run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dagster import Failure, MetadataValue
from entrepot.errors import ObjectLost

from entrepot_dagster.compat.steps import has_retries

if TYPE_CHECKING:
    from dagster import InputContext

LOST = "entrepot/lost_input"


@contextmanager
def no_retries_in_vain(context: InputContext) -> Iterator[None]:
    """While an input is read: if its value is lost, and the step has a retry policy, let the step fail at once.

    A value that may come back is left to the retry policy: a retry may run on the host that has it, or reach that host.

    Args:
        context: of the input.

    Raises:
        Failure: it is lost; its cause is the ``ObjectLost``. Without a retry policy, that is raised as it is.
    """
    try:
        yield
    except ObjectLost as error:
        if error.may_come_back or not has_retries(context):
            raise
        lost, advice = _written_by(context)
        raise Failure(
            f"{error.message}. Retries of this step cannot bring it back, so there are none: {advice}; a policy does "
            "it for you",
            metadata={LOST: MetadataValue.text(lost)},
            allow_retries=False,
        ) from error


def _written_by(context: InputContext) -> tuple[str, str]:
    """What is lost, and how to have it again."""
    if context.has_asset_key:
        asset = context.asset_key.to_user_string()
        return asset, f"materialize {asset} again, then re-execute from failure"
    upstream = context.upstream_output
    step_key = "" if upstream is None else upstream.step_key
    return "/".join(context.get_identifier()[1:]), f"re-execute the run from the step {step_key}"
