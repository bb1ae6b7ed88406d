"""`python -m examples.word2vec` starts here; what it does is in `command`."""

from examples.program import start

if __name__ == "__main__":
    start("word2vec")
