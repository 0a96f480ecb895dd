"""Contexts of partitioned assets, which only newer versions of Dagster build for tests."""

from __future__ import annotations

import inspect

import pytest
from dagster import build_output_context

needs_partition_contexts = pytest.mark.skipif(
    "asset_partitions_def" not in inspect.signature(build_output_context).parameters,
    reason="this version of Dagster builds no contexts of partitions",
)
