"""Bags of looked-up rows: forward, backward and SGD, beside PyTorch's sparse `EmbeddingBag`."""

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse import ops

try:
    import torch
except ImportError:
    torch = None

V = 100_000
SIZES = ((64, 10, 64), (1024, 10, 16), (1024, 50, 64), (4096, 20, 128))  # bags, ids a bag, d


def main(threads: int = 1) -> None:
    """Print milliseconds of a step, and how many times longer PyTorch takes."""
    ts.set_num_threads(threads)
    heading(f"Embedding bags: a step on a table of {V:,}, float32, threads: {threads}")
    print(f"{'mode':6}{'bags':>7}{'ids':>6}{'d':>5}{'this package':>16}{'PyTorch':>22}")
    rng = np.random.default_rng(0)
    for mode in ("sum", "mean"):
        for bags, each, d in SIZES:
            table = rng.standard_normal((V, d), np.float32)
            ids = rng.integers(0, V, (bags, each))
            W = ts.parameter(table)
            opt = ts.optim.SGD([W], lr=1e-3)

            def ours(W=W, opt=opt, ids=ids, mode=mode) -> None:
                with ts.Tape() as tape:
                    out = ops.embedding_bag(W, ids, mode=mode)
                    loss = (out * out).sum()
                opt.step(tape.backward(loss))

            contestants = {"this package": ours}
            if torch:
                torch.set_num_threads(threads)
                layer = torch.nn.EmbeddingBag.from_pretrained(
                    torch.from_numpy(table.copy()), freeze=False, sparse=True, mode=mode
                )
                sgd = torch.optim.SGD(layer.parameters(), lr=1e-3)

                def theirs(layer=layer, sgd=sgd, ids=ids) -> None:
                    sgd.zero_grad()
                    out = layer(torch.from_numpy(ids))
                    (out * out).sum().backward()
                    sgd.step()

                contestants["PyTorch"] = theirs
            times = medians(contestants, 40)
            cells = [f"{times['this package'] * 1e3:13.3f} ms"]
            if torch:
                ratio = times["PyTorch"] / times["this package"]
                cells.append(f"{times['PyTorch'] * 1e3:12.3f} ms {ratio:5.1f}x")
            print(f"{mode:6}{bags:7,}{each:6}{d:5}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
