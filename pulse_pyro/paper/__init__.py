"""Published tables and figures, and real data sets: one module each, listed here."""

# name -> Experiment, run by ``pulse-pyro reproduce``
EXPERIMENTS = {
    "comparison-linear": "pulse_pyro.paper.comparison:LINEAR",
    "comparison-nonlinear": "pulse_pyro.paper.comparison:NONLINEAR",
    "sweep-n": "pulse_pyro.paper.data_scale:SWEEP_N",
    "sweep-t0": "pulse_pyro.paper.data_scale:SWEEP_T0",
    "sweep-points": "pulse_pyro.paper.points:SWEEP_POINTS",
    "smoothness": "pulse_pyro.paper.smoothness:SMOOTHNESS",
    "masking": "pulse_pyro.paper.masking:MASKING",
    "shift-variance": "pulse_pyro.paper.shifts:VARIANCE_SHIFT",
    "shift-rotation": "pulse_pyro.paper.shifts:ROTATION_SHIFT",
    "shift-translation": "pulse_pyro.paper.shifts:TRANSLATION_SHIFT",
    "shift-deformation": "pulse_pyro.paper.shifts:DEFORMATION_SHIFT",
    "lower-bound": "pulse_pyro.paper.lower_bound:LOWER_BOUND",
    "radius": "pulse_pyro.paper.radius_study:RADIUS",
    "memory": "pulse_pyro.paper.memory_study:MEMORY_STUDY",
    "meb": "pulse_pyro.paper.measurement_error:MEASUREMENT_ERROR",
}
# name -> RealCase, read by ``pulse-pyro real`` and ``pulse-pyro export``
DATASETS = {
    "beijing": "pulse_pyro.paper.beijing:BEIJING",
    "heartsteps": "pulse_pyro.paper.heartsteps:HEARTSTEPS",
    "oulad": "pulse_pyro.paper.oulad:OULAD",
    "open-bandit": "pulse_pyro.paper.open_bandit:OPEN_BANDIT",
}
