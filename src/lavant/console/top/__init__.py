"""`lavant top`: a server's figures, live."""
