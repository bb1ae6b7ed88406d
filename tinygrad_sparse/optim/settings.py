"""The settings of a group: their names, their ranges, and what they are at a step. Floor 5."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from operator import is_
from typing import Any, NamedTuple

from tinygrad_sparse.errors import ArgumentError, DtypeError, SparsityError, explain

from .rule import Rule, plain

COMMON = {"sparse": "exact", "maximize": False, "master": False, "count": "all", "average": 0.0}
KINDS = {"sparse": ("exact", "lazy"), "count": ("all", "row")}  # settings that are words


LARGEST = sys.float_info.max


class Range(NamedTuple):
    """The values that a setting can take; `{}` in `text` stands for its name."""

    text: str
    holds: Callable[[float], bool]
    hint: str | None = None


FINITE = Range("a finite {}", lambda x: -LARGEST <= x <= LARGEST)
ABOVE_0 = Range("{} > 0", lambda x: 0.0 < x <= LARGEST)
AT_LEAST_0 = Range("{} >= 0", lambda x: 0.0 <= x <= LARGEST)
PART = Range("0 <= {} < 1", lambda x: 0.0 <= x < 1.0)

# By name, in whatever formula the name occurs; of the others nothing is known but that they are
# numbers.
RANGES: dict[str, Range] = {
    "lr": AT_LEAST_0._replace(hint="maximize=True goes uphill"),
    **dict.fromkeys(["momentum", "beta1", "beta2", "alpha", "rho", "average"], PART),
    **dict.fromkeys(["eps", "weight_decay", "lr_decay", "momentum_decay"], AT_LEAST_0),
    **dict.fromkeys(["initial", "beta", "l1", "l2"], AT_LEAST_0),
}


class Settings:
    """The settings of one group as a step asks for them: checked, and plain numbers.

    The group is a dict that its user writes to, and a schedule may answer anything, so what is new
    since the last step is looked at when it is about to be used.
    """

    def __init__(self, name: str, group: dict[str, Any], ranges: Mapping[str, Range]) -> None:
        self.name = name
        self.group = group
        self.ranges = ranges
        self._names = set(group)
        self._seen: dict[str, Any] = {}
        self._plain: dict[str, Any] = {}
        self._same: list[Any] = []  # the group's values where all were seen: then it is as it was

    def at(self, step: int) -> dict[str, Any]:
        """All of them at this step, schedules asked; whether there is an average, decided.

        The same dict as before where nothing changed.
        """
        if self.group.keys() != self._names:
            check_names(self.name, self.group, self._names)
            missing = sorted(self._names - set(self.group))
            raise ArgumentError(explain(self.name, f"the settings {missing}", "a group without"))
        values = list(self.group.values())
        if len(values) == len(self._same) and all(map(is_, values, self._same)):
            return self._plain
        seen = self._seen
        new = {k: v for k, v in self.group.items() if seen.get(k, self) is not v and k != "params"}
        if new:
            asked = {k: v(step) if callable(v) else v for k, v in new.items()}
            now = {**self._plain, **{k: self._checked(k, v) for k, v in asked.items()}}
            check_together(self.name, {**now, **self.schedules()})
            self._plain = {**now, "averaged": bool(self.group["average"])}
            # what may answer otherwise next time, or be written to, is looked at again
            plain = (float, int, bool, str)
            self._seen = {k: v for k, v in self.group.items() if type(v) in plain}
        self._same = values if len(self._seen) == len(values) - 1 else []
        return self._plain

    def schedules(self) -> dict[str, Any]:
        """The settings that are functions of the step."""
        return {k: v for k, v in self.group.items() if callable(v) and k != "params"}

    def _checked(self, key: str, value: Any) -> Any:
        return checked(self.name, key, value, self.ranges)

    def check(self, group: Mapping[str, Any]) -> None:
        """Raises unless `group` may be this one's settings; schedules are not asked yet."""
        for key, value in group.items():
            if key != "params" and not callable(value):
                self._checked(key, value)
        check_together(self.name, group)


def checked(name: str, key: str, value: Any, ranges: Mapping[str, Range] = RANGES) -> Any:
    """`value` as a plain number, or the word that it is. Raises unless `key` can take it."""
    if key in KINDS:
        if not isinstance(value, str) or value not in KINDS[key]:
            wanted = " or ".join(repr(kind) for kind in KINDS[key])
            raise SparsityError(explain(name, f"{key}={wanted}", repr(value)))
        return value
    number: Any = plain(value)
    if type(number) not in (int, float):
        raise DtypeError(explain(name, f"a number for {key}", repr(value)))
    allowed = ranges.get(key, FINITE)
    if not allowed.holds(number):
        wanted = allowed.text.format(key)
        raise ArgumentError(explain(name, wanted, repr(plain(value)), allowed.hint))
    return number


def check_together(name: str, settings: Mapping[str, Any]) -> None:
    """Raises for settings that do not go with each other."""
    if settings["count"] == "row" and settings["sparse"] == "exact":
        hint = "exact means what a dense run does, which counts all steps; sparse='lazy' may not"
        raise SparsityError(explain(name, "count='all' with sparse='exact'", "'row'", hint))
    if settings.get("nesterov") and not settings.get("momentum", 1.0):
        raise ArgumentError(explain(name, "a momentum with nesterov=True", "momentum=0"))


def check_names(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises for a setting that there is not, naming the nearest and all there are."""
    known = sorted(set(known) - {"params"})
    for key in given:
        if key != "params" and key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"write {near[0]}" if near else None
            raise ArgumentError(explain(name, f"settings among {known}", repr(key), hint))


def check_count(name: str, rule: Rule, count: str) -> None:
    """Raises for counts by row of a rule whose numbers are those of all steps."""
    if count == "row" and rule.prepare is not None:
        hint = f"{rule.formula.__name__} keeps numbers of the whole parameter's steps"
        raise SparsityError(explain(name, "count='all'", "'row'", hint))


def check_given(name: str, given: Mapping[str, Any], rule: Rule) -> None:
    """Raises unless all the settings that a rule asks for are there, and it can take them."""
    check_count(name, rule, given["count"])
    asked = set(rule.start.values())
    # prepare may make others of those that it asks for
    asked |= set(rule.settings) if rule.prepare is None else _keywords(rule.prepare, required=True)
    if missing := sorted(asked - set(given) - set(rule.defaults) - {"step"}):
        raise ArgumentError(explain(name, f"the settings {missing}", f"{sorted(given)}"))


def translated(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that formulas use: `betas` is a pair to users, two to formulas."""
    entry = dict(entry)
    if "betas" not in entry:
        return entry
    betas = entry.pop("betas")
    given = [f"{key}={entry[key]!r}" for key in ("beta1", "beta2") if key in entry]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2 or given:
        got = ", ".join(given) or f"betas={betas!r}"
        hint = f"{name}(..., betas=(0.9, 0.999)) sets both" if given else None
        raise ArgumentError(explain(name, "betas=(beta1, beta2)", got, hint))
    entry["beta1"], entry["beta2"] = betas
    return entry


def names_known(own: list[Any], rule: Rule, alone: bool) -> set[str] | None:
    """The settings that an optimizer may be given; None if only a function of its own knows them.

    Those of the rule, and those that the constructors `own` of its subclass name; `alone`: no
    function picks another rule.
    """
    known = set(COMMON) | set(rule.settings) | set(rule.start.values())
    if not own and not alone:
        return None
    if rule.prepare is not None:
        named = _keywords(rule.prepare)
        if not named and not own:
            return None
        known |= named
    for constructor in own:
        parameters = inspect.signature(constructor).parameters.values()
        known |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} - {"self", "params"}
    if "betas" in known:
        known |= {"beta1", "beta2"}
    return known - {"betas", "step"}


def _keywords(f: Callable[..., Any], required: bool = False) -> set[str]:
    """The keyword-only arguments of f; `required`: those without a default."""
    keywords = [p for p in inspect.signature(f).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name for p in keywords if not required or p.default is p.empty}
