"""World 2, asyncio: what runs as a server, with its wire protocols and its storage."""
