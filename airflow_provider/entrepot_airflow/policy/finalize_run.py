"""``python -m entrepot_airflow.policy.finalize_run SCOPE SESSION``: finalizes a run in a process of its own.

It writes checkpoints that tasks left pending, so that neither a task nor the scheduler waits for a slow target.
"""

from __future__ import annotations

import sys

from entrepot.errors import EntrepotError
from entrepot_policy import PolicyRuntime


def main(scope: str, session: str) -> int:
    """Finalize a session.

    Args:
        scope: scope of the installation.
        session: session of the run.

    Returns:
        The exit code: 0, or 1 if something was left undone.
    """
    try:
        runtime = PolicyRuntime.of_environment(scope=scope)
        if runtime is None:
            return 0
        report = runtime.run_ended(runtime.session(session))
    except EntrepotError as error:
        print(f"entrepot: cannot finalize {session}: {error}", file=sys.stderr)
        return 1
    for problem in (*report.problems, *(f"{key} was not checkpointed" for key in report.abandoned)):
        print(f"entrepot: {session}: {problem}", file=sys.stderr)
    return 1 if report.problems or report.abandoned else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
