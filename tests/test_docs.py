"""Tests of the documentation: names, files, links, reference and recorded tables."""

import importlib
import json
import re
import runpy
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import creinn
from creinn import nn

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "reference").glob("*.md"),
    ]
)
REFERENCE = "\n".join(
    page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
)
PACKAGES = (
    "models",
    "credal",
    "baselines",
    "training",
    "data",
    "evaluation",
    "report",
    "sklearn",
)
DEMO = json.loads((ROOT / "results" / "demo" / "results.json").read_text())


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def find(path):
    """Return the object with the given path."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        try:
            found = importlib.import_module(".".join(names[:length]))
        except ModuleNotFoundError:
            continue
        for name in names[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_the_package_exist(page):
    for path in re.findall(r"`(creinn(?:\.\w+)+)", page.read_text()):
        assert find(path) is not None, path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_are_valid(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_files_of_architecture_page_exist():
    table = (ROOT / "docs" / "architecture.md").read_text().split("| change |")[1]
    paths = re.findall(r"`([\w/]+\.(?:py|json|yaml))`", table)
    assert len(paths) > 10
    for path in paths:
        if "NAME" not in path:
            assert (ROOT / path).exists() or (ROOT / "src" / "creinn" / path).exists(), path


def test_picture_of_start_page_can_be_drawn():
    figure = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["draw"]()
    figure.canvas.draw()
    assert len(figure.axes) == 2
    plt.close(figure)


def is_documented(home: str, name: str) -> bool:
    """Return whether the reference contains this name."""
    by_itself = re.search(rf"^.. auto\w+:: {home}\.{name}$", REFERENCE, re.M)
    module = re.search(rf"^.. automodule:: {home}\n(.*?)^```", REFERENCE, re.M | re.S)
    members = module and re.search(r":members: (.*)", module[1])
    as_member = module and (
        name in members[1].split(", ") if members else ":no-members:" not in module[1]
    )
    return bool(by_itself or as_member)


def test_public_names_are_in_reference():
    for name in creinn.__all__:
        home = find(f"creinn.{name}")
        path = getattr(home, "__name__", "") if type(home).__name__ == "module" else None
        assert f":: {path}\n" in REFERENCE if path else is_documented("creinn", name), name
    for package in PACKAGES:
        for name in importlib.import_module(f"creinn.{package}").__all__:
            is_top = name in creinn.__all__ and is_documented("creinn", name)
            path = f"creinn.{package}.{name}"
            assert (
                is_top
                or is_documented(f"creinn.{package}", name)
                or f"automodule:: {path}\n" in REFERENCE
            ), path
    for name, value in vars(nn).items():
        if isinstance(value, type) and value.__module__.startswith("creinn.nn"):
            assert is_documented("creinn.nn", name), name


def demo_number(model: str, measure: str) -> str:
    """Return a recorded number in the format of the tables."""
    values = [run[measure] for run in DEMO["runs"][model]]
    if None in values:
        return "\N{EN DASH}"
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def rows_of(text: str, first: str) -> list[list[str]]:
    """Return the cells of the table that begins with ``first``, without the separator line."""
    lines = text[text.index(first) :].split("\n\n")[0].splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])
    ]


def test_demo_table_matches_record():
    (_, *models), *rows = rows_of((ROOT / "docs" / "demo.md").read_text(), "| measure |")
    models = [re.sub(r" \(\d+\)", "", model) for model in models]
    assert len(models) == len(DEMO["runs"])
    assert 4 < len(rows) <= 8
    for measure, *cells in rows:
        for model, cell in zip(models, cells, strict=True):
            expected = (
                str(DEMO["parameters"][model])
                if measure == "parameters"
                else demo_number(model, measure)
            )
            assert cell == expected, (measure, model)


def test_margins_match_record():
    record = json.loads((ROOT / "results" / "study" / "guarantees.json").read_text())["margins"]
    _, *rows = rows_of((ROOT / "docs" / "calibrate.md").read_text(), "| data | margin |")
    assert [row[1] for row in rows] == ["deviation", "additive"] * 2
    sources = [("images", "SVHN")] * 2 + [("texts", "tweets")] * 2
    for (data, foreign), (_, margin, *cells) in zip(sources, rows, strict=True):
        names = ("coverage", "width", "coverage_ambiguous", f"auroc {foreign}")
        found = [record[data][margin][name] for name in (*names, f"auroc {foreign} widened")]
        assert [float(cell) for cell in cells] == pytest.approx(found, abs=5.1e-4), (data, margin)


def test_accepted_shares_match_record():
    record = json.loads((ROOT / "results" / "study" / "guarantees.json").read_text())["abstention"]
    _, *rows = rows_of((ROOT / "docs" / "study.md").read_text(), "| data | error rate |")
    for data, (_, rate, *cells) in zip(["CIFAR-10"] * 2 + ["X-ray"] * 2, rows, strict=True):
        names = ("total", "aleatoric", "epistemic", "entropy")
        found = [record[data][rate][name]["accepted"] for name in names]
        assert [float(cell) for cell in cells] == pytest.approx(found, abs=6e-4), (data, rate)


def test_transformer_table_matches_record():
    record = json.loads((ROOT / "results" / "study" / "transformer.json").read_text())["results"]
    names, *rows = rows_of((ROOT / "docs" / "transformers.md").read_text(), "| texts |")
    domains = ("tweets", "amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets")
    for domain, (_, *cells) in zip(domains, rows, strict=True):
        for name, cell in zip(names[1:], cells, strict=True):
            expected = (
                "\N{EN DASH}" if record[domain][name] == 0.5 else f"{record[domain][name]:.3f}"
            )
            assert cell == expected, (domain, name)


PLAIN = "plain network"  # the SNN, which is ranked by its entropy


def demo_score(model: str, measure: str) -> str:
    model, kind = ("SNN", "TU") if model == PLAIN else (model, "EU")
    return demo_number(model, measure.replace("EU", kind)).partition(" ±")[0]


def test_start_page_table_matches_record():
    _, *rows = rows_of((ROOT / "docs" / "index.md").read_text(), "| | networks |")
    measures = ("accuracy", "AUROC held-out digits, EU", "AUROC photographs, EU")
    assert len(rows) > 3
    for model, _, *cells in rows:
        for measure, cell in zip(measures, cells, strict=True):
            assert cell == demo_score(model.partition(",")[0], measure), (model, measure)


def summary_rows(table: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the rows of all tables of this name in the study's record, by their first cell."""
    tables = json.loads((ROOT / "results" / "study" / "summary.json").read_text())["tables"]
    return {row[name]: row for found in tables[table] for row in found["rows"] if name in row}


def mean_of(cell: Any) -> float | None:
    return cell["mean"] if isinstance(cell, dict) else cell


README_ROWS = {  # row of the README: ResNet-50, fine-tuned score and model, demo
    f"{PLAIN}, entropy": ("SNN", "entropy", "network", PLAIN),
    "Deep Ensembles": ("", "Deep Ensembles, TU", "Deep Ensembles", "Deep Ensemble"),
    "Deep Ensembles, credal wrapper": (
        *("", "credal wrapper of Deep Ensembles, TU"),
        *("credal wrapper of Deep Ensembles", ""),
    ),
    "CreINN, the paper's form": ("CreINN", "", "", "CreINN"),
    "CreINN-D": ("CreINN-D, post hoc", "CreINN-D, EU", "CreINN-D", "CreINN-D"),
}


def test_readme_table_matches_record():
    _, *rows = rows_of((ROOT / "README.md").read_text(), "| model | networks |")
    assert [row[0] for row in rows] == list(README_ROWS)
    paper, scores = summary_rows("paper", "model"), summary_rows("finetuned", "score")
    accuracies = summary_rows("quality", "model")  # the last tables are those of fine-tuned ones
    for model, _, *cells in rows:
        large, score, tuned, demo = README_ROWS[model]
        ours = paper.get(large, {})
        accuracy = mean_of(accuracies.get(tuned, {}).get("accuracy"))
        expected = [
            mean_of(ours.get("accuracy %")),
            mean_of(ours.get("AUROC EU")) or mean_of(ours.get("AUROC TU")),
            accuracy and 100 * accuracy,
            mean_of(scores.get(score, {}).get("SVHN")),
            float(demo_score(demo, "AUROC held-out digits, EU")) if demo else None,
        ]
        found = [None if cell == "\N{EN DASH}" else float(cell) for cell in cells]
        for value, cell in zip(expected, found, strict=True):
            assert cell == (value and pytest.approx(value, rel=1e-3)), (model, value, cell)
