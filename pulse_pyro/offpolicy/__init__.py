"""What another policy would have earned, from a log of one whose probabilities are known."""
