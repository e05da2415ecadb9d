"""The source of a simulator: one function per transition, closed over the places, and the loop that runs them.

Enabling is incremental. `c` is a set of bits, one for each transition that may be enabled; a transition that turns out
not to be loses its bit until a token arrives at one of its places. Tokens whose time has not come wait in one heap;
the clock moves to the first of them when no transition is enabled.

| place | stored as |
| --- | --- |
| always exactly one token, untimed (a list as a queue, a counter) | the token itself |
| nothing takes or reads from it | the number of its tokens |
| any other | a list of the tokens whose time has come; the rest in the heap |
"""

from __future__ import annotations

import re

from lavant.models.petri.compiled.bindings import ArcPlan, BindingPlan, Source, enough, plan_bindings
from lavant.models.petri.hierarchy import FlatNet, FlatTransition
from lavant.models.petri.language.colours import ColourSet, Int
from lavant.models.petri.language.inscriptions import Choice, Multiset, Term
from lavant.models.petri.language.python_source import function_source, python_of
from lavant.models.petri.monitors import Breakpoint, DataCollection, Monitor, Size, observed

SINGLE, COUNTED, LISTED = "single", "counted", "listed"


def storage_of(flat: FlatNet) -> list[str]:
    """How each place is stored."""
    kinds = []
    for at, place in enumerate(flat.places):
        used = any(at == where for t in flat.transitions for where, _ in (*t.takes, *t.reads))
        if not used:
            kinds.append(COUNTED)
        elif not place.colour.timed and len(place.initial) == 1 and all(_keeps_one(t, at) for t in flat.transitions):
            kinds.append(SINGLE)
        else:
            kinds.append(LISTED)
    return kinds


def _keeps_one(transition: FlatTransition, at: int) -> bool:
    """Whether the transition, if the place has one token, looks at that one and leaves one."""
    taken = [pattern for place, pattern in transition.takes if place == at]
    read = [pattern for place, pattern in transition.reads if place == at]
    put = [term for place, multiset in transition.puts if place == at for term in multiset]
    wanted = sum(pattern.count for pattern in (*taken, *read))
    plain = all(isinstance(term, Term) and term.count is None and not term.is_each for term in put)
    return wanted <= 1 and len(taken) == len(put) and plain


def simulator_source(flat: FlatNet, monitors: tuple[Monitor, ...]) -> str:
    return _Simulator(flat, monitors).write()


class _Simulator:
    def __init__(self, flat: FlatNet, monitors: tuple[Monitor, ...]) -> None:
        self.flat, self.monitors = flat, monitors
        self.kinds = storage_of(flat)
        self.out = Source()
        self.sizes = [(at, m) for at, m in enumerate(monitors) if isinstance(m, Size)]
        self.touching = [0] * len(flat.places)
        for bit, transition in enumerate(flat.transitions):
            for place, _ in (*transition.takes, *transition.reads):
                self.touching[place] |= 1 << bit

    def write(self) -> str:
        out = self.out
        for function in self.flat.scope.functions.values():
            for line in function_source(function, self.flat.scope).splitlines():
                out.add(line)
        out.open("def make(_uniform, _exponential, _check, observe, choose):")
        self._state()
        for bit, transition in enumerate(self.flat.transitions):
            self._transition(bit, transition)
        self._run()
        self._views()
        out.add("return run, marking, sizes, counts, reset_sizes")
        out.close()
        return out.text()

    def _state(self) -> None:
        out = self.out
        for at, (place, kind) in enumerate(zip(self.flat.places, self.kinds, strict=True)):
            ready = [token.value for token in place.initial if token.time is None]
            held = {SINGLE: ready[0] if ready else None, COUNTED: len(place.initial), LISTED: ready}
            out.add(f"p{at} = {held[kind]!r}")
        listed = ", ".join(f"p{at}" if kind == LISTED else "None" for at, kind in enumerate(self.kinds))
        out.add(f"lists = ({listed},)")
        out.add(f"masks = {tuple(self.touching)!r}")
        later = [
            (token.time, at, token.value)
            for at, (place, kind) in enumerate(zip(self.flat.places, self.kinds, strict=True))
            for token in place.initial
            if token.time is not None and kind == LISTED
        ]
        heap = [(time, serial, at, value) for serial, (time, at, value) in enumerate(sorted(later), start=1)]
        out.add(f"now, c, serial, stopped, heap = 0.0, -1, {len(heap)}, False, {heap!r}")
        for bit in range(len(self.flat.transitions)):
            out.add(f"n{bit} = 0")
        for at, monitor in enumerate(self.monitors):
            if isinstance(monitor, DataCollection):
                out.add(f"o{at} = observe[{at}]")
        for at, size in self.sizes:
            tokens = len(self.flat.places[self.flat.place(size.place)].initial)
            out.add(f"s{at} = {tokens if size.of is None else self._measure(size)}")
            out.add(f"a{at}, l{at}, b{at} = 0.0, 0.0, s{at}")

    def _measure(self, size: Size) -> str:
        at = self.flat.place(size.place)
        if size.of is None:
            return {SINGLE: "1", COUNTED: f"p{at}"}.get(self.kinds[at], f"len(p{at})")
        source = python_of(observed(size, self.flat), self.flat.scope)
        if self.kinds[at] == SINGLE:
            return re.sub(r"\bv_token\b", f"p{at}", source)
        return f"sum([{source} for v_token in p{at}])"

    def _transition(self, bit: int, flat: FlatTransition) -> None:
        out, plan = self.out, plan_bindings(flat, self.flat.scope)
        out.open(f"def t{bit}():")
        names = {"c", "serial", "stopped", f"n{bit}"}
        names |= {f"p{at}" for at in self._places(flat) if self.kinds[at] != LISTED}
        for at, size in self.sizes:
            if self.flat.place(size.place) in self._places(flat):
                names |= {f"a{at}", f"l{at}", f"s{at}", f"b{at}"}
        out.add(f"nonlocal {', '.join(sorted(names))}")
        needs = sorted({arc.place for arc in plan.arcs if self.kinds[arc.place] == LISTED})
        if needs:
            out.open(f"if not ({' and '.join(f'p{at}' for at in needs)}):")
            out.add("return False")
            out.close()
        depth = out.depth
        for test in plan.tests:
            out.open(f"if {test}:")
        self._free(plan.first)
        for arc in plan.arcs:
            self._match(arc, plan)
        self._free(plan.free)
        self._occur(bit, flat, plan)
        is_certain = out.depth == depth
        out.depth = depth
        if not is_certain:
            out.add("return False")
        out.close()

    def _free(self, variables: list[tuple[str, list[str]]]) -> None:
        for name, tests in variables:
            values = self.flat.scope.variables[name].values()
            assert values is not None
            self._rotate(f"f_{name}", str(len(values)))
            self.out.add(f"v_{name} = {tuple(values)!r}[f_{name}]")
            for test in tests:
                self.out.open(f"if {test}:")

    def _places(self, flat: FlatTransition) -> set[int]:
        return {place for place, _ in (*flat.takes, *flat.reads)} | {place for place, _ in flat.puts}

    def _rotate(self, index: str, length: str) -> None:
        """A loop over indexes from a random one on."""
        self.out.open(f"for {index} in _order({length}, _uniform):")

    def _match(self, arc: ArcPlan, plan: BindingPlan) -> None:
        out, name = self.out, f"p{arc.place}"
        if self.kinds[arc.place] == SINGLE:
            self._bind(arc, name)
        elif arc.is_searched:
            self._rotate(f"i{arc.number}", f"len({name})")
            out.add(f"x{arc.number} = {name}[i{arc.number}]")
            tests = enough(arc, plan, name)
            if tests:
                out.open(f"if {' and '.join(tests)}:")
            self._bind(arc, f"x{arc.number}")

    def _bind(self, arc: ArcPlan, token: str) -> None:
        prefix = f"x{arc.number}"
        lengths = [test for test in arc.tests if test.startswith("len(")]
        for test in lengths:
            self.out.open(f"if {test.replace(prefix, token, 1)}:")
        for variable, source in arc.binds:
            self.out.add(f"v_{variable} = {source.replace(prefix, token, 1)}")
        for test in arc.tests:
            if test not in lengths:
                self.out.open(f"if {test.replace(prefix, token, 1) if test.startswith(prefix) else test}:")

    def _occur(self, bit: int, flat: FlatTransition, plan: BindingPlan) -> None:
        out, t = self.out, flat.transition
        self._areas(flat)
        self._take(plan)
        for name, expression in t.action:
            out.add(f"v_{name} = {python_of(expression, self.flat.scope)}")
        for at, monitor in enumerate(self.monitors):
            if isinstance(monitor, DataCollection | Breakpoint) and self.flat.transition(monitor.transition) == bit:
                self._monitor(at, monitor)
        delay = None
        if t.delay is not None:
            out.add(f"d = {python_of(t.delay, self.flat.scope)}")
            delay = "d"
        mask = 0
        for place, multiset in flat.puts:
            mask |= self._put(place, multiset, delay, is_certain=True)
        self._look_at(mask)
        self._measures(flat)
        out.add(f"n{bit} += 1")
        emptied = [a.place for a in plan.arcs if not a.is_read and self.kinds[a.place] == LISTED]
        if emptied:
            out.open(f"if not ({' and '.join(f'p{at}' for at in sorted(set(emptied)))}):")
            out.add(f"c &= {~(1 << bit)}")
            out.close()
        if any(isinstance(m, Breakpoint) and self.flat.transition(m.transition) == bit for m in self.monitors):
            out.add("return True if not stopped else None")
        else:
            out.add("return True")

    def _take(self, plan: BindingPlan) -> None:
        out = self.out
        indexed: dict[int, list[ArcPlan]] = {}
        for arc in plan.arcs:
            if self.kinds[arc.place] == SINGLE:
                continue
            if arc.is_searched and not arc.is_read:
                indexed.setdefault(arc.place, []).append(arc)
            elif not arc.is_searched:
                self._pick(arc)
        for place, arcs in indexed.items():
            name = f"p{place}"
            if len(arcs) == 1 and arcs[0].pattern.count == 1:
                out.add(f"{name}[i{arcs[0].number}] = {name}[-1]")
                out.add(f"{name}.pop()")
                continue
            for arc in arcs:
                out.open(f"for _ in range({arc.pattern.count}):")
                out.add(f"{name}.remove(x{arc.number})")
                out.close()

    def _pick(self, arc: ArcPlan) -> None:
        """Any token will do: a random one, unless all are the same."""
        out, name, token = self.out, f"p{arc.place}", f"x{arc.number}"
        if len(self.flat.places[arc.place].colour.values() or ()) == 1:
            if not arc.is_read:
                out.add(f"{name}.pop()")
            for variable, _ in arc.binds:
                values = self.flat.places[arc.place].colour.values() or []
                out.add(f"v_{variable} = {values[0]!r}")
            return
        out.add(f"k = len({name})")
        out.open("if k == 1:")
        out.add(f"{token} = {name}[0]" if arc.is_read else f"{token} = {name}.pop()")
        out.close()
        out.open("else:")
        out.add("k = int(_uniform() * k)")
        out.add(f"{token} = {name}[k]")
        if not arc.is_read:
            out.add(f"{name}[k] = {name}[-1]")
            out.add(f"{name}.pop()")
        out.close()
        for variable, source in arc.binds:
            out.add(f"v_{variable} = {source}")

    def _put(self, place: int, multiset: Multiset, delay: str | None, *, is_certain: bool) -> int:
        """Write what puts tokens. Return the bits of transitions that certainly must be looked at."""
        out, mask = self.out, 0
        for each in multiset:
            if isinstance(each, Choice):
                out.open(f"if {python_of(each.test, self.flat.scope)}:")
                self._branch(place, each.then, delay)
                out.close()
                if each.otherwise:
                    out.open("else:")
                    self._branch(place, each.otherwise, delay)
                    out.close()
            else:
                mask |= self._term(place, each, delay)
        if not is_certain:
            self._look_at(mask)
        return mask if is_certain else 0

    def _look_at(self, mask: int) -> None:
        """Write what marks these transitions as perhaps enabled, unless one of their places is empty."""
        by_places: dict[str, int] = {}
        for bit, transition in enumerate(self.flat.transitions):
            if mask >> bit & 1:
                places = sorted({at for at, _ in (*transition.takes, *transition.reads) if self.kinds[at] == LISTED})
                condition = " and ".join(f"p{at}" for at in places)
                by_places[condition] = by_places.get(condition, 0) | 1 << bit
        for condition, bits in by_places.items():
            self.out.add(f"if {condition}: c |= {bits}" if condition else f"c |= {bits}")

    def _branch(self, place: int, multiset: Multiset, delay: str | None) -> None:
        self._put(place, multiset, delay, is_certain=False)
        if not multiset:
            self.out.add("pass")

    def _term(self, place: int, term: Term, delay: str | None) -> int:
        out, scope = self.out, self.flat.scope
        token, loops = python_of(term.token, scope), 0
        if term.count is not None:
            out.open(f"for _ in range(_count({python_of(term.count, scope)})):")
            loops = 1
        elif term.is_each:
            out.open(f"for y in {token}:")
            token, loops = "y", 1
        if _has_range(self.flat.places[place].colour):
            token = f"_check({place}, {token})"
        certain = self._deposit(place, term, token, delay)
        out.close(loops)
        return certain

    def _deposit(self, place: int, term: Term, token: str, delay: str | None) -> int:
        out, name, mask = self.out, f"p{place}", self.touching[place]
        for at, size in self.sizes:
            if self.flat.place(size.place) == place and size.of is None and self.kinds[place] != SINGLE:
                out.add(f"s{at} += 1")
        if self.kinds[place] == SINGLE:
            out.add(f"{name} = {token}")
            return mask
        if self.kinds[place] == COUNTED:
            if _has_range(self.flat.places[place].colour):
                out.add(token)
            out.add(f"{name} += 1")
            return 0
        parts = [delay] if delay is not None else []
        if term.delay is not None:
            parts.append(python_of(term.delay, self.flat.scope))
        if not parts or not self.flat.places[place].colour.timed:
            out.add(f"{name}.append({token})")
            return mask
        out.add(f"w = {' + '.join(parts)}")
        out.open("if w > 0:")
        out.add("serial += 1")
        out.add(f"_push(heap, (now + w, serial, {place}, {token}))")
        out.close()
        out.open("elif w == 0:")
        out.add(f"{name}.append({token})")
        out.add(f"c |= {mask}")
        out.close()
        out.open("else:")
        out.add("raise ValueError(f'the delay is {w}')")
        out.close()
        return 0

    def _areas(self, flat: FlatTransition) -> None:
        """Sizes change: add the time that the old ones lasted."""
        for at, size in self.sizes:
            place = self.flat.place(size.place)
            if place in self._places(flat):
                self.out.add(f"a{at} += s{at} * (now - l{at})")
                self.out.add(f"l{at} = now")
                taken = sum(pattern.count for where, pattern in flat.takes if where == place)
                if size.of is None and taken and self.kinds[place] != SINGLE:
                    self.out.add(f"s{at} -= {taken}")

    def _measures(self, flat: FlatTransition) -> None:
        for at, size in self.sizes:
            if self.flat.place(size.place) in self._places(flat):
                if size.of is not None:
                    self.out.add(f"s{at} = {self._measure(size)}")
                self.out.open(f"if s{at} > b{at}:")
                self.out.add(f"b{at} = s{at}")
                self.out.close()

    def _monitor(self, at: int, monitor: DataCollection | Breakpoint) -> None:
        out, scope = self.out, self.flat.scope
        loops = 0
        if monitor.when is not None:
            out.open(f"if {python_of(observed(monitor, self.flat, condition=True), scope)}:")
            loops = 1
        if isinstance(monitor, DataCollection):
            out.add(f"o{at}({python_of(observed(monitor, self.flat), scope)})")
        else:
            out.add("stopped = True")
        out.close(loops)

    def _run(self) -> None:
        bits = len(self.flat.transitions)
        self.out.add(f"functions = ({''.join(f't{bit}, ' for bit in range(bits))})")
        self.out.add(f"c = {(1 << bits) - 1}")
        for line in _LOOP.splitlines():
            self.out.add(line)

    def _views(self) -> None:
        out = self.out
        kinds = ", ".join(
            {SINGLE: f"[p{at}]", COUNTED: f"p{at}"}.get(kind, f"list(p{at})") for at, kind in enumerate(self.kinds)
        )
        out.open("def marking():")
        out.add(f"return now, [{kinds}], list(heap)")
        out.close()
        out.open("def sizes():")
        found = ", ".join(f"{at}: (a{at} + s{at} * (now - l{at}), b{at})" for at, _ in self.sizes)
        out.add(f"return {{{found}}}")
        out.close()
        out.open("def reset_sizes():")
        for at, _ in self.sizes:
            out.add(f"nonlocal a{at}, l{at}, b{at}")
            out.add(f"a{at}, l{at}, b{at} = 0.0, now, s{at}")
        out.add("return now")
        out.close()
        out.open("def counts():")
        out.add(f"return [{', '.join(f'n{bit}' for bit in range(len(self.flat.transitions)))}]")
        out.close()


_LOOP = '''
table = {}
def run(steps, until):
    """Runs; returns the number of steps, why it ended, and the transition that was tried last."""
    nonlocal now, c, stopped
    done, t = 0, None
    stopped = False
    known = table.get
    try:
        while done < steps:
            if c:
                t = known(c)
                if t is None:
                    t = choose(c, table)
                if t.__class__ is tuple:
                    t = t[int(_uniform() * len(t))]
                hit = functions[t]()
                if hit:
                    done += 1
                elif hit is None:
                    return done + 1, "breakpoint", t
                else:
                    c &= ~(1 << t)
            elif heap:
                if heap[0][0] > until:
                    now = until
                    return done, "time", t
                now, _, place, token = _pop(heap)
                lists[place].append(token)
                c |= masks[place]
                while heap and heap[0][0] <= now:
                    _, _, place, token = _pop(heap)
                    lists[place].append(token)
                    c |= masks[place]
            else:
                return done, "dead", t
        return done, "steps", t
    except (ArithmeticError, LookupError, ValueError, StopIteration) as error:
        return done, error, t
'''


def _has_range(colour: ColourSet) -> bool:
    if isinstance(colour, Int):
        return colour.between is not None
    return any(map(_has_range, colour.parts()))
