"""Watches a store: its status, its objects, who pins them, and what happened."""
