"""Tests of the comparison with the published values."""

import dataclasses

import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.result_tables import Entry, Study, comparison_table


def study_of(methods):
    """Return a study with one record per method."""
    found = {name: {"auroc": 0.7, "auprc": 0.6} for name in ("epistemic", "total")}
    points = {"accuracy": 0.8, "auarc": {"aleatoric": 0.9, "epistemic": 0.9, "total": 0.9}}
    record = {"metrics": {"running": {"sets": {"points": points}, "ood": {"svhn": found}}}}
    entries = [Entry("evaluate", method, "points", record, None) for method in methods]
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
