"""Process groups."""

import subprocess
import sys
from pathlib import Path

import pytest

LEAVE_GROUP = """
import gc
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from creinn import fit  # before the group is created


def threads():
    names = (path.read_text() for path in Path("/proc/self/task").glob("*/comm"))
    return sum("gloo" in name for name in names)


dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
network = DistributedDataParallel(torch.nn.Linear(3, 2))
network(torch.zeros(1, 3)).sum().backward()
during = threads()
del network
gc.collect()
dist.destroy_process_group()
print(during > 0, threads())
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists threads of Linux")
def test_no_thread_of_a_group_is_left():
    command = [sys.executable, "-c", LEAVE_GROUP]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "0"]
