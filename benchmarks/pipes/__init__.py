"""Pairs of engines that hand a table to each other, by a file and by a pipe. See ``benchmarks.commands.pipes``."""
