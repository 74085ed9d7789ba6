"""Policies: one batched linear core, thin shells around it."""

from pulse_pyro._core.namespace import lazy_names

_HOMES = {
    "linear": "State Decision init decide update",
    "horizon": "play_horizon",
    "pulse": "PulseUCB",
    "committee": "Committee",
    "carried": "past_rewards",
    "balls": "RewardNoise reward_noise",
    "unsure_directions": "Directions directions augmented_bound",
    "adaptive": "AdaptivePulseUCB adaptive_features adaptive_error",
    "pulse_pyro.radius": "robust robust_paper thompson",
    "clbbf_ucb": "Exploration clbbf clbbf_shared clbbf_warm",
    "larl_ucb": "larl",
    "meb": "play_meb",
    "kalman_oracle": "kalman autoregression",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
