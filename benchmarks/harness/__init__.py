"""What every benchmark needs: plans, builds to measure, workers, the systems under test, figures."""
