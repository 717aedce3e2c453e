"""Yardsticks of the house: functions fit a screen, classes hold one idea, and the package's root stays small.

They are yardsticks, not goals: a longer function or a larger class may stay if its line below says why, and that line
must go when it is no longer needed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedclade

ROOT = Path(fedclade.__file__).parent
MAX_LINES, MAX_METHODS = 60, 15
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Where it is, and why it may be longer than a screen.
LONGER_FUNCTIONS = {
    "fleet/simulated/kernels/lean.py:_convolution": "one kernel written out, whose steps share a dozen buffers",
}
# Where it is, and why it may have more methods.
LARGER_CLASSES = {
    "runs/reader.py:Run": "one property for each table of a run, plainer than attributes that are made up",
}

ROOT_MODULES = {"__init__", "__main__", "server", "simulation"}


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Every function and class of the package, by file and name."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, Function | ast.ClassDef):
                yield f"{path.relative_to(ROOT).as_posix()}:{node.name}", node


def longer_functions() -> set[str]:
    return {
        place
        for place, node in definitions()
        if isinstance(node, Function) and node.end_lineno - node.lineno + 1 > MAX_LINES
    }


def larger_classes() -> set[str]:
    return {
        place
        for place, node in definitions()
        if isinstance(node, ast.ClassDef) and sum(isinstance(part, Function) for part in node.body) > MAX_METHODS
    }


def test_no_function_is_longer_than_a_screen_unless_it_says_why():
    found = longer_functions()
    assert found <= set(LONGER_FUNCTIONS)
    assert set(LONGER_FUNCTIONS) <= found


def test_no_class_holds_two_ideas_unless_it_says_why():
    found = larger_classes()
    assert found <= set(LARGER_CLASSES)
    assert set(LARGER_CLASSES) <= found


def test_the_root_of_the_package_holds_the_loop_and_little_else():
    found = {path.stem for path in ROOT.glob("*.py")}
    assert ROOT_MODULES <= found <= ROOT_MODULES
