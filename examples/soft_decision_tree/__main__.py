"""`python -m examples.soft_decision_tree` starts here; what it does is in `command`."""

from examples.program import start

if __name__ == "__main__":
    start("soft_decision_tree")
