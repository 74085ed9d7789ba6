"""Agents side by side on the same worlds."""
