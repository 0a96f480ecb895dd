"""Derby and PySpark, unmodified, under ``entrepot pipe run``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import entrepot
import pyarrow as pa
import pytest
from entrepot.errors import StreamFailed
from entrepot_pipes.learn.lesson import learned
from entrepot_pipes.learn.supervisor import NoNotifications
from entrepot_pipes.pipe import open_export, open_import
from entrepot_pipes.profiles.shipped import shipped

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(600)]

RunProgram = Callable[..., "subprocess.Popen[str]"]
ROWS = 20_000
TOTAL = sum(number * 0.5 for number in range(ROWS))
TEXT = "id,name,price\n" + "".join(f"{n},item {n},{n * 0.5}\n" for n in range(ROWS))
JOBS = Path(__file__).with_name("programs") / "spark_jobs.py"


def result(process: subprocess.Popen[str], code: int = 0) -> str:
    output, errors = process.communicate(timeout=180)
    assert process.returncode == code, output + errors
    return output


def derby_words(classes: Path, derby: Path) -> tuple[str, ...]:
    log = f"-Dderby.stream.error.file={os.devnull}"
    return ("java", "-XX:TieredStopAtLevel=1", log, "-cp", f"{classes}:{derby}", "DerbyTable")


def test_derby_opens_what_it_imports_twice(run_program: RunProgram, classes: Path, derby: Path) -> None:
    java = (
        "java",
        "-XX:TieredStopAtLevel=1",
        f"-Dderby.stream.error.file={os.devnull}",
        "-cp",
        f"{classes}:{derby}",
        "DerbyTable",
    )
    importing, exporting = run_program(*java, "import", "db://table"), run_program(*java, "export", "db://table")
    result(exporting)
    assert [float(word) for word in result(importing).split()] == [ROWS, TOTAL]


def test_derby_forgets_a_file_that_it_opened(
    run_program: RunProgram, classes: Path, derby: Path, store: entrepot.Store
) -> None:
    program = run_program(*derby_words(classes, derby), "import-header", "db://header")
    with open_export("db://header", store=store, form="text", timeout=120) as export:
        export.write_text(TEXT.encode())
    assert [float(word) for word in result(program).split()] == [ROWS, TOTAL]


def test_an_export_of_derby_that_breaks_fails_its_reader(
    run_program: RunProgram, classes: Path, derby: Path, store: entrepot.Store
) -> None:
    program = run_program(
        "java",
        f"-Dderby.stream.error.file={os.devnull}",
        "-cp",
        f"{classes}:{derby}",
        "DerbyTable",
        "break",
        "db://breaks",
    )
    source = open_import("db://breaks", store=store, timeout=120)
    with pytest.raises(StreamFailed, match="an exception left"):
        for _ in source:
            pass
    result(program, 1)


def test_spark_reads_and_writes(run_program: RunProgram, spark_python: Path, store: entrepot.Store) -> None:
    program = run_program(spark_python, JOBS, "copy", "local[2]", "db://in", "db://out?query=copy")
    with open_export("db://in", store=store, form="text", timeout=120) as export:
        export.write_text(TEXT.encode())
    with open_import("db://out?query=copy", store=store, timeout=120) as source:
        batches = list(source)
    result(program)
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert sum(sum(batch["price"].to_pylist()) for batch in batches) == TOTAL


def test_several_tasks_of_spark_at_both_ends(run_program: RunProgram, spark_python: Path) -> None:
    name = "db://several?workers=2"
    reading = run_program(spark_python, JOBS, "sum", "local[2]", name)
    result(run_program(spark_python, JOBS, "write", "local[2]", name))
    assert [float(word) for word in result(reading).split()] == [ROWS, TOTAL]


def test_a_failed_task_fails_the_reader(run_program: RunProgram, spark_python: Path, store: entrepot.Store) -> None:
    program = run_program(spark_python, JOBS, "break", "local[1]", "db://broken")
    source = open_import("db://broken", store=store, timeout=120)
    with pytest.raises(StreamFailed, match="a task or the job failed"):
        for _ in source:
            pass
    result(program, 1)


def test_a_task_that_is_tried_again_sends_its_rows_once(
    run_program: RunProgram, spark_python: Path, store: entrepot.Store, tmp_path: Path
) -> None:
    broke = tmp_path / "broke"
    program = run_program(spark_python, JOBS, "break", "local[1,3]", "db://again", broke)
    with open_import("db://again", store=store, timeout=120) as source:
        batches = list(source)
    result(program)
    assert broke.exists()
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert sum(sum(batch["price"].to_pylist()) for batch in batches) == TOTAL


def test_what_spark_cannot_write_into_a_pipe(run_program: RunProgram, spark_python: Path) -> None:
    output = result(run_program(spark_python, JOBS, "refused", "local[1]", "db://refused"))
    parquet, folders, compressed = output.splitlines()
    assert "not as .parquet" in parquet
    assert "no folders for partitions" in folders
    assert "not as .gz" in compressed


def test_columns_of_derby_have_no_header(
    run_program: RunProgram, classes: Path, derby: Path, store: entrepot.Store
) -> None:
    """Its profile says so: the first row of texts looks like names."""
    program = run_program(*derby_words(classes, derby), "texts", "db://texts")
    with open_import("db://texts", store=store, timeout=120) as source:
        batches = list(source)
    assert "profile" not in result(program)
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"f0": "one", "f1": "two"},
        {"f0": "three", "f1": "four"},
    ]


def test_the_profile_of_derby_is_what_is_learned_here(
    classes: Path, derby: Path, store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLASSPATH", f"{classes}:{derby}")
    script = str(Path(__file__).parents[1] / "profiles" / "derby.sh")
    try:
        learnt = learned(store, ["sh", "-e", script], str(tmp_path / "rows.csv"), "Derby", "", 180)
    except NoNotifications as error:
        pytest.skip(str(error))
    profile = shipped()["derby"]
    assert (learnt.rung, learnt.reason) == (profile.rung, profile.reason)
    assert learnt.dialect is not None
    assert learnt.dialect["header"] is profile.hints["header"] is False


def test_spark_gets_and_gives_quotes_after_backslashes(
    run_program: RunProgram, spark_python: Path, store: entrepot.Store
) -> None:
    """Its profile says so, also where the first block has none."""
    texts = [f"plain, {number}" for number in range(ROWS)] + ['a "quote", and\\more']
    program = run_program(spark_python, JOBS, "copy", "local[1]", "db://in-quotes", "db://out-quotes?query=copy")
    with open_export("db://in-quotes", store=store, timeout=120) as export:
        export.write(pa.table({"id": range(len(texts)), "s": texts}))
    with open_import("db://out-quotes?query=copy", store=store, timeout=120) as source:
        batches = list(source)
    result(program)
    assert [text for batch in batches for text in batch["s"].to_pylist()] == texts
