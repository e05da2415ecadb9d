"""Operations on the messages of queues: send, receive, settle, fan out, redrive, de-duplicate."""
