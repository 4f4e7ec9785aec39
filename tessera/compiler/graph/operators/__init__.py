"""All families of operators: importing this fills the registry."""

from __future__ import annotations

from tessera.compiler.graph import control as control
from tessera.compiler.graph import dialect as dialect
from tessera.compiler.graph.operators import contraction as contraction
from tessera.compiler.graph.operators import conversion as conversion
from tessera.compiler.graph.operators import creation as creation
from tessera.compiler.graph.operators import cutting as cutting
from tessera.compiler.graph.operators import elementwise as elementwise
from tessera.compiler.graph.operators import indexing as indexing
from tessera.compiler.graph.operators import inverse as inverse
from tessera.compiler.graph.operators import joining as joining
from tessera.compiler.graph.operators import ordering as ordering
from tessera.compiler.graph.operators import random as random
from tessera.compiler.graph.operators import reductions as reductions
from tessera.compiler.graph.operators import scans as scans
from tessera.compiler.graph.operators import segments as segments
from tessera.compiler.graph.operators import shaping as shaping
from tessera.compiler.graph.operators import statistics as statistics
from tessera.compiler.graph.operators.attention import attention as attention
from tessera.compiler.graph.operators.attention import steps as steps
from tessera.compiler.graph.operators.linalg import eigen as eigen
from tessera.compiler.graph.operators.linalg import general as general
from tessera.compiler.graph.operators.linalg import orthogonal as orthogonal
from tessera.compiler.graph.operators.linalg import singular as singular
from tessera.compiler.graph.operators.linalg import triangular as triangular
from tessera.compiler.graph.operators.nn import activations as activations
from tessera.compiler.graph.operators.nn import layers as layers
from tessera.compiler.graph.operators.nn import losses as losses
from tessera.compiler.graph.operators.nn import normalization as normalization
from tessera.compiler.graph.operators.spectral import length as length
from tessera.compiler.graph.operators.spectral import real as real
from tessera.compiler.graph.operators.spectral import roots as roots
from tessera.compiler.graph.operators.spectral import transform as transform
from tessera.compiler.graph.operators.windows import convolution as convolution
from tessera.compiler.graph.operators.windows import pooling as pooling
from tessera.compiler.graph.operators.windows import sliding as sliding
