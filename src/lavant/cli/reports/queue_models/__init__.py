"""One scenario of the reliable queue, four ways: equations, Petri net, queue machine, and a server that runs."""
