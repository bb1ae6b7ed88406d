"""Soft decision trees (Frosst & Hinton, 2017), with leaves that learn by gradient or by counting.

Read the files in this order: `counts`, `leaves`, `model`, `routing`, `base`, `estimator`; then
`reading`, `plot`, `store`, and `data` and `command` for the program.
"""

from .estimator import SoftDecisionTreeClassifier, SoftDecisionTreeRegressor
from .plot import plot_path, plot_tree
from .reading import agreement, export_text, path_of
from .store import load, save

__all__ = [
    "SoftDecisionTreeClassifier",
    "SoftDecisionTreeRegressor",
    "agreement",
    "export_text",
    "load",
    "path_of",
    "plot_path",
    "plot_tree",
    "save",
]
