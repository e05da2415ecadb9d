"""AWS protocols: signatures, credentials, and the JSON and query codecs; SQS is built on them."""
