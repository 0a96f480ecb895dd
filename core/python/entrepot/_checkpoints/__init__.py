"""Checkpoints and durable tiers: what another package implements, and how it is found."""
