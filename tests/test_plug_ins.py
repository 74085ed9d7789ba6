"""One new file and one registry line: a toy of each kind, from a folder of its own, works."""

import json
import textwrap

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.registry import named
from pulse_pyro.bands import BANDS
from pulse_pyro.base import picture
from pulse_pyro.calibration import RUNGS
from pulse_pyro.cli import main
from pulse_pyro.diagnostics import CHECKS, LAW_CHECKS
from pulse_pyro.envs import ENVS, POLICIES
from pulse_pyro.laws import LAWS
from pulse_pyro.paper import DATASETS
from pulse_pyro.report import PLOTS, SECTIONS
from tests.helpers import linear_history
from tests.study.helpers import write_study

FILES = {
    "toy_law": """
        from dataclasses import replace

        from pulse_pyro.laws import Law
        from pulse_pyro.laws.conjugate import Conjugate
        from pulse_pyro.laws.linear import LinearFamily
        from pulse_pyro.data.summary import as_summary


        def toy_lags(summary):
            '''Return a toy of a law.'''
            family = ToyFamily("normal", Conjugate())
            return Law(None, as_summary(summary, "toy_lags"), "toy_lags", family=family)


        class ToyFamily(LinearFamily):
            def spec(self):
                return super().spec() | {"family": "toy_lags"}

            @staticmethod
            def from_spec(spec):
                found = LinearFamily.from_spec(spec)
                return ToyFamily(found.noise, found.prior)
    """,
    "toy_model": """
        import pyro
        import pyro.distributions as dist

        from pulse_pyro import Law


        def toy_model(summary):
            '''Return a toy of a Pyro model.'''
            return Law(model, summary, "toy_model")


        def model(x, w=None):
            a = pyro.sample("a", dist.Normal(0.0, 1.0))
            with pyro.plate("rows", x.shape[-2], dim=-1):
                loc = a + 0.0 * x[..., :1]
                pyro.sample("w", dist.Normal(loc, 1.0).to_event(1), obs=w)
    """,
    "toy_band": """
        from dataclasses import dataclass, replace

        import numpy as np

        from pulse_pyro.bands.band import Values
        from pulse_pyro.bands.linear import linear


        @dataclass(frozen=True)
        class ToyShape:
            '''As wide as at the mean, everywhere.'''

            centre: np.ndarray
            half: np.ndarray
            domain: str = "everywhere"

            def at(self, x):
                centre, half = (np.tile(v, (len(x), 1)) for v in (self.centre, self.half))
                return Values(centre, half, np.ones(len(x), dtype=bool))


        def toy_band(sample, method, level, rng):
            fit = linear(sample, replace(method, kind="linear"), level, rng)
            mean = fit.band.at(sample.x.mean(0)[None])
            shape = ToyShape(mean.centre[0], mean.half[0])
            return replace(fit, band=replace(fit.band, kind="toy_band", shape=shape))
    """,
    "toy_curve": """
        from pulse_pyro.bands.curve import curve
        from pulse_pyro.bands.spline import spline_weights


        def toy_curve(sample, method, level, rng):
            return curve(sample, spline_weights, method, level, rng)
    """,
    "toy_rung": """
        from dataclasses import dataclass

        import numpy as np
        import pandas as pd

        from pulse_pyro.calibration.rung import Rung


        @dataclass(frozen=True, eq=False)
        class ToyDetails:
            median: np.ndarray

            @property
            def table(self):
                return pd.DataFrame({"median": self.median})


        def toy_rung(rows, ask):
            median = np.median(np.abs(rows.error), axis=0)
            claim = f"A toy says {median[0]:.2g} at {ask.level:g}."
            sizes = median / rows.spread
            return Rung("toy", "stands", claim, sizes, details=ToyDetails(median))
    """,
    "toy_check": """
        from pulse_pyro.base import Check


        def whole(case):
            return [Check("toy law", "info", float(len(case.judged.row)), 0.0, "A toy.")]


        def each(case, j):
            worst = abs(case.judged.w[..., j] - case.judged.mean[..., j]).max()
            return [Check(f"toy {case.names[j]}", "warn", float(worst), 0.0, "A toy warns.")]
    """,
    "toy_policy": """
        from pulse_pyro.envs import Agent


        def toy_policy(setup):
            s, phi = setup.world.s, setup.world.phi
            found = setup.law(s).mean().reshape(*s.shape[:2], 1, -1)
            return Agent("toy_policy", 0.0 * phi[..., :1] + found)
    """,
    "toy_env": """
        from dataclasses import replace

        from pulse_pyro.envs import w_times_action


        def toy_env():
            return replace(w_times_action(), w_sd=0.3)
    """,
    "toy_data": """
        import pandas as pd

        from pulse_pyro import History
        from pulse_pyro.paper.case import Case, Finding, RealCase


        def archive(home):
            frame = pd.read_csv(home / "rows.csv")
            return History.from_frame(frame, unit="u", time="t", observed=["s"], missing=["w"])


        def run(home, *, runs, seed, engine):
            rows = len(archive(home).s)
            table = pd.DataFrame({"rows": [rows], "runs": [runs]})
            finding = Finding("How many rows", f"There are {rows}.", table, {"rows": rows})
            return Case("toy", f"{rows} rows", "About a toy", "Nobody", (finding,), 0.0)


        TOY = RealCase("toy_folder", run, archive)
    """,
    "toy_page": """
        from pulse_pyro.report.page import Section
        from pulse_pyro.report.plots import axis


        def toy_plot(result, ax=None):
            drawn = axis(ax, 4.0, 3.0)
            drawn.plot([0, 1], [0, len(result.checks)])
            return drawn


        def toy_section(found):
            reading = "A line that rises."
            return [Section("Toy section", found.verdict, None, toy_plot(found), reading)]
    """,
}
LINES = [
    (LAWS, "toy_lags", "toy_law:toy_lags"),
    (LAWS, "toy_model", "toy_model:toy_model"),
    (BANDS, "toy_band", "toy_band:toy_band"),
    (BANDS, "toy_curve", "toy_curve:toy_curve"),
    (RUNGS, "toy", "toy_rung:toy_rung"),
    (LAW_CHECKS, "toy law", "toy_check:whole"),
    (CHECKS, "toy", "toy_check:each"),
    (POLICIES, "toy_policy", "toy_policy:toy_policy"),
    (ENVS, "toy_env", "toy_env:toy_env"),
    (DATASETS, "toy", "toy_data:TOY"),
    (PLOTS, "toy_plot", "toy_page:toy_plot"),
    (SECTIONS["diagnose"], "toy", "toy_page:toy_section"),
]


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Write the files to a folder, and add one line to each registry."""
    folder = tmp_path / "toys"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(folder)
    for registry, name, entry in LINES:
        monkeypatch.setitem(registry, name, entry)


@pytest.mark.usefixtures("toys")
def test_a_study_names_a_law_a_band_and_a_policy_and_its_page_shows_a_check_and_a_section(tmp_path):
    study = write_study(
        tmp_path / "study",
        ('"linear_lags"', '"toy_lags"'),
        ("level = 0.95", 'level = 0.95\nband = "toy_band"'),
        ("horizon = 40", 'horizon = 40\nagents = ["oful", "toy_policy"]'),
    )
    run = pp.run_study(study)
    assert [step.done for step in run.steps] == ["made"] * 5
    made = {
        name: json.loads((tmp_path / "study/results" / name / file).read_text())
        for name, file in {
            "fit": "fit.json",
            "diagnose": "diagnostics.json",
            "calibrate": "calibration.json",
            "simulate": "run.json",
        }.items()
    }
    assert made["fit"]["law"] == "toy_lags"
    verdicts = {check["name"]: check["verdict"] for check in made["diagnose"]["checks"]}
    assert (verdicts["toy law"], verdicts["toy w0"]) == ("info", "warn")
    assert {row["band"] for row in made["calibrate"]["table"]} == {"toy_band"}
    agents = [row["agent"] for row in made["simulate"]["table"]]
    assert agents == ["oful", "toy_policy", "cond_oracle"]
    page = run.report.path.read_text()
    assert "Toy section" in page
    assert "A toy warns." in page


@pytest.mark.usefixtures("toys")
def test_a_law_is_listed_saved_and_loaded_and_a_model_is_fitted(tmp_path, capsys):
    assert main(["models", str(tmp_path)]) == 0
    assert "toy_lags" in capsys.readouterr().out
    history, _ = linear_history(units=12, time=12, lags=2)
    law = named(LAWS, "toy_lags")(2)
    fitted = law.fit(history, seed=0)
    again = pp.load(pp.save(fitted, tmp_path / "law"))
    assert type(again.law.family).__name__ == "ToyFamily"
    assert again.id == fitted.id
    model = named(LAWS, "toy_model")(pp.Lags(1))
    assert abs(model.fit(history, pp.Laplace(50), seed=0).draws["a"].mean()) < 1
    with pytest.raises(pp.errors.ModelError, match="does not suit toy_model"):
        model.fit(history, pp.Exact(), seed=0)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(("kind", "shape"), [("toy_band", "ToyShape"), ("toy_curve", "GridShape")])
def test_a_band_is_calibrated_saved_and_loaded(tmp_path, kind, shape):
    fit, held_out = linear_history(units=40, time=30, lags=1)[0].split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    phi = pp.envs.w_times_action().features
    before = pp.calibrate(law, held_out, phi, seed=0, band=kind)
    after = pp.load(pp.save(before, tmp_path / "calibration"), features=phi)
    bands = [part.band for calibration in (before, after) for part in calibration.parts]
    assert {(band.kind, type(band.shape).__name__) for band in bands} == {(kind, shape)}
    assert np.array_equal(after.error_at(held_out), before.error_at(held_out), equal_nan=True)


@pytest.mark.usefixtures("toys")
def test_a_rung_is_asked_shown_saved_and_loaded(tmp_path):
    fit, held_out = linear_history(units=40, time=30, lags=1)[0].split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    phi = pp.envs.w_times_action().features
    before = pp.calibrate(law, held_out, phi, seed=0)
    assert before.rung("toy").claim in list(before.ladder["claim"])
    after = pp.load(pp.save(before, tmp_path / "calibration"), features=phi)
    assert np.array_equal(after.rung("toy").details.median, before.rung("toy").details.median)


@pytest.mark.usefixtures("toys")
def test_an_environment_is_played_by_its_name():
    env = pp.envs.environment("toy_env")
    world = env.world(runs=2, horizon=30, rng=pp.stream(0, "online"))
    law = pp.linear_lags(19).fit(env.archive(20, 60, rng=pp.stream(0, "archive")), seed=0)
    run = pp.simulate(world, [pp.envs.pulse(world, law), pp.envs.cond_oracle(world)])
    assert run.regret.shape == (2, 2, 30)
    with pytest.raises(pp.errors.SettingError, match="did you mean 'toy_env'"):
        pp.envs.environment("toy_en")


@pytest.mark.usefixtures("toys")
def test_a_data_set_is_run_and_exported_from_the_command_line(tmp_path, capsys):
    home = tmp_path / "data" / "toy_folder"
    home.mkdir(parents=True)
    rows = [f"{u},{t},{u + t},{u * t}" for u in range(3) for t in range(4)]
    (home / "rows.csv").write_text("\n".join(["u,t,s,w", *rows]))
    where = ["--data", str(tmp_path / "data"), "--out"]
    assert main(["real", "toy", *where, str(tmp_path / "out"), "--runs", "2"]) == 0
    assert "There are 12." in capsys.readouterr().out
    assert "How many rows" in (tmp_path / "out" / "real.html").read_text()
    assert main(["export", "toy", *where, str(tmp_path / "toy.csv")]) == 0
    assert len((tmp_path / "toy.csv").read_text().splitlines()) == 13


@pytest.mark.usefixtures("toys")
def test_a_plot_is_found_by_its_name():
    found = pp.diagnostics.Diagnostics(pp.base.Checks([pp.base.Check("a", "pass", 0, 0, "")]))
    drawn = picture("toy_plot")(found)
    assert np.array_equal(drawn.lines[0].get_ydata(), [0, 1])


def test_names_that_nobody_registered_are_refused_with_the_nearest(tmp_path):
    for old, new, says in (
        ('"linear_lags"', '"linear_lag"', "did you mean 'linear_lags'"),
        ("level = 0.95", 'band = "splin"', "did you mean 'spline'"),
        ("horizon = 40", 'horizon = 40\nagents = ["puls"]', "did you mean 'pulse'"),
    ):
        with pytest.raises(pp.errors.SettingError, match=says):
            pp.study.read_study(write_study(tmp_path / old.strip('"'), (old, new)))
