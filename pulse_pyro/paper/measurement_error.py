"""Two kinds of error in a context: one a correction is for, and one it makes worse.

W = slope S + z with z independent noise, Phi = (1, a, W, W a), threshold of the better arm off the
middle of W, so that a theta of the wrong length costs.

    classical            W is seen with added noise of known size, large in the first half of the
                         rounds, small in the second
    classical, one size  the same, always large
    berkson              W is not seen; x = E[Phi | S] by a law, its error is the law's residual

meb corrects for the error (``policies.meb``), meb_plain explores as it does and corrects nothing,
ridge is UCB without correction: PULSE-UCB where x is an expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float4
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.agents import oful_full, pulse
from pulse_pyro.envs.latent_world import latent_ar
from pulse_pyro.envs.simulation import Agent, Fixed, cond_oracle
from pulse_pyro.envs.world import World
from pulse_pyro.features import slopes
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.setting import Experiment, Ready, Setting
from pulse_pyro.policies.meb import play_meb
from pulse_pyro.radius import constant

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.paper.result import Result

HORIZON = 3000
LARGE, SMALL = 2.0, 0.1  # sd of the noise W is seen with
EXPLORE = 0.3  # of meb, at the first round
RADIUS = constant(1.0)
ENVIRONMENT = latent_ar(share=0.5, ar=(0.0,), sigma_z=1.0, mu=(0.0, -1.0), reward_sd=0.25)
NOTES = {
    "ridge": "not published: UCB on the features as they are seen, nothing corrected",
    "meb": "not published: corrected for the error of the features (Guo, Xu and Murphy 2024)",
    "meb_plain": "not published: as meb with nothing corrected",
    "oful_full": "not published: sees W itself",
    "cond_oracle": "not published: knows theta and E[Phi | S]",
}


def _errors(world: World, variance: Float1) -> Float4:
    """Return M_a var M_a', (time or 1, action, d, d), for variances (time or 1,) of W's error."""
    zero = np.zeros((1, 1))
    along = slopes(world.features, zero, zero, np.ones(1))[
        :, 0, 0
    ]  # (action, d), the same anywhere
    out: Float4 = variance[:, None, None, None] * (along[:, :, None] * along[:, None, :])
    return out


def _measured(ready: Ready, falls: bool) -> Sequence[Agent | Fixed]:
    world = ready.world
    sd = np.full(world.w.shape[1], LARGE)
    if falls:
        sd[len(sd) // 2 :] = SMALL
    w = world.w + sd[:, None] * stream(ready.seed, "measured").standard_normal(world.w.shape)
    s = world.s[:, world.lead :]
    rows = [
        world.features(s.reshape(-1, s.shape[-1]), w.reshape(-1, 1), a)
        for a in range(world.features.actions)
    ]
    x = np.stack(rows, axis=1).reshape(world.phi.shape)
    return _both(ready, x, _errors(world, sd**2))


def _imputed(ready: Ready) -> Sequence[Agent | Fixed]:
    laws = ready.laws["pulse"]
    left = np.array(
        [
            float(law(archive).covariance()[:, 0, 0].mean())
            for law, archive in zip(laws, ready.archives, strict=True)
        ]
    )
    x = pulse(ready.world, laws, seed=ready.seed).x
    return _both(ready, x, _errors(ready.world, left.mean(keepdims=True)))


def _both(ready: Ready, x: Float, error: Float4) -> Sequence[Agent | Fixed]:
    world, seed = ready.world, ready.seed
    plain = play_meb(x, world.reward, np.zeros_like(error[:1]), explore=EXPLORE, seed=seed)
    return [
        Agent("ridge", x, RADIUS),
        Fixed("meb", play_meb(x, world.reward, error, explore=EXPLORE, seed=seed)),
        Fixed("meb_plain", plain),
        oful_full(world, radius=RADIUS),
        cond_oracle(world),
    ]


def _setting(label: str, agents: partial[Sequence[Agent | Fixed]]) -> Setting:
    return Setting(
        label=label,
        environment=ENVIRONMENT,
        units=100,
        length=30,
        horizon=HORIZON,
        laws={"pulse": linear_lags(1)},
        agents=agents,
    )


def _second_half(result: Result) -> DataFrame:
    """Return the regret of the second half of the rounds, where the noise of "classical" is small.

    What theta is worth by then; the first half, in which all of them learn it, is left out.
    """
    import pandas as pd

    rows = []
    for setting, run in result.curves.items():
        late = run.regret[..., -1] - run.regret[..., run.regret.shape[-1] // 2 - 1]
        for name, values in zip(run.names, late, strict=True):
            se = float(values.std(ddof=1) / np.sqrt(len(values)))
            rows.append(
                {"setting": setting, "agent": name, "late_regret": float(values.mean()), "se": se}
            )
    return pd.DataFrame(rows)


MEASUREMENT_ERROR = Experiment(
    name="meb",
    title="Error of a measured context, and of an expected one",
    about="MEB is for classical error, x = truth + error: there the correction pays once the error "
    "is small (further table); an expectation given S has Berkson error, truth = x + error, which "
    "needs no correction, and correcting makes it worse. 3000 rounds, alpha 1 for ridge; meb and "
    "meb_plain explore alike, so that their difference is the correction's; what meb pays for its "
    "exploration and its weights, ridge does not pay.",
    settings=(
        _setting("classical", partial(_measured, falls=True)),
        _setting("classical, one size", partial(_measured, falls=False)),
        _setting("berkson", partial(_imputed)),
    ),
    runs=40,
    notes=NOTES,
    shown=("ridge", "meb", "meb_plain", "oful_full", "cond_oracle"),
    extra=_second_half,
)
