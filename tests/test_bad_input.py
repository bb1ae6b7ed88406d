"""Bad input: one sentence that says what to write; nothing recorded, nothing changed, and on.

Rows of a case table: what is done wrong with a parameter `W` (5, 2) inside a Tape, the error, and
its whole text, or how it begins where NumPy or Python end it.
"""

import contextlib
import copy
import pickle
import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import GradStore, IndexedSlices, errors, nn, ops, optim
from tinygrad_sparse.errors import (
    DeviceError,
    DtypeError,
    RowIndexError,
    ShapeError,
    SparsityError,
    TapeError,
)


def text(message):
    """The whole message; one that ends in ... is the beginning of it."""
    return f"^{re.escape(message.removesuffix('...'))}" + ("" if message.endswith("...") else "$")


def step(W, opt):
    """A right training step after the wrong one, and what it must do."""
    before = W.numpy()
    with ts.Tape(densify="raise") as tape:
        loss = (W[[1, 3]] * 2).sum()
    opt.step(tape.backward(loss))
    before[[1, 3]] -= 1.0
    np.testing.assert_array_equal(W.data, before)


MASK = "Hint: np.flatnonzero(mask) gives the rows of a mask."
INT = "Hint: ids.astype(int)."
TEXT = "Hint: nn.hash_ids(keys, V) makes ids of text."
NUMBERS = "expected real numbers, arrays or Tensors, got"

IDS = [  # the ids, and what take and cross_entropy say of them
    ([1, 5, 0], "expected ids in [0, {V}), got 5 at position 1 (ids int64 (3,){context})."),
    ([[1, 0], [9, 7]], "expected ids in [0, {V}), got 9 at position (1, 0) (ids int64 (2, 2)"
     "{context})."),
    ([0, -6], "expected ids in [{low}, {V}), got -6 at position 1 (ids int64 (2,){context})."
     "{hint}"),
    (7, "expected ids in [0, {V}), got 7 at position 0 (ids int64 (){context})."),
    (np.array([200], np.uint8), "expected ids in [0, {V}), got 200 at position 0 (ids uint8 (1,)"
     "{context})."),
    (np.array([-100], np.int8), "expected ids in [{low}, {V}), got -100 at position 0 (ids int8 "
     "(1,){context}).{hint}"),
    (np.array([2**64 - 1], np.uint64), "expected ids in [0, {V}), got 18446744073709551615 at "
     "position 0 (ids uint64 (1,){context})."),
    ([1.0, 2.0], f"expected integer ids, got float64 (2,){{context}}. {INT}"),
    (np.float32(1), f"expected integer ids, got float32 (){{context}}. {INT}"),
    (np.zeros(0, np.float32), f"expected integer ids, got float32 (0,){{context}}. {INT}"),
    ([True, False], f"expected integer ids, got bool (2,){{context}}. {MASK}"),
    (True, f"expected integer ids, got bool (){{context}}. {MASK}"),
    ([1, None], "expected integer ids, got object (2,){context}."),
    ([1j], "expected integer ids, got complex128 (1,){context}."),
    (["1"], f"expected integer ids, got <U1 (1,){{context}}. {TEXT}"),
    ("ab", f"expected integer ids, got <U2 (){{context}}. {TEXT}"),
    ([[1], [2, 3]], "expected integer ids, got [[1], [2, 3]]{context}."),
]  # fmt: skip


LOOKUPS = {
    "take": (lambda W, ids: ops.take(W, ids), "take", -5, 5, ", table (5, 2)"),
    "targets": (lambda W, ids: nn.cross_entropy(W, ids), "cross_entropy", 0, 2, ", scores (5, 2)"),
    "scatter_rows": (lambda W, ids: ops.scatter_rows(W, ids, 5), "scatter_rows", -5, 5, ""),
}


@pytest.mark.parametrize(("ids", "message"), IDS, ids=[str(ids) for ids, _ in IDS])
@pytest.mark.parametrize(("lookup", "op", "low", "V", "context"), LOOKUPS.values(), ids=LOOKUPS)
def test_bad_ids(lookup, op, low, V, context, ids, message):
    W = ts.parameter(np.ones((5, 2)))
    hint = "" if low or "{hint}" not in message else f" Hint: ignore_index={min(ids)} leaves such "
    hint += "targets out." if hint else ""
    wanted = text(f"{op}: {message.format(low=low, V=V, context=context, hint=hint)}")
    with ts.Tape() as tape:
        with pytest.raises(RowIndexError, match=wanted):
            lookup(W, ids)
        assert len(tape) == 0
    step(W, optim.SGD([W], lr=0.5))


INDEX = ", axis 0 of (5, 2)"
CALLS = {
    # -- W[ids] ----------------------------------------------------------------------------------
    "W[5]": (lambda W: W[[1, 5]], RowIndexError,
             "take: expected ids in [0, 5), got 5 at position 1 (ids int64 (2,), table (5, 2))."),
    "W[float]": (lambda W: W[[1.0, 2.0]], RowIndexError,
                 f"take: expected integer ids, got float64 (2,), table (5, 2). {INT}"),
    "W[a float]": (lambda W: W[np.float32(1)], RowIndexError,
                   f"getitem: expected integer ids, got float32 (){INDEX}. {INT}"),
    "W[text]": (lambda W: W["ab"], RowIndexError,
                f"getitem: expected integer ids, got <U2 (){INDEX}. {TEXT}"),
    "W[ragged]": (lambda W: W[[[1], [2, 3]]], RowIndexError,
                  "getitem: expected an array of ids, got the ragged [[1], [2, 3]]."),
    "W[a short mask]": (lambda W: W[[True, False]], RowIndexError,
                        "getitem: expected a mask of shape (5,), got (2,) for an array (5, 2)."),
    # -- shapes ----------------------------------------------------------------------------------
    "add": (lambda W: W + np.ones(3), ShapeError,
            "add: expected shapes that fit together, got float64 (5, 2), float64 (3,)."),
    "radd": (lambda W: np.ones(3) + W, ShapeError,
             "add: expected shapes that fit together, got float64 (3,), float64 (5, 2)."),
    "two Tensors": (lambda W: W * ts.tensor(np.ones((5, 3))), ShapeError,
                    "multiply: expected shapes that fit together, got float64 (5, 2), float64 "
                    "(5, 3)."),
    "where": (lambda W: ops.where(np.ones(4, bool), W, 0.0), ShapeError,
              "where: expected shapes that fit together, got bool (4,), float64 (5, 2), 0.0."),
    "matmul": (lambda W: W @ np.ones((3, 2)), ShapeError,
               "matmul: expected inner sizes that agree, (n, k) @ (k, m), got float64 (5, 2) @ "
               "float64 (3, 2)."),
    "matmul by a number": (lambda W: W @ 2, ShapeError,
                           "matmul: expected arrays of 1 or more axes, got int64 ()."),
    "matmul of stacks": (lambda W: np.ones((2, 5, 5)) @ (ts.parameter(np.ones((3, 5, 2)))),
                         ShapeError,
                         "matmul: expected shapes that fit together, got float64 (2, 5, 5), "
                         "float64 (3, 5, 2)."),
    "concatenate": (lambda W: ops.concatenate([W, np.ones((5, 3))]), ShapeError,
                    "concatenate: expected shapes that fit together, got float64 (5, 2), float64 "
                    "(5, 3)."),
    "concatenate ranks": (lambda W: ops.concatenate([W, np.ones(2)]), ShapeError,
                          "concatenate: expected shapes that fit together, got float64 (5, 2), "
                          "float64 (2,)."),
    "concatenate numbers": (lambda W: ops.concatenate([W, 3.0]), ShapeError,
                            "concatenate: expected arrays with at least one axis, got a 0-d "
                            "array."),
    "concatenate nothing": (lambda W: ops.concatenate([]), ShapeError,
                            "concatenate: expected arrays with at least one axis, got none."),
    "concatenate a Tensor": (lambda W: ops.concatenate(W), ShapeError,
                             "concatenate: expected a sequence of arrays, got Tensor."),
    "concatenate axis": (lambda W: ops.concatenate([W, W], axis=2), ShapeError,
                         "concatenate: expected an axis in [-2, 2), got 2."),
    "reshape": (lambda W: W.reshape(3, 4), ShapeError,
                "reshape: expected a shape of 10 elements for (5, 2), got (3, 4)."),
    "reshape -1": (lambda W: W.reshape(-1, 3), ShapeError,
                   "reshape: expected a shape of 10 elements for (5, 2), got (-1, 3)."),
    "reshape -1 -1": (lambda W: W.reshape((-1, -1)), ShapeError,
                      "reshape: expected a shape of 10 elements for (5, 2), got (-1, -1)."),
    "broadcast_to": (lambda W: ops.broadcast_to(W, (2, 5)), ShapeError,
                     "broadcast_to: expected a shape that (5, 2) stretches to, got (2, 5)."),
    "transpose": (lambda W: W.transpose(0, 0), ShapeError,
                  "transpose: expected each axis once, got (0, 0)."),
    "transpose axes": (lambda W: W.transpose(0), ShapeError,
                       "transpose: expected 2 axes for (5, 2), got 0."),
    "squeeze": (lambda W: W.squeeze(0), ShapeError,
                "squeeze: expected axes of length 1, got axis 0 of (5, 2)."),
    "sum axis": (lambda W: W.sum(axis=2), ShapeError, "sum: expected an axis in [-2, 2), got 2."),
    "sum axis twice": (lambda W: W.sum(axis=(1, -1)), ShapeError,
                       "sum: expected each axis once, got (1, -1)."),
    "sum axis type": (lambda W: W.sum(axis=0.5), ShapeError,
                      "sum: expected an axis in [-2, 2), got 0.5."),
    "sum of sums": (lambda W: ops.sum(W, 0, axis=1), TypeError,
                    "sum: axis given twice; write sum(x: 'Array', axis: 'Any' = None, "
                    "keepdims: 'bool' = False)..."),
    "sum unknown": (lambda W: ops.sum(W, dims=1), TypeError,
                    "sum: got an unexpected keyword argument 'dims'; write sum(x: 'Array', ..."),
    "max of nothing": (lambda W: ts.parameter(np.ones((0, 2))).max(), ShapeError,
                       "max: expected at least one element, got shape (0, 2), axis (0, 1)."),
    "a row too many": (lambda W: W[0, 0, 0], RowIndexError,
                       "getitem: expected at most 2 indices and one ellipsis for shape (5, 2), got "
                       "3 indices and 0 ellipses."),
    "an index out of range": (lambda W: W[0, 2], RowIndexError,
                              "getitem: expected ids in [0, 2), got 2 at position 0 (ids int64 "
                              "(), axis 1 of (5, 2))."),
    "rows of a number": (lambda W: ops.take(ts.parameter(np.array(1.0)), [0]), ShapeError,
                         "take: expected a table with rows, got a 0-d array."),
    "scatter_rows": (lambda W: ops.scatter_rows(W, [0, 1], 9), ShapeError,
                     "scatter_rows: expected values (n, *row) and ids (n,), got values (5, 2) and "
                     "ids (2,)."),
    "item": (lambda W: W.item(), ShapeError,
             "item: expected one element, got shape (5, 2). Hint: index it first."),
    "len of a number": (lambda W: len(ts.tensor(1.0)), TypeError, "len() of a 0-d Tensor"),
    # -- dtypes ----------------------------------------------------------------------------------
    "complex": (lambda W: W * 1j, DtypeError, f"multiply: {NUMBERS} complex (complex128)."),
    "complex array": (lambda W: W * np.array([1j, 2]), DtypeError,
                      f"multiply: {NUMBERS} ndarray (complex128)."),
    "object array": (lambda W: W + np.array([1, 2], object), DtypeError,
                     f"add: {NUMBERS} ndarray (object)."),
    "object array left": (lambda W: np.array([1, None], object) - W, DtypeError,
                          f"subtract: {NUMBERS} ndarray (object)."),
    "strings": (lambda W: W + np.array(["a", "b"]), DtypeError, f"add: {NUMBERS} ndarray (<U1)."),
    "a string": (lambda W: W / "2", DtypeError, f"divide: {NUMBERS} str (<U1)."),
    "None": (lambda W: ops.maximum(W, None), DtypeError, f"maximum: {NUMBERS} NoneType (object)."),
    "dates": (lambda W: ops.exp(np.array(["2020-01-01"], "datetime64[D]")), DtypeError,
              f"exp: {NUMBERS} ndarray (datetime64[D])."),
    "ragged": (lambda W: ops.add(W, [[1.0], [2.0, 3.0]]), DtypeError,
               f"add: {NUMBERS} [[1.0], [2.0, 3.0]]."),
    "a gradient": (lambda W: W + IndexedSlices([0], np.ones((1, 2)), (5, 2)), SparsityError,
                   "np.asarray: expected a dense array, got IndexedSlices(1 rows of (5, 2) "
                   "float64). Hint: write .to_dense() to build the whole table, or use .indices "
                   "and .values."),
    "integer parameter": (lambda W: ts.parameter([1, 2]), DtypeError,
                          "parameter: expected a float array (float16, float32, float64), got "
                          "int64 (2,). Hint: write 3.0 for 3."),
    "complex parameter": (lambda W: ts.parameter([1j]), DtypeError,
                          "parameter: expected a float array (float16, float32, float64), got "
                          "complex128 (1,)."),
    "boolean parameter": (lambda W: ts.parameter(np.ones(2, bool)), DtypeError,
                          "parameter: expected a float array (float16, float32, float64), got bool "
                          "(2,). Hint: convert it: array.astype(float)."),
    "object parameter": (lambda W: ts.parameter([1.0, None]), DtypeError,
                         "parameter: expected a float array (float16, float32, float64), got "
                         "object (2,)."),
    "ragged parameter": (lambda W: ts.parameter([[1.0], [2.0, 3.0]]), DtypeError,
                         "parameter: expected real numbers, arrays or Tensors, got [[1.0], [2.0, "
                         "3.0]]."),
    "no parameter": (lambda W: ts.parameter(None), DtypeError,
                     "parameter: expected a float array (float16, float32, float64), got object "
                     "()."),
    "complex constant": (lambda W: ts.tensor([1j]), DtypeError,
                         "tensor: expected real numbers, got complex128 (1,)."),
    "text constant": (lambda W: ts.tensor("W"), DtypeError,
                      "tensor: expected real numbers, got <U1 ()."),
    "device": (lambda W: ts.tensor([1.0], device="tpu"), errors.TinygradSparseError,
               "device: expected 'cpu' or 'cuda', got 'tpu'."),
    "Tensor()": (lambda W: ts.Tensor(np.ones(2)), TypeError,
                 "Tensor: write ts.tensor(array) for a constant, ts.parameter(array) to train"),
    # -- habits ----------------------------------------------------------------------------------
    ".grad": (lambda W: W.grad, AttributeError,
              "Tensor has no .grad: gradients are returned, not stored: grads = "
              "tape.backward(loss), then grads[x]."),
    ".grad = None": (lambda W: setattr(W, "grad", None), AttributeError,
                     "Tensor has no .grad: gradients are returned, not stored: grads = "
                     "tape.backward(loss), then grads[x]."),
    "zero_grad": (lambda W: W.zero_grad(), AttributeError,
                  "Tensor has no .zero_grad: nothing is accumulated on tensors, so there is "
                  "nothing to zero: drop this call."),
    "opt.zero_grad": (lambda W: optim.SGD([W], lr=1.0).zero_grad(), AttributeError,
                      "SGD has no .zero_grad: nothing is accumulated on tensors, so there is "
                      "nothing to zero: drop this call."),
    "module.zero_grad": (lambda W: nn.Linear(1, 1).zero_grad(), AttributeError,
                         "Linear has no .zero_grad: nothing is accumulated on tensors, so there "
                         "is nothing to zero: drop this call."),
    ".cuda()": (lambda W: W.cuda(), AttributeError,
                "Tensor has no .cuda: write .to('cuda')."),
    "module.cuda()": (lambda W: nn.Linear(1, 1).cuda(), AttributeError,
                      "Linear has no .cuda: write .to('cuda')."),
    ".cpu()": (lambda W: W.cpu(), AttributeError,
               "Tensor has no .cpu: write .to('cpu'), or x.numpy() for an array."),
    ".requires_grad_()": (lambda W: W.requires_grad_(), AttributeError,
                          "Tensor has no .requires_grad_: a trainable tensor is made with "
                          "ts.parameter(array)."),
    ".retain_grad()": (lambda W: W.retain_grad(), AttributeError,
                       "Tensor has no .retain_grad: ts.grad differentiates by any argument of a "
                       "function."),
    ".clone()": (lambda W: W.clone(), AttributeError,
                 "Tensor has no .clone: arrays are never changed in place by an op, so no clone "
                 "is needed."),
    ".view()": (lambda W: W.view(-1), AttributeError, "Tensor has no .view: write x.reshape(...)."),
    ".permute()": (lambda W: W.permute(1, 0), AttributeError,
                   "Tensor has no .permute: write x.transpose(...)."),
    ".unsqueeze()": (lambda W: W.unsqueeze(0), AttributeError,
                     "Tensor has no .unsqueeze: write x[..., None] or ops.expand_dims(x, axis)."),
    ".numel()": (lambda W: W.numel(), AttributeError, "Tensor has no .numel: write x.size."),
    ".tolist()": (lambda W: W.tolist(), AttributeError,
                  "Tensor has no .tolist: write x.numpy().tolist()."),
    "an unknown attribute": (lambda W: W.gard, AttributeError, "Tensor has no attribute 'gard'"),
    "a new attribute": (lambda W: setattr(W, "label", 1), AttributeError,
                        "'Tensor' object has no attribute 'label'..."),
    "x[i] = y": (lambda W: W.__setitem__(0, 1.0), TapeError,
                 "item assignment: expected a new tensor, got x[...] = value, which would change "
                 "values that backward may need. Hint: ops.index_set(x, index, value) and "
                 "ops.index_add(x, index, value) give one, and ops.where(mask, value, x) selects; "
                 "W.assign(values, rows) sets rows of a parameter W."),
    "x.data = y": (lambda W: setattr(W, "data", np.ones((5, 2))), AttributeError,
                   "x.data = ...: expected nothing to be assigned, got values. Hint: a parameter's "
                   "values are set by x.assign(values)."),
    "assign to a constant": (lambda W: ts.tensor([1.0]).assign([2.0]), TapeError,
                             "assign: expected a parameter, got tensor..."),
    "assign another shape": (lambda W: W.assign(np.ones((2, 5))), ShapeError,
                             "assign: expected values of shape (5, 2), got float64 (2, 5)."),
    "assign another dtype": (lambda W: W.assign(np.ones((5, 2), np.float32)), DtypeError,
                             "assign: expected float64 values, got float32 (5, 2). Hint: write "
                             "values.astype('float64')."),
    "assign words": (lambda W: W.assign([["a", "b"]], [0]), DtypeError,
                     "assign: expected real numbers, got ..."),
    "assign a row too far": (lambda W: W.assign(np.ones((1, 2)), [5]), RowIndexError,
                             "assign: expected ids in [0, 5), got 5 at position 0 ..."),
    "assign a row twice": (lambda W: W.assign(np.ones((2, 2)), [1, -4]), RowIndexError,
                           "assign: expected each row once, got rows [1 1]."),
    "assign fewer rows": (lambda W: W.assign(np.ones(2), [1]), ShapeError,
                          "assign: expected values of shape (1, 2), got float64 (2,)."),
    "assign rows of a number": (lambda W: ts.parameter(1.0).assign([1.0], [0]), ShapeError,
                                "assign: expected rows of a parameter with axes, got shape ()."),
    "a habit of an optimizer": (lambda W: optim.SGD([W], lr=0.1).param_groups, AttributeError,
                                "SGD has no .param_groups: write opt.groups."),
    "a rate by another name": (
        lambda W: setattr(optim.SGD([W], lr=0.1), "learning_rate", 1.0), AttributeError,
        "SGD has no .learning_rate: write opt.lr."),
    "a setting read as an attribute": (lambda W: optim.SGD([W], lr=0.1).momentum, AttributeError,
                                       "SGD has no .momentum: write opt.groups[0]['momentum']."),
    "a setting set as an attribute": (
        lambda W: setattr(optim.SGD([W], lr=0.1), "momentum", 0.9), AttributeError,
        "SGD has no .momentum: write opt.groups[0]['momentum']."),
    "zero_grad of one": (lambda W: optim.SGD([W], lr=0.1).zero_grad(), AttributeError,
                  "SGD has no .zero_grad: nothing is accumulated ..."),
    "pickle an optimizer": (lambda W: pickle.dumps(optim.SGD([W], lr=0.1)), TypeError,
                            "SGD: pickle is not supported; save .state_dict()"),
    "x.data[i] = y": (lambda W: W.data.__setitem__(0, 1.0), ValueError,
                      "assignment destination is read-only"),
    "pickle": (lambda W: pickle.dumps(W), TypeError,
               "Tensor: pickle is not supported; save x.numpy() with np.save or np.savez"),
    "pickle a Module": (lambda W: pickle.dumps(nn.Linear(1, 1)), TypeError,
                        "Tensor: pickle is not supported; save x.numpy() with np.save or np.savez"),
    # -- NumPy -----------------------------------------------------------------------------------
    "vjp alone": (lambda W: ts.primitive(vjp=lambda g, out, x: g)(lambda xp, x: x), TypeError,
                  "primitive <lambda>: expected vjp=(...), a tuple with a function or None for "
                  "each of 1 arguments, got function."),
    "a vjp too few": (lambda W: ts.primitive(vjp=(None,))(lambda xp, x, y: x), TypeError,
                      "primitive <lambda>: expected vjp=(...), a tuple with a function or None for "
                      "each of 2 arguments, got 1 of them."),
    "a vjp of too few arguments": (
        lambda W: ts.primitive(vjp=(None, lambda g, x, y: g))(lambda xp, x, y: x), TypeError,
        "primitive <lambda>: expected the VJP of y to take (g, out, x, y) and static arguments, "
        "got (g, x, y)."),
    "no xp": (lambda W: ts.primitive(vjp=(None,))(lambda x: x), TypeError,
              "primitive <lambda>: expected a forward whose first argument is xp, the array "
              "namespace, got <lambda>(x)."),
    "np.exp": (lambda W: np.exp(W), TypeError,
               "np.exp: expected arrays, got a Tensor, whose gradient would be lost. Hint: write "
               "ops.exp."),
    "np.spacing": (lambda W: np.spacing(W), TypeError,
                   "np.spacing: expected arrays, got a Tensor, whose gradient would be lost. "
                   "Hint: no op has this name; x.data has the values."),
    "np.add with out": (lambda W: np.add(W, 1, out=np.ones((5, 2))), TypeError,
                        "np.add: expected arrays, got a Tensor, whose gradient would be lost. "
                        "Hint: write ops.add."),
    "array -= rows": (
        lambda W: np.ones((5, 2)).__isub__(IndexedSlices([0], np.ones((1, 2)), (5, 2))),
        SparsityError,
        "np.subtract: expected dense arrays, got IndexedSlices(1 rows of (5, 2) float64). Hint: "
        "opt.step(grads) steps rows of a parameter; g.to_dense() is the whole table; for an array "
        "x of yours np.subtract.at(x, g.indices, g.values) costs its rows alone."),
    "a function of rows": (
        lambda W: np.exp(IndexedSlices([0], np.ones((1, 2)), (5, 2))), SparsityError,
        "np.exp: expected dense arrays, got IndexedSlices(1 rows..."),
    "array += x": (lambda W: np.ones((5, 2)).__iadd__(W), TypeError,
                   "np.add: expected arrays, got a Tensor, whose gradient would be lost. Hint: "
                   "write ops.add."),
    "np.add.reduce": (lambda W: np.add.reduce(W), TypeError,
                      "np.add.reduce: expected arrays, got a Tensor, whose gradient would be lost. "
                      "Hint: write ops.sum."),
    "np.maximum.reduce": (lambda W: np.maximum.reduce(W), TypeError,
                          "np.maximum.reduce: expected arrays, got a Tensor, whose gradient would "
                          "be lost. Hint: write ops.max."),
    "np.add.at": (lambda W: np.add.at(np.ones(5), [0], W), TypeError,
                  "np.add.at: expected arrays, got a Tensor, whose gradient would be lost. Hint: "
                  "no op has this name; x.data has the values."),
    "np.sum": (lambda W: np.sum(W), TypeError,
               "np.sum: expected arrays, got a Tensor, whose gradient would be lost. Hint: write "
               "ops.sum."),
    "np.concatenate": (lambda W: np.concatenate([W, W]), TypeError,
                       "np.concatenate: expected arrays, got a Tensor, whose gradient would be "
                       "lost. Hint: write ops.concatenate."),
    "np.linalg.inv": (lambda W: np.linalg.inv(W), TypeError,
                      "np.linalg.inv: expected arrays, got a Tensor, whose gradient would be lost. "
                      "Hint: write ops.inv."),
    "float": (lambda W: float(W), TapeError,
              "float: expected a constant inside a Tape block, got the tracked W (5, 2)..."),
    "from_dlpack": (lambda W: np.from_dlpack(W), TapeError,
                    "from_dlpack: expected a constant inside a Tape block, got the tracked W "
                    "(5, 2)..."),
    "a negative lr": (lambda W: optim.SGD([W], lr=-1.0), errors.TinygradSparseError,
                      "SGD: expected lr >= 0, got -1.0. Hint: maximize=True goes uphill."),
    "reshape rows": (lambda W: IndexedSlices([0], np.ones((1, 2)), (5, 2)).reshape((3,)),
                     ShapeError,
                     "IndexedSlices.reshape: expected a shape of 10 elements for (5, 2), got "
                     "(3,)."),
    "argnums": (lambda W: ts.grad(lambda x: x.sum(), 3)(W), ShapeError,
                "grad: expected positional arguments (3,) of <lambda>, got 1 of them."),
    "np.asarray": (lambda W: np.asarray(W), TapeError,
                   "np.asarray: expected a constant inside a Tape block, got the tracked W (5, 2), "
                   "whose gradient would be lost. Hint: use an op of tinygrad_sparse; .item() and "
                   ".detach() say that no gradient should flow."),
    "truth of many": (lambda W: bool(W), ValueError, "The truth value of an array..."),
    # -- tapes -----------------------------------------------------------------------------------
    "densify": (lambda W: ts.Tape(densify="never"), TapeError,
                "Tape: expected densify='warn', 'allow' or 'raise', got 'never'."),
    "densify None": (lambda W: ts.Tape(None), TapeError,
                     "Tape: expected densify='warn', 'allow' or 'raise', got None."),
    "nested Tape": (lambda W: ts.Tape().__enter__(), TapeError,
                    "Tape: expected no other Tape recording on this thread, got a Tape block "
                    "inside another. Hint: ..."),
    "backward of a constant": (lambda W: ts.tensor(1.0).backward(), TapeError,
                               "backward: expected a tensor computed from parameters inside `with "
                               "ts.Tape():`, got tensor..."),
    "backward of a parameter": (lambda W: W.backward(), TapeError,
                                "backward: expected a tensor computed from parameters inside `with "
                                "ts.Tape():`, got W (5, 2), which is a parameter."),
    "backward of nothing": (lambda W: ts.Tape().backward(3.0), TapeError,
                            "backward: expected a tensor computed from parameters inside this "
                            "Tape's block, got 3.0, which this Tape did not record."),
    "grad by an integer": (lambda W: ts.grad(lambda x: x * 2)(3), DtypeError,
                           "parameter: expected a float array (float16, float32, float64), got "
                           "int64 (). Hint: write 3.0 for 3."),
    "minus True": (lambda W: -ts.tensor([True]), DtypeError,
                   "negative: expected numbers, got bool (1,). Hint: x.astype(float) has 1.0 for "
                   "True."),
    "sigmoid of True": (lambda W: ops.sigmoid(np.array([True])), DtypeError,
                        "sigmoid: expected numbers, got bool (1,). Hint: x.astype(float)..."),
    "True - True": (lambda W: ts.tensor([True]) - ts.tensor([True]), DtypeError,
                    "subtract: expected numbers, got bool (1,). Hint: x.astype(float)..."),
    "one of many GPUs": (lambda W: ts.parameter(np.ones(2), device="cuda:1"), DeviceError,
                         "device: expected 'cpu' or 'cuda', got 'cuda:1'. Hint: CuPy's current GPU "
                         "is used: CUDA_VISIBLE_DEVICES=1 makes it another."),
    # -- optimizers ------------------------------------------------------------------------------
    "no list": (lambda W: optim.SGD(W, lr=0.1), TapeError,
                "SGD: expected a list of parameters, or of groups, got W (5, 2). Hint: [W] for one "
                "parameter, model.parameters() for a Module."),
    "a Module": (lambda W: optim.SGD(nn.Linear(1, 1), lr=0.1), TapeError,
                 "SGD: expected a list of parameters, or of groups, got Linear. Hint: [W] for one "
                 "parameter, model.parameters() for a Module."),
    "no parameters": (lambda W: optim.SGD([], lr=0.1), ShapeError,
                      "SGD: expected at least one parameter, got none."),
    "an array": (lambda W: optim.SGD([W, np.ones(2)], lr=0.1), TapeError,
                 "SGD: expected parameters made by ts.parameter, got ndarray."),
    "a result": (lambda W: optim.Adam([ts.parameter(np.ones(1)), W.detach()]), TapeError,
                 "Adam: expected parameters made by ts.parameter, got tensor..."),
    "twice": (lambda W: optim.SGD([{"params": [W]}, {"params": [W]}], lr=0.1), TapeError,
              "SGD: expected each parameter once, got W twice."),
    "both kinds": (lambda W: optim.SGD([{"params": [W]}, W], lr=0.1), TapeError,
                   "SGD: expected parameters or groups, got a list of both."),
    "unknown setting": (lambda W: optim.SGD([{"params": [W], "momentun": 0.9}], lr=0.1), TypeError,
                        "SGD: expected settings among ['average', 'count', 'dampening', 'lr', "
                        "'master', 'maximize', 'momentum', 'nesterov', 'sparse', 'weight_decay'], "
                        "got 'momentun'. Hint: write momentum."),
    "no params": (lambda W: optim.SGD([{"lr": 0.1}], lr=0.1), TypeError,
                  "SGD: expected a group with 'params', got ['lr']."),
    "lr": (lambda W: optim.SGD([W], lr="0.1"), DtypeError,
           "SGD: expected a number for lr, got '0.1'."),
    "sparse": (lambda W: optim.Adam([W], sparse="fast"), SparsityError,
               "Adam: expected sparse='exact' or 'lazy', got 'fast'."),
    "sparse in a group": (lambda W: optim.Adam([{"params": W, "sparse": True}]), SparsityError,
                          "Adam: expected sparse='exact' or 'lazy', got True."),
    "step without a store": (lambda W: optim.SGD([W], lr=0.1).step({W: np.ones((5, 2))}), TapeError,
                             "step: expected the GradStore that backward returned, got dict. Hint: "
                             "opt.step(tape.backward(loss))."),
    "step without anything": (lambda W: optim.SGD([W], lr=0.1).step(), TapeError,
                              "step: expected the GradStore that backward returned, got nothing. "
                              "Hint: opt.step(tape.backward(loss))."),
    "wrong gradient": (lambda W: GradStore().__setitem__(W, np.ones((2, 5))), ShapeError,
                       "GradStore: expected a gradient of shape (5, 2) for W, got float64 (2, 5)."),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "message"), CALLS.values(), ids=CALLS)
def test_a_wrong_call(wrong, error, message):
    W = ts.parameter(np.ones((5, 2)), name="W")
    opt = optim.SGD([W], lr=0.5)
    with ts.Tape() as tape:
        before = len(tape), W.data.tobytes(), W._version
        with pytest.raises(error, match=text(message)):
            wrong(W)
        assert (len(tape), W.data.tobytes(), W._version) == before
        assert (W * 2).requires_grad  # recording goes on
    step(W, opt)


BACKWARD = {
    "no scalar": (lambda t, y, loss: t.backward(y), ShapeError,
                  "backward: expected a scalar loss, or a seed of the loss's shape, got loss "
                  "float64 (5, 2) and no seed. Hint: reduce it with .sum() or .mean(), or pass "
                  "seed=."),
    "a seed that would broadcast": (lambda t, y, loss: t.backward(y, seed=1.0), ShapeError,
                                    "backward: expected a seed of shape (5, 2), got float64 ()."),
    "a seed of another shape": (lambda t, y, loss: t.backward(y, np.ones((5, 1))), ShapeError,
                                "backward: expected a seed of shape (5, 2), got float64 (5, 1)."),
    "a seed for a scalar": (lambda t, y, loss: t.backward(loss, np.ones(1)), ShapeError,
                            "backward: expected a seed of shape (), got float64 (1,)."),
    "a complex seed": (lambda t, y, loss: t.backward(y, np.ones((5, 2), complex)), ShapeError,
                       "backward: expected a seed of shape (5, 2), got complex128 (5, 2)."),
    "a seed of objects": (lambda t, y, loss: t.backward(y, np.full((5, 2), None)), ShapeError,
                          "backward: expected a seed of shape (5, 2), got object (5, 2)."),
    "rows of another shape": (
        lambda t, y, loss: t.backward(y, IndexedSlices([0], np.ones((1, 2)), (4, 2))), ShapeError,
        "backward: expected a seed of shape (5, 2), got float64 (4, 2)."),
    "another tape": (lambda t, y, loss: ts.Tape().backward(loss), TapeError,
                     "backward: expected a tensor computed from parameters inside this Tape's "
                     "block, got tensor..."),
    "create_graph outside": (lambda t, y, loss: t.backward(loss, create_graph=True), TapeError,
                             "backward: expected create_graph=True inside the Tape's block, got a "
                             "call after it. Hint: ..."),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "message"), BACKWARD.values(), ids=BACKWARD)
def test_a_wrong_backward_leaves_the_tape_as_it_was(wrong, error, message):
    W = ts.parameter(np.ones((5, 2)), name="W")
    with ts.Tape() as tape:
        y = W * 2
        loss = y.sum()
    shown = repr(tape)
    with pytest.raises(error, match=text(message)):
        wrong(tape, y, loss)
    assert repr(tape) == shown
    np.testing.assert_array_equal(tape.backward(loss)[W], 2.0)
    step(W, optim.SGD([W], lr=0.5))


def test_backward_twice():
    W = ts.parameter(np.ones((5, 2)))
    with ts.Tape() as tape:
        loss = (W * 2).sum()
    first = tape.backward(loss)
    message = (
        "backward: expected a Tape that has not been used, got one whose saved values an earlier "
        "backward freed. Hint: make one Tape a step, or Tape(persistent=True), or "
        "backward(create_graph=True)."
    )
    for again in (lambda: tape.backward(loss), loss.backward):
        with pytest.raises(TapeError, match=text(message)):
            again()
    np.testing.assert_array_equal(first[W], 2.0)
    step(W, optim.SGD([W], lr=0.5))


def test_backward_of_what_no_tape_recorded():
    W = ts.parameter(np.ones((5, 2)))
    outside = (W * 2).sum()
    with ts.Tape() as tape, ts.no_grad():
        paused = (W * 2).sum()
    for loss in (outside, paused):
        message = (
            "backward: expected a tensor computed from parameters inside `with ts.Tape():`, got "
            f"{loss.name} (), which is a constant, or computed while no Tape was recording. "
            "Hint: was a parameter lost? W = W - ... and W -= ... make a constant of that name; "
            "opt.step(grads) or W.assign(values) change W itself."
        )
        with pytest.raises(TapeError, match=text(message)):
            loss.backward()
        with pytest.raises(TapeError, match="which this Tape did not record"):
            tape.backward(loss)


def test_a_tensor_of_another_tape_is_refused_by_every_kind_of_op():
    W, b = ts.parameter(np.ones((5, 2))), ts.parameter(np.ones(2))
    with ts.Tape():
        old = W * 2
    message = (
        f"expected tensors of the Tape that is recording, got {old.name} (5, 2), computed under "
        "another Tape. Hint: write .detach() to use its value as a constant."
    )
    uses = {
        "exp": lambda: ops.exp(old),
        "add": lambda: old + b,
        "multiply": lambda: b * old,
        "take": lambda: old[[1, 1]],
        "sum": lambda: old.sum(),
        "matmul": lambda: old @ b,
        "concatenate": lambda: ops.concatenate([W, old]),
    }
    with ts.Tape() as tape:
        for op, use in uses.items():
            with pytest.raises(TapeError, match=text(f"{op}: {message}")):
                use()
        assert len(tape) == 0
        loss = (old.detach() * b).sum()
    assert list(tape.backward(loss)) == [b]


def test_copies_have_an_identity_of_their_own():
    W = ts.parameter(np.ones((5, 2)), name="W")
    layer = nn.Linear(2, 2)
    twins = [copy.copy(W), copy.deepcopy(W), copy.deepcopy(layer).weight, copy.copy(ts.tensor(1.0))]
    assert len({W.id, layer.weight.id, *(t.id for t in twins)}) == 6
    assert twins[0].name == twins[1].name == "W" and twins[0].requires_grad
    assert not twins[3].requires_grad
    grads = GradStore()
    grads[W] = np.ones(W.shape)
    optim.SGD([W], lr=1.0).step(grads)
    assert (W.data == 0).all() and (twins[0].data == 1).all() and (twins[1].data == 1).all()


def test_zero_rows_and_no_ids_are_not_bad_input():
    empty = ts.parameter(np.ones((0, 2)))
    with ts.Tape(densify="raise") as tape:
        loss = empty[[]].sum() + (empty * 2).sum() + ops.scatter_rows(empty, [], 3).sum()
    grads = tape.backward(loss)
    assert grads[empty].shape == (0, 2)
    optim.SGD([empty], lr=1.0).step(grads)


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside a Tape"])
def test_grad_wants_a_scalar_tensor_and_recording_goes_on_as_before(inside):
    x = np.ones(2)
    with ts.Tape() if inside else contextlib.nullcontext():
        for f, got in [(lambda x: x * 2, "float64 (2,)"), (lambda x: 3.0, "3.0")]:
            message = f"grad: expected <lambda> to return a scalar Tensor, got {got}."
            with pytest.raises(ShapeError, match=text(message)):
                ts.grad(f)(x)
        assert (ts.parameter(x) * 2).requires_grad == inside
        g = ts.grad(lambda x: (x * x).sum())(x)
        np.testing.assert_array_equal(g.data if inside else g, 2.0)
