"""The explorer: a page carries what was predicted, rounded outwards, says what is shown, and escapes every name."""

import base64
import io
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from creinn.baselines import Predictive
from creinn.credal.credal_set import CredalSet
from creinn.report.explorer import SCALE, Samples, choose_samples, explore
from explorer_cases import CELLS, CLASSES, image_samples, record_of, table_samples


def test_page_contains_predictions():
    samples = table_samples()
    record = record_of(explore([samples, image_samples()], CLASSES))
    group = record["groups"][0]
    expected = {"classes": CLASSES, "unit": "bits", "scale": SCALE, "credal": True}
    assert record.items() >= expected.items()
    assert (group["data"], group["outside"], group["own"]) == ("test.csv", False, 0)
    assert group["names"] == samples.names
    assert group["truth"] == samples.labels.tolist()
    assert group["cells"] == CELLS
    assert [step["said"] for step in group["steps"]] == list(samples.widths)
    for step, prediction in zip(group["steps"], samples.widths.values(), strict=True):
        lower, upper = prediction.lower.numpy(), prediction.upper.numpy()
        low, high = np.array(step["lower"]) / SCALE, np.array(step["upper"]) / SCALE
        assert ((low <= lower + 1e-12) & (upper <= high + 1e-12)).all()
        assert max((lower - low).max(), (high - upper).max()) < 1 / SCALE
        np.testing.assert_allclose(
            np.array(step["middle"]) / SCALE, prediction.intersection, atol=0.51 / SCALE
        )
        assert step["label"] == prediction.label.tolist()
        # a class is kept unless the lower probability of another one exceeds its upper probability
        kept = [
            [j for j in range(5) if up[j] >= max(lo) - 1e-12]
            for lo, up in zip(lower, upper, strict=True)
        ]
        assert step["kept"] == kept
        for name in ("aleatoric", "epistemic", "total"):
            np.testing.assert_allclose(
                step[f"{name[0].upper()}U"], getattr(prediction, name), atol=1e-6
            )


def test_set_by_hand():
    own = CredalSet(
        torch.tensor([[0.375, 0.25, 0.1015625]]), torch.tensor([[0.625, 0.5, 0.1953125]])
    )
    (step,) = record_of(explore([Samples("x", own, ["1"], 1)], ["a", "b", "c"]))["groups"][0][
        "steps"
    ]
    assert step["lower"] == [[37_500, 25_000, 10_156]]
    assert step["upper"] == [[62_500, 50_000, 19_532]]
    assert (step["label"], step["kept"]) == ([0], [[0, 1]])


def test_classes_by_rule():
    lower, upper = torch.tensor([[0.2, 0.2, 0.2]]), torch.tensor([[0.6, 0.6, 0.31]])
    samples = [Samples("x", CredalSet(lower, upper), ["1"], 1)]
    for rule, kept in (("maximality", [[0, 1, 2]]), ("e-admissibility", [[0, 1]])):
        text = explore(samples, ["a", "b", "c"], rule=rule)
        assert record_of(text)["groups"][0]["steps"][0]["kept"] == kept
        assert f"not ruled out ({rule})" in text


def test_distributions():
    p = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    text = explore([Samples("x", Predictive(p[None]), ["1", "2"], 2)], ["a", "b", "c"])
    (step,) = record_of(text)["groups"][0]["steps"]
    assert record_of(text)["credal"] is False
    assert step["kept"] == [[1], [0]]
    np.testing.assert_allclose(np.array(step["lower"]) / SCALE, p, atol=1.01 / SCALE)
    assert "This model predicts one distribution for each sample" in text


class Tags(HTMLParser):
    """Names of all elements, in order, and all text outside of scripts."""

    def __init__(self, text):
        super().__init__()
        self.names, self.text = [], ""
        self.feed(str(text))

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)

    def handle_data(self, data):
        self.text += data if self.names[-1] != "script" else ""


def test_names_are_escaped():
    bad = "</script><b>\"'&<!--"
    samples = table_samples()
    plain = replace(samples, data="test", names=["x"] * 30, cells=[["x", "x"]] * 30)
    names = {"data": bad, "names": [bad] * 30, "columns": [bad, bad], "cells": [[bad, bad]] * 30}
    text = explore([replace(samples, **names)], [bad] * 5)
    found, record = Tags(text), record_of(text)
    assert found.names == Tags(explore([plain], list("abcde"))).names
    assert f"rows of {bad}." in " ".join(found.text.split())
    assert text.count("</script>") == 2
    assert record["classes"] == [bad] * 5
    group = record["groups"][0]
    assert (group["names"], group["cells"]) == ([bad] * 30, [[bad, bad]] * 30)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=1, max_size=60),
    st.integers(1, 70),
    st.integers(0, 3),
)
def test_half_of_the_rows_have_largest_scores(scores, most, seed):
    chosen = choose_samples(scores, most, seed)
    assert len(chosen) == min(most, len(scores))
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(len(scores)))
    if most < len(scores):
        top = sorted(scores, reverse=True)[: most // 2]
        assert sorted(np.array(scores)[chosen], reverse=True)[: most // 2] == top
    np.testing.assert_array_equal(chosen, choose_samples(scores, most, seed))


def test_other_rows_are_random():
    drawn = {i for seed in range(40) for i in choose_samples(range(20), 4, seed)}
    assert drawn == set(range(20))


def test_page_describes_selection():
    half = replace(table_samples(), data="a.csv", rows=95)
    said = " ".join(explore([half, half, image_samples()], CLASSES).split())
    assert "60 of 95 rows of a.csv." in said
    assert "The page shows" not in explore([image_samples()], CLASSES)  # all samples
    both = " ".join(explore([half, replace(half, data="b")], CLASSES).split())
    assert "30 of 95 rows of a.csv, 30 of 95 rows of b." in both


def test_large_images_are_downscaled():
    small = np.arange(192, dtype=np.uint8).reshape(3, 8, 8)
    large = np.full((3, 200, 100), 7, np.uint8)
    samples = Samples("x", table_samples().prediction[:2], ["s", "l"], 2, images=[small, large])
    text = explore([samples], CLASSES)
    first, second = record_of(text)["groups"][0]["images"]
    assert "96 pixels" in text
    assert "pixels." not in explore([image_samples()], CLASSES)
    kinds, pixels = [], []
    for uri in (first, second):
        head, content = uri.split(",")
        kinds.append(head)
        pixels.append(np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))))
    assert kinds == ["data:image/png;base64", "data:image/webp;base64"]
    np.testing.assert_array_equal(pixels[0], small.transpose(1, 2, 0))
    assert pixels[1].shape == (96, 48, 3)
    assert abs(pixels[1].astype(int) - 7).max() <= 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a"]}, "names"),
        ({"labels": [0, 1]}, "labels"),
        ({"cells": CELLS[:3]}, "cells"),
        ({"widths": {"1": table_samples().prediction}}, "widths"),
    ],
)
def test_inconsistent_arguments_raise(change, message):
    with pytest.raises(ValueError, match=message):
        explore([replace(table_samples(), **change)], CLASSES)


def test_too_few_class_names_or_no_samples_raise():
    with pytest.raises(ValueError, match="5 classes"):
        explore([table_samples()], ["a", "b"])
    with pytest.raises(ValueError, match="samples"):
        explore([], CLASSES)
