"""The speed benchmark: cells, ratios, memory, tables, and settings that are refused."""

import json
import re

import pytest
import torch
from benchmarks.speed import Settings, benchmark_markdown, run_benchmark
from benchmarks.speed.__main__ import run
from benchmarks.speed.study import slope

from creinn.cli.parsing import parse_options


def speed(command):
    return run(parse_options(Settings, "python -m benchmarks.speed", command.split()))


FEW = ("snn", "snn-folded", "creinn", "creinn-compiled", "bnn-r", "credal-arithmetic")


@pytest.fixture(scope="module")
def record():
    settings = Settings(quick=True, models=("mlp",), batches=(4, 1), contenders=FEW, seconds=0.1)
    return run_benchmark(settings.complete())


def test_a_cell_for_each_model_and_batch(record):
    assert [(cell["model"], cell["batch"]) for cell in record["inference"]] == [
        ("mlp", 1),
        ("mlp", 4),
    ]
    for cell in record["inference"]:
        assert tuple(cell["contenders"]) == FEW
        for found in cell["contenders"].values():
            assert 0 < found["least_s"] <= found["median_s"]
            assert found["rounds"] == 3
    assert [list(cell["contenders"]) for cell in record["training"]] == [["snn", "creinn", "bnn-r"]]
    assert [cell["quantity"] for cell in record["scaling"]] == ["depth", "width", "classes"]


def test_ratios_are_of_medians_and_minima(record):
    found = record["inference"][0]["contenders"]
    for base in ("snn", "snn-folded"):
        ratio = found["creinn"][f"to_{base}"]
        assert ratio["median"] == pytest.approx(
            found["creinn"]["median_s"] / found[base]["median_s"]
        )
        assert ratio["least"] == pytest.approx(found["creinn"]["least_s"] / found[base]["least_s"])
    assert found["snn"]["to_snn"]["median"] == 1


def test_memory_of_networks(record):
    (cell,) = record["memory"]
    snn, creinn = cell["contenders"]["snn"], cell["contenders"]["creinn"]
    parameters = 20 * 16 + 16 * 16 + 16 * 10 + 10  # of the perceptron, without its two batch norms
    assert snn["held_bytes"] == 4 * (parameters + 2 * 4 * 16 + 1) + 2 * 8  # and a temperature
    # Kept for each row: inputs of two norms, results of two ReLUs; log-softmax, its exponential, its mean over samples.
    assert snn["saved_bytes_per_row"] == 4 * (4 * 16 + 3 * 10)
    assert creinn["saved_bytes_per_row"] > snn["saved_bytes_per_row"]
    assert creinn["saved_bytes_fixed"] > snn["saved_bytes_fixed"] >= 0
    assert (
        creinn["training_peak_bytes"]
        > creinn["inference_peak_bytes"]
        > snn["inference_peak_bytes"]
        > 0
    )
    assert "training_peak_bytes" not in cell["contenders"]["creinn-compiled"]


def test_machine_and_configuration_are_recorded(record):
    assert record["machine"]["threads"] == torch.get_num_threads()
    assert record["machine"]["torch"] == torch.__version__
    assert record["configuration"]["batches"] == (1, 4)
    assert record["configuration"]["architectures"]["mlp"]["hidden"] == (16, 16)
    json.dumps(record, allow_nan=False)


def test_tables_state_what_was_left_out(record):
    copy = json.loads(json.dumps(record))
    copy["inference"][1]["contenders"]["bnn-r"] = {"skipped": "one call took 9.0 s, limit 5 s"}
    text = benchmark_markdown(copy)
    assert re.search(r"\| BNN-R, 10 samples \| \d+\.\d\d \| skipped \|", text)
    assert "| skipped: one call took 9.0 s, limit 5 s |" in text
    copy["memory"][0]["contenders"]["bnn-r"] = {"skipped": "failed, RuntimeError: no memory"}
    assert "| skipped: failed, RuntimeError: no memory |" in benchmark_markdown(copy)
    assert f"Threads: {torch.get_num_threads()};" in text
    assert "| BNN-R |" in text  # a training step takes one sample


def test_slope_of_too_few_sizes():
    assert slope([(2, 1.0)]) is None
    assert slope([(2, 1.0), (2, 3.0)]) is None
    assert slope([(10, 5.0), (100, 5.0)]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"models": ("resnet51",)},
            r"Unknown model 'resnet51'; choose of resnet50-imagenet, .*both stems resnet50, res",
        ),
        ({"batches": (0,)}, "A batch must have at least 1 row, got 0"),
        ({"contenders": ("cnn",)}, "Unknown contender 'cnn'; choose of snn, snn-folded"),
        (
            {"parts": ("speed",)},
            "Unknown part 'speed'; choose of inference, training, memory, scaling",
        ),
        ({"rounds": 2}, "rounds must be at least 3, or a median means little; got 2"),
        ({"seconds": 0.0}, "seconds must be a positive number of seconds, got 0.0"),
        ({"limit": float("inf")}, "limit must be a positive number of seconds, got inf"),
        (
            {"training_batch": 1},
            "A training step needs at least 2 rows for batch norm, but training_batch is 1",
        ),
    ],
)
def test_settings_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options).complete()


def test_one_name_stands_for_both_stems_and_the_reference_is_always_there():
    settings = Settings(models=("resnet50", "resnet50-cifar"), contenders=("creinn",)).complete()
    assert [network.name for network in settings.architectures] == [
        "resnet50-imagenet",
        "resnet50-cifar",
    ]
    assert settings.contenders == ("snn", "creinn")
    assert settings.batches == (1, 32, 128)


def test_the_script_prints_and_writes_the_tables(tmp_path, capsys):
    out = tmp_path / "deep" / "speed.json"
    command = "--quick --models mlp --batches 2 --contenders snn,creinn --parts inference --seconds 0.1 --threads 2"
    threads = torch.get_num_threads()
    assert speed(f"{command} --out {out}") == 0
    assert torch.get_num_threads() == threads
    record = json.loads(out.read_text())
    assert record["finished"] is True
    assert record["command"] == f"python -m benchmarks.speed {command}"
    assert record["machine"]["threads"] == 2
    assert {"commit", "versions"} < set(record)
    tables = out.with_suffix(".md").read_text()
    assert "not finished" not in tables
    assert tables in capsys.readouterr().out


def test_a_run_that_is_stopped_keeps_its_cells(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.speed.study.measure_growth", stop)
    out = tmp_path / "speed.json"
    with pytest.raises(KeyboardInterrupt):
        speed(
            f"--quick --models mlp --batches 2 --contenders snn --seconds 0.1 --parts inference,scaling --out {out}"
        )
    record = json.loads(out.read_text())
    assert (record["finished"], len(record["inference"])) == (False, 1)
    assert out.with_suffix(".md").read_text().endswith("This run is not finished.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--models vgg", "Unknown model 'vgg'"),
        ("--batches 1,0", "A batch must have at least 1 row, got 0"),
        ("--threads 0", "threads must be at least 1, got 0"),
        ("--out speed.md", "--out names the record, a JSON file, but is speed.md"),
    ],
)
def test_the_script_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        speed(options)
