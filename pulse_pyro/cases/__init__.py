"""Whole analyses of data that somebody else recorded, one module each."""
