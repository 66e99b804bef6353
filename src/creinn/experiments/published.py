"""Published numbers, to stand beside ours: mean and standard deviation of 15 runs (Tables of Wang et al., 2025).

By experiment of the paper, then by method. The networks are ResNet-50 (CIFAR-10) and ResNet-18 (chest X-ray).
"""

from creinn.report.tables import Spread

COLUMNS = ("accuracy %", "AUARC AU", "AUARC EU", "AUARC TU", "AUROC EU", "AUROC TU", "AUPRC EU", "AUPRC TU")
"""Columns of the tables of single and ensemble models; the X-ray table has the first four."""


def _row(*numbers: tuple[float, float] | None) -> dict[str, Spread | None]:
    return {name: None if number is None else Spread(*number) for name, number in zip(COLUMNS, numbers, strict=False)}


PUBLISHED: dict[str, dict[str, dict[str, Spread | None]]] = {
    "cifar10-svhn": {
        "snn": _row((81.40, 1.48), (0.950, 0.008)),
        "creinn": _row(
            *((84.20, 0.30), (0.939, 0.004), (0.939, 0.003), (0.943, 0.002)),
            *((0.727, 0.022), (0.745, 0.016), (0.854, 0.014), (0.874, 0.009)),
        ),
        "bnn-f": _row(
            *((74.44, 2.44), (0.896, 0.022), (0.884, 0.025), (0.897, 0.021)),
            *((0.702, 0.044), (0.738, 0.026), (0.820, 0.030), (0.829, 0.017)),
        ),
        "bnn-r": _row(
            *((73.13, 3.59), (0.886, 0.029), (0.872, 0.033), (0.887, 0.029)),
            *((0.703, 0.036), (0.734, 0.020), (0.824, 0.025), (0.827, 0.016)),
        ),
        "fsvi": _row(
            *((79.71, 0.53), (0.943, 0.002), (0.941, 0.002), (0.943, 0.002)),
            *((0.725, 0.028), (0.711, 0.022), (0.708, 0.036), (0.676, 0.027)),
        ),
        "bnn-l": _row(
            *((85.67, 0.33), (0.967, 0.002), (0.963, 0.002), (0.966, 0.002)),
            *((0.745, 0.035), (0.761, 0.030), (0.846, 0.025), (0.859, 0.018)),
        ),
        "deep-ensemble": _row(
            *((85.16, 0.27), (0.966, 0.001), (0.962, 0.001), (0.966, 0.001)),
            *((0.783, 0.006), (0.796, 0.005), (0.873, 0.006), (0.865, 0.004)),
        ),
        "creinn-ensemble": _row(
            *((87.32, 0.22), (0.969, 0.001), (0.957, 0.001), (0.970, 0.001)),
            *((0.791, 0.010), (0.895, 0.003), (0.877, 0.008), (0.948, 0.002)),
        ),
        "bnn-f-ensemble": _row(
            *((78.75, 0.90), (0.932, 0.004), (0.911, 0.006), (0.932, 0.004)),
            *((0.680, 0.029), (0.758, 0.007), (0.791, 0.026), (0.836, 0.005)),
        ),
        "bnn-r-ensemble": _row(
            *((77.58, 1.14), (0.923, 0.008), (0.893, 0.012), (0.922, 0.008)),
            *((0.678, 0.018), (0.764, 0.010), (0.802, 0.014), (0.839, 0.004)),
        ),
        "fsvi-ensemble": _row(
            *((81.11, 0.98), (0.950, 0.004), (0.947, 0.011), (0.953, 0.004)),
            *((0.845, 0.051), (0.821, 0.042), (0.834, 0.051), (0.762, 0.043)),
        ),
        "bnn-l-ensemble": _row(
            *((89.12, 0.16), (0.978, 0.000), (0.978, 0.000), (0.980, 0.000)),
            *((0.838, 0.016), (0.834, 0.017), (0.904, 0.009), (0.896, 0.010)),
        ),
    },
    "chest-xray": {
        "snn": _row((87.37, 0.59), (0.950, 0.005)),
        "creinn": _row((87.71, 0.26), (0.952, 0.005), (0.916, 0.013), (0.952, 0.005)),
        "deep-ensemble": _row((87.87, 0.15), (0.955, 0.001), (0.948, 0.001), (0.954, 0.001)),
        "creinn-ensemble": _row((88.18, 0.24), (0.960, 0.002), (0.938, 0.007), (0.960, 0.002)),
    },
}

INFERENCE_TIME = {"snn": 1.0, "creinn": 4.56, "bnn-r": 120.15, "bnn-f": 133.05, "bnn-l": 1.38, "fsvi": 8.60}
"""Time of one image relative to the SNN, on a Tesla P100; 10 samples of the Bayesian networks."""
