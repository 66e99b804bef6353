"""Tests of the records in the repository."""

from pathlib import Path

import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.plan import make_plan
from experiments.store import packed_files, read_packed

ROOT = Path(__file__).parents[2]
RECORDS = packed_files(ROOT / "results" / "experiments")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name.split(".")[0])
def test_recorded_tasks_count_as_done(path):
    manifest, records = read_packed(path)
    experiment = EXPERIMENTS[manifest["experiment"]["name"]]
    data = [("", "")]
    for record in records.values():
        if record["kind"] == "evaluate":
            (training,) = (found for found in records.values() if found["key"] in record["needs"])
            settings = record["settings"]
            data = [training["settings"]["data"], settings["test"], *settings["ood"]]
            break
    planned = {task.name for task in make_plan(experiment, data)}
    # Ensembles that were added to a study later have no record.
    assert {task["name"] for task in manifest["pieces"]} <= planned
    assert set(records) <= planned
