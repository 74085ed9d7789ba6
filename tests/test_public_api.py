"""What users see: few names at the top, the rest in namespaces; each loads."""

import ast
import inspect
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import pulse_pyro

ROOT = Path(pulse_pyro.__file__).parent
SPACES = (
    "data",
    "laws",
    "bands",
    "diagnostics",
    "calibration",
    "policies",
    "envs",
    "offpolicy",
    "report",
    "study",
)
MANY_ARGUMENTS = 8


def public(space):
    module = import_module(f"pulse_pyro.{space}") if space else pulse_pyro
    return {name: getattr(module, name) for name in module.__all__}


def test_at_most_forty_names_stand_at_the_top():
    assert len(pulse_pyro.__all__) <= 40


@pytest.mark.parametrize("space", ["", *SPACES])
def test_names_load_and_have_no_argument_tunnels(space):
    for name, thing in public(space).items():
        assert not inspect.ismodule(thing), f"{name} is hidden by a module of its name"
        if not callable(thing):
            continue
        error = isinstance(thing, type) and issubclass(thing, Exception)
        if error or getattr(thing, "_is_protocol", False):
            continue
        kinds = [p.kind for p in inspect.signature(thing).parameters.values()]
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name
        assert inspect.Parameter.VAR_POSITIONAL not in kinds or name in ("Stack", "stream")
        if inspect.isfunction(thing):
            assert len(kinds) <= MANY_ARGUMENTS, name


def test_a_name_means_one_thing_in_every_namespace():
    meant = {}
    for space in ("", *SPACES):
        for name, thing in public(space).items():
            assert meant.setdefault(name, thing) is thing, name


def test_no_two_classes_or_public_functions_share_a_name():
    homes = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            public_function = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if isinstance(node, ast.ClassDef) or public_function:
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Pulse'"):
        pulse_pyro.Pulse  # noqa: B018
    with pytest.raises(AttributeError, match=r"pulse_pyro\.laws.*no attribute 'Pulse'"):
        pulse_pyro.laws.Pulse  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import pulse_pyro, pulse_pyro.laws, pulse_pyro.policies, pulse_pyro.study",
        "import pulse_pyro.cli; from pulse_pyro.cli import parser as p; p()",
    ],
)
def test_import_and_help_load_nothing_heavy(code):
    heavy = ["torch", "pyro", "numba", "pandas", "matplotlib", "scipy", "arviz", "xarray"]
    heavy += ["sklearn", "pyarrow", "h5netcdf"]
    probe = f"{code}\nimport sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
