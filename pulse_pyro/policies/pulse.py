"""PULSE-UCB: linear UCB on features whose missing part is replaced by its expectation."""

from __future__ import annotations

from pulse_pyro._core.arrays import whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.online import OnlineErrors, check_errors, check_size_of_theta
from pulse_pyro.features import Features
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies.imputed import Imputed
from pulse_pyro.policies.streaming import Streaming
from pulse_pyro.radius import Radius


class PulseUCB(Streaming):
    """UCB on features whose missing part is replaced by its expectation under a fitted law.

    Parameters
    ----------
    law : p^(W_t | S_1:t).
    features : Phi; the arms are 0 .. features.actions - 1.
    radius : rule for sqrt(gamma_t); its ``corrected`` form carries the guarantee, see there.
        ``robust(...)`` makes it robust PULSE-UCB, ``thompson(...)`` Thompson sampling.
    ridge : lambda > 0.
    size : Monte Carlo draws a round, used only if Phi is not affine in w.
    seed : of those draws.
    errors : source of e_{t,a}, CalibratedErrors(...); by default what ``act`` is told, else 0, or
        all of its budget where the radius has one (``robust``).
    archive : GrowingArchive(history, law, every=n): W handed to ``learn`` after the fact joins the
        archive, and the law is refitted every n of them. Calibrated errors stay valid for the
        refitted law where Phi is affine in w: the band speaks of the truth, not of the law.

    A law that conditions on unseen inputs (``law.conditions``) plays from a unit's first row on;
    others refuse rounds until their lags are filled: use ``observe`` to warm up. Errors of arms
    that are not played do not enter the choice.

    The regret guarantee is against the best policy that sees only S; no policy can recover what
    the missing W would have told.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> phi = pp.terms(["1", "s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> policy = PulseUCB(law, phi, pp.constant(1.0))
    >>> decision = policy.act(history.s[0])  # lags that are not there yet are averaged over
    >>> policy.learn(decision, reward=0.3)
    >>> int(policy.state.rounds), len(policy.pending)
    (1, 0)
    """

    def __init__(
        self,
        law: FittedLaw,
        features: Features,
        radius: Radius,
        *,
        ridge: float = 1.0,
        size: int = 256,
        seed: int = 0,
        errors: OnlineErrors | None = None,
        archive: GrowingArchive | None = None,
    ) -> None:
        law = as_law(law, "PulseUCB")
        for name, value, kind, hint in (
            ("features", features, Features, "Features(fn, actions, names)"),
            ("radius", radius, Radius, "constant(2.0), gamma_paper(...) or corrected(...)"),
        ):
            if not isinstance(value, kind):
                raise SettingError(
                    f"PulseUCB: {name} must be a {kind.__name__}, but got {type(value).__name__}; "
                    f"{hint}."
                )
        draws = whole(size, "PulseUCB: size", 2)
        if errors is not None:
            check_errors(errors, law, features, draws, archive is not None)
            check_size_of_theta(errors, radius)
        if archive is not None and archive.fitted is not law:
            raise SettingError("PulseUCB: the growing archive was made with another law.")
        super().__init__(Imputed(law, features, draws, seed), radius, ridge, errors, archive)
