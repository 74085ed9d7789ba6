"""Errors, array types, seeds, files, parallel work, progress: what knows nothing of bandits."""
