"""Run the examples with a few training steps; ``make docs`` runs them whole.

The example of the export is tested in ``graph/test_export.py``.
"""

import ast
import importlib.util
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from creinn import TrainConfig

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
ELSEWHERE = ("export", "pretrained")  # the second needs weights, and most of a minute
LONGEST = 120


@pytest.fixture
def hurried(monkeypatch):
    """Trainings end after two epochs, pictures are drawn and not shown."""
    check = TrainConfig.__post_init__

    def shorten(self) -> None:
        object.__setattr__(self, "epochs", min(self.epochs, 2))
        check(self)

    monkeypatch.setattr(TrainConfig, "__post_init__", shorten)
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in ELSEWHERE], ids=lambda path: path.stem
)
def test_example_runs(path, hurried, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_gallery_page(path):
    text = path.read_text()
    title, line, *_ = ast.get_docstring(ast.parse(text)).splitlines()
    assert set(line) == {"="}
    assert len(line) == len(title)
    assert "\n# %%\n" in text
    assert len(text.splitlines()) <= LONGEST
    assert "../shared" not in text


def test_gallery_lists_all_examples():
    order = (
        (Path(__file__).parents[1] / "docs" / "conf.py")
        .read_text()
        .split("ORDER = ")[1]
        .split(")")[0]
    )
    assert sorted(ast.literal_eval(order + ")")) == [path.stem for path in EXAMPLES]


def test_examples_declare_requirements():
    needed = {
        path.stem
        for path in EXAMPLES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name]
        if importlib.util.find_spec(name.split(".")[0]) is None
    }
    assert needed <= {"pretrained", "transformer"}
