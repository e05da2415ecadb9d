"""Actions on queues: create, find, list, configure, tag, purge and delete them."""

from __future__ import annotations

import re

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Described,
    DescribeQueue,
    ListQueues,
    ListSources,
    PurgeQueue,
    Refused,
    TagQueue,
)
from lavant.core.errors import AccessDenied
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import SqsError, bad_value, missing, refusal
from lavant.service.aws.sqs.names import FIFO_SUFFIX, is_fifo, queue_of_url
from lavant.service.aws.sqs.queue_attributes import (
    NAMES,
    REDRIVE_ALLOW_POLICY,
    REDRIVE_POLICY,
    all_attributes,
    changed_config,
    is_allowed,
    new_config,
    settable_attributes,
    unknown_attribute,
)
from lavant.service.aws.text import is_text


async def unsupported(context: SqsContext, call: SqsCall, request: requests.Permission) -> None:
    raise SqsError(
        "UnsupportedOperation",
        "This server has no permissions for single queues: what an access key may do is said in the server's "
        "credentials file, by scopes and a namespace.",
    )


_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAME_CHARACTERS_MAX = 80


async def create_queue(
    context: SqsContext, call: SqsCall, request: requests.CreateQueueRequest
) -> results.QueueUrlResult:
    queue = request.queue_name
    attributes = {} if request.attributes is None else request.attributes
    _check_name(queue, is_fifo=attributes.get("FifoQueue") == "true")
    config = new_config(attributes, is_fifo=is_fifo(queue))
    tags = {} if request.tags is None else request.tags
    check_tags(tags)
    if REDRIVE_POLICY in attributes:
        await _check_dead_letters(context, queue, config)
    answer = await context.execute(CreateQueue(queue, config, tags))
    if isinstance(answer, Refused):
        if answer.code == AccessDenied.__name__:
            raise refusal(answer)
        await _check_same(context, queue, attributes, config, refused=answer)
    return results.QueueUrlResult(call.queue_url(queue))


async def get_queue_url(context: SqsContext, call: SqsCall, request: requests.GetQueueUrl) -> results.QueueUrlResult:
    if not isinstance(await context.execute(DescribeQueue(request.queue_name)), Described):
        raise SqsError("QueueDoesNotExist", "The specified queue does not exist.")
    return results.QueueUrlResult(call.queue_url(request.queue_name))


async def list_queues(
    context: SqsContext, call: SqsCall, request: requests.ListQueuesRequest
) -> results.ListQueuesResult:
    count = _page_size(request.max_results)
    prefix = "" if request.queue_name_prefix is None else request.queue_name_prefix
    after = "" if request.next_token is None else context.handles.page(request.next_token)
    # One more than the page tells whether there are more. The largest page cannot look ahead: the next may be empty.
    asked = min(count + 1, limits.LIST_COUNT_MAX)
    names = (await context.ask(ListQueues(prefix, after, asked, is_outside=True))).queues
    is_cut = len(names) > count or len(names) == limits.LIST_COUNT_MAX
    page = names[:count]
    return results.ListQueuesResult(
        [call.queue_url(queue) for queue in page],
        context.handles.page_token(page[-1]) if is_cut and request.max_results is not None else None,
    )


async def delete_queue(context: SqsContext, call: SqsCall, request: requests.QueueOnly) -> None:
    await context.ask(DeleteQueue(queue_of_url(request.queue_url)))


async def purge_queue(context: SqsContext, call: SqsCall, request: requests.QueueOnly) -> None:
    await context.ask(PurgeQueue(queue_of_url(request.queue_url)))


async def get_queue_attributes(
    context: SqsContext, call: SqsCall, request: requests.GetQueueAttributes
) -> results.GetQueueAttributesResult:
    queue = queue_of_url(request.queue_url)
    names = [] if request.attribute_names is None else request.attribute_names
    for name in names:
        if name not in NAMES:
            raise unknown_attribute(name)
    attributes = all_attributes(await context.ask(DescribeQueue(queue)), context.arn, queue)
    if "All" not in names:
        attributes = {name: attributes[name] for name in names if name in attributes}
    return results.GetQueueAttributesResult(attributes)


async def set_queue_attributes(context: SqsContext, call: SqsCall, request: requests.SetQueueAttributes) -> None:
    queue = queue_of_url(request.queue_url)
    if not request.attributes:
        raise missing("Attributes")
    async with context.changing:
        described = await context.ask(DescribeQueue(queue))
        config = changed_config(described.config, request.attributes)
        if REDRIVE_POLICY in request.attributes:
            await _check_dead_letters(context, queue, config)
        await context.ask(ConfigureQueue(queue, config))


async def list_dead_letter_source_queues(
    context: SqsContext, call: SqsCall, request: requests.ListDeadLetterSourceQueues
) -> results.ListDeadLetterSourceQueuesResult:
    count = _page_size(request.max_results)
    after = "" if request.next_token is None else context.handles.page(request.next_token)
    listed = await context.ask(ListSources(queue_of_url(request.queue_url)))
    sources = sorted(queue for queue in listed.queues if queue > after)
    is_cut = request.max_results is not None and len(sources) > count
    return results.ListDeadLetterSourceQueuesResult(
        [call.queue_url(queue) for queue in sources[:count]],
        context.handles.page_token(sources[count - 1]) if is_cut else None,
    )


async def tag_queue(context: SqsContext, call: SqsCall, request: requests.TagQueueRequest) -> None:
    if not request.tags:
        raise missing("Tags")
    await _retag(context, queue_of_url(request.queue_url), request.tags, without=())


async def untag_queue(context: SqsContext, call: SqsCall, request: requests.UntagQueue) -> None:
    if not request.tag_keys:
        raise missing("TagKeys")
    await _retag(context, queue_of_url(request.queue_url), {}, without=tuple(request.tag_keys))


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


async def _retag(context: SqsContext, queue: str, tags: dict[str, str], *, without: tuple[str, ...]) -> None:
    async with context.changing:
        described = await context.ask(DescribeQueue(queue))
        after = {key: value for key, value in (described.tags | tags).items() if key not in without}
        check_tags(after)
        await context.ask(TagQueue(queue, after))


def _check_name(queue: str, *, is_fifo: bool) -> None:
    stem = queue.removesuffix(FIFO_SUFFIX) if is_fifo else queue
    if is_fifo and stem == queue:
        raise SqsError("InvalidParameterValue", f"The queue name {queue[:100]!r} must end with .fifo: it is FIFO.")
    if _NAME.fullmatch(stem) is None or len(queue) > _NAME_CHARACTERS_MAX:
        raise SqsError(
            "InvalidParameterValue",
            f"The queue name {queue[:100]!r} can only include alphanumeric characters, hyphens, or underscores. "
            f"1 to {_NAME_CHARACTERS_MAX} in length; that of a FIFO queue ends with .fifo, and FifoQueue is true.",
        )


def _page_size(max_results: int | None) -> int:
    if max_results is None:
        return limits.LIST_COUNT_MAX
    if not 1 <= max_results <= limits.LIST_COUNT_MAX:
        raise bad_value("MaxResults", max_results, f"Must be between 1 and {limits.LIST_COUNT_MAX}, if provided.")
    return max_results


async def _check_dead_letters(context: SqsContext, queue: str, config: QueueConfig) -> None:
    """Checks that the dead-letter queue exists, is of the same type, and accepts messages of this queue."""
    if config.dead_letters is None:
        return
    target = config.dead_letters
    answer = await context.execute(DescribeQueue(target))
    if not isinstance(answer, Described):
        raise bad_value(REDRIVE_POLICY, target, "Dead letter target does not exist.")
    if answer.config.order != config.order:
        raise bad_value(
            REDRIVE_POLICY, target, "Dead-letter queue must be same type of queue as the source: both FIFO or neither."
        )
    if not is_allowed(answer.config.labels.get(REDRIVE_ALLOW_POLICY), queue):
        raise bad_value(
            REDRIVE_POLICY, target, f"Queue {queue} does not have permission from the dead-letter queue's policy."
        )


async def _check_same(
    context: SqsContext, queue: str, attributes: dict[str, str], config: QueueConfig, *, refused: Refused
) -> None:
    """Accepts an existing queue of this name if it has all requested attributes."""
    existing = await context.execute(DescribeQueue(queue))
    if not isinstance(existing, Described):
        raise refusal(refused)
    have, want = settable_attributes(existing.config, context.arn), settable_attributes(config, context.arn)
    for name in attributes:
        if have.get(name) != want.get(name):
            raise SqsError(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {name}",
            )
