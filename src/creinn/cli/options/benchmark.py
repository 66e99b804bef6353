"""``creinn benchmark``: how long a prediction takes beside the ordinary network, on this machine."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Time predictions of the forms of CreINN beside those of the ordinary network, in turns in one process.

    Args:
        network: Architecture: resnet8, resnet14, resnet18, resnet20, resnet34 or resnet50.
        size: Side of the images in pixels.
        batches: Images of a call, separated by commas.
        seconds: Time for each number of images.
        threads: Threads of torch; its own choice if none is given.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
    """

    network: str = "resnet18"
    size: int = 32
    batches: tuple[int, ...] = (1, 32)
    seconds: float = 5.0
    threads: int | None = None
    device: str = "cpu"


def run(options: BenchmarkOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        ValueError: If an option is out of range or the network is unknown.
    """
    from creinn.cli.benchmark import benchmark

    return benchmark(options)
