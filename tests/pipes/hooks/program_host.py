"""Runs programs that come one a line, in one process, so that its libraries are imported once.

Each line is a JSON object with ``code``; the answer is one with ``printed``, what the code printed, and ``failed``, the
end of its traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback


def main() -> None:
    answers = sys.stdout
    for line in sys.stdin:
        printed, failed = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(json.loads(line)["code"], "<program>", "exec"), {"__name__": "__main__"})
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)  # as at the end of a program
            failed = "".join(traceback.format_exception(error))[-2000:]
        print(json.dumps({"printed": printed.getvalue(), "failed": failed}), file=answers, flush=True)


main()
