"""A stream of chance depends on the seed and its name, and on nothing else."""

from __future__ import annotations

from lavant.simulation.kernel.randomness import Randomness


def draws(randomness: Randomness, name: str) -> list[float]:
    return [randomness.stream(name).random() for _ in range(5)]


def test_the_order_in_which_streams_are_asked_for_does_not_matter() -> None:
    one, other = Randomness(1), Randomness(1)
    first = {name: draws(one, name) for name in ("a", "b", "c")}
    second = {name: draws(other, name) for name in ("c", "unused", "a", "b")}
    assert all(first[name] == second[name] for name in first)


def test_a_stream_is_not_moved_by_draws_from_another() -> None:
    one, other = Randomness(1), Randomness(1)
    draws(one, "busy")
    assert draws(one, "quiet") == draws(other, "quiet")


def test_names_and_seeds_give_different_streams() -> None:
    pairs = [(seed, name) for seed in (0, 1, 11) for name in ("", "1", "a", "a/b", "b/a")]
    seen = {tuple(draws(Randomness(seed), name)) for seed, name in pairs}
    assert len(seen) == len(pairs)


def test_a_name_asked_for_again_is_the_same_stream_further_on() -> None:
    randomness = Randomness(1)
    assert draws(randomness, "a") != draws(randomness, "a")


def test_streams_are_what_they_were() -> None:
    """Seeds that people have noted must go on to mean the same."""
    assert Randomness(7).stream("link/a/b").randrange(10**9) == 129594978
