"""The harness: gradient checkers, cases, and the laws that hold for every op. Floor 6.

`check_grads` checks a function of Tensors, `check_vjp` a plain NumPy function with a derivative
written by hand. One `Case` an op and shape: `check_op` runs every law on it, and `planted_faults`
breaks the op's rules to see whether the case would notice. `check_rule` runs the laws of
optimizers on one formula. `no_densify`, `count_ops`, `count_bytes`
and `dense_twin` watch code run. Everything here needs NumPy alone; `testing.strategies` needs
hypothesis and `testing.pytest` pytest, and neither is imported unless you import it.
"""

from .cases import Case, distinct, integers, normal, uniform
from .diagnosis import GradientError
from .faults import planted_faults, recorded_ops
from .gradcheck import check_grads, check_vjp
from .laws import LAWS, check_op
from .rules import RULE_LAWS, check_rule
from .watch import count_bytes, count_ops, dense_twin, no_densify

__all__ = [
    "LAWS",
    "RULE_LAWS",
    "Case",
    "GradientError",
    "check_grads",
    "check_op",
    "check_rule",
    "check_vjp",
    "count_bytes",
    "count_ops",
    "dense_twin",
    "distinct",
    "integers",
    "no_densify",
    "normal",
    "planted_faults",
    "recorded_ops",
    "uniform",
]
