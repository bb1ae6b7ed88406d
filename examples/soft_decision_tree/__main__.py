"""`python -m examples.soft_decision_tree` starts here; what it does is in `command`."""

import sys
import warnings

try:
    from .command import PROGRAM, main
except ModuleNotFoundError as error:
    hint = "pip install 'tinygrad-sparse[examples]'"
    sys.exit(f"soft_decision_tree: error: {error}. Hint: {hint}")

if __name__ == "__main__":
    # A warning here is for whoever runs the command: what happened, not which line of code.
    warnings.formatwarning = lambda message, *_, **__: f"{PROGRAM}: warning: {message}\n"
    sys.exit(main())
