# SPDX-License-Identifier: Apache-2.0
"""Leases for the tasks and actors of Ray.

    from sublet.ray import gpu

    @gpu(vram="6GiB")
    def step(x): ...

    step.remote(1)  # Ray chooses the node, and Sublet the card and the time

Ray is loaded with the first use. docs/cluster/ray.md of the project describes the module.
"""
from ._gpu import bundle, gpu
from ._hook import environment, setup
from ._status import Row, status
from ._worker import healthy, held, paused

__all__ = ["Row", "bundle", "environment", "gpu", "healthy", "held", "paused", "setup", "status"]
