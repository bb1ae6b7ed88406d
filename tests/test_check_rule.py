"""`testing.check_rule` passes what is right, and notices each kind of wrong."""

import numpy as np
import pytest

from tinygrad_sparse import errors, optim, testing


@optim.rule(slots=("m",), rest=optim.along(lambda m: np.sign(m)))
def lion(p, g, m, *, lr, beta1, beta2, weight_decay):
    move = np.sign(beta1 * m + (1.0 - beta1) * g)
    return p - lr * (move + weight_decay * p), beta2 * m + (1.0 - beta2) * g


def test_a_rule_of_ones_own_and_an_optimizer_by_name():
    testing.check_rule(lion, lr=0.01, beta1=0.9, beta2=0.99, weight_decay=0.1)
    testing.check_rule(optim.RowwiseAdagrad)
    testing.check_rule(lambda params, **how: optim.SGD(params, 0.1, 0.9, **how))
    testing.check_rule(optim.Adam, lr=0.01, weight_decay=0.1)  # no closed form: the other laws


def shared(p, g, *, lr):
    """Not a formula on rows: they share a number."""
    return (p - lr * g / (1.0 + np.abs(g).mean()),)


def longest(p, g, *, lr):
    """A number of all rows that rows of zeros leave as it is."""
    return (p - lr * g / (1e-8 + np.max(np.abs(g))),)


def late(p, g, m, *, lr, step):
    """Linear for 50 steps, then not."""
    m = 0.9 * m + g
    return p - lr * (m if step < 50 else m * m), m


def drifting(p, g, n, *, lr, step):
    """Still for 50 steps of a run, but for its state from the third step on."""
    return p - lr * g, n + (1.0 if step == 4 else 0.0) * (len(p) == 30)


def of_many(p, g, *, lr):
    """A formula that sees how many rows it is given."""
    return (p - lr * g * (2.0 if np.size(p) > 600 else 1.0),)


def only_at_first(p, g, m, *, lr, step):
    """A formula that fails after the laws before exact_is_dense."""
    if step > 5:
        raise ZeroDivisionError
    return p - lr * m, 0.9 * m + g


class Hidden:
    """A formula with state that no state_dict knows of."""

    def __init__(self):
        @optim.rule(still=True)
        def hidden(p, g, *, lr):
            self.steps += 1
            return (p - lr / self.steps * g,)

        self.steps = 0
        self.rule = hidden


BROKEN = {
    "row_step": optim.rule(still=True)(shared),
    "rows_apart": optim.rule(still=True)(longest),
    "exact_is_dense": optim.rule(slots=("m",), rest=optim.linear)(late),
    "still": optim.rule(slots=("n",), still=True)(drifting),
    "many_rows": optim.rule(still=True)(of_many),
}


@pytest.mark.parametrize(("law", "rule"), BROKEN.items(), ids=BROKEN)
def test_the_law_that_is_broken_is_named(law, rule):
    name = rule.formula.__name__
    with pytest.raises(AssertionError, match=f"{name}, law {law}: "):
        testing.check_rule(rule, lr=0.1)


def test_an_error_of_the_formulas_own_notes_the_law():
    rule = optim.rule(slots=("m",))(only_at_first)
    with pytest.raises(ZeroDivisionError) as caught:
        testing.check_rule(rule, lr=0.1)
    assert caught.value.__notes__ == ["only_at_first, law round_trip"]


def test_a_rate_that_is_an_integer_changes_too():
    rates = set()

    @optim.rule(still=True)
    def watched(p, g, *, lr):
        rates.add(lr)
        return (p - lr * g,)

    testing.check_rule(watched, lr=1)
    assert len(rates) > 100


def test_state_outside_the_slots_is_noticed():
    hidden = Hidden()
    with pytest.raises(AssertionError, match="hidden, law "):
        testing.check_rule(hidden.rule, lr=0.1)


def test_a_claim_that_fails_at_once_is_refused_by_the_step():
    with pytest.raises(errors.SparsityError, match="as still=True says"):
        testing.check_rule(lion._replace(still=True, rest=None), lr=0.1, beta1=0.9, beta2=0.99,
                           weight_decay=0.0)  # fmt: skip


@pytest.mark.parametrize("law", testing.RULE_LAWS)
def test_every_law_is_described(law):
    assert testing.RULE_LAWS[law].__doc__
