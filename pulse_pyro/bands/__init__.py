"""Uniform confidence bands for a regression function: NumPy and SciPy only."""
