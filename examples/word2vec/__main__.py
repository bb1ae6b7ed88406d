"""`python -m examples.word2vec` starts here; what it does is in `command`."""

import sys
import warnings

try:
    from .command import main
    from .options import PROGRAM
except ModuleNotFoundError as error:
    sys.exit(f"word2vec: error: {error}. Hint: pip install 'tinygrad-sparse[examples]'")

if __name__ == "__main__":
    # A warning here is for whoever runs the command: what happened, not which line of code.
    warnings.formatwarning = lambda message, *_, **__: f"{PROGRAM}: warning: {message}\n"
    sys.exit(main())
