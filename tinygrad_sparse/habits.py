"""What people who come from other libraries reach for, and what to write here. Floor 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

# Attributes of tensors, modules and optimizers elsewhere.
HABITS = {
    "grad": "gradients are returned, not stored: grads = tape.backward(loss), then grads[x]",
    "zero_grad": "nothing is accumulated on tensors, so there is nothing to zero: drop this call",
    "cuda": "write .to('cuda')",
    "cpu": "write .to('cpu'), or x.numpy() for an array",
    "requires_grad_": "a trainable tensor is made with ts.parameter(array)",
    "retain_grad": "ts.grad differentiates by any argument of a function",
    "clone": "arrays are never changed in place by an op, so no clone is needed",
    "copy": "x.numpy() is a fresh array, ts.tensor(x) a constant of its own",
    "view": "write x.reshape(...)",
    "permute": "write x.transpose(...)",
    "unsqueeze": "write x[..., None] or ops.expand_dims(x, axis)",
    "t": "write x.T",
    "float": "write x.astype(np.float32)",
    "double": "write x.astype(np.float64)",
    "half": "write x.astype(np.float16)",
    "numel": "write x.size",
    "tolist": "write x.numpy().tolist()",
    "gather": "write ops.take_along_axis(x, indices, axis)",
    "index_select": "write ops.take(x, ids, axis)",
    "index_add_": "write ops.index_add(x, index, values), which is a new tensor",
    "index_put_": "write ops.index_set(x, index, values), which is a new tensor",
    "scatter_add_": "write ops.index_add(x, index, values), which is a new tensor",
    "masked_fill": "write ops.where(mask, value, x)",
    "forward": "write model(x): a Module has a __call__ of its own",
    "chunk": "write ops.array_split(x, parts, axis)",
}

LOST = (
    "was a parameter lost? W = W - ... and W -= ... make a constant of that name; "
    "opt.step(grads) or W.assign(values) change W itself"
)

# Names of functions and layers elsewhere, beside those above.
NAMES = {
    "cat": "ops.concatenate(arrays, axis)",
    "mm": "x @ y",
    "bmm": "x @ y",
    "mv": "x @ y",
    "amax": "ops.max(x, axis)",
    "amin": "ops.min(x, axis)",
    "scatter_add": "ops.segment_sum(x, ids, num_segments) or ops.index_add(x, index, values)",
    "one_hot": "ops.one_hot(ids, classes)",
    "Variable": "ts.parameter(array)",
    "Parameter": "ts.parameter(array)",
    "GradientTape": "ts.Tape()",
    "stop_gradient": "x.detach()",
    "functional": "the functions of ts.ops and ts.nn",
    "ReLU": "ops.relu",
    "LeakyReLU": "ops.leaky_relu",
    "ELU": "ops.elu",
    "GELU": "ops.gelu",
    "SiLU": "ops.silu",
    "Tanh": "ops.tanh",
    "Sigmoid": "ops.sigmoid",
    "Softplus": "ops.softplus",
    "Softmax": "ops.softmax",
    "LogSoftmax": "ops.log_softmax",
    "Flatten": "x.reshape(len(x), -1)",
    "ModuleList": "a list, as an attribute of a Module",
    "ModuleDict": "a dict, as an attribute of a Module",
    "CrossEntropyLoss": "nn.cross_entropy(logits, targets)",
    "NLLLoss": "nn.nll(log_probs, targets)",
    "BCEWithLogitsLoss": "nn.bce_with_logits(logits, targets)",
    "MSELoss": "nn.mse(x, y)",
    "L1Loss": "nn.l1(x, y)",
    "HuberLoss": "nn.huber(x, y)",
    "KLDivLoss": "nn.kl_div(log_probs, targets)",
    "mse_loss": "nn.mse(x, y)",
}


def pointing(module: str, elsewhere: Mapping[str, Any]) -> Callable[[str], NoReturn]:
    """A module's ``__getattr__``: where a name is that this module does not have."""

    def missing(name: str) -> NoReturn:
        found = [path for path, part in elsewhere.items() if name in part.__all__]
        hint = f"write {found[0]}.{name}" if found else HABITS.get(name)
        hint = f"write {NAMES[name]}" if name in NAMES else hint
        text = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(text if hint is None else f"{text}: {hint}")

    return missing
