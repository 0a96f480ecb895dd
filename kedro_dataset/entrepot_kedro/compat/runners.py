"""Base classes of the plugin's runners, for what a subclass of Kedro's own ones cannot say by their interface."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.runner import ParallelRunner, SequentialRunner


class InnerRunner(SequentialRunner):
    """Runs nodes in this thread, within another run: releases no datasets, and suggests nothing when a node fails."""

    @staticmethod
    def _release_datasets(node: Node, catalog: Any, load_counts: dict[str, int], pipeline: Pipeline) -> None:
        pass

    def _suggest_resume_scenario(self, pipeline: Pipeline, done_nodes: Iterable[Node], catalog: Any) -> None:
        pass  # left to the outer runner


class ExecutorRunner(ParallelRunner):
    """ParallelRunner whose nodes run in an executor that a subclass creates."""

    @abstractmethod
    def create_executor(self, max_workers: int) -> Executor:
        """Return the executor for one run.

        Args:
            max_workers: how many nodes may run at a time.
        """

    @property
    def _logger(self) -> logging.Logger:
        # Kedro takes the one of the class's module, and a project's logging configuration shows progress for Kedro's
        # own modules only.
        return logging.getLogger(ParallelRunner.__module__)

    def _get_executor(self, max_workers: int) -> Executor:
        return self.create_executor(max_workers)
