"""Ids. Each is a type of its own, so that the type checker finds one used for another."""

from __future__ import annotations

from typing import NewType

SubscriptionId = NewType("SubscriptionId", int)
"""A handle from 0 to 2³² - 1, assigned by the access point. It is small because matchers return millions of them a
second; names that users choose are mapped to it at the edge."""

PublicationId = NewType("PublicationId", str)
SubscriberId = NewType("SubscriberId", str)
PublisherId = NewType("PublisherId", str)
AdvertisementId = NewType("AdvertisementId", str)

HostId = NewType("HostId", str)
SliceId = NewType("SliceId", str)
"""A slice of an operator, such as M:3; it moves between hosts as a whole."""

SUBSCRIPTION_ID_MAX = 2**32 - 1
