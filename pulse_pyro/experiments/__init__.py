"""Published tables and figures, one module each, all on one runner."""

from pulse_pyro.experiments.comparison import LINEAR, NONLINEAR
from pulse_pyro.experiments.data_scale import SWEEP_N, SWEEP_T0
from pulse_pyro.experiments.lower_bound import LOWER_BOUND
from pulse_pyro.experiments.masking import MASKING
from pulse_pyro.experiments.points import SWEEP_POINTS
from pulse_pyro.experiments.setting import Experiment
from pulse_pyro.experiments.shifts import (
    DEFORMATION_SHIFT,
    ROTATION_SHIFT,
    TRANSLATION_SHIFT,
    VARIANCE_SHIFT,
)
from pulse_pyro.experiments.smoothness import SMOOTHNESS

ALL = (
    LINEAR, NONLINEAR, SWEEP_N, SWEEP_T0, SWEEP_POINTS, SMOOTHNESS, MASKING, VARIANCE_SHIFT,
    ROTATION_SHIFT, TRANSLATION_SHIFT, DEFORMATION_SHIFT, LOWER_BOUND,
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in ALL}
