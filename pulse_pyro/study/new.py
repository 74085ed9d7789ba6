"""A study to start from: a folder that runs as it is, to be edited piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.files import whole_folder
from pulse_pyro._core.seeds import stream

PEOPLE, DAYS = 120, 30
SEED = 1
STRESS_SD = 0.5
STUDY = """\
# {name}: when to send a prompt, where stress matters and is not asked for any more.
# Run it:    pulse-pyro run study.toml        (check first: pulse-pyro check study.toml)
# Unknown keys are errors with a suggestion; paths are relative to this file.

seed = 0                          # of everything that is random

[data]
file = "archive.csv"              # or .parquet; one row per unit and time
unit = "person"                   # rows of one person depend on each other: units are held out
time = "day"                      # whole numbers or dates
observed = ["steps", "screen"]    # S: also seen when decisions are made
missing = ["stress"]              # W: only the archive has it

[law]                             # of W given the past of S
file = "my_law.py"                # a Pyro model of your own, ...
# name = "linear_lags"            # ... or a built-in one: pulse-pyro models lists them
# lags = 2                        # how many days of S it looks at, today included

# [inference]                     # without it: the law's best engine
# kind = "nuts"                   # or "laplace", "svi"; "exact" for linear_lags

[features]                        # Phi: mean rewards are taken to be linear in these
terms = ["1", "steps", "stress", "a", "a*stress"]   # a is the action: 0 no prompt, 1 a prompt
actions = 2                       # anything else: file = "features.py"

[calibration]
level = 0.95                      # probability with which the bound on the law's error holds
fit = 0.5                         # share of people to fit on; the others judge the law

[policy]                          # what you know about rewards; taken on trust
reward_sd = 0.3                   # noise of a reward when everything is known
context_sd = 0.71                 # what W leaves open given S adds this much; 0.5 * sqrt(2) here
theta_bound = 1.0                 # at least the length of the true parameter
horizon = 1000                    # rounds to be played
"""
LAW = '''\
"""my_law: stress follows the evening's screen time and yesterday's, and falls with steps.

    stress_t = a + b'x_t + sd * e_t,   e_t ~ N(0, 1),
    x_t = (steps_t, screen_t, steps_(t-1), screen_(t-1)).

To be replaced by your own story; `pulse-pyro check my_law.py` says whether it can be used.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(2)  # what the model sees of the past: today and yesterday
DIMS = {"b": ("input",)}  # names of site axes, for tables


def model(x, w=None):
    """x (rows, 4); w (rows, 1) in the archive, None when stress is to be predicted."""
    a = pyro.sample("a", dist.Normal(0.0, 2.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 2.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 1.0))
    loc = a + (x * b).sum(-1)  # not x @ b: (x * b).sum(-1) also works for many draws of b at once
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
'''
README = """\
# {name}

The data in `archive.csv` are made up: {people} people, {days} days each; steps (thousands above or
below the daily goal), screen time in the evening (hours more or less than two), and a stress score
(0 is usual) that was asked for only while the archive was made.

    pulse-pyro run study.toml       # results/report.html
    pulse-pyro check study.toml     # is everything there? before anything is fitted

To make it yours:

1. Put your table in place of `archive.csv`; name its columns under [data] in `study.toml`.
2. Say how W follows from the past of S: edit `my_law.py`, or name a built-in law under [law].
3. Write down what rewards depend on under [features], and what you know about them under [policy].
4. Run again: only what has changed is made again.
"""


def new_study(folder: str | Path) -> Path:
    """Write a folder with a study that runs as it is; return the path of its study.toml.

    folder : a new name without a dot. It holds study.toml, my_law.py, archive.csv (made up, the
    same every time) and README.md. Written whole or not at all.
    """
    target = Path(folder)
    if not target.name or "." in target.name:
        raise SettingError(
            f"new: {str(folder)!r} is neither a folder's name without a dot, such as my_study, nor "
            "a law's file with a plain name, such as my_law.py."
        )
    if target.exists():
        raise SettingError(f"new: {target} exists; choose another name, nothing was written.")
    about = {"name": target.name, "people": PEOPLE, "days": DAYS}
    texts = {
        "study.toml": STUDY.format(**about),
        "my_law.py": LAW,
        "archive.csv": _archive(),
        "README.md": README.format(**about),
    }
    with whole_folder(target) as aside:
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
    return target / "study.toml"


class People(NamedTuple):
    """Days of people, (person, day); ``earlier`` is the screen time of the day before."""

    steps: Float2
    screen: Float2
    earlier: Float2
    stress: Float2


def draw_people(people: int, days: int, *, rng: np.random.Generator) -> People:
    """Draw the made-up people: habits differ between them, days follow on each other.

    stress = .2 - .5 steps + .8 screen + .5 screen of the day before + N(0, .5^2).
    """
    steps, screen = np.empty((people, days + 1)), np.empty((people, days + 1))
    walk, look = rng.normal(0.0, 1.0, people), rng.normal(0.0, 0.5, people)
    habit = np.stack([rng.normal(0.0, 0.8, people), rng.normal(0.0, 0.6, people)])
    for day in range(days + 1):
        walk = 0.4 * walk + rng.normal(0.0, 1.0, people)
        look = 0.5 * look + rng.normal(0.0, 0.9, people)
        steps[:, day], screen[:, day] = habit[0] + walk, habit[1] + look
    stress = stress_of(steps[:, 1:], screen[:, 1:], screen[:, :-1])
    stress = stress + rng.normal(0.0, STRESS_SD, stress.shape)
    return People(steps[:, 1:], screen[:, 1:], screen[:, :-1], stress)


def stress_of(steps: Float2, screen: Float2, earlier: Float2) -> Float2:
    """Return the mean of stress given steps and screen time, (person, day)."""
    return np.asarray(0.2 - 0.5 * steps + 0.8 * screen + 0.5 * earlier)


def _archive() -> str:
    """Return the table as CSV."""
    drawn = draw_people(PEOPLE, DAYS, rng=stream(SEED, "new study"))
    lines = ["person,day,steps,screen,stress"]
    for i in range(PEOPLE):
        for t in range(DAYS):
            now = (drawn.steps[i, t], drawn.screen[i, t], drawn.stress[i, t])
            lines.append(f"p{i:03d},{t}," + ",".join(f"{value:.2f}" for value in now))
    return "\n".join(lines) + "\n"
