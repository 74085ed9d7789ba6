"""How a law is fitted and calibrated, as one value: what a study repeats on other archives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pulse_pyro._core.arrays import share
from pulse_pyro._core.errors import ModelError, SettingError, nearest
from pulse_pyro._pyro.inference import Inference
from pulse_pyro.bands.band import BandMethod, check_level
from pulse_pyro.base import FittedLaw, UnfittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.ladder import all_units, calibrate
from pulse_pyro.data.history import History
from pulse_pyro.features import Features
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.step import FittedStepLaw

Mode = Literal["split", "all"]


@dataclass(frozen=True)
class Recipe:
    """Fit a law and bound its error, the same way on any archive.

    Attributes
    ----------
    inference : engine of the fit; None: the law's best.
    level : probability of the bound.
    mode : "split" (fit on a share of the units, bound with the others) or "all" (every unit for
        both, see :func:`all_units` for what that relies on).
    fit : share of units to fit on, in mode "split".
    band : "auto", a kind, or a :class:`BandMethod`.
    groups, inputs : as of :func:`calibrate`, by name: groups of columns, and what the band sees.
    """

    inference: Inference | None = None
    level: float = 0.95
    mode: Mode = "split"
    fit: float = 0.5
    band: str | BandMethod = "auto"
    groups: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_level(self.level, "Recipe")
        share(self.fit, "Recipe: fit")
        if self.mode not in get_args(Mode):
            hint = nearest(str(self.mode), get_args(Mode))
            raise SettingError(f"Recipe: there is no mode {self.mode!r}{hint}")
        if not isinstance(self.band, str | BandMethod):
            raise SettingError(
                f"Recipe: band must be a name or a BandMethod, but got {type(self.band).__name__}; "
                "a band made elsewhere does not change with the archive."
            )
        self.method  # noqa: B018  (refuses an unknown kind here, not after the first fit)

    @property
    def method(self) -> BandMethod:
        """The band as a :class:`BandMethod`."""
        if isinstance(self.band, BandMethod):
            return self.band
        return BandMethod(self.band)  # it checks the name itself

    def calibrate(
        self, law: UnfittedLaw, history: History, features: Features, *, seed: int
    ) -> Calibration:
        """Fit on the archive, or on a share of its units, and calibrate; the law is in its parts.

        Nothing more is guaranteed than by the calibration itself.
        """
        if self.mode == "all":
            fitted, held_out = law.fit(history, self.inference, seed=seed), history
        else:
            train, held_out = history.split(self.fit, seed=seed)
            fitted = law.fit(train, self.inference, seed=seed)
        return self.bound(fitted, history, held_out, features, seed=seed)

    def bound(
        self,
        fitted: FittedLaw,
        history: History,
        held_out: History,
        features: Features,
        *,
        seed: int,
    ) -> Calibration:
        """Bound the error of a law that was fitted on the units of ``history`` not held out."""
        inputs = list(self.inputs) or None
        if self.mode == "all":
            return all_units(
                fitted,
                history,
                features,
                level=self.level,
                seed=seed,
                inputs=inputs,
                band=self.band,
            )
        return calibrate(
            fitted,
            held_out,
            features,
            level=self.level,
            seed=seed,
            groups=self.groups or None,
            inputs=inputs,
            band=self.band,
        )


StoredLaw = PosteriorLaw | FittedStepLaw  # laws with posterior draws, which can be stored and shown


def fit_law(law: UnfittedLaw, history: History, how: Inference | None, seed: int) -> StoredLaw:
    """Fit a law of a study, whose pages show its posterior draws."""
    fitted = law.fit(history, how, seed=seed)
    if not isinstance(fitted, StoredLaw):
        raise ModelError(
            f"study: {law.name} gives a {type(fitted).__name__}, which has no posterior draws to "
            "store and show; use diagnose, calibrate and plan themselves."
        )
    return fitted
