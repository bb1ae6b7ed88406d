"""The harness: a gradient checker, cases, and the laws that hold for every op. Floor 6.

One `Case` an op and shape; `check_op` runs every law on it. The laws use public names only, so they
hold an op of yours to the same promises as ours.
"""

from .cases import Case, integers, normal, uniform
from .gradcheck import check_grads
from .laws import LAWS, check_op

__all__ = ["LAWS", "Case", "check_grads", "check_op", "integers", "normal", "uniform"]
