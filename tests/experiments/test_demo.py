"""The demo: its data, its models, numbers that follow from the predictions, and its page."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from creinn.classifier.creinn import CreINN
from creinn.cli import experiment as command
from creinn.cli.options import DemoOptions
from creinn.credal.credal_set import CredalSet
from creinn.evaluation import auarc, ood_detection
from creinn.experiments import demo

TINY = demo.DemoConfig(known=3, train_share=0.1, members=2, width=2, epochs=2, jobs=1)


@pytest.fixture(scope="module")
def result():
    return demo.run_demo(TINY, progress=False)


def test_data_are_disjoint_and_complete():
    data = demo.demo_data(demo.DemoConfig(known=8))
    assert set(data.train.labels.tolist()) == set(data.test.labels.tolist()) == set(range(8))
    assert len(data.train) + len(data.test) + len(data.near) == 1797
    assert len(data.far) == len(data.near) == 354  # 174 eights and 180 nines
    rows = torch.cat([data.train.inputs, data.test.inputs, data.near]).flatten(1)
    assert len(rows.unique(dim=0)) == 1797
    for images in (data.train.inputs, *data.groups.values()):
        assert images.shape[1:] == (1, 8, 8)
        assert images.min() >= 0
        assert images.max() <= 1


def test_patches_are_pieces_of_the_photographs():
    from sklearn.datasets import load_sample_images

    photographs = [photograph @ np.array([0.299, 0.587, 0.114]) / 255 for photograph in load_sample_images().images]
    # a slow look: each patch must be found at a multiple of 8 in one of the photographs
    pieces = {
        grey[y : y + 8, x : x + 8].astype(np.float32).tobytes()
        for grey in photographs
        for y in range(0, grey.shape[0] - 7, 8)
        for x in range(0, grey.shape[1] - 7, 8)
    }
    patches = demo.photograph_patches(100, seed=0)
    assert all(patch[0].numpy().tobytes() in pieces for patch in patches)
    assert len(patches.flatten(1).unique(dim=0)) > 90


def test_too_many_patches_are_refused():
    with pytest.raises(ValueError, match="have 8480 patches of 8x8, but 8481 were asked for"):
        demo.photograph_patches(8481, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"known": 10}, "known must be 3"),
        ({"members": 0}, "members must be"),
        ({"epochs": 0}, "epochs"),
        ({"jobs": 0}, "jobs"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_all_models_are_measured(result):
    assert list(result.runs) == list(demo.MODELS)
    assert [len(runs) for runs in result.runs.values()] == [4, 1, 2, 1, 2, 1]
    parameters = result.parameters
    assert parameters["Deep Ensemble"] == 4 * parameters["SNN"]
    assert parameters["CreINN ensemble"] == 2 * parameters["CreINN"]
    assert parameters["CreINN-D"] == parameters["SNN"] + 2 * TINY.known  # batch norm on the logits
    assert list(result.histories) == ["SNN", "CreINN", "CreINN-D"]
    assert result.creinn.is_interval


def test_recommended_form_has_a_distance_and_keeps_images_apart_for_its_scale(monkeypatch):
    seen = []

    def fit_distance(self, x, y, held_out):
        seen.extend([len(y), sum(len(labels) for _, labels in held_out)])

    monkeypatch.setattr(CreINN, "fit_distance", fit_distance)
    data = demo.demo_data(TINY).train
    model, _ = demo.train_member("CreINN-D", 0, TINY, data)
    assert not model.is_interval
    assert sum(seen) == len(data)
    assert seen[1] == pytest.approx(len(data) / 6, abs=3)


def test_table_shows_mean_and_spread_of_single_networks(result):
    table = {row["measure"]: row for row in result.table()}
    accuracies = [run["accuracy"] for run in result.runs["SNN"]]
    assert table["accuracy"]["SNN"].mean == pytest.approx(np.mean(accuracies))
    assert table["accuracy"]["SNN"].std == pytest.approx(np.std(accuracies, ddof=1))
    assert table["accuracy"]["Deep Ensemble"].std is None
    assert table["AUARC, EU"]["SNN"] is None
    assert table["coverage of the set"]["Deep Ensemble"] is None
    assert table["parameters"]["CreINN"] == result.parameters["CreINN"]


def test_numbers_follow_from_the_predictions(result):
    labels = result.data.test.labels
    for model in ("CreINN", "CreINN ensemble", "CreINN-D", "CreINN-D ensemble"):
        found, numbers = result.predictions[model], result.runs[model][0]
        correct = found[demo.TEST].label == labels
        assert numbers["accuracy"] == pytest.approx(correct.double().mean().item(), abs=1e-6)
        assert numbers["AUARC, EU"] == pytest.approx(auarc(found[demo.TEST].epistemic, correct))
        near = ood_detection(found[demo.TEST].epistemic, found[demo.NEAR].epistemic)
        assert numbers["AUROC held-out digits, EU"] == pytest.approx(near.auroc)
        assert numbers["AUPRC held-out digits, EU"] == pytest.approx(near.auprc)
        far = ood_detection(found[demo.TEST].total, found[demo.FAR].total)
        assert numbers["AUROC photographs, TU"] == pytest.approx(far.auroc)


def test_set_size_and_coverage_by_hand():
    # the first set rules out class 2, the second nothing, the third all but class 2
    lower = torch.tensor([[0.4, 0.3, 0.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.8]])
    upper = torch.tensor([[0.6, 0.5, 0.1], [0.7, 0.7, 0.7], [0.1, 0.1, 1.0]])
    found = CredalSet(lower, upper)
    numbers = demo.evaluate("CreINN", dict.fromkeys(demo.GROUPS, found), torch.tensor([1, 2, 0]))
    assert numbers["classes in the set, test digits"] == pytest.approx((2 + 3 + 1) / 3)
    assert numbers["coverage of the set"] == pytest.approx(2 / 3)
    assert numbers["AUROC photographs, EU"] == pytest.approx(0.5)


def test_ensembles_average_their_members(result):
    assert result.predictions["Deep Ensemble"][demo.TEST].samples.shape[0] == 4
    torch.testing.assert_close(
        result.predictions["Deep Ensemble"][demo.TEST].samples[0], result.predictions["SNN"][demo.TEST].probabilities
    )


def test_one_network_has_no_epistemic_curve(result):
    assert {model: list(found) for model, found in result.curves().items()} == {
        "SNN": ["aleatoric", "total"],
        **{model: ["aleatoric", "epistemic", "total"] for model in demo.MODELS if model != "SNN"},
    }


def test_members_differ_and_seeds_repeat():
    data = demo.demo_data(TINY)
    config = dataclasses.replace(TINY, epochs=1, learning_rate=1e-9)  # so small that the initial weights stay

    def weights(member, seed=0):
        model, _ = demo.train_member("CreINN", member, dataclasses.replace(config, seed=seed), data.train)
        return torch.cat([p.flatten() for p in model.parameters()])

    torch.testing.assert_close(weights(0), weights(0), rtol=0, atol=0)
    assert (weights(0) - weights(1)).abs().max() > 0.01
    assert (weights(0) - weights(0, seed=1)).abs().max() > 0.01


def test_threads_and_generator_are_left_as_they_were():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(3)
        demo.train_member("SNN", 0, dataclasses.replace(TINY, epochs=1), demo.demo_data(TINY).train)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)


def test_command_writes_a_report_and_the_numbers(tmp_path, monkeypatch, capsys, result):
    pytest.importorskip("plotly")
    pytest.importorskip("PIL")
    asked = []

    def fake(config, progress):
        asked.append((config, progress))
        return result

    monkeypatch.setattr(demo, "run_demo", fake)
    options = DemoOptions(out=tmp_path / "demo", members=2, epochs=7, seed=3, jobs=1, progress=False)
    assert command.demo(options) == 0
    assert asked == [(demo.DemoConfig(members=2, epochs=7, seed=3, jobs=1), False)]
    assert sorted(path.name for path in options.out.iterdir()) == ["demo.yaml", "report.html", "results.json"]

    record = json.loads((options.out / "results.json").read_text())
    assert record["command"] == "creinn demo --members 2 --epochs 7 --seed 3 --jobs 1"
    assert record["runs"]["CreINN"] == result.runs["CreINN"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["images"]["photographs"] == len(result.data.far)

    printed = capsys.readouterr().out
    assert printed.startswith("measure ")
    assert printed.count("CreINN ensemble") == printed.count("CreINN-D ensemble") == 1

    page = (options.out / "report.html").read_text(encoding="utf-8")
    assert [page.count(f"<h2>{heading}</h2>") for heading in HEADINGS] == [1] * len(HEADINGS)
    assert page.count("Plotly.newPlot(") - _script().count("Plotly.newPlot(") == 3 + 5 + 6 + 4 + 3 + 1
    assert page.count('<img src="data:image/png;base64,') == page.count("<img ") == 4 + 6 * 4


def test_no_image_is_both_most_and_least_certain():
    pytest.importorskip("plotly")
    from creinn.experiments.demo_page import extremes

    most, least = extremes(torch.full((9,), 3.0), 4)  # all alike
    assert (most.tolist(), least.tolist()) == ([0, 1, 2, 3], [8, 7, 6, 5])
    most, least = extremes(torch.tensor([3.0, 1.0, 2.0]), 4)  # too few
    assert (most.tolist(), least.tolist()) == ([1], [0])


HEADINGS = (
    "Results",
    "Accuracy when uncertain images are rejected",
    "Images unlike those of the training",
    "Credal sets in the simplex",
    "Most and least certain images",
    "Training and learned radii",
    "How this was made",
)


def _script():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_an_unusable_folder_is_found_before_the_work(tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: pytest.fail("trained although the folder is unusable"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot write"):
        command.demo(DemoOptions(out=tmp_path / "file" / "demo"))


def test_missing_plotly_is_found_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r"needs plotly.*pip install creinn\[report\]"):
        command.demo(DemoOptions())


def test_options_are_read_without_loading_torch():
    script = "import sys, creinn.cli.experiment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
