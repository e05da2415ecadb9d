"""What decoding bytes can raise.

msgspec says with errors of its own that bytes hold no value of a type; but text that is no UTF-8, and values nested too
deeply, come as Python's errors. Whoever decodes what came from outside catches all of them.
"""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
