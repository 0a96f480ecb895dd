"""The environment in which JVMs, also those that a program starts, load the agent for pipes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from entrepot.errors import ObjectNotFound

AGENT_VARIABLE = "ENTREPOT_PIPES_AGENT"
OPTIONS_VARIABLE = "JAVA_TOOL_OPTIONS"
_JAR = "entrepot-pipes-agent.jar"
_PACKAGE = Path(__file__).parent
_LAUNCHERS = frozenset({"java", "ij", "pyspark", "spark-shell", "spark-sql", "spark-submit"})


def find_agent(environment: Mapping[str, str]) -> Path | None:
    """The agent's jar: the one that ENTREPOT_PIPES_AGENT names, or in the package, where ``make jvm`` puts it.

    Raises:
        ObjectNotFound: ENTREPOT_PIPES_AGENT names a file that does not exist.
    """
    if named := environment.get(AGENT_VARIABLE):
        if not Path(named).is_file():
            raise ObjectNotFound(f"{AGENT_VARIABLE} names {named!r}, which is no file: build the jar by 'make jvm'")
        return Path(named)
    built = _PACKAGE / "jars" / _JAR
    return built if built.is_file() else None


def jvm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with the agent in JAVA_TOOL_OPTIONS; unchanged if there is no agent."""
    agent = find_agent(environment)
    options = environment.get(OPTIONS_VARIABLE, "")
    if agent is None or os.fspath(agent) in options:
        return dict(environment)
    return {**environment, OPTIONS_VARIABLE: f"{options} {_quoted(f'-javaagent:{agent}')}".strip()}


def lacks_agent(program: str, environment: Mapping[str, str]) -> bool:
    """Whether a program is known to run in a JVM, and there is no agent for it."""
    return os.path.basename(program) in _LAUNCHERS and find_agent(environment) is None


def _quoted(option: str) -> str:
    """As the JVM splits that variable: at white space, except within quotes."""
    return option if option == shlex.quote(option) else f'"{option}"'
