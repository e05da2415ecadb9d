"""The benchmark of publishing: from a publisher to the hands of subscribers, by content and by topic."""
