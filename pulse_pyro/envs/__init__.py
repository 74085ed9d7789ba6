"""Worlds with a known truth, recorded rounds, and agents side by side on them."""

from pulse_pyro._core.namespace import lazy_names

# name -> function() -> Environment, with its own defaults
ENVS = {
    "main_linear": "pulse_pyro.envs.arma:main_linear",
    "main_nonlinear": "pulse_pyro.envs.arma:main_nonlinear",
    "w_times_action": "pulse_pyro.envs.arma:w_times_action",
    "nonlinear_w_times_action": "pulse_pyro.envs.arma:nonlinear_w_times_action",
    "latent_ar": "pulse_pyro.envs.latent_world:latent_ar",
}
# name -> function(PolicySetup) -> Agent or Team, None where it cannot play: what a study plays
POLICIES = {
    "committee": "pulse_pyro.envs.policy_setup:make_committee",
    "guarded": "pulse_pyro.envs.policy_setup:make_guarded",
    "adaptive_guarded": "pulse_pyro.envs.policy_setup:make_adaptive_guarded",
    "memory": "pulse_pyro.envs.policy_setup:make_memory",
    "pulse": "pulse_pyro.envs.policy_setup:make_pulse",
    "pulse_calibrated": "pulse_pyro.envs.policy_setup:make_pulse_calibrated",
    "pulse_adaptive": "pulse_pyro.envs.policy_setup:make_pulse_adaptive",
    "oful": "pulse_pyro.envs.policy_setup:make_oful",
    "oful_lags": "pulse_pyro.envs.policy_setup:make_oful_lags",
    "oful_lags_rewards": "pulse_pyro.envs.policy_setup:make_oful_rewards",
    "oful_full": "pulse_pyro.envs.policy_setup:make_oful_full",
}
_HOMES = {
    "world": "World Environment environment",
    "series": "Arma subspace_similarity",
    "hard": "HardWorld",
    "shifts": "variance_shift rotation translation deformation",
    "arma": "ArmaWorld main_linear main_nonlinear w_times_action nonlinear_w_times_action",
    "candidates": "draw_candidates play_candidates",
    "replay": "Replay shuffled by_time Replayed replay_run playable joined",
    "simulation": "Agent Team Fixed Run simulate cond_oracle",
    "teams": "RewardScale Trust tuned guarded adaptive_guarded ellipsoid_guarded remembering "
    "with_past_rewards committee",
    "latent_world": "LatentArWorld latent_ar",
    "agents": "pulse pulse_adaptive pulse_refit post_serving oful oful_lags oful_paper oful_full",
    "policy_setup": "PolicySetup",
    "baselines": "clbbf_agent clbbf_paper_agent clbbf_warm_agent larl_agent kalman_agent",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
