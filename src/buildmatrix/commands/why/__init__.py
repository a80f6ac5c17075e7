"""`why`: who asks for a library, who links it, who opens it; one graph of all that is known."""
