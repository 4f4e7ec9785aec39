"""All families of operators: importing this fills the registry."""

from __future__ import annotations

from tessera.compiler.graph import contraction as contraction
from tessera.compiler.graph import control as control
from tessera.compiler.graph import creation as creation
from tessera.compiler.graph import dialect as dialect
from tessera.compiler.graph import elementwise as elementwise
from tessera.compiler.graph import indexing as indexing
from tessera.compiler.graph import inverse as inverse
from tessera.compiler.graph import joining as joining
from tessera.compiler.graph import nn as nn
from tessera.compiler.graph import random as random
from tessera.compiler.graph import reductions as reductions
from tessera.compiler.graph import shaping as shaping
from tessera.compiler.graph import transposing as transposing
