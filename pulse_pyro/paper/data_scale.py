"""How much history imputation needs: the N sweep (T0 = 25) and the T0 sweep (N = 3)."""

from pulse_pyro.data.summary import Lags
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.laws.conjugate import Flat
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.agents import COMMITTEES, FEWEST, NOTES, usual
from pulse_pyro.paper.paired import beside_best
from pulse_pyro.paper.setting import Experiment, Published, Setting

LAGS = Lags(19)
RUNS = 20
PUBLISHED_N = {
    1: (252.1, 87.5),
    2: (150.3, 77.0),
    3: (61.3, 91.9),
    5: (11.7, 9.6),
    10: (4.6, 1.4),
    50: (4.2, 1.6),
    500: (4.3, 1.6),
    1000: (4.0, 1.4),
}
PUBLISHED_T0 = {
    21: (248.7, 163.8),
    25: (46.9, 55.7),
    30: (8.6, 2.7),
    40: (5.1, 2.2),
    50: (4.3, 1.4),
    100: (4.4, 2.2),
    200: (4.6, 1.5),
}
ABOUT = (
    "W linear in 19 lags of S, S_t among them as in the scripts (the paper begins with S_{t-1}), "
    "Phi = (1, S, W, W*a), theta = (.1, .1, .1, 1), 980 scored rounds, 20 runs. The order of the "
    "lags' coefficients, and that 20 rows of a unit only fill lags, are not stated; they were "
    "chosen because the printed OFUL and PULSE-UCB then come out. The published law is least "
    "squares (pulse_flat). OFUL on the raw lags (oful_lags) "
    "needs no archive: with few units it beats PULSE-UCB. The best arm depends on W, so the best "
    "policy on S still pays the information gap. Bands need 50 units: below that the calibrated "
    "agents are left out. Members of the committees play the tables' radius, 2, as the single "
    "agents do; the further table has them beside the best of those. Thompson sampling (pulse_ts) "
    "explores as little as sigma calls for, which pays once the law is right."
)
OWN = {
    "pulse": "not published: our default prior; the paper's law is least squares (pulse_flat)",
    "committee_stacking": "not published: as committee, weights of the best mixture of predictions",
    "committee_best": "not published: as committee, the member of largest evidence alone",
}
FIGURE = (
    "pulse_flat",
    "pulse_adaptive",
    "oful_lags",
    "oful_paper",
    "oful_full",
    "clbbf_paper",
    "committee",
)
SINGLES = ("pulse_flat", "pulse", "pulse_adaptive", "oful", "oful_lags")


def _setting(label: str, units: int, length: int, printed: tuple[float, float]) -> Setting:
    env = w_times_action()
    return Setting(
        label=label,
        environment=env,
        units=units,
        length=length,
        horizon=980,
        laws={"pulse_flat": linear_lags(LAGS, prior=Flat()), "pulse": linear_lags(LAGS)},
        agents=usual(env, calibrated=units >= FEWEST, votes=tuple(COMMITTEES)),
        published={
            "pulse_flat": Published(*printed, RUNS),
            "oful_paper": Published(333.7, 30.2, RUNS),
            "oful_full": Published(2.7, 2.0, RUNS),
            "clbbf_paper": Published(145.3, 9.5, RUNS),
        },
    )


SWEEP_N = Experiment(
    name="sweep-n",
    title="Regret against the number N of archived units (T0 = 25)",
    about=ABOUT,
    settings=tuple(_setting(f"N={n}", n, 25, printed) for n, printed in PUBLISHED_N.items()),
    runs=RUNS,
    notes=NOTES | OWN,
    shown=FIGURE,
    extra=beside_best(tuple(COMMITTEES.values()), SINGLES),
)
SWEEP_T0 = Experiment(
    name="sweep-t0",
    title="Regret against the length T0 of archived units (N = 3)",
    about=ABOUT,
    settings=tuple(_setting(f"T0={t}", 3, t, printed) for t, printed in PUBLISHED_T0.items()),
    runs=RUNS,
    notes=NOTES | OWN,
    shown=FIGURE,
    extra=beside_best(tuple(COMMITTEES.values()), SINGLES),
)
