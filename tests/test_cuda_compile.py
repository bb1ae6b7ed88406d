"""Every CUDA text compiles for the GPUs there are, without a warning, and spills no register.

NVIDIA's own compiler needs no GPU. What the kernels compute is tested elsewhere, on the CPU.
"""

import re

import numpy as np
import nvrtc
import pytest
from test_cuda_formulas import (
    RULES,
    centred,
    choices,
    clipped,
    functions,
    literals,
    methods,
    of_settings,
    settings_of,
    strong,
    truths,
    weak,
)  # fmt: skip

from tinygrad_sparse.backend.cuda import plans, texts
from tinygrad_sparse.backend.cuda.formula import generate

pytestmark = pytest.mark.skipif(
    nvrtc.loaded() is None, reason="nvidia-cuda-nvrtc is not installed: the extra gpu-test has it"
)
F4, F8, I4, I8 = map(np.dtype, ("f4", "f8", "i4", "i8"))
ROW = (8,)
OTHERS = {
    f.__name__: (f, {"lr": 0.1, **more})
    for f, more in (
        (choices, {"nesterov": True, "cap": 0.5}), (functions, {}), (truths, {}), (strong, {}),
        (weak, {}), (literals, {}), (methods, {}), (of_settings, {"n": 3}),
        (clipped, {"most": 1.0}), (centred, {"eps": 1e-3}),
    )
}  # fmt: skip


def of_formula(formula, hyper, dtype, per_row=(), stored=False, ids=I4):
    made, _ = generate(formula, hyper, dtype, ROW, per_row, stored)
    return texts.update_text(made, dtype, ids, texts.pack_of(dtype))


def every_text():
    """(name, text): all files and all rules in both dtypes; ids of both sizes where they matter."""
    for dtype in (F4, F8):
        for ids in (I4, I8):
            for vec in (1, texts.pack_of(dtype)):
                yield f"rows {dtype} {ids} {vec}", texts.rows_text(dtype, ids, vec)
        for name, rule in RULES.items():
            per_row = [slot in rule.per_row for slot in rule.slots]
            hyper = settings_of(rule.formula)
            yield f"{name} {dtype}", of_formula(rule.formula, hyper, dtype, per_row)
        for name, (formula, hyper) in OTHERS.items():
            slots = formula.__code__.co_argcount - 2
            per_row = (formula is centred,) * slots
            yield f"{name} {dtype}", of_formula(formula, hyper, dtype, per_row)
        yield f"coalesce {dtype}", of_formula(plans._store, {}, dtype)
    for keys, ids in ((I4, I4), (I4, I8), (I8, I8)):
        yield f"sort {keys} {ids}", texts.sort_text(keys, ids)
    adam = RULES["adam"].formula
    hyper = settings_of(adam)
    yield "adam stored", of_formula(adam, hyper, F4, (False, False), stored=True)
    yield "adam, many rows", of_formula(adam, hyper, F4, (False, False), ids=I8)
    columns = {**hyper, "step": np.ones((3, 1))}
    yield "adam, counts of rows", of_formula(adam, columns, F4, (False, False))


TEXTS = dict(every_text())


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_compiles(name):
    """To machine code; to save time only to PTX what differs little from what is."""
    text = TEXTS[name]
    by_hand = name.split()[0] in ("rows", "sort", "coalesce")
    largest = name in ("adam float64", "amsgrad float32", "centred float32", "functions float32")
    for number in (80, 90):
        arch = f"{'sm' if by_hand or (largest and number == 90) else 'compute'}_{number}"
        options = [*texts.OPTIONS, f"-arch={arch}", "--ptxas-options=-v"]
        ok, log = nvrtc.compiled(text, options)
        assert ok, log
        assert "warning" not in log
        if arch.startswith("compute"):
            continue
        entries = re.findall(r"Compiling entry function '(\w+)'", log)
        assert sorted(entries) == sorted(texts.entries_of(text))
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
        assert len(spills) >= len(entries) and set(spills) == {("0", "0")}


def test_the_compiler_is_not_deaf():
    ok, log = nvrtc.compiled(texts.sort_text(I4, I8).replace("__syncwarp", "__sincwarp"), [])
    assert not ok and "__sincwarp" in log


def test_a_thread_moves_16_bytes_at_once():
    """In the assembly, where rows allow it."""
    for dtype, wide in ((F4, "v4.f32"), (F8, "v2.f64")):
        made, _ = generate(RULES["adam"].formula, settings_of(RULES["adam"].formula), dtype, ROW,
                           (False, False))  # fmt: skip
        for text in (texts.update_text(made, dtype, I4, texts.pack_of(dtype)),
                     texts.rows_text(dtype, I4, texts.pack_of(dtype))):  # fmt: skip
            ptx = nvrtc.assembly(text, [*texts.OPTIONS, "-arch=compute_90"])
            assert re.search(rf"ld\.global(\.nc)?\.{wide}", ptx)
            assert f"st.global.{wide}" in ptx
            assert "fma.rn" not in ptx  # one rounding an operation
