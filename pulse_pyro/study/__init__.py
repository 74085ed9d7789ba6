"""A study in a file: which data, which law, which features, what is at stake."""
