"""A part imports only from itself and the parts above it, lazily or not; never in circles."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "pulse_pyro"
PARTS = (
    "_core",
    "base",
    "data",
    "features",
    "_pyro",
    "laws",
    "bands",
    "diagnostics",
    "radius",
    "calibration",
    "policies",
    "envs",
    "offpolicy",
    "report",
    "study",
    "paper",
    "cli",
)
ENTRY = re.compile(r"pulse_pyro(\.\w+)+:\w+")
LOOSE = {"base", "features", "radius", "cli"}
LATER = "pulse_pyro.*"  # a path that is only known when it is called
HOOKS = {
    # results have a .plot(), and report lists all plots: it is asked by name, when one is drawn
    ("pulse_pyro.base", "pulse_pyro.report"),
    # save and load know every kind by name, and its own module packs it
    ("pulse_pyro._core.saved", LATER),
}
# what a fitted law says of itself by other modules that are named in types
TYPED_CIRCLES = {
    ("pulse_pyro.laws.fitted", "pulse_pyro.laws.law"),  # what was fitted, and its fit
    ("pulse_pyro.laws.arviz_tree", "pulse_pyro.laws.fitted"),  # its own method to_arviz
    ("pulse_pyro.paper.setting", "pulse_pyro.paper.result"),  # an experiment, and its result
}


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
del MODULES["pulse_pyro"]  # the table of public names, which are loaded when first used


def path_of(node):
    """The module import_module is asked for: a constant, or LATER for f"pulse_pyro.{...}"."""
    if isinstance(node, ast.Constant):
        return node.value
    first = node.values[0] if isinstance(node, ast.JoinedStr) else None
    starts = isinstance(first, ast.Constant) and first.value.startswith("pulse_pyro.")
    return LATER if starts else None


@cache
def imports(name):
    """(module, when) of every import of a file.

    when: "at once", "called", "typing", or "named": a registry's entry, "module:attribute".
    import_module counts where its path is written out, in whole or, from "pulse_pyro." on, in part.
    """
    tree = ast.parse(MODULES[name].read_text())
    when = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            when |= dict.fromkeys(map(id, ast.walk(node)), "called")
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            when |= dict.fromkeys(map(id, ast.walk(node)), "typing")
    found = []
    for node in ast.walk(tree):
        at = when.get(id(node), "at once")
        if isinstance(node, ast.Import):
            found += [(alias.name, at) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(one if one in MODULES else node.module, at) for one in whole]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found += [(path, at) for path in [path_of(node.args[0])] if path]
        elif isinstance(node, ast.Constant) and ENTRY.fullmatch(str(node.value)):
            found.append((node.value.split(":")[0], "named"))
    return tuple(found)


def part(name):
    return PARTS.index(name.split(".")[1])


def test_every_module_is_in_a_part():
    assert {name.split(".")[1] for name in MODULES} == set(PARTS)
    loose = {name.split(".")[1] for name, path in MODULES.items() if path.parent == ROOT}
    assert loose == LOOSE


def test_imports_point_upwards_typing_and_lazy_ones_too():
    wrong = [
        f"{name} imports {module} ({when})"
        for name in MODULES
        for module, when in imports(name)
        if (name, module) not in HOOKS
        and (module == LATER or (module in MODULES and part(module) > part(name)))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_hook_is_there():
    for name, module in HOOKS | TYPED_CIRCLES:
        assert module in [m for m, _ in imports(name)], f"{name} no longer names {module}"


def test_a_path_that_is_loaded_when_called_is_seen(monkeypatch, tmp_path):
    path = tmp_path / "late.py"
    path.write_text(
        "def f(x):\n"
        "    import_module('pulse_pyro.report.page')\n"
        "    importlib.import_module(f'pulse_pyro.{x}')\n"
        "    import_module(x)\n"
    )
    monkeypatch.setitem(MODULES, "pulse_pyro._core.late", path)
    assert imports("pulse_pyro._core.late") == (
        ("pulse_pyro.report.page", "called"),
        (LATER, "called"),
    )


def test_only_the_command_line_imports_the_paper():
    inside = ("pulse_pyro.paper", "pulse_pyro.cli")
    for name in MODULES:
        if not name.startswith(inside):
            assert not [m for m, _ in imports(name) if m.startswith("pulse_pyro.paper")], name


def test_nothing_is_imported_in_circles():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for module, when in imports(name):
            # a registry lists what its package holds; it is read by name, and loads nothing itself
            skipped = when == "named" or (name, module) in HOOKS
            skipped |= when == "typing" and (name, module) in TYPED_CIRCLES
            if module in MODULES and module != name and not skipped:
                visit(module)
        done.add(path.pop())

    for name in MODULES:
        visit(name)


def test_torch_and_pyro_are_imported_in_two_parts_and_by_laws_only_when_called():
    for name in MODULES:
        for module, when in imports(name):
            if module.split(".")[0] in ("torch", "pyro"):
                home = name.split(".")[1]
                assert home == "_pyro" or (home == "laws" and when == "called"), name
