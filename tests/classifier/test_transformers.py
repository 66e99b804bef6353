"""Hugging Face models: inputs by name, logits as an attribute of the output."""

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import (
    BatchEncoding,
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from creinn import CreINN, TrainConfig, export, fit, load

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 3}
Y = torch.arange(60) % 3


def bert(layers=2):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, max_position_embeddings=8, num_hidden_layers=layers, **SIZES)
    return BertForSequenceClassification(config)


def vit():
    torch.manual_seed(0)
    config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_hidden_layers=2, **SIZES)
    return ViTForImageClassification(config)


def tokens():
    ids = torch.randint(3, 20, (60, 6), generator=torch.Generator().manual_seed(0))
    ids[:, 1] = Y
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def images():
    pixels = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return {"pixel_values": pixels + Y.view(-1, 1, 1, 1)}


def rows(x, start, stop):
    return {name: part[start:stop] for name, part in x.items()}


@pytest.mark.filterwarnings("ignore:The architecture of the model is not saved")
@pytest.mark.parametrize(
    ("network", "inputs", "blocks"), [(bert, tokens, "bert.encoder.layer.0"), (vit, images, "vit.")]
)
def test_fit_predict_save_and_load(tmp_path, network, inputs, blocks):
    x = inputs()
    model = CreINN(network(), distance=True).fit_distance(x, Y)
    assert any(place.startswith(blocks) for place in model.feature_layers)
    prediction = model.predict(x, batch_size=25)
    assert prediction.lower.shape == (60, 3)
    with torch.no_grad():
        expected = model.network(**x).logits.argmax(1)
    assert torch.equal(prediction.label, expected)
    loader = [BatchEncoding(rows(x, start, start + 20)) for start in (0, 20, 40)]
    streamed = torch.cat([s.lower for s in model.predict_batches(loader)])
    torch.testing.assert_close(streamed, prediction.lower, atol=1e-5, rtol=1e-4)
    model.save(tmp_path)
    again = load(tmp_path, network=network()).predict(x)
    torch.testing.assert_close(again.lower, prediction.lower, atol=1e-5, rtol=1e-4)


def test_padding_does_not_change_the_sets():
    x = tokens()
    x["attention_mask"][::2, 4:] = 0
    model = CreINN(bert(), distance=0.05).fit_distance(x, Y)
    longer = {name: torch.nn.functional.pad(part, (0, 2)) for name, part in x.items()}
    expected = model.predict(x)
    torch.testing.assert_close(model.predict(longer).lower, expected.lower, atol=1e-4, rtol=1e-3)
    unmasked = {**x, "attention_mask": torch.ones_like(x["attention_mask"])}
    assert (model.predict(unmasked).lower - expected.lower).abs().max() > 1e-3


def test_training_and_a_loader_of_pairs():
    x = tokens()
    model = CreINN(bert(), distance=True)
    fit(model, (x, Y), config=TrainConfig(epochs=1, batch_size=20, progress=False))
    pairs = [({name: part[row] for name, part in x.items()}, int(Y[row])) for row in range(60)]
    other = CreINN(model.network, distance=True).fit_distance(DataLoader(pairs, batch_size=20))
    torch.testing.assert_close(other.predict(x).lower, model.predict(x).lower, atol=1e-5, rtol=1e-4)


def test_labels_in_inputs_warn():
    x = tokens()
    model = CreINN(bert(), distance=True)
    with pytest.warns(UserWarning, match="'labels'"):
        model.fit_distance({**x, "labels": Y}, Y)
    with_labels = model.predict({**x, "labels": Y})  # a second warning is an error in this test
    torch.testing.assert_close(with_labels.lower, model.predict(x).lower)


def test_unknown_names_raise():
    with pytest.raises(ValueError, match="tokens"):
        CreINN(bert(), distance=True).fit_distance({"tokens": tokens()["input_ids"]}, Y)


def test_export_has_one_input_per_name(tmp_path):
    """As a program of torch; the names in ONNX are tested with a smaller network."""
    x = tokens()
    x["attention_mask"][:, 4:] = 0
    model = CreINN(bert(1), distance=0.05).fit_distance(x, Y)
    export(model, tmp_path / "model.pt2", rows(x, 0, 5))
    few = rows(x, 5, 12)
    found = torch.export.load(tmp_path / "model.pt2").module()(*few.values())
    expected = model.predict(few)
    torch.testing.assert_close(found["lower"], expected.lower, atol=1e-5, rtol=0)
    torch.testing.assert_close(found["upper"], expected.upper, atol=1e-5, rtol=0)
