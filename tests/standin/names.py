"""What of CuPy 14.2 the stand-in has: functions and their parameters, ufuncs, methods.

test_gpu_names compares it with the real package where that is installed: it imports without a GPU.
"""

FUNCTIONS = {
    "arange": ("start", "stop", "step", "dtype"),
    "array": ("obj", "dtype", "copy", "order", "subok", "ndmin", "blocking"),
    "asarray": ("a", "dtype", "order", "copy", "blocking"),
    "zeros": ("shape", "dtype", "order"),
    "ones": ("shape", "dtype", "order"),
    "empty": ("shape", "dtype", "order"),
    "full": ("shape", "fill_value", "dtype", "order"),
    "zeros_like": ("a", "dtype", "order", "subok", "shape"),
    "ones_like": ("a", "dtype", "order", "subok", "shape"),
    "empty_like": ("prototype", "dtype", "order", "subok", "shape"),
    "full_like": ("a", "fill_value", "dtype", "order", "subok", "shape"),
    "eye": ("N", "M", "k", "dtype", "order"),
    "tri": ("N", "M", "k", "dtype"),
    "tril": ("m", "k"),
    "triu": ("m", "k"),
    "concatenate": ("tup", "axis", "out", "dtype", "casting"),
    "stack": ("tup", "axis", "out", "dtype", "casting"),
    "where": ("condition", "x", "y"),
    "take": ("a", "indices", "axis", "out"),
    "take_along_axis": ("a", "indices", "axis"),
    "flatnonzero": ("a",),
    "nonzero": ("a",),
    "argwhere": ("a",),
    "unique": (
        "ar", "return_index", "return_inverse", "return_counts", "axis", "equal_nan",
    ),
    "isin": ("element", "test_elements", "assume_unique", "invert"),
    "searchsorted": ("a", "v", "side", "sorter"),
    "argsort": ("a", "axis", "kind"),
    "sort": ("a", "axis", "kind"),
    "cumsum": ("a", "axis", "dtype", "out"),
    "cumprod": ("a", "axis", "dtype", "out"),
    "sum": ("a", "axis", "dtype", "out", "keepdims"),
    "mean": ("a", "axis", "dtype", "out", "keepdims"),
    "max": ("a", "axis", "out", "keepdims"),
    "min": ("a", "axis", "out", "keepdims"),
    "prod": ("a", "axis", "dtype", "out", "keepdims"),
    "var": ("a", "axis", "dtype", "out", "ddof", "keepdims"),
    "std": ("a", "axis", "dtype", "out", "ddof", "keepdims"),
    "any": ("a", "axis", "out", "keepdims"),
    "all": ("a", "axis", "out", "keepdims"),
    "argmax": ("a", "axis", "dtype", "out", "keepdims"),
    "argmin": ("a", "axis", "dtype", "out", "keepdims"),
    "flip": ("a", "axis"),
    "roll": ("a", "shift", "axis"),
    "repeat": ("a", "repeats", "axis"),
    "moveaxis": ("a", "source", "destination"),
    "swapaxes": ("a", "axis1", "axis2"),
    "transpose": ("a", "axes"),
    "reshape": ("a", "newshape", "order", "copy"),
    "squeeze": ("a", "axis"),
    "expand_dims": ("a", "axis"),
    "broadcast_to": ("array", "shape"),
    "diagonal": ("a", "offset", "axis1", "axis2"),
    "trace": ("a", "offset", "axis1", "axis2", "dtype", "out"),
    "clip": ("a", "a_min", "a_max", "out"),
    "bincount": ("x", "weights", "minlength"),
    "count_nonzero": ("a", "axis"),
    "ravel": ("a", "order"),
    "round": ("a", "decimals", "out"),
    "einsum": ("operands", "kwargs"),
    "pad": ("array", "pad_width", "mode", "kwargs"),
    "linalg.cholesky": ("a",),
    "linalg.det": ("a",),
    "linalg.eigvalsh": ("a", "UPLO"),
    "linalg.inv": ("a",),
    "linalg.slogdet": ("a",),
    "linalg.solve": ("a", "b"),
    "linalg.svd": ("a", "full_matrices", "compute_uv"),
    "lib.stride_tricks.as_strided": ("x", "shape", "strides"),
}  # fmt: skip

# The host has to know how many there are, or looks at the values before it goes on.
WAITING = {"flatnonzero", "nonzero", "argwhere", "unique", "bincount"}

UFUNCS = tuple(
    """
    absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or
    bitwise_xor cbrt ceil copysign cos cosh divide equal exp exp2 expm1 fabs floor floor_divide fmax
    fmin fmod frexp greater greater_equal heaviside hypot invert isfinite isinf isnan ldexp
    left_shift less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor
    matmul maximum minimum multiply negative nextafter not_equal positive power reciprocal remainder
    right_shift rint sign signbit sin sinh sqrt square subtract tan tanh trunc
    """.split()
)
ALIASES = {"abs": "absolute", "true_divide": "divide", "mod": "remainder"}
AT = {"add": "iulILqQefd", "maximum": "iIlLqQfd", "minimum": "iIlLqQfd"}  # of which dtypes, for .at

METHODS = {
    "all": ("axis", "out", "keepdims"),
    "any": ("axis", "out", "keepdims"),
    "argmax": ("axis", "out", "dtype", "keepdims"),
    "argmin": ("axis", "out", "dtype", "keepdims"),
    "argsort": ("axis", "kind"),
    "cumprod": ("axis", "dtype", "out"),
    "cumsum": ("axis", "dtype", "out"),
    "diagonal": ("offset", "axis1", "axis2"),
    "dot": ("b", "out"),
    "max": ("axis", "out", "keepdims"),
    "mean": ("axis", "dtype", "out", "keepdims"),
    "min": ("axis", "out", "keepdims"),
    "prod": ("axis", "dtype", "out", "keepdims"),
    "ravel": ("order",),
    "repeat": ("repeats", "axis"),
    "round": ("decimals", "out"),
    "squeeze": ("axis",),
    "std": ("axis", "dtype", "out", "ddof", "keepdims"),
    "sum": ("axis", "dtype", "out", "keepdims"),
    "swapaxes": ("axis1", "axis2"),
    "trace": ("offset", "axis1", "axis2", "dtype", "out"),
    "var": ("axis", "dtype", "out", "ddof", "keepdims"),
}

# What benchmarks use of the device, with parameters; None: it is an attribute.
DEVICE: dict[str, tuple[str, ...] | None] = {
    "copyto": ("dst", "src", "casting", "where"),
    "get_default_memory_pool": (),
    "cuda.Event": ("block", "disable_timing", "interprocess"),
    "cuda.Event.record": ("self", "stream"),
    "cuda.Event.synchronize": ("self",),
    "cuda.Stream": ("null", "non_blocking", "ptds", "priority"),
    "cuda.Stream.synchronize": ("self",),
    "cuda.Stream.begin_capture": ("self", "mode"),
    "cuda.Stream.end_capture": ("self",),
    "cuda.ExternalStream": ("ptr", "device_id"),
    "cuda.Graph.launch": ("self", "stream"),
    "cuda.Device": ("device",),
    "cuda.Device.synchronize": ("self",),
    "cuda.get_elapsed_time": ("start_event", "end_event"),
    "cuda.memory.OutOfMemoryError": None,
    "cuda.MemoryPool.free_all_blocks": ("self", "stream"),
    "cuda.nvrtc.getVersion": (),
    "cuda.runtime.getDeviceProperties": ("device",),
    "cuda.runtime.driverGetVersion": (),
    "cuda.runtime.runtimeGetVersion": (),
    "cuda.runtime.memGetInfo": (),
    "__version__": None,
}
