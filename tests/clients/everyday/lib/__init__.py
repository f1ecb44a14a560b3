"""Parts of `run`: servers, installed clients, and the table."""
