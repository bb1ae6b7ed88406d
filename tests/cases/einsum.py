"""Einstein sums: one row a kind of subscripts and shape."""

from functools import partial

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal


def einsum(subscripts, *args, name="", **options):
    name = f"einsum: {subscripts}{', ' * bool(name)}{name}"
    return Case(partial(ops.einsum, subscripts), args, name=name, **options)


CASES = [
    einsum("ij,jk->ik", normal(5, 3), normal(3, 4), commutes=(0,)),
    einsum("ij,jk->ki", normal(5, 3), normal(3, 4), commutes=(), rows="dense"),
    einsum("bij,bjk", normal(5, 2, 3), normal(5, 3, 2), rows="dense"),
    einsum("b...j,...jk->b...k", normal(5, 2, 3), normal(3, 4), commutes=(0,)),
    einsum("...ij,...jk", normal(5, 2, 3), normal(5, 3, 2), commutes=(0, 1)),
    einsum("bd,bsd->bs", normal(5, 3), normal(5, 2, 3), commutes=(0, 1)),
    einsum("bnij,bnjc->bnic", normal(1, 1, 5, 3), normal(1, 1, 3, 2)),
    einsum("bnij,bnjc->bnic", normal(5, 2, 2, 3), normal(1, 2, 3, 2), commutes=(0,)),
    einsum("bij,bjc->bic", normal(5, 2, 3), normal(5, 1, 4), commutes=(0, 1)),
    einsum("i,j->ij", normal(5), normal(3), commutes=(0,)),
    einsum("ik,jk->ij", normal(5, 3), normal(4, 3), commutes=(0,)),
    einsum("ik,jk->ij", normal(5, 3), normal(1, 3), name="one column", commutes=(0,)),
    einsum("jik,jk->ij", normal(4, 5, 3), normal(4, 3), rows="dense"),
    einsum("bik,bjk->bij", normal(5, 2, 3), normal(5, 4, 3), commutes=(0, 1)),
    einsum("i,i->", normal(5), normal(5)),
    einsum("ij->ji", normal(5, 3), rows="dense"),
    einsum("ij->i", normal(5, 3), commutes=(0,)),
    einsum("ijk->", normal(2, 3, 4)),
    einsum("ij,k->i", normal(5, 2), normal(3), commutes=(0,)),
    einsum("i,->i", normal(5), normal(), commutes=(0,)),
    einsum("ii", normal(4, 4)),
    einsum("ii->i", normal(4, 4)),
    einsum("iij->i", normal(4, 4, 3)),
    einsum("bii->bi", normal(5, 3, 3), commutes=(0,)),
    einsum("iji->i", normal(3, 2, 3)),
    einsum("iii,ij->j", normal(3, 3, 3), normal(3, 2), rows="dense"),
    einsum("bd,de,be->b", normal(5, 3), normal(3, 2), normal(5, 2), commutes=(0, 2)),
    einsum("ij,jk,kl,lm->im", normal(5, 2), normal(2, 3), normal(3, 2), normal(2, 2),
           commutes=(0,)),
    einsum("ij,jk->ik", normal(0, 3), normal(3, 2), name="empty"),
    einsum("ij,jk->ik", normal(5, 0), normal(0, 2), name="empty sum"),
    # large enough for a matrix product
    einsum("ij,jk->ik", normal(16, 16), normal(16, 17), name="large", commutes=(0,)),
    einsum("bijq,kjb->bki", normal(6, 8, 4, 3), normal(8, 4, 6), name="large", rows="dense"),
    einsum("bij,bjc->bic", normal(16, 8, 6), normal(1, 6, 8), name="large", commutes=(0,)),
    einsum("bij,bjc->bic", normal(16, 8, 6), normal(16, 1, 8), name="large", commutes=(0, 1)),
]  # fmt: skip
