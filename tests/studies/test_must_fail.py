"""Which checks notice which fault, and how often they speak up about a law that is right.

Table 1: share of archives on which each check of ``diagnose`` warns or fails. Nominal size of every
test: 1 % (warn), 0.1 % (fail); ``skill`` and the scores are no tests of a right law, and stay quiet
wherever S tells something about W; ``leak`` has none. Table 2: the same for ``Domain``.
"""

import os
from dataclasses import replace

import numpy as np
from scipy import stats
from scipy.signal import lfilter

import pulse_pyro as pp
from tests.stat import FALSE_ALARM
from tests.worlds import arma

REPS = int(os.environ.get("PULSE_REPS", "200"))
UNITS, TIME, NOISE, DRAWS = 80, 20, 0.1, 200
CHECKS = ("leak", "log score", "skill w", "trend w", "coverage w", "pit w", "crps w",
          "spread w", "replicates w", "serial w")  # fmt: skip
# law -> checks that must notice it nine times in ten
MUST = {
    "over-confident, half the variance": ("coverage w", "pit w"),
    "over-confident, a quarter of it": ("coverage w", "pit w", "crps w", "log score"),
    "biased by half a noise sd": ("pit w",),
    "biased by three noise sds": ("pit w", "coverage w"),
    "wrong way round": ("skill w", "trend w", "coverage w", "pit w", "crps w", "log score"),
    "misses a bend": ("trend w",),
    "misses skewed noise": ("pit w",),
    "misses noise that grows with S": ("spread w",),
    "misses memory of the noise": ("serial w",),
    "fit units under other names": ("leak",),
}
RIGHT = ("right", "right, rows of a unit depend")
QUIET = "half of the fit units under other names"


def archive(seed, kind="normal"):
    """W = 0.3 + three lags of S + noise."""
    rng = np.random.default_rng(seed)
    s = arma((UNITS, TIME + 2), rng)
    x = np.stack([s[:, 2 - j : 2 - j + TIME, 0] for j in range(3)], -1)
    e = rng.standard_normal((UNITS, TIME))
    if kind == "skewed":
        e = rng.exponential(size=e.shape) - 1
    elif kind == "spread":
        e *= 0.3 + 4 * np.abs(x[..., 0])
    elif kind == "memory":
        e = lfilter([0.6], [1, -0.8], rng.standard_normal((UNITS, TIME + 50)), axis=1)[:, 50:]
    elif kind == "units":
        e = np.sqrt(0.9) * e + np.sqrt(0.1) * rng.standard_normal((UNITS, 1))
    bend = 2 * x[..., 0] ** 2 if kind == "bend" else 0.0
    w = 0.3 + x @ [1.0, -0.5, 0.3] + bend + NOISE * e
    seen, names = np.ones((UNITS, TIME), bool), tuple(f"u{i:02d}" for i in range(UNITS))
    return pp.History(s[:, 2:], w[..., None], seen, names, ("s",), ("w",))


def renamed(history):
    return replace(history, units=tuple(f"new {u}" for u in history.units))


def joined(one, other):
    pairs = ((one.s, other.s), (one.w, other.w), (one.seen, other.seen))
    parts = [np.concatenate(pair) for pair in pairs]
    return pp.History(*parts, one.units + other.units, one.s_names, one.w_names)


def altered(law, **changes):
    return replace(law, draws={**law.draws, **{k: f(law.draws[k]) for k, f in changes.items()}})


def add(by):
    """Raise the intercept by so many noise sds."""
    step = lambda law: np.array([by * NOISE / law.scaler.w_scale[0], 0, 0, 0])[:, None]  # noqa: E731
    return lambda law: altered(law, coef=lambda c: c + step(law))


def cases(seed):
    """Yield (name, law, held-out units)."""
    for name, kind in (
        ("right", "normal"), ("right, rows of a unit depend", "units"), ("misses a bend", "bend"),
        ("misses skewed noise", "skewed"), ("misses noise that grows with S", "spread"),
        ("misses memory of the noise", "memory"),
    ):  # fmt: skip
        fit, held_out = archive(seed, kind).split(seed=seed)
        law = pp.linear_lags(3).fit(fit, seed=seed)
        yield name, law, held_out
        if name == "right":
            right, units, unseen = law, fit, held_out
    half, quarter = (altered(right, variance=lambda v, f=f: v * f) for f in (0.5, 0.25))
    yield "over-confident, half the variance", half, unseen
    yield "over-confident, a quarter of it", quarter, unseen
    yield "biased by half a noise sd", add(0.5)(right), unseen
    yield "biased by three noise sds", add(3.0)(right), unseen
    turned = altered(right, coef=lambda c: c * np.array([1, -1, -1, -1])[:, None])
    yield "wrong way round", turned, unseen
    yield "fit units under other names", right, renamed(units)
    mixed = joined(renamed(units.take(range(20))), unseen.take(range(20)))
    yield QUIET, right, mixed


def counted():
    fired, failed = {}, {}
    for seed in range(REPS):
        for name, law, held_out in cases(seed):
            found = {
                c.name: c.verdict for c in pp.diagnose(law, held_out, seed=seed, size=DRAWS).checks
            }
            for check in CHECKS:
                word = found.get(check, "pass")
                fired.setdefault(name, dict.fromkeys(CHECKS, 0))[check] += word in ("warn", "fail")
                failed.setdefault(name, dict.fromkeys(CHECKS, 0))[check] += word == "fail"
    return fired, failed


def show(title, rows, columns):
    width = max(map(len, rows))
    print(f"\n{title}\n{'':{width}} " + " ".join(f"{c:>12}" for c in columns))
    for name, values in rows.items():
        print(f"{name:{width}} " + " ".join(f"{v:>12}" for v in values), flush=True)


def most(level):
    """Largest count compatible with a size of ``level``."""
    return stats.binom.isf(FALSE_ALARM, REPS, level)


def test_which_check_notices_which_fault():
    fired, failed = counted()
    rows = {
        name: [f"{fired[name][c] / REPS:.0%} ({failed[name][c] / REPS:.0%})" for c in CHECKS]
        for name in (*RIGHT, *MUST, QUIET)
    }
    show(
        f"warned or failed (failed), {REPS} archives of {UNITS} units, half held out", rows, CHECKS
    )
    for name, checks in MUST.items():
        for check in checks:
            assert fired[name][check] >= 0.9 * REPS, (name, check)
    for name in RIGHT:
        for check in CHECKS:
            memory = name != "right" and check in ("serial w", "replicates w")  # it is there
            assert memory or fired[name][check] <= most(0.01), (name, check)
            assert memory or failed[name][check] <= most(0.001), (name, check)
    assert fired[QUIET]["leak"] == 0  # be honest: reuse in part shows nowhere


def test_reuse_is_refused_by_name_and_with_the_archive_by_value():
    refused = dict.fromkeys(("fit units", "one of them renamed, archive given"), 0)
    for seed in range(20):
        fit, held_out = archive(seed).split(seed=seed)
        law = pp.linear_lags(3).fit(fit, seed=seed)
        mixed = joined(renamed(fit.take([3])), held_out)
        for name, part, given in (("fit units", fit, None), (list(refused)[1], mixed, fit)):
            try:
                pp.diagnose(law, part, seed=seed, archive=given)
            except pp.LeakageError:
                refused[name] += 1
    print(f"\nLeakageError, of 20: {refused}")
    assert set(refused.values()) == {20}


SHIFTS = {
    "like the archive": lambda s: s,
    "moved by 1 sd": lambda s: s + s.std(),
    "moved by 3 sds": lambda s: s + 3 * s.std(),
    "twice the spread": lambda s: 2 * s,
    "every other row turned": lambda s: s * np.where(np.arange(s.shape[1]) % 2, 1, -1)[:, None],
}


def test_which_shift_of_contexts_is_noticed():
    rows = {}
    for name, move in SHIFTS.items():
        for streams, time in ((1, 20), (1, 200), (40, 20)):
            count = np.zeros(4)
            for seed in range(REPS):
                domain = pp.Domain.of(archive(seed).split(seed=seed)[1], 3)
                online = move(arma((streams, time), np.random.default_rng((seed, 1))))
                words = [c.verdict for c in domain.check(online).checks]
                for k, part in enumerate((words[:-1], words[-1:])):
                    count[k] += any(word in ("warn", "fail") for word in part)
                    count[2 + k] += "fail" in part
            rows[f"{name}, {streams} stream(s) of {time}"] = [f"{c / REPS:.0%}" for c in count]
            if name == "like the archive":
                assert (count <= [most(0.01)] * 2 + [most(0.001)] * 2).all()
            elif streams == 40 or name == "moved by 3 sds":
                assert count[:2].max() >= 0.9 * REPS, (name, streams, time)
    show("contexts", rows, ("each: warn+", "joint: warn+", "each: fail", "joint: fail"))
