"""Parts that all benchmarks share: plans, builds to measure, workers, the systems under test, figures."""
