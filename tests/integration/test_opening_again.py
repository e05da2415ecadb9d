"""A real server opens what a real server accepted, and what versions with other limits did."""

from __future__ import annotations

from pathlib import Path

from tests.integration.data_directories import Writer
from tests.integration.serving import Served
from tests.integration.talking_http import Talker

from lavant.broker.protocol.subscriptions import Subscribe, Subscribed


def five(number: int) -> str:
    """A filter of five attributes that no other has."""
    return " and ".join(f"a{number}_{place} > 1" for place in range(5))


PUBLICATION = {f"a7_{place}": 2 for place in range(5)}


def test_a_batch_beyond_the_limit_of_attributes_is_refused_where_it_begins_to_be_and_the_rest_opens_again(
    tmp_path: Path,
) -> None:
    with Served(tmp_path) as server, Talker(server) as talker:
        asked = [{"name": f"s{number}", "filter": five(number)} for number in range(1000)]
        answered = talker.ask("POST", "/subscriptions", asked).json
        assert [place for place, each in enumerate(answered["subscriptions"]) if each is None] == [*range(819, 1000)]
        assert "compare 4095 attributes and types, with this one 4100" in answered["refused"][0]["reason"]
        talker.publish(PUBLICATION)
        assert server.stop() == 0
    with Served(tmp_path) as server, Talker(server) as talker:
        assert "819 queues with 1 message" in server.line
        talker.publish(PUBLICATION)
        assert len(talker.drain("s7")) == 2


def test_a_directory_with_more_attributes_than_are_accepted_today_opens_and_matches(tmp_path: Path) -> None:
    """As a server with more cores left it, or one that counted a batch not as a whole."""
    writer = Writer(tmp_path)
    for number in range(0, 1000, 2):
        filter = f"{five(number)} or {five(number + 1)}"
        assert isinstance(writer.ask(Subscribe(filter, f"s{number}")), Subscribed)
    writer.close()
    with Served(tmp_path) as server, Talker(server) as talker:
        talker.publish(PUBLICATION)
        assert len(talker.drain("s6")) == 1
        assert talker.ask("POST", "/subscriptions", {"filter": five(2000)}).status == 429
        assert talker.ask("POST", "/subscriptions", {"filter": five(3), "name": "known"}).status == 201
