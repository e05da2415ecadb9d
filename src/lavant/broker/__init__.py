"""The data plane, pure: no clock, no random source, no sockets, no logging. Time and chance come in as arguments."""
