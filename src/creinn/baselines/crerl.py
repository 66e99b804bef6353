r"""Relative-likelihood ensembles (CreRL, Löhr et al. 2025).

The first network is trained as usual. Another network is plausible if its
relative likelihood on the training data is at least :math:`\alpha`:

.. math:: \exp\Bigl(\tfrac1n \sum_i \log p_{y_i}(x_i) - \log p^{(1)}_{y_i}(x_i)\Bigr) \ge \alpha

The other members start from new weights and a bias towards one class, and
are trained until they reach thresholds between :math:`\alpha` and 1. The
bounds of a credal set are the extreme probabilities of the members.
"""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn.baselines.snn import SNN, check_tensor
from creinn.classifier.base import Classifier, Labelled, common_classes, evaluating
from creinn.classifier.network import find_logits_layer
from creinn.credal.credal_set import CredalSet
from creinn.distributed import world_size
from creinn.numerics import check_share

BATCH, EVALUATION_BATCH = 128, 1024
MIN_STEPS = 3000  # unless a threshold is reached
STEPS = 8  # of bisection


class CreRL(Classifier):
    """Ensemble of plausible networks, with credal sets.

    An untrained model predicts the distribution of the first member. The
    training data must fit into the memory of the device.

    Args:
        members: Two or more networks of the same architecture. The
            training replaces the weights of all except the first.
        alpha: Smallest relative likelihood of a member, in (0, 1).
        tilt: Number added to the initial bias of the class that a member
            prefers.
        learning_rate: Learning rate of Adam for the other members.
        passes: Largest number of passes over the training data, but at
            least 3,000 steps. A member below its threshold is then
            replaced by a copy of the first one.
    """

    prediction_type = CredalSet
    fitted: Tensor

    def __init__(
        self,
        members: Sequence[SNN],
        alpha: float = 0.95,
        tilt: float = 5.0,
        learning_rate: float = 1e-3,
        passes: int = 100,
    ) -> None:
        super().__init__()
        if len(members) < 2:
            raise ValueError(f"CreRL needs at least 2 members, got {len(members)}.")
        self.alpha, self.tilt = check_share("alpha", alpha), tilt
        self.learning_rate, self.passes = learning_rate, passes
        self.num_classes = common_classes(members)
        self.members = nn.ModuleList(members)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self._take_mode_of_members()

    @classmethod
    def from_options(cls, content: Any, **options: Any) -> "CreRL":
        """Build an ensemble from its members, or from a network."""
        if isinstance(content, nn.Module):
            norm, count = options.pop("logit_norm", False), options.pop("members", 8)
            content = [SNN(copy.deepcopy(content), logit_norm=norm) for _ in range(count)]
        return cls(content, **options)

    def forward(self, x: Tensor) -> Any:
        """Return the credal sets, or the first predictions in training mode."""
        if self.training:
            return self.members[0](x)
        members = self.members if self.fitted else self.members[:1]
        samples = torch.stack([member(x).probabilities for member in members])
        return CredalSet._wrap(samples.amin(0), samples.amax(0))

    def batch_loss(self, x: Any, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction and the loss of the first member."""
        return self.members[0].batch_loss(x, target, weight)

    def loss(self, prediction: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of the first member."""
        return self.members[0].loss(prediction, target, weight)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Reset the other members."""
        if world_size() > 1:
            raise ValueError(f"CreRL needs one process, got {world_size()}.")
        self.fitted.fill_(False)

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Train the other members."""
        like = next(self.parameters())
        batches = [(check_tensor(x).to(like), y.to(like.device)) for x, y in data]
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        first, *others = self.members
        reference = log_likelihood(first, x, y)
        for number, member in enumerate(others):
            threshold = self.alpha + (1 - self.alpha) * number / len(others)
            initialize(member, number % self.num_classes, self.tilt)
            if not self._fit_member(member, x, y, reference + math.log(threshold)):
                member.load_state_dict(first.state_dict())
                found = f"its relative likelihood is below {threshold:.3g}"
                warnings.warn(
                    f"Member {number + 1} of CreRL is a copy of the first: {found} after "
                    f"{self.passes} passes. Use more passes, a larger learning rate or less tilt.",
                    stacklevel=2,
                )
        self.fitted.fill_(True)

    def _fit_member(self, member: Any, x: Tensor, y: Tensor, least: float) -> bool:
        """Train a member, and return whether it reaches ``least``."""
        optimizer = torch.optim.Adam(member.parameters(), self.learning_rate)
        for _ in range(max(self.passes, MIN_STEPS * BATCH // len(y))):
            before = copy.deepcopy(member.state_dict())
            _train_pass(member, optimizer, x, y)
            if log_likelihood(member, x, y) >= least:
                _move_back(member, before, x, y, least)
                return True
        return False


@torch.no_grad()
def log_likelihood(member: Any, x: Tensor, y: Tensor) -> float:
    """Return the mean log-likelihood in eval mode."""
    with evaluating(member):
        logs = torch.cat([member(rows).log_samples[0] for rows in x.split(EVALUATION_BATCH)])
    return -float(F.nll_loss(logs.double(), y))


@torch.no_grad()
def initialize(member: SNN, preferred: int, tilt: float) -> None:
    """Draw new weights, and add ``tilt`` to the bias of a class."""
    for module in member.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    bias: Any = member.norm.bias if member.logit_norm else find_logits_layer(member.network).bias
    if bias is None:
        raise ValueError("CreRL needs a bias in the logits layer. Use bias=True.")
    if member.num_logits == 1:
        bias += tilt if preferred else -tilt
    else:
        bias[preferred] += tilt


@torch.enable_grad()
def _train_pass(member: Any, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    member.train()
    for index in torch.randperm(len(y), device=y.device).split(BATCH):
        if len(index) > 1 or len(y) == 1:  # batch norm needs two rows
            optimizer.zero_grad()
            _, loss = member.batch_loss(x[index], y[index], None)
            loss.backward()
            optimizer.step()
    member.eval()


def _move_back(
    member: Any, before: Mapping[str, Tensor], x: Tensor, y: Tensor, least: float
) -> None:
    """Move the weights back, as far as they are plausible."""
    after = copy.deepcopy(member.state_dict())

    def move(share: float) -> None:
        for name, value in member.state_dict().items():
            if value.is_floating_point():  # counts do not change
                torch.lerp(before[name], after[name], share, out=value)

    low, high = 0.0, 1.0
    for _ in range(STEPS):
        move(middle := (low + high) / 2)
        low, high = (low, middle) if log_likelihood(member, x, y) >= least else (middle, high)
    move(high)
