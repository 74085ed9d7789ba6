"""Decisions with incomplete context: context laws in Pyro, expected features, PULSE-UCB.

Names are loaded when first used, so ``import pulse_pyro`` loads neither torch nor numba.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "errors": "PulseError DataError ModelError ConvergenceError FeatureError SettingError "
    "RewardError LeakageError BundleError",
    "history": "History Rows",
    "summary": "Lags Window Identity Stack Summary",
    "features": "Features Expectation ConditionalLaw expected_features",
    "_pyro.inference": "Exact Nuts Svi Laplace Ensemble",
    "_pyro.card": "ModelCard",
    "laws.law": "Law",
    "laws.fitted": "FittedLaw",
    "laws.linear": "linear_lags",
    "laws.gp": "gaussian_process",
    "laws.neural": "neural_density",
    "laws.mean_network": "MeanNetwork fit_mean_network",
    "laws.state_space": "state_space",
    "laws.from_file": "law_from_file",
    "laws.fitted_state_space": "FittedStateSpace",
    "laws.linear_exact": "Conjugate Flat",
    "laws.growing": "GrowingArchive",
    "bundle": "save_law load_law",
    "verdicts": "Check",
    "diagnostics": "Diagnostics Domain diagnose",
    "serial": "SerialTest serial_dependence",
    "ranks": "Sbc sbc",
    "bands.band": "Band",
    "bands.sample": "BandMethod Sample",
    "bands.auto": "make_band",
    "bands.ridge": "ridge_band",
    "calibration.calibration": "Calibration",
    "calibration.calibrate": "calibrate calibrate_all",
    "calibration.sensitivity": "Sensitivity sensitivity",
    "calibration.online": "CalibratedErrors SensitiveErrors",
    "calibration.crossfit": "CrossFit calibrate_crossfit",
    "calibration.study": "Study calibration_study",
    "calibration.references": "references kl_error gaussian_kl gaussian_tv parametric_rate "
    "holder_rate",
    "radius": "Radius constant paper corrected noise_scale matched_ridge",
    "policies.linear": "State Decision init decide update",
    "policies.horizon": "play_horizon",
    "policies.pulse": "PulseUCB",
    "policies.directions": "Directions directions augmented_bound",
    "policies.adaptive": "AdaptivePulseUCB adaptive_features adaptive_error",
    "policies.robust": "robust robust_paper",
    "policies.thompson": "thompson",
    "policies.clbbf": "Exploration clbbf",
    "policies.clbbf_shared": "clbbf_shared clbbf_warm",
    "policies.larl": "larl",
    "policies.kalman": "kalman autoregression",
    "policies.saved": "save_policy load_policy",
    "environments.world": "World",
    "environments.series": "Arma subspace_similarity",
    "environments.hard": "HardWorld",
    "environments.shifts": "variance_shift rotation translation deformation",
    "environments.arma": "ArmaWorld main_linear main_nonlinear w_times_action "
    "nonlinear_w_times_action",
    "environments.candidates": "draw_candidates play_candidates",
    "environments.replay": "Replay shuffled by_time",
    "simulation.replayed": "Replayed replay_run playable joined",
    "datasets.dataset": "Dataset",
    "datasets.beijing": "load_beijing",
    "datasets.heartsteps": "HeartSteps load_heartsteps",
    "datasets.oulad": "load_oulad",
    "datasets.open_bandit": "load_open_bandit",
    "offpolicy.logged": "Logged",
    "offpolicy.estimators": "replay_value ips snips doubly_robust",
    "offpolicy.value": "Value",
    "offpolicy.crossfit": "outcome_model",
    "datasets.arms": "line_per_arm",
    "cases.compare": "Imputer Way compare",
    "cases.judge": "Judged judge",
    "cases.result": "Comparison",
    "simulation.run": "Agent Fixed Run simulate cond_oracle",
    "environments.latent_ar": "LatentArWorld latent_ar",
    "simulation.refit": "pulse_refit",
    "simulation.baselines": "clbbf_agent clbbf_paper_agent clbbf_warm_agent larl_agent "
    "kalman_agent",
    "simulation.agents": "pulse pulse_adaptive post_serving oful oful_lags oful_paper oful_full",
    "datasets.taobao": "AdLog read_taobao",
    "cases.taobao": "run_taobao",
    "cases.taobao_run": "TaobaoRun",
    "study.stakes": "Stakes",
    "study.recipe": "Recipe",
    "planning.plans": "Plan",
    "planning.planner": "plan plan_study",
    "study.study": "read_study",
    "study.terms": "features_from_terms features_from_file",
    "gallery": "LawCheck list_laws new_law check_law",
    "stages.new": "new_study",
    "stages.check": "StudyCheck check_study",
    "stages.fit": "fit_study",
    "stages.diagnose": "diagnose_study",
    "stages.calibrate": "calibrate_study",
    "stages.simulate": "simulate_study",
    "stages.report": "StudyReport report_study",
    "stages.run": "StudyRun run_study",
    "report": "Section calibration_sections write_report write_calibration_report",
    "seeds": "stream",
}
_WHERE = {name: home for home, names in _HOME.items() for name in names.split()}
__all__ = sorted(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'pulse_pyro' has no attribute {name!r}")
    return getattr(import_module(f"pulse_pyro.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
