"""What can be wrong with a law's file, each said in a sentence that names the cure."""

import sys

import pytest
import torch
from numpy.testing import assert_allclose

from pulse_pyro import History, Lags, Laplace, Nuts, Svi, law_from_file
from pulse_pyro._core.errors import ConvergenceError, DataError, ModelError
from pulse_pyro._pyro.engines import _pareto_k
from pulse_pyro.data.summary import Identity
from pulse_pyro.laws.files import TEMPLATE, check_law
from tests.helpers import linear_history, mean_at

GOOD = TEMPLATE.format(name="good")
HISTORY, COEF = linear_history(units=8, time=20, lags=2)


@pytest.fixture
def write(tmp_path):
    def put(text, name="mine.py"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return put


def changed(*pairs):
    text = GOOD
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


PLATE = 'with pyro.plate("rows", x.shape[-2], dim=-1):'
BROKEN = [
    ("no plate", changed((PLATE, "if True:")), "not inside plate 'rows' on dim -1"),
    ("site misnamed", changed(('pyro.sample("w"', 'pyro.sample("W"')), "no site 'w'; did you mean"),
    ("not observed", changed((", obs=w)", ")")), "does not observe site 'w'; pass obs=w"),
    ("no to_event", changed(("sd[..., None]).to_event(1)", "sd[..., None])")), "to_event"),
    ("no model", "SUMMARY = None\n", "defines no 'model'.*model\\(x, w=None\\)"),
    ("empty", "", "defines no 'model'"),
    ("Model", changed(("def model(", "def Model(")), "'Model' is not used; did you mean 'model'"),
    ("modle", changed(("def model(", "def modle(")), "no 'model'; did you mean 'modle'"),
    ("summary", changed(("SUMMARY =", "summary =")), "'summary' is not used.*'SUMMARY'"),
    ("Guide", GOOD + "\nGuide = None\n", "'Guide' is not used; did you mean 'guide'"),
    ("model is a number", "model = 3\n", "'model' must be a function.*3"),
    ("takes nothing", "def model():\n    pass\n", "model\\(x\\) failed.*TypeError"),
    ("number as SUMMARY", changed(("Lags(2)  #", "2  #")), "such as Lags\\(3\\), but got 2"),
    ("class as SUMMARY", changed(("Lags(2)  #", "Lags  #")), "summary must be"),
    ("UNSEEN learned", GOOD + '\nUNSEEN = "learned"\n', "'refused' or 'conditioned on'"),
    ("raises", "import torch\n\nraise KeyError('moon')\n", "line 3.*KeyError: 'moon'"),
    ("leaves", GOOD + "\nimport sys\nsys.exit('moon')\n", "SystemExit: moon"),
    ("no such module", "import no_such_module_at_all\n", "ModuleNotFoundError.*no_such_module"),
    ("syntax", "def model(x:\n", "SyntaxError.*line 1"),
    ("NaN density", changed(("loc = a", "loc = a * float('nan')")), "failed.*ValueError"),
    ("NaN factor", GOOD + "    pyro.factor('f', a * float('nan'))\n", "failed.*ValueError"),
    ("endless prior", changed(("LogNormal(-1.0, 1.0)", "LogNormal(900.0, 1.0)")), "finite|failed"),
    (
        "a parameter",
        changed(
            ('pyro.sample("sd", dist.LogNormal(-1.0, 1.0))', 'pyro.param("sd", torch.ones(()))')
        ),
        "'sd' is a pyro.param",
    ),
]


@pytest.mark.parametrize(("text", "says"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN])
def test_a_bad_file_is_told_why(text, says, write):
    file = write(text)
    with pytest.raises((ModelError, DataError), match=says) as caught:
        check_law(file)
    assert "mine" in str(caught.value)


def test_made_up_rows_have_as_many_columns_as_the_model_needs(write):
    text = changed(("Lags(2)  #", "Lags(1)  #"), ("loc = a", "loc = a + x[..., 2]"))
    found = check_law(write(text))
    assert (found.card.x_dim, found.rows) == (3, "made-up rows of 3 S columns")
    assert check_law(write(GOOD, "good.py")).rows == "made-up rows of one S column"
    with pytest.raises(ModelError, match=r"x \(8, 1\)"):  # what it says of one column
        check_law(write(changed(("Lags(2)  #", "Lags(1)  #"), ("loc = a", "loc = a + x[..., 9]"))))


def test_a_state_law_of_other_columns_is_told_to_name_them(write):
    text = """
import pyro
import pyro.distributions as dist

def prior():
    return pyro.sample("sd", dist.LogNormal(0.0, 0.5))

def first(p):
    pyro.sample("z", dist.Normal(0.0, p))

def step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(z, p))
    pyro.sample("mood", dist.Normal(z + s_past[..., -1, 0], 1.0))
"""
    file = write(text)
    with pytest.raises(ModelError, match=r"made-up rows of columns s and w; .*--data archive.csv"):
        check_law(file)
    named = History.from_arrays(HISTORY.grid.s, HISTORY.grid.w, s_names=("s",), w_names=("mood",))
    assert check_law(file, named).rows == "8 units of the archive"
    with pytest.raises(ModelError, match="moody") as caught:
        check_law(write(text.replace('"mood"', '"moody"')), named)
    assert "made-up" not in str(caught.value)


def test_a_missing_file_gets_a_suggestion(tmp_path, write):
    write(GOOD, "sleep.py")
    with pytest.raises(ModelError, match=r"no file .*did you mean 'sleep.py'"):
        law_from_file(tmp_path / "slep.py")
    with pytest.raises(ModelError, match="no file"):
        law_from_file(tmp_path)
    with pytest.raises(ModelError, match="not a Python file"):
        law_from_file(write(GOOD, "sleep.txt"))


def test_the_line_is_named_for_a_relative_path_too(write, monkeypatch):
    monkeypatch.chdir(write("\n\nraise KeyError('moon')\n").parent)
    with pytest.raises(ModelError, match="line 3"):
        law_from_file("mine.py")


def test_a_file_may_hold_a_data_class(write):
    """A summary of one's own is most easily written as one."""
    future = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    own = "\n\n@dataclass(frozen=True)\nclass Own:\n    count: int = 1\n"
    body = GOOD.split('"""', 2)[2]
    assert check_law(write(future + body + own)).card.vectorised


def test_importing_the_protocol_is_not_a_misspelling(write):
    text = changed(
        ("pulse_pyro import Lags", "pulse_pyro.base import Summary"),
        ("SUMMARY = Lags(2)", "WHAT = Summary"),
    )
    assert law_from_file(write(text)).summary == Identity()


def test_a_law_carries_what_its_file_says(write):
    text = GOOD + '\nUNSEEN = "conditioned on"\n\n\ndef guide(x, w=None):\n    pass\n'
    law = law_from_file(write(text, "sleep.py"))
    assert (law.label, law.summary, law.unseen) == ("sleep", Lags(2), "conditioned on")
    assert dict(law.dims) == {"b": ("input",)}
    assert law.guide.__name__ == "guide"
    plain = law_from_file(write("def model(x, w=None):\n    pass\n", "plain.py"))
    assert (plain.summary, plain.unseen, plain.guide) == (Identity(), "refused", None)


def test_two_files_of_one_name_do_not_mix(tmp_path):
    for folder, loc in (("a", "0.0"), ("b", "5.0")):
        (tmp_path / folder).mkdir()
        text = changed(("Normal(0.0, 1.0)", f"Normal({loc}, 0.01)"))
        (tmp_path / folder / "law.py").write_text(text)
    before = set(sys.modules)
    first, second = (check_law(tmp_path / f / "law.py").prior[1, 0] for f in "ab")
    assert first < 1 < 4 < second
    assert "law" not in set(sys.modules) - before


def test_matmul_is_found_and_the_cure_is_shown(write):
    text = changed(("(x * b).sum(-1)  #", "x @ b  #"))
    found = check_law(write(text))
    assert not found.card.vectorised
    assert "draw by draw (slow)" in repr(found)
    assert "write (x * b).sum(-1) for x @ b" in repr(found)
    slow = law_from_file(write(text)).fit(HISTORY, Laplace(draws=20), seed=0)
    fast = law_from_file(write(GOOD, "fast.py")).fit(HISTORY, Laplace(draws=20), seed=0)
    assert_allclose(mean_at(slow, HISTORY.grid.s), mean_at(fast, HISTORY.grid.s), rtol=1e-6)


DISCRETE = {
    "global": changed(("loc = a", 'z = pyro.sample("z", dist.Bernoulli(0.5))\n    loc = z + a')),
    "a row's own": changed(
        (PLATE, PLATE + '\n        loc = loc + pyro.sample("z", dist.Bernoulli(0.5))')
    ),
}


@pytest.mark.parametrize(
    "how", [Laplace(), Nuts(10, 10), Svi(20, 5)], ids=lambda h: type(h).__name__
)
def test_a_discrete_latent_of_all_rows_is_refused_with_the_cure(how, write):
    with pytest.raises(ModelError, match=r"'z' is discrete.*sum it out.*MixtureSameFamily"):
        law_from_file(write(DISCRETE["global"])).fit(HISTORY, how, seed=0)


def test_a_discrete_latent_of_a_row_is_summed_out(write):
    law = law_from_file(write(DISCRETE["a row's own"]))
    assert [site.name for site in law.check(HISTORY).enumerated] == ["z"]
    assert set(law.fit(HISTORY, Laplace(20), seed=0).draws) == {"a", "b", "sd"}


def test_a_guide_that_misses_a_site_is_told_which(write):
    guide = '\n\ndef guide(x, w=None):\n    pyro.sample("a", dist.Normal(0.0, 1.0))\n'
    with pytest.raises(ModelError, match="mine: the guide does not sample site 'b'"):
        law_from_file(write(GOOD + guide)).fit(HISTORY, Svi(20, 5), seed=0)


@pytest.mark.parametrize(
    ("rate", "own"),
    [(30.0, False), (1e3, False), (1e6, False), (1e3, True), (1e6, True)],
    ids=["lost but finite", "whitened", "whitened, faster", "own guide", "own guide, faster"],
)
def test_svi_that_diverges_says_so_and_what_to_do(rate, own, write):
    """At rate 30 the draws end as one point, several units from the posterior."""
    guide = """

def guide(x, w=None):
    pyro.sample("a", dist.Normal(pyro.param("m", torch.zeros(())), 0.01))
    pyro.sample("b", dist.Normal(pyro.param("l", torch.zeros(2)), 0.01).to_event(1))
    pyro.sample("sd", dist.LogNormal(pyro.param("s", torch.zeros(())), 0.01))
"""
    law = law_from_file(write(GOOD + guide if own else GOOD))
    with pytest.raises(ConvergenceError, match=r"mine.*rate"):
        law.fit(HISTORY, Svi(20, 60, rate=rate), seed=0)


def test_weights_that_vanish_are_a_bad_sign_and_not_a_crash():
    """Met where W is constant, or where Svi ends far away: one ratio is 1, the others are 0."""

    class Steep:
        energy = staticmethod(lambda u: 1e5 * u[0])

    at = torch.linspace(0, 1, 400, dtype=torch.float64)[:, None]
    assert not _pareto_k(Steep, at, torch.zeros(400, dtype=torch.float64)) <= 0.62
