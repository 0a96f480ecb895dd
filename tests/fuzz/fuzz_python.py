"""``fuzz_python.py TARGET CORPUS [libFuzzer options]``: run one of ``targets.py`` under Atheris.

CORPUS is a directory: the target's seeds are written there, and interesting inputs found by fuzzing are kept there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import atheris as atheris_module  # pyright: ignore[reportMissingModuleSource, reportMissingImports]

atheris: Any = atheris_module  # its attributes are created at import

INSTRUMENTED = ["entrepot", "entrepot_io", "entrepot_checkpoints", "entrepot_policy", "targets"]
with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
    from targets import TARGETS


def main() -> None:
    target, corpus = TARGETS[sys.argv[1]], Path(sys.argv[2])
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)

    def run(data: bytes) -> None:  # returns nothing, since libFuzzer interprets a return value
        target.run(data)

    atheris.Setup([sys.argv[0], *sys.argv[3:], str(corpus)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
