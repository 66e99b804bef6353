"""Draw docs/figures/credal-set.svg, the picture of the start page."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from creinn import CredalSet
from creinn.credal.plot import CORNERS

HERE = Path(__file__).parent
NAMES = ["cat", "dog", "fox"]


def bound_line(k: int, value: float) -> np.ndarray:
    """Return both ends of the line where class ``k`` of three has the probability ``value``."""
    ends = np.zeros((2, 3))
    ends[:, k] = value
    ends[[0, 1], [(k + 1) % 3, (k + 2) % 3]] = 1 - value
    return ends @ np.array(CORNERS)


def draw() -> plt.Figure:
    """Draw one credal set in the simplex and as intervals."""
    s = CredalSet(torch.tensor([0.1, 0.3, 0.0]), torch.tensor([0.45, 0.7, 0.2]))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.4, 3.6), width_ratios=(1.1, 1), layout="constrained"
    )
    for k, (low, high) in enumerate(zip(s.lower.tolist(), s.upper.tolist(), strict=True)):
        for value in (low, high):
            if value:
                left.plot(*bound_line(k, value).T, color=f"C{k}", lw=0.8, ls=(0, (4, 3)))
        right.barh(2 - k, high - low, left=low, color=f"C{k}", height=0.45)
        right.text(high + 0.03, 2 - k, f"[{low:.2f}, {high:.2f}]", va="center")
    s.plot(left, NAMES)
    left.patches[-1].set(facecolor="black", edgecolor="black")
    left.lines[-1].set_color("black")
    kept = " or ".join(
        name for name, keep in zip(NAMES, s.classes("e-admissibility"), strict=True) if keep
    )
    total, aleatoric, epistemic = s.uncertainty("entropy")
    text = f"not ruled out: {kept}\nTU {total:.2f} = AU {aleatoric:.2f} + EU {epistemic:.2f} bits"
    right.set(
        xlim=(0, 1.02),
        xticks=[0, 0.5, 1],
        yticks=[2, 1, 0],
        yticklabels=NAMES,
        xlabel="probability",
        title=text,
    )
    right.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    plt.switch_backend("Agg")
    plt.rcParams.update({"svg.hashsalt": "creinn", "svg.fonttype": "path", "font.size": 11})
    path = HERE / "figures" / "credal-set.svg"
    draw().savefig(path, metadata={"Date": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
