"""How much history is enough: the decay of D_t, and where imputation stops to dominate."""
