"""Tests of the demo: its data, numbers, page and command."""

import json
import shlex
import sys

import numpy as np
import pytest
import torch

from creinn import demo
from creinn.cli.main import main
from creinn.credal.credal_set import CredalSet
from creinn.demo import FAR, GROUPS, NAMES, TEST, DemoConfig
from creinn.evaluation import auarc, ood_detection
from explorer_cases import record_of

pytest.importorskip("plotly")
pytest.importorskip("PIL")

HEADINGS = (
    "Results",
    "Images that differ from the training images",
    "Accuracy",
    "Most and least certain images",
    "Explore predictions",
    "All numbers",
    "Training and learned radii",
    "How this was made",
)


@pytest.fixture(scope="module")
def demo_result():
    """Run the demo with networks of width 2 and two epochs."""
    return demo.run_demo(DemoConfig(members=1, epochs=2, width=2, jobs=1, progress=False))


def test_data_are_disjoint_and_complete():
    train, groups = demo.read_data(seed=0)
    test, near, far = groups.values()
    assert set(train.labels.tolist()) == set(test.labels.tolist()) == set(range(8))
    assert len(train) + len(test) + len(near) == 1797
    assert len(far) == len(near) == 354  # 174 eights and 180 nines
    rows = torch.cat([train.inputs, test.inputs, near.inputs]).flatten(1)
    assert len(rows.unique(dim=0)) == 1797
    assert (rows.min(), rows.max()) == (0, 255)
    assert {data.inputs.shape[1:] for data in (train, test, near, far)} == {(1, 8, 8)}


def test_patches_are_from_photographs():
    from PIL import Image
    from sklearn.datasets import load_sample_images

    greys = [
        np.asarray(Image.fromarray(photo).convert("L")) for photo in load_sample_images().images
    ]
    parts = {
        grey[y : y + 8, x : x + 8].tobytes()
        for grey in greys
        for y in range(0, grey.shape[0] - 7, 8)
        for x in range(0, grey.shape[1] - 7, 8)
    }
    patches = demo.photograph_patches().inputs[::85]
    assert all(patch[0].numpy().tobytes() in parts for patch in patches)


@pytest.mark.parametrize("name", ["members", "epochs", "jobs"])
def test_invalid_settings_raise(name):
    with pytest.raises(ValueError, match=name):
        DemoConfig(**{name: 0})


def test_all_models_are_measured(demo_result):
    assert list(demo_result.runs) == list(NAMES)
    assert [len(runs) for runs in demo_result.runs.values()] == [2, 1, 1, 1, 1, 1]
    parameters = demo_result.parameters
    assert parameters["Deep Ensemble"] == 2 * parameters["SNN"]
    assert parameters["CreINN-D"] == parameters["SNN"]
    epochs = {model: len(rows) for model, rows in demo_result.histories.items()}
    assert epochs == {"SNN": 2, "CreINN": 2}
    assert demo_result.radii.shape[0] == 8


def test_table_shows_mean_and_spread_of_single_networks(demo_result):
    table = {row["measure"]: row for row in demo_result.table()}
    accuracies = [run["accuracy"] for run in demo_result.runs["SNN"]]
    assert table["accuracy"]["SNN"].mean == pytest.approx(np.mean(accuracies))
    assert table["accuracy"]["SNN"].std == pytest.approx(np.std(accuracies, ddof=1))
    assert table["accuracy"]["Deep Ensemble"].std is None
    assert table["AUARC, EU"]["SNN"] is None
    assert table["coverage of the set"]["Deep Ensemble"] is None


def test_metrics_match_predictions(demo_result):
    labels = demo_result.data[TEST].labels
    for model in ("CreINN", "CreINN ensemble", "CreINN-D", "CreINN-D ensemble"):
        found, numbers = demo_result.predictions[model], demo_result.runs[model][0]
        correct = found[TEST].label == labels
        assert numbers["accuracy"] == pytest.approx(correct.double().mean().item(), abs=1e-6)
        area = auarc(found[TEST].epistemic, correct)
        assert numbers["AUARC, EU"] == pytest.approx(area, abs=1e-6)
        far = ood_detection(found[TEST].total, found[FAR].total)
        assert numbers["AUROC photographs, TU"] == pytest.approx(far.auroc, abs=1e-6)


def test_set_size_and_coverage_by_hand():
    # the sets of classes are {0, 1}, {0, 1, 2} and {2}
    lower = torch.tensor([[0.4, 0.3, 0.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.8]])
    upper = torch.tensor([[0.6, 0.5, 0.1], [0.7, 0.7, 0.7], [0.1, 0.1, 1.0]])
    found, labels = CredalSet(lower, upper), torch.tensor([1, 2, 0])
    numbers = demo.numbers_of("CreINN", dict.fromkeys(GROUPS, found), labels)
    assert numbers["classes in the set, test digits"] == pytest.approx((2 + 3 + 1) / 3)
    assert numbers["coverage of the set"] == pytest.approx(2 / 3)
    assert numbers["AUROC photographs, EU"] == pytest.approx(0.5)


def test_ensembles_average_members(demo_result):
    samples = demo_result.predictions["Deep Ensemble"][TEST].samples
    assert len(samples) == 2
    single = demo_result.predictions["SNN"][TEST].probabilities
    torch.testing.assert_close(samples[0], single)


def test_single_network_has_no_epistemic_curve(demo_result):
    curves = {model: list(found) for model, found in demo_result.curves().items()}
    assert curves.pop("SNN") == ["aleatoric (AU)", "total (TU)"]
    assert set(map(len, curves.values())) == {3}


def test_threads_and_generator_are_restored(monkeypatch):
    def stop(*_):
        raise FloatingPointError("the loss is NaN")

    monkeypatch.setattr(demo, "fit", stop)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(3)
        with pytest.raises(FloatingPointError, match="NaN"):
            demo.run_demo(DemoConfig(members=1, epochs=1, jobs=1, progress=False))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)


def test_command_writes_report_and_numbers(tmp_path, monkeypatch, capsys, demo_result):
    given = []
    monkeypatch.setattr(demo, "run_demo", lambda config: given.append(config) or demo_result)
    out = tmp_path / "demo"
    arguments = shlex.split("demo --members 2 --epochs 7 --seed 3 --jobs 1 --no-progress --out")
    assert main([*arguments, str(out)]) == 0
    assert given == [DemoConfig(members=2, epochs=7, seed=3, jobs=1, progress=False)]
    files = sorted(path.name for path in out.iterdir())
    assert files == ["demo.yaml", "report.html", "results.json"]

    record = json.loads((out / "results.json").read_text())
    assert record["command"] == shlex.join(["creinn", *arguments, str(out)])
    assert record["runs"]["CreINN"] == demo_result.runs["CreINN"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["images"]["photographs"] == len(demo_result.data[FAR])
    printed = capsys.readouterr().out
    assert printed.startswith("measure ")
    assert printed.count("CreINN ensemble") == printed.count("CreINN-D ensemble") == 1

    text = (out / "report.html").read_text(encoding="utf-8")
    assert [text.count(f"<h2>{heading}</h2>") for heading in HEADINGS] == [1] * len(HEADINGS)
    assert text.count('<img src="data:image/png;base64,') == text.count("<img ") == 4 + 6 * 4
    groups = record_of(text)["groups"]
    outside = [(group["data"], group["outside"]) for group in groups]
    assert outside == [(group, group != TEST) for group in GROUPS]
    for group in groups:
        found = demo_result.predictions["CreINN-D ensemble"][group["data"]]
        assert len(group["images"]) == len(group["steps"][0]["EU"]) <= len(found)


def test_invalid_directory_raises_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "run_demo", lambda _: pytest.fail("trained"))
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "demo")]) == 1
    assert "demo.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plotly", "PIL"])
def test_missing_package_raises_before_training(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert name in capsys.readouterr().err
