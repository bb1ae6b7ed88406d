"""Word2vec: skip-gram with negative sampling (Mikolov et al., 2013), trained sparsely.

Read the files in the order of the data: `corpus`, `vocabulary`, `pairs`, `train`, `show`.
"""
