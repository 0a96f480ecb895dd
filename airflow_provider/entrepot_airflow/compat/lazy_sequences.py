"""The sequence through which a task reads the results of all instances of a mapped task."""

from __future__ import annotations

from typing import Any

from airflow.sdk.execution_time.lazy_sequence import LazyXComSequence as LazyXComSequence


def replace_sequences(kind: type[Any]) -> None:
    """Let tasks get sequences of a class derived from :class:`LazyXComSequence`."""
    from airflow.sdk.definitions import xcom_arg

    module: Any = xcom_arg  # which does not export the name
    module.LazyXComSequence = kind


def stored_entries(sequence: LazyXComSequence[Any], start: int, stop: int) -> list[Any]:
    """Return what Airflow stores for a part of a sequence, in one request; shorter if the sequence ends before.

    Raises:
        AirflowRuntimeError: the API server does not answer, or refuses.
        TypeError: it answers with something else.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetXComSequenceSlice, XComSequenceSliceResult

    source = sequence._xcom_arg.operator
    answer = task_runner.SUPERVISOR_COMMS.send(
        GetXComSequenceSlice(
            key=sequence._xcom_arg.key,
            dag_id=source.dag_id,
            task_id=source.task_id,
            run_id=sequence._ti.run_id,
            start=start,
            stop=stop,
            step=None,
        )
    )
    if not isinstance(answer, XComSequenceSliceResult):
        raise TypeError(f"the supervisor answered a request for a part of a sequence with {answer!r}")
    return list(answer.root)


def deserialize_entry(entry: Any) -> Any:
    """Return the value of a stored entry, as the deployment's XCom backend reads it."""
    from airflow.sdk.execution_time.lazy_sequence import _XComWrapper
    from airflow.sdk.execution_time.xcom import XCom

    return XCom.deserialize_value(_XComWrapper(entry))
