"""Functions that several devices share: meshes, plans, and running the parts. One process, one host.

The names for users are in `tessera.language.distribution`; here is what runs.
"""

from __future__ import annotations

from tessera.dist.plan import DistributionPlan as DistributionPlan
from tessera.language.distribution import Mesh as Mesh
from tessera.language.distribution import distributed as distributed
from tessera.language.distribution import mesh as mesh

__all__ = ["Mesh", "DistributionPlan", "distributed", "mesh"]
