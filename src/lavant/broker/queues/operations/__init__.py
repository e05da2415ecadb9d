"""What is done to the messages of a queue: send, receive, settle, fan out, redrive."""
