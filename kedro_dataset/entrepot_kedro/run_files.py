"""Where the files about runs are that have to outlive the store: a folder beside the event log of the scope."""

from __future__ import annotations

from pathlib import Path

from entrepot_io.keys import shorten

ENTRY = ".json"  # of the journal
FINISHED = ".finished"  # nodes of a session's runs


def run_folder(log_path: Path) -> Path:
    """Return the folder for an event log."""
    return log_path.with_suffix(".runs")


def file_name(name: str, suffix: str) -> str:
    """Return a file name for a run ID or a session."""
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return f"{shorten(plain, 120)}{suffix}"
