"""Readers of public data sets: a folder in, arrays out; nothing is ever downloaded."""
