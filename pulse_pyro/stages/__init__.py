"""The stages of a study in a file: each reads artefacts, and writes its own whole or not at all."""
