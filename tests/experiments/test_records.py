import torch

from creinn import CredalSet
from creinn.data import Dataset
from creinn.experiments.records import describe_examples


def test_examples_are_different_images_where_all_are_equally_certain():
    images = Dataset("x", torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    vacuous = CredalSet(torch.zeros(4, 2), torch.ones(4, 2))
    assert [example["index"] for example in describe_examples(vacuous, images)] == [0, 2, 3]
