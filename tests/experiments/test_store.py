"""Tests of the storage of records."""

import json
import multiprocessing
import time

import numpy as np
import pytest
from filelock import Timeout

from experiments.plan import Task
from experiments.store import (
    Store,
    read_arrays,
    read_json,
    read_packed,
    write_arrays,
    write_json,
)

PIECE = Task("train", "snn", 0, {"a": 1})


def test_records_round_trip(tmp_path):
    store = Store(tmp_path)
    assert not store.has("records", PIECE)
    assert store.read_record(PIECE) is None
    record = {
        "a": [1, 2.5, None],
        "rows": [{"x": 1}, {"x": 2}],
        "deep": {"er": {"e": []}},
        "empty": {},
    }
    write_json(store.path("records", PIECE), record)
    assert store.read_record(PIECE) == record
    assert store.path("records", PIECE).name == f"train-snn-0-{PIECE.key}.json"
    assert (
        '"a": [1, 2.5, null]' in store.path("records", PIECE).read_text()
    )  # numbers stand on one line


def test_damaged_records_raise(tmp_path):
    store = Store(tmp_path)
    write_json(store.path("records", PIECE), {"a": 1})
    path = store.path("records", PIECE)
    path.write_text(path.read_text()[:-4])
    with pytest.raises(ValueError, match=rf"{path.name} is no whole record: .*Remove it"):
        store.read_record(PIECE)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="is no record: it holds a list"):
        read_json(path)


def test_pack_records(tmp_path):
    store, about = Store(tmp_path), {"experiment": {"name": "tiny"}, "pieces": []}
    other = Task("train", "snn", 1, {"a": 1})
    write_json(store.path("records", PIECE), {"a": 1})
    store.pack(about, (PIECE, other))
    path = tmp_path / "tiny.jsonl.gz"
    assert read_packed(path) == (about, {PIECE.name: {"a": 1}})
    store.path("records", PIECE).unlink()
    assert store.has("records", PIECE)
    assert store.read_record(PIECE) == {"a": 1}
    assert not store.has("records", other)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"tiny\.jsonl\.gz"):
        store.has("records", PIECE)


def test_non_finite_numbers_raise(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_predictions_round_trip(tmp_path):
    path = Store(tmp_path).path("predictions", PIECE)
    arrays = {
        "labels": np.arange(3),
        "running/test/noise [0, 0.08]/lower": np.zeros((3, 2), np.float32),
    }
    write_arrays(path, arrays)
    found = read_arrays(path)
    assert set(found) == set(arrays)
    np.testing.assert_array_equal(found["running/test/noise [0, 0.08]/lower"], np.zeros((3, 2)))
    assert found["labels"].dtype == arrays["labels"].dtype


def hold(out, seconds):
    with Store(out).lock(PIECE):
        (out / "held").touch()
        time.sleep(seconds)


def test_lock_is_exclusive_and_released_on_exit(tmp_path):
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path, 60))
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(Timeout), Store(tmp_path).lock(PIECE).acquire(timeout=0.05):
        pass
    holder.kill()
    holder.join()
    with Store(tmp_path).lock(PIECE).acquire(timeout=30):
        pass


def test_settings_round_trip():
    again = Task("train", "snn", 0, json.loads(json.dumps(dict(PIECE.settings))))
    assert again.key == PIECE.key
