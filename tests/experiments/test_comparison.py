"""Tests of the comparison with the published values."""

import dataclasses

import pytest

from experiments.agreement import agreement, comparison_table
from experiments.catalogue import EXPERIMENTS
from experiments.result_tables import Entry, Study, budget_table, curve_table


def study_of(methods):
    """Return a study with one record per method."""
    found = {name: {"auroc": 0.7, "auprc": 0.6} for name in ("epistemic", "total")}
    auarc = {"aleatoric": 0.9, "epistemic": 0.9, "total": 0.9}

    def record(method):
        points = {"accuracy": 0.8 if method == "snn" else 0.79, "auarc": auarc}
        return {"metrics": {"running": {"sets": {"points": points}, "ood": {"svhn": found}}}}

    rows = [
        {"val_loss": 1 / epoch, "val_accuracy": 0.1 * epoch, "seconds": 2.0} for epoch in (1, 2)
    ]
    training = {"history": rows, "parameters": 7, "seconds": 4.5}
    entries = [Entry("evaluate", method, "points", record(method), training) for method in methods]
    settings = dataclasses.asdict(EXPERIMENTS["cifar10-svhn-resnet50"])
    return Study(settings["name"], list(methods), ["points"], settings, {}, entries)


def test_published_values():
    rows = {
        row["model"]: row
        for row in comparison_table(
            study_of(["snn", "creinn-d-post-hoc", "bnn-l-post-hoc"]), "svhn"
        )
    }
    assert len(rows) == 13  # the rows of the paper and CreINN-D
    snn, laplace = rows["SNN"], rows["BNN-L, post hoc"]
    assert snn["accuracy %, paper (150 epochs)"].mean == 81.4
    assert snn["accuracy %, ours (12 epochs)"].mean == pytest.approx(80)
    assert snn["runs, ours (paper 15)"] == 1
    assert snn["AUROC EU, ours (12 epochs)"] is None  # one network has no epistemic uncertainty
    assert laplace["AUROC TU, paper (150 epochs)"].mean == 0.761
    assert laplace["AUROC TU, ours (12 epochs)"].mean == 0.7
    assert rows["CreINN"]["accuracy %, ours (12 epochs)"] is None
    assert rows["CreINN-D, post hoc"]["accuracy %, paper (150 epochs)"] is None


def test_text_names_agreement_orders_and_what_is_unverified():
    text = agreement(study_of(["snn", "creinn", "creinn-d-post-hoc"]), "svhn")
    within, other = text.split("Other values")
    assert "SNN accuracy % (-1.4)" in within  # 80 instead of 81.4 +- 1.48
    assert "CreINN accuracy % (-5.2)" in other  # 79 instead of 84.2
    assert "CreINN-D" not in text  # no published values
    assert "accuracy %: CreINN above SNN" in other.split("Reversed orders")[1]
    assert "12 epochs and at most 1 run." in text
    assert "BNN-L" in text.split("Not measured")[1]


def test_learning_curves_and_seconds_per_epoch():
    study = study_of(["snn", "creinn"])
    assert curve_table(study, "val_loss") == [
        {"epoch": 1, "SNN": 1.0, "CreINN": 1.0},
        {"epoch": 2, "SNN": 0.5, "CreINN": 0.5},
    ]
    assert budget_table(study)[0]["training s per epoch"].mean == 2
