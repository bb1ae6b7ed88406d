"""Word2vec (Mikolov et al., 2013), trained sparsely: see docs/word2vec.md.

Read the files in the order of the data: `corpus`, `vocabulary`, `pairs`, `inputs`, `losses`,
`models`, `train`, `keyed_vectors`; then what is built around them.
"""
