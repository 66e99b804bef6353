"""Measures of tools/house.py on small sources."""

import ast
import runpy
from pathlib import Path

HOUSE = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "house.py"))


def test_function_length_includes_docstring():
    lines = "\n".join(["    x = 1"] * 59)
    assert HOUSE["long_functions"](ast.parse(f"def short():\n{lines}")) == {}
    nested = f'class A:\n  def long(self):\n    """Text."""\n{lines}'
    assert HOUSE["long_functions"](ast.parse(nested)) == {"A.long": 61}


def test_parameters_of_public_calls():
    nine = ", ".join("abcdefghi")
    source = f"""
def public({nine}): ...
def keyword(a, b, c, d, *, e, f, g, h, i): ...
def _private({nine}): ...
class A:
    def __init__(self, {nine}): ...
    def method(self, {nine[3:]}): ...
class CreINNClassifier:
    def __init__(self, {nine}): ...
"""
    found = HOUSE["many_parameters"](ast.parse(source))
    assert found == {"public": 9, "keyword": 9, "A.__init__": 9}


def test_fields_of_estimator_are_parameters():
    fields = "\n".join(f"    a{k}: int = 0" for k in range(15))
    found = HOUSE["many_parameters"](ast.parse(f"class CreINNClassifier:\n{fields}"))
    assert found == {"CreINNClassifier.__init__": 15}
