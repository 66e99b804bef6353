import json
import multiprocessing
import time

import numpy as np
import pytest

from creinn.experiments.plan import Piece
from creinn.experiments.store import Store, read_json, write_json

PIECE = Piece("train", "snn", 0, {"a": 1})


def test_records_come_back(tmp_path):
    store = Store(tmp_path)
    assert not store.has_record(PIECE)
    assert store.read_record(PIECE) is None
    record = {"a": [1, 2.5, None], "rows": [{"x": 1}, {"x": 2}], "deep": {"er": {"e": []}}, "empty": {}}
    store.write_record(PIECE, record)
    assert store.read_record(PIECE) == record
    assert store.record_path(PIECE).name == f"train-snn-0-{PIECE.key}.json"
    assert '"a": [1, 2.5, null]' in store.record_path(PIECE).read_text()  # numbers stand on one line


def test_damaged_records_are_named(tmp_path):
    store = Store(tmp_path)
    store.write_record(PIECE, {"a": 1})
    path = store.record_path(PIECE)
    path.write_text(path.read_text()[:-4])
    with pytest.raises(ValueError, match=rf"{path.name} is no whole record: .*Remove it"):
        store.read_record(PIECE)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="is no record: it holds a list"):
        read_json(path)


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_predictions_come_back(tmp_path):
    store = Store(tmp_path)
    arrays = {"labels": np.arange(3), "running/test/noise [0, 0.08]/lower": np.zeros((3, 2), np.float32)}
    store.write_predictions(PIECE, arrays)
    found = store.read_predictions(PIECE)
    assert set(found) == set(arrays)
    np.testing.assert_array_equal(found["running/test/noise [0, 0.08]/lower"], np.zeros((3, 2)))
    assert found["labels"].dtype == arrays["labels"].dtype


def hold(out, seconds):
    with Store(out).lock(PIECE):
        (out / "held").touch()
        time.sleep(seconds)


def test_a_lock_keeps_others_out_and_dies_with_its_holder(tmp_path):
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path, 60))
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with Store(tmp_path).lock(PIECE, wait=False) as held:
        assert not held
    holder.kill()
    holder.join()
    with Store(tmp_path).lock(PIECE) as held:
        assert held


def test_settings_survive_json():
    again = Piece("train", "snn", 0, json.loads(json.dumps(dict(PIECE.settings))))
    assert again.key == PIECE.key
