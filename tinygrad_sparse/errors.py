"""The exceptions and the one message format. Floor 0: imports nothing of the package.

Every error says which operation, what it expected, what came, and what to do about it, so that a
reader of the last line of a traceback can go on without opening our source.
"""

from numpy.linalg import LinAlgError as _NumPyLinAlgError


class TinygradSparseError(Exception):
    """Base of all errors raised on purpose by this package."""

    __str__ = Exception.__str__  # KeyError's own __str__ would show the text as a quoted repr


class ShapeError(TinygradSparseError, ValueError):
    """Shapes that do not fit together, or a cotangent that does not have its argument's shape."""


class DtypeError(TinygradSparseError, TypeError):
    """A dtype that the operation cannot take: an integer parameter, a complex operand."""


class DeviceError(TinygradSparseError, TypeError):
    """Arrays of two devices in one operation, or a device that is not there."""


class ArgumentError(TinygradSparseError, ValueError, TypeError):
    """A setting that there is not, or that cannot take the value it was given."""


class LinAlgError(TinygradSparseError, _NumPyLinAlgError):
    """A matrix that has no inverse or no factor. It is one of ``np.linalg.LinAlgError`` too."""


class RowIndexError(TinygradSparseError, IndexError):
    """Row ids that are out of range, or are not integers."""


class TapeError(TinygradSparseError, RuntimeError):
    """A tape used in a way that cannot give right gradients."""


class MissingGradientError(TapeError, KeyError):
    """A GradStore asked for the gradient of a parameter that got none."""


class SparsityError(TinygradSparseError, RuntimeError):
    """A row-sparse gradient met something that would turn it into a whole table."""


class CheckpointError(TinygradSparseError, ValueError):
    """Saved state that does not fit what it is loaded into."""


class StorageError(TinygradSparseError, OSError):
    """A file that cannot be made, opened or written, or a disk without room."""


class DensifyWarning(UserWarning):
    """A large row-sparse gradient was turned into a dense one (see ``Tape(densify=...)``)."""


class StorageWarning(UserWarning):
    """Reading a whole `parameter_file` fills its file with rows that nobody had touched."""


def explain(op: str, expected: str, got: str, hint: str | None = None) -> str:
    """The house format of an error text.

    >>> explain("take", "ids in [0, 10)", "12 at position 3")
    'take: expected ids in [0, 10), got 12 at position 3.'
    >>> explain("take", "integer ids", "float64", hint="cast them: ids.astype(int)")
    'take: expected integer ids, got float64. Hint: cast them: ids.astype(int).'
    """
    text = f"{op}: expected {expected}, got {got}."
    return text if hint is None else f"{text} Hint: {hint.rstrip('.')}."
