"""Published tables and figures, one module each, all on one runner."""

from pulse_pyro.experiments.comparison import LINEAR, NONLINEAR
from pulse_pyro.experiments.data_scale import SWEEP_N, SWEEP_T0
from pulse_pyro.experiments.points import SWEEP_POINTS
from pulse_pyro.experiments.runner import Experiment

ALL = (LINEAR, NONLINEAR, SWEEP_N, SWEEP_T0, SWEEP_POINTS)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in ALL}
