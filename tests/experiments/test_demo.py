"""The demo: its data, its models, numbers that follow from the predictions, and its page."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from creinn.cli import experiment as command
from creinn.cli.options import DemoOptions
from creinn.credal.credal_set import CredalSet
from creinn.evaluation import auarc, ood_detection
from creinn.experiments import Images, tailor
from creinn.experiments.inputs import prepare, prepare_all
from creinn.experiments.plan import make_plan
from creinn.experiments.predictions import measure_all
from explorer_cases import record_of

pytest.importorskip("plotly")
pytest.importorskip("PIL")

from creinn.experiments import demo

MODELS = tuple(demo.NAMES.values())
TINY = tailor(demo.demo_experiment(members=2, epochs=2), width=2, train_images=60, test_images=100)


@pytest.fixture(scope="module")
def result():
    return demo.run_demo(TINY, jobs=1, progress=False)


def test_data_are_disjoint_and_complete(tmp_path):
    sources = prepare_all(demo.demo_experiment(), tmp_path, tmp_path)
    train, test, near, far = (
        source.read() for source in (sources.train, sources.test, *sources.ood)
    )
    assert set(train.labels.tolist()) == set(test.labels.tolist()) == set(range(8))
    assert len(train) + len(test) + len(near) == 1797
    assert len(far) == len(near) == 354  # 174 eights and 180 nines
    rows = torch.cat([train.inputs, test.inputs, near.inputs]).flatten(1)
    assert len(rows.unique(dim=0)) == 1797
    for data in (train, test, near, far):
        assert data.inputs.shape[1:] == (1, 8, 8)
    assert (rows.min(), rows.max()) == (0, 255)


def test_patches_are_pieces_of_the_photographs(tmp_path):
    from PIL import Image
    from sklearn.datasets import load_sample_images

    # a slow look: each patch must be found at a multiple of 8 in one of the photographs
    pieces = {
        grey[y : y + 8, x : x + 8].tobytes()
        for grey in (
            np.asarray(Image.fromarray(photo).convert("L")) for photo in load_sample_images().images
        )
        for y in range(0, grey.shape[0] - 7, 8)
        for x in range(0, grey.shape[1] - 7, 8)
    }
    patches = prepare(Images(name="photographs", count=100), tmp_path, tmp_path).read().inputs
    assert all(patch[0].numpy().tobytes() in pieces for patch in patches)
    assert len(patches.flatten(1).unique(dim=0)) > 90


def test_too_many_patches_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Cannot draw 8481 samples from the 8480 of photographs"):
        prepare(Images(name="photographs", count=8481), tmp_path, tmp_path)


@pytest.mark.parametrize("change", [{"members": 0}, {"epochs": 0}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be at least 1, got 0"):
        demo.demo_experiment(**change)


def test_all_models_are_measured(result):
    assert list(result.runs) == list(MODELS)
    assert [len(runs) for runs in result.runs.values()] == [4, 1, 2, 1, 2, 1]
    parameters = result.parameters
    assert parameters["Deep Ensemble"] == 4 * parameters["SNN"]
    assert parameters["CreINN ensemble"] == 2 * parameters["CreINN"]
    assert parameters["CreINN-D"] == parameters["SNN"] + 2 * 8  # batch norm on the logits
    assert {model: len(rows) for model, rows in result.histories.items()} == {
        "SNN": 2,
        "CreINN": 2,
        "CreINN-D": 2,
    }
    assert result.radii.shape[0] == 8


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
    labels = result.data[demo.TEST].labels
    for model in ("CreINN", "CreINN ensemble", "CreINN-D", "CreINN-D ensemble"):
        found, numbers = result.predictions[model], result.runs[model][0]
        correct = found[demo.TEST].label == labels
        assert numbers["accuracy"] == pytest.approx(correct.double().mean().item(), abs=1e-6)
        assert numbers["AUARC, EU"] == pytest.approx(
            auarc(found[demo.TEST].epistemic, correct), abs=1e-6
        )
        near = ood_detection(found[demo.TEST].epistemic, found[demo.NEAR].epistemic)
        assert numbers["AUROC held-out digits, EU"] == pytest.approx(near.auroc, abs=1e-6)
        assert numbers["AUPRC held-out digits, EU"] == pytest.approx(near.auprc, abs=1e-6)
        far = ood_detection(found[demo.TEST].total, found[demo.FAR].total)
        assert numbers["AUROC photographs, TU"] == pytest.approx(far.auroc, abs=1e-6)


def test_set_size_and_coverage_by_hand():
    # the first set rules out class 2, the second nothing, the third all but class 2
    lower = torch.tensor([[0.4, 0.3, 0.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.8]])
    upper = torch.tensor([[0.6, 0.5, 0.1], [0.7, 0.7, 0.7], [0.1, 0.1, 1.0]])
    found, labels = CredalSet(lower, upper), torch.tensor([1, 2, 0])
    metrics = measure_all({"points": found}, labels, {demo.NEAR: found, demo.FAR: found}, (None,))
    numbers = demo.numbers_of("CreINN", metrics, dict.fromkeys(demo.GROUPS, found), labels)
    assert numbers["classes in the set, test digits"] == pytest.approx((2 + 3 + 1) / 3)
    assert numbers["coverage of the set"] == pytest.approx(2 / 3)
    assert numbers["AUROC photographs, EU"] == pytest.approx(0.5)


def test_ensembles_average_their_members(result):
    assert result.predictions["Deep Ensemble"][demo.TEST].samples.shape[0] == 4
    torch.testing.assert_close(
        result.predictions["Deep Ensemble"][demo.TEST].samples[0],
        result.predictions["SNN"][demo.TEST].probabilities,
    )


def test_one_network_has_no_epistemic_curve(result):
    assert {model: list(found) for model, found in result.curves().items()} == {
        "SNN": ["aleatoric (AU)", "total (TU)"],
        **{
            model: ["aleatoric (AU)", "epistemic (EU)", "total (TU)"]
            for model in MODELS
            if model != "SNN"
        },
    }


def test_members_differ_and_seeds_repeat(tmp_path):
    def keys(seed):
        experiment = demo.demo_experiment(seed=seed)
        data = prepare_all(experiment, tmp_path, tmp_path).identities
        return [piece.key for piece in make_plan(experiment, data)]

    assert keys(0) == keys(0)
    assert len(set(keys(0) + keys(1))) == 2 * len(keys(0))


def test_threads_and_generator_are_left_as_they_were(monkeypatch):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    monkeypatch.setattr(demo, "_collect", lambda *_: pytest.fail("stopped here", pytrace=False))
    try:
        torch.set_num_threads(3)
        with pytest.raises(pytest.fail.Exception, match="stopped here"):
            demo.run_demo(
                replace(TINY, methods=("snn",), seeds=1, snn_seeds=None), jobs=1, progress=False
            )
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_network_that_fails_is_named(monkeypatch):
    from creinn.experiments import pieces

    def fail(*_):
        raise FloatingPointError("the loss is NaN")

    monkeypatch.setattr(pieces, "train", fail)
    with pytest.raises(RuntimeError, match=r"evaluate-creinn-0-\w+ failed: the loss is NaN"):
        demo.run_demo(TINY, jobs=1, progress=False)


def test_command_writes_a_report_and_the_numbers(tmp_path, monkeypatch, capsys, result):
    asked = []

    def fake(*arguments):
        asked.append(arguments)
        return result

    monkeypatch.setattr(demo, "run_demo", fake)
    options = DemoOptions(
        out=tmp_path / "demo", members=2, epochs=7, seed=3, jobs=1, progress=False
    )
    assert command.demo(options) == 0
    assert asked == [(demo.demo_experiment(members=2, epochs=7, seed=3), 1, False)]
    assert sorted(path.name for path in options.out.iterdir()) == [
        "demo.yaml",
        "report.html",
        "results.json",
    ]

    record = json.loads((options.out / "results.json").read_text())
    assert record["command"] == "creinn demo --members 2 --epochs 7 --seed 3 --jobs 1"
    assert record["runs"]["CreINN"] == result.runs["CreINN"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["images"]["photographs"] == len(result.data[demo.FAR])

    printed = capsys.readouterr().out
    assert printed.startswith("measure ")
    assert printed.count("CreINN ensemble") == printed.count("CreINN-D ensemble") == 1

    page = (options.out / "report.html").read_text(encoding="utf-8")
    assert [page.count(f"<h2>{heading}</h2>") for heading in HEADINGS] == [1] * len(HEADINGS)
    assert (
        page.count("Plotly.newPlot(") - _script().count("Plotly.newPlot(") == 3 + 5 + 6 + 4 + 3 + 1
    )
    assert page.count('<img src="data:image/png;base64,') == page.count("<img ") == 4 + 6 * 4
    groups = record_of(page)["groups"]
    assert [(group["data"], group["outside"]) for group in groups] == [
        (g, g != demo.TEST) for g in demo.GROUPS
    ]
    assert groups[0]["truth"] == result.data[demo.TEST].labels.tolist()
    for group in groups:
        found = result.predictions["CreINN-D ensemble"][group["data"]]
        np.testing.assert_allclose(group["steps"][0]["EU"], found.epistemic, atol=1e-5)
        assert len(group["images"]) == len(found)


def test_no_image_is_both_most_and_least_certain():
    most, least = demo.extremes(torch.full((9,), 3.0), 4)  # all alike
    assert (most.tolist(), least.tolist()) == ([0, 1, 2, 3], [8, 7, 6, 5])
    most, least = demo.extremes(torch.tensor([3.0, 1.0, 2.0]), 4)  # too few
    assert (most.tolist(), least.tolist()) == ([1], [0])


HEADINGS = (
    "Results",
    "Accuracy when uncertain images are rejected",
    "Images unlike those of the training",
    "Credal sets in the simplex",
    "Most and least certain images",
    "Explore predictions",
    "Training and learned radii",
    "How this was made",
)


def _script():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_an_unusable_folder_is_found_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(
        demo, "run_demo", lambda *_, **__: pytest.fail("trained although the folder is unusable")
    )
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
