"""How wrong a law's expected features can be: bands on held-out units turned into D_t."""
