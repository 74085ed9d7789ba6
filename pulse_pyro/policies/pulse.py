"""PULSE-UCB: linear UCB on features whose missing part is replaced by its expectation."""

from __future__ import annotations

from pulse_pyro._core.arrays import whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import FittedLaw, is_exact
from pulse_pyro.calibration.calibration import CalibratedErrors, Calibration
from pulse_pyro.calibration.online import (
    OnlineErrors,
    check_errors,
    check_size_of_theta,
)
from pulse_pyro.calibration.rung import ON_FORECAST
from pulse_pyro.features import Features
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies.balls import (
    ArchiveScale,
    band_ball,
    calibration_bias,
    complete_rows,
    reward_noise,
    with_memory_note,
)
from pulse_pyro.policies.committee import Ballot, Committee, Joint
from pulse_pyro.policies.core import Core
from pulse_pyro.policies.guard import reward_spread
from pulse_pyro.policies.imputed import Imputed, Scorer
from pulse_pyro.policies.remembered import Remembered
from pulse_pyro.policies.streaming import Streaming, bonus_core, one_of
from pulse_pyro.policies.streaming_guard import Advisor, BandRounds, StreamingGuard
from pulse_pyro.radius import CONSTANT, SAMPLED, Radius, constant


def _told_noise(reward_sd: float | None) -> float:
    if reward_sd is None:
        raise SettingError(
            "PulseUCB: the law has a memory, which rewards tell of: give reward_sd=, the sd of a "
            "reward given the full context; or leave the memory out, replace(law, memory=None)."
        )
    return reward_sd


def _free_core(
    radius: Radius | None, ridge: float | None, scorer: Remembered, errors: OnlineErrors | None
) -> StreamingGuard:
    """Return the core of a policy with memory and no guard."""
    if errors is not None or radius is None or radius.kind not in (CONSTANT, SAMPLED):
        raise SettingError(
            "PulseUCB: a law with memory is played with constant(...) or thompson(...) and without "
            "errors=: no ball is valid there."
        )
    guess = max(radius.params[0], scorer.reward_sd)
    dim, lam = len(scorer.names), 1.0 if ridge is None else ridge
    arms = scorer.features.actions
    return StreamingGuard(None, None, arms, dim, lam, radius, 1.0, guess=guess)


class PulseUCB(Streaming):
    """UCB on features whose missing part is replaced by its expectation under a fitted law.

    Guarded, ``PulseUCB(law, features, calibration=cal, reward_sd=..., theta_bound=...)``, it plays
    what an advisor proposes (by default the constant radius sigma) as long as its arm cannot be
    shown to be worse than the ball is wide, so that every round costs at most 2 c r w. Nothing is
    left to tune. With a ``radius`` instead, that radius is a bonus and nothing guards it.

    Parameters
    ----------
    law : p^(W_t | S_1:t). With a ``memory``, what it leaves of W is tracked by each unit's own
        rewards (``reward_sd`` is then needed with a radius too), and no guard is a guarantee.
    features : Phi; the arms are 0 .. features.actions - 1.
    radius : rule for sqrt(gamma_t), unguarded; its ``corrected`` form carries a guarantee, see
        there. ``robust(...)`` makes it robust PULSE-UCB, ``thompson(...)`` Thompson sampling.
    calibration : of this law and Phi, which must be affine in w: the guard's ball is made from its
        band. If one of its checks failed, the guard is a heuristic, and says so.
    reward_sd : sd of a reward given the full context. What W varies by given S is then the law's
        word, and the ball conditional on it. Or reward_range : (low, high) of all rewards, or
        sigma : sub-Gaussian scale of a reward given S; both take W in.
    theta_bound : S >= ||theta*||. delta : the ball may miss theta* with this probability, plus that
        of the calibration.
    advisor : ``constant(alpha)``, ``thompson(...)``, "greedy", "ball", a ``Committee(...)`` that
        has not played yet (its members vote with the guard's own learner, see ``ballot``), or a
        function of mean (K,),
        width (K,) and allowed (K,), NaN where an arm is not, that returns an arm; by default
        ``constant(sigma)``. It may look at S_1:t and past rewards, not at W or anything else.
    slack : c >= 1; 1 is nearly the ball's own UCB, which explores far more than it must.
    ridge : lambda > 0; d (sigma / S)^2 with a guard, else 1.
    size : Monte Carlo draws a round, used only if Phi is not affine in w.
    seed : of those draws.
    errors : with a radius, source of e_{t,a}, CalibratedErrors(...); by default what ``act`` is
        told, else 0, or all of its budget where the radius has one (``robust``).
    archive : GrowingArchive(history, law, every=n): W handed to ``learn`` after the fact joins the
        archive, and the law is refitted every n of them. Calibrated errors stay valid for the
        refitted law where Phi is affine in w: the band speaks of the truth, not of the law.

    A law that conditions on unseen inputs (``law.conditions``) plays from a unit's first row on
    with a radius; others, and a guard, refuse rounds until all inputs are seen: use ``observe`` to
    warm up. Errors of arms that are not played do not enter the choice.

    The guarantee is against the best policy that sees only S; no policy can recover what the
    missing W would have told. NOT covered: sigma and S that are too small, contexts that have
    shifted, residuals of W with memory; see ``policies.guard``.

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
        radius: Radius | None = None,
        *,
        calibration: Calibration | None = None,
        reward_sd: float | None = None,
        reward_range: tuple[float, float] | None = None,
        sigma: float | None = None,
        theta_bound: float | None = None,
        delta: float = 0.05,
        advisor: Advisor | Committee | None = None,
        slack: float = 3.0,
        ridge: float | None = None,
        size: int = 256,
        seed: int = 0,
        errors: OnlineErrors | None = None,
        archive: GrowingArchive | None = None,
    ) -> None:
        law = as_law(law, "PulseUCB")
        if not isinstance(features, Features):
            raise SettingError(
                f"PulseUCB: features must be a Features, but got {type(features).__name__}; "
                "Features(fn, actions, names)."
            )
        draws = whole(size, "PulseUCB: size", 2)
        if archive is not None and archive.fitted is not law:
            raise SettingError("PulseUCB: the growing archive was made with another law.")
        remembers = getattr(law, "memory", None) is not None
        if archive is not None and (remembers or isinstance(advisor, Committee)):
            what = "the law's memory is" if remembers else "its committee's evidence is"
            raise SettingError(
                f"PulseUCB: a growing archive would swap the law, but {what} about this one; leave "
                "archive= out."
            )
        plain = Imputed(law, features, draws, seed)
        guard = {
            "reward_sd": reward_sd,
            "reward_range": reward_range,
            "sigma": sigma,
            "theta_bound": theta_bound,
            "advisor": advisor,
        }
        if remembers and calibration is None:
            guard["reward_sd"] = None  # of rewards that tell of the memory
        one_of(radius, calibration, guard, "PulseUCB", "calibration=calibrate(law, held_out, phi)")
        if calibration is None and remembers:
            scorer = Remembered(plain, _told_noise(reward_sd))
            super().__init__(scorer, _free_core(radius, ridge, scorer, errors), archive)
            return
        if calibration is None:
            core: Core = bonus_core(radius, ridge, plain, errors, "PulseUCB")
            if errors is not None:
                assert radius is not None
                check_errors(errors, law, features, draws, archive is not None)
                check_size_of_theta(errors, radius)
            super().__init__(plain, core, archive)
            return
        if errors is not None:
            raise SettingError("PulseUCB: errors= is for a radius; a guard has its calibration's.")
        if not isinstance(calibration, Calibration):
            raise SettingError(
                f"PulseUCB: calibration must be a Calibration, but got {type(calibration).__name__}"
                "; calibrate(law, held_out, features)."
            )
        bias = calibration_bias(calibration, "PulseUCB")
        check_errors(CalibratedErrors(calibration), law, features, draws, archive is not None)
        if not is_exact(law):
            raise SettingError(
                "PulseUCB: a guard needs E[W] in closed form, but this law draws it (a latent that "
                "is neither discrete nor normal, a vector or three or more of a unit, or a W "
                "without a mean); write the model with fewer latents, a vector of two as two "
                "normal sites (u and v of dist.Normal(0.0, 1.0), then rho * u + torch.sqrt(1 - "
                "rho**2) * v), or play a constant: PulseUCB(law, features, pp.constant(sigma))."
            )
        spread = reward_spread(features, law, calibration.contexts)
        s, w = complete_rows(calibration.contexts, "PulseUCB")
        noise, most = ArchiveScale.of(features, s, w, spread).trusted(
            reward_noise(reward_sd, reward_range, sigma), theta_bound, "PulseUCB"
        )
        ball = band_ball(calibration, bias, noise, theta_bound=most, delta=delta, spread=spread)
        ball = with_memory_note(ball, law)
        dim = len(features.names)
        plain.affine = True
        scored: Scorer = Remembered(plain, noise.value) if remembers else plain
        rules, others, votes = None, [], "tempered"
        asked: Advisor = constant(ball.sigma)
        if isinstance(advisor, Committee):
            if ball.benchmark == ON_FORECAST:
                raise SettingError(
                    "PulseUCB: this calibration's band is given the forecast, so its ball holds "
                    "only if every arm is chosen from what Phi sees; members of a committee look "
                    "at more. Leave the advisor out, or calibrate at all contexts (rung uniform)."
                )
            rules, members = advisor.hand_over("PulseUCB")
            if "guard" in members:
                raise SettingError(
                    "PulseUCB: 'guard' is the name of the guard's own learner; give that member of "
                    "the committee another."
                )
            joint = Joint({"guard": scored} | members)
            others, votes = [rules.shape(each) for each in joint.dims[1:]], rules.votes
            scored, asked = joint, "committee"
        elif advisor is not None:
            asked = advisor
        core = StreamingGuard(
            ball,
            BandRounds(calibration, bias),
            features.actions,
            dim,
            ball.ridge(dim) if ridge is None else ridge,
            asked,
            slack,
            others=others,
            votes=votes,
        )
        super().__init__(scored, core, archive)
        if rules is not None:
            self.ballot = Ballot(self, rules)
