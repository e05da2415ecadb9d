"""Ids. Distinct ids are distinct types, so that one cannot stand in for another."""

from __future__ import annotations

from typing import NewType

SubscriptionId = NewType("SubscriptionId", int)
"""A handle between 0 and 2³² - 1, given by the access point: matchers return millions of them a second, so they are
small; names that people give are mapped to it at the edge."""

PublicationId = NewType("PublicationId", str)
SubscriberId = NewType("SubscriberId", str)
PublisherId = NewType("PublisherId", str)
AdvertisementId = NewType("AdvertisementId", str)

HostId = NewType("HostId", str)
SliceId = NewType("SliceId", str)
"""A part of an operator that moves between hosts as a whole, such as M:3."""

SUBSCRIPTION_ID_MAX = 2**32 - 1
