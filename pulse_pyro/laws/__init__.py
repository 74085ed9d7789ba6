"""Laws: a Pyro model plus a causal summary; fitted laws: arrays of posterior draws."""
