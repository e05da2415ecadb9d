"""The publisher in virtual time: its store, its workers, its connection to a broker, and a subscriber that may be
slow.
"""
