"""Tests of ``creinn predict`` for data that are read in parts."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from creinn.cli import sources
from creinn.cli.predict import ParquetWriter

TEN_ROWS = "--batch-size 5"


@pytest.fixture
def in_parts(monkeypatch):
    """Set the size of a chunk to ten rows."""
    monkeypatch.setattr(sources, "MOST_ROWS", 10)


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def check_same(one, other):
    one, other = read(one), read(other)
    assert list(one.columns) == list(other.columns)
    numbers = [*one.filter(regex="^(probability|lower|upper)_"), "AU", "EU", "TU"]
    np.testing.assert_allclose(one[numbers], other[numbers], atol=1e-5)
    for name in one.columns.drop(numbers):
        assert (
            one[name].fillna("").astype(str).tolist() == other[name].fillna("").astype(str).tolist()
        )


def test_chunks_equal_whole_table(run, model, wine, tmp_path, in_parts, monkeypatch):
    frame = pd.read_csv(wine[1])
    frame.loc[[3, 25, 26], "hue"] = None
    frame.drop(columns="kind").assign(extra=1).to_csv(tmp_path / "t.csv", index=False, sep=";")
    done = run.ok("predict", model, "t.csv --out parts.csv", TEN_ROWS)
    assert done.out.count("note: ") == 3
    assert "separated by ';'" in done.out
    assert "column 'hue': 3 missing values" in done.out
    assert "extra" in done.out
    assert done.err == ""  # no terminal, no bar
    monkeypatch.setattr(sources, "MOST_ROWS", 1000)
    run("predict", model, "t.csv --out whole.csv")
    check_same(tmp_path / "parts.csv", tmp_path / "whole.csv")


def test_unknown_categories_are_counted_over_chunks(run, tmp_path, in_parts):
    rows = [f"{i % 7},{'uv'[i % 2]},{i % 2}\n" for i in range(60)]
    (tmp_path / "t.csv").write_text("x,k,y\n" + "".join(rows))
    quick = "--hidden 8 --epochs 1 --validation-fraction 0"
    run.ok("train t.csv --target y --out m", quick)
    rows[12], rows[47] = "1.50,w,0\n", "1,q,0\n"
    (tmp_path / "n.csv").write_text("x,k,y\n" + "".join(rows))
    done = run("predict m n.csv --out p.csv", TEN_ROWS, "--keep x")
    assert pd.read_csv(tmp_path / "p.csv", dtype=str).x[12] == "1.50"  # as it is written
    assert "column 'k': 2 unknown values, first 'w' in row 13" in done.out
    rows[58] = "one,u,0\n"
    (tmp_path / "n.csv").write_text("x,k,y\n" + "".join(rows))
    assert "n.csv row 59, column 'x': 'one'" in run.error("predict m n.csv --out q.csv", TEN_ROWS)
    assert not list(tmp_path.glob("q.*"))  # though five parts were written


def test_parquet_in_and_out(run, model, wine, tmp_path, in_parts):
    frame = pd.read_csv(wine[1])
    frame.insert(0, "key", np.arange(len(frame)) + 2**60)
    frame.insert(1, "name", [None] * 20 + ['Łódź, "1.0"'] * (len(frame) - 20))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for source in ("t.csv", "t.parquet"):
        for kind in ("csv", "parquet"):
            out = tmp_path / f"{source}-out.{kind}"
            run.ok("predict", model, tmp_path / source, "--out", out, "--keep key,name", TEN_ROWS)
            check_same(tmp_path / "t.csv-out.csv", out)
    predicted = read(tmp_path / "t.parquet-out.parquet")
    assert predicted.key.dtype == np.int64
    assert predicted.key.tolist() == frame.key.tolist()
    assert predicted.name.fillna("").tolist() == frame.name.fillna("").tolist()
    quick = "--hidden 8 --epochs 1 --drop key,name"
    run.ok("train t.parquet --target kind --out m", quick)
    run.ok("evaluate m t.parquet --out e.json")


def test_column_types_of_first_chunk(tmp_path):
    with open(tmp_path / "t.parquet", "wb") as file, closing(ParquetWriter(file)) as writer:
        writer.write(pd.DataFrame({"name": [None, None], "n": pd.array([1, None], "Int64")}))
        writer.write(pd.DataFrame({"name": ["a"], "n": pd.array([3], "Int64")}))
    found = pq.read_table(tmp_path / "t.parquet").to_pydict()
    assert found == {"name": [None, None, "a"], "n": [1, None, 3]}


def test_interval_pairs(run, interval_model, wine, tmp_path, in_parts):
    frame = pd.read_csv(wine[1]).drop(columns="kind")
    frame.to_csv(tmp_path / "lower.csv", index=False)
    (frame + 0.1).to_parquet(tmp_path / "upper.parquet")
    pair = ("--lower", tmp_path / "lower.csv", "--upper", tmp_path / "upper.parquet")
    run.ok("predict", interval_model, *pair, "--out p.csv", TEN_ROWS)
    assert pd.read_csv(tmp_path / "p.csv").row.tolist() == list(range(1, 55))
    frame[:-10].to_csv(tmp_path / "lower.csv", index=False)
    assert "rows" in run.error("predict", interval_model, *pair, "--out q.csv", TEN_ROWS)


def test_image_folders_are_read_in_chunks(run, tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 100, (8, 8, 3)) + 100 * (name == "b")
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "train" / name / f"{i}.png")
    quick = "--set width=2 --epochs 1 --validation-fraction 0"
    run.ok("train train --out m", quick)
    broken = [
        tmp_path / "train" / place for place in ("a/2.png", "a/3.png", "b/5.png")
    ]  # the first part and the last file
    for path in broken:
        path.write_bytes(b"junk")
    Image.new("RGB", (4, 4)).save(tmp_path / "train" / "b" / "0.png")
    found = []
    for size in ("2", "100"):
        out = tmp_path / f"{size}.csv"
        done = run.ok("predict m train --out", out, "--batch-size", size)
        assert "1 image stretched to 8 x 8 pixels: 1 of 4 x 4" in done.out
        assert "3 files (a/2.png, a/3.png, b/5.png) left out" in done.out
        assert done.err.count("left out: ") == 3
        found.append(pd.read_csv(out))
    assert found[0].file.tolist() == found[1].file.tolist()
    assert len(found[0]) == 9
    np.testing.assert_allclose(found[0].TU, found[1].TU, atol=1e-4)
    for path in (tmp_path / "train").rglob("*.png"):
        path.write_bytes(b"junk")
    assert "no image can be read, 12 files in all" in run.error(
        "predict m train --out p.csv --batch-size 2"
    )


def test_killed_process_leaves_no_partial_output(model, wine, tmp_path):
    header, *rows = wine[1].read_text().splitlines(keepends=True)
    (tmp_path / "t.csv").write_text(header + "".join(rows) * 2000)  # several seconds' work
    out, unfinished = tmp_path / "p.csv", tmp_path / "p.csv.tmp"
    out.write_text("before")
    predict = [sys.executable, "-m", "creinn", "predict"]
    command = [*predict, model, tmp_path / "t.csv", "--out", out, "--force"]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    while not (unfinished.exists() and unfinished.stat().st_size):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert out.read_text() == "before"
    assert not out.with_suffix(".yaml").exists()


def test_evaluate_in_chunks(run, model, wine, tmp_path, in_parts, monkeypatch):
    frame = pd.read_csv(wine[1])
    frame.loc[[3, 25], "hue"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("evaluate", model, tmp_path / "t.csv", "--ood", wine[0])
    done = run.ok(*arguments, "--out parts.json", TEN_ROWS)
    assert done.out.count("column 'hue': 2 missing values") == 1
    frame.assign(kind=frame.kind.where(frame.index != 30, "beer")).to_csv(
        tmp_path / "wrong.csv", index=False
    )
    wrong = run("evaluate", model, "wrong.csv --out wrong.json", TEN_ROWS)
    assert wrong.code == 1
    assert "row 31" in wrong.err
    assert "the model has no class 'beer'" in wrong.err
    monkeypatch.setattr(sources, "MOST_ROWS", 1000)
    run.ok(*arguments, "--out whole.json")
    parts, whole = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("parts", "whole")
    )
    assert parts["rows"] == whole["rows"] == len(frame)
    assert parts["confusion"] == whole["confusion"]
    for name in ("log_loss", "brier", "expected_calibration_error"):
        assert parts[name] == pytest.approx(whole[name], abs=1e-4)
    assert parts["ood"]["sets"][0]["EU"] == pytest.approx(whole["ood"]["sets"][0]["EU"], abs=1e-3)
