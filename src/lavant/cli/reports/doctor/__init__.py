"""`lavant doctor`: does this machine have what Lavant needs, and does the server answer?"""
