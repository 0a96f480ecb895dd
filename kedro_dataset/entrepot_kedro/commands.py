"""``kedro entrepot ...``: what a project has in the store, and going on after a failed run.

Registered by the entry point ``kedro.project_commands``, so it is there in every project.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from entrepot import ObjectID, Store

    from entrepot_kedro.policy.run_journal import RunJournal

NANOSECONDS = 1e9
GROUP = "kedro"  # first part of the names of runs' sessions
DATASET_PREFIX = "dataset:"  # of the names of datasets
OWN_PREFIX = "entrepot."  # of the names of sessions with records of the store's own


@click.group(name="Entrepot")
def commands() -> None:
    """What Kedro adds to its own commands."""


@commands.group(name="entrepot")
def entrepot_commands() -> None:
    """Datasets in the store: status, gc, checkpoint, resume."""


@entrepot_commands.command()
@click.pass_obj
def status(metadata: Any) -> None:
    """List the project's sessions: of runs that failed or are running, its own, and those that you have named."""
    from entrepot.garbage import unused_sessions
    from entrepot.phrases import count_of, human_bytes

    with _errors():
        if not _is_store_running():
            click.echo("no store runs, so nothing is stored")
            return
        store = _project_store(metadata)
        unused = unused_sessions(store, store.scope)
        click.echo(f"scope {store.scope} in the store of host {store.host} ({store.address})")
        infos = [info for info in store.sessions() if info.scope == store.scope and info.objects]
        if not infos:
            click.echo("nothing is stored")
        for info in sorted(infos, key=lambda each: each.idle_seconds):
            objects = store.list(session=info.session)
            click.echo(
                f"{info.session or '(no run)'}: {_state(info.session, unused)}, {count_of(len(objects), 'object')}, "
                f"{human_bytes(sum(each.nbytes for each in objects))}, last used {_age(info.idle_seconds)} ago"
            )
            for name in sorted(name for each in objects for name in each.names):
                if name.startswith(DATASET_PREFIX):  # others are records of the policy
                    click.echo(f"  {name.removeprefix(DATASET_PREFIX)}")


@entrepot_commands.command()
@click.option(
    "--older-than",
    default="0s",
    metavar="TIME",
    callback=lambda _context, _parameter, text: _parse_age(text),
    help="only sessions not used for this long, such as 2h or 7d",
)
@click.option("-n", "--dry-run", is_flag=True, help="only show what would be removed")
@click.pass_obj
def gc(metadata: Any, older_than: float, dry_run: bool) -> None:
    """Remove what failed runs of this project have left. What is in use stays, and so do persistent datasets and what
    belongs to a DAG run of Airflow."""
    from entrepot.garbage import remove_session

    with _errors():
        if not _is_store_running():
            click.echo("no store runs, so there is nothing to remove")
            return
        store = _project_store(metadata)
        before = (time.time() - older_than) * NANOSECONDS
        ended = _ended_sessions(store, metadata)
        sessions = {name: last_used for name, last_used in ended.items() if last_used <= before}
        if not sessions:
            click.echo("nothing to remove")
        for session, last_used in sessions.items():
            reason = "" if dry_run else remove_session(store, store.scope, session, last_used)
            outcome = f"kept, {reason}:" if reason else "would remove" if dry_run else "removed"
            click.echo(f"{outcome} {session}, last used {_age(time.time() - last_used / NANOSECONDS)} ago")


@entrepot_commands.command()
@click.argument("url")
@click.option("--session", help="name of the session; default: that of the last run that is not running any more")
@click.option("--dataset", help="save only this dataset; default: the whole session")
@click.pass_obj
def checkpoint(metadata: Any, url: str, session: str | None, dataset: str | None) -> None:
    """Save what a run has stored at URL, a folder or an fsspec URL, and print the command that brings it back."""
    from entrepot.phrases import count_of, human_bytes

    with _errors():
        _check_store_is_running()
        store = _project_store(metadata)
        source = store.session(_chosen(store, metadata, session))
        what = source if dataset is None else _object_of(source, dataset)
        report = source.save(what, url)
        objects = count_of(report.objects, "object")
        click.echo(f"saved {source.session_name} at {url}: {objects}, {human_bytes(report.nbytes)}")
        # Datasets are found by IDs that are derived from scope and session, so they are needed where they were.
        where = shlex.join(["--scope", store.scope, "--session", source.session_name])
        place = url if "://" in url else os.path.abspath(url)  # the command may be used in another folder
        click.echo(f"to bring it back: entrepot load {shlex.quote(place)} {where}")


@entrepot_commands.command()
@click.option("--session", help="name of the failed run's session; default: that of the last one")
@click.option("--pipeline", "-p", help="pipeline of a run of which it is not known; default: that of the failed run")
@click.option("--runner", "-r", default="SequentialRunner", help="as for kedro run")
@click.option("--env", "-e", help="environment of a run of which it is not known; default: that of the failed run")
@click.pass_obj
def resume(metadata: Any, session: str | None, pipeline: str | None, runner: str, env: str | None) -> None:
    """Go on with a failed run, in its session, with its pipelines, environment, configuration source and parameters.

    It begins with the nodes that the failed run has not finished, and computes what depends on them. Of a run that was
    killed these are not known: then it is kedro run --only-missing-outputs, which leaves outputs that exist as they
    are, also those of earlier runs.
    """
    from entrepot_io.connections import unshared_store

    with _errors():
        _check_store_is_running()
        store = _project_store(metadata)
        chosen = _chosen(store, metadata, session)
        if session is None:
            _check_newest(store, metadata, chosen)
        request = _request_of(store, chosen, {"pipeline_names": [pipeline] if pipeline else None, "env": env})
        runner_class = _runner_class(runner)
        _check_pipelines(request.get("pipeline_names", []))
        start_nodes = _journal(store).start_nodes(chosen)
        if renamed := _unknown_nodes(start_nodes):
            click.echo(f"the project has no node {', '.join(renamed)} any more, with which the failed run was to go on")
            start_nodes = []
        held = unshared_store(store.address, store.scope, chosen, durable=False)  # from now on, it is in use
    if start_nodes:
        click.echo(f"going on in session {chosen}, from {', '.join(start_nodes)} on")
    else:
        click.echo(f"going on in session {chosen}; outputs that exist are left as they are, also those of earlier runs")
    if request:
        click.echo(f"as the failed run: {', '.join(f'{name} {value}' for name, value in request.items())}")
    if start_nodes:
        request["from_nodes"] = start_nodes  # the others that were asked for come before these, or are done
    os.environ["ENTREPOT_SESSION"] = chosen  # before any dataset is made
    from kedro.framework.session import KedroSession

    of_project = {name: request.pop(name, None) for name in ("env", "conf_source", "runtime_params")}
    with held, KedroSession.create(project_path=metadata.project_path, **of_project) as opened:
        kedro_session: Any = opened  # the declared type is one whose run() takes no arguments
        kedro_session.run(runner=runner_class(), only_missing_outputs=not start_nodes, **request)
    _journal(store).remove_session(chosen)


def _parse_age(text: str) -> float:
    from entrepot.errors import InvalidArgument
    from entrepot_io.sessions import parse_ttl

    try:
        return 0.0 if text == "0s" else parse_ttl(text)
    except InvalidArgument as error:
        raise click.BadParameter(
            f"an age must be at least one second, such as 90s, 2h or 7d, or 0s, but got {text!r}"
        ) from error


def _is_store_running() -> bool:
    from entrepot_io.connections import is_store_running
    from entrepot_io.settings import resolve

    return is_store_running(resolve().address)


def _check_store_is_running() -> None:
    """
    Raises:
        ObjectNotFound: no store listens, and a new one would have nothing.
    """
    from entrepot.errors import ObjectNotFound

    if not _is_store_running():
        raise ObjectNotFound(
            "no store runs, so no failed run of this project has left anything in it: run kedro run. Where "
            "ENTREPOT_DURABLE is set, --only-missing-outputs takes from there what it has"
        )


def _project_store(metadata: Any) -> Store:
    from entrepot_io.connections import scope_store
    from entrepot_io.scopes import folder_scope
    from entrepot_io.settings import resolve

    settings = resolve()
    return scope_store(settings.address, settings.scope or folder_scope("kedro", Path(metadata.project_path)))


def _request_of(store: Store, session: str, options: dict[str, Any]) -> dict[str, Any]:
    """What the run of a session was asked for, or, if that is not known, ``options``, as far as they are given.

    Raises:
        InvalidArgument: an option is not what is known, nothing is known or given, or the run had parameters that only
            Python can represent.
    """
    from entrepot.errors import InvalidArgument

    given = {name: value for name, value in options.items() if value is not None}
    request = _journal(store).request_of(session)
    if request is None and not given:
        raise InvalidArgument(
            f"it is not known with which pipelines and parameters the run of session {session} was started: the "
            "project's journal of runs has no readable entry for it. Its values would be mixed with those of others: "
            "begin anew by kedro run, with --only-missing-outputs if its outputs may stay. If you know that it had the "
            "parameters of the project, name its pipeline: --pipeline __default__"
        )
    if request is None:
        return given
    for name, value in given.items():
        if (recorded := request.get(name)) != value:
            raise InvalidArgument(
                f"the run of session {session} had {name} {recorded or 'of the project'}, but {value} is given: its "
                "values would be mixed with others. Leave that option out to resume it, or begin a new run by kedro run"
            )
    return request


def _check_newest(store: Store, metadata: Any, chosen: str) -> None:
    """
    Raises:
        ObjectNotFound: a newer run than that of the chosen session has failed, and has left nothing.
    """
    from entrepot.errors import ObjectNotFound

    newest = _journal(store).newest_failed_session(Path(metadata.project_path))
    if newest is not None and newest != chosen:
        raise ObjectNotFound(
            f"the last failed run, that of session {newest}, has left nothing in the store, or another process has it "
            f"in use: begin anew by kedro run. An earlier one has left something: to go on with that one, name its "
            f"session: --session {chosen}"
        )


def _runner_class(name: str) -> Any:
    """
    Raises:
        InvalidArgument: there is no such class.
    """
    from entrepot.errors import InvalidArgument
    from kedro.utils import load_obj

    try:
        return load_obj(name, "kedro.runner")
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"there is no runner {name!r}: {error}") from error


def _check_pipelines(names: list[str]) -> None:
    """
    Raises:
        InvalidArgument: the project has no pipeline of one of these names.
    """
    from entrepot.errors import InvalidArgument
    from kedro.framework.project import pipelines

    if unknown := [name for name in names if name not in pipelines]:
        raise InvalidArgument(
            f"the project has no pipeline {unknown[0]!r}, only {', '.join(sorted(pipelines))}: begin anew by kedro run"
        )


def _unknown_nodes(names: list[str]) -> list[str]:
    """Those of the nodes that none of the project's pipelines has."""
    from kedro.framework.project import pipelines

    present = {node.name for pipeline in pipelines.values() for node in pipeline.nodes} if names else set[str]()
    return [name for name in names if name not in present]


def _object_of(store: Store, dataset: str) -> ObjectID:
    """The object of a dataset in a session, by its name in the catalog.

    Raises:
        ObjectNotFound: the session does not have it; the message says what it has.
    """
    from entrepot.errors import ObjectNotFound
    from entrepot_io.keys import kedro_key, object_name

    from entrepot_kedro.values.transcoding import plain_name

    try:
        return store.resolve(object_name(kedro_key(plain_name(dataset))))
    except ObjectNotFound as error:
        names = sorted(
            name.removeprefix(DATASET_PREFIX)
            for each in store.list(session=store.session_name)
            for name in each.names
            if name.startswith(DATASET_PREFIX)
        )
        raise ObjectNotFound(
            f"session {store.session_name} has no dataset {dataset!r}, only {', '.join(names) or 'none at all'}"
        ) from error


def _journal(store: Store) -> RunJournal:
    from entrepot_policy.state.events import log_file

    from entrepot_kedro.policy.run_journal import RunJournal

    return RunJournal(log_file(store.scope))


def _state(session: str, unused: Container[str]) -> str:
    from entrepot_io.sessions import is_kedro_session_in_airflow

    if not session:
        return "of the project"
    if session.startswith(OWN_PREFIX):
        return "of Entrepot itself"
    if session not in unused:
        return "in use"
    if is_kedro_session_in_airflow(session):
        return "of a DAG run of Airflow"
    return "ended" if _is_run(session) else "named, not in use"


def _ended_sessions(store: Store, metadata: Any) -> dict[str, int]:
    """Sessions of this project's runs that no process has open, with the time of their last use (as
    ``time.time_ns()``); the last one first."""
    from entrepot.garbage import unused_sessions

    others = _other_projects(store, metadata)
    unused = unused_sessions(store, store.scope)
    ended = {name: used for name, used in unused.items() if _is_run(name) and name not in others}
    return dict(sorted(ended.items(), key=lambda item: -item[1]))


def _other_projects(store: Store, metadata: Any) -> dict[str, str]:
    """By session, the folder of its run's project, if that is another one with the same scope."""
    project = str(Path(metadata.project_path).resolve())
    return {session: folder for session, folder in _journal(store).projects().items() if folder != project}


def _chosen(store: Store, metadata: Any, session: str | None) -> str:
    """The name of the session that a command works on.

    Raises:
        ObjectNotFound: there is none, or none of this name.
        InvalidArgument: it is that of another project, with the same scope.
    """
    from entrepot.errors import InvalidArgument, ObjectNotFound

    if session is not None:
        if not session or session not in {info.session for info in store.sessions() if info.scope == store.scope}:
            raise ObjectNotFound(f"there is no session {session!r} of this project: see kedro entrepot status")
        if other := _other_projects(store, metadata).get(session):
            raise InvalidArgument(
                f"session {session!r} is that of a run of the project in {other}, which has the same scope, "
                f"{store.scope!r}: use the command there"
            )
        return session
    listed = {info.session for info in store.sessions() if info.scope == store.scope and info.objects}
    for name in _ended_sessions(store, metadata):
        if name in listed:  # a run that has saved nothing is no failed run to go on with
            return name
    running = [info.session for info in store.sessions() if info.scope == store.scope and _is_run(info.session)]
    if running:
        raise ObjectNotFound(
            f"no failed run of this project has left anything in the store; {', '.join(sorted(running))}: in use by a "
            "run that is going on, or by a process that holds its outputs"
        )
    raise ObjectNotFound(
        "no failed run of this project has left anything in the store: run kedro run, or name a session (--session)"
    )


def _is_run(session: str) -> bool:
    """Whether it is that of a ``kedro run``, and not of a DAG run, which goes on while no process has it open."""
    from entrepot_io.sessions import is_kedro_session_in_airflow

    return session.startswith(f"{GROUP}/") and not is_kedro_session_in_airflow(session)


@contextmanager
def _errors() -> Iterator[None]:
    """Report the store's errors as those of a command: one line, without a traceback."""
    from entrepot.errors import EntrepotError

    try:
        yield
    except EntrepotError as error:
        raise click.ClickException(str(error)) from error


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
