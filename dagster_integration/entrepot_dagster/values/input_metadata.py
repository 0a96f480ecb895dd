"""What Dagster's pages show of an input that was loaded: how much of it is a copy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue
from entrepot.library_errors import is_library_error, reason_of

from entrepot_dagster.compat.steps import add_loaded_metadata, has_step

if TYPE_CHECKING:
    from dagster import InputContext

log = logging.getLogger("dagster.entrepot")
COPIED = "entrepot/copied_bytes"


def report_copies(context: InputContext, value: Any, unread: Sequence[Any] = ()) -> Any:
    """Add the number of bytes that lie outside of the store's memory to the event of a loaded input; return the value.

    Args:
        context: of the input.
        value: as the step gets it. Of one whose memory cannot be located, nothing is said.
        unread: the tables that it reads later, if it is a lazy frame or a reader, or a dictionary of these.
    """
    if has_step(context):  # otherwise there is no event
        from entrepot_io.copied_bytes import copied_bytes

        try:
            copied = copied_bytes(list(unread) if unread else value)
        except BaseException as error:  # the step has its input, whatever a library says of its memory
            if not is_library_error(error):
                raise
            log.warning("Entrepot: the metadata of an input have no %s: %s", COPIED, reason_of(error))
            return value
        if copied is not None:
            add_loaded_metadata(context, {COPIED: MetadataValue.int(copied)})
    return value
