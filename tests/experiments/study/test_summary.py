"""Tests of the tables and figures of the study."""

import json
from pathlib import Path

import pytest

from creinn.classifier.methods import TIMES
from creinn.report.tables import NO_VALUE
from experiments.predictions import GRID
from experiments.store import read_packed, write_json, write_packed
from experiments.study import summary as study

ROOT = Path(__file__).parents[3]
OOD = {
    "study-fashion-mnist": ["mnist", "cifar10"],
    "study-cifar10-svhn": ["svhn"],
    "study-chest-xray": ["cifar10"],
}
OOD["cifar10-svhn-resnet20"] = ["svhn"]
OOD["cifar10-svhn-resnet50"] = ["svhn"]
FILES = ("pretrained", "credal", "finetuned", "converted", "terms", "members")
METHODS = ("snn-norm", "creinn-d", "deep-ensemble-norm", "creinn-d-ensemble")


def metrics(ood, auroc=0.9, total=0.8, accuracy=0.8, auarc=0.9):
    keys = ("aleatoric", "epistemic", "total")
    points = {"accuracy": accuracy, "auarc": dict.fromkeys(keys, auarc)}
    points["curves"] = {key: [accuracy + rate * (1 - accuracy) for rate in GRID] for key in keys}
    found = {"epistemic": {"auroc": auroc, "auprc": 0.7}, "total": {"auroc": total, "auprc": 0.6}}
    return {"sets": {"points": points}, "ood": dict.fromkeys(ood, found)}


def change(folder, experiment, records, manifest=None):
    """Add records to the file of an experiment; remove those that are ``None``."""
    path = folder / f"{experiment}.jsonl.gz"
    before = read_packed(path) if path.exists() else ({}, {})
    kept = {name: found for name, found in {**before[1], **records}.items() if found is not None}
    write_packed(path, manifest or before[0], kept)


def record(folder, experiment, method, number, batch=None, seconds=2.0, **values):
    """Record a task, and its training if it is a single method."""
    kind = "ensemble" if "ensemble" in method else "evaluate"
    name = f"{experiment}-{method}-{number}"
    content = {"number": number, "commit": "abc", "milliseconds_per_image": seconds / 4}
    content["metrics"] = {"running": metrics(OOD[experiment], **values)}
    if batch is not None:
        content["metrics"]["batch"] = metrics(OOD[experiment], total=batch)
    training = None
    if kind == "ensemble":
        content["members"] = list(range(10 if method.startswith("deep") else 5))
    else:
        training = f"train-{name}"
        change(
            folder, experiment, {training: {"commit": "def", "seconds": seconds, "parameters": 100}}
        )
    change(folder, experiment, {name: content})
    task = {"name": name, "kind": kind, "method": method, "number": number, "arm": "points"}
    return {**task, "training": training}


def manifest(folder, experiment, tasks, methods=METHODS):
    settings = {"name": experiment, "methods": list(methods), "paper": None}
    change(folder, experiment, {}, {"experiment": settings, "pieces": tasks})


@pytest.fixture
def results(tmp_path):
    """Records of two runs of each single method on Fashion-MNIST, and one ensemble of each kind."""
    folder, name = tmp_path / "results", "study-fashion-mnist"
    tasks = [
        record(folder, name, "snn-norm", run, accuracy=0.80 + run / 10, batch=0.85)
        for run in range(2)
    ]
    tasks += [
        record(
            folder,
            name,
            "creinn-d",
            run,
            accuracy=0.80 + run / 10,
            auroc=0.93 + run / 50,
            seconds=2.2,
        )
        for run in range(2)
    ]
    tasks.append(record(folder, name, "deep-ensemble-norm", 0, auroc=0.91))
    tasks.append(record(folder, name, "creinn-d-ensemble", 0, auroc=0.96, total=0.8, auarc=0.9))
    manifest(folder, name, tasks)
    return folder


def run(results, names=("opening", "rejection", "near")):
    """Run the script on a page with these markers; return page, summary and exit code."""
    page = results.parent / "page.md"
    page.write_text(
        "# Title\n\n"
        + "\nkept\n".join(f"<!-- begin: {n} -->\nold\n<!-- end: {n} -->" for n in names)
    )
    options = {
        "--results": results,
        "--page": page,
        "--figures": results.parent / "figures",
        "--to": results.parent,
    }
    options |= {f"--{name}": results.parent / f"{name}.json" for name in FILES}
    code = study.main([str(word) for pair in options.items() for word in pair])
    summary = results.parent / "summary.json"
    return page.read_text(), json.loads(summary.read_text()) if summary.is_file() else None, code


def section(results, heading):
    """Return the text below a heading of the report."""
    return (results.parent / "report.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]


def test_replace_between_markers():
    page = "a\n<!-- begin: one -->\nold\n\n<!-- end: one -->\nb\n<!-- begin: two -->\n<!-- end: two -->\nc"
    expected = "a\n<!-- begin: one -->\n1\n<!-- end: one -->\nb\n<!-- begin: two -->\n2\n<!-- end: two -->\nc"
    assert study.replace_blocks(page, {"one": "1", "two": "2"}) == expected
    assert study.replace_blocks(expected, {"one": "1", "two": "2"}) == expected


@pytest.mark.parametrize(
    ("page", "token"),
    [
        ("<!-- begin: one -->\ntext", "end: one"),
        ("text\n<!-- end: one -->", "Line 2"),
        ("<!-- begin: one -->\n<!-- begin: two -->", "inside 'one'"),
        ("<!-- begin: one -->\n<!-- end: two -->", "ends 'two'"),
        ("<!-- begin: three -->\n<!-- end: three -->", "'three'"),
        ("<!-- begin: one -->\n<!-- end: one -->\n" * 2, "twice"),
    ],
)
def test_wrong_markers_raise(page, token):
    with pytest.raises(ValueError, match=token):
        study.replace_blocks(page, {"one": "1", "two": "2"})


def test_wrong_marker_writes_nothing(results, capsys):
    page, summary, code = run(results, ("opening", "unheard-of"))
    assert code == 1
    assert "old" in page
    assert summary is None
    assert not (results.parent / "figures").exists()
    assert "'unheard-of'" in capsys.readouterr().err


def test_tables_by_hand(results):
    page, summary, code = run(results)
    assert code == 0
    assert "old" not in page
    assert page.count("kept") == 2
    # The AUROC by EU is .93 and .95, the accuracy .8 and .9. The SNN has an AUROC by TU of .8.
    none = f"{NO_VALUE} | {NO_VALUE}"
    assert f"| CreINN-D | 1 | 0.940 | 0.940 | {none} | {NO_VALUE} |" in page
    assert "| plain network, entropy | 1 | 0.800 |" in page
    assert "| Deep Ensembles | 10 | 0.910 |" in page
    assert "| CreINN-D, ensemble | 5 | 0.960 |" in page
    assert f"| CreINN-D | 85.00 | {none} | 0.900 | {none} |" in page
    assert "| CreINN-D | 2 | 85.00 ± 7.07 | 0.900 ± 0.000 | 0.900 ± 0.000 |" in section(
        results, "Fashion-MNIST"
    )
    assert "No records yet." in section(results, "CIFAR-10 against SVHN")
    opening = {row["model"]: row for row in summary["tables"]["opening"][0]["rows"]}
    cell = opening["CreINN-D"]["Fashion → MNIST"]
    assert cell == {
        "mean": pytest.approx(0.94),
        "std": pytest.approx(0.0141421, abs=1e-6),
        "runs": 2,
    }
    assert summary["records"] == {
        "study-fashion-mnist": {"commits": {"abc": 6, "def": 4}, "missing": 0}
    }


def test_costs_are_relative_to_the_ordinary_network(results):
    run(results)
    page = section(results, "Cost on Fashion-MNIST")
    assert "SNN, logit norm = 1." in page  # there is no SNN without the norm
    assert "| CreINN-D | 2 | 1.00 | 1.10 | 1.10 |" in page
    assert f"| CreINN-D {TIMES}5 | 2 | 5.00 | 5.50 | 5.50 |" in page


def test_batch_statistics_need_both_kinds_of_records(results):
    run(results)
    page = section(results, "Batch statistics")
    assert (
        "| Fashion-MNIST → MNIST | SNN, logit norm | 2 | 0.800 ± 0.000 | 0.850 ± 0.000 | 0.050 |"
        in page
    )
    assert "CreINN-D" not in page


def test_missing_method_has_no_row(results):
    page, _, _ = run(results)
    assert "the paper's form" not in page
    change(results, "study-fashion-mnist", {"study-fashion-mnist-deep-ensemble-norm-0": None})
    page, summary, code = run(results)
    assert code == 0
    assert "Deep Ensembles" not in page
    assert "CreINN-D, ensemble" in page
    assert summary["records"]["study-fashion-mnist"]["missing"] == 1


def test_a_pretrained_network_has_a_row_per_score(results):
    mean = {"entropy": {"SVHN": {"mean": 0.9, "std": 0.01}, "AUARC": {"mean": 0.97, "std": 0.002}}}
    write_json(
        results.parent / "pretrained.json", {"commit": "add", "mean": mean, "splits": [{}] * 5}
    )
    _, summary, _ = run(results)
    assert "| entropy | 0.900 ± 0.010 | 0.970 ± 0.002 |" in section(
        results, "Frozen pretrained network"
    )
    assert summary["tables"]["frozen"][0]["rows"][0]["SVHN"] == {
        "mean": 0.9,
        "std": 0.01,
        "runs": 5,
    }
    assert summary["pretrained"]["commit"] == "add"


def test_fine_tuned_networks(results):
    mean = {"entropy": {"SVHN": {"mean": 0.9, "std": 0.01}, "AUARC": {"mean": 0.97, "std": 0.002}}}
    together = {
        "members": 5,
        "auroc": {"CreINN-D, averaged, EU": {"SVHN": 0.95}},
        "auarc": {"CreINN-D, averaged, EU": 0.99},
    }
    sizes = {"coverage": {"test": 0.94}, "size": {"test": 1.1, "SVHN": 8.0}}
    names = (
        "distance, lower",
        "distance, dominance",
        "ordinary, lac",
        "ordinary, aps",
        "ordinary, raps",
    )
    other = {"coverage": {"test": 0.96}, "size": {"test": 1.3, "SVHN": 9.0}}
    runs = [{"conformal": dict.fromkeys(names, of)} for of in (sizes, other)]
    write_json(
        results.parent / "finetuned.json", {"mean": mean, "runs": runs, "ensembles": together}
    )
    page, _, _ = run(results, ("finetuned", "conformal"))
    assert "| entropy | 1 | 0.900 | 0.970 |" in page
    assert "| CreINN-D, averaged, EU | 5 | 0.950 | 0.990 |" in page
    full = section(results, "Fine-tuned pretrained network")
    assert "| entropy | 0.900 ± 0.010 | 0.970 ± 0.002 |" in full
    assert "| CreINN-D, averaged, EU | 0.950 | 0.990 |" in full
    assert "| network, LAC | 0.950 | 1.200 | 8.500 |" in page


def test_unknown_conformal_scores_are_ignored(results):
    mean = {"entropy": {"SVHN": {"mean": 0.9, "std": 0.01}, "AUARC": {"mean": 0.97, "std": 0.002}}}
    sizes = {"coverage": {"test": 0.94}, "size": {"test": 1.1, "SVHN": 8.0}}
    write_json(
        results.parent / "pretrained.json",
        {"mean": mean, "splits": [{"conformal": {"distance, older": sizes}}]},
    )
    page, _, _ = run(results, ("conformal",))
    assert "| entropy | 0.900" in section(results, "Frozen pretrained network")
    assert "Frozen" not in page


def test_networks_trained_from_scratch(results):
    name = "cifar10-svhn-resnet20"
    runs = [("snn-norm", 0), ("snn-norm", 1), ("creinn-d", 0)]
    tasks = [record(results, name, method, number, batch=0.85) for method, number in runs]
    for number, first in enumerate((2.0, 3.0)):  # means 2.5 and 1.25
        curve = [
            {"epoch": float(epoch), "val_loss": first / epoch, "val_accuracy": 0.25 * epoch}
            for epoch in (1, 2)
        ]
        change(
            results, name, {f"train-{name}-snn-norm-{number}": {"commit": "def", "history": curve}}
        )
    manifest(results, name, tasks)
    run(results)
    full = section(results, "A ResNet-20 on all of CIFAR-10")
    assert "| SNN, logit norm | 2 | 80.00 ± 0.00 | 0.900 ± 0.000 |" in full
    assert "| 0.800 | 0.850 |" in section(results, "Batch statistics on a larger network")
    assert "| SNN, logit norm | loss | 2.500 | 1.250 |" in full
    assert "| SNN, logit norm | accuracy | 0.250 | 0.500 |" in full
    assert "| CreINN-D | loss" not in full


def test_network_of_the_paper_beside_published_values(results):
    name = "cifar10-svhn-resnet50"
    methods = ("snn", "creinn", "creinn-d-post-hoc")
    manifest(results, name, [record(results, name, m, 0) for m in methods], methods)
    page, _, _ = run(results, ("paper",))
    assert "| CreINN | 80.00 | 84.20 | 0.900 |" in page
    assert "| CreINN-D, post hoc | 80.00 |" in page


def test_converted_network(results):
    uncertainties = {"aleatoric": 0.1, "epistemic": 0.6, "total": 0.7}
    found = {
        "accuracy": 0.8,
        "width": 0.05,
        "auarc": {**uncertainties, "total": 0.9},
        "auroc": uncertainties,
    }
    row = {
        "radii": "relative",
        "trained": "radii",
        "running": found,
        "batch": {**found, "accuracy": 0.75},
    }
    write_json(results.parent / "converted.json", {"rows": [row]})
    run(results)
    page = section(results, "A fine-tuned network converted to intervals")
    assert "| relative | radii | running | 0.800 | 0.900 | 0.050 | 0.600 | 0.700 |" in page
    assert "| relative | radii | batch | 0.750 |" in page


def test_other_forms_of_the_distance(results):
    columns = {"near": {"mean": 0.75, "std": 0.1}, "chosen": {"mean": 0.03, "std": 0.0}}
    found = {"ways": {"as it is": columns}, "scales": {"0.01": columns}}
    write_json(
        results.parent / "terms.json", {"frozen": found, "small": {"ways": {"norm 2": columns}}}
    )
    run(results)
    page = section(results, "Other forms of the distance")
    assert [line for line in page.splitlines() if line.startswith("| ") and "near" not in line] == [
        "| as it is | 0.750 |",
        "| 0.01 | 0.750 |",
        "| norm 2 | 0.750 |",
    ]


def test_invalid_file_raises(results, capsys):
    write_json(results.parent / "members.json", {"auroc": []})
    page, summary, code = run(results)
    assert (code, summary) == (1, None)
    assert "old" in page
    assert "members.json has no key 'rows'" in capsys.readouterr().err


def test_uncertainty_on_interval_images(results):
    name = "points-to-intervals-cifar10-small"
    sets = {
        f"noise [0, {width}]": {"means": {"epistemic": width, "total": 2 + width}}
        for width in (0.08, 0.2)
    }
    content = {"number": 0, "commit": "abc", "metrics": {"running": {"sets": sets}}}
    change(results, name, {"shifted": content})
    task = {
        "name": "shifted",
        "kind": "evaluate",
        "method": "creinn",
        "number": 0,
        "arm": "points",
    }
    manifest(results, name, [{**task, "training": None}], ["creinn"])
    run(results)
    page = section(results, "Interval inputs")
    assert (
        "| points | noise [0, 0.08] | 1 | 0.080 | 2.080 |\n| points | noise [0, 0.2] | 1 | 0.200 | 2.200 |"
        in page
    )


def test_figures_are_deterministic(results):
    run(results)
    figures = {path.name: path.read_text() for path in (results.parent / "figures").iterdir()}
    assert set(figures) == {"ood.svg", "rejection.svg"}
    assert figures["ood.svg"].count("<circle") == 2 + 2 * (
        1 + 3 * 2
    )  # legend; on two pairs: the SNN has no EU
    assert figures["rejection.svg"].count("<polyline") == 4
    points = figures["rejection.svg"].split('points="')[1].split('"')[0].split()
    assert len(points) == 96  # rejection 0 to .95
    run(results)
    assert {
        path.name: path.read_text() for path in (results.parent / "figures").iterdir()
    } == figures


def test_no_records_write_nothing(tmp_path, capsys):
    folder = tmp_path / "results"
    manifest(folder, "study-fashion-mnist", [])
    page, summary, code = run(folder)
    assert (code, summary) == (1, None)
    assert "old" in page
    assert "the mapping of dots is empty" in capsys.readouterr().err


def test_page_has_each_block_once():
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    names = study.page_blocks({}, {})
    study.replace_blocks(page, dict.fromkeys(names, ""))
    assert [name for name in names if f"<!-- begin: {name} -->" not in page] == []
    assert len(page.split()) <= 1800


def test_members_rows(results):
    numbers = {"auarc": 0.97, "mnist epistemic": 0.9}
    rows = [
        {"experiment": "study-fashion-mnist", "method": method, "members": size, "draws": 4}
        | {
            name: {"mean": value + size / 1000 + 0.01 * (method == "creinn-d"), "std": 0.1}
            for name, value in numbers.items()
        }
        for method in ("snn-norm", "creinn-d")
        for size in (1, 5)
    ]
    write_json(results.parent / "members.json", {"commit": "bed", "rows": rows})
    _, summary, _ = run(results)
    page = section(results, "Number of members")
    assert "| AUARC (TU), Fashion-MNIST | SNN, logit norm | 0.9710 | 0.9750 |" in page
    assert "| AUROC (EU), Fashion-MNIST → MNIST | CreINN-D | 0.9110 | 0.9150 |" in page
    assert len(summary["tables"]["members"][0]["rows"]) == 4
    assert summary["members"]["commit"] == "bed"


def test_credal_methods_by_hand():
    auroc = {"near": {"mean": 0.7}, "SVHN": {"mean": 0.8}, "MNIST": {"mean": 0.9}}
    auroc |= {"Fashion-MNIST": {"mean": 1.0}, "AUARC": {"mean": 0.95}}
    found = {"mean": {"entropy": auroc}, "quality": {"network": {"log_loss": {"mean": 0.5}}}}
    for method in [*study.larger.CREDAL][1:]:
        found["mean"] |= {f"{method}, {short}": auroc for short in ("EU", "TU")}
        found["quality"][method] = {"log_loss": {"mean": 0.5}}
    lines = study.render(study.larger.credal_methods({"credal": found})).splitlines()
    assert len(lines) == 8
    assert lines[2] == f"| entropy | {NO_VALUE} | 0.700 | {NO_VALUE} | 0.900 | 0.500 | 0.950 |"
    assert lines[-1] == "| CreINN-D | 0.700 | 0.700 | 0.900 | 0.900 | 0.500 | 0.950 |"
    assert study.larger.credal_methods({}) == []
