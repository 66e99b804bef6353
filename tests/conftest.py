"""Settings of the whole test run: one thread per process, properties that are drawn alike in every run."""

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # pytest-xdist runs one process per core
settings.register_profile("creinn", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("creinn")
