"""Checks of model, data and settings before training; class weights."""

from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Classifier
from creinn.distributed import world_size
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.training.config import TrainConfig
from creinn.training.data import Rows


def check_model(model: Any) -> None:
    """Check that a model can be trained."""
    name = type(model).__name__
    if not isinstance(model, Classifier):
        raise TypeError(
            f"fit needs a classifier, got {name}. Wrap the network: CreINN(network), SNN(network)."
        )
    if type(model).loss is Classifier.loss:
        raise TypeError(f"{name} has no loss. Fit its members one by one.")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("No parameter of the model requires a gradient: nothing can be trained.")


def check_settings(model: Classifier, train: Rows, val: Rows | None, config: TrainConfig) -> None:
    """Check that the settings match the data and the model."""
    if val is None and config.patience is not None:
        raise ValueError("patience needs val_data: early stopping uses the validation loss.")
    if val is None and config.keep == "best":
        raise ValueError("keep='best' needs val_data: it uses the validation loss.")
    count, processes = train.count(), world_size()
    if count is None:
        return
    if count < processes:
        raise ValueError(
            f"train_data has {count} rows for {processes} processes; each needs at least one."
        )
    norms = (torch.nn.BatchNorm1d, IntervalBatchNorm)
    smallest = min(-(-count // processes), config.batch_size)
    if smallest == 1 and any(isinstance(layer, norms) for layer in model.modules()):
        found = "batch_size is 1"
        if count <= processes:
            found = f"train_data has {count} rows for {processes} processes"
        raise ValueError(f"Batch norm needs batches of at least two rows, but {found}.")


def set_class_weights(
    config: TrainConfig, num_classes: int, like: Tensor, train: Rows, val: Rows | None
) -> None:
    """Give the data the weights of the classes in the loss, if there are any."""
    if config.class_weight is None:
        return
    if train.row_weights is not None:
        raise ValueError(
            "Both rows and classes have weights. Multiply the row weights and drop class_weight."
        )
    if config.class_weight == "balanced":
        counts = train.class_counts().double()
        weights = (counts.sum() / (num_classes * counts.clamp_min(1))).to(like)
    elif len(config.class_weight) != num_classes:
        found = len(config.class_weight)
        raise ValueError(f"class_weight has {found} weights for {num_classes} classes.")
    else:
        weights = like.new_tensor(config.class_weight)
    for rows in (train, val):
        if rows is not None:
            rows.class_weights = weights
