"""Real data sets: a folder in, an archive and something to be measured on out; no download."""
