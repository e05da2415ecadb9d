"""Actions on the tags of a queue."""

from __future__ import annotations

from lavant.broker.protocol.queues import DescribeQueue, TagQueue
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import bad_value, missing
from lavant.service.aws.sqs.names import queue_of_url
from lavant.service.aws.text import is_text


async def tag_queue(context: SqsContext, call: SqsCall, request: requests.TagQueueRequest) -> None:
    if not request.tags:
        raise missing("Tags")
    await _change(context, queue_of_url(request.queue_url), request.tags, without=())


async def untag_queue(context: SqsContext, call: SqsCall, request: requests.UntagQueue) -> None:
    if not request.tag_keys:
        raise missing("TagKeys")
    await _change(context, queue_of_url(request.queue_url), {}, without=tuple(request.tag_keys))


async def list_queue_tags(
    context: SqsContext, call: SqsCall, request: requests.QueueOnly
) -> results.ListQueueTagsResult:
    described = await context.ask(DescribeQueue(queue_of_url(request.queue_url)))
    return results.ListQueueTagsResult(described.tags)


def check_tags(tags: dict[str, str]) -> None:
    if len(tags) > limits.TAGS_MAX:
        raise bad_value("Tags", f"with {len(tags)} tags", f"A queue can have up to {limits.TAGS_MAX}.")
    for key, value in tags.items():
        if (
            not 1 <= len(key) <= limits.TAG_KEY_CHARACTERS_MAX
            or key.lower().startswith("aws:")
            or not is_text(key.encode())
        ):
            raise bad_value(
                "Tags",
                key,
                f"A key has 1 to {limits.TAG_KEY_CHARACTERS_MAX} characters and does not start with aws:.",
            )
        if len(value) > limits.TAG_VALUE_CHARACTERS_MAX or not is_text(value.encode()):
            raise bad_value("Tags", value, f"A value has up to {limits.TAG_VALUE_CHARACTERS_MAX} characters.")


async def _change(context: SqsContext, queue: str, tags: dict[str, str], *, without: tuple[str, ...]) -> None:
    async with context.changing:
        described = await context.ask(DescribeQueue(queue))
        after = {key: value for key, value in (described.tags | tags).items() if key not in without}
        check_tags(after)
        await context.ask(TagQueue(queue, after))
