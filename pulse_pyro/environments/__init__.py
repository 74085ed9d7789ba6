"""Worlds with a known truth, to measure policies in."""
