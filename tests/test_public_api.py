"""What users see: every public name loads, is documented, and has no argument tunnels."""

import inspect
import subprocess
import sys

import pytest

import pulse_pyro

NAMES = pulse_pyro.__all__


@pytest.mark.parametrize("name", NAMES)
def test_public_names_load_and_are_documented(name):
    thing = getattr(pulse_pyro, name)
    assert inspect.getdoc(thing)


@pytest.mark.parametrize("name", NAMES)
def test_public_callables_have_few_named_arguments(name):
    thing = getattr(pulse_pyro, name)
    error = isinstance(thing, type) and issubclass(thing, Exception)
    if error or getattr(thing, "_is_protocol", False):
        return
    kinds = [p.kind for p in inspect.signature(thing).parameters.values()]
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.Parameter.VAR_POSITIONAL not in kinds or name in ("Stack", "stream")
    if inspect.isfunction(thing):
        assert len(kinds) <= 7


def test_no_public_name_is_hidden_by_a_module_of_the_same_name():
    for name in NAMES:
        getattr(pulse_pyro, name)
    assert not [name for name in NAMES if inspect.ismodule(getattr(pulse_pyro, name))]


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Pulse'"):
        pulse_pyro.Pulse  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import pulse_pyro",
        "import pulse_pyro.cli; from pulse_pyro.commands import parser as p; p()",
    ],
)
def test_import_and_help_load_nothing_heavy(code):
    heavy = ["torch", "pyro", "numba", "pandas", "matplotlib", "scipy", "arviz", "xarray"]
    probe = f"{code}\nimport sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
