"""`ts.optimizers`: update rules over all parameters of a model at once, schedules, averages.

    opt = ts.optimizers.AdamW(lr=1e-3)
    state = opt.init(model)
    loss, gradient = step(model, x, y)  # of ts.value_and_grad
    model, state = opt.update(model, gradient, state)
    state.report  # StepReport(applied=True, reason='', grad_norm=0.31, scale=1.0)

Optimizers are written in Tessera: one compiled program for the whole model. Modules load at first use.

Made by scripts/make_stubs.py, for type checkers and editors.
"""

# ruff: noqa
# fmt: off

from tessera.optimizers.preconditioned import Adafactor as Adafactor
from tessera.optimizers.rules import Adam as Adam
from tessera.optimizers.rules import AdamW as AdamW
from tessera.optimizers.bound import BoundOptimizer as BoundOptimizer
from tessera.optimizers.schedules import Constant as Constant
from tessera.optimizers.schedules import Cosine as Cosine
from tessera.optimizers.gradients import EMA as EMA
from tessera.optimizers.base import Group as Group
from tessera.optimizers.schedules import Linear as Linear
from tessera.optimizers.rules import Lion as Lion
from tessera.optimizers.rules import Muon as Muon
from tessera.optimizers.base import Optimizer as Optimizer
from tessera.optimizers.memory import OptimizerState as OptimizerState
from tessera.optimizers.rules import SGD as SGD
from tessera.optimizers.preconditioned import SOAP as SOAP
from tessera.optimizers.preconditioned import Shampoo as Shampoo
from tessera.optimizers.memory import StepReport as StepReport
from tessera.optimizers.state import TrainingState as TrainingState
from tessera.optimizers.gradients import accumulate as accumulate
from tessera.optimizers.gradients import clip_grad_norm as clip_grad_norm
